//! Permutation test: probabilities of a change, corrected for the number of rows, by exchanging whole replicates between base
//! and new.
//!
//! If nothing changed, it does not matter which replicates are called base. For every way to call them so the largest
//! statistic over all rows is taken; a row's corrected probability is the share of ways whose largest is at least the row's
//! own (the single-step maxT procedure of Westfall and Young, "Resampling-Based Multiple Testing", 1993, 2.3). It bounds the
//! chance of any false alarm for any number of rows, however they are correlated. Holm's correction, which only uses
//! the probabilities of single rows, could not find anything with 7 replicates and 200 rows: 200 / C(14,7) is above 5 %.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

/// With more replicates the exact distributions take too long to compute, and add no precision.
pub(super) const MAX_REPLICATES: usize = 50;
/// Up to this number all permutations are counted; beyond it, this many are drawn with a fixed seed.
const MAX_EXACT_PERMUTATIONS: usize = 10_000;
/// Upper bound on the multiplications of a comparison.
const MAX_WORK: usize = 500_000_000;
/// Minimum number of permutations that are drawn.
const MIN_DRAWN_PERMUTATIONS: usize = 999;
/// Rows without any noise (a simulation, a coarse clock) are given this much, as a share.
const MIN_NOISE: f64 = 0.0005;

/// Replicates on either side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplicateCounts {
    pub base: usize,
    pub new: usize,
}

impl ReplicateCounts {
    /// The smallest probability that a test of so many replicates can reach.
    pub fn attainable(self) -> f64 {
        1.0 / ways(self.base + self.new, self.new)
    }
}

/// The corrected probabilities of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RowProbabilities {
    /// Of being slower to this degree by chance.
    pub slower: f64,
    /// Of being faster.
    pub faster: f64,
}

/// Result of the permutation test.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Corrected {
    /// For each row, the corrected probability of being slower to this degree by chance.
    pub p_slower: Vec<f64>,
    /// The same for being faster.
    pub p_faster: Vec<f64>,
    /// Permutations that were counted, including the actual assignment.
    pub exchanges: usize,
    /// True where all possible permutations were counted.
    pub exact: bool,
}

impl Corrected {
    /// The probabilities of the row with this index.
    pub fn of_row(&self, index: usize) -> RowProbabilities {
        RowProbabilities { slower: self.p_slower[index], faster: self.p_faster[index] }
    }
}

/// Corrected probabilities of rows of logarithms of times: `base` replicates, then the new ones.
pub(super) fn corrected(rows: &[Vec<f64>], base: usize) -> Corrected {
    let all = rows.first().map_or(0, Vec::len);
    let new = all - base.min(all);
    let rows: Vec<(Vec<f64>, f64)> = rows.iter().map(|row| centered(row)).collect();
    let actual: Vec<usize> = (base..all).collect();
    let statistic = |row: &(Vec<f64>, f64), chosen: &[usize]| {
        let sum: f64 = chosen.iter().map(|index| row.0[*index]).sum();
        let within = row.1 - sum * sum * (1.0 / new as f64 + 1.0 / base as f64);
        sum / (within.max(0.0) + all as f64 * MIN_NOISE * MIN_NOISE).sqrt()
    };
    let (chosen, exact) = exchanges(all, new, rows.len());
    let extremes = chosen.iter().map(|chosen| {
        rows.iter()
            .map(|row| statistic(row, chosen))
            .fold((f64::MIN, f64::MAX), |(high, low), t| (high.max(t), low.min(t)))
    });
    let (mut highest, mut lowest): (Vec<f64>, Vec<f64>) = extremes.unzip();
    highest.sort_unstable_by(f64::total_cmp);
    lowest.sort_unstable_by(f64::total_cmp);
    // The drawn permutations do not include the actual assignment, which counts as one.
    let (extra, exchanges) = if exact { (0, chosen.len()) } else { (1, chosen.len() + 1) };
    let share = |count: usize| ((count + extra) as f64 / exchanges.max(1) as f64).min(1.0);
    // Sums of the same numbers in another order may differ in the last digit.
    let slack = 1e-9;
    let own: Vec<f64> = rows.iter().map(|row| statistic(row, &actual)).collect();
    Corrected {
        p_slower: own.iter().map(|t| share(highest.len() - highest.partition_point(|h| *h < t - slack))).collect(),
        p_faster: own.iter().map(|t| share(lowest.partition_point(|l| *l <= t + slack))).collect(),
        exchanges,
        exact,
    }
}

fn centered(row: &[f64]) -> (Vec<f64>, f64) {
    let mean = row.iter().sum::<f64>() / row.len().max(1) as f64;
    let values: Vec<f64> = row.iter().map(|value| value - mean).collect();
    let squares = values.iter().map(|value| value * value).sum();
    (values, squares)
}

/// The replicates that each permutation assigns to the new run, and whether these are all permutations.
fn exchanges(all: usize, new: usize, rows: usize) -> (Vec<Vec<usize>>, bool) {
    let per_exchange = rows.max(1) * new.max(1);
    let ways = ways(all, new);
    if ways <= MAX_EXACT_PERMUTATIONS as f64 && ways * per_exchange as f64 <= MAX_WORK as f64 {
        return (subsets(all, new), true);
    }
    let drawn = (MAX_WORK / per_exchange).clamp(MIN_DRAWN_PERMUTATIONS, MAX_EXACT_PERMUTATIONS - 1);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(0);
    let mut indices: Vec<usize> = (0..all).collect();
    let draw = |_| {
        indices.shuffle(&mut random);
        indices[..new].to_vec()
    };
    ((0..drawn).map(draw).collect(), false)
}

/// The fewest replicates of each side with which the level can be reached at all.
pub(super) fn fewest_for(level: f64) -> usize {
    let reaches = |count: &usize| ReplicateCounts { base: *count, new: *count }.attainable() <= level;
    (1..=MAX_REPLICATES).find(reaches).unwrap_or(MAX_REPLICATES)
}

/// C(all, new).
fn ways(all: usize, new: usize) -> f64 {
    (0..new).fold(1.0, |ways, k| ways * (all - k) as f64 / (k + 1) as f64).round()
}

fn subsets(all: usize, members: usize) -> Vec<Vec<usize>> {
    let mut found = vec![Vec::new()];
    for place in 0..members {
        found = found
            .into_iter()
            .flat_map(|subset: Vec<usize>| {
                let from = subset.last().map_or(0, |last| last + 1);
                (from..=all - (members - place)).map(move |next| [subset.as_slice(), &[next]].concat())
            })
            .collect();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_permutation_is_counted_once_including_the_actual_one() {
        assert_eq!(subsets(4, 2), [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        assert_eq!((subsets(14, 7).len(), ways(14, 7)), (3432, 3432.0));
        let apart = vec![vec![0.0, 0.01, 0.02, 0.5, 0.51, 0.52]];
        let corrected = corrected(&apart, 3);
        assert_eq!((corrected.p_slower[0], corrected.p_faster[0], corrected.exchanges), (0.05, 1.0, 20));
    }

    #[test]
    fn constant_rows_and_no_rows_show_no_change() {
        assert_eq!(corrected(&[vec![1.0; 6]], 3).p_slower, [1.0]);
        assert_eq!(corrected(&[], 3).p_slower, [0.0; 0]);
    }

    #[test]
    fn many_replicates_are_permuted_by_reproducible_drawing() {
        let row: Vec<f64> =
            (0..40).map(|index| f64::from(index % 7) * 0.01 + if index < 20 { 0.0 } else { 0.3 }).collect();
        let once = corrected(std::slice::from_ref(&row), 20);
        assert!(!once.exact && once.exchanges == MAX_EXACT_PERMUTATIONS, "{once:?}");
        assert_eq!(once.p_slower[0], 1.0 / MAX_EXACT_PERMUTATIONS as f64);
        assert_eq!(once, corrected(&[row], 20));
    }
}
