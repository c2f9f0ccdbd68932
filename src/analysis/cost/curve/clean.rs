//! Prepares points for a curve: merges measurements of one size, removes slow outliers, makes times monotonic.
//!
//! Removed outliers are listed.

use super::point::Point;
use commgauge_base::stats::{median, sorted};

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
