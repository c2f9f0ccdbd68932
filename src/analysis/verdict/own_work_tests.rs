//! Copies and matrix products are judged like calls: by a machine file, against a base, and as what a machine file is learned from.

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

/// A machine on which that copy must reach 45 GB/s and that product 90 GFLOP/s, and at least so many thresholds must be judged.
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
        assert_eq!(verdict.exit_code, code, "{copy} {product}: {:?}", verdict.troubles);
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
    assert_eq!(few.exit_code, 3, "a copy to a peer was not measured: {:?}", few.troubles);
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
        assert_eq!(verdict.exit_code, code, "{name}: {:?} {:?}", verdict.troubles, verdict.rows);
    }
    let few = with_own_work(lines("a", &[times(100.0)[..3].to_vec()]), copy_lines(&[20.0; 3]));
    assert_eq!(gated(few, 1).exit_code, 3);
    let alone = with_own_work(lines("a", &[]), Vec::new());
    assert_eq!(gated(alone, 1).exit_code, 7, "a record that plans nothing");
}

#[test]
fn a_run_of_copies_alone_passes_or_fails_and_nobody_is_suspected_for_it() {
    for (time, code) in [(20.0, 0), (25.0, 1)] {
        let mut lines = with_own_work(lines("a", &[]), copy_lines(&times(time)));
        let Some(Line::Header(header)) = lines.first_mut() else { panic!("no header") };
        header.settings.replicates = 6;
        let record = loaded("r.jsonl", lines);
        let suspects = locate::locate(std::slice::from_ref(&record), &locate::LocateOptions::default());
        let suspects = suspects.expect("there is nothing to search in");
        assert!(suspects.suspects.is_empty() && !suspects.examined.can_name_a_node(), "{suspects:?}");
        let verdict = gate(&[record], Some(&judging(1)), &GATE).expect("one record");
        assert_eq!(verdict.exit_code, code, "{:?}", verdict.troubles);
    }
}

/// Changes what came of every copy.
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
    // The middle of six replicates, of which each is 0.2 % slower than the one before.
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
    let template = gate(&records, None, &GATE).expect("one record").template.expect("nothing is expected");
    for words in [
        "[[expect_copy]]\nkind = \"host-to-device\"\nbytes = \"1000000000B\"\nhost_memory = \"pinned\"\neach = \"alone\"\n",
        "[[expect_product]]\nm = 1000\nn = 1000\nk = 1000\nelement_type = \"float32\"\ntflops = \"\" # ",
    ] {
        assert!(template.contains(words), "{words}: {template}");
    }
}
