//! The interval of a median from order statistics. The only assumption is that samples are independent.
//!
//! Two order statistics enclose the median with a binomial probability, which jumps from pair to pair; the interval
//! lies between two neighbouring pairs, interpolated after Hettmansperger and Sheather, "Confidence intervals based on
//! interpolated order statistics", Statistics & Probability Letters 4 (1986), so that its coverage is right with few
//! samples too.

/// Below six samples not even the smallest and the largest enclose the median with 95 %.
pub const MIN_FOR_INTERVAL: usize = 6;

/// A closed interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval<T = f64> {
    /// Lower end.
    pub low: T,
    /// Upper end.
    pub high: T,
}

impl<T> Interval<T> {
    /// Both ends through an ascending function.
    pub fn map<U>(self, ascending: impl Fn(T) -> U) -> Interval<U> {
        Interval { low: ascending(self.low), high: ascending(self.high) }
    }
}

impl Interval {
    /// Half its width relative to the middle value that it belongs to; `None` where that is not positive.
    pub fn relative_half_width(self, middle: f64) -> Option<f64> {
        (middle > 0.0).then(|| (self.high - self.low) / 2.0 / middle)
    }
}

/// The interval that covers the median of the distribution with probability `level`, such as 0.95; `None` with too few
/// samples for it.
pub fn median_interval(ascending: &[f64], level: f64) -> Option<Interval> {
    let count = ascending.len();
    let (depth, weight) = depth_and_weight(count, level)?;
    let between = |outer: usize, inner: usize| ascending[outer] + weight * (ascending[inner] - ascending[outer]);
    Some(Interval { low: between(depth - 1, depth), high: between(count - depth, count - depth - 1) })
}

/// Depth d of the outer pair, x(d) and x(n-d+1), and how far to go from it towards the next inner pair.
///
/// The outer pair covers with 1 - 2 P(B < d), B binomial over n with 1/2; d is the largest with which that is still `level`.
fn depth_and_weight(count: usize, level: f64) -> Option<(usize, f64)> {
    let miss = (1.0 - level) / 2.0;
    let n = count as f64;
    // Beyond 12 standard deviations the tail is below any level that can be requested.
    let start = (n / 2.0 - 6.0 * n.sqrt()).floor().max(0.0);
    let mut term = (ln_choose(n, start) - n * std::f64::consts::LN_2).exp();
    let mut below = 0.0;
    let mut k = start;
    while below + term <= miss {
        below += term;
        term *= (n - k) / (k + 1.0);
        k += 1.0;
    }
    // Now P(B < k) <= miss < P(B < k + 1).
    let depth = k as usize;
    if depth == 0 || 2 * depth >= count {
        return None;
    }
    let surplus = (miss - below) / term;
    Some((depth, (n - k) * surplus / (k + (n - 2.0 * k) * surplus)))
}

fn ln_choose(n: f64, k: f64) -> f64 {
    ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
}

/// Stirling's series from 16 on, where its first left-out term is below 1e-9.
fn ln_factorial(k: f64) -> f64 {
    if k < 16.0 {
        return (2..=k as u64).map(|factor| (factor as f64).ln()).sum();
    }
    let ln_two_pi = (2.0 * std::f64::consts::PI).ln();
    k * k.ln() - k + 0.5 * (k.ln() + ln_two_pi) + 1.0 / (12.0 * k) - 1.0 / (360.0 * k.powi(3))
        + 1.0 / (1260.0 * k.powi(5))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::shapes::{Shape, draw};
    use crate::stats::sorted;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn fewer_than_six_samples_give_no_interval() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        for count in 0..MIN_FOR_INTERVAL {
            assert_eq!(median_interval(&values[..count], 0.95), None, "{count}");
        }
        assert!(median_interval(&values, 0.95).is_some());
        assert_eq!(median_interval(&values, 0.99), None, "99 % needs eight");
    }

    #[test]
    fn depths_are_those_of_the_binomial_tables() {
        // Conover, Practical Nonparametric Statistics: the sign test's critical values at 5 %, two-sided.
        for (count, depth) in [(6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (20, 6), (30, 10), (50, 18), (100, 40)] {
            assert_eq!(depth_and_weight(count, 0.95).unwrap().0, depth, "{count}");
        }
    }

    #[test]
    fn the_largest_counts_follow_the_normal_approximation() {
        for count in [10_000usize, 100_000, 1_000_000] {
            let (depth, weight) = depth_and_weight(count, 0.95).unwrap();
            let half = count as f64 / 2.0 - (depth as f64 + weight);
            assert!((half / (1.959_964 * (count as f64).sqrt() / 2.0) - 1.0).abs() < 0.01, "{count}: {half}");
        }
    }

    #[test]
    fn the_interval_covers_the_true_median_in_93_to_97_per_cent_of_2000_runs() {
        for shape in [Shape::LogNormal(0.5), Shape::Exponential(1.0), Shape::ThreeHumps(0.1)] {
            for count in [10, 30, 100, 1000] {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(count as u64);
                let covered = (0..2000).filter(|_| {
                    let values = sorted((0..count).map(|_| draw(shape, &mut random)));
                    let interval = median_interval(&values, 0.95).unwrap();
                    interval.low <= 1.0 && 1.0 <= interval.high
                });
                let share = covered.count() as f64 / 2000.0;
                assert!((0.93..=0.97).contains(&share), "{shape:?}, {count} samples: covered in {share}");
            }
        }
    }
}
