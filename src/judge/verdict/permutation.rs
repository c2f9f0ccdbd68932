//! Permutation test: probabilities of a change, corrected for the number of rows, by exchanging whole replicates between base
//! and new.
//!
//! If nothing changed, it does not matter which replicates are called base. Each assignment yields its largest statistic over all rows; a
//! row's corrected probability is the share of assignments whose largest is at least the row's own (the single-step maxT procedure of
//! Westfall and Young, "Resampling-Based Multiple Testing", 1993, 2.3). It bounds the chance of any false alarm for any number of rows,
//! however they are correlated. Holm's correction, which only uses the probabilities of single rows, could not find anything with 7
//! replicates and 200 rows: 200 / C(14,7) is above 5 %.
//!
//! Only rows with the same numbers of replicates can exchange them together, so each such family is permuted separately, and probabilities
//! are multiplied by the number of families (Bonferroni). Families whose probabilities could not reach the level are not tested and cost
//! nothing, as Tarone proposed (Biometrics 46, 1990); the numbers alone determine these families.

use super::document::{Row, percent};
use super::evidence::{ComparedRow, Evidence, OneRun, Run};
use super::{CompareRule, Decision, Problem};
use commgauge_base::stats::{RankSums, sorted};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::fmt;

/// With more replicates the exact distributions take too long to compute, and add no precision.
pub(super) const MAX_REPLICATES: usize = 50;

/// Up to this number all permutations are counted; above it, this many are drawn with a fixed seed.
const MAX_EXACT_PERMUTATIONS: usize = 10_000;

/// Upper bound on the multiplications of a comparison.
const MAX_WORK: usize = 500_000_000;

/// Minimum number of permutations that are drawn.
const MIN_DRAWN_PERMUTATIONS: usize = 999;

/// Minimum noise, as a share, for rows without any (a simulation, a coarse clock).
const MIN_NOISE: f64 = 0.0005;

/// The logarithms of the times of a compared subject: a row, a part of a curve, or a row in one of the new runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sides {
    pub base: Vec<f64>,
    pub new: Vec<f64>,
    /// The run of the new times, if they come from one run among several.
    pub run: Option<usize>,
}

/// Subjects that can exchange replicates together.
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
    /// The smallest probability that a test with this many replicates can reach.
    pub fn attainable(self) -> f64 {
        1.0 / ways(self.base + self.new, self.new)
    }
}

/// The minimum and the maximum number of replicates of the rows that both sides have.
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

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RowProbabilities {
    /// Of being this much slower by chance.
    pub slower: f64,
    /// Of being this much faster by chance.
    pub faster: f64,
}

/// Result of the permutation test.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Corrected {
    /// For each subject; `None` if it was not tested.
    pub probabilities: Vec<Option<RowProbabilities>>,
    /// Number of tested subjects.
    pub tested: usize,
    /// Number of tested families.
    pub families: usize,
    /// Counted permutations in the family with the fewest, including the actual assignment.
    pub exchanges: usize,
    /// True if all possible permutations were counted.
    pub exact: bool,
}

/// The families tested at a level: of those that can reach their share of it the ones with most rows, as many as maximise the number of
/// tested rows. Chosen before looking at any time.
fn tested_families(sizes: &BTreeMap<Family, usize>, level: f64) -> Vec<Family> {
    let mut best: (usize, Vec<Family>) = (0, Vec::new());
    for families in 1..=sizes.len() {
        let reaches = |counts: &ReplicateCounts| counts.attainable() * families as f64 <= level * (1.0 + 1e-9);
        let mut able: Vec<(&Family, &usize)> = sizes.iter().filter(|((_, counts), _)| reaches(counts)).collect();
        // Stable: of equal families those of all runs come first.
        able.sort_by_key(|(_, rows)| std::cmp::Reverse(**rows));
        able.truncate(families);
        let rows = able.iter().map(|(_, rows)| **rows).sum();
        if rows > best.0 {
            best = (rows, able.into_iter().map(|(family, _)| *family).collect());
        }
    }
    best.1
}

/// Whether any subject can be shown to be slower at a level.
pub(super) fn is_testable(compared: &[Sides], level: f64) -> bool {
    !tested_families(&sizes(compared), level).is_empty()
}

fn sizes(compared: &[Sides]) -> BTreeMap<Family, usize> {
    let mut sizes = BTreeMap::new();
    compared.iter().for_each(|sides| *sizes.entry(sides.family()).or_default() += 1);
    sizes
}

/// Corrected probabilities of all subjects, so that the probability of any false alarm is at most the level.
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

/// For rows with these numbers of replicates, with the counted permutations, and whether these are all.
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
    // Sums of the same numbers in a different order may differ in the last digit.
    let slack = 1e-9;
    let own = rows.iter().map(|row| statistic(row, &actual));
    let probabilities = own.map(|t| RowProbabilities {
        slower: share(highest.len() - highest.partition_point(|h| *h < t - slack)),
        faster: share(lowest.partition_point(|l| *l <= t + slack)),
    });
    (probabilities.collect(), exchanges, exact)
}

/// The values of both sides about their mean, base first, and the sum of their squares.
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

/// The minimum number of replicates on each side with which the level can be reached.
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

// One bad run among good ones: the run is the unit of pooling. Replicates of a run share its time and its hosts, so more of them, or good
// runs together with a bad one, do not improve it.

/// Results of single runs, over all rows.
#[derive(Default)]
pub(super) struct Alone {
    /// For each run that is worse than others: rows that it fails, and rows that it prevents from passing.
    rows_of: BTreeMap<usize, [usize; 2]>,
}

impl Alone {
    /// Lowers the decision of a row to that of its worst run, and names the runs that are worse than others: the record, not its logs.
    /// `found` holds the place, decision and reason of each of its runs.
    pub fn apply(&mut self, row: &mut Row, runs: &[Run], found: &[(usize, Decision, String)]) {
        let Some(pooled) = row.decision else { return };
        let decision_of =
            |wanted: usize| found.iter().find(|(run, ..)| *run == wanted).map(|(_, decision, _)| *decision);
        let best = found.iter().map(|(_, decision, _)| *decision).min().unwrap_or(pooled);
        let worst = found.iter().map(|(_, decision, _)| *decision).max().unwrap_or(pooled);
        let is_said_of_record =
            |run: &Run, decision: &Decision| run.record.and_then(decision_of).is_some_and(|of| of >= *decision);
        for (place, decision, reason) in found.iter().rev() {
            let Some(run) = runs.get(*place) else { continue };
            if *decision > best && !is_said_of_record(run, decision) {
                row.reasons.insert(0, format!("{} alone: {reason}", run.name));
                self.rows_of.entry(*place).or_default()[usize::from(*decision != Decision::Fail)] += 1;
            }
        }
        row.decision = Some(pooled.max(worst));
    }

    /// A sentence for each such run.
    pub fn problems<'a>(&'a self, runs: &'a [Run], rows: usize) -> impl Iterator<Item = Problem> + 'a {
        self.rows_of.iter().map(move |(run, [failed, open])| {
            let name = runs.get(*run).map_or("one run", |run| run.name.as_str());
            let (exit_code, what) = match (failed, open) {
                (0, open) => (3, format!("does not pass in {open}")),
                (failed, 0) => (1, format!("fails in {failed}")),
                (failed, open) => (1, format!("fails in {failed} and does not pass in {open} more")),
            };
            let text = format!(
                "{name} alone {what} of {rows} rows; other runs are better, but good runs do not compensate for a bad one"
            );
            Problem { exit_code, text }
        })
    }
}

/// The rows of each new run separately against the base, with the place of the row; empty with a single new run.
pub(super) fn sides(rows: &[ComparedRow]) -> Vec<(usize, Sides)> {
    let logarithms = |times: &[f64]| times.iter().map(|time| time.ln()).collect::<Vec<f64>>();
    let of_row = |(index, ComparedRow { new, base }): (usize, &ComparedRow)| {
        let base = base.map(|base| logarithms(&base.measured())).unwrap_or_default();
        let sides = move |of: OneRun| Sides { base: base.clone(), new: logarithms(&of.seconds), run: Some(of.run) };
        new.by_run().into_iter().map(move |run| (index, sides(run)))
    };
    rows.iter().enumerate().flat_map(of_row).collect()
}

/// The result of each new run of a row, given its probabilities if tested: slower by a relevant amount beyond chance; or, with too few
/// replicates to exclude chance, slower by that than everything else measured.
pub(super) fn compared(
    new: &Evidence,
    old: &Evidence,
    probabilities: &BTreeMap<usize, RowProbabilities>,
    rule: &CompareRule,
    ranks: &mut RankSums,
) -> Vec<(usize, Decision, String)> {
    let before = old.measured();
    let judged = new.by_run().into_iter().map(|OneRun { run, seconds, others }| {
        let logarithms = |times: &[f64]| sorted(times.iter().map(|time| time.ln()));
        let slowdown = ranks.shift(&logarithms(&before), &logarithms(&seconds), 1.0 - rule.false_alarm_level);
        let slowdown = slowdown.map_or(0.0, |shift| shift.middle.exp_m1());
        let is_beyond_chance = probabilities.get(&run).is_some_and(|p| p.slower <= rule.false_alarm_level);
        if slowdown >= rule.relevant_slowdown && is_beyond_chance {
            return (run, Decision::Fail, format!("slower by {}", percent(slowdown)));
        }
        let slowest = others.iter().chain(&before).copied().fold(0.0, f64::max);
        let gap = seconds.first().map_or(0.0, |fastest| fastest / slowest - 1.0);
        match gap.is_finite() && gap >= rule.relevant_slowdown {
            true => (
                run,
                Decision::Inconclusive,
                format!("slower by at least {} than everything else measured", percent(gap)),
            ),
            false => (run, Decision::Pass, String::new()),
        }
    });
    judged.collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{lines, loaded, machine};
    use super::super::{Allowed, GateRule, LoadedRecord, Verdict, compare, gate};
    use super::*;
    use commgauge_base::error::Result;
    use commgauge_model::record::line::ForeignTool;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

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
                // The same total number of values, divided differently.
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
            // 1 / 70 and 1 / 35 cannot share 5 %: the family with more rows is tested.
            (vec![many(4, 4, 3), many(4, 3, 2)], 1, 3),
            (vec![many(4, 4, 2), many(4, 3, 3)], 1, 3),
            (vec![many(1, 4, 5)], 0, 0),
            (vec![many(0, 4, 5), many(4, 0, 5)], 0, 0),
        ] {
            let found = corrected(&rows.concat(), LEVEL);
            assert_eq!((found.families, found.tested), (families, tested));
        }
    }

    const ROWS: usize = 4;

    /// A run whose rows of 1, 2, 4 ... MiB take 100, 200, 400 ... us times `slow`, with its own scatter.
    fn run(id: &str, slow: f64, replicates: usize) -> LoadedRecord {
        let seed = id.bytes().fold(0, |seed, byte| seed * 31 + u64::from(byte));
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut time = |row: usize| 100.0 * f64::from(1 << row) * slow * random.random_range(1.0..1.01);
        let rows: Vec<Vec<f64>> = (0..ROWS).map(|row| (0..replicates).map(|_| time(row)).collect()).collect();
        loaded(&format!("{id}.jsonl"), lines(id, &rows))
    }

    fn on_hosts(mut run: LoadedRecord, cluster: &str) -> LoadedRecord {
        for rank in &mut run.record.header.ranks {
            rank.host = format!("{cluster}-{}", rank.node);
        }
        run
    }

    /// The pool and its reverse, beginning with each of the runs.
    fn orders(pool: &[LoadedRecord]) -> Vec<Vec<LoadedRecord>> {
        let reversed: Vec<LoadedRecord> = pool.iter().rev().cloned().collect();
        let rotated = |pool: &[LoadedRecord], first| [&pool[first..], &pool[..first]].concat();
        (0..pool.len()).flat_map(|first| [rotated(pool, first), rotated(&reversed, first)]).collect()
    }

    /// All rows of a good run reach 15.7 GB/s of bus bandwidth.
    fn gated(pool: &[LoadedRecord]) -> Result<Verdict> {
        gate(pool, Some(&machine("10GB/s")), &GateRule { confidence: 0.95, allowed: vec![Allowed::Hosts] })
    }

    fn compared(pool: &[LoadedRecord]) -> Result<Verdict> {
        let base = [run("base-1", 1.0, 6), run("base-2", 1.0, 6)];
        let rule = CompareRule { false_alarm_level: 0.05, relevant_slowdown: 0.03, allowed: vec![Allowed::Hosts] };
        compare(&base, pool, &rule)
    }

    fn named(verdict: &Verdict, name: &str) -> bool {
        verdict.problems.iter().any(|problem| problem.text.starts_with(&format!("{name} alone")))
    }

    #[test]
    fn a_pool_with_a_bad_run_never_passes_in_any_order_and_names_it_and_one_without_passes() {
        // Good and bad runs, and the pooled result in a gate and in a comparison.
        let good = |index: usize, replicates| run(&format!("good-{index}"), 1.0, replicates);
        let bad = |replicates| run("bad", 3.0, replicates);
        for (what, pool, codes) in [
            ("good", vec![good(1, 6)], [0, 0]),
            ("all good", vec![good(1, 6), good(2, 6), good(3, 6)], [0, 0]),
            ("all good, a few replicates of each", vec![good(1, 2), good(2, 2), good(3, 2)], [0, 0]),
            ("bad", vec![bad(6)], [1, 1]),
            ("one bad of two", vec![good(1, 6), bad(6)], [1, 1]),
            ("one bad of three", vec![good(1, 6), good(2, 6), bad(6)], [1, 1]),
            ("one bad of four", vec![good(1, 6), good(2, 6), good(3, 6), bad(6)], [1, 1]),
            ("one bad, which is too short to fail alone", vec![good(1, 6), good(2, 6), good(3, 6), bad(1)], [3, 3]),
        ] {
            for pool in orders(&pool) {
                for (code, verdict) in codes.into_iter().zip([gated(&pool).unwrap(), compared(&pool).unwrap()]) {
                    let question = verdict.question;
                    assert_eq!(verdict.exit_code, code, "{what}, {question:?}: {:?}", verdict.problems);
                    let is_mixed = code != 0 && pool.len() > 1;
                    assert_eq!(named(&verdict, "bad.jsonl"), is_mixed, "{what}, {question:?}: {:?}", verdict.problems);
                    assert!(!named(&verdict, "good-1.jsonl") && !named(&verdict, "good-2.jsonl"));
                    if is_mixed {
                        let wanted = if code == 1 { Decision::Fail } else { Decision::Inconclusive };
                        let row = &verdict.rows[ROWS - 1];
                        assert_eq!(row.decision, Some(wanted), "{what}, {question:?}: {:?}", row.reasons);
                        assert!(
                            row.reasons[0].starts_with("bad.jsonl alone: "),
                            "{what}, {question:?}: {:?}",
                            row.reasons
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_bad_log_among_good_ones_is_a_bad_run_of_another_tool() {
        let logs = |id: &str, slow: Option<u32>| {
            let mut record = run(id, 1.0, 8);
            record.record.header.backend.measured_by = Some(ForeignTool::NcclTests);
            for line in record.record.cases.iter_mut().filter(|line| Some(line.replicate) == slow) {
                line.samples.slowest_nanoseconds.iter_mut().for_each(|time| *time *= 3);
            }
            record
        };
        let rule = CompareRule { false_alarm_level: 0.05, relevant_slowdown: 0.03, allowed: Vec::new() };
        for slow in 0..8 {
            let pool = [logs("logs", Some(slow))];
            let name = format!("run {} of logs.jsonl", slow + 1);
            for verdict in [gated(&pool).unwrap(), compare(&[logs("base", None)], &pool, &rule).unwrap()] {
                assert_eq!(verdict.exit_code, 3, "{:?}: {:?}", verdict.question, verdict.problems);
                assert!(named(&verdict, &name), "{:?}: {:?}", verdict.question, verdict.problems);
            }
        }
        assert_eq!(gated(&[logs("logs", None)]).unwrap().exit_code, 0);
        // A record whose logs are all slow fails as it does alone, and the record is named.
        let mut bad = logs("bad", None);
        for line in &mut bad.record.cases {
            line.samples.slowest_nanoseconds.iter_mut().for_each(|time| *time *= 3);
        }
        for pool in orders(&[logs("a", None), logs("b", None), logs("c", None), bad]) {
            for verdict in [gated(&pool).unwrap(), compare(&[logs("base", None)], &pool, &rule).unwrap()] {
                assert_eq!(verdict.exit_code, 1, "{:?}: {:?}", verdict.question, verdict.problems);
                let said: Vec<&Problem> =
                    verdict.problems.iter().filter(|problem| problem.text.contains(" alone ")).collect();
                assert!(said.len() == 1 && named(&verdict, "bad.jsonl"), "{:?}: {said:?}", verdict.question);
            }
        }
    }

    #[test]
    fn two_clusters_have_rows_of_their_own_and_neither_makes_up_for_the_other() {
        let cluster = |name: &str, slow: f64, first: usize, runs: usize| -> Vec<LoadedRecord> {
            (first..first + runs).map(|index| on_hosts(run(&format!("run-{index}"), slow, 6), name)).collect()
        };
        for slow in [1.0, 3.0] {
            let pool = [cluster("east", 1.0, 0, 3), cluster("west", slow, 3, 1)].concat();
            for pool in orders(&pool) {
                let verdict = gated(&pool).unwrap();
                let of = |hosts: &str| -> Vec<&Row> {
                    verdict.rows.iter().filter(|row| row.hosts.as_deref() == Some(hosts)).collect()
                };
                let (east, west) = (of("east-0, east-1"), of("west-0, west-1"));
                assert_eq!((east.len(), west.len(), verdict.rows.len()), (ROWS, ROWS, 2 * ROWS));
                assert!(east.iter().all(|row| row.replicates == 18 && row.decision == Some(Decision::Pass)));
                let expected = if slow > 1.0 { Decision::Fail } else { Decision::Pass };
                assert!(west.iter().all(|row| row.replicates == 6 && row.decision == Some(expected)));
                assert_eq!(verdict.exit_code, i32::from(slow > 1.0), "{:?}", verdict.problems);
                // Against a base with other hosts each cluster is compared separately.
                let verdict = compared(&pool).unwrap();
                assert_eq!((verdict.rows.len(), verdict.exit_code), (2 * ROWS, i32::from(slow > 1.0)));
            }
        }
        let one = gated(&cluster("east", 1.0, 0, 2)).unwrap();
        assert!(one.rows.iter().all(|row| row.hosts.is_none()));
    }

    #[test]
    fn a_run_that_contradicts_itself_is_named_among_consistent_ones() {
        use super::super::{ConsistencyRule, consistency};
        let steep = |id: &str, odd: f64| {
            let mut record = run(id, 1.0, 7);
            let slow = record.record.cases.iter_mut().filter(|line| line.case == 1);
            slow.for_each(|line| {
                line.samples.slowest_nanoseconds.iter_mut().for_each(|time| *time = (*time as f64 * odd) as u64)
            });
            record
        };
        let pool = [steep("a", 1.0), steep("b", 1.0), steep("c", 1.0), steep("d", 1.0), steep("odd", 1.5)];
        for odd in 0..pool.len() {
            let mut pool = pool.to_vec();
            pool.swap(odd, 4);
            let verdict = consistency(&pool, ConsistencyRule::default(), &[]).unwrap();
            assert_eq!(verdict.exit_code, 1, "{:?}", verdict.problems);
            assert!(named(&verdict, "odd.jsonl") && !named(&verdict, "a.jsonl"), "{:?}", verdict.problems);
        }
        assert_eq!(consistency(&pool[..4], ConsistencyRule::default(), &[]).unwrap().exit_code, 0);
    }
}
