//! Where a curve is least certain: for every interval between two measured sizes the expected error of the interpolation, and
//! the size in its middle. What is measured, and when to stop, is decided by the caller.
//!
//! A communication library takes, for every size, the cheapest of several straight lines. Between two measured sizes
//! there are four candidates: the chord, the extended line of the left side, the extended line of the right side, and
//! the interpolation, which weights the three. Where they agree it hardly matters which applies; where they disagree,
//! one of them is wrong. The expected error is a share of their largest disagreement in log time, to which every
//! doubling without a measurement adds a little, since a library may switch there and back; it is bounded by the height
//! of the interval, since time never falls.
//!
//! Both constants were tuned on the curves in `tests/data/nccl`: over random choices of sizes the largest error
//! in an interval was 0.34 times the disagreement (correlation 0.7 to 0.75 on each of the four systems; with the height of the
//! interval alone it was 0.48 to 0.58, with its width 0.53 to 0.65).

use super::curve::{Cleaned, Interpolant, Point};

/// Expected error in log time for each unit of disagreement in log time.
const OF_DISAGREEMENT: f64 = 0.35;
/// Disagreement in log time that each doubling between the two measured sizes adds.
const OF_DOUBLING: f64 = 0.02;
/// Positions at which the candidates are compared, as fractions of the interval in log bytes.
const PLACES: [f64; 3] = [0.25, 0.5, 0.75];

/// The interval between two neighbouring measured sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gap {
    /// Bytes of the smaller size.
    pub low: u64,
    /// Bytes of the larger size.
    pub high: u64,
    /// Expected error of the interpolation between them, as a fraction of the time.
    pub expected_error: f64,
}

impl Gap {
    /// The size in the middle on a logarithmic scale, rounded to three significant bits (4, 5, 6 or 7 times a power of two:
    /// such sizes divide among ranks); `None` where no such size lies between the ends.
    pub fn middle(&self) -> Option<u64> {
        let exact = (self.low as f64 * self.high as f64).sqrt();
        // The smallest sizes have fewer than three bits.
        let unit = 2f64.powi((exact.log2().floor() as i32 - 2).max(0));
        let rounded = ((exact / unit).round() * unit) as u64;
        (rounded > self.low && rounded < self.high).then_some(rounded)
    }
}

/// The size to measure next, in the least certain interval that can be split; `split` returns a size inside an interval, if
/// any. `None` where no interval can be split, and where the curve is good enough: the expected error is at most `until_error`
/// in every such interval, and so was the error of the prediction of the last measured size. Without such a prediction the
/// error of the curve is unknown.
pub fn next_point(
    points: &[Point],
    last_error: Option<f64>,
    until_error: f64,
    split: impl Fn(&Gap) -> Option<u64>,
) -> Option<(Gap, u64)> {
    let open = gaps(points).into_iter().filter_map(|gap| Some((gap, split(&gap)?)));
    let least_sure = open.max_by(|a, b| a.0.expected_error.total_cmp(&b.0.expected_error))?;
    let is_sure = least_sure.0.expected_error <= until_error && last_error.is_some_and(|error| error <= until_error);
    (!is_sure).then_some(least_sure)
}

/// Every interval of a curve through measured points, ascending in bytes, bytes and seconds above zero.
pub fn gaps(points: &[Point]) -> Vec<Gap> {
    let cleaned = Cleaned::of(points).points;
    let curve = Interpolant::new(&cleaned);
    let gap = |pair: &[Point]| {
        let (low, high) = (pair[0].bytes, pair[1].bytes);
        let doublings = (high / low).log2();
        let (disagreement, height) = disagreement(&cleaned, &curve, (low * high).sqrt());
        let expected_error = OF_DISAGREEMENT * (disagreement + OF_DOUBLING * doublings).min(height);
        Gap { low: low as u64, high: high as u64, expected_error }
    };
    points.windows(2).map(gap).collect()
}

/// Interpolated seconds for a size between the points; `None` outside, and without two points.
pub fn interpolated(points: &[Point], bytes: f64) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    let inside = points.len() >= 2 && (first.bytes..=last.bytes).contains(&bytes);
    inside.then(|| Interpolant::new(&Cleaned::of(points).points).seconds(bytes))
}

/// The largest distance in log time between any two candidates in the interval of the cleaned curve in which `bytes`
/// lie, and the interval's height in log time. Outliers do not bound intervals: they are treated as not measured.
fn disagreement(cleaned: &[Point], curve: &Interpolant, bytes: f64) -> (f64, f64) {
    let index = cleaned.partition_point(|point| point.bytes <= bytes).saturating_sub(1);
    let (Some(&left), Some(&right)) = (cleaned.get(index), cleaned.get(index + 1)) else { return (0.0, 0.0) };
    let spread = |place: &f64| curve.disagreement(left.bytes * (right.bytes / left.bytes).powf(*place));
    (PLACES.iter().map(spread).fold(0.0, f64::max), (right.seconds / left.seconds).ln())
}

#[cfg(test)]
mod tests;
