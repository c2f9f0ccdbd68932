//! Interpolation between two measured sizes: monotonic, through both points, and aware that a library switches between linear
//! costs.
//!
//! A communication library takes, for every size, one of several algorithms and protocols, and the cost of each is a
//! line in bytes (NCCL, `src/graph/tuning.cc`: latency + bytes / bandwidth). Between two measured sizes the curve
//! therefore is the line of the left side, the line of the right side, or one after the other. The prediction departs from the
//! chord towards the mean, in log time, of the chord and of both neighbours' lines, each line weighted by how nearly it hits the
//! far point: one that misses it does not apply in this interval. Where the lines are far apart one of them is chosen instead of
//! the mean.
//!
//! The constants of [`Shape`] were tuned on the curves in `tests/data/nccl`, both halves of their sizes, and judged on the machines
//! in `tests/data/nccl-aside`, which had no say in them (`tests/offline/cost_aside.rs`).

use super::point::Point;

/// Weights of the neighbours' lines in an interval. Distances in log time are for an interval that spans a factor of two, and
/// scale with the width of the interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Distance in log time by which the left side's line may miss the far point before its weight drops.
    pub left_tolerance: f64,
    /// The same of the right side's line.
    pub right_tolerance: f64,
    /// Weight of the left side's line against the chord's, where it hits.
    pub left_weight: f64,
    /// Weight of the right side's line against the chord's, where it hits.
    pub right_weight: f64,
    /// Ratio of the right to the left line from which on the interval contains a jump.
    pub jump: f64,
    /// Share of the way to the larger line that a switch is left of, from which on it has happened. Well below a half: a library stays
    /// with a protocol until its own cost estimate is beaten, and the estimate of the larger one is pessimistic.
    pub stays: f64,
    /// Share of the way from the chord to what the lines say.
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

/// A curve through points.
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

    /// How far apart, in log time, the candidates for `bytes` are: the chord, both neighbours' lines, and what is predicted of them.
    /// Where they agree it hardly matters which applies. None outside the points.
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

    /// Chord and lines in log time, where they are times at all.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
}
