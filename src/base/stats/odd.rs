//! Outliers of a set: values further above the others than the scatter of all explains.
//!
//! Based on the median and the median absolute deviation, which tolerate outliers in up to half of the values; lower
//! medians, so that of two values the smaller is the usual one. The threshold is corrected for the number of
//! comparisons: with a fixed one such as three deviations a healthy fleet of 64 has an outlier more often than not.

use super::low_median;

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
        // The distance of the median from itself is skipped; two values have no scatter to estimate.
        let mut distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
        distances.sort_unstable_by(f64::total_cmp);
        let distance = if distances.len() > 2 { low_median(distances[1..].iter().copied())? } else { 0.0 };
        let deviation = (distance * MEDIAN_DISTANCE_TO_DEVIATION).max(self.least_deviation);
        let few = 1.0 + FEW_VALUES / (values.len() as f64 - 1.0).max(1.0);
        let quantile = upper_normal_quantile(self.chance / self.comparisons.max(1) as f64);
        Some(Usual { middle, allowed: (quantile * few * deviation).max(self.least_distance) })
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
    fn quantiles_are_those_of_the_tables() {
        for (probability, quantile) in [(0.05, 1.644_854), (0.025, 1.959_964), (0.001, 3.090_232), (1e-6, 4.753_424)] {
            assert!((upper_normal_quantile(probability) - quantile).abs() < 5e-4, "{probability}");
        }
    }
}
