//! The share of an axis's communication that a step hides, and the resulting slowdown, from replays in which calls overlap with
//! computing.
//!
//! A replay emulates computing by waiting on the clock, so the slowdown of the computing is unknown.

use super::call_seconds;
use super::coefficient::Coefficient;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::{median, sorted};
use commgauge_model::layout::Axis;
use commgauge_model::record::Record;
use commgauge_model::record::line::{CaseFacts, CaseLine, Outcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const SEED: u64 = 0x0fe7_1a92;

/// Compute and communication at the same time, on one axis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overlap {
    /// Whose calls.
    pub axis: Axis,
    /// Share of the time under way that the slowest rank did not wait for.
    pub hidden_share: Coefficient,
    /// Time under way over that of the same calls alone and one after another; absent where they were not measured alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdown: Option<Coefficient>,
}

/// Hidden shares, and slowdowns where known, one per replay.
#[derive(Clone, Debug, Default)]
pub(super) struct Replayed {
    hidden: Vec<f64>,
    slower: Vec<f64>,
}

/// Adds the replays of a record. The pipeline axis is left out, since its wait time includes the bubble.
pub(super) fn add(replayed: &mut BTreeMap<Axis, Replayed>, record: &Record) {
    for replay in record.replays.iter().filter(|replay| matches!(replay.outcome, Outcome::Measured { .. })) {
        let alone = alone(record, replay.step);
        for axis in replay.axes.iter().filter(|axis| axis.axis != Axis::Pp) {
            let Some(hidden) = axis.overlap_efficiency else { continue };
            let of_axis = replayed.entry(axis.axis).or_default();
            of_axis.hidden.push(hidden);
            let under_way = axis.under_way_nanoseconds_median as f64 * 1e-9;
            of_axis.slower.extend(alone.get(&axis.axis).and_then(|alone| *alone).map(|alone| under_way / alone));
        }
    }
}

/// Total time in seconds of all calls of a step, measured alone, by axis; `None` where a call has no time.
fn alone(record: &Record, step: u32) -> BTreeMap<Axis, Option<f64>> {
    let mut sums: BTreeMap<Axis, Option<f64>> = BTreeMap::new();
    let times = times(record);
    for (facts, index) in cases_of_step(record, step) {
        let calls: u64 = facts.uses.iter().filter(|used| used.step == step).map(|used| used.count_per_step).sum();
        let sum = sums.entry(facts.axis).or_insert(Some(0.0));
        *sum = sum.zip(times.get(&index)).map(|(sum, seconds)| sum + seconds * calls as f64);
    }
    sums.values_mut().for_each(|sum| *sum = sum.filter(|seconds| *seconds > 0.0));
    sums
}

/// The cases of a step with all groups at once. A case that was measured in both cadences appears once, as streaming.
pub(super) fn cases_of_step(record: &Record, step: u32) -> Vec<(&CaseFacts, u32)> {
    let of_step = |cadence: Cadence| -> Vec<(&CaseFacts, u32)> {
        let here = |(facts, _): &(&CaseFacts, u32)| {
            facts.cadence == cadence && facts.solo_of.is_none() && facts.uses.iter().any(|used| used.step == step)
        };
        record.plan.cases.iter().zip(0u32..).filter(here).collect()
    };
    let streaming = of_step(Cadence::Streaming);
    if streaming.is_empty() { of_step(Cadence::Isolated) } else { streaming }
}

/// Median time of a call over the replicates, by case.
pub(super) fn times(record: &Record) -> BTreeMap<u32, f64> {
    let mut by_case: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for line in &record.cases {
        let facts = record.plan.cases.get(line.case as usize);
        let seconds = facts.and_then(|facts| call_seconds::seconds(facts, line));
        by_case.entry(line.case).or_default().extend(seconds);
    }
    let withheld = |line: &&CaseLine| matches!(line.outcome, Outcome::Corrupt { .. });
    for line in record.cases.iter().filter(withheld) {
        by_case.remove(&line.case);
    }
    by_case.into_iter().filter_map(|(case, seconds)| Some((case, median(&sorted(seconds))?))).collect()
}

/// The coefficients with their intervals.
pub(super) fn overlap(replayed: &BTreeMap<Axis, Replayed>, resamples: u32) -> Vec<Overlap> {
    let one = |(axis, of_axis): (&Axis, &Replayed)| {
        Some(Overlap {
            axis: *axis,
            hidden_share: Coefficient::median_of(&of_axis.hidden, resamples, SEED)?,
            slowdown: Coefficient::median_of(&of_axis.slower, resamples, SEED),
        })
    };
    replayed.iter().filter_map(one).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use commgauge_base::units::{Bytes, Seconds};
    use commgauge_model::record::Line;
    use commgauge_model::record::line::StepUse;
    use commgauge_model::record::replay_line::{ReplayAxis, ReplayLine};
    use commgauge_model::workload::Style;
    use commgauge_model::workload::when::When;

    pub(in crate::cost) const GOOD: Outcome = Outcome::Measured { verified: true };

    /// The replay of a step on one axis.
    pub(in crate::cost) fn replay(
        axis: Axis,
        overlap_efficiency: f64,
        under_way_nanoseconds_median: u64,
        outcome: Outcome,
    ) -> ReplayLine {
        let of_axis = ReplayAxis {
            axis,
            waiting_nanoseconds_median: 0,
            under_way_nanoseconds_median,
            overlap_efficiency: Some(overlap_efficiency),
            calls_counted: 1,
            payload_bytes_counted: Bytes(0),
            payload_bytes_listed: Bytes(0),
            wire_bytes_counted: Bytes(0),
            wire_bytes_listed: Bytes(0),
        };
        ReplayLine {
            step: 0,
            schedule: "1f1b".to_owned(),
            forward_seconds_per_layer: Seconds(1e-3),
            outcome,
            warm_up_repetitions: 1,
            slowest_nanoseconds: vec![1],
            slowest_rank: vec![0],
            computing_nanoseconds_median: 1,
            axes: vec![of_axis],
            overlap_efficiency: None,
            rank_nanoseconds_median: vec![1],
            job_nanoseconds: None,
            bytes_as_listed: true,
        }
    }

    /// A record whose measured streaming cases are called `count_per_step` times in a step, on the axis dp.
    pub(in crate::cost) fn record(replays: Vec<ReplayLine>, count_per_step: u64) -> Record {
        let lines = include_str!("../../../tests/data/sample-record.jsonl").lines();
        let lines: Vec<Line> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut record = Record::from_lines(lines).unwrap();
        let known = times(&record);
        for (case, index) in record.plan.cases.iter_mut().zip(0..) {
            if known.contains_key(&index) && case.cadence == Cadence::Streaming && count_per_step > 0 {
                case.axis = Axis::Dp;
                case.uses = vec![StepUse {
                    step: 0,
                    style: Style::Sweep,
                    when: When::Outside,
                    count_per_step,
                    wire_bytes_per_step: Bytes(1),
                    exposed: false,
                    overlaps_with: None,
                    why: String::new(),
                }];
            }
        }
        record.replays = replays;
        record
    }

    fn of(records: &[Record]) -> Vec<Overlap> {
        let mut replayed = BTreeMap::new();
        records.iter().for_each(|record| add(&mut replayed, record));
        overlap(&replayed, 200)
    }

    #[test]
    fn failed_replays_and_the_pipeline_axis_give_no_overlap() {
        let failed = replay(Axis::Dp, 0.5, 10, Outcome::Failed { reason: "no".to_owned() });
        assert!(of(&[record(vec![failed], 1)]).is_empty());
        assert!(of(&[record(vec![replay(Axis::Pp, 0.5, 10, GOOD)], 1)]).is_empty());
    }

    #[test]
    fn hidden_shares_and_slowdowns_come_from_replays() {
        let alone = alone(&record(Vec::new(), 3), 0)[&Axis::Dp].unwrap();
        assert!(alone > 0.0);
        let twice = (2.0 * alone * 1e9) as u64;
        let records: Vec<Record> =
            [0.8, 0.7, 0.75].map(|hidden| record(vec![replay(Axis::Dp, hidden, twice, GOOD)], 3)).to_vec();
        let found = of(&records);
        let [dp] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((dp.hidden_share.value, dp.hidden_share.measurements), (0.75, 3));
        assert!(dp.hidden_share.low.unwrap() >= 0.7 && dp.hidden_share.high.unwrap() <= 0.8);
        assert!((dp.slowdown.unwrap().value - 2.0).abs() < 1e-3, "{dp:?}");
    }

    #[test]
    fn calls_that_were_not_measured_alone_leave_the_slow_down_unknown() {
        let found = of(&[record(vec![replay(Axis::Dp, 0.8, 10, GOOD)], 0)]);
        assert_eq!((found[0].slowdown, found[0].hidden_share.low), (None, None));
    }
}
