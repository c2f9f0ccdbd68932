//! Thresholds and suspects of a run together, as one exit code.

use super::locate::{Measure, Suspects};
use super::{Decision, RowCall, Verdict};
use commgauge_base::collective::Collective;
use commgauge_model::layout::Axis;

/// What the search for suspects adds to the exit code of a run whose thresholds gave `verdict`.
///
/// A search that had too little to search in adds nothing. Nor does what one measure alone shows, where every row of that measure clears
/// its threshold: the slowest pair of each round is fast enough, and nothing is suspected.
pub fn located_code(suspects: &Suspects, verdict: Option<&Verdict>) -> i32 {
    if suspects.exit_code != 3 {
        suspects.exit_code
    } else if !suspects.examined.can_name_a_node() || is_cleared(suspects, verdict) {
        0
    } else {
        3
    }
}

/// Whether a search is undecided for what single measures show alone, and the thresholds of the pairs clear all of that.
pub fn is_cleared(suspects: &Suspects, verdict: Option<&Verdict>) -> bool {
    let clears = |verdict: &Verdict| {
        verdict.exit_code == 0 && suspects.unconfirmed.iter().all(|alone| passes(verdict, alone.measure))
    };
    let is_only_reason = suspects.exit_code == 3 && suspects.exit_code_when_cleared() == 0;
    is_only_reason && verdict.is_some_and(clears)
}

/// Whether every row of a measure of pairs passed, and there is one.
fn passes(verdict: &Verdict, measure: Measure) -> bool {
    let pairs = || {
        let calls = verdict.rows.iter().filter_map(|row| Some((row.subject.call()?, row.decision)));
        calls.filter(|(call, _)| call.axis == Axis::Pair)
    };
    let ping_pongs = pairs().filter(|(call, _)| call.collective == Collective::PingPong);
    let smallest = ping_pongs.map(|(call, _)| call.bytes_total).min();
    // No row is of the tail: thresholds are for medians.
    let is_of = |call: &RowCall| Measure::of(call.collective, call.bytes_total, smallest) == measure;
    let mut rows = pairs().filter(|(call, _)| is_of(call)).peekable();
    rows.peek().is_some() && rows.all(|(_, decision)| decision == Some(Decision::Pass))
}

#[cfg(test)]
mod tests {
    use super::super::{Coverage, Trouble};
    use super::*;
    use serde_json::json;

    /// Suspects of four nodes of which these measures alone show a slow link.
    fn alone(measures: &[&str], unseen: &[&str]) -> Suspects {
        let unconfirmed = |measure: &&str| json!({"measure": measure, "name": "link", "slower_by": 0.9});
        serde_json::from_value(json!({
            "format": "commgauge-suspects", "version": 1, "exit_code": 3, "answer": "", "synthetic": false, "runs": [],
            "examined": {"nodes": 4, "hosts": [], "local_ranks": 1, "node_pairs": 6, "node_pairs_measured": 6,
                "nodes_measured_inside": 0, "group_nodes": [], "isolated_cases": 1, "replicates": 9},
            "unconfirmed": measures.iter().map(unconfirmed).collect::<Vec<_>>(),
            "suspects": [], "unseen": unseen, "cannot_tell": [], "troubles": [], "rule": []
        }))
        .unwrap()
    }

    /// A gate with rows of these collectives, sizes and decisions, on the axis of pairs.
    fn gated(exit_code: i32, rows: &[(&str, u64, Option<&str>)]) -> Verdict {
        let row = |(collective, bytes, decision): &(&str, u64, Option<&str>)| {
            json!({"name": collective, "axis": "pair", "group_size": 2, "groups": 2, "collective": collective,
                "locality": {"nodes_spanned": 2, "ranks_per_node": 1, "stride": 1, "concurrent_groups_per_node": 1},
                "element_type": "uint8", "bytes_total": bytes, "placement": "out_of_place", "cadence": "streaming",
                "decision": decision, "reasons": [], "replicates": 9})
        };
        serde_json::from_value(json!({
            "format": "commgauge-verdict", "version": 1, "question": "gate", "decision": "pass", "exit_code": exit_code,
            "rule": [], "runs": [], "coverage": Coverage::default(), "troubles": [],
            "rows": rows.iter().map(row).collect::<Vec<_>>()
        }))
        .unwrap()
    }

    const PASSED: [(&str, u64, Option<&str>); 4] = [
        ("ping_pong", 8, Some("pass")),
        ("ping_pong", 4 << 20, Some("pass")),
        ("bidirectional", 4 << 20, Some("pass")),
        ("bidirectional", 4 << 20, Some("pass")),
    ];

    #[test]
    fn what_one_measure_alone_shows_is_cleared_by_the_thresholds_of_that_measure_in_all_rounds() {
        for measure in ["latency", "one_way", "both_ways"] {
            assert_eq!(located_code(&alone(&[measure], &["leaf switch"]), Some(&gated(0, &PASSED))), 0, "{measure}");
        }
        let without = |gone: usize| {
            let mut rows = PASSED;
            rows[gone].2 = None;
            gated(0, &rows)
        };
        for (measure, row) in [("latency", 0), ("one_way", 1), ("both_ways", 2), ("both_ways", 3)] {
            assert_eq!(
                located_code(&alone(&[measure], &[]), Some(&without(row))),
                3,
                "{measure}, row {row} not judged"
            );
        }
    }

    fn unreliable(mut suspects: Suspects) -> Suspects {
        suspects.troubles.push(Trouble { exit_code: 3, text: "a warning".to_owned() });
        suspects
    }

    #[test]
    fn nothing_else_is_cleared() {
        let cases = [
            ("no thresholds", alone(&["both_ways"], &[]), None),
            ("a gate that is not passed", alone(&["both_ways"], &[]), Some(gated(3, &PASSED))),
            ("no rows of pairs", alone(&["both_ways"], &[]), Some(gated(0, &[]))),
            ("a tail, which no threshold is about", alone(&["both_ways", "tail"], &[]), Some(gated(0, &PASSED))),
            ("scatter that hides nodes and links", alone(&["both_ways"], &["node or link"]), Some(gated(0, &PASSED))),
            ("an unreliable record", unreliable(alone(&[], &[])), Some(gated(0, &PASSED))),
            ("an unreliable record too", unreliable(alone(&["both_ways"], &[])), Some(gated(0, &PASSED))),
        ];
        for (what, suspects, verdict) in cases {
            assert_eq!(located_code(&suspects, verdict.as_ref()), 3, "{what}");
            assert!(!is_cleared(&suspects, verdict.as_ref()), "{what}");
        }
    }

    #[test]
    fn a_suspect_counts_whatever_the_thresholds_say_and_a_search_among_too_few_does_not() {
        let found = Suspects { exit_code: 1, ..alone(&["both_ways"], &[]) };
        assert_eq!(located_code(&found, Some(&gated(0, &PASSED))), 1);
        let mut few = alone(&[], &["node or link"]);
        few.examined.nodes = 2;
        assert_eq!(located_code(&few, None), 0);
    }
}
