//! One-sided bounds of a median from order statistics, and the equivalent sign test.
//!
//! Nothing is assumed of the distribution but that the values are independent: each lies above the median with
//! probability 1/2. With n values, x(d) is below the median with probability 1 - P(B < d), B binomial over n with 1/2
//! (David and Nagaraja, "Order Statistics", 3rd edition, 7.1). Nothing is interpolated, so that the confidence is guaranteed.

/// Maximum number of values that is ever requested; beyond it the median is too close to the limit to decide.
const MAX_VALUES: usize = 2000;

/// P(B >= `at_least`), B binomial over `count` with 1/2.
pub fn half_binomial_tail(count: usize, at_least: usize) -> f64 {
    let n = count as f64;
    let mut ln_term = -n * std::f64::consts::LN_2;
    // By symmetry P(B >= a) = P(B <= n - a).
    let Some(last) = count.checked_sub(at_least) else { return 0.0 };
    let mut sum = 0.0;
    for k in 0..=last {
        sum += ln_term.exp();
        ln_term += ((n - k as f64) / (k as f64 + 1.0)).ln();
    }
    f64::min(sum, 1.0)
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

/// The fewest values with which a bound of that confidence exists: 5 for 95 %.
pub fn fewest_for_bound(level: f64) -> usize {
    (1..MAX_VALUES).find(|count| half_binomial_tail(*count, *count) <= 1.0 - level).unwrap_or(MAX_VALUES)
}

/// The total number of values that would decide, if of `count` values `agreeing` lie on the majority side of the limit and
/// further values have the same proportion. `None` where no sensible number would.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::shapes::{Shape, draw};
    use crate::stats::sorted;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

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
    fn a_bound_lies_beyond_the_median_no_more_often_than_promised() {
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
}
