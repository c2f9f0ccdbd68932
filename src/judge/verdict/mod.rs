//! From records to verdicts: does a machine meet its expectations, and is it slower than before?
//!
//! Statistics are over the medians of replicates, never over their iterations, which share communicators, placement and the
//! state of the machine. Missing, unverified, synthetic or unreliable data never pass. Rendering is in `report`.

mod comparability;
mod compare;
mod consistency;
mod counters;
mod curve_noise;
mod document;
mod evidence;
mod expected;
mod gate;
pub mod history;
mod learn;
mod learned_file;
pub mod locate;
mod network;
mod next_run;
mod permutation;
mod rules;
pub mod selftest;
mod transport;

#[cfg(test)]
mod cheat_tests;
#[cfg(test)]
mod compare_tests;
#[cfg(any(test, feature = "test-support"))]
#[path = "../../../tests/common/judged_records.rs"]
pub mod testing;

pub use comparability::{Allowed, CompareRule, Difference, LoadedRecord, differences, ensure_comparable};
pub use compare::compare;
pub use consistency::{Consistency, ConsistencyRule, Timed, consistency};
pub use document::{
    AgainstBase, AgainstLimit, Coverage, CurveChange, CurvePart, Decision, FORMAT, FalseAlarms, Finding, Guideline,
    Metric, Problem, Question, Row, RowCall, RowSubject, Run, Subject, VERSION, Verdict, most_severe,
};
pub use evidence::TransientSlowdown;
pub use gate::{GateRule, gate, gate_new_machine, is_cleared, located_code};
pub use learn::learn;
pub use learned_file::{LearnRule, Learned};
pub use network::{PlanOutlook, PlannedWork, plan_outlook};
pub use next_run::{NextRun, judged_suite, next_run};
pub use selftest::{Counted, History, Noise, OwnRecords, SelfTest, SelfTestRule, Trial, TrialKind, selftest};
pub use transport::contrasts;

#[cfg(test)]
mod damage_tests {
    // Damaged files never pass: missing, truncated, duplicated or moved lines, and flipped bytes.
    use super::testing::{lines, loaded, machine, written};
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use std::path::Path;

    const RULE: GateRule = GateRule { confidence: 0.95, allowed: Vec::new() };

    fn good() -> String {
        written(&lines(
            "a",
            &[vec![100.0, 101.0, 99.0, 100.5, 99.5, 100.2], vec![200.0, 202.0, 199.0, 201.0, 198.0, 200.0]],
        ))
    }

    /// The exit code of a gate on these bytes.
    fn code(folder: &Path, bytes: &[u8]) -> i32 {
        let path = folder.join("r.jsonl");
        std::fs::write(&path, bytes).unwrap();
        let verdict = LoadedRecord::read(&path).and_then(|loaded| gate(&[loaded], Some(&machine("10GB/s")), &RULE));
        verdict.map_or_else(|error| error.exit_code(), |verdict| verdict.exit_code)
    }

    /// A name, and a way to damage the line at an index.
    type Harm = (&'static str, fn(&mut Vec<String>, usize));

    const HARMS: [Harm; 5] = [
        ("deleted", |lines, at| {
            lines.remove(at);
        }),
        ("cut in half", |lines, at| {
            let half = lines[at].len() / 2;
            lines[at].truncate(half);
        }),
        ("cut by its last character", |lines, at| {
            lines[at].pop();
        }),
        ("doubled", |lines, at| lines.insert(at, lines[at].clone())),
        ("swapped with the next", |lines, at| {
            let next = (at + 1) % lines.len();
            lines.swap(at, next);
        }),
    ];

    #[test]
    fn a_record_with_any_line_deleted_cut_doubled_or_swapped_never_passes() {
        let folder = tempfile::tempdir().unwrap();
        let whole = good();
        assert_eq!(code(folder.path(), whole.as_bytes()), 0, "whole, it passes");
        let sample = include_str!("../../../tests/data/sample-record.jsonl");
        for (name, text) in [("good", whole.as_str()), ("sample", sample)] {
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            for at in 0..lines.len() {
                for (what, harm) in HARMS {
                    let mut harmed = lines.clone();
                    harm(&mut harmed, at);
                    let code = code(folder.path(), (harmed.join("\n") + "\n").as_bytes());
                    assert_ne!(code, 0, "{name}, line {} {what}", at + 1);
                }
            }
        }
    }

    #[test]
    fn a_record_with_any_of_500_bytes_flipped_never_passes() {
        let folder = tempfile::tempdir().unwrap();
        let whole = good().into_bytes();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(20_261_121);
        for _ in 0..500 {
            let (at, bit) = (random.random_range(0..whole.len()), random.random_range(0..8u32));
            let mut harmed = whole.clone();
            harmed[at] ^= 1 << bit;
            let around =
                String::from_utf8_lossy(&whole[at.saturating_sub(20)..(at + 20).min(whole.len())]).into_owned();
            assert_ne!(code(folder.path(), &harmed), 0, "bit {bit} of byte {at}, in `{around}`");
        }
    }

    #[test]
    fn a_number_that_was_edited_by_hand_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let (path, whole) = (folder.path().join("r.jsonl"), good());
        let without_digest = |line: &str| line.rsplit_once(",\"sha256\"").unwrap().0.to_owned() + "}\n";
        let last = whole.lines().count();
        for (text, words, code) in [
            (whole.replacen("[100000,", "[100001,", 1), "the digest of line 4 does not fit".to_owned(), 7),
            (without_digest(&whole), format!("the digest of line {last} does not fit"), 7),
            (whole.lines().map(without_digest).collect(), "the record has no digest".to_owned(), 3),
        ] {
            assert_ne!(text, whole);
            std::fs::write(&path, text).unwrap();
            let verdict = gate(&[LoadedRecord::read(&path).unwrap()], Some(&machine("10GB/s")), &RULE).unwrap();
            assert_eq!(verdict.exit_code, code);
            assert!(verdict.problems[0].text.contains(&words), "{:?}", verdict.problems);
        }
    }

    #[test]
    fn lines_that_were_never_a_file_need_no_digest() {
        let record = loaded("r.jsonl", lines("a", &[vec![100.0; 6]]));
        assert_eq!(gate(&[record], Some(&machine("10GB/s")), &RULE).unwrap().exit_code, 0);
    }
}

#[cfg(test)]
mod monotonicity_tests {
    // One more failure or a longer time never improves a verdict: neither its exit code nor the decision of any row.
    use super::testing::{lines, loaded, machine};
    use super::verdict_tests::{HARMS, good};
    use super::*;
    use commgauge_base::units::Seconds;
    use commgauge_model::config::Limit;
    use commgauge_model::config::machine::Rows;
    use commgauge_model::record::Line;
    use proptest::prelude::*;

    const RULE: CompareRule = CompareRule { false_alarm_level: 0.05, relevant_slowdown: 0.03, allowed: Vec::new() };

    /// Severity of an exit code. Refused runs count as the most severe.
    fn gravity(code: i32) -> usize {
        [0, 3, 1, 7, 6, 5, 4].iter().position(|known| *known == code).unwrap_or(7)
    }

    /// The verdict's exit code, or that of the refusal.
    fn code(base: &[Line], new: &[Line]) -> i32 {
        let verdict = compare(&[loaded("a.jsonl", base.to_vec())], &[loaded("b.jsonl", new.to_vec())], &RULE);
        verdict.map_or_else(|error| error.exit_code(), |verdict| verdict.exit_code)
    }

    /// Every time of a row, longer by a factor.
    fn slower(lines: &mut [Line], row: u32, factor: f64) {
        for line in lines {
            if let Line::Case(case) = line
                && case.case == row
            {
                case.samples.slowest_nanoseconds.iter_mut().for_each(|time| *time = (*time as f64 * factor) as u64);
            }
        }
    }

    #[test]
    fn a_failure_on_either_side_never_makes_a_comparison_better() {
        let (base, alike) = (lines("a", &good()), lines("b", &good()));
        let mut slow = alike.clone();
        slower(&mut slow, 0, 1.2);
        slower(&mut slow, 1, 1.2);
        assert_eq!((code(&base, &alike), code(&base, &slow)), (0, 1));
        for new in [alike, slow] {
            let before = gravity(code(&base, &new));
            for (first, _, harm) in HARMS {
                let (mut base_once, mut new_once) = (base.clone(), new.clone());
                harm(&mut base_once);
                harm(&mut new_once);
                assert!(gravity(code(&base_once, &new)) >= before, "{first}, in the base");
                let once = gravity(code(&base, &new_once));
                assert!(once >= before, "{first}, in the new run");
                for (second, _, harm) in HARMS {
                    // A run ends once.
                    if first.starts_with("the run") && second.starts_with("the run") {
                        continue;
                    }
                    let mut twice = new_once.clone();
                    harm(&mut twice);
                    assert!(gravity(code(&base, &twice)) >= once, "{first}, then {second}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_run_that_is_slower_still_never_compares_better(
            noise in prop::collection::vec(0.98f64..1.02, 24), first in 1.0f64..1.3, row in 0u32..2, more in 1.0f64..3.0,
        ) {
            let times = |from: usize| -> Vec<Vec<f64>> {
                (0..2).map(|row| noise[from + row * 6..][..6].iter().map(|share| 1000.0 * share).collect()).collect()
            };
            let (base, mut new) = (lines("a", &times(0)), lines("b", &times(12)));
            slower(&mut new, 0, first);
            let before = code(&base, &new);
            slower(&mut new, row, more);
            prop_assert!(gravity(code(&base, &new)) >= gravity(before), "{} before, {}", before, code(&base, &new));
        }

        #[test]
        fn a_slower_replicate_never_improves_a_row_against_its_threshold_and_few_replicates_never_pass(
            times in prop::collection::vec(20.0f64..2000.0, 1..9), at in 0usize..8, more in 1.0f64..50.0, ceiling in any::<bool>(),
        ) {
            let mut machine = machine("15GB/s");
            if ceiling {
                machine.expectations[0].limit = Limit::LatencyCeiling(Seconds(100e-6));
            }
            let decided = |times: &[f64]| {
                let record = loaded("a.jsonl", lines("a", &[times.to_vec()]));
                let verdict = gate(&[record], Some(&machine), &GateRule { confidence: 0.95, allowed: Vec::new() });
                verdict.unwrap().rows[0].decision.expect("the row has a threshold")
            };
            let before = decided(&times);
            prop_assert!(before != Decision::Pass || times.len() >= 5, "{:?} pass", times);
            let mut worse = times.clone();
            worse[at % times.len()] *= more;
            prop_assert!(decided(&worse) >= before, "{:?}: {:?}, {:?}: {:?}", times, before, worse, decided(&worse));
        }

        #[test]
        fn a_slower_replicate_of_any_row_never_improves_a_rule_over_several_rows(
            times in prop::collection::vec(20.0f64..2000.0, 3..21), at in 0usize..21, more in 1.0f64..50.0,
            least in 0u32..4, ceiling in any::<bool>(),
        ) {
            let mut machine = machine("15GB/s");
            let expected = &mut machine.expectations[0];
            expected.table.rows = Some(if least == 0 { Rows::Mean } else { Rows::AtLeast(least) });
            if ceiling && least > 0 {
                expected.limit = Limit::LatencyCeiling(Seconds(100e-6));
            }
            let judged = |times: &[f64]| {
                let rows: Vec<Vec<f64>> = times.chunks(times.len() / 3).take(3).map(<[f64]>::to_vec).collect();
                let rule = GateRule { confidence: 0.95, allowed: Vec::new() };
                let verdict = gate(&[loaded("a.jsonl", lines("a", &rows))], Some(&machine), &rule).unwrap();
                (verdict.rows.last().and_then(|row| row.decision).expect("the rule decides"), gravity(verdict.exit_code))
            };
            let before = judged(&times);
            prop_assert!(before.0 != Decision::Pass || times.len() >= 15, "{:?} pass", times);
            let mut worse = times.clone();
            worse[at % times.len()] *= more;
            let after = judged(&worse);
            prop_assert!(after.0 >= before.0 && after.1 >= before.1, "{:?}: {:?}, {:?}: {:?}", times, before, worse, after);
        }
    }
}

#[cfg(test)]
mod own_work_tests {
    // Copies and matrix products are judged like calls: by a machine file, against a base, and as the source of a learned machine file.
    use super::testing::{copy_lines, lines, loaded, machine, product_lines, with_own_work};
    use super::*;
    use commgauge_model::config::Machine;
    use commgauge_model::record::Line;
    use commgauge_model::record::line::Outcome;
    use std::path::Path;

    const GATE: GateRule = GateRule { confidence: 0.95, allowed: Vec::new() };
    const COMPARE: CompareRule = CompareRule { false_alarm_level: 0.05, relevant_slowdown: 0.03, allowed: Vec::new() };

    fn times(middle: f64) -> Vec<f64> {
        (0..6).map(|replicate| middle * (1.0 + 0.002 * f64::from(replicate))).collect()
    }

    /// A call, a copy and a product, with the time of the last two in milliseconds.
    fn run(id: &str, copy: f64, product: f64) -> Vec<Line> {
        let own_work = [copy_lines(&times(copy)), product_lines(&times(product))].concat();
        with_own_work(lines(id, &[times(100.0)]), own_work)
    }

    /// A machine on which that copy must reach 45 GB/s and that product 90 GFLOP/s, with a minimum number of judged thresholds.
    fn judging(fewest: u32) -> Machine {
        let mut machine = machine("1GB/s");
        let text = "name = 'm'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '400GB/s'\n[between_nodes]\n\
        latency = '5us'\nadapters_per_node = 2\nrate_per_adapter = '400GB/s'\n\
        [[expect_copy]]\nkind = 'host-to-device'\nbytes = ['500000000', '2000000000']\nvalue = '50GB/s'\ntolerance = 0.1\nsource = 's'\n\
        date = '2026'\n[[expect_product]]\nm = 1000\nn = 1000\nk = 1000\ntflops = 0.1\ntolerance = 0.1\nsource = 's'\ndate = '2026'\n\
        [[expect_copy]]\nkind = 'to-peer'\nbytes = '1000000000'\nvalue = '50GB/s'\nsource = 's'\ndate = '2026'\n";
        machine.own_work = Machine::parse(text, Path::new("m.toml")).expect("it is right").own_work;
        machine.required_coverage.as_mut().expect("it has one").expectations = fewest;
        machine
    }

    fn gated(lines: Vec<Line>, fewest: u32) -> Verdict {
        gate(&[loaded("r.jsonl", lines)], Some(&judging(fewest)), &GATE).expect("one record")
    }

    fn row<'a>(verdict: &'a Verdict, name: &str) -> &'a Row {
        verdict.rows.iter().find(|row| row.name.starts_with(name)).expect("the row")
    }

    #[test]
    fn a_slow_copy_or_product_fails_and_is_named_with_its_rate_and_limit() {
        // A gigabyte in 20 ms is 50 GB/s, two billion operations in 20 ms are 100 GFLOP/s.
        for (copy, product, code, failed) in
            [(20.0, 20.0, 0, None), (25.0, 20.0, 1, Some("copy/")), (20.0, 25.0, 1, Some("product/"))]
        {
            let verdict = gated(run("a", copy, product), 3);
            assert_eq!(verdict.exit_code, code, "{copy} {product}: {:?}", verdict.problems);
            assert_eq!((verdict.coverage.rows_judged, verdict.coverage.rows), (3, 3));
            assert_eq!((verdict.coverage.expectations, verdict.coverage.expectations_judged), (4, 3));
            for row in &verdict.rows {
                let fails = failed.is_some_and(|failed| row.name.starts_with(failed));
                assert_eq!(row.decision, Some(if fails { Decision::Fail } else { Decision::Pass }), "{}", row.name);
            }
            let against =
                row(&verdict, "copy/host-to-device/pinned/1000000000/alone").against_limit.clone().expect("a limit");
            assert_eq!((against.metric, against.limit.round()), (Metric::CopyBytesPerSecond, 45e9));
            assert!((against.median.expect("measured") / (1e12 / (copy * 1.005)) - 1.0).abs() < 1e-3, "{against:?}");
            let against = row(&verdict, "product/float32/1000x1000x1000").against_limit.clone().expect("a limit");
            assert_eq!((against.metric, against.limit.round()), (Metric::FlopsPerSecond, 9e10));
        }
        let few = gated(run("a", 20.0, 20.0), 4);
        assert_eq!(few.exit_code, 3, "a copy to a peer was not measured: {:?}", few.problems);
    }

    #[test]
    fn what_is_wrong_missing_skipped_or_too_few_never_passes() {
        type Harm = (&'static str, i32, fn(&mut Vec<Line>));
        let harms: [Harm; 6] = [
            ("wrong", 4, |lines| {
                outcome(lines, |_| {
                    let (when, expected, got) = ("after".to_owned(), "1".to_owned(), "2".to_owned());
                    Outcome::Corrupt { when, rank: 1, element: 2, expected, got, count: 1, call: None }
                })
            }),
            ("failed", 6, |lines| outcome(lines, |_| Outcome::Failed { reason: "no memory".to_owned() })),
            ("one missing", 7, |lines| {
                let at = lines.iter().position(|line| matches!(line, Line::Copy(_))).expect("a copy");
                lines.remove(at);
            }),
            ("all missing", 7, |lines| lines.retain(|line| !matches!(line, Line::Copy(_)))),
            ("skipped", 3, |lines| outcome(lines, |_| Outcome::Skipped { reason: "no peer".to_owned() })),
            ("not verified", 3, |lines| outcome(lines, |_| Outcome::Measured { verified: false })),
        ];
        for (name, code, harm) in harms {
            let mut lines = run("a", 20.0, 20.0);
            harm(&mut lines);
            let verdict = gated(lines, 1);
            assert_eq!(verdict.exit_code, code, "{name}: {:?} {:?}", verdict.problems, verdict.rows);
        }
        let few = with_own_work(lines("a", &[times(100.0)[..3].to_vec()]), copy_lines(&[20.0; 3]));
        assert_eq!(gated(few, 1).exit_code, 3);
        let alone = with_own_work(lines("a", &[]), Vec::new());
        assert_eq!(gated(alone, 1).exit_code, 7, "a record that plans nothing");
    }

    #[test]
    fn a_run_of_copies_alone_passes_or_fails_without_suspects() {
        for (time, code) in [(20.0, 0), (25.0, 1)] {
            let mut lines = with_own_work(lines("a", &[]), copy_lines(&times(time)));
            let Some(Line::Header(header)) = lines.first_mut() else { panic!("no header") };
            header.settings.replicates = 6;
            let record = loaded("r.jsonl", lines);
            let suspects =
                super::locate::locate(std::slice::from_ref(&record), &super::locate::LocateOptions::default());
            let suspects = suspects.expect("there is nothing to search");
            assert!(suspects.suspects.is_empty() && !suspects.examined.can_name_a_node(), "{suspects:?}");
            let verdict = gate(&[record], Some(&judging(1)), &GATE).expect("one record");
            assert_eq!(verdict.exit_code, code, "{:?}", verdict.problems);
        }
    }

    /// Changes the outcome of every copy.
    fn outcome(lines: &mut [Line], change: fn(&Outcome) -> Outcome) {
        for line in lines {
            if let Line::Copy(copy) = line {
                copy.outcome = change(&copy.outcome);
            }
        }
    }

    #[test]
    fn a_copy_or_product_that_became_slower_fails_against_the_base() {
        let base = loaded("base.jsonl", run("a", 20.0, 20.0));
        for (copy, product, failed) in
            [(20.01, 20.01, vec![]), (22.0, 20.01, vec!["copy/"]), (22.0, 22.0, vec!["copy/", "product/"])]
        {
            let new = loaded("new.jsonl", run("b", copy, product));
            let verdict = compare(std::slice::from_ref(&base), &[new], &COMPARE).expect("they are alike");
            assert_eq!(verdict.exit_code, i32::from(!failed.is_empty()), "{copy} {product}: {:?}", verdict.rows);
            for row in &verdict.rows {
                let fails = failed.iter().any(|failed| row.name.starts_with(failed));
                assert_eq!(row.decision, Some(if fails { Decision::Fail } else { Decision::Pass }), "{}", row.name);
            }
        }
    }

    #[test]
    fn what_healthy_runs_copied_and_computed_becomes_expected() {
        let runs = || ["a", "b", "c"].map(|id| loaded(&format!("{id}.jsonl"), run(id, 20.0, 20.0)));
        let rule = LearnRule { name: "ours".to_owned(), least_tolerance: 0.02, in_network: false, allowed: Vec::new() };
        let learned = learn(&runs(), &machine("1GB/s"), &rule).expect("healthy");
        let machine = Machine::parse(&learned.text, Path::new("ours.toml")).expect("it reads");
        assert_eq!((learned.expectations, machine.own_work.len(), machine.thresholds()), (3, 2, 3), "{}", learned.text);
        // The middle of six replicates, each 0.2 % slower than the one before.
        for (expected, rate) in machine.own_work.iter().zip([50e9, 100e9]) {
            let figure = expected.figure_per_second();
            assert!((figure / (rate / 1.005) - 1.0).abs() < 1e-3, "{figure} {rate}");
        }
        let verdict = |lines| gate(&[loaded("r.jsonl", lines)], Some(&machine), &GATE).expect("one record").exit_code;
        assert_eq!((verdict(run("d", 20.0, 20.0)), verdict(run("d", 30.0, 20.0))), (0, 1));
    }

    #[test]
    fn a_template_has_copies_and_products_and_cannot_be_used_unfilled() {
        let records = [loaded("r.jsonl", run("a", 20.0, 20.0))];
        let template = gate(&records, None, &GATE).expect("one record").template.expect("no row has an expectation");
        for words in [
            "[[expect_copy]]\nkind = \"host-to-device\"\nbytes = \"1000000000B\"\nhost_memory = \"pinned\"\neach = \"alone\"\n",
            "[[expect_product]]\nm = 1000\nn = 1000\nk = 1000\nelement_type = \"float32\"\ntflops = \"\" # ",
        ] {
            assert!(template.contains(words), "{words}: {template}");
        }
    }
}

#[cfg(test)]
mod verdict_tests {
    // Guarantees of a gate: missing, unverified, synthetic or unreliable data never pass, and no failure improves a verdict.
    use super::testing::{lines, loaded, machine, product_lines, with_own_work};
    use super::*;
    use commgauge_base::sample::ExclusionReason;
    use commgauge_model::config::Machine;
    use commgauge_model::config::machine::Rows;
    use commgauge_model::record::Line;
    use commgauge_model::record::line::{CaseLine, ClockMethod, EndStatus, Outcome};
    use std::path::Path;

    const RULE: GateRule = GateRule { confidence: 0.95, allowed: Vec::new() };

    /// 1 MiB in 100 us on 4 ranks is a bus bandwidth of 15.7 GB/s; six replicates around it.
    pub(super) fn good() -> Vec<Vec<f64>> {
        vec![vec![100.0, 101.0, 99.0, 100.5, 99.5, 100.2], vec![200.0, 202.0, 199.0, 201.0, 198.0, 200.0]]
    }

    fn gated(lines: Vec<Line>, machine: &Machine) -> Verdict {
        gate(&[loaded("r.jsonl", lines)], Some(machine), &RULE).unwrap()
    }

    fn cases(lines: &mut [Line]) -> impl Iterator<Item = &mut CaseLine> {
        lines.iter_mut().filter_map(|line| match line {
            Line::Case(case) => Some(&mut **case),
            _ => None,
        })
    }

    /// A name, the expected exit code, and a change to a valid record.
    pub(super) type Harm = (&'static str, i32, fn(&mut Vec<Line>));

    pub(super) const HARMS: [Harm; 15] = [
        ("wrong data in a replicate", 4, |lines| {
            let (when, expected, got) = ("after".to_owned(), "1".to_owned(), "2".to_owned());
            let corrupt = Outcome::Corrupt { when, rank: 1, element: 2, expected, got, count: 1, call: None };
            cases(lines).next().unwrap().outcome = corrupt;
        }),
        ("a replicate failed", 6, |lines| {
            cases(lines).nth(3).unwrap().outcome = Outcome::Failed { reason: "out of memory".to_owned() };
        }),
        ("a replicate was skipped", 7, |lines| {
            cases(lines).nth(4).unwrap().outcome = Outcome::Skipped { reason: "no device".to_owned() };
        }),
        ("a replicate was not verified", 3, |lines| {
            cases(lines).nth(5).unwrap().outcome = Outcome::Measured { verified: false };
        }),
        ("a replicate is unreliable", 3, |lines| {
            cases(lines).next().unwrap().warnings.push("times were still falling".to_owned());
        }),
        ("a third of a replicate's samples are excluded", 3, |lines| {
            cases(lines).nth(1).unwrap().samples.excluded.push((0, ExclusionReason::MissedStart));
        }),
        ("no sample of a replicate is valid", 3, |lines| {
            let samples = &mut cases(lines).nth(2).unwrap().samples;
            let all = 0..samples.slowest_nanoseconds.len() as u32;
            samples.excluded = all.map(|index| (index, ExclusionReason::MissedStart)).collect();
        }),
        ("a replicate took no time", 7, |lines| {
            cases(lines).next().unwrap().samples.slowest_nanoseconds.fill(0);
        }),
        ("a replicate has no samples", 7, |lines| {
            let samples = &mut cases(lines).next().unwrap().samples;
            (samples.slowest_nanoseconds, samples.slowest_rank) = (Vec::new(), Vec::new());
        }),
        ("the machine is unreliable", 3, |lines| {
            let Line::Header(header) = &mut lines[0] else { unreachable!() };
            header.warnings.push("more ranks than processors".to_owned());
        }),
        ("nothing was moved", 3, |lines| {
            let Line::Header(header) = &mut lines[0] else { unreachable!() };
            header.backend.synthetic = true;
        }),
        ("another machine", 3, |lines| {
            let Line::Header(header) = &mut lines[0] else { unreachable!() };
            header.backend.machine = Some("suites/machines/other.toml".to_owned());
        }),
        ("the run was interrupted", 7, |lines| {
            let Some(Line::End(end)) = lines.last_mut() else { unreachable!() };
            (end.status, end.exit_code) = (EndStatus::Interrupted, 130);
        }),
        ("the run hung", 5, |lines| {
            let Some(Line::End(end)) = lines.last_mut() else { unreachable!() };
            (end.status, end.exit_code) = (EndStatus::Failed, 5);
        }),
        ("requested replicates are missing", 7, |lines| {
            let Line::Header(header) = &mut lines[0] else { unreachable!() };
            header.settings.replicates = 7;
        }),
    ];

    #[test]
    fn a_run_over_nodes_never_passes_without_the_network_and_says_how_much_of_it_was_judged() {
        // Two adapters of 9 GB/s, 0.9 of which is expected with a tolerance of 0.1: 14.6 GB/s, and the rows have 15.7.
        let links = "name = 'm'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '400GB/s'\n[between_nodes]\nlatency = '5us'\n\
                 adapters_per_node = 2\nrate_per_adapter = '9GB/s'\n[applies_to]\nbackend = 'mpi'\n[coverage]\nexpectations = 1\n";
        let network = "[[expect_network]]\ncollectives = ['all_reduce']\nbytes = ['1MiB', '1GiB']\nshare = 0.9\ntolerance = 0.1\n\
                   source = 's'\ndate = '2026'\n";
        let product = "[[expect_product]]\nm = 1000\nn = 1000\nk = 1000\ntflops = 1\nsource = 's'\ndate = '2026'\n";
        let unknown = "no row of 1 MiB or more between the 2 nodes was judged, so the network is unknown";
        for (rows, slower, exit_code, between, words) in [
            (network.to_owned(), 1.0, 0, 2, ""),
            (network.to_owned(), 2.0, 1, 2, ""),
            (product.to_owned(), 1.0, 3, 0, "the file has no expectation between nodes; [[expect_network]] adds one"),
            (
                network.replace("all_reduce", "all_gather") + product,
                1.0,
                3,
                0,
                "its expectations there were not measured",
            ),
            (network.replace("['1MiB', '1GiB']", "'1KiB'") + product, 1.0, 3, 0, unknown),
        ] {
            let machine = Machine::parse(&format!("{links}{rows}"), Path::new("m.toml")).unwrap();
            let times: Vec<Vec<f64>> =
                good().iter().map(|row| row.iter().map(|time| time * slower).collect()).collect();
            let products = product_lines(&[1.0, 1.01, 0.99, 1.005, 0.995, 1.002]);
            let verdict = gated(with_own_work(lines("a", &times), products), &machine);
            let coverage = (verdict.coverage.nodes, verdict.coverage.rows_judged_between_nodes);
            assert_eq!((verdict.exit_code, coverage), (exit_code, (2, between)), "{rows}: {:?}", verdict.problems);
            assert!(words.is_empty() || verdict.problems.iter().any(|problem| problem.text.contains(words)), "{rows}");
        }
    }

    #[test]
    fn a_file_whose_library_no_backend_runs_judges_imported_logs_only_and_says_so() {
        let mut rccl = machine("1GB/s");
        if let Some(runs) = &mut rccl.judged_runs {
            runs.imported_only = true;
        }
        let verdict = gated(lines("a", &good()), &rccl);
        let said =
            verdict.problems.iter().any(|problem| problem.text.contains("only logs of rccl-tests can be judged"));
        assert!(verdict.exit_code == 3 && said, "{:?}", verdict.problems);
    }

    #[test]
    fn figures_of_threads_in_one_process_judge_nothing_that_ran_as_processes() {
        let mut threads = machine("1GB/s");
        assert_eq!(gated(lines("a", &good()), &threads).coverage.rows_judged, 2);
        threads.expectations[0].table.one_process = true;
        let verdict = gated(lines("a", &good()), &threads);
        assert_eq!((verdict.exit_code, verdict.coverage.rows_judged), (3, 0));
    }

    #[test]
    fn a_damaged_record_never_passes_and_gives_its_exit_code() {
        for (what, code, harm) in HARMS {
            let mut harmed = lines("a", &good());
            harm(&mut harmed);
            let verdict = gated(harmed, &machine("10GB/s"));
            assert_eq!(verdict.exit_code, code, "{what}: {:?}", verdict.problems);
            assert!(verdict.decision != Decision::Pass, "{what}");
            let has_reason = verdict.rows.iter().any(|row| !row.reasons.is_empty()) || !verdict.problems.is_empty();
            assert!(has_reason, "{what}: no reason given");
        }
    }

    #[test]
    fn adding_a_failure_never_makes_a_verdict_better() {
        let place = |code: i32| [0, 3, 1, 7, 6, 5, 4].iter().position(|known| *known == code).unwrap();
        for (floor, rows) in [
            ("10GB/s", None),
            ("15.7GB/s", None),
            ("100GB/s", None),
            ("15.7GB/s", Some(Rows::Mean)),
            ("10GB/s", Some(Rows::AtLeast(1))),
            ("100GB/s", Some(Rows::AtLeast(2))),
        ] {
            let machine = |floor| {
                let mut machine = machine(floor);
                machine.expectations[0].table.rows = rows;
                machine
            };
            for (first, _, harm) in HARMS {
                let mut once = lines("a", &good());
                harm(&mut once);
                let before = gated(lines("a", &good()), &machine(floor));
                let after = gated(once.clone(), &machine(floor));
                let loses_numbers = after.exit_code == 3 && before.exit_code == 1;
                assert!(place(after.exit_code) >= place(before.exit_code) && !loses_numbers, "{floor}, {first}");
                for (second, _, harm) in HARMS {
                    // A run ends once.
                    if first.starts_with("the run") && second.starts_with("the run") {
                        continue;
                    }
                    let mut twice = once.clone();
                    harm(&mut twice);
                    let both = gated(twice, &machine(floor));
                    assert!(place(both.exit_code) >= place(after.exit_code), "{floor}, {first}, then {second}");
                }
            }
        }
    }

    #[test]
    fn isolated_rows_without_a_common_clock_do_not_pass() {
        let mut lines = lines("a", &good());
        for line in &mut lines {
            match line {
                Line::Plan(plan) => {
                    plan.cases.iter_mut().for_each(|case| case.cadence = commgauge_base::sample::Cadence::Isolated)
                }
                Line::Clock(clock) => clock.method = ClockMethod::Barrier,
                _ => {}
            }
        }
        let mut machine = machine("10GB/s");
        machine.expectations[0].table.cadence = commgauge_base::sample::Cadence::Isolated;
        assert_eq!(gated(lines, &machine).exit_code, 3);
    }

    #[test]
    fn a_row_passes_fails_or_needs_more_replicates() {
        let row = vec![100.0, 101.0, 99.0, 100.5, 99.5, 100.2];
        for (times, floor, decision, more) in [
            (row.clone(), "15GB/s", Decision::Pass, None),
            (row.clone(), "16GB/s", Decision::Fail, None),
            // Four of six reach 15.65 GB/s.
            (row.clone(), "15.65GB/s", Decision::Inconclusive, Some(19)),
            (row[..3].to_vec(), "1GB/s", Decision::Inconclusive, Some(2)),
            (row[..3].to_vec(), "20GB/s", Decision::Inconclusive, Some(2)),
            // 15.7 GB/s is beyond 24 GB/s by more than a factor of 1.5.
            (row[..3].to_vec(), "24GB/s", Decision::Fail, None),
            (row[..1].to_vec(), "100GB/s", Decision::Fail, None),
            (row[..1].to_vec(), "1GB/s", Decision::Inconclusive, Some(4)),
        ] {
            let verdict = gated(lines("a", std::slice::from_ref(&times)), &machine(floor));
            assert_eq!(verdict.rows[0].decision, Some(decision), "{floor}");
            if decision == Decision::Inconclusive {
                assert!(verdict.rows[0].replicates_more.is_some(), "{floor}");
            }
            if times.len() <= 3 {
                assert_eq!(verdict.rows[0].replicates_more, more, "{floor}");
            }
            let against = verdict.rows[0].against_limit.as_ref().unwrap();
            assert_eq!(against.lower_bound.is_some(), times.len() >= 5, "{floor}");
        }
    }

    #[test]
    fn a_machine_that_expects_nothing_is_inconclusive_with_rows_to_fill_in() {
        let mut other = machine("1GB/s");
        other.expectations[0].group.ranks = 8;
        let mut silent = machine("1GB/s");
        silent.expectations.clear();
        for (machine, words) in [
            (None, "no machine file"),
            (Some(&silent), "m.toml has no [[expect]]"),
            (Some(&other), "has no expectation for any row of the record (1 expectation for other rows)"),
        ] {
            let verdict = gate(&[loaded("r.jsonl", lines("a", &good()))], machine, &RULE).unwrap();
            assert_eq!((verdict.exit_code, verdict.coverage.rows_judged), (3, 0));
            assert!(verdict.problems[0].text.contains(words), "{:?}", verdict.problems);
            let template = verdict.template.unwrap();
            let head = "name = 'm'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '400GB/s'\n[between_nodes]\n\
                    latency = '5us'\nadapters_per_node = 2\nrate_per_adapter = '400GB/s'\n[applies_to]\nbackend = 'mpi'\n[coverage]\nexpectations = 1\n";
            let unfilled = Machine::parse(&format!("{head}{template}"), Path::new("m.toml")).unwrap_err();
            assert!(unfilled.to_string().contains("expect[0].value: found the text \"\""), "{unfilled}");
            let filled = template
                .replace("value = \"\"", "value = \"10GB/s\"")
                .replace("source = \"\"", "source = \"s\"")
                .replace("date = \"\"", "date = \"2026\"");
            let machine = Machine::parse(&format!("{head}{filled}"), Path::new("m.toml")).unwrap();
            assert_eq!(gated(lines("a", &good()), &machine).exit_code, 0, "once filled in, it gates every row");
        }
    }

    #[test]
    fn one_more_expectation_never_makes_a_row_better() {
        let mut machine = machine("10GB/s");
        let mut stricter = machine.expectations[0].clone();
        stricter.limit = commgauge_model::config::Limit::LatencyCeiling(commgauge_base::units::Seconds(50e-6));
        for at in [0, 1] {
            machine.expectations.insert(at, stricter.clone());
            let verdict = gated(lines("a", &good()), &machine);
            assert_eq!(verdict.exit_code, 1);
            assert_eq!(verdict.rows[0].against_limit.as_ref().unwrap().metric, Metric::LatencySeconds);
            machine.expectations.remove(at);
        }
    }

    #[test]
    fn several_runs_are_replicates_of_each_other_if_they_are_alike() {
        let three = |id: &str| {
            let rows: Vec<Vec<f64>> = good().iter().map(|times| times[..3].to_vec()).collect();
            loaded(&format!("{id}.jsonl"), lines(id, &rows))
        };
        let machine = machine("10GB/s");
        let verdict = gate(&[three("a"), three("b")], Some(&machine), &RULE).unwrap();
        assert_eq!((verdict.exit_code, verdict.rows[0].replicates), (0, 6));
        let twice = gate(&[three("a"), three("a")], Some(&machine), &RULE).unwrap_err();
        assert!(twice.exit_code() == 2 && twice.to_string().contains("are the same run (a)"), "{twice}");
        let mut other = three("b");
        other.record.header.backend.library = "another".to_owned();
        other.record.header.environment.insert("NCCL_ALGO".to_owned(), "Tree".to_owned());
        let unlike = gate(&[three("a"), other.clone()], Some(&machine), &RULE).unwrap_err().to_string();
        assert!(unlike.contains("versions (library): \"Open MPI 4.1.4\" and \"another\""), "{unlike}");
        assert!(unlike.contains("environment (NCCL_ALGO): \"not set\" and \"Tree\""), "{unlike}");
        assert!(unlike.ends_with("use --allow versions,environment"), "{unlike}");
        let rule = GateRule { allowed: vec![Allowed::Versions, Allowed::Environment], ..RULE };
        assert_eq!(gate(&[three("a"), other], Some(&machine), &rule).unwrap().exit_code, 0);
    }
}
