//! One bad run among good ones: the run is the unit of pooling. Replicates of a run share its hour and its hosts, so more of them, or
//! good runs next to a bad one, do not make it better.

use super::Trouble;
use super::document::Row;
use super::evidence::{ComparedRow, Evidence, OneRun, Run};
use super::permutation::{RowProbabilities, Sides};
use super::{CompareRule, Decision, percent::percent};
use commgauge_base::stats::{RankSums, sorted};
use std::collections::BTreeMap;

/// What runs are by themselves, over all rows.
#[derive(Default)]
pub(super) struct Alone {
    /// Of each run that is worse than others: rows that it fails, and rows that it keeps from passing.
    rows_of: BTreeMap<usize, [usize; 2]>,
}

impl Alone {
    /// Lowers the decision of a row to that of its worst run, and names the runs that are worse than others of the row: a record rather
    /// than its logs. `found` are the place, decision and reason of each of its runs.
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
    pub fn troubles<'a>(&'a self, runs: &'a [Run], rows: usize) -> impl Iterator<Item = Trouble> + 'a {
        self.rows_of.iter().map(move |(run, [failed, open])| {
            let name = runs.get(*run).map_or("one run", |run| run.name.as_str());
            let (exit_code, what) = match (failed, open) {
                (0, open) => (3, format!("does not pass in {open}")),
                (failed, 0) => (1, format!("fails in {failed}")),
                (failed, open) => (1, format!("fails in {failed} and does not pass in {open} more")),
            };
            let text = format!(
                "{name} alone {what} of {rows} rows, where other runs do better: good runs do not make up for a bad one"
            );
            Trouble { exit_code, text }
        })
    }
}

/// The rows of each new run by itself against the base, with the place of the row; none where there is one new run.
pub(super) fn sides(rows: &[ComparedRow]) -> Vec<(usize, Sides)> {
    let logarithms = |times: &[f64]| times.iter().map(|time| time.ln()).collect::<Vec<f64>>();
    let of_row = |(index, ComparedRow { new, base }): (usize, &ComparedRow)| {
        let base = base.map(|base| logarithms(&base.measured())).unwrap_or_default();
        let sides = move |of: OneRun| Sides { base: base.clone(), new: logarithms(&of.seconds), run: Some(of.run) };
        new.by_run().into_iter().map(move |run| (index, sides(run)))
    };
    rows.iter().enumerate().flat_map(of_row).collect()
}

/// What each new run of a row is by itself, given its probabilities where it was tested: slower beyond chance and by what matters; or, with
/// too few replicates to rule out chance, slower by that than everything else that was measured.
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
                format!("slower by at least {} than all else that was measured", percent(gap)),
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

    const ROWS: usize = 4;

    /// A run whose rows of 1, 2, 4 ... MiB take 100, 200, 400 ... us times `slow`, with scatter of its own.
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

    /// All orders of a pool.
    fn orders(pool: &[LoadedRecord]) -> Vec<Vec<LoadedRecord>> {
        if pool.len() < 2 {
            return vec![pool.to_vec()];
        }
        let with_first = (0..pool.len()).flat_map(|first| {
            let others: Vec<LoadedRecord> = [&pool[..first], &pool[first + 1..]].concat();
            orders(&others).into_iter().map(move |rest| [vec![pool[first].clone()], rest].concat()).collect::<Vec<_>>()
        });
        with_first.collect()
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
        verdict.troubles.iter().any(|trouble| trouble.text.starts_with(&format!("{name} alone")))
    }

    #[test]
    fn a_pool_with_a_bad_run_never_passes_in_any_order_and_names_it_and_one_without_passes() {
        // Good and bad runs, and what the pool is in a gate and in a comparison.
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
                    assert_eq!(verdict.exit_code, code, "{what}, {question:?}: {:?}", verdict.troubles);
                    let is_mixed = code != 0 && pool.len() > 1;
                    assert_eq!(named(&verdict, "bad.jsonl"), is_mixed, "{what}, {question:?}: {:?}", verdict.troubles);
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
                assert_eq!(verdict.exit_code, 3, "{:?}: {:?}", verdict.question, verdict.troubles);
                assert!(named(&verdict, &name), "{:?}: {:?}", verdict.question, verdict.troubles);
            }
        }
        assert_eq!(gated(&[logs("logs", None)]).unwrap().exit_code, 0);
        // A record all of whose logs are slow fails as it does alone, and it is the record that is named.
        let mut bad = logs("bad", None);
        for line in &mut bad.record.cases {
            line.samples.slowest_nanoseconds.iter_mut().for_each(|time| *time *= 3);
        }
        for pool in orders(&[logs("a", None), logs("b", None), logs("c", None), bad]) {
            for verdict in [gated(&pool).unwrap(), compare(&[logs("base", None)], &pool, &rule).unwrap()] {
                assert_eq!(verdict.exit_code, 1, "{:?}: {:?}", verdict.question, verdict.troubles);
                let said: Vec<&Trouble> =
                    verdict.troubles.iter().filter(|trouble| trouble.text.contains(" alone ")).collect();
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
                assert_eq!(verdict.exit_code, i32::from(slow > 1.0), "{:?}", verdict.troubles);
                // Against a base of other hosts each cluster is compared by itself.
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
            assert_eq!(verdict.exit_code, 1, "{:?}", verdict.troubles);
            assert!(named(&verdict, "odd.jsonl") && !named(&verdict, "a.jsonl"), "{:?}", verdict.troubles);
        }
        assert_eq!(consistency(&pool[..4], ConsistencyRule::default(), &[]).unwrap().exit_code, 0);
    }
}
