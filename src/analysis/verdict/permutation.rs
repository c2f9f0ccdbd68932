//! Permutation test: probabilities of a change, corrected for the number of rows, by exchanging whole replicates between base
//! and new.
//!
//! If nothing changed, it does not matter which replicates are called base. For every way to call them so the largest
//! statistic over all rows is taken; a row's corrected probability is the share of ways whose largest is at least the row's
//! own (the single-step maxT procedure of Westfall and Young, "Resampling-Based Multiple Testing", 1993, 2.3). It bounds the
//! chance of any false alarm for any number of rows, however they are correlated. Holm's correction, which only uses
//! the probabilities of single rows, could not find anything with 7 replicates and 200 rows: 200 / C(14,7) is above 5 %.
//!
//! Only rows with the same numbers of replicates can exchange them together, so each such family is permuted by itself, and
//! probabilities are multiplied by the number of families (Bonferroni). Families whose probabilities could not reach the level are
//! not tested and cost nothing, as Tarone proposed (Biometrics 46, 1990); which these are follows from the numbers alone.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::fmt;

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

/// The logarithms of the times of something that is compared: a row, a part of a curve, or a row in one of the new runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sides {
    pub base: Vec<f64>,
    pub new: Vec<f64>,
    /// The run that the new times are of, where they are of one run among several.
    pub run: Option<usize>,
}

/// What can exchange replicates together.
type Family = (Option<usize>, ReplicateCounts);

impl Sides {
    pub fn counts(&self) -> ReplicateCounts {
        ReplicateCounts { base: self.base.len(), new: self.new.len() }
    }

    fn family(&self) -> Family {
        (self.run, self.counts())
    }
}

/// Replicates on either side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// The fewest and the most replicates of the rows that both sides have.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountRanges {
    base: [usize; 2],
    new: [usize; 2],
}

impl CountRanges {
    pub fn of(rows: &[Sides]) -> CountRanges {
        let counts = || rows.iter().map(Sides::counts).filter(|counts| counts.base > 0 && counts.new > 0);
        let range = |side: fn(&ReplicateCounts) -> usize| {
            let all = || counts().map(|counts| side(&counts));
            [all().min().unwrap_or(0), all().max().unwrap_or(0)]
        };
        CountRanges { base: range(|counts| counts.base), new: range(|counts| counts.new) }
    }

    pub fn most(&self) -> ReplicateCounts {
        ReplicateCounts { base: self.base[1], new: self.new[1] }
    }
}

impl fmt::Display for CountRanges {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let side = |[fewest, most]: [usize; 2]| match fewest == most {
            true => most.to_string(),
            false => format!("{fewest} to {most}"),
        };
        write!(f, "{} and {} replicates", side(self.base), side(self.new))
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
    /// For each of the compared; none where it was not tested.
    pub probabilities: Vec<Option<RowProbabilities>>,
    /// How many were tested.
    pub tested: usize,
    /// Families that were tested.
    pub families: usize,
    /// Permutations that were counted in the family with the fewest, including the actual assignment.
    pub exchanges: usize,
    /// True where all possible permutations were counted.
    pub exact: bool,
}

/// The families that are tested at a level: of those that can reach their share of it the ones with most rows, as many as test
/// the most rows in all. Known before any time is looked at.
fn tested_families(sizes: &BTreeMap<Family, usize>, level: f64) -> Vec<Family> {
    let mut best: (usize, Vec<Family>) = (0, Vec::new());
    for families in 1..=sizes.len() {
        let reaches = |counts: &ReplicateCounts| counts.attainable() * families as f64 <= level * (1.0 + 1e-9);
        let mut able: Vec<(&Family, &usize)> = sizes.iter().filter(|((_, counts), _)| reaches(counts)).collect();
        // Stable: of equal ones those of all runs come first.
        able.sort_by_key(|(_, rows)| std::cmp::Reverse(**rows));
        able.truncate(families);
        let rows = able.iter().map(|(_, rows)| **rows).sum();
        if rows > best.0 {
            best = (rows, able.into_iter().map(|(family, _)| *family).collect());
        }
    }
    best.1
}

/// Whether anything compared can be shown to be slower at a level.
pub(super) fn is_testable(compared: &[Sides], level: f64) -> bool {
    !tested_families(&sizes(compared), level).is_empty()
}

fn sizes(compared: &[Sides]) -> BTreeMap<Family, usize> {
    let mut sizes = BTreeMap::new();
    compared.iter().for_each(|sides| *sizes.entry(sides.family()).or_default() += 1);
    sizes
}

/// Corrected probabilities of all that is compared, so that any false alarm at the level is at most as likely.
pub(super) fn corrected(compared: &[Sides], level: f64) -> Corrected {
    let families = tested_families(&sizes(compared), level);
    let mut found = Corrected {
        probabilities: vec![None; compared.len()],
        tested: 0,
        families: families.len(),
        exchanges: usize::MAX,
        exact: true,
    };
    for family in &families {
        let members: Vec<usize> = (0..compared.len()).filter(|index| compared[*index].family() == *family).collect();
        let rows: Vec<&Sides> = members.iter().map(|index| &compared[*index]).collect();
        let (probabilities, exchanges, exact) = of_family(&rows, family.1, families.len());
        found.exchanges = found.exchanges.min(exchanges);
        found.exact &= exact;
        found.tested += members.len();
        let corrected = |p: f64| (p * families.len() as f64).min(1.0);
        for (index, RowProbabilities { slower, faster }) in members.into_iter().zip(probabilities) {
            found.probabilities[index] =
                Some(RowProbabilities { slower: corrected(slower), faster: corrected(faster) });
        }
    }
    found
}

/// The same for rows with these numbers of replicates, with the permutations that were counted, and whether these are all.
fn of_family(rows: &[&Sides], counts: ReplicateCounts, families: usize) -> (Vec<RowProbabilities>, usize, bool) {
    let ReplicateCounts { base, new } = counts;
    let all = base + new;
    let rows: Vec<(Vec<f64>, f64)> = rows.iter().map(|row| centered(row)).collect();
    let actual: Vec<usize> = (base..all).collect();
    let statistic = |row: &(Vec<f64>, f64), chosen: &[usize]| {
        let sum: f64 = chosen.iter().map(|index| row.0[*index]).sum();
        let within = row.1 - sum * sum * (1.0 / new as f64 + 1.0 / base as f64);
        sum / (within.max(0.0) + all as f64 * MIN_NOISE * MIN_NOISE).sqrt()
    };
    let (chosen, exact) = exchanges(all, new, rows.len() * families);
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
    let own = rows.iter().map(|row| statistic(row, &actual));
    let probabilities = own.map(|t| RowProbabilities {
        slower: share(highest.len() - highest.partition_point(|h| *h < t - slack)),
        faster: share(lowest.partition_point(|l| *l <= t + slack)),
    });
    (probabilities.collect(), exchanges, exact)
}

/// The values of both sides about their mean, those of the base first, and the sum of their squares.
fn centered(row: &Sides) -> (Vec<f64>, f64) {
    let both = || row.base.iter().chain(&row.new);
    let mean = both().sum::<f64>() / both().count().max(1) as f64;
    let values: Vec<f64> = both().map(|value| value - mean).collect();
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

    const LEVEL: f64 = 0.05;

    fn sides(base: &[f64], new: &[f64]) -> Sides {
        Sides { base: base.to_vec(), new: new.to_vec(), run: None }
    }

    #[test]
    fn every_permutation_is_counted_once_including_the_actual_one() {
        assert_eq!(subsets(4, 2), [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        assert_eq!((subsets(14, 7).len(), ways(14, 7)), (3432, 3432.0));
        let apart = sides(&[0.0, 0.01, 0.02], &[0.5, 0.51, 0.52]);
        let found = corrected(&[apart], LEVEL);
        assert_eq!(found.probabilities, [Some(RowProbabilities { slower: 0.05, faster: 1.0 })]);
        assert_eq!((found.exchanges, found.exact), (20, true));
    }

    #[test]
    fn constant_rows_and_no_rows_show_no_change() {
        let constant = corrected(&[sides(&[1.0; 3], &[1.0; 3])], LEVEL);
        assert_eq!(constant.probabilities[0].map(|p| p.slower), Some(1.0));
        assert_eq!(corrected(&[], LEVEL).probabilities, []);
    }

    #[test]
    fn many_replicates_are_permuted_by_reproducible_drawing() {
        let times =
            |from: u32, shift: f64| (from..from + 20).map(|index| f64::from(index % 7) * 0.01 + shift).collect();
        let row = Sides { base: times(0, 0.0), new: times(20, 0.3), run: None };
        let once = corrected(std::slice::from_ref(&row), LEVEL);
        assert!(!once.exact && once.exchanges == MAX_EXACT_PERMUTATIONS, "{once:?}");
        assert_eq!(once.probabilities[0].map(|p| p.slower), Some(1.0 / MAX_EXACT_PERMUTATIONS as f64));
        assert_eq!(once, corrected(&[row], LEVEL));
    }

    #[test]
    fn rows_are_permuted_with_those_that_have_as_many_replicates_and_no_side_is_taken_for_the_other() {
        let low = [0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06];
        let high = low.map(|value| value + 0.5);
        for base in 0..=7 {
            for new in 0..=7 {
                // The same number of values in all, divided otherwise.
                let uneven = [sides(&low[..base], &high[..new]), sides(&low[..new], &high[..base])];
                let found = corrected(&uneven, LEVEL);
                let attainable = uneven[0].counts().attainable();
                let families = if base == new { 1.0 } else { 2.0 };
                for (row, p) in uneven.iter().zip(&found.probabilities) {
                    let counts = row.counts();
                    match p {
                        // Tested alone or with the other, but never beyond the level.
                        Some(p) => assert!(
                            (p.slower / attainable).round() <= families && p.slower <= LEVEL,
                            "{counts:?} {p:?}"
                        ),
                        None => assert!(attainable * families > LEVEL, "{counts:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn families_that_cannot_reach_the_level_cost_the_others_nothing() {
        let low = [0.0, 0.01, 0.02, 0.03];
        let many =
            |base: usize, new: usize, rows| vec![sides(&low[..base], &low.map(|value| value + 1.0)[..new]); rows];
        for (rows, families, tested) in [
            (vec![many(4, 4, 1)], 1, 1),
            (vec![many(4, 4, 1), many(1, 1, 9), many(2, 1, 9), many(2, 2, 9)], 1, 1),
            // 1 / 70 and 1 / 35 cannot share 5 %: the one with more rows is tested.
            (vec![many(4, 4, 3), many(4, 3, 2)], 1, 3),
            (vec![many(4, 4, 2), many(4, 3, 3)], 1, 3),
            (vec![many(1, 4, 5)], 0, 0),
            (vec![many(0, 4, 5), many(4, 0, 5)], 0, 0),
        ] {
            let found = corrected(&rows.concat(), LEVEL);
            assert_eq!((found.families, found.tested), (families, tested));
        }
    }
}
