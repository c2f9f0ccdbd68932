//! Outliers of a set: values further above the others than the scatter of all explains.
//!
//! Based on the median and the median absolute deviation, which tolerate outliers in up to half of the values; lower
//! medians, so that of two values the smaller is the usual one. The threshold is corrected for the number of
//! comparisons: with a fixed one such as three deviations a healthy fleet of 64 has an outlier more often than not.

use super::{low_median, sorted};

/// From the median of absolute distances to the standard deviation of a normal distribution (F. R. Hampel, "The influence curve
/// and its role in robust estimation", Journal of the American Statistical Association 69 (1974)).
const MEDIAN_DISTANCE_TO_DEVIATION: f64 = 1.4826;
/// Growth of the threshold where the scatter is estimated from few values; tuned by simulation, checked by a test.
const FEW_VALUES: f64 = 8.0;

/// When a value is an outlier.
#[derive(Clone, Copy, Debug)]
pub struct OddRule {
    /// False-alarm probability for any value of a healthy set.
    pub chance: f64,
    /// Comparisons that share the chance (Bonferroni: each has the chance divided by their number).
    pub comparisons: usize,
    /// Lower bound on the standard deviation.
    pub least_deviation: f64,
    /// Smaller distances are ignored.
    pub least_distance: f64,
}

/// The usual value of a set, and the distance from which on a value is an outlier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usual {
    /// The lower median.
    pub middle: f64,
    /// The distance above it that is allowed.
    pub allowed: f64,
}

impl OddRule {
    /// The usual value and the allowed distance; `None` without values.
    pub fn usual(&self, values: &[f64]) -> Option<Usual> {
        let middle = low_median(values.iter().copied())?;
        Some(self.usual_of(middle, values.iter().map(|value| (value - middle).abs()), values.len()))
    }

    /// The same where up to half of the values may be outliers: only those up to the median show how far values scatter.
    pub fn usual_by_lower_half(&self, values: &[f64]) -> Option<Usual> {
        let middle = low_median(values.iter().copied())?;
        let lower = values.iter().filter(|value| **value <= middle);
        Some(self.usual_of(middle, lower.map(|value| middle - value), values.len()))
    }

    fn usual_of(&self, middle: f64, distances: impl Iterator<Item = f64>, count: usize) -> Usual {
        // The distance of the median from itself is skipped; two values have no scatter to estimate.
        let distances = sorted(distances);
        let distance = match distances.get(1..) {
            Some(others) if count > 2 => low_median(others.iter().copied()).unwrap_or(0.0),
            _ => 0.0,
        };
        let deviation = (distance * MEDIAN_DISTANCE_TO_DEVIATION).max(self.least_deviation);
        let few = 1.0 + FEW_VALUES / (count as f64 - 1.0).max(1.0);
        let quantile = upper_normal_quantile(self.chance / self.comparisons.max(1) as f64);
        Usual { middle, allowed: (quantile * few * deviation).max(self.least_distance) }
    }
}

impl Usual {
    /// Distance of a value above the median, as a multiple of the allowed distance; an outlier above 1.
    pub fn strength(&self, value: f64) -> f64 {
        (value - self.middle) / self.allowed
    }
}

/// The value that a standard normal variable exceeds with this probability, which must be below one half.
///
/// M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions (1964), 26.2.23; the error is below 4.5e-4.
pub fn upper_normal_quantile(probability: f64) -> f64 {
    let t = (-2.0 * probability.ln()).sqrt();
    let numerator = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let denominator = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - numerator / denominator
}

#[cfg(test)]
mod tests {
    use super::super::shapes::{Shape, draw};
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn rule(count: usize) -> OddRule {
        OddRule { chance: 0.001, comparisons: count, least_deviation: 1e-9, least_distance: 0.0 }
    }

    #[test]
    fn healthy_fleets_have_outliers_in_less_than_2_of_100_runs() {
        for count in [4usize, 6, 8, 16, 64, 256] {
            let odd = (0..1000u64).filter(|seed| {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(*seed);
                let values: Vec<f64> = (0..count).map(|_| draw(Shape::LogNormal(0.02), &mut random).ln()).collect();
                let usual = rule(count).usual(&values).unwrap();
                values.iter().any(|value| usual.strength(*value) > 1.0)
            });
            let found = odd.count();
            assert!(found <= 20, "{count} values: {found} of 1000");
        }
    }

    #[test]
    fn one_that_is_a_fifth_slower_is_found_among_8_with_a_scatter_of_1_per_cent() {
        let found = (0..1000u64).filter(|seed| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(*seed);
            let mut values: Vec<f64> = (0..8).map(|_| draw(Shape::LogNormal(0.01), &mut random).ln()).collect();
            values[3] += 1.2f64.ln();
            rule(8).usual(&values).unwrap().strength(values[3]) > 1.0
        });
        let found = found.count();
        assert!(found >= 950, "{found} of 1000");
    }

    #[test]
    fn of_the_faster_half_every_slower_one_is_an_outlier() {
        for slow in [1, 2, 3] {
            let values: Vec<f64> =
                (0..6).map(|value| 0.005 * f64::from(value) + if value < slow { 0.5 } else { 0.0 }).collect();
            let rule = OddRule { least_deviation: 0.01, ..rule(6) };
            let usual = rule.usual_by_lower_half(&values).unwrap();
            let odd: Vec<bool> = values.iter().map(|value| usual.strength(*value) > 1.0).collect();
            let expected: Vec<bool> = (0..6).map(|value| value < slow).collect();
            assert_eq!(odd, expected, "{slow} slow");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (probability, quantile) in [(0.05, 1.644_854), (0.025, 1.959_964), (0.001, 3.090_232), (1e-6, 4.753_424)] {
            assert!((upper_normal_quantile(probability) - quantile).abs() < 5e-4, "{probability}");
        }
    }
}
