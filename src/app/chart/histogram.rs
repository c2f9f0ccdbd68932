//! Distributions below each other on one logarithmic axis. The bins do not depend on the data, so that runs can be compared.

use super::axis::{Axis, Unit};
use super::frame::{self, Room};
use super::position::xy;
use super::summary;
use super::write::{Anchor, Canvas, Path, Svg, cut, text_width};

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
    /// Title of the axis.
    pub axis_title: String,
    /// The distributions, top to bottom.
    pub rows: Vec<HistogramRow>,
    /// Width in units of the picture.
    pub width: f64,
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
        let axis_title = "time of one call".to_owned();
        Histogram { title: title.into(), description: String::new(), axis_title, rows: Vec::new(), width: 400.0 }
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
        let mut top = frame::title(&mut canvas, &self.title, self.width);
        top += self.legend(&mut canvas, top);
        let labels: Vec<String> = self.rows.iter().map(|row| cut(&row.label, 22)).collect();
        let left = labels.iter().map(|label| text_width(label)).fold(20.0, f64::max) + 8.0;
        let height = ROW_HEIGHT * self.rows.len().max(1) as f64;
        let room = Room { left, right: self.width - 10.0, top, bottom: top + height };
        let axis = Axis::log(self.axis_title.clone(), Unit::Seconds);
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
        frame::horizontal(&mut canvas, &axis, &scale, room);
        canvas.finish(self.width, room.bottom + frame::foot(&axis))
    }

    fn summary(&self) -> String {
        let axis = Axis::log("", Unit::Seconds);
        let marks = |row: &HistogramRow| {
            let marks: Vec<String> =
                row.marks.iter().map(|mark| format!("{} {}", mark.name, axis.shown(mark.at))).collect();
            marks.join(", ")
        };
        summary::joined(&self.description, self.rows.iter().map(|row| format!("{}: {}", row.label, marks(row))))
    }

    fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = Vec::new();
        for mark in self.rows.iter().flat_map(|row| &row.marks) {
            if !names.contains(&mark.name) {
                names.push(mark.name);
            }
        }
        names
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
        "p90" | "p95" => {
            path.circle(x, base - 3.5, 2.6);
            "cg-mark cg-f2"
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
