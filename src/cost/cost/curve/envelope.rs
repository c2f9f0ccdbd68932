//! The concave lower envelope min_k (alpha_k + beta_k bytes): an approximation of a library that chooses the cheapest of
//! several linear costs. Used outside the measured sizes, and for alpha and bandwidth.
//!
//! Fitted by minimising a robust loss of the error in log time; starts and steps are fixed, so that the same points
//! always give the same lines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of lines of an envelope.
const MAX_LINES: usize = 4;
/// Error in log time from which on a point counts less than squared (soft L1).
const SOFT: f64 = 0.05;
/// Rounds of assigning points to lines and refitting the lines.
const ROUNDS: usize = 25;
/// A further line must lower the held-out error by this factor to justify its two parameters.
const WORTH: f64 = 0.95;

/// alpha + beta bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// Seconds at no bytes.
    pub alpha_seconds: f64,
    /// Seconds for a further byte.
    pub beta_seconds_per_byte: f64,
}

impl Line {
    fn seconds(self, bytes: f64) -> f64 {
        self.alpha_seconds + self.beta_seconds_per_byte * bytes
    }
}

/// The minimum of some lines, ordered from the smallest sizes (steepest) to the largest.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    lines: Vec<Line>,
}

impl Envelope {
    /// The envelope of points in ascending bytes, with as many lines as leave the smallest error on
    /// points that were left out. `None` for fewer than two points.
    pub fn of(points: &[Point]) -> Option<Envelope> {
        let mut best: Option<(f64, usize)> = None;
        for lines in 1..=MAX_LINES.min(points.len() / 3) {
            let Some(error) = left_out_error(points, lines) else { break };
            if best.is_none_or(|(least, _)| error < least * WORTH) {
                best = Some((error, lines));
            }
        }
        Envelope::with(points, best.map_or(1, |(_, lines)| lines))
    }

    /// The envelope with at most this many lines.
    pub fn with(points: &[Point], lines: usize) -> Option<Envelope> {
        if points.len() < 2 {
            return None;
        }
        let fits = starts(points, lines).into_iter().filter_map(|start| descend(points, start));
        let (_, envelope) = fits.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(envelope)
    }

    /// From known lines; `None` without any.
    pub fn from_lines(lines: Vec<Line>) -> Option<Envelope> {
        (!lines.is_empty()).then_some(Envelope { lines })
    }

    /// A refit to other points, starting from these lines.
    pub fn refitted(&self, points: &[Point]) -> Option<Envelope> {
        descend(points, self.lines.clone()).map(|(_, envelope)| envelope)
    }

    /// Seconds for a size.
    pub fn seconds(&self, bytes: f64) -> f64 {
        self.lines.iter().map(|line| line.seconds(bytes)).fold(f64::INFINITY, f64::min)
    }

    /// The sizes at which one line takes over from the one before, ascending. Lines that are never the minimum have none.
    pub fn breakpoints(&self) -> Vec<f64> {
        let mut found: Vec<f64> = Vec::new();
        let mut holds = 0;
        while let Some((next, bytes)) = (holds + 1..self.lines.len())
            .map(|next| (next, crossing(self.lines[holds], self.lines[next])))
            .filter(|(_, bytes)| bytes.is_finite() && *bytes >= found.last().copied().unwrap_or(0.0))
            .min_by(|a, b| a.1.total_cmp(&b.1))
        {
            found.push(bytes);
            holds = next;
        }
        found
    }

    /// Share of bandwidth in the time of a size: beta bytes over alpha + beta bytes, of the line that applies there.
    pub fn bandwidth_share(&self, bytes: f64) -> f64 {
        let line = self.lines[least_line(&self.lines, bytes)];
        let seconds = line.seconds(bytes);
        if seconds > 0.0 { line.beta_seconds_per_byte * bytes / seconds } else { 1.0 }
    }

    /// The lines, steepest first.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Alpha at the smallest sizes and beta at the largest.
    pub fn limits(&self) -> Line {
        let least = |value: fn(&Line) -> f64| self.lines.iter().map(value).fold(f64::INFINITY, f64::min);
        Line {
            alpha_seconds: least(|line| line.alpha_seconds),
            beta_seconds_per_byte: least(|line| line.beta_seconds_per_byte),
        }
    }
}

/// The size from which a flatter line is below a steeper one.
fn crossing(steep: Line, flat: Line) -> f64 {
    (flat.alpha_seconds - steep.alpha_seconds) / (steep.beta_seconds_per_byte - flat.beta_seconds_per_byte)
}

/// Mean absolute error in log time of the inner points, each half of them left out once.
fn left_out_error(points: &[Point], lines: usize) -> Option<f64> {
    let mut errors = Vec::new();
    for phase in [1, 0] {
        let is_left_out = |index: usize| index % 2 == phase && index > 0 && index + 1 < points.len();
        let remaining: Vec<_> =
            points.iter().enumerate().filter(|(index, _)| !is_left_out(*index)).map(|(_, point)| *point).collect();
        let envelope = Envelope::with(&remaining, lines)?;
        let out = points.iter().enumerate().filter(|(index, _)| is_left_out(*index));
        errors.extend(out.map(|(_, point)| (envelope.seconds(point.bytes) / point.seconds).ln().abs()));
    }
    (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64)
}

/// Several starting points: the points divided into runs of equal, growing or shrinking length.
fn starts(points: &[Point], lines: usize) -> Vec<Vec<Line>> {
    let bends: &[f64] = if lines == 1 { &[1.0] } else { &[1.0, 0.5, 0.7, 1.4, 2.0] };
    let start = |bend: &f64| {
        let bound = |part: usize| ((part as f64 / lines as f64).powf(*bend) * points.len() as f64).round() as usize;
        let runs = (0..lines).map(|part| &points[bound(part)..bound(part + 1)]);
        let fewest = fewest_points(lines);
        runs.filter_map(|run| fit_line(run.iter().map(|point| Weighted { point: *point, weight: 1.0 }), fewest))
            .collect::<Vec<_>>()
    };
    bends.iter().map(start).filter(|start| !start.is_empty()).collect()
}

/// Assigns every point to its least line and refits each line to its points, until nothing improves.
fn descend(points: &[Point], mut lines: Vec<Line>) -> Option<(f64, Envelope)> {
    let mut best: Option<(f64, Vec<Line>)> = None;
    for _ in 0..ROUNDS {
        let loss = loss(points, &lines);
        if best.as_ref().is_some_and(|(least, _)| loss > least * (1.0 - 1e-9)) {
            break;
        }
        best = Some((loss, lines.clone()));
        let fewest = fewest_points(lines.len());
        lines = (0..lines.len())
            .filter_map(|own| {
                let mine = points.iter().filter(|point| least_line(&lines, point.bytes) == own);
                let weighted = mine.map(|point| {
                    let error = (lines[own].seconds(point.bytes) / point.seconds).ln() / SOFT;
                    Weighted { point: *point, weight: 1.0 / (1.0 + error * error).sqrt() }
                });
                fit_line(weighted, fewest)
            })
            .collect();
        if lines.is_empty() {
            break;
        }
    }
    let (loss, mut lines) = best?;
    lines.sort_by(|a, b| b.beta_seconds_per_byte.total_cmp(&a.beta_seconds_per_byte));
    Some((loss, Envelope { lines }))
}

fn least_line(lines: &[Line], bytes: f64) -> usize {
    let by_cost = |a: &usize, b: &usize| lines[*a].seconds(bytes).total_cmp(&lines[*b].seconds(bytes));
    (0..lines.len()).min_by(by_cost).unwrap_or(0)
}

fn loss(points: &[Point], lines: &[Line]) -> f64 {
    let soft = |point: &Point| {
        let error = (lines[least_line(lines, point.bytes)].seconds(point.bytes) / point.seconds).ln() / SOFT;
        (1.0 + error * error).sqrt() - 1.0
    };
    points.iter().map(soft).sum()
}

/// Minimum points for a line: with several lines one more than its parameters, to avoid overfitting.
fn fewest_points(lines: usize) -> usize {
    if lines == 1 { 2 } else { 3 }
}

/// A point that counts more or less in a fit.
struct Weighted {
    point: Point,
    weight: f64,
}

/// Weighted least squares of the relative error, alpha and beta not negative. `None` with fewer points than that.
fn fit_line(points: impl Iterator<Item = Weighted>, fewest: usize) -> Option<Line> {
    let (mut ww, mut wx, mut xx, mut wy, mut xy, mut count) = (0.0, 0.0, 0.0, 0.0, 0.0, 0);
    for Weighted { point: Point { bytes, seconds }, weight } in points {
        // Each row is divided by its time: (alpha + beta bytes) / seconds should be 1.
        let (one, size) = (1.0 / seconds, bytes / seconds);
        ww += weight * one * one;
        wx += weight * one * size;
        xx += weight * size * size;
        wy += weight * one;
        xy += weight * size;
        count += 1;
    }
    if count < fewest {
        return None;
    }
    let determinant = ww * xx - wx * wx;
    let (alpha, beta) = if determinant > 1e-12 * ww * xx {
        ((xx * wy - wx * xy) / determinant, (ww * xy - wx * wy) / determinant)
    } else {
        (wy / ww, 0.0)
    };
    let (alpha, beta) = match (alpha < 0.0, beta < 0.0) {
        (true, _) => (0.0, xy / xx),
        (false, true) => (wy / ww, 0.0),
        (false, false) => (alpha, beta),
    };
    Some(Line { alpha_seconds: alpha, beta_seconds_per_byte: beta })
}

// A size and the time of its call.

/// A point of a curve of times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub bytes: f64,
    /// Seconds of a call.
    pub seconds: f64,
}

impl Point {
    /// A call of this many bytes that takes this many seconds.
    pub fn new(bytes: f64, seconds: f64) -> Point {
        Point { bytes, seconds }
    }

    /// Seconds of a size on the straight line through this point and another.
    pub fn line_through(self, other: Point, bytes: f64) -> f64 {
        self.seconds + (other.seconds - self.seconds) * (bytes - self.bytes) / (other.bytes - self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUE: [Line; 2] = [
        Line { alpha_seconds: 8e-6, beta_seconds_per_byte: 1.0 / 20e9 },
        Line { alpha_seconds: 40e-6, beta_seconds_per_byte: 1.0 / 200e9 },
    ];

    fn on_lines(lines: &[Line], count: i32) -> Vec<Point> {
        let envelope = Envelope { lines: lines.to_vec() };
        (0..count).map(|step| 512.0 * 2f64.powi(step)).map(|bytes| Point::new(bytes, envelope.seconds(bytes))).collect()
    }

    #[test]
    fn too_few_points_give_none_and_two_give_their_line() {
        assert!(Envelope::of(&[]).is_none() && Envelope::of(&[Point::new(1.0, 1.0)]).is_none());
        let line = Envelope::of(&[Point::new(100.0, 2.0), Point::new(300.0, 4.0)]).unwrap().limits();
        assert!((line.alpha_seconds - 1.0).abs() < 1e-9 && (line.beta_seconds_per_byte - 0.01).abs() < 1e-9);
    }

    #[test]
    fn the_true_lines_are_found() {
        let envelope = Envelope::of(&on_lines(&TRUE, 21)).unwrap();
        let limits = envelope.limits();
        assert!((limits.alpha_seconds / 8e-6 - 1.0).abs() < 0.01, "{envelope:?}");
        assert!((limits.beta_seconds_per_byte * 200e9 - 1.0).abs() < 0.01, "{envelope:?}");
    }

    #[test]
    fn lines_take_over_where_they_cross() {
        let expected = 32e-6 / (1.0 / 20e9 - 1.0 / 200e9);
        let of = |lines: &[Line]| Envelope { lines: lines.to_vec() }.breakpoints();
        let found = of(&TRUE);
        assert!(found.len() == 1 && (found[0] / expected - 1.0).abs() < 1e-9, "{found:?}");
        let above_both = Line { alpha_seconds: 90e-6, beta_seconds_per_byte: 1.0 / 100e9 };
        assert_eq!(of(&[TRUE[0], above_both, TRUE[1]]), found, "a line that is never the minimum takes over nowhere");
        assert!(of(&TRUE[..1]).is_empty());
    }

    #[test]
    fn an_outlier_of_five_times_hardly_moves_the_lines() {
        let mut disturbed = on_lines(&TRUE, 21);
        disturbed[4].seconds *= 5.0;
        let limits = Envelope::with(&disturbed, 2).unwrap().limits();
        assert!((limits.alpha_seconds / 8e-6 - 1.0).abs() < 0.05, "{limits:?}");
        assert!((limits.beta_seconds_per_byte * 200e9 - 1.0).abs() < 0.02, "{limits:?}");
    }

    #[test]
    fn equal_times_give_a_flat_line() {
        let limits =
            Envelope::of(&[Point::new(1.0, 3.0), Point::new(2.0, 3.0), Point::new(4.0, 3.0), Point::new(8.0, 3.0)])
                .unwrap()
                .limits();
        assert!((limits.alpha_seconds - 3.0).abs() < 1e-9 && limits.beta_seconds_per_byte.abs() < 1e-9);
    }
}
