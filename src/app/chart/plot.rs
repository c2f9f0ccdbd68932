//! Points, curves, bands and lines over two axes: measurements against size, residuals, histories with change points.

use super::write::{Anchor, Canvas, Path, PointShape, Position, Svg, cut, text_width, xy};
use super::{Axis, Entry, Key, LINE, Room, Scale, Spacing, Unit, write};
use commgauge_base::stats::Interval;
use commgauge_base::writing::distinct;

/// Number of colours and shapes of series; further series reuse them.
const COLORS: usize = 6;

/// Usual width of a picture, in units in which small type is 11 high.
const WIDTH: f64 = 400.0;

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
    pub points: Vec<Point>,
    /// A curve, by ascending x.
    pub curve: Vec<Position>,
    /// Whether the curve is drawn as steps.
    pub stepped: bool,
    /// An area: x, lower and upper y, by ascending x.
    pub band: Vec<(f64, f64, f64)>,
    /// Index of colour and shape; `None` takes the position among the series.
    pub color: Option<usize>,
}

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
            width: WIDTH,
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
        let mut top = super::title(&mut canvas, &self.title, self.width);
        top += super::legend(&mut canvas, &self.legend(), top, self.width);
        top += if self.y.title.is_empty() && self.y.ticks.is_empty() { 8.0 } else { 20.0 };
        let ys = self.y.scale(self.all_y(), top + self.room_height, top, (self.room_height / 34.0) as usize);
        let (left, right) = (super::gutter(&ys), self.width - 10.0);
        let room = Room { left, right, top, bottom: top + self.room_height };
        let most = ((right - left) / 58.0) as usize;
        let xs = self.x.scale(self.all_x(), left + 6.0, right - 4.0, most);
        self.draw_shades(&mut canvas, &xs, room);
        super::vertical(&mut canvas, &self.y, &ys, room);
        self.draw_lines(&mut canvas, &xs, &ys);
        for (index, series) in self.series.iter().enumerate() {
            self.draw_series(&mut canvas, series, series.color.unwrap_or(index) % COLORS, &xs, &ys);
        }
        self.draw_changes(&mut canvas, &xs, room);
        super::horizontal(&mut canvas, &self.x, &xs, room);
        canvas.finish(self.width, room.bottom + super::foot(&self.x))
    }

    /// Each series by its ends and extremes; then reference lines and changes.
    fn summary(&self) -> String {
        let at = |point: Position| format!("{} at {}", self.y.shown(point.y), self.x.named(point.x));
        let drawn = |point: &&Point| self.x.takes(point.x) && self.y.takes(point.y);
        let series = self.series.iter().take(COLORS).filter_map(|series| {
            let points: Vec<Position> = series.points.iter().filter(drawn).map(|point| xy(point.x, point.y)).collect();
            let crossed = series.points.iter().filter(drawn).filter(|point| point.crossed).count();
            let crossed = if crossed > 0 { format!("; {crossed} crossed out") } else { String::new() };
            Some(write::named(&series.name, &(write::course(&points, at)? + &crossed)))
        });
        let lines = self.lines.iter().filter(|line| !line.name.is_empty());
        let lines = lines.filter_map(|line| Some(write::named(&line.name, &write::course(&line.points, at)?)));
        let changes = self.changes.iter().map(|change| format!("Change: {}", change.label));
        write::joined(&self.description, series.chain(lines).chain(changes))
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
                (true, false) => Key::Curve(curve_class(color)),
                (true, true) => Key::Area(format!("cg-band cg-f{color}")),
            };
            entries.push(Entry { key, name: series.name.clone() });
        }
        let lines = self.lines.iter().map(|line| (Key::Curve(line.kind.class().to_owned()), &line.name));
        let shades = self.shades.iter().map(|shade| (Key::Area("cg-shade".to_owned()), &shade.name));
        let named = lines.chain(shades).filter(|(_, name)| !name.is_empty());
        entries.extend(distinct(named.map(|(key, name)| Entry { key, name: name.clone() })));
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
        canvas.path(&curve_class(color), &Path::polyline(curve));
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

fn curve_class(color: usize) -> String {
    format!("cg-curve cg-s{color}")
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

// Horizontal bars, alone or stacked, each with its value next to it.

/// Maximum length of a label.
const MAX_LABEL_CHARS: usize = 24;

const BAR_HEIGHT: f64 = 16.0;

const PITCH: f64 = 24.0;

/// A chart of bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Title, also read by screen readers.
    pub title: String,
    /// Alternative text for screen readers.
    pub description: String,
    /// Axis of the bar lengths; always linear, from zero.
    pub axis: Axis,
    /// Names of the parts of a stacked bar, in the order of [`Bar::parts`]; one or none where bars are not stacked.
    pub parts: Vec<String>,
    /// The bars, top to bottom.
    pub bars: Vec<Bar>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Label to the left of the bar.
    pub label: String,
    /// Lengths of its parts, left to right.
    pub parts: Vec<f64>,
    /// The interval of the total.
    pub interval: Option<Interval>,
    /// Text to the right of the bar; its value with the unit where this is empty.
    pub note: String,
}

impl Bars {
    /// A chart without bars.
    pub fn new(title: impl Into<String>, axis: Axis) -> Bars {
        let (title, description) = (title.into(), String::new());
        Bars { title, description, axis, parts: Vec::new(), bars: Vec::new() }
    }

    /// The picture.
    pub fn draw(&self) -> Svg {
        let mut canvas = Canvas::new(&self.title, &self.summary());
        let mut top = super::title(&mut canvas, &self.title, WIDTH);
        let entries: Vec<Entry> = match self.parts.len() {
            0 | 1 => Vec::new(),
            _ => {
                let area = |index: usize| Key::Area(format!("cg-f{}", index % 6));
                let parts = self.parts.iter().enumerate();
                parts.map(|(index, name)| Entry { key: area(index), name: name.clone() }).collect()
            }
        };
        top += super::legend(&mut canvas, &entries, top, WIDTH);
        let labels: Vec<String> = self.bars.iter().map(|bar| cut(&bar.label, MAX_LABEL_CHARS)).collect();
        let notes: Vec<String> = self.bars.iter().map(|bar| self.note(bar)).collect();
        let widest = |texts: &[String]| texts.iter().map(|text| text_width(text)).fold(0.0, f64::max);
        let left = widest(&labels) + 8.0;
        let right = (WIDTH - widest(&notes) - 8.0).max(left + 40.0);
        let whole = |bar: &Bar| bar.parts.iter().copied().filter(|part| part.is_finite()).sum::<f64>();
        let longest =
            self.bars.iter().map(|bar| bar.interval.map_or(whole(bar), |interval| interval.high.max(whole(bar))));
        let longest = longest.fold(0.0, f64::max);
        let place = |value: f64| left + if longest > 0.0 { value / longest * (right - left) } else { 0.0 };
        for (index, bar) in self.bars.iter().enumerate() {
            let y = top + PITCH * index as f64;
            canvas.text(left - 8.0, y + 12.0, "cg-ink", Anchor::End, &labels[index]);
            let mut so_far = 0.0;
            for (part, value) in bar.parts.iter().enumerate().filter(|(_, value)| value.is_finite() && **value > 0.0) {
                let class = format!("cg-f{}", part % 6);
                let (from, to) = (place(so_far), place(so_far + value));
                canvas.rectangle(&class, from, y, (to - from).max(0.8), BAR_HEIGHT);
                so_far += value;
            }
            let mut end = place(so_far);
            let is_drawn = |of: &Interval| of.low.is_finite() && of.high.is_finite() && of.high > of.low;
            if let Some(Interval { low, high }) = bar.interval.filter(is_drawn) {
                let (low, high, middle) = (place(low.max(0.0)), place(high), y + BAR_HEIGHT / 2.0);
                let mut whisker = Path::default();
                whisker.line(xy(low, middle), xy(high, middle));
                whisker.line(xy(low, middle - 4.0), xy(low, middle + 4.0));
                whisker.line(xy(high, middle - 4.0), xy(high, middle + 4.0));
                canvas.path("cg-glyph", &whisker);
                end = end.max(high);
            }
            canvas.text(end + 6.0, y + 12.0, "", Anchor::Start, &notes[index]);
        }
        canvas.path("cg-axis", &Path::polyline([xy(left, top - 3.0), xy(left, self.bottom(top))]));
        canvas.finish(WIDTH, self.bottom(top) + 2.0)
    }

    fn summary(&self) -> String {
        let bars: Vec<String> = self.bars.iter().map(|bar| format!("{} {}", bar.label, self.note(bar))).collect();
        write::joined(&self.description, (!bars.is_empty()).then(|| bars.join("; ")))
    }

    fn bottom(&self, top: f64) -> f64 {
        top + (PITCH * self.bars.len() as f64).max(LINE) - 4.0
    }

    fn note(&self, bar: &Bar) -> String {
        match bar.note.is_empty() {
            true => self.axis.shown(bar.parts.iter().sum()),
            false => bar.note.clone(),
        }
    }
}

// Distributions below each other on one logarithmic axis. The bins do not depend on the data, so that runs can be compared.

/// Bins per factor of ten.
const BINS_PER_DECADE: f64 = 40.0;

const ROW_HEIGHT: f64 = 38.0;

/// Histograms of times.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Title, also read by screen readers.
    pub title: String,
    /// Alternative text for screen readers.
    pub description: String,
    /// The distributions, top to bottom.
    pub rows: Vec<HistogramRow>,
}

/// One distribution.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramRow {
    /// Label to the left of the distribution.
    pub label: String,
    /// Bins and their counts, ascending: see [`Histogram::bin_of`].
    pub bins: Vec<(i32, u64)>,
    /// Marked positions on the axis.
    pub marks: Vec<Mark>,
}

/// A marked position, such as a percentile.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// `p50`, `p99`, `max`.
    pub name: &'static str,
    /// Seconds.
    pub at: f64,
}

impl Histogram {
    /// A chart without rows.
    pub fn new(title: impl Into<String>) -> Histogram {
        Histogram { title: title.into(), description: String::new(), rows: Vec::new() }
    }

    /// The bin of a time: 40 bins per factor of ten, bin 0 begins at one second. `None` for times that are not positive
    /// and finite.
    pub fn bin_of(seconds: f64) -> Option<i32> {
        // The offset keeps a time at the edge of a bin in that bin, despite rounding of the logarithm.
        (seconds > 0.0 && seconds.is_finite()).then(|| (seconds.log10() * BINS_PER_DECADE + 1e-9).floor() as i32)
    }

    /// Where a bin begins, in seconds.
    pub fn bin_start(bin: i32) -> f64 {
        10f64.powf(f64::from(bin) / BINS_PER_DECADE)
    }

    /// The picture.
    pub fn draw(&self) -> Svg {
        let mut canvas = Canvas::new(&self.title, &self.summary());
        let mut top = super::title(&mut canvas, &self.title, WIDTH);
        top += self.legend(&mut canvas, top);
        let labels: Vec<String> = self.rows.iter().map(|row| cut(&row.label, 22)).collect();
        let left = labels.iter().map(|label| text_width(label)).fold(20.0, f64::max) + 8.0;
        let height = ROW_HEIGHT * self.rows.len().max(1) as f64;
        let room = Room { left, right: WIDTH - 10.0, top, bottom: top + height };
        let axis = Axis::log("time of one call", Unit::Seconds);
        let edges = self.rows.iter().flat_map(|row| {
            let bins = row.bins.iter().flat_map(|(bin, _)| [Self::bin_start(*bin), Self::bin_start(bin + 1)]);
            bins.chain(row.marks.iter().map(|mark| mark.at))
        });
        let most = ((room.right - left) / 58.0) as usize;
        let scale = axis.scale(edges, left + 2.0, room.right - 2.0, most);
        let mut grid = Path::default();
        scale
            .ticks
            .iter()
            .for_each(|(tick, _)| grid.line(xy(scale.place(*tick), top), xy(scale.place(*tick), room.bottom)));
        canvas.path("cg-grid", &grid);
        for (index, row) in self.rows.iter().enumerate() {
            let base = top + ROW_HEIGHT * (index + 1) as f64;
            canvas.text(left - 8.0, base - 4.0, "cg-ink", Anchor::End, &labels[index]);
            let most = row.bins.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1) as f64;
            let mut columns = Path::default();
            for (bin, count) in row.bins.iter().filter(|(_, count)| *count > 0) {
                let (from, to) = (scale.place(Self::bin_start(*bin)), scale.place(Self::bin_start(bin + 1)));
                // A single time among thousands stays visible.
                let tall = (*count as f64 / most * (ROW_HEIGHT - 12.0)).max(1.0);
                columns.rectangle(from, base - tall, (to - from - 0.4).max(0.6), tall);
            }
            canvas.path("cg-f0", &columns);
            canvas.path("cg-axis", &Path::polyline([xy(left, base), xy(room.right, base)]));
            self.draw_marks(&mut canvas, row, |at| scale.place(at), base);
        }
        super::horizontal(&mut canvas, &axis, &scale, room);
        canvas.finish(WIDTH, room.bottom + super::foot(&axis))
    }

    fn summary(&self) -> String {
        let axis = Axis::log("", Unit::Seconds);
        let marks = |row: &HistogramRow| {
            let marks: Vec<String> =
                row.marks.iter().map(|mark| format!("{} {}", mark.name, axis.shown(mark.at))).collect();
            marks.join(", ")
        };
        write::joined(&self.description, self.rows.iter().map(|row| format!("{}: {}", row.label, marks(row))))
    }

    fn names(&self) -> Vec<&'static str> {
        distinct(self.rows.iter().flat_map(|row| &row.marks).map(|mark| mark.name))
    }

    fn legend(&self, canvas: &mut Canvas, top: f64) -> f64 {
        let mut x = 0.0;
        let names = self.names();
        for name in &names {
            glyph(canvas, name, x + 6.0, top + 11.0);
            canvas.text(x + 14.0, top + 10.0, "", Anchor::Start, name);
            x += 14.0 + text_width(name) + 12.0;
        }
        if names.is_empty() { 4.0 } else { 20.0 }
    }

    fn draw_marks(&self, canvas: &mut Canvas, row: &HistogramRow, place: impl Fn(f64) -> f64, base: f64) {
        for mark in row.marks.iter().filter(|mark| mark.at > 0.0 && mark.at.is_finite()) {
            glyph(canvas, mark.name, place(mark.at), base);
        }
    }
}

/// Each percentile has its own shape, so that it is recognisable without colours.
fn glyph(canvas: &mut Canvas, name: &str, x: f64, base: f64) {
    let mut path = Path::default();
    let class = match name {
        "p50" => {
            path.polygon([xy(x, base - 9.0), xy(x + 4.2, base), xy(x - 4.2, base)]);
            "cg-mark cg-f1"
        }
        "p99" => {
            path.polygon([xy(x, base - 8.0), xy(x + 3.2, base - 4.0), xy(x, base), xy(x - 3.2, base - 4.0)]);
            "cg-mark cg-f3"
        }
        "p99.9" => {
            path.rectangle(x - 2.6, base - 6.2, 5.2, 5.2);
            "cg-mark cg-f4"
        }
        _ => {
            path.line(xy(x, base), xy(x, base - 12.0));
            "cg-cross cg-s5"
        }
    };
    canvas.path(class, &path);
}
