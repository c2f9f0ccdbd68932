//! The three order statistics that a report needs, on sorted numbers. Too few numbers give `None`.

/// The middle number, or the mean of the two middle ones.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The order-statistic interval that covers the true median with at least 95 %: the narrowest pair of numbers of equal
/// rank from either end. Six numbers are the fewest that can give one.
pub fn median_interval(sorted: &[f64]) -> Option<(f64, f64)> {
    let rank = lower_rank(sorted.len())?;
    Some((sorted[rank], sorted[sorted.len() - 1 - rank]))
}

/// The number below which the share `p` of the numbers lies (nearest rank), only where at least one number lies above
/// it: the 99th percentile needs 100 numbers. With fewer it would be another name for the maximum.
pub fn percentile(sorted: &[f64], p: f64) -> Option<f64> {
    let count = sorted.len() as f64;
    if sorted.is_empty() || !(0.0..1.0).contains(&p) || count * (1.0 - p) < 1.0 - 1e-9 {
        return None;
    }
    let rank = (count * p - 1e-9).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied()
}

/// The largest k (from 0) such that fewer than k + 1 of `count` numbers fall below the median with a probability of at
/// most 2.5 %: B(count, 1/2) at or below k. Above 1,000 numbers the normal approximation is exact enough.
fn lower_rank(count: usize) -> Option<usize> {
    if count > 1000 {
        let half_width = 1.959_964 * (count as f64).sqrt() / 2.0;
        return Some((count as f64 / 2.0 - half_width).floor() as usize - 1);
    }
    let mut probability = 0.5f64.powi(count as i32);
    let mut cumulated = probability;
    let mut rank = None;
    for k in 0..count {
        if cumulated > 0.025 {
            break;
        }
        rank = Some(k);
        probability *= (count - k) as f64 / (k + 1) as f64;
        cumulated += probability;
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(count: u32) -> Vec<f64> {
        (1..=count).map(f64::from).collect()
    }

    #[test]
    fn the_median_is_the_middle() {
        for (numbers, expected) in [(vec![], None), (vec![3.0], Some(3.0)), (vec![1.0, 2.0, 4.0, 9.0], Some(3.0))] {
            assert_eq!(median(&numbers), expected);
        }
    }

    #[test]
    fn intervals_are_those_of_the_tables() {
        for (count, expected) in [
            (5, None),
            (6, Some((1.0, 6.0))),
            (10, Some((2.0, 9.0))),
            (20, Some((6.0, 15.0))),
            (50, Some((18.0, 33.0))),
            (100, Some((40.0, 61.0))),
        ] {
            assert_eq!(median_interval(&counting(count)), expected, "{count} numbers");
        }
        assert_eq!(median_interval(&counting(10_000)), Some((4902.0, 5099.0)));
    }

    #[test]
    fn a_percentile_needs_a_number_above_it() {
        assert_eq!(percentile(&counting(99), 0.99), None);
        assert_eq!(percentile(&counting(100), 0.99), Some(99.0));
        assert_eq!(percentile(&counting(1000), 0.999), Some(999.0));
        assert_eq!(percentile(&counting(999), 0.999), None);
        assert_eq!(percentile(&counting(10), 1.0), None);
    }
}
