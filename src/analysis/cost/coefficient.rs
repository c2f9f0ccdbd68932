//! A fitted number with its 95 % interval.

use commgauge_base::stats::{Interval, median, sorted};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Minimum number of values for an interval.
const MIN_FOR_INTERVAL: usize = 3;

/// A fitted number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Coefficient {
    /// The number.
    pub value: f64,
    /// Lower end of its 95 % interval; absent with fewer than three replicates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// Measurements behind it.
    pub measurements: u64,
}

impl Coefficient {
    /// A number with its bootstrap interval, if there was one. The interval contains the number.
    pub(super) fn new(value: f64, interval: Option<Interval>, measurements: usize) -> Coefficient {
        Coefficient {
            value,
            low: interval.map(|interval| interval.low.min(value)),
            high: interval.map(|interval| interval.high.max(value)),
            measurements: measurements as u64,
        }
    }

    /// The median of values, one per replicate, with a bootstrap interval; `None` without values.
    pub(super) fn median_of(values: &[f64], resamples: u32, seed: u64) -> Option<Coefficient> {
        let value = median(&sorted(values.iter().copied()))?;
        let drawn = || {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let one = |_| {
                let sample: Vec<f64> = values.iter().map(|_| *pick(values, &mut random)).collect();
                median(&sorted(sample))
            };
            middle_95((0..resamples).filter_map(one).collect())
        };
        let interval = if values.len() >= MIN_FOR_INTERVAL { drawn() } else { None };
        Some(Coefficient::new(value, interval, values.len()))
    }

    /// The wider half of the interval as a fraction of the number; 0 without an interval.
    pub fn half_width(&self) -> f64 {
        let reach = |end: Option<f64>| end.map_or(0.0, |end| (end - self.value).abs());
        reach(self.low).max(reach(self.high))
    }
}

/// A random element of a non-empty slice.
pub(super) fn pick<'a, T>(values: &'a [T], random: &mut Xoshiro256PlusPlus) -> &'a T {
    &values[random.random_range(0..values.len())]
}

/// The interval between the percentiles 2.5 and 97.5; `None` below 40 values.
pub(super) fn middle_95(values: Vec<f64>) -> Option<Interval> {
    let ascending = sorted(values);
    let outside = ascending.len() / 40;
    if outside == 0 {
        return None;
    }
    Some(Interval { low: *ascending.get(outside)?, high: *ascending.get(ascending.len().checked_sub(1 + outside)?)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_have_a_median_and_no_interval() {
        assert!(Coefficient::median_of(&[], 200, 1).is_none());
        let two = Coefficient::median_of(&[1.0, 3.0], 200, 1).unwrap();
        assert_eq!((two.value, two.low, two.high, two.measurements), (2.0, None, None, 2));
        let none = Coefficient::median_of(&[1.0, 2.0, 3.0], 0, 1).unwrap();
        assert_eq!(none.low, None, "nothing was resampled");
    }

    #[test]
    fn the_interval_contains_the_median_and_lies_within_the_values() {
        let values = [1.0, 1.2, 1.1, 1.3, 0.9, 1.15, 1.05];
        let found = Coefficient::median_of(&values, 400, 7).unwrap();
        let (low, high) = (found.low.unwrap(), found.high.unwrap());
        assert_eq!(found.value, 1.1);
        assert!((0.9..1.1).contains(&low) && (1.1..=1.3).contains(&high), "{found:?}");
        assert_eq!(Coefficient::median_of(&values, 400, 7).unwrap(), found, "the same seed gives the same");
    }
}
