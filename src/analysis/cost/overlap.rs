//! The share of an axis's communication that a step hides, and the resulting slowdown, from replays in which calls overlap with
//! computing.
//!
//! A replay emulates computing by waiting on the clock, so the slowdown of the computing is unknown. The slowdown is of calls that
//! something hides, and of their own time: a rank that waits for another one waits for no call.

use super::call_seconds;
use super::coefficient::Coefficient;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::{median, sorted};
use commgauge_model::layout::Axis;
use commgauge_model::record::Record;
use commgauge_model::record::line::{CaseFacts, CaseLine, Outcome};
use commgauge_model::record::replay_line::{HiddenCalls, ReplayAxis};
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
    /// Time of the calls that something hides over that of the same calls alone; absent where they were not measured alone, and where
    /// nothing hides any.
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
        for axis in replay.axes.iter().filter(|axis| axis.axis != Axis::Pp) {
            let Some(hidden) = axis.overlap_efficiency else { continue };
            let of_axis = replayed.entry(axis.axis).or_default();
            of_axis.hidden.push(hidden);
            of_axis.slower.extend(slower(record, replay.step, axis));
        }
    }
}

/// Time of the hidden calls of an axis over that of the same calls alone; `None` where one was not measured alone.
fn slower(record: &Record, step: u32, axis: &ReplayAxis) -> Option<f64> {
    let (times, cases) = (times(record), cases_of_step(record, step));
    let alone_seconds = |hidden: &HiddenCalls| {
        let is_same = |facts: &CaseFacts| {
            let case = (facts.axis, facts.collective, facts.element_type, facts.bytes_total);
            case == (axis.axis, hidden.collective, hidden.element_type, hidden.bytes_total)
        };
        let each = cases.iter().filter(|(facts, _)| is_same(facts)).find_map(|(_, index)| times.get(index))?;
        Some(each * hidden.calls as f64)
    };
    let alone: f64 = axis.hidden_calls.iter().map(alone_seconds).sum::<Option<f64>>()?;
    let together: f64 = axis.hidden_calls.iter().map(|hidden| hidden.nanoseconds_median as f64 * 1e-9).sum();
    (alone > 0.0).then_some(together / alone)
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
    let withheld = |line: &&CaseLine| line.outcome.is_wrong();
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
    use commgauge_model::record::replay_line::ReplayLine;
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
            hidden_calls: Vec::new(),
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

    /// Three of each measured call of the record, each so many times as long as alone.
    fn hidden_in(record: &Record, slower: f64) -> Vec<HiddenCalls> {
        let known = times(record);
        let hidden = |(facts, index): (&CaseFacts, u32)| HiddenCalls {
            collective: facts.collective,
            element_type: facts.element_type,
            bytes_total: facts.bytes_total,
            calls: 3,
            nanoseconds_median: (3e9 * slower * known[&index]).round() as u64,
        };
        let mut all: Vec<HiddenCalls> = cases_of_step(record, 0).into_iter().map(hidden).collect();
        // The same call in other buffers is one call of a step.
        all.dedup_by_key(|calls| (calls.collective, calls.element_type, calls.bytes_total));
        all
    }

    #[test]
    fn hidden_shares_and_slowdowns_come_from_replays() {
        // Ranks saw the calls under way for a minute, most of which they waited for each other.
        let minute = 60_000_000_000;
        let records: Vec<Record> = [(0.8, 2.0), (0.7, 1.9), (0.75, 2.1)]
            .map(|(share, slower)| {
                let mut record = record(vec![replay(Axis::Dp, share, minute, GOOD)], 3);
                record.replays[0].axes[0].hidden_calls = hidden_in(&record, slower);
                record
            })
            .to_vec();
        let found = of(&records);
        let [dp] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((dp.hidden_share.value, dp.hidden_share.measurements), (0.75, 3));
        assert!(dp.hidden_share.low.unwrap() >= 0.7 && dp.hidden_share.high.unwrap() <= 0.8);
        assert!((dp.slowdown.unwrap().value - 2.0).abs() < 1e-3, "{dp:?}");
    }

    #[test]
    fn calls_that_nothing_hides_have_no_slowdown() {
        let found = of(&[record(vec![replay(Axis::Dp, 0.8, 60_000_000_000, GOOD)], 3)]);
        assert_eq!((found[0].slowdown, found[0].hidden_share.value), (None, 0.8));
    }

    #[test]
    fn calls_that_were_not_measured_alone_leave_the_slowdown_unknown() {
        let mut known = record(vec![replay(Axis::Dp, 0.8, 10, GOOD)], 3);
        let mut hidden = hidden_in(&known, 2.0);
        hidden[0].bytes_total = Bytes(hidden[0].bytes_total.0 + 4);
        known.replays[0].axes[0].hidden_calls = hidden;
        let found = of(&[known]);
        assert_eq!((found[0].slowdown, found[0].hidden_share.low), (None, None));
    }
}
