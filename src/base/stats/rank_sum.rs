//! The exact rank-sum test of two groups of values (Wilcoxon 1945, Mann and Whitney 1947), ties by midranks, and the resulting bounds of
//! the shift between the groups (Hodges and Lehmann 1963).
//!
//! Exact: every division of the values into groups of these sizes is counted. If that would take too long, the normal approximation with
//! corrections for continuity and ties replaces it (Lehmann, "Nonparametrics", 1975, 1.3 and 1.4).

use super::{Interval, Span, normal_below, sorted};
use std::collections::BTreeMap;

/// Maximum pairs of values, one of each group, for counting every division: 64 values of each.
const MAX_EXACT_PAIRS: usize = 64 * 64;

/// Null distributions, cached because many rows have the same numbers of values.
#[derive(Debug, Default)]
pub struct RankSums {
    /// By the lengths of the groups, P(U >= u) for each u, without ties.
    tails: BTreeMap<(usize, usize), Vec<f64>>,
}

impl RankSums {
    /// The probability, if nothing differs, that the second group's values are at least this much larger.
    pub fn p_larger(&mut self, first: &[f64], second: &[f64]) -> f64 {
        let mut all = sorted(first.iter().chain(second).copied());
        all.dedup();
        if all.len() == first.len() + second.len() {
            let u = second.iter().map(|b| first.iter().filter(|a| *a < b).count()).sum::<usize>();
            return self.tail(first.len(), second.len()).get(u).copied().unwrap_or(1.0);
        }
        tied(first, second)
    }

    /// The smallest probability that groups of these lengths can reach at all: 1 / C(n+m, m).
    pub fn attainable(first: usize, second: usize) -> f64 {
        (1..=second).map(|member| member as f64 / (first + member) as f64).product()
    }

    /// The shift from the first group to the second; each bound has confidence `level`, and is absent with too few values.
    pub fn shift(&mut self, first: &[f64], second: &[f64], level: f64) -> Option<Span> {
        let differences = sorted(second.iter().flat_map(|b| first.iter().map(move |a| b - a)));
        let middle = super::median(&differences)?;
        // D(c+1) and D(nm-c) for the largest c with P(U <= c) = P(U >= nm - c) <= 1 - level.
        let tail = self.tail(first.len(), second.len());
        let beyond = tail.iter().rev().take_while(|p| **p <= 1.0 - level).count();
        let bounds = |c: usize| Interval { low: differences[c], high: differences[differences.len() - 1 - c] };
        Some(Span { middle, interval: beyond.checked_sub(1).map(bounds) })
    }

    fn tail(&mut self, first: usize, second: usize) -> &[f64] {
        self.tails.entry((first, second)).or_insert_with(|| {
            if first * second > MAX_EXACT_PAIRS {
                let variance = (first * second * (first + second + 1)) as f64 / 12.0;
                let middle = (first * second) as f64 / 2.0;
                return (0..=first * second).map(|u| above(u as f64 - 0.5 - middle, variance)).collect();
            }
            let ranks: Vec<usize> = (1..=first + second).collect();
            let smallest = second * (second + 1) / 2;
            let counts = subset_sums(&ranks, second);
            tail_of(&counts[smallest..smallest + first * second + 1])
        })
    }
}

/// With ties the distribution depends on them; midranks are doubled to keep them whole.
fn tied(first: &[f64], second: &[f64]) -> f64 {
    let all = sorted(first.iter().chain(second).copied());
    let doubled = |value: f64| {
        let below = all.partition_point(|other| *other < value);
        below + all.partition_point(|other| *other <= value) + 1
    };
    let ranks: Vec<usize> = all.iter().map(|value| doubled(*value)).collect();
    let observed: usize = second.iter().map(|value| doubled(*value)).sum();
    if first.len() * second.len() > MAX_EXACT_PAIRS {
        let (n, m, all) = (first.len() as f64, second.len() as f64, ranks.len() as f64);
        let mean = ranks.iter().sum::<usize>() as f64 / all;
        let squares: f64 = ranks.iter().map(|rank| (*rank as f64 - mean).powi(2)).sum();
        // Doubled ranks are 2 apart at least, or 1 between a tie and its neighbour.
        return above(observed as f64 - 0.5 - m * mean, n * m * squares / (all * (all - 1.0)));
    }
    tail_of(&subset_sums(&ranks, second.len())).get(observed).copied().unwrap_or(0.0)
}

/// Probability of exceeding the mean by this much.
fn above(excess: f64, variance: f64) -> f64 {
    if variance > 0.0 { normal_below(-excess / variance.sqrt()) } else { 1.0 }
}

/// The number of subsets of this many ranks with each sum.
fn subset_sums(ranks: &[usize], members: usize) -> Vec<f64> {
    let most: usize = ranks.iter().sum();
    let mut counts = vec![vec![0.0; most + 1]; members + 1];
    counts[0][0] = 1.0;
    for (seen, rank) in ranks.iter().enumerate() {
        for taken in (1..=members.min(seen + 1)).rev() {
            let (without, with) = counts.split_at_mut(taken);
            let (from, to) = (&without[taken - 1], &mut with[0]);
            for sum in (*rank..=most).rev() {
                to[sum] += from[sum - rank];
            }
        }
    }
    counts.swap_remove(members)
}

/// P(X >= x) from the counts of each x.
fn tail_of(counts: &[f64]) -> Vec<f64> {
    let total: f64 = counts.iter().sum();
    let mut above = 0.0;
    let mut tail: Vec<f64> = counts
        .iter()
        .rev()
        .map(|count| {
            above += count;
            above / total
        })
        .collect();
    tail.reverse();
    tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_the_published_tables() {
        let mut ranks = RankSums::default();
        for (first, second, p) in [
            (vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0], 1.0 / 20.0),
            (vec![1.0, 2.0, 4.0], vec![3.0, 5.0, 6.0], 2.0 / 20.0),
            (vec![4.0, 5.0, 6.0], vec![1.0, 2.0, 3.0], 1.0),
            (vec![1.0, 2.0, 3.0, 4.0], vec![5.0, 6.0, 7.0], 1.0 / 35.0),
            // All equal: no evidence for a difference.
            (vec![1.0, 1.0], vec![1.0, 1.0], 1.0),
            // Six divisions of {1, 2, 2, 3} by midranks 1, 2.5, 2.5, 4: {2.5, 4} twice at the top.
            (vec![1.0, 2.0], vec![2.0, 3.0], 2.0 / 6.0),
        ] {
            assert!((ranks.p_larger(&first, &second) - p).abs() < 1e-12, "{first:?}, {second:?}");
        }
        assert!((RankSums::attainable(7, 7) - 1.0 / 3432.0).abs() < 1e-15);
    }

    #[test]
    fn the_shift_is_bounded_by_the_differences_of_pairs() {
        let mut ranks = RankSums::default();
        let (first, second) = ([1.0, 2.0, 4.0], [11.0, 12.5, 13.0]);
        let expected = Span { middle: 10.0, interval: Some(Interval { low: 7.0, high: 12.0 }) };
        assert_eq!(ranks.shift(&first, &second, 0.95), Some(expected), "3 and 3 reach exactly 95 %");
        let unbounded = Span { middle: 10.75, interval: None };
        assert_eq!(ranks.shift(&first[..2], &second, 0.95), Some(unbounded));
        assert_eq!(ranks.shift(&[], &second, 0.95), None);
    }

    #[test]
    fn thousands_of_values_are_compared_in_time_and_as_exactly_as_tens() {
        let mut ranks = RankSums::default();
        let group = |values: usize, shift: f64| -> Vec<f64> {
            (0..values).map(|index| ((index * 7919) % values) as f64 / values as f64 + shift).collect()
        };
        // 64 of each are counted, 65 approximated: with equal groups and ties, and with a shift and none.
        for (shift, tolerance) in [(0.0, 0.002), (0.070_3, 0.005)] {
            let p = [64, 65].map(|values| ranks.p_larger(&group(values, 0.0), &group(values, shift)));
            assert!((p[0] - p[1]).abs() < tolerance, "{shift}: {p:?}");
        }
        assert!(ranks.p_larger(&group(1000, 0.0), &group(1000, 0.2)) < 1e-6);
        assert!(RankSums::attainable(1000, 1000) < 1e-300);
        let shift = ranks.shift(&group(300, 0.0), &group(300, 0.1), 0.95).unwrap();
        let (middle, Interval { low, high }) = (shift.middle, shift.interval.unwrap());
        assert!((middle - 0.1).abs() < 0.01 && low < 0.1 && high > 0.1 && high - low < 0.12, "{middle} {low} {high}");
    }
}
