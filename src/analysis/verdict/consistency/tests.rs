//! Which calls contradict each other, and how they are reported.

use super::super::testing::{lines, loaded};
use super::*;
use crate::verdict::Guideline;
use commgauge_base::collective::Collective;
use commgauge_model::record::Line;

/// All_reduces of 1, 2, 4 ... MiB with these times in microseconds, so many replicates that differ by 0.1 %.
fn curve(times: &[f64], replicates: usize) -> Vec<Line> {
    let scatter = |time: f64| (0..replicates).map(|index| time * (1.0 + 0.001 * index as f64)).collect();
    lines("20261121T093000Z-7f3a", &times.iter().map(|time| scatter(*time)).collect::<Vec<_>>())
}

fn verdict_of(lines: Vec<Line>) -> Verdict {
    consistency(&[loaded("run.jsonl", lines)], ConsistencyRule::default(), &[]).unwrap()
}

fn found(verdict: &Verdict) -> Vec<(Guideline, &str, bool)> {
    verdict.findings.iter().map(|finding| (finding.guideline, finding.cases[0].as_str(), finding.certain)).collect()
}

/// Turns rows into calls of other collectives, all of the same bytes.
fn as_collectives(mut lines: Vec<Line>, collectives: &[Collective]) -> Vec<Line> {
    for line in &mut lines {
        if let Line::Plan(plan) = line {
            let bytes = plan.cases[0].bytes_total;
            for (case, collective) in plan.cases.iter_mut().zip(collectives) {
                (case.collective, case.bytes_total, case.bytes_accounted) = (*collective, bytes, bytes);
                case.bus_factor = collective.bus_factor(case.group_size);
            }
        }
    }
    lines
}

#[test]
fn a_record_that_breaks_no_rule_is_reported_as_consistent() {
    let verdict = verdict_of(curve(&[100.0, 150.0, 300.0, 602.0], 7));
    assert_eq!((verdict.exit_code, found(&verdict)), (0, vec![]), "{:?}", verdict.troubles);
    assert!(verdict.rule[0].contains("at 8 places"), "3 steps twice and 2 dips: {}", verdict.rule[0]);
}

#[test]
fn every_broken_rule_is_reported_with_its_calls_and_factor() {
    use Guideline::{Dip, MoreBytesAreFaster, SplitIsFaster};
    for (times, expected) in [
        // The second takes 3 times the first: 1.5 times what two calls of half the bytes take, and dips.
        (&[100.0, 300.0, 305.0, 600.0][..], vec![(SplitIsFaster, 1, 1.5), (Dip, 1, 1.5)]),
        (&[100.0, 190.0, 160.0, 300.0], vec![(MoreBytesAreFaster, 1, 190.0 / 160.0)]),
        (&[100.0, 204.0, 400.0], vec![]),
        (&[100.0, 206.0, 408.0], vec![(SplitIsFaster, 1, 1.03), (Dip, 1, 206.0 / 204.0 * 100.0 / 100.0)]),
    ] {
        let verdict = verdict_of(curve(times, 7));
        let seen: Vec<(Guideline, String)> =
            verdict.findings.iter().map(|finding| (finding.guideline, finding.cases[0].clone())).collect();
        for (guideline, row, factor) in &expected {
            let tolerated = *factor <= 1.025;
            let name = format!("world/all_reduce/{row}");
            let of = |finding: &&Finding| finding.guideline == *guideline && finding.cases[0] == name;
            match verdict.findings.iter().find(of) {
                None => assert!(tolerated, "{times:?}: {guideline:?} of {name} is not in {seen:?}"),
                Some(finding) => assert!((finding.times_allowed / factor - 1.0).abs() < 1e-3, "{finding:?}"),
            }
        }
        assert!(verdict.findings.len() <= expected.len(), "{times:?}: {seen:?}");
        assert_eq!(verdict.exit_code, i32::from(!verdict.findings.is_empty()), "{times:?}");
    }
}

#[test]
fn a_call_slower_than_an_equivalent_combination_is_reported() {
    use Collective::{AllGather, AllReduce, Broadcast, ReduceScatter, Scatter};
    let times = [100.0, 40.0, 40.0, 90.0, 45.0];
    let lines = as_collectives(curve(&times, 7), &[AllReduce, ReduceScatter, AllGather, Broadcast, Scatter]);
    let verdict = verdict_of(lines);
    let texts: Vec<&str> = verdict.findings.iter().map(|finding| finding.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "world/all_reduce/0 takes 25.0 % longer than world/all_reduce/1 and world/all_reduce/2, which does the same",
            "world/all_reduce/3 takes 5.88 % longer than world/all_reduce/4 and world/all_reduce/2, which does the same"
        ]
    );
    assert_eq!(verdict.exit_code, 1);
}

#[test]
fn a_possibly_random_finding_is_inconclusive_and_states_the_resolution_of_the_replicates() {
    let verdict = verdict_of(curve(&[100.0, 300.0, 310.0, 600.0], 3));
    assert_eq!(verdict.exit_code, 3);
    assert!(verdict.findings.iter().all(|finding| !finding.certain && finding.text.ends_with("may be chance)")));
    assert!(
        verdict.troubles.iter().any(|trouble| trouble.text.contains("with 3 replicates")),
        "{:?}",
        verdict.troubles
    );
}

#[test]
fn trouble_with_the_record_outweighs_findings() {
    let mut torn = curve(&[100.0, 300.0, 310.0, 600.0], 7);
    torn.pop();
    assert_eq!(verdict_of(torn).exit_code, 7);
    let alone = verdict_of(curve(&[100.0], 7));
    assert_eq!(alone.exit_code, 3, "{:?}", alone.troubles);
    let mut corrupt = curve(&[100.0, 300.0], 7);
    for line in &mut corrupt {
        if let Line::Case(case) = line {
            case.outcome = commgauge_model::record::line::Outcome::Corrupt {
                when: "after".to_owned(),
                rank: 1,
                element: 2,
                expected: "3".to_owned(),
                got: "4".to_owned(),
                count: 1,
                call: None,
            };
        }
    }
    assert_eq!(verdict_of(corrupt).exit_code, 4, "no rule is looked at where data arrived wrong");
}
