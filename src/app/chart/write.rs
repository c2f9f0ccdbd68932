//! SVG as text: escaping, portable number formatting, and the elements of charts. No layout.

use commgauge_base::visible::is_control_or_format;
use std::fmt::Write;

/// Width of a character of the small type, on average and to be safe.
const CHARACTER_WIDTH: f64 = 6.9;

/// A finished chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Svg {
    open: String,
    body: String,
    width: f64,
    height: f64,
    summary: String,
}

impl Svg {
    /// What the picture shows, in sentences with its numbers; the picture has the same for screen readers.
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// For a page whose style sheet has [`STYLE`].
    pub fn inline(&self) -> String {
        format!("{}>{}</svg>", self.open, self.body)
    }

    /// Two pictures combined into one, this one above the other.
    pub fn above(&self, below: &Svg) -> Svg {
        let (width, height) = (self.width.max(below.width), self.height + below.height);
        let nested = |svg: &Svg, y: f64| format!("<svg y=\"{}\"{}", number(y), &svg.inline()[4..]);
        let (w, h) = (number(width), number(height));
        let open = format!(r#"<svg class="cg" viewBox="0 0 {w} {h}" width="{w}" height="{h}""#);
        let summary = [self.summary(), below.summary()].join(" ").trim().to_owned();
        Svg { open, body: nested(self, 0.0) + &nested(below, self.height), width, height, summary }
    }

    /// A file of its own, with its style sheet.
    pub fn standalone(&self) -> String {
        let (open, body, style) = (&self.open, &self.body, STYLE);
        let paper = r#"<rect class="cg-paper" width="100%" height="100%"/>"#;
        format!("{open} xmlns=\"http://www.w3.org/2000/svg\">\n<style>\n{style}</style>\n{paper}{body}</svg>\n")
    }
}

/// The elements of a chart so far.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    body: String,
    summary: String,
}

/// Horizontal alignment of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Canvas {
    /// A canvas with a title and the picture in sentences, for screen readers.
    pub fn new(title: &str, summary: &str) -> Canvas {
        let mut body = format!("<title>{}</title>", escaped(title));
        if !summary.is_empty() {
            body += &format!("<desc>{}</desc>", escaped(summary));
        }
        Canvas { body, summary: summary.to_owned() }
    }

    pub fn finish(self, width: f64, height: f64) -> Svg {
        let (w, h) = (number(width), number(height));
        Svg {
            open: format!(r#"<svg class="cg" role="img" viewBox="0 0 {w} {h}" width="{w}" height="{h}""#),
            body: self.body,
            width,
            height,
            summary: self.summary,
        }
    }

    pub fn text(&mut self, x: f64, y: f64, class: &str, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " cg-mid",
            Anchor::End => " cg-end",
        };
        let class = format!("{class}{anchor}");
        let class = if class.trim().is_empty() { String::new() } else { format!(" class=\"{}\"", class.trim()) };
        let _ = write!(self.body, "<text x=\"{}\" y=\"{}\"{class}>{}</text>", number(x), number(y), escaped(text));
    }

    /// A text that is written upwards, from its end at the position.
    pub fn text_upwards(&mut self, x: f64, y: f64, text: &str) {
        let (x, y) = (number(x), number(y));
        let _ = write!(self.body, "<text transform=\"translate({x} {y}) rotate(-90)\">{}</text>", escaped(text));
    }

    pub fn rectangle(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        let (x, y, width, height) = (number(x), number(y), number(width.max(0.0)), number(height.max(0.0)));
        let _ =
            write!(self.body, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>");
    }

    /// Begins a group of elements of the same class.
    pub fn begin_group(&mut self, class: &str) {
        let _ = write!(self.body, "<g class=\"{class}\">");
    }

    pub fn end_group(&mut self) {
        self.body += "</g>";
    }

    /// A path of the class of its group, with a text that a browser shows on hover.
    pub fn path_with_hover(&mut self, path: &Path, hover: &str) {
        let _ = write!(self.body, "<path d=\"{}\"><title>{}</title></path>", path.text, escaped(hover));
    }

    /// A path, unless it is empty.
    pub fn path(&mut self, class: &str, path: &Path) {
        if !path.text.is_empty() {
            let _ = write!(self.body, "<path class=\"{class}\" d=\"{}\"/>", path.text);
        }
    }
}

/// Data of an SVG path.
#[derive(Clone, Debug, Default)]
pub(super) struct Path {
    text: String,
}

impl Path {
    pub fn polyline(positions: impl IntoIterator<Item = Position>) -> Path {
        let mut path = Path::default();
        path.through(positions);
        path
    }

    pub fn line(&mut self, from: Position, to: Position) {
        self.through([from, to]);
    }

    pub fn rectangle(&mut self, x: f64, y: f64, width: f64, height: f64) {
        let (width, height) = (number(width), number(height));
        self.to('M', xy(x, y));
        let _ = write!(self.text, "h{width}v{height}h-{width}z");
    }

    pub fn polygon(&mut self, corners: impl IntoIterator<Item = Position>) {
        self.through(corners);
        self.text.push('z');
    }

    pub fn close(mut self) -> Path {
        if !self.text.is_empty() {
            self.text.push('z');
        }
        self
    }

    pub fn circle(&mut self, x: f64, y: f64, radius: f64) {
        let (r, d) = (number(radius), number(2.0 * radius));
        self.to('M', xy(x - radius, y));
        let _ = write!(self.text, "a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z");
    }

    fn through(&mut self, positions: impl IntoIterator<Item = Position>) {
        for (index, position) in positions.into_iter().enumerate() {
            self.to(if index == 0 { 'M' } else { 'L' }, position);
        }
    }

    fn to(&mut self, command: char, position: Position) {
        let _ = write!(self.text, "{command}{} {}", number(position.x), number(position.y));
    }
}

/// Rounded to a tenth, without a trailing zero.
pub(super) fn number(value: f64) -> String {
    let tenths = (value * 10.0).round();
    // Also removes the sign of negative zero.
    let tenths = if tenths == 0.0 || !tenths.is_finite() { 0.0 } else { tenths };
    let text = format!("{:.1}", tenths / 10.0);
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// A text escaped for XML and HTML elements and attributes. Control and format characters are written out, since XML cannot
/// represent most of them.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c if acts(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

fn acts(c: char) -> bool {
    is_control_or_format(c) || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Estimated width of a text.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().map(|c| if c.is_ascii() { 1.0 } else { 1.8 }).sum::<f64>() * CHARACTER_WIDTH + 4.0
}

/// The text, cut with an ellipsis where it has more characters.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

// The style sheet of charts.

/// The style sheet that inline charts need; standalone ones carry it.
pub const STYLE: &str = include_str!("chart.css");

// Charts in sentences, for those who cannot see the picture.

/// The sentences after a description, which may be empty.
pub(super) fn joined(description: &str, sentences: impl IntoIterator<Item = String>) -> String {
    let mut text = description.trim().to_owned();
    for sentence in sentences {
        if !text.is_empty() {
            text.push(' ');
        }
        text += &sentence;
        text.push('.');
    }
    text
}

/// A sentence about something that may have a name.
pub(super) fn named(name: &str, text: &str) -> String {
    if name.is_empty() { text.to_owned() } else { format!("{name}: {text}") }
}

/// Points by their ends and extremes: `9 us at 1 KiB to 2 ms at 64 MiB, least .. at .., most .. at ..`. None without points.
pub(super) fn course(points: &[Position], at: impl Fn(Position) -> String) -> Option<String> {
    let (first, last) = (*points.first()?, *points.last()?);
    let least = points.iter().copied().min_by(|a, b| a.y.total_cmp(&b.y))?;
    let most = points.iter().copied().max_by(|a, b| a.y.total_cmp(&b.y))?;
    let ends = if points.len() == 1 { at(first) } else { format!("{} to {}", at(first), at(last)) };
    let is_end = |point: Position| point.y == first.y || point.y == last.y;
    let extremes = [("least", least), ("most", most)].into_iter().filter(|(_, point)| !is_end(*point));
    Some(extremes.fold(ends, |text, (name, point)| format!("{text}, {name} {}", at(point))))
}

// How the points of a plot are drawn: by series, and by whether they can be trusted.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointShape {
    /// Filled, in the shape of the series.
    Filled,
    /// A cross.
    Crossed,
}

impl PointShape {
    /// Draws points of a series at these places.
    pub(super) fn draw(self, canvas: &mut Canvas, color: usize, positions: &[Position]) {
        let mut path = Path::default();
        for center in positions.iter().copied() {
            let Position { x, y } = center;
            match (self, color) {
                (PointShape::Crossed, _) => {
                    path.line(xy(x - 3.5, y - 3.5), xy(x + 3.5, y + 3.5));
                    path.line(xy(x - 3.5, y + 3.5), xy(x + 3.5, y - 3.5));
                }
                (PointShape::Filled, 1) => path.rectangle(x - 2.9, y - 2.9, 5.8, 5.8),
                (PointShape::Filled, 2) => polygon(&mut path, center, &[xy(0.0, -4.0), xy(3.8, 3.0), xy(-3.8, 3.0)]),
                (PointShape::Filled, 3) => {
                    polygon(&mut path, center, &[xy(0.0, -4.2), xy(4.2, 0.0), xy(0.0, 4.2), xy(-4.2, 0.0)])
                }
                (PointShape::Filled, 4) => polygon(&mut path, center, &[xy(0.0, 4.0), xy(3.8, -3.0), xy(-3.8, -3.0)]),
                (PointShape::Filled, _) => path.circle(x, y, 3.2),
            }
        }
        let class = match (self, color) {
            (PointShape::Crossed, _) => format!("cg-cross cg-s{color}"),
            (PointShape::Filled, 5) => format!("cg-hollow cg-s{color}"),
            (PointShape::Filled, _) => format!("cg-f{color}"),
        };
        canvas.path(&class, &path);
    }
}

/// A polygon whose corners are seen from its centre.
fn polygon(path: &mut Path, center: Position, corners: &[Position]) {
    path.polygon(corners.iter().map(|corner| xy(center.x + corner.x, center.y + corner.y)));
}

// Places in the plane of two axes, or in the picture.

/// A place by its two coordinates: values of the axes, or units of the picture, in which y grows downwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// Along the horizontal axis.
    pub x: f64,
    /// Along the vertical one.
    pub y: f64,
}

/// The place of these coordinates; in short, as the code of pictures is full of them.
pub fn xy(x: f64, y: f64) -> Position {
    Position { x, y }
}
