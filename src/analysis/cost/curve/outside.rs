//! Sizes outside the measured ones: straight lines through the outermost points.
//!
//! Above the largest size a call is bound by bandwidth: every further byte costs the same, or less where the largest measured calls
//! had not reached it, since a library takes the cheaper of its protocols. So the line has the least of the slopes that end in the
//! last point. Below the smallest size the line of the two smallest goes on, and no call is faster than by its share of the bytes.

use super::point::Point;

/// The outermost points, and the slopes of the chords that end there.
#[derive(Clone, Copy, Debug)]
pub(in crate::cost) struct Outside {
    pub first: Point,
    pub last: Point,
    /// Seconds for a byte between the two smallest sizes.
    slope_below: f64,
    /// Seconds for a byte from the size before the largest, and from that before.
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

    /// In log time: between a time that does not change any more and the line, and more for every halving.
    pub fn difficulty_below(&self, bytes: f64) -> f64 {
        (self.first.seconds / self.below(bytes)).ln() + 0.03 + 0.01 * (self.first.bytes / bytes).log2()
    }

    /// In log time: between the two slopes, towards a time that grows as its bytes, and more for every doubling.
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

    fn points(of: &[(f64, f64)]) -> Vec<Point> {
        of.iter().map(|(bytes, seconds)| Point::new(*bytes, *seconds)).collect()
    }

    #[test]
    fn a_line_goes_on_at_both_ends() {
        let outside = Outside::of(&points(&[(100.0, 2.0), (200.0, 3.0), (400.0, 5.0)])).unwrap();
        assert!((outside.below(50.0) - 1.5).abs() < 1e-12 && (outside.above(800.0) - 9.0).abs() < 1e-12);
    }

    #[test]
    fn the_least_slope_of_the_largest_sizes_goes_on() {
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
