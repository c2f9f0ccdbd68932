//! Charts: plain data becomes SVG text. Knows nothing of records, fits or verdicts, and nothing of files.
//!
//! A chart is a struct of plain data ([`Plot`], [`Bars`], [`Histogram`], [`HeatMap`]) with one method, `draw()`, which
//! gives an [`Svg`]. [`Svg::inline`] goes into an HTML page that has [`STYLE`] in its style sheet; [`Svg::standalone`]
//! is a file of its own. Colours come from CSS variables that follow `prefers-color-scheme`, so that both are right in
//! light, in dark and on paper; there is no `style` attribute, no script and no reference to anything outside. The same
//! data gives the same bytes. Every text is escaped. Numbers that cannot be drawn (not finite, or not positive on a
//! logarithmic axis) are left out.

mod heat_map;
mod plot;

mod write;

pub use heat_map::{Cell, HeatMap};
pub use plot::{Bar, Bars, Change, Histogram, HistogramRow, Line, LineKind, Mark, Plot, Point, Series, Shade};
pub use write::{PointShape, Position, STYLE, Svg, escaped, xy};

use commgauge_base::units::{Bytes, Rate, Seconds, three_digits};
use write::{Anchor, Canvas, Path, cut, text_width};

// The frame of a chart: title, legend, axes with grid.

/// Height of a line of small type.
const LINE: f64 = 15.0;

/// How an entry of the legend is drawn.
#[derive(Clone, Debug, PartialEq)]
enum Key {
    Points(usize, PointShape),
    Curve(String),
    Area(String),
}

/// One entry of a legend.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    pub key: Key,
    pub name: String,
}

/// Draws the title over the whole width and returns its height.
fn title(canvas: &mut Canvas, text: &str, width: f64) -> f64 {
    if text.is_empty() {
        return 2.0;
    }
    // Of bold letters, which are wider where a system has none of the fonts asked for.
    let most = (width / 8.4) as usize;
    canvas.text(0.0, 13.0, "cg-title", Anchor::Start, &cut(text, most));
    22.0
}

/// Draws the legend below `top`, in as many lines as it needs, and returns its height.
fn legend(canvas: &mut Canvas, entries: &[Entry], top: f64, width: f64) -> f64 {
    let (mut x, mut y) = (0.0, top);
    for Entry { key, name } in entries {
        let name = cut(name, ((width - 30.0) / 6.9) as usize);
        let needed = 26.0 + text_width(&name) + 8.0;
        if x > 0.0 && x + needed - 8.0 > width {
            (x, y) = (0.0, y + LINE);
        }
        let middle = y + 6.0;
        match key {
            Key::Points(color, shape) => shape.draw(canvas, *color, &[xy(x + 9.0, middle)]),
            Key::Curve(class) => canvas.path(class, &Path::polyline([xy(x, middle), xy(x + 18.0, middle)])),
            Key::Area(class) => canvas.rectangle(class, x + 2.0, middle - 5.0, 14.0, 10.0),
        }
        canvas.text(x + 23.0, y + 10.0, "", Anchor::Start, &name);
        x += needed;
    }
    if entries.is_empty() { 0.0 } else { y + LINE + 3.0 - top }
}

/// The plot area inside the axes.
#[derive(Clone, Copy, Debug)]
struct Room {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

/// Grid, ticks and title of the vertical axis. The title is above the axis and not rotated.
fn vertical(canvas: &mut Canvas, axis: &Axis, scale: &Scale, room: Room) {
    let mut grid = Path::default();
    for (value, text) in &scale.ticks {
        let y = scale.place(*value);
        grid.line(xy(room.left, y), xy(room.right, y));
        canvas.text(room.left - 6.0, y + 3.8, "", Anchor::End, text);
    }
    canvas.path("cg-grid", &grid);
    canvas.text(0.0, room.top - 7.0, "", Anchor::Start, &titled(axis, scale));
}

/// Ticks and title of the horizontal axis.
fn horizontal(canvas: &mut Canvas, axis: &Axis, scale: &Scale, room: Room) {
    let mut ticks = Path::default();
    ticks.line(xy(room.left, room.bottom), xy(room.right, room.bottom));
    let mut free_from = f64::NEG_INFINITY;
    for (value, text) in &scale.ticks {
        let x = scale.place(*value);
        ticks.line(xy(x, room.bottom), xy(x, room.bottom + 4.0));
        let half = text_width(text) / 2.0;
        let middle = x.min(room.right + 8.0 - half).max(half.min(x));
        if middle - half >= free_from {
            canvas.text(middle, room.bottom + 16.0, "", Anchor::Middle, text);
            free_from = middle + half + 4.0;
        }
    }
    canvas.path("cg-axis", &ticks);
    let title = titled(axis, scale);
    if !title.is_empty() {
        canvas.text((room.left + room.right) / 2.0, room.bottom + 31.0, "", Anchor::Middle, &title);
    }
}

/// Height of the part below the plot area.
fn foot(axis: &Axis) -> f64 {
    if axis.title.is_empty() { 22.0 } else { 37.0 }
}

/// Width of the labels of the vertical ticks.
fn gutter(scale: &Scale) -> f64 {
    scale.ticks.iter().map(|(_, text)| text_width(text)).fold(14.0, f64::max) + 8.0
}

fn titled(axis: &Axis, scale: &Scale) -> String {
    match scale.unit_shown {
        Some(unit) if !unit.is_empty() && !axis.title.is_empty() => format!("{}, {unit}", axis.title),
        Some(unit) if axis.title.is_empty() => unit.to_owned(),
        _ => axis.title.clone(),
    }
}

// Axes: unit, spacing and ticks. Ticks are round in the unit: powers of two for bytes, powers of ten for times and rates.

/// Unit of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, in binary units.
    Bytes,
    Seconds,
    /// Bytes per second, in decimal units.
    BytesPerSecond,
    /// Per cent.
    Percent,
    /// A bare number.
    Count,
}

/// Spacing of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Equal differences have equal distances.
    Linear,
    /// Equal factors have equal distances.
    Log,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Quantity along the axis; the unit is added where ticks do not have it.
    pub title: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Spacing of the values.
    pub spacing: Spacing,
    /// Shown range; values beyond it are left out. `None` fits the axis to the values.
    pub range: Option<(f64, f64)>,
    /// Custom ticks, which replace the computed ones.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    pub fn linear(title: impl Into<String>, unit: Unit) -> Axis {
        Axis { title: title.into(), unit, spacing: Spacing::Linear, range: None, ticks: Vec::new() }
    }

    /// A logarithmic axis.
    pub fn log(title: impl Into<String>, unit: Unit) -> Axis {
        Axis { spacing: Spacing::Log, ..Axis::linear(title, unit) }
    }

    fn takes(&self, value: f64) -> bool {
        let inside = self.range.is_none_or(|(low, high)| (low..=high).contains(&value));
        value.is_finite() && inside && (self.spacing == Spacing::Linear || value > 0.0)
    }

    /// The scale that maps the values to `from` .. `to`, with at most `most` ticks. A linear axis begins at zero unless
    /// some value is below, or a range is given.
    fn scale(&self, values: impl Iterator<Item = f64>, from: f64, to: f64, most: usize) -> Scale {
        let mut bounds = self.range;
        if bounds.is_none() {
            for value in values.filter(|value| self.takes(*value)) {
                let (low, high) = bounds.unwrap_or((value, value));
                bounds = Some((low.min(value), high.max(value)));
            }
        }
        let (low, high) = bounds.unwrap_or((1.0, 10.0));
        let (low, high) = match (self.spacing, self.range) {
            (_, Some(_)) => (low, high),
            (Spacing::Log, None) => padded_log(low, high),
            (Spacing::Linear, None) if self.ticks.is_empty() => (low.min(0.0) * 1.08, high.max(0.0) * 1.08),
            (Spacing::Linear, None) => (low - 0.03 * (high - low).max(1.0), high + 0.03 * (high - low).max(1.0)),
        };
        let high = if high > low { high } else { low + 1.0 };
        let mut scale = Scale { spacing: self.spacing, low, high, from, to, ticks: Vec::new(), unit_shown: None };
        if self.ticks.is_empty() {
            self.place_ticks(&mut scale, most.max(2));
        } else {
            scale.ticks.clone_from(&self.ticks);
        }
        scale
    }

    fn place_ticks(&self, scale: &mut Scale, most: usize) {
        match self.spacing {
            Spacing::Log if self.unit == Unit::Bytes => {
                let ticks = powers(2.0, scale.low, scale.high, most);
                scale.ticks = ticks.into_iter().map(|value| (value, Bytes(value.round() as u64).to_string())).collect();
                // Less than a factor of two holds no two powers of two: round steps of the unit.
                if scale.ticks.len() < 2 {
                    let (unit, name) = self.largest_unit(scale.high);
                    let values = steps(scale.low / unit, scale.high / unit, most.min(4));
                    let ticks = values.into_iter().filter(|value| *value > 0.0);
                    scale.ticks = ticks.map(|value| (value * unit, format!("{} {name}", plain(value)))).collect();
                }
            }
            Spacing::Log => {
                let ticks = decades(scale.low, scale.high, most);
                scale.ticks = ticks.into_iter().map(|value| (value, self.shown(value))).collect();
            }
            Spacing::Linear => {
                let (unit, name) = self.largest_unit(scale.low.abs().max(scale.high.abs()));
                scale.unit_shown = Some(name);
                for value in steps(scale.low / unit, scale.high / unit, most) {
                    scale.ticks.push((value * unit, plain(value)));
                }
            }
        }
    }

    /// The unit that suits the largest value of a linear axis best.
    fn largest_unit(&self, largest: f64) -> (f64, &'static str) {
        let units: &[(f64, &str)] = match self.unit {
            Unit::Bytes => &[
                (1_099_511_627_776.0, "TiB"),
                (1_073_741_824.0, "GiB"),
                (1_048_576.0, "MiB"),
                (1024.0, "KiB"),
                (1.0, "B"),
            ],
            Unit::Seconds => &[(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")],
            Unit::BytesPerSecond => &[(1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")],
            Unit::Percent => &[(1.0, "%")],
            Unit::Count => &[(1.0, "")],
        };
        // Values slightly below one still use the unit: 0.5 GB/s, not 500 MB/s, next to 0.9.
        units.iter().copied().find(|(unit, _)| largest >= *unit).unwrap_or(units[units.len() - 1])
    }

    /// A value as a sentence has it: by its custom tick, or its place among them counted from one; else with its unit.
    fn named(&self, value: f64) -> String {
        match self.ticks.iter().find(|(at, _)| *at == value) {
            Some((_, name)) => name.clone(),
            None if !self.ticks.is_empty() => format!("{} {}", self.title, plain(value + 1.0)),
            None => self.shown(value),
        }
    }

    /// A value with its unit.
    fn shown(&self, value: f64) -> String {
        match self.unit {
            Unit::Bytes => Bytes(value.round().max(0.0) as u64).to_string(),
            Unit::Seconds => short(Seconds(value).to_string()),
            Unit::BytesPerSecond => short(Rate(value).to_string()),
            Unit::Percent => format!("{} %", three_digits(value)),
            Unit::Count => three_digits(value),
        }
    }
}

/// Removes trailing zeros: `10.0 us` becomes `10 us`.
fn short(text: String) -> String {
    let Some((number, unit)) = text.split_once(' ') else { return text };
    if !number.contains('.') {
        return text;
    }
    format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
}

/// Maps values to positions in the picture.
#[derive(Clone, Debug)]
struct Scale {
    spacing: Spacing,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    pub ticks: Vec<(f64, String)>,
    /// Unit of bare numbers at the ticks.
    pub unit_shown: Option<&'static str>,
}

impl Scale {
    pub fn place(&self, value: f64) -> f64 {
        let share = match self.spacing {
            Spacing::Linear => (value - self.low) / (self.high - self.low),
            Spacing::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }
}

fn padded_log(low: f64, high: f64) -> (f64, f64) {
    let padding = ((high / low).ln() * 0.04).max(0.1).exp();
    (low / padding, high * padding)
}

/// Powers of a base within the range, thinned to every n-th so that there are at most `most`.
fn powers(base: f64, low: f64, high: f64, most: usize) -> Vec<f64> {
    let first = (low.ln() / base.ln()).ceil() as i32;
    let last = (high.ln() / base.ln()).floor() as i32;
    let step = [1, 2, 4, 5, 10, 20].into_iter().find(|step| (last - first) / step < most as i32).unwrap_or(40);
    (first..=last).filter(|exponent| exponent.rem_euclid(step) == 0).map(|exponent| base.powi(exponent)).collect()
}

/// Powers of ten, with 2 and 5 between them where there is room, and round steps where the span is small.
fn decades(low: f64, high: f64, most: usize) -> Vec<f64> {
    let first = low.log10().floor() as i32;
    let last = high.log10().ceil() as i32;
    for digits in [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]] {
        let all = (first..=last).flat_map(|exponent| digits.iter().map(move |digit| ten_to(exponent, *digit)));
        let inside: Vec<f64> = all.filter(|value| (low..=high).contains(value)).collect();
        if inside.len() < 2 && digits.len() == 3 {
            return steps(low, high, most.min(4)).into_iter().filter(|value| *value > 0.0).collect();
        }
        if inside.len() <= most {
            return inside;
        }
    }
    powers(10.0, low, high, most)
}

/// Exact powers of ten: 1e-6 and not 9.999e-7.
fn ten_to(exponent: i32, digit: f64) -> f64 {
    if exponent < 0 { digit / 10f64.powi(-exponent) } else { digit * 10f64.powi(exponent) }
}

/// Multiples of 1, 2 or 5 times a power of ten within the range.
fn steps(low: f64, high: f64, most: usize) -> Vec<f64> {
    let rough = (high - low) / most as f64;
    if rough <= 0.0 || !rough.is_finite() {
        return vec![low];
    }
    let exponent = rough.log10().floor() as i32;
    let step = [(1.0, 0), (2.0, 0), (5.0, 0), (1.0, 1)]
        .into_iter()
        .map(|(digit, more)| ten_to(exponent + more, digit))
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(rough);
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(|index| index as f64 * step).collect()
}

/// The number of a tick, with the fewest digits.
fn plain(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    // Guarantees of every chart: all text is escaped, the same data gives the same bytes, nothing leaves the picture or the file.
    use super::*;
    use commgauge_base::stats::Interval;

    const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&\u{202e}\u{7}]]>";

    fn plot(text: &str) -> Plot {
        let mut measured = Series::new(text);
        measured.points =
            vec![Point::between(1024.0, 9e-6, 8e-6, 2e-5), Point::at(1048576.0, f64::NAN), Point::at(-1.0, 1e-5)];
        measured.points.push(Point { crossed: true, ..Point::at(65536.0, 1e-4) });
        measured.band = vec![(1024.0, 8e-6, 1e-5), (65536.0, 2e-5, 4e-5)];
        let mut curve = Series::new("curve");
        let time = |bytes: f64| xy(bytes, 1e-5 + 1e-11 * bytes);
        curve.curve = (10..21).map(|power| time(f64::from(1 << power))).collect();
        let mut plot = Plot::new(text, Axis::log(text, Unit::Bytes), Axis::log(text, Unit::Seconds));
        plot.series = vec![measured, curve];
        plot.lines = vec![Line { name: text.into(), kind: LineKind::Expected, points: vec![xy(1024.0, 2e-5)] }];
        plot.shades = vec![Shade { from: 65536.0, to: 1048576.0, name: text.into() }];
        plot.changes = vec![Change { x: 4096.0, label: text.into() }];
        plot.description = text.into();
        plot
    }

    fn bars(text: &str) -> Bars {
        let bar = Bar {
            label: text.into(),
            parts: vec![1.0, 2.0],
            interval: Some(Interval { low: 2.5, high: 3.5 }),
            note: text.into(),
        };
        Bars {
            parts: vec![text.into(), "b".into()],
            bars: vec![bar],
            ..Bars::new(text, Axis::linear(text, Unit::Seconds))
        }
    }

    fn histogram(text: &str) -> Histogram {
        let marks = vec![Mark { name: "p50", at: 1e-5 }, Mark { name: "max", at: 3e-4 }];
        let bins = vec![(Histogram::bin_of(1e-5).unwrap(), 90), (Histogram::bin_of(3e-4).unwrap(), 1)];
        Histogram { rows: vec![HistogramRow { label: text.into(), bins, marks }], ..Histogram::new(text) }
    }

    fn heat_map(text: &str) -> HeatMap {
        let cells = vec![
            vec![Cell::Nothing, Cell::Percent(97.0), Cell::Percent(42.0)],
            vec![Cell::Failed, Cell::Nothing, Cell::Percent(140.0)],
            vec![Cell::Wrong, Cell::NotMeasured, Cell::Nothing],
        ];
        let labels = vec![text.into(), "b".into(), "c".into()];
        let hovers = vec![vec![text.into(); 3]; 3];
        HeatMap {
            title: text.into(),
            description: text.into(),
            reference: text.into(),
            labels,
            cells,
            hovers,
            begins: vec![1],
        }
    }

    fn all(text: &str) -> Vec<Svg> {
        vec![plot(text).draw(), bars(text).draw(), histogram(text).draw(), heat_map(text).draw()]
    }

    #[test]
    fn no_text_escapes_its_element() {
        for svg in all(HOSTILE) {
            let text = svg.inline();
            let forbidden = ["<img", "onerror=alert(1)>", "\u{202e}", "\u{7}", "]]>"];
            assert!(forbidden.iter().all(|word| !text.contains(word)), "{text}");
            assert!(text.contains("&lt;img"), "the text is still shown");
        }
    }

    #[test]
    fn the_same_data_gives_the_same_bytes_and_other_data_others() {
        assert_eq!(all("a"), all("a"));
        assert_ne!(all("a"), all("b"));
    }

    #[test]
    fn a_chart_requests_no_external_resource_and_needs_no_style_attribute() {
        for svg in all("a") {
            let text = svg.standalone();
            let outside = text.replace("http://www.w3.org/2000/svg", "");
            let forbidden = ["http", "url(", "href", "<script", " style=", "NaN", "inf"];
            assert!(forbidden.iter().all(|word| !outside.contains(word)), "{text}");
            assert!(text.contains("prefers-color-scheme:dark"));
            assert!(!svg.inline().contains("<style"), "inside a page the style sheet is the page's");
        }
    }

    #[test]
    fn everything_drawn_is_inside_the_picture() {
        for svg in all("a") {
            let text = svg.inline();
            let size = |name: &str| {
                let rest = text.split_once(&format!("{name}=\"")).unwrap().1;
                rest.split_once('"').unwrap().0.parse::<f64>().unwrap()
            };
            let (width, height) = (size("width"), size("height"));
            for (x, y) in places(&text) {
                assert!((-0.1..=width + 0.1).contains(&x) && (-0.1..=height + 0.1).contains(&y), "{x} {y} in {text}");
            }
        }
    }

    /// The absolute positions at which paths begin or to which they draw lines.
    fn places(text: &str) -> Vec<(f64, f64)> {
        let mut found = Vec::new();
        for path in text.split(" d=\"").skip(1).map(|rest| rest.split_once('"').unwrap().0) {
            for part in path.split(['M', 'L']).skip(1) {
                let end = part.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(part.len());
                let (x, y) = part[..end].split_once(' ').unwrap();
                found.push((x.parse().unwrap(), y.parse().unwrap()));
            }
        }
        assert!(!found.is_empty());
        found
    }

    #[test]
    fn bytes_have_binary_ticks_and_times_decimal_ones() {
        let text = plot("a").draw().inline();
        for tick in [">4 KiB<", ">64 KiB<", ">10 us<", ">100 us<"] {
            assert!(text.contains(tick), "{tick} in {text}");
        }
    }

    #[test]
    fn bins_do_not_depend_on_the_data() {
        for (seconds, bin) in [(1.0, Some(0)), (10.0, Some(40)), (0.1, Some(-40)), (1e-6, Some(-240)), (0.0, None)] {
            assert_eq!(Histogram::bin_of(seconds), bin, "{seconds}");
        }
        assert!((Histogram::bin_start(-240) - 1e-6).abs() < 1e-18);
    }

    #[test]
    fn a_large_matrix_is_gathered_and_keeps_its_worst_cells() {
        let size = 130;
        let mut cells = vec![vec![Cell::Percent(100.0); size]; size];
        cells[7][99] = Cell::Percent(40.0);
        cells[129][0] = Cell::Wrong;
        let labels: Vec<String> = (0..size).map(|index| format!("h{index}")).collect();
        let hovers = labels.iter().map(|one| labels.iter().map(|other| format!("{one}, {other}")).collect()).collect();
        let map = HeatMap {
            title: String::new(),
            description: String::new(),
            reference: "expected".into(),
            labels,
            cells,
            hovers,
            begins: Vec::new(),
        };
        let (gathered, block) = map.gathered(64);
        assert_eq!((block, gathered.labels.len()), (3, 44));
        assert_eq!((gathered.cells[2][33], gathered.cells[43][0]), (Cell::Percent(40.0), Cell::Wrong));
        assert_eq!(gathered.labels[2], "h6 … h8");
        assert_eq!(gathered.hovers[2][33], "h7, h99", "the pair of the cell");
    }

    #[test]
    fn every_cell_shows_its_value_on_hover_and_up_to_16_rows_in_the_cell() {
        for (size, class) in [(16, "cg-on cg-mid"), (32, "cg-on cg-small cg-mid")] {
            let cells = vec![vec![Cell::Percent(97.0); size]; size];
            let labels: Vec<String> = (0..size).map(|index| format!("h{index}")).collect();
            let hovers = vec![vec!["h1, h2: 24.1 GB/s".to_owned(); size]; size];
            let (title, reference) = ("one way".to_owned(), "the median".to_owned());
            let description = String::new();
            let svg = HeatMap { title, description, reference, labels, cells, hovers, begins: Vec::new() }.draw();
            let text = svg.inline();
            let squares = text.matches("<title>h1, h2: 24.1 GB/s, 97 % of the median</title>").count();
            assert_eq!(squares, size * size, "{text}");
            assert!(text.matches(&format!("class=\"{class}\">97</text>")).count() >= size * size, "{text}");
            assert!(!text.contains("class=\"cg-h4\"><path"), "a healthy machine is calm");
            assert!(svg.summary().contains("cells are within 90 to 110 % of the median"), "{}", svg.summary());
        }
    }

    #[test]
    fn every_picture_says_its_numbers_in_words() {
        let summary = plot("measured").draw().summary().to_owned();
        assert!(summary.contains(" at 1 KiB"), "{summary}");
        assert!(bars("a").draw().summary().contains("a a"), "the label with its note");
        let text = histogram("64 MiB").draw();
        assert!(text.summary().contains("64 MiB: p50 10 us, max 300 us"), "{}", text.summary());
        for svg in all("a") {
            assert!(svg.inline().contains(&format!("<desc>{}</desc>", svg.summary())), "{}", svg.inline());
        }
    }

    #[test]
    fn sizes_within_a_factor_of_two_still_have_ticks_in_binary_units() {
        let mut series = Series::new("measured");
        series.points = (0..5).map(|step| Point::at(f64::from((1 << 20) + step * 65536), 1e-4)).collect();
        let axes = (Axis::log("bytes_total", Unit::Bytes), Axis::linear("time", Unit::Seconds));
        let text = Plot { series: vec![series], ..Plot::new("", axes.0, axes.1) }.draw().inline();
        assert!(text.contains(">1 MiB<") && text.contains(">1.2 MiB<"), "{text}");
    }

    #[test]
    fn rates_over_decades_are_logarithmic_and_others_begin_at_zero() {
        let of = |low: f64| {
            let mut series = Series::new("measured");
            series.points = vec![Point::at(1024.0, low), Point::at(1048576.0, 2e11)];
            let axes = (Axis::log("bytes_total", Unit::Bytes), Axis::linear("bus bandwidth", Unit::BytesPerSecond));
            Plot { series: vec![series], ..Plot::new("", axes.0, axes.1) }.log_over_decades().draw().inline()
        };
        assert!(of(1e8).contains(">1 GB/s<") && of(1e8).contains(">100 GB/s<"), "{}", of(1e8));
        assert!(of(1e11).contains(">0<") && of(1e11).contains("bus bandwidth, GB/s"), "{}", of(1e11));
    }
}
