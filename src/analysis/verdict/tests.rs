//! Guarantees of a gate: missing, unverified, synthetic or unreliable data never pass, and no failure improves a verdict.

use super::testing::{lines, loaded, machine, product_lines, with_own_work};
use super::*;
use commgauge_base::sample::ExclusionReason;
use commgauge_model::config::Machine;
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
    ("data arrived wrong in a replicate", 4, |lines| {
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
    ("a third of a replicate's samples do not count", 3, |lines| {
        cases(lines).nth(1).unwrap().samples.excluded.push((0, ExclusionReason::MissedStart));
    }),
    ("no sample of a replicate counts", 3, |lines| {
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
    ("replicates were requested that are not there", 7, |lines| {
        let Line::Header(header) = &mut lines[0] else { unreachable!() };
        header.settings.replicates = 7;
    }),
];

#[test]
fn a_run_over_nodes_never_passes_without_the_network_and_says_how_much_of_it_was_judged() {
    // Two adapters of 9 GB/s, of which 0.9 are reached and 0.1 of that may be missed: 14.6 GB/s, and the rows have 15.7.
    let links = "name = 'm'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '400GB/s'\n[between_nodes]\nlatency = '5us'\n\
                 adapters_per_node = 2\nrate_per_adapter = '9GB/s'\n[applies_to]\nbackend = 'mpi'\n[coverage]\nexpectations = 1\n";
    let network = "[[expect_network]]\ncollectives = ['all_reduce']\nbytes = ['1MiB', '1GiB']\nshare = 0.9\ntolerance = 0.1\n\
                   source = 's'\ndate = '2026'\n";
    let product = "[[expect_product]]\nm = 1000\nn = 1000\nk = 1000\ntflops = 1\nsource = 's'\ndate = '2026'\n";
    let unknown = "nothing between the 2 nodes was judged, so the network is unknown";
    for (rows, slower, exit_code, between, words) in [
        (network.to_owned(), 1.0, 0, 2, ""),
        (network.to_owned(), 2.0, 1, 2, ""),
        (product.to_owned(), 1.0, 3, 0, "the file expects nothing between nodes, which [[expect_network]] in it would"),
        (network.replace("all_reduce", "all_gather") + product, 1.0, 3, 0, "what it expects there was not measured"),
        (network.replace("['1MiB', '1GiB']", "'1KiB'") + product, 1.0, 3, 0, unknown),
    ] {
        let machine = Machine::parse(&format!("{links}{rows}"), Path::new("m.toml")).unwrap();
        let times: Vec<Vec<f64>> = good().iter().map(|row| row.iter().map(|time| time * slower).collect()).collect();
        let products = product_lines(&[1.0, 1.01, 0.99, 1.005, 0.995, 1.002]);
        let verdict = gated(with_own_work(lines("a", &times), products), &machine);
        let coverage = (verdict.coverage.nodes, verdict.coverage.rows_judged_between_nodes);
        assert_eq!((verdict.exit_code, coverage), (exit_code, (2, between)), "{rows}: {:?}", verdict.troubles);
        assert!(words.is_empty() || verdict.troubles.iter().any(|trouble| trouble.text.contains(words)), "{rows}");
    }
}

#[test]
fn a_file_whose_library_no_backend_runs_judges_imported_logs_only_and_says_so() {
    let mut rccl = machine("1GB/s");
    if let Some(runs) = &mut rccl.judged_runs {
        runs.imported_only = true;
    }
    let verdict = gated(lines("a", &good()), &rccl);
    let said = verdict.troubles.iter().any(|trouble| trouble.text.contains("only logs of rccl-tests can be judged"));
    assert!(verdict.exit_code == 3 && said, "{:?}", verdict.troubles);
}

#[test]
fn figures_of_threads_in_one_process_judge_nothing_that_ran_as_processes() {
    let mut threads = machine("1GB/s");
    assert_eq!(gated(lines("a", &good()), &threads).coverage.rows_judged, 2);
    threads.expectations[0].reached.one_process = true;
    let verdict = gated(lines("a", &good()), &threads);
    assert_eq!((verdict.exit_code, verdict.coverage.rows_judged), (3, 0));
}

#[test]
fn a_damaged_record_never_passes_and_gives_its_exit_code() {
    for (what, code, harm) in HARMS {
        let mut harmed = lines("a", &good());
        harm(&mut harmed);
        let verdict = gated(harmed, &machine("10GB/s"));
        assert_eq!(verdict.exit_code, code, "{what}: {:?}", verdict.troubles);
        assert!(verdict.decision != Decision::Pass, "{what}");
        let has_reason = verdict.rows.iter().any(|row| !row.reasons.is_empty()) || !verdict.troubles.is_empty();
        assert!(has_reason, "{what}: no reason is given");
    }
}

#[test]
fn adding_a_failure_never_makes_a_verdict_better() {
    let place = |code: i32| [0, 3, 1, 7, 6, 5, 4].iter().position(|known| *known == code).unwrap();
    for floor in ["10GB/s", "15.7GB/s", "100GB/s"] {
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
    machine.expectations[0].cadence = commgauge_base::sample::Cadence::Isolated;
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
        (row[..3].to_vec(), "100GB/s", Decision::Inconclusive, Some(2)),
    ] {
        let verdict = gated(lines("a", std::slice::from_ref(&times)), &machine(floor));
        assert_eq!(verdict.rows[0].decision, Some(decision), "{floor}");
        if decision == Decision::Inconclusive {
            assert!(verdict.rows[0].replicates_more.is_some(), "{floor}");
        }
        if times.len() == 3 {
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
        (Some(&silent), "it has no [[expect]]"),
        (Some(&other), "expects nothing of any row of the record (1 expectation of other rows)"),
    ] {
        let verdict = gate(&[loaded("r.jsonl", lines("a", &good()))], machine, &RULE).unwrap();
        assert_eq!((verdict.exit_code, verdict.coverage.rows_judged), (3, 0));
        assert!(verdict.troubles[0].text.contains(words), "{:?}", verdict.troubles);
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
