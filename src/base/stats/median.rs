//! Median and percentiles, exact from raw samples. A percentile requires enough samples beyond it.

/// The samples in ascending order, as the functions of this module expect them.
pub fn sorted(samples: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = samples.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The middle of ascending samples: the mean of the two middle ones if their number is even.
pub fn median(ascending: &[f64]) -> Option<f64> {
    let middle = ascending.len() / 2;
    match ascending.len() {
        0 => None,
        count if count % 2 == 1 => Some(ascending[middle]),
        _ => Some(ascending[middle - 1] + (ascending[middle] - ascending[middle - 1]) / 2.0),
    }
}

/// The middle of samples in any order: the lower of the two middle ones if their number is even.
pub fn low_median(samples: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = samples.into_iter().collect();
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// The minimum number of samples for a percentile: one of them is expected at or beyond it. 10 for p90, 100 for p99, 1000 for p99.9. `None`
/// outside 0 (included) to 100 (excluded).
pub fn fewest_samples(percent: f64) -> Option<usize> {
    // Compensates binary rounding: 100 - 99.9 is slightly less than 0.1.
    (0.0..100.0).contains(&percent).then(|| (100.0 / (100.0 - percent) - 1e-6).ceil() as usize)
}

/// The smallest sample that at least `percent` per cent of all samples do not exceed (nearest rank), or `None` with fewer than
/// [`fewest_samples`].
pub fn percentile(ascending: &[f64], percent: f64) -> Option<f64> {
    let count = ascending.len();
    if count < fewest_samples(percent)? {
        return None;
    }
    let rank = (percent / 100.0 * count as f64 - 1e-6).ceil().max(1.0) as usize;
    Some(ascending[rank.min(count) - 1])
}

// The interval of a median from order statistics. The only assumption is that samples are independent.
//
// Two order statistics enclose the median with a binomial probability, which jumps from pair to pair; the interval is between two
// neighbouring pairs, interpolated after Hettmansperger and Sheather, "Confidence intervals based on interpolated order statistics",
// Statistics & Probability Letters 4 (1986), so that its coverage is also right with few samples.

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
    /// Half its width relative to its middle value; `None` if that is not positive.
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

/// Depth d of the outer pair, x(d) and x(n-d+1), and the distance from it towards the next inner pair.
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

/// Stirling's series from 16 on, where its first omitted term is below 1e-9.
fn ln_factorial(k: f64) -> f64 {
    if k < 16.0 {
        return (2..=k as u64).map(|factor| (factor as f64).ln()).sum();
    }
    let ln_two_pi = (2.0 * std::f64::consts::PI).ln();
    k * k.ln() - k + 0.5 * (k.ln() + ln_two_pi) + 1.0 / (12.0 * k) - 1.0 / (360.0 * k.powi(3))
        + 1.0 / (1260.0 * k.powi(5))
}

// One-sided bounds of a median from order statistics, and the equivalent sign test.
//
// The only assumption is that the values are independent: each is above the median with probability 1/2. With n values, x(d) is below the
// median with probability 1 - P(B < d), B binomial over n with 1/2 (David and Nagaraja, "Order Statistics", 3rd edition, 7.1). Nothing is
// interpolated, so that the confidence is guaranteed.

/// Maximum number of values ever requested; beyond it the median is too close to the limit to decide.
const MAX_VALUES: usize = 2000;

/// P(B >= `at_least`), B binomial over `count` with 1/2: by symmetry P(B <= `count` - `at_least`).
pub fn half_binomial_tail(count: usize, at_least: usize) -> f64 {
    count.checked_sub(at_least).map_or(0.0, |last| at_most(last as u64, count as u64, 0.5))
}

/// The lower and the upper bound of the median, each with confidence `level`; `None` with too few values for it.
pub fn median_bounds(ascending: &[f64], level: f64) -> Option<(f64, f64)> {
    let count = ascending.len();
    let depth = depth_of_bound(count, level)?;
    Some((ascending[depth - 1], ascending[count - depth]))
}

/// Which of `count` values from below is the lower bound of the median with confidence `level`, counted from 1; `None` with too few.
pub fn depth_of_bound(count: usize, level: f64) -> Option<usize> {
    // The largest d with P(B < d) <= 1 - level, which is P(B >= n - d + 1).
    (1..=count).take_while(|depth| half_binomial_tail(count, count - depth + 1) <= 1.0 - level).last()
}

/// The minimum number of values for a bound of that confidence: 5 for 95 %.
pub fn fewest_for_bound(level: f64) -> usize {
    (1..MAX_VALUES).find(|count| half_binomial_tail(*count, *count) <= 1.0 - level).unwrap_or(MAX_VALUES)
}

/// The total number of values that would decide, if of `count` values `agreeing` are on the majority side of the limit and further values
/// have the same proportion. `None` if no reasonable number would.
pub fn values_to_decide(count: usize, agreeing: usize, level: f64) -> Option<usize> {
    let fewest = fewest_for_bound(level);
    if count == 0 {
        return Some(fewest);
    }
    (count + 1).max(fewest).le(&MAX_VALUES).then_some(())?;
    ((count + 1).max(fewest)..=MAX_VALUES).find(|more| {
        let expected = more * agreeing / count;
        half_binomial_tail(*more, expected) <= 1.0 - level
    })
}

// The confidence interval of a proportion from a number of hits and trials.

/// The interval of C. J. Clopper and E. S. Pearson (1934), which covers the true share with at least `confidence`.
pub fn proportion_interval(hits: u64, trials: u64, confidence: f64) -> Interval {
    let tail = (1.0 - confidence) / 2.0;
    // Both bounds are found by bisection, since the tail is monotonic in the share.
    let search = |is_below: &dyn Fn(f64) -> bool| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if is_below(middle) { low = middle } else { high = middle }
        }
        f64::midpoint(low, high)
    };
    let low = if hits == 0 { 0.0 } else { search(&|share| 1.0 - at_most(hits - 1, trials, share) < tail) };
    let high = if hits >= trials { 1.0 } else { search(&|share| at_most(hits, trials, share) > tail) };
    Interval { low, high }
}

/// P(B <= `most`), B binomial over `trials` with `share`.
fn at_most(most: u64, trials: u64, share: f64) -> f64 {
    if share <= 0.0 || most >= trials {
        return 1.0;
    }
    if share >= 1.0 {
        return 0.0;
    }
    let n = trials as f64;
    let mut ln_term = n * (-share).ln_1p();
    let ln_odds = share.ln() - (-share).ln_1p();
    let mut sum = 0.0;
    for k in 0..=most {
        sum += ln_term.exp();
        ln_term += ((n - k as f64) / (k as f64 + 1.0)).ln() + ln_odds;
    }
    f64::min(sum, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::sorted;
    use crate::testing::{Shape, draw};
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn first(count: usize) -> Vec<f64> {
        (1..=count).map(|value| value as f64).collect()
    }

    #[test]
    fn a_percentile_needs_enough_samples() {
        for (percent, fewest) in [(50.0, 2), (90.0, 10), (95.0, 20), (99.0, 100), (99.9, 1000)] {
            assert_eq!(fewest_samples(percent), Some(fewest), "p{percent}");
            assert_eq!(percentile(&first(fewest - 1), percent), None, "p{percent}");
            assert!(percentile(&first(fewest), percent).is_some(), "p{percent}");
        }
        assert_eq!(percentile(&first(1000), 100.0), None);
        assert_eq!(percentile(&first(1000), -1.0), None);
        assert_eq!(percentile(&[], 0.0), None);
    }

    #[test]
    fn percentiles_are_samples_at_their_rank() {
        for (percent, expected) in [(0.0, 1.0), (50.0, 500.0), (90.0, 900.0), (99.0, 990.0), (99.9, 999.0)] {
            assert_eq!(percentile(&first(1000), percent), Some(expected), "p{percent}");
        }
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!((low_median([]), low_median([4.0, 1.0, 2.0, 3.0])), (None, Some(2.0)));
        assert_eq!(median(&sorted([4.0, 1.0, 2.0, 3.0])), Some(2.5));
        assert_eq!(median(&sorted([9.0, 1.0, 2.0])), Some(2.0));
    }

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

    #[test]
    fn tails_are_those_of_the_binomial_tables() {
        for (count, at_least, tail) in
            [(5, 5, 0.03125), (10, 8, 0.0546875), (3, 0, 1.0), (3, 4, 0.0), (20, 15, 0.020694732666015625)]
        {
            assert!((half_binomial_tail(count, at_least) - tail).abs() < 1e-12, "{count}, {at_least}");
        }
        assert!((half_binomial_tail(2000, 1000) - 0.508_919).abs() < 1e-5, "no underflow with many values");
    }

    #[test]
    fn too_few_values_give_no_bound_and_the_number_needed_is_reported() {
        assert_eq!((fewest_for_bound(0.95), fewest_for_bound(0.99)), (5, 7));
        assert_eq!(median_bounds(&[1.0, 2.0, 3.0, 4.0], 0.95), None);
        assert_eq!(median_bounds(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.95), Some((1.0, 5.0)));
        // Of 8, the second from each end: P(B < 2) = 9/256.
        let eight: Vec<f64> = (1..=8).map(f64::from).collect();
        assert_eq!(median_bounds(&eight, 0.95), Some((2.0, 7.0)));
        for (count, agreeing, needed) in [(0, 0, Some(5)), (3, 3, Some(5)), (7, 6, Some(11)), (8, 4, None)] {
            assert_eq!(values_to_decide(count, agreeing, 0.95), needed, "{agreeing} of {count}");
        }
    }

    #[test]
    fn a_bound_is_beyond_the_median_no_more_often_than_promised() {
        for shape in [Shape::LogNormal(0.5), Shape::Exponential(1.0)] {
            for count in [5, 7, 20] {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(count as u64);
                let bounds = (0..4000)
                    .map(|_| median_bounds(&sorted((0..count).map(|_| draw(shape, &mut random))), 0.95).unwrap());
                let (mut low, mut high) = (0, 0);
                bounds.for_each(|(lower, upper)| {
                    low += u32::from(lower > 1.0);
                    high += u32::from(upper < 1.0);
                });
                // 5 % of 4000 is 200; 4 standard deviations are 55.
                assert!(low < 255 && high < 255, "{shape:?}, {count}: {low}, {high}");
            }
        }
    }

    #[test]
    fn intervals_are_those_of_the_tables() {
        // Known in closed form: without any hit the upper bound is 1 - (tail)^(1/n); with all, by symmetry.
        let Interval { low, high } = proportion_interval(0, 10, 0.95);
        assert!(low == 0.0 && (high - 0.308_497).abs() < 1e-6, "{high}");
        let Interval { low, high } = proportion_interval(10, 10, 0.95);
        assert!(high == 1.0 && (low - 0.691_503).abs() < 1e-6, "{low}");
        // R: binom.test(5, 100)$conf.int is 0.01643, 0.11284.
        let Interval { low, high } = proportion_interval(5, 100, 0.95);
        assert!((low - 0.016_432).abs() < 1e-5 && (high - 0.112_835).abs() < 1e-5, "{low} {high}");
    }
}
