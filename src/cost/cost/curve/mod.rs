//! Time against bytes for one collective and group size: interpolated inside the measured sizes, a straight line outside.
//!
//! Other group sizes are in [`super::sharing`].

mod envelope;

pub use envelope::{Envelope, Line, Point};

use commgauge_base::stats::{median, sorted};

/// Factor beyond the largest measured size up to which a curve answers.
pub const MAX_EXTRAPOLATION: f64 = 64.0;

/// Position of a size relative to the measured ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Between the smallest and the largest.
    Inside,
    /// Below the smallest.
    Below,
    /// Above the largest by at most [`MAX_EXTRAPOLATION`].
    Above,
    /// Above the largest by more than that.
    TooFar,
}

/// Time against bytes.
#[derive(Clone, Debug)]
pub struct Curve {
    inside: Interpolant,
    /// The lines.
    pub envelope: Envelope,
    outside: Outside,
}

impl Curve {
    /// The curve through cleaned points (ascending, at least two); the envelope separates latency from bandwidth.
    pub fn new(points: &[Point], envelope: Envelope) -> Option<Curve> {
        Some(Curve { inside: Interpolant::new(points), envelope, outside: Outside::of(points)? })
    }

    /// The curve of measured points, and which of them are outliers.
    pub fn of(points: &[Point]) -> Option<(Curve, Cleaned)> {
        let cleaned = Cleaned::of(points);
        let curve = Curve::new(&cleaned.points, Envelope::of(&cleaned.points)?)?;
        Some((curve, cleaned))
    }

    /// Position of a size.
    pub fn range(&self, bytes: f64) -> Range {
        let Outside { first, last, .. } = self.outside;
        match bytes {
            bytes if bytes < first.bytes => Range::Below,
            bytes if bytes <= last.bytes => Range::Inside,
            bytes if bytes <= last.bytes * MAX_EXTRAPOLATION => Range::Above,
            _ => Range::TooFar,
        }
    }

    /// Seconds for a call of `bytes`, at any size.
    pub fn seconds(&self, bytes: f64) -> f64 {
        match self.range(bytes) {
            Range::Inside => self.inside.seconds(bytes),
            Range::Below => self.outside.below(bytes),
            Range::Above | Range::TooFar => self.outside.above(bytes),
        }
    }

    /// How hard a size is to predict, in log time, according to the measured sizes.
    pub fn difficulty(&self, bytes: f64) -> f64 {
        match self.range(bytes) {
            Range::Inside => self.inside.difficulty(bytes),
            Range::Below => self.outside.difficulty_below(bytes),
            Range::Above | Range::TooFar => self.outside.difficulty_above(bytes),
        }
    }

    /// The largest measured size.
    pub fn last_bytes(&self) -> f64 {
        self.outside.last.bytes
    }

    /// Seconds for a further byte of the largest calls, and the share of the time of the largest measured call that would double with its
    /// size.
    pub fn tail(&self) -> (f64, f64) {
        let slope = self.outside.slope_above();
        (slope, slope * self.outside.last.bytes / self.outside.last.seconds)
    }

    /// Share of bandwidth in the time of a size; the rest is latency.
    pub fn bandwidth_share(&self, bytes: f64) -> f64 {
        self.envelope.bandwidth_share(bytes)
    }
}

// Prepares points for a curve: merges measurements of one size, removes slow outliers, makes times monotonic.
//
// Removed outliers are listed.

/// A time that exceeds that of a larger size by more than this is an outlier: more bytes cannot take less time, and
/// disturbances only ever slow a benchmark down.
pub const OUTLIER: f64 = 0.10;

/// One time for several measurements of the same size. Two that differ by more than [`OUTLIER`] are a good one and a
/// disturbed one, so the faster counts; two that agree are averaged, more give their median.
pub fn combined(seconds: &[f64]) -> Option<f64> {
    match *seconds {
        [a, b] if (a / b).ln().abs() > OUTLIER => Some(a.min(b)),
        [a, b] => Some((a * b).sqrt()),
        _ => median(&sorted(seconds.iter().copied())),
    }
}

/// Measured points after cleaning.
#[derive(Clone, Debug, PartialEq)]
pub struct Cleaned {
    /// Ascending in bytes and in seconds.
    pub points: Vec<Point>,
    /// Bytes of the points that are outliers.
    pub outliers: Vec<f64>,
}

impl Cleaned {
    /// Cleans points that ascend in bytes. The outermost points always stay, with a corrected time where they are outliers, so
    /// that the range of the curve equals the measured range.
    pub fn of(points: &[Point]) -> Cleaned {
        let mut least_from_here = vec![f64::INFINITY; points.len()];
        let mut least = f64::INFINITY;
        for (index, point) in points.iter().enumerate().rev() {
            least = least.min(point.seconds);
            least_from_here[index] = least;
        }
        let (mut left, mut outliers) = (Vec::with_capacity(points.len()), Vec::new());
        for (index, point) in points.iter().enumerate() {
            let disturbed = point.seconds > least_from_here[index] * (1.0 + OUTLIER);
            if disturbed {
                outliers.push(point.bytes);
            }
            if !disturbed {
                left.push(*point);
            } else if index == 0 {
                left.push(Point::new(point.bytes, least_from_here[index]));
            }
        }
        Cleaned { points: never_falling(&left), outliers }
    }
}

/// The closest monotonic curve in log time: neighbours that fall are pooled (Ayer et al., "An empirical
/// distribution function for sampling with incomplete information", Ann. Math. Statist. 26, 1955).
fn never_falling(points: &[Point]) -> Vec<Point> {
    let mut blocks: Vec<(f64, usize)> = Vec::with_capacity(points.len());
    for point in points {
        blocks.push((point.seconds.ln(), 1));
        while let [.., (before, many), (after, more)] = blocks[..] {
            if before <= after {
                break;
            }
            let pooled = (before * many as f64 + after * more as f64) / (many + more) as f64;
            blocks.truncate(blocks.len() - 2);
            blocks.push((pooled, many + more));
        }
    }
    let levels = blocks.iter().flat_map(|(level, count)| std::iter::repeat_n((*level, *count > 1), *count));
    points
        .iter()
        .zip(levels)
        .map(|(point, (level, pooled))| if pooled { Point::new(point.bytes, level.exp()) } else { *point })
        .collect()
}

// Interpolation between two measured sizes: monotonic, through both points, and aware that a library switches between linear
// costs.
//
// A communication library takes, for every size, one of several algorithms and protocols, and the cost of each is a
// line in bytes (NCCL, `src/graph/tuning.cc`: latency + bytes / bandwidth). Between two measured sizes the curve
// therefore is the line of the left side, the line of the right side, or one after the other. The prediction departs from the
// chord towards the mean, in log time, of the chord and of both neighbours' lines, each line weighted by how nearly it hits the
// far point: one that misses it does not apply in this interval. Where the lines are far apart one of them is chosen instead of
// the mean.
//
// The constants of [`Shape`] were tuned on the curves in `tests/data/nccl`, both halves of their sizes, and judged on the machines in
// `tests/data/nccl-aside`, which were not used for tuning (`tests/offline/cost_aside.rs`).

/// Weights of the neighbours' lines in an interval. Distances in log time are for an interval that spans a factor of two, and
/// scale with the width of the interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Distance in log time by which the left side's line may miss the far point before its weight drops.
    pub left_tolerance: f64,
    /// The same for the line of the right side.
    pub right_tolerance: f64,
    /// Weight of the left side's line against the chord's, where it hits.
    pub left_weight: f64,
    /// Weight of the right side's line against the chord's, where it hits.
    pub right_weight: f64,
    /// Ratio of the right to the left line from which on the interval contains a jump.
    pub jump: f64,
    /// Share of the way to the larger line from which a switch counts as done. Well below a half: a library keeps a protocol until its own
    /// cost estimate is beaten, and the estimate of the larger one is pessimistic.
    pub stays: f64,
    /// Share of the way from the chord to the prediction of the lines.
    pub departure: f64,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            left_tolerance: 0.2,
            right_tolerance: 0.1,
            left_weight: 0.25,
            right_weight: 0.5,
            jump: 1.3,
            stays: 0.15,
            departure: 0.75,
        }
    }
}

/// Knots per factor of two; the curve is linear in log-log between knots.
const STEPS_PER_DOUBLING: f64 = 4.0;

/// A place on the curve, in natural logarithms.
#[derive(Clone, Copy, Debug)]
struct Knot {
    log_bytes: f64,
    log_seconds: f64,
}

impl Knot {
    fn log_seconds_at(self, next: &Knot, log_bytes: f64) -> f64 {
        let way = (log_bytes - self.log_bytes) / (next.log_bytes - self.log_bytes);
        self.log_seconds + (next.log_seconds - self.log_seconds) * way
    }
}

#[derive(Clone, Debug)]
pub struct Interpolant {
    knots: Vec<Knot>,
    gaps: Vec<Gap>,
}

impl Interpolant {
    /// Through points that ascend in bytes and never fall in seconds, both above zero.
    pub fn new(points: &[Point]) -> Interpolant {
        Interpolant::shaped(points, Shape::default())
    }

    /// The same with other constants.
    pub fn shaped(points: &[Point], shape: Shape) -> Interpolant {
        let (mut knots, mut gaps) = (Vec::new(), Vec::with_capacity(points.len()));
        for (index, pair) in points.windows(2).enumerate() {
            let gap = Gap::new(points, index, pair, shape);
            let (low, high) = (pair[0].bytes.ln(), pair[1].bytes.ln());
            let steps = ((high - low) / std::f64::consts::LN_2 * STEPS_PER_DOUBLING).ceil().clamp(1.0, 256.0) as usize;
            let mut reached = pair[0].seconds.ln();
            knots.push(Knot { log_bytes: low, log_seconds: reached });
            for step in 1..steps {
                let way = step as f64 / steps as f64;
                let log_bytes = low + way * (high - low);
                reached = reached.max(gap.log_seconds(log_bytes.exp(), way));
                knots.push(Knot { log_bytes, log_seconds: reached });
            }
            gaps.push(gap);
        }
        knots.extend(points.last().map(|last| Knot { log_bytes: last.bytes.ln(), log_seconds: last.seconds.ln() }));
        Interpolant { knots, gaps }
    }

    /// Seconds for `bytes`; outside the points the value at the nearer end.
    pub fn seconds(&self, bytes: f64) -> f64 {
        let at = bytes.ln();
        let next = self.knots.partition_point(|knot| knot.log_bytes < at);
        match (next.checked_sub(1).and_then(|before| self.knots.get(before)), self.knots.get(next)) {
            (Some(before), Some(after)) => before.log_seconds_at(after, at).exp(),
            (Some(end), None) | (None, Some(end)) => end.log_seconds.exp(),
            (None, None) => f64::NAN,
        }
    }

    /// How hard a size is to predict, in log time: errors are compared by their share of it. The constants were chosen on
    /// `tests/data/nccl`.
    pub fn difficulty(&self, bytes: f64) -> f64 {
        0.03 + 0.5 * self.disagreement(bytes)
    }

    /// How far apart, in log time, the candidates for `bytes` are: the chord, both neighbours' lines, and their combination. If they agree
    /// it hardly matters which applies. `None` outside the points.
    pub fn disagreement(&self, bytes: f64) -> f64 {
        let gap = self.gaps.iter().find(|gap| (gap.left.bytes..=gap.right.bytes).contains(&bytes));
        gap.map_or(0.0, |gap| {
            let (low, high) = gap
                .candidates(bytes)
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| (low.min(log), high.max(log)));
            high.max(self.seconds(bytes).ln()) - low.min(self.seconds(bytes).ln())
        })
    }
}

/// An interval between two neighbouring points, and the lines on either side.
#[derive(Clone, Debug)]
struct Gap {
    left: Point,
    right: Point,
    shape: Shape,
    /// The ratio of the lines from which on only one of them applies.
    jump: f64,
    line_before: Option<Side>,
    line_after: Option<Side>,
}

/// A neighbour's line, extended into the interval.
#[derive(Clone, Copy, Debug)]
struct Side {
    slope: f64,
    weight: f64,
    /// Its value at the far point.
    far: f64,
}

/// A neighbour's line at one size of the interval.
#[derive(Clone, Copy)]
struct Extended {
    side: Side,
    seconds: f64,
}

impl Gap {
    fn new(points: &[Point], index: usize, pair: &[Point], shape: Shape) -> Gap {
        let (left, right) = (pair[0], pair[1]);
        let doublings = (right.bytes / left.bytes).log2();
        let side = |near: Point, other: Point, far: Point, weight: f64, tolerance: f64| {
            let slope = (near.seconds - other.seconds) / (near.bytes - other.bytes);
            let hits = near.seconds + slope * (far.bytes - near.bytes);
            // A line that is not positive at the far point is dropped.
            (hits > 0.0).then(|| {
                let miss = (far.seconds / hits).ln() / (tolerance * doublings);
                Side { slope, weight: weight * (-miss * miss).exp(), far: hits }
            })
        };
        let before = index.checked_sub(1).map(|before| points[before]);
        let after = points.get(index + 2).copied();
        Gap {
            left,
            right,
            shape,
            jump: shape.jump.powf(doublings),
            line_before: before.and_then(|before| side(left, before, right, shape.left_weight, shape.left_tolerance)),
            line_after: after.and_then(|after| side(right, after, left, shape.right_weight, shape.right_tolerance)),
        }
    }

    /// The lines of both sides at a size of the interval.
    fn extended(&self, bytes: f64) -> [Option<Extended>; 2] {
        let (left, right) = (self.left, self.right);
        let before = |side: Side| Extended { side, seconds: left.seconds + side.slope * (bytes - left.bytes) };
        let after = |side: Side| Extended { side, seconds: right.seconds - side.slope * (right.bytes - bytes) };
        [self.line_before.map(before), self.line_after.map(after)]
    }

    /// Log time at `bytes`, which are at `way` (0 to 1, in log bytes) of the interval; clamped to the values at the two ends.
    fn log_seconds(&self, bytes: f64, way: f64) -> f64 {
        let chord = self.left.line_through(self.right, bytes).ln();
        let [from_left, from_right] = self.extended(bytes);
        let by_lines = self.jump(from_left, from_right).unwrap_or_else(|| {
            let (mut sum, mut weights) = (chord, 1.0);
            // The weight of a line falls to zero at the point that it misses, so that the curve passes through it.
            let sides = [(from_left, 1.0 - way), (from_right, way)];
            for (Extended { side, seconds }, near) in sides.into_iter().filter_map(|(line, near)| Some((line?, near))) {
                if seconds > 0.0 {
                    let weight = side.weight * (2.0 * near).min(1.0);
                    sum += weight * seconds.ln();
                    weights += weight;
                }
            }
            sum / weights
        });
        self.within(chord + self.shape.departure * (by_lines - chord))
    }

    /// Chord and lines in log time, if their times are positive.
    fn candidates(&self, bytes: f64) -> impl Iterator<Item = f64> {
        let lines = self.extended(bytes).into_iter().flatten().map(|line| line.seconds);
        let all = std::iter::once(self.left.line_through(self.right, bytes)).chain(lines);
        all.filter(|seconds| *seconds > 0.0).map(|seconds| self.within(seconds.ln()))
    }

    /// Times never fall: a time in the interval is between those at its ends.
    fn within(&self, log_seconds: f64) -> f64 {
        log_seconds.clamp(self.left.seconds.ln(), self.right.seconds.ln())
    }

    /// The line that applies here, if the lines are so far apart that only one can.
    ///
    /// The library switches at an unknown size inside. The size is taken as uniform in the log of the ratio of the lines, but
    /// not beyond the size at which the right line becomes cheaper.
    fn jump(&self, from_left: Option<Extended>, from_right: Option<Extended>) -> Option<f64> {
        let (Extended { side: before, seconds: low }, Extended { side: after, seconds: high }) =
            (from_left?, from_right?);
        if high <= low * self.jump || low <= 0.0 {
            return None;
        }
        let at_left = (after.far / self.left.seconds).ln();
        let at_right = (self.right.seconds / before.far).ln().max(0.0);
        let here = (high / low).ln();
        let still_left = (here - at_right) / (at_left - at_right);
        (at_left > at_right).then(|| if still_left > self.shape.stays { low.ln() } else { high.ln() })
    }
}

// Sizes outside the measured ones: straight lines through the outermost points.
//
// Above the largest size a call is bound by bandwidth: every further byte costs the same, or less if the largest measured calls had not
// reached full bandwidth, since a library uses the cheaper of its protocols. So the line has the smallest slope that ends in the last
// point. Below the smallest size the line of the two smallest continues, and time falls at most in proportion to the bytes.

/// The outermost points, and the slopes of the chords that end there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outside {
    pub first: Point,
    pub last: Point,
    /// Seconds per byte between the two smallest sizes.
    slope_below: f64,
    /// Seconds per byte from the size before the largest, and from the one before that.
    slopes_above: [f64; 2],
}

impl Outside {
    /// Of points that ascend; `None` for fewer than two.
    pub fn of(points: &[Point]) -> Option<Outside> {
        let [first, second, ..] = points else { return None };
        let [.., before, last] = points else { return None };
        let earlier = points.len().checked_sub(3).and_then(|index| points.get(index)).unwrap_or(before);
        let slope = |from: &Point, to: &Point| (to.seconds - from.seconds) / (to.bytes - from.bytes);
        Some(Outside {
            first: *first,
            last: *last,
            slope_below: slope(first, second),
            slopes_above: [slope(before, last), slope(earlier, last)],
        })
    }

    /// Seconds of a size below the smallest.
    pub fn below(&self, bytes: f64) -> f64 {
        let line = self.first.seconds - self.slope_below * (self.first.bytes - bytes);
        line.max(self.proportional(self.first, bytes))
    }

    /// Seconds for a byte above the largest.
    pub fn slope_above(&self) -> f64 {
        self.slopes_above[0].min(self.slopes_above[1])
    }

    /// Seconds of a size above the largest.
    pub fn above(&self, bytes: f64) -> f64 {
        self.beyond_last(self.slope_above(), bytes)
    }

    /// In log time: half way between a constant time and the line, and more for every halving.
    pub fn difficulty_below(&self, bytes: f64) -> f64 {
        (self.first.seconds / self.below(bytes)).ln() + 0.03 + 0.01 * (self.first.bytes / bytes).log2()
    }

    /// In log time: between the two slopes, towards a time proportional to the bytes, and more for every doubling.
    pub fn difficulty_above(&self, bytes: f64) -> f64 {
        let [near, far] = self.slopes_above.map(|slope| self.beyond_last(slope, bytes));
        let unsaturated = (self.proportional(self.last, bytes) / self.above(bytes)).ln().max(0.0);
        (near / far).ln().abs() + 0.3 * unsaturated + 0.03 * (bytes / self.last.bytes).log2()
    }

    fn beyond_last(&self, slope: f64, bytes: f64) -> f64 {
        self.last.seconds + slope * (bytes - self.last.bytes)
    }

    fn proportional(&self, end: Point, bytes: f64) -> f64 {
        end.seconds * bytes / end.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn measurements_of_one_size_are_merged() {
        for (seconds, expected) in [
            (&[][..], None),
            (&[3.0], Some(3.0)),
            (&[4.0, 4.0], Some(4.0)),
            (&[1.0, 2.0], Some(1.0)),
            (&[1.0, 5.0, 1.1], Some(1.1)),
        ] {
            assert_eq!(combined(seconds), expected, "{seconds:?}");
        }
    }

    #[test]
    fn a_slow_outlier_is_listed_and_does_not_bend_the_curve() {
        let cleaned = Cleaned::of(&[
            Point::new(1.0, 5.0),
            Point::new(2.0, 17.0),
            Point::new(4.0, 5.2),
            Point::new(8.0, 5.1),
            Point::new(16.0, 9.0),
        ]);
        assert_eq!(cleaned.outliers, [2.0]);
        assert_eq!(cleaned.points.len(), 4);
        assert_eq!(cleaned.points[1].seconds, cleaned.points[2].seconds, "a fall within the noise is levelled");
        assert!((cleaned.points[1].seconds - (5.2f64 * 5.1).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn the_outermost_sizes_stay() {
        let cleaned = Cleaned::of(&[Point::new(1.0, 50.0), Point::new(2.0, 5.0), Point::new(4.0, 6.0)]);
        assert_eq!(cleaned.points.first(), Some(&Point::new(1.0, 5.0)));
        assert_eq!(cleaned.outliers, [1.0]);
        assert_eq!(cleaned.points.last(), Some(&Point::new(4.0, 6.0)));
    }

    fn line(alpha: f64, beta: f64, bytes: f64) -> Point {
        Point::new(bytes, alpha + beta * bytes)
    }

    #[test]
    fn a_single_line_is_reproduced() {
        let points: Vec<_> = (0..8).map(|step| line(1e-5, 1e-10, 512.0 * 4f64.powi(step))).collect();
        let curve = Interpolant::new(&points);
        for bytes in [1024.0, 3e4, 1.7e6, 5e6] {
            let expected = line(1e-5, 1e-10, bytes).seconds;
            assert!((curve.seconds(bytes) / expected - 1.0).abs() < 5e-3, "{bytes}");
        }
    }

    #[test]
    fn outside_the_points_the_value_of_the_nearer_end_applies() {
        let curve = Interpolant::new(&[Point::new(1e3, 1.0), Point::new(1e6, 2.0)]);
        assert!((curve.seconds(1.0) - 1.0).abs() < 1e-12 && (curve.seconds(1e9) - 2.0).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn the_curve_passes_through_every_point_and_never_falls(
            steps in prop::collection::vec((0.1f64..3.0, 0.0f64..2.0), 2..12)
        ) {
            let mut at = (5.0, -11.0);
            let points: Vec<Point> = steps.iter().map(|(wide, high)| {
                at = (at.0 + wide, at.1 + high);
                Point::new(f64::exp(at.0), f64::exp(at.1))
            }).collect();
            let curve = Interpolant::new(&points);
            for point in &points {
                prop_assert!((curve.seconds(point.bytes) / point.seconds - 1.0).abs() < 1e-9);
            }
            let (first, last) = (points[0].bytes.ln(), points[points.len() - 1].bytes.ln());
            let walk: Vec<f64> =
                (0..=500).map(|i| curve.seconds((first + (last - first) * f64::from(i) / 500.0).exp())).collect();
            prop_assert!(walk.windows(2).all(|pair| pair[1] >= pair[0] * (1.0 - 1e-12)));
        }
    }

    fn points(of: &[(f64, f64)]) -> Vec<Point> {
        of.iter().map(|(bytes, seconds)| Point::new(*bytes, *seconds)).collect()
    }

    #[test]
    fn a_line_extends_at_both_ends() {
        let outside = Outside::of(&points(&[(100.0, 2.0), (200.0, 3.0), (400.0, 5.0)])).unwrap();
        assert!((outside.below(50.0) - 1.5).abs() < 1e-12 && (outside.above(800.0) - 9.0).abs() < 1e-12);
    }

    #[test]
    fn the_least_slope_of_the_largest_sizes_extends() {
        let outside = Outside::of(&points(&[(100.0, 4.0), (200.0, 4.5), (400.0, 6.5)])).unwrap();
        assert!((outside.slope_above() - 2.5 / 300.0).abs() < 1e-12);
    }

    #[test]
    fn a_call_below_is_never_faster_than_by_its_share_of_the_bytes() {
        let outside = Outside::of(&points(&[(100.0, 2.0), (200.0, 8.0)])).unwrap();
        assert_eq!(outside.below(50.0), 1.0);
    }

    #[test]
    fn farther_sizes_are_harder() {
        let outside = Outside::of(&points(&[(100.0, 2.0), (200.0, 3.0), (400.0, 5.0)])).unwrap();
        assert!(outside.difficulty_above(1600.0) > outside.difficulty_above(800.0));
        assert!(outside.difficulty_below(10.0) > outside.difficulty_below(50.0));
    }
}
