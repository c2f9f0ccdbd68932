//! Median and percentiles, exact from raw samples. A percentile is given only where enough samples lie beyond it.

/// The samples in ascending order, as the functions of this module expect them.
pub fn sorted(samples: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = samples.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The middle of ascending samples: the mean of the two middle ones where their number is even.
pub fn median(ascending: &[f64]) -> Option<f64> {
    let middle = ascending.len() / 2;
    match ascending.len() {
        0 => None,
        count if count % 2 == 1 => Some(ascending[middle]),
        _ => Some(ascending[middle - 1] + (ascending[middle] - ascending[middle - 1]) / 2.0),
    }
}

/// The middle of samples in any order: the lower of the two middle ones where their number is even.
pub fn low_median(samples: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = samples.into_iter().collect();
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// The fewest samples with which a percentile is given: one of them is expected at or beyond it. 10 for p90,
/// 100 for p99, 1000 for p99.9. `None` outside 0 (included) to 100 (excluded).
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
