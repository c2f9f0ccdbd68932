//! Points, curves, bands and lines over two axes: measurements against size, residuals, histories with change points.

use super::axis::{Axis, Scale, Spacing};
use super::frame::{self, Entry, Key, Room};
use super::point_shape::PointShape;
use super::position::{Position, xy};
use super::summary;
use super::write::{Anchor, Canvas, Path, Svg, cut, text_width};
use commgauge_base::stats::Interval;

/// Number of colours and shapes of series; further series reuse them.
const COLORS: usize = 6;

/// A chart over two axes. [`Plot::new`] gives an empty one.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Title, also read by screen readers.
    pub title: String,
    /// Alternative text for screen readers.
    pub description: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// The series, each with its own colour and shape.
    pub series: Vec<Series>,
    /// Reference lines.
    pub lines: Vec<Line>,
    /// Shaded ranges of the horizontal axis, such as those outside the measured sizes.
    pub shades: Vec<Shade>,
    /// Change points on the horizontal axis.
    pub changes: Vec<Change>,
    /// Width in units of the picture, in which small type is 11 high.
    pub width: f64,
    /// Height of the plot area.
    pub room_height: f64,
}

/// One set of measurements, or one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Its points.
    pub points: Vec<Point>,
    /// A curve, by ascending x.
    pub curve: Vec<Position>,
    /// Whether the curve is drawn as steps.
    pub stepped: bool,
    /// Whether the curve is dashed, as for ranges without measurements.
    pub dashed: bool,
    /// An area: x, lower and upper y, by ascending x.
    pub band: Vec<(f64, f64, f64)>,
    /// Index of colour and shape; `None` takes the position among the series.
    pub color: Option<usize>,
}

/// A point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Along the horizontal axis.
    pub x: f64,
    /// Along the vertical one.
    pub y: f64,
    /// An interval around it.
    pub interval: Option<Interval>,
    /// Drawn as a cross: an outlier, a failure, or an excluded value.
    pub crossed: bool,
}

/// A reference line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// As the legend calls it.
    pub name: String,
    /// Meaning of the line.
    pub kind: LineKind,
    /// Its points; a single point is drawn as a short horizontal line.
    pub points: Vec<Position>,
}

/// Meaning of a reference line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// Expected values.
    Expected,
    /// An upper bound.
    Bound,
    /// A guide to the eye, such as zero error.
    Plain,
}

/// A shaded range.
#[derive(Clone, Debug, PartialEq)]
pub struct Shade {
    /// Lower end.
    pub from: f64,
    /// Upper end.
    pub to: f64,
    /// Name in the legend; ranges with the same name share an entry.
    pub name: String,
}

/// A change point.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Position on the horizontal axis.
    pub x: f64,
    /// Short description.
    pub label: String,
}

impl Plot {
    /// An empty plot.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Plot {
        Plot {
            title: title.into(),
            description: String::new(),
            x,
            y,
            series: Vec::new(),
            lines: Vec::new(),
            shades: Vec::new(),
            changes: Vec::new(),
            width: 400.0,
            room_height: 190.0,
        }
    }

    /// The same with a logarithmic vertical axis where its values span a factor of ten or more and are all positive: on a
    /// linear one the small ones could not be told apart.
    pub fn log_over_decades(mut self) -> Plot {
        let values = || self.series.iter().flat_map(|series| &series.points).map(|point| point.y);
        let (low, high) = values().fold((f64::INFINITY, 0.0f64), |(low, high), y| (low.min(y), high.max(y)));
        if low > 0.0 && high >= 10.0 * low {
            self.y.spacing = Spacing::Log;
        }
        self
    }

    /// The picture.
    pub fn draw(&self) -> Svg {
        let mut canvas = Canvas::new(&self.title, &self.summary());
        let mut top = frame::title(&mut canvas, &self.title, self.width);
        top += frame::legend(&mut canvas, &self.legend(), top, self.width);
        top += if self.y.title.is_empty() && self.y.ticks.is_empty() { 8.0 } else { 20.0 };
        let ys = self.y.scale(self.all_y(), top + self.room_height, top, (self.room_height / 34.0) as usize);
        let (left, right) = (frame::gutter(&ys), self.width - 10.0);
        let room = Room { left, right, top, bottom: top + self.room_height };
        let most = ((right - left) / 58.0) as usize;
        let xs = self.x.scale(self.all_x(), left + 6.0, right - 4.0, most);
        self.draw_shades(&mut canvas, &xs, room);
        frame::vertical(&mut canvas, &self.y, &ys, room);
        self.draw_lines(&mut canvas, &xs, &ys);
        for (index, series) in self.series.iter().enumerate() {
            self.draw_series(&mut canvas, series, series.color.unwrap_or(index) % COLORS, &xs, &ys);
        }
        self.draw_changes(&mut canvas, &xs, room);
        frame::horizontal(&mut canvas, &self.x, &xs, room);
        canvas.finish(self.width, room.bottom + frame::foot(&self.x))
    }

    /// Each series by its ends and extremes; then reference lines and changes.
    fn summary(&self) -> String {
        let at = |point: Position| format!("{} at {}", self.y.shown(point.y), self.x.named(point.x));
        let drawn = |point: &&Point| self.x.takes(point.x) && self.y.takes(point.y);
        let series = self.series.iter().take(COLORS).filter_map(|series| {
            let points: Vec<Position> = series.points.iter().filter(drawn).map(|point| xy(point.x, point.y)).collect();
            let crossed = series.points.iter().filter(drawn).filter(|point| point.crossed).count();
            let crossed = if crossed > 0 { format!("; {crossed} crossed out") } else { String::new() };
            Some(summary::named(&series.name, &(summary::course(&points, at)? + &crossed)))
        });
        let lines = self.lines.iter().filter(|line| !line.name.is_empty());
        let lines = lines.filter_map(|line| Some(summary::named(&line.name, &summary::course(&line.points, at)?)));
        let changes = self.changes.iter().map(|change| format!("Change: {}", change.label));
        summary::joined(&self.description, series.chain(lines).chain(changes))
    }

    fn all_x(&self) -> impl Iterator<Item = f64> {
        let series = self.series.iter().flat_map(|series| {
            let points = series.points.iter().map(|point| point.x);
            points.chain(series.curve.iter().map(|at| at.x)).chain(series.band.iter().map(|at| at.0))
        });
        let lines = self.lines.iter().flat_map(|line| line.points.iter().map(|at| at.x));
        series.chain(lines).chain(self.shades.iter().flat_map(|shade| [shade.from, shade.to]))
    }

    fn all_y(&self) -> impl Iterator<Item = f64> {
        let series = self.series.iter().flat_map(|series| {
            let points = series.points.iter().flat_map(|point| {
                let Interval { low, high } = point.interval.unwrap_or(Interval { low: point.y, high: point.y });
                [low, point.y, high]
            });
            let band = series.band.iter().flat_map(|(_, low, high)| [*low, *high]);
            points.chain(series.curve.iter().map(|at| at.y)).chain(band)
        });
        series.chain(self.lines.iter().flat_map(|line| line.points.iter().map(|at| at.y)))
    }

    fn legend(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for (index, series) in self.series.iter().enumerate() {
            let color = series.color.unwrap_or(index) % COLORS;
            if series.name.is_empty() {
                continue;
            }
            let key = match (series.points.is_empty(), series.curve.is_empty()) {
                (false, _) if series.points.iter().all(|point| point.crossed) => {
                    Key::Points(color, PointShape::Crossed)
                }
                (false, _) => Key::Points(color, PointShape::Filled),
                (true, false) => Key::Curve(curve_class(series, color)),
                (true, true) => Key::Area(format!("cg-band cg-f{color}")),
            };
            entries.push(Entry { key, name: series.name.clone() });
        }
        for line in self.lines.iter().filter(|line| !line.name.is_empty()) {
            let entry = Entry { key: Key::Curve(line.kind.class().to_owned()), name: line.name.clone() };
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        for shade in self.shades.iter().filter(|shade| !shade.name.is_empty()) {
            let entry = Entry { key: Key::Area("cg-shade".to_owned()), name: shade.name.clone() };
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        // A single series needs no legend; the title names it.
        let alone = entries.len() == 1 && self.lines.is_empty() && self.shades.is_empty();
        if alone { Vec::new() } else { entries }
    }

    fn draw_shades(&self, canvas: &mut Canvas, xs: &Scale, room: Room) {
        for shade in &self.shades {
            let (from, to) = (xs.place(shade.from), xs.place(shade.to));
            canvas.rectangle("cg-shade", from, room.top, to - from, room.bottom - room.top);
        }
    }

    fn draw_lines(&self, canvas: &mut Canvas, xs: &Scale, ys: &Scale) {
        for line in &self.lines {
            let shown = line.points.iter().filter(|at| self.x.takes(at.x) && self.y.takes(at.y));
            let mut drawn: Vec<Position> = shown.map(|at| xy(xs.place(at.x), ys.place(at.y))).collect();
            if let [Position { x, y }] = drawn[..] {
                drawn = vec![xy(x - 9.0, y), xy(x + 9.0, y)];
            }
            canvas.path(line.kind.class(), &Path::polyline(drawn));
        }
    }

    fn draw_series(&self, canvas: &mut Canvas, series: &Series, color: usize, xs: &Scale, ys: &Scale) {
        let takes = |x: f64, y: f64| self.x.takes(x) && self.y.takes(y);
        let band: Vec<_> =
            series.band.iter().filter(|(x, low, high)| takes(*x, *low) && takes(*x, *high)).copied().collect();
        let place = |x: f64, y: f64| xy(xs.place(x), ys.place(y));
        let around = band.iter().map(|(x, low, _)| place(*x, *low));
        let around = around.chain(band.iter().rev().map(|(x, _, high)| place(*x, *high)));
        canvas.path(&format!("cg-band cg-f{color}"), &Path::polyline(around).close());
        let curve = series.curve.iter().filter(|at| takes(at.x, at.y)).map(|at| place(at.x, at.y));
        let curve = if series.stepped { stepped(curve) } else { curve.collect() };
        canvas.path(&curve_class(series, color), &Path::polyline(curve));
        let points = || series.points.iter().filter(|point| takes(point.x, point.y));
        let mut whiskers = Path::default();
        for (point, interval) in points().filter_map(|point| Some((point, point.interval?))) {
            let (x, low, high) = (xs.place(point.x), ys.place(interval.low), ys.place(interval.high));
            whiskers.line(xy(x, low), xy(x, high));
            whiskers.line(xy(x - 2.5, low), xy(x + 2.5, low));
            whiskers.line(xy(x - 2.5, high), xy(x + 2.5, high));
        }
        canvas.path(&format!("cg-bar-line cg-s{color}"), &whiskers);
        for (shape, crossed) in [(PointShape::Filled, false), (PointShape::Crossed, true)] {
            let chosen = points().filter(|point| point.crossed == crossed);
            let positions: Vec<Position> = chosen.map(|point| place(point.x, point.y)).collect();
            shape.draw(canvas, color, &positions);
        }
    }

    /// The labels are at the top, one line lower where they would overlap with the previous one.
    fn draw_changes(&self, canvas: &mut Canvas, xs: &Scale, room: Room) {
        let mut ends: Vec<f64> = Vec::new();
        let mut changes: Vec<&Change> = self.changes.iter().filter(|change| self.x.takes(change.x)).collect();
        changes.sort_by(|a, b| a.x.total_cmp(&b.x));
        for change in changes {
            let x = xs.place(change.x);
            canvas.path("cg-change", &Path::polyline([xy(x, room.top), xy(x, room.bottom)]));
            let label = cut(&change.label, 24);
            let width = text_width(&label);
            let start = if x + 4.0 + width > room.right { x - 4.0 - width } else { x + 4.0 };
            let line = ends.iter().position(|end| *end < start).unwrap_or(ends.len());
            if line == ends.len() {
                ends.push(0.0);
            }
            ends[line] = start + width + 4.0;
            canvas.text(start, room.top + 11.0 + 13.0 * line as f64, "cg-ink", Anchor::Start, &label);
        }
    }
}

impl Series {
    /// An empty series.
    pub fn new(name: impl Into<String>) -> Series {
        Series { name: name.into(), ..Series::default() }
    }
}

impl Point {
    /// A point without an interval.
    pub fn at(x: f64, y: f64) -> Point {
        Point { x, y, interval: None, crossed: false }
    }

    /// A point with an interval.
    pub fn between(x: f64, y: f64, low: f64, high: f64) -> Point {
        Point { interval: Some(Interval { low, high }), ..Point::at(x, y) }
    }
}

impl LineKind {
    fn class(self) -> &'static str {
        match self {
            LineKind::Expected => "cg-expected",
            LineKind::Bound => "cg-bound",
            LineKind::Plain => "cg-plain",
        }
    }
}

fn curve_class(series: &Series, color: usize) -> String {
    format!("cg-curve cg-s{color}{}", if series.dashed { " cg-dash" } else { "" })
}

fn stepped(positions: impl Iterator<Item = Position>) -> Vec<Position> {
    let mut steps: Vec<Position> = Vec::new();
    for position in positions {
        if let Some(before) = steps.last().copied() {
            steps.push(xy(position.x, before.y));
        }
        steps.push(position);
    }
    steps
}
