//! A fitted number with its 95 % interval.

use commgauge_base::collective::Collective;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::{Interval, median, sorted};
use commgauge_model::layout::Axis;
use commgauge_model::record::Record;
use commgauge_model::record::line::{CaseFacts, CaseLine, Outcome};
use commgauge_model::record::work_lines::{HiddenCalls, InterferenceLine, ReplayAxis, ReplayLine};
use commgauge_model::workload::op::When;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Minimum number of values for an interval.
const MIN_FOR_INTERVAL: usize = 3;

/// A fitted number.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Coefficient {
    /// The number.
    pub value: f64,
    /// Lower end of its 95 % interval; absent with fewer than three replicates.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Measurements behind it.
    pub measurements: u64,
}

impl Coefficient {
    /// A number with its bootstrap interval, if there was one. The interval contains the number.
    pub(super) fn new(value: f64, interval: Option<Interval>, measurements: usize) -> Coefficient {
        Coefficient {
            value,
            low: interval.map(|interval| interval.low.min(value)),
            high: interval.map(|interval| interval.high.max(value)),
            measurements: measurements as u64,
        }
    }

    /// The median of values, one per replicate, with a bootstrap interval; `None` without values.
    pub(super) fn median_of(values: &[f64], resamples: u32, seed: u64) -> Option<Coefficient> {
        let value = median(&sorted(values.iter().copied()))?;
        let drawn = || {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let one = |_| {
                let sample: Vec<f64> = values.iter().map(|_| *pick(values, &mut random)).collect();
                median(&sorted(sample))
            };
            middle_95((0..resamples).filter_map(one).collect())
        };
        let interval = if values.len() >= MIN_FOR_INTERVAL { drawn() } else { None };
        Some(Coefficient::new(value, interval, values.len()))
    }

    /// The wider half of the interval as a fraction of the number; 0 without an interval.
    pub fn half_width(&self) -> f64 {
        let reach = |end: Option<f64>| end.map_or(0.0, |end| (end - self.value).abs());
        reach(self.low).max(reach(self.high))
    }
}

/// A random element of a non-empty slice.
pub(super) fn pick<'a, T>(values: &'a [T], random: &mut Xoshiro256PlusPlus) -> &'a T {
    &values[random.random_range(0..values.len())]
}

/// The interval between the percentiles 2.5 and 97.5; `None` below 40 values.
pub(super) fn middle_95(values: Vec<f64>) -> Option<Interval> {
    let ascending = sorted(values);
    let outside = ascending.len() / 40;
    if outside == 0 {
        return None;
    }
    Some(Interval { low: *ascending.get(outside)?, high: *ascending.get(ascending.len().checked_sub(1 + outside)?)? })
}

// The share of an axis's communication that a step hides, and its slowdown, from replays in which calls overlap with computing.
//
// A replay emulates computing by waiting on the clock, so the slowdown of the computing is unknown. The slowdown covers hidden calls and
// their own time: time spent waiting for another rank is not time waiting for a call.

const OVERLAP_SEED: u64 = 0x0fe7_1a92;

/// Compute and communication at the same time, on one axis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overlap {
    pub axis: Axis,
    /// Share of the active time that the slowest rank did not wait.
    pub hidden_share: Coefficient,
    /// Time of the hidden calls over the time of the same calls alone; absent if they were not measured alone, or none is hidden.
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
pub(super) fn add_overlap(replayed: &mut BTreeMap<Axis, Replayed>, record: &Record) {
    for replay in record.replays.iter().filter(|replay| matches!(replay.outcome, Outcome::Measured { .. })) {
        for axis in replay.axes.iter().filter(|axis| axis.axis != Axis::Pp) {
            let Some(hidden) = axis.overlap_efficiency else { continue };
            let of_axis = replayed.entry(axis.axis).or_default();
            of_axis.hidden.push(hidden);
            of_axis.slower.extend(slower(record, replay.step, axis));
        }
    }
}

/// Time of an axis's hidden calls over the time of the same calls alone; `None` if one was not measured alone.
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
        let seconds = facts.and_then(|facts| seconds(facts, line));
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
            hidden_share: Coefficient::median_of(&of_axis.hidden, resamples, OVERLAP_SEED)?,
            slowdown: Coefficient::median_of(&of_axis.slower, resamples, OVERLAP_SEED),
        })
    };
    replayed.iter().filter_map(one).collect()
}

// Slowdown of a call while calls of another axis are in flight, from calls that were measured alone and together.

const INTERFERENCE_SEED: u64 = 0x1472_f312;

/// Two concurrent calls. Ordered, so that a list of them has one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct AtOnce {
    /// Axis of the timed call.
    pub axis: Axis,
    /// The timed call.
    pub collective: Collective,
    /// Axis of the concurrent calls.
    pub beside_axis: Axis,
    /// The concurrent calls.
    pub beside_collective: Collective,
}

/// A call concurrent with another, over all sizes and replicates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interference {
    /// The calls.
    #[serde(flatten)]
    pub calls: AtOnce,
    /// Time together over time alone. Too small if the others were not in flight all the time.
    pub slowdown: Coefficient,
}

/// Ratio of the time together to the time alone, one per replicate.
pub(super) type Ratios = BTreeMap<AtOnce, Vec<f64>>;

pub(super) fn add_interference(ratios: &mut Ratios, record: &Record) {
    let corrupt: Vec<&InterferenceLine> = record.interference.iter().filter(|line| line.outcome.is_wrong()).collect();
    let is_wrong = |line: &InterferenceLine| {
        corrupt
            .iter()
            .any(|wrong| (wrong.step, &wrong.timed, &wrong.overlapping) == (line.step, &line.timed, &line.overlapping))
    };
    for line in record.interference.iter().filter(|line| matches!(line.outcome, Outcome::Measured { .. })) {
        let middle = |times: &[u64]| median(&sorted(times.iter().map(|time| *time as f64))).filter(|time| *time > 0.0);
        let both = middle(&line.alone_nanoseconds).zip(middle(&line.together_nanoseconds));
        let Some((alone, together)) = both.filter(|_| !is_wrong(line)) else { continue };
        let calls = AtOnce {
            axis: line.timed.axis,
            collective: line.timed.collective,
            beside_axis: line.overlapping.axis,
            beside_collective: line.overlapping.collective,
        };
        ratios.entry(calls).or_default().push(together / alone);
    }
}

/// The coefficients with their intervals.
pub(super) fn interference(ratios: &Ratios, resamples: u32) -> Vec<Interference> {
    let one = |(calls, ratios): (&AtOnce, &Vec<f64>)| {
        Some(Interference { calls: *calls, slowdown: Coefficient::median_of(ratios, resamples, INTERFERENCE_SEED)? })
    };
    ratios.iter().filter_map(one).collect()
}

// Slowdown of messages between stages while messages of the other direction are in flight, from replays of a pipeline without
// computing.
//
// Links are full duplex, but the software above may not be. In Open MPI over TCP the clear-to-send of a long message queues
// behind the data in the same direction, so messages of the two directions are serialised.

const BOTH_WAYS_SEED: u64 = 0x0b07_3a15;

/// Maximum time of all other calls of the step, as a share of the messages.
const MAX_SHARE_OF_OTHERS: f64 = 0.05;

/// Messages of both directions between two stages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BothWays {
    /// Whether the stages are on different hosts.
    pub between_hosts: bool,
    /// Time of a message with another in the opposite direction over that of the same message alone: 1 if a link carries both directions at
    /// once, 2 if one waits for the other.
    pub slowdown: Coefficient,
}

/// Slowdown of each replay, by whether the stages are on different hosts.
pub(super) type Exchanged = BTreeMap<bool, Vec<f64>>;

/// Adds the replays of a record that show it: two stages, 1F1B, no computing, almost no other calls.
pub(super) fn add_both_ways(exchanged: &mut Exchanged, record: &Record) {
    let measured = |replay: &&ReplayLine| matches!(replay.outcome, Outcome::Measured { .. });
    for replay in record.replays.iter().filter(measured) {
        if let Some((between_hosts, slowdown)) = of_replay(record, replay) {
            exchanged.entry(between_hosts).or_default().push(slowdown);
        }
    }
}

/// With full duplex, 1F1B on two stages sends two micro-batches there and back in the time of two messages each: as long as all messages of
/// one direction in sequence, plus one for the last micro-batch, which is alone.
fn of_replay(record: &Record, replay: &ReplayLine) -> Option<(bool, f64)> {
    if replay.schedule != "1f1b" || replay.forward_seconds_per_layer.0 > 0.0 {
        return None;
    }
    let known = times(record);
    let (mut messages, mut alone, mut others, mut between_hosts) = (0u64, 0.0, 0.0, None);
    for (facts, index) in cases_of_step(record, replay.step) {
        let uses = facts.uses.iter().filter(|used| used.step == replay.step);
        for used in uses {
            let seconds = known.get(&index)? * used.count_per_step as f64;
            if !matches!(used.when, When::Boundary { .. }) {
                others += seconds;
                continue;
            }
            if facts.axis != Axis::Pp || facts.group_size != 2 || facts.locality.nodes_spanned == 0 {
                return None;
            }
            between_hosts = Some(facts.locality.nodes_spanned > 1);
            messages += used.count_per_step;
            alone += seconds;
        }
    }
    if messages == 0 || alone <= 0.0 || others > MAX_SHARE_OF_OTHERS * alone {
        return None;
    }
    let in_flight = replay.axes.iter().find(|axis| axis.axis == Axis::Pp)?.under_way_nanoseconds_median as f64 * 1e-9;
    let free = alone * (messages + messages % 2) as f64 / messages as f64;
    Some((between_hosts?, in_flight / free))
}

/// The coefficients with their intervals.
pub(super) fn both_ways(exchanged: &Exchanged, resamples: u32) -> Vec<BothWays> {
    let one = |(between_hosts, slowdowns): (&bool, &Vec<f64>)| {
        let slowdown = Coefficient::median_of(slowdowns, resamples, BOTH_WAYS_SEED)?;
        Some(BothWays { between_hosts: *between_hosts, slowdown })
    };
    exchanged.iter().filter_map(one).collect()
}

// The time of one call, from the samples of a case.

/// Median over the valid samples of the time of a call (of one way for round trips).
pub fn seconds(facts: &CaseFacts, line: &CaseLine) -> Option<f64> {
    median(&line.seconds_per_transfer(facts)).filter(|seconds| *seconds > 0.0)
}

#[cfg(test)]
mod coefficient_tests {

    use super::*;

    #[test]
    fn few_values_have_a_median_and_no_interval() {
        assert!(Coefficient::median_of(&[], 200, 1).is_none());
        let two = Coefficient::median_of(&[1.0, 3.0], 200, 1).unwrap();
        assert_eq!((two.value, two.low, two.high, two.measurements), (2.0, None, None, 2));
        let none = Coefficient::median_of(&[1.0, 2.0, 3.0], 0, 1).unwrap();
        assert_eq!(none.low, None, "nothing was resampled");
    }

    #[test]
    fn the_interval_contains_the_median_and_is_within_the_values() {
        let values = [1.0, 1.2, 1.1, 1.3, 0.9, 1.15, 1.05];
        let found = Coefficient::median_of(&values, 400, 7).unwrap();
        let (low, high) = (found.low.unwrap(), found.high.unwrap());
        assert_eq!(found.value, 1.1);
        assert!((0.9..1.1).contains(&low) && (1.1..=1.3).contains(&high), "{found:?}");
        assert_eq!(Coefficient::median_of(&values, 400, 7).unwrap(), found, "the same seed gives the same");
    }
}

#[cfg(test)]
mod overlap_tests {

    use super::*;
    use commgauge_base::units::{Bytes, Seconds};
    use commgauge_model::record::line::StepUse;
    use commgauge_model::record::work_lines::ReplayLine;
    use commgauge_model::workload::Style;
    use commgauge_model::workload::op::When;

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
            timeline: None,
            job_nanoseconds: None,
            bytes_as_listed: true,
        }
    }

    /// A record whose measured streaming cases occur `count_per_step` times per step, on the axis dp.
    pub(in crate::cost) fn record(replays: Vec<ReplayLine>, count_per_step: u64) -> Record {
        let mut record = commgauge_model::record::testing::sample();
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
        records.iter().for_each(|record| add_overlap(&mut replayed, record));
        overlap(&replayed, 200)
    }

    #[test]
    fn failed_replays_and_the_pipeline_axis_give_no_overlap() {
        let failed = replay(Axis::Dp, 0.5, 10, Outcome::Failed { reason: "no".to_owned() });
        assert!(of(&[record(vec![failed], 1)]).is_empty());
        assert!(of(&[record(vec![replay(Axis::Pp, 0.5, 10, GOOD)], 1)]).is_empty());
    }

    /// Three of each measured call of the record, each this many times as long as alone.
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
        // Calls were in flight for a minute, most of which the ranks waited for each other.
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

#[cfg(test)]
mod interference_tests {

    use super::*;
    use commgauge_base::element::ElementType;
    use commgauge_base::units::Bytes;
    use commgauge_model::record::work_lines::InterferingCall;
    use commgauge_model::workload::Style;

    /// One replicate in which a call of tp takes `slower` times as long next to dp.
    fn line(replicate: u32, slower: f64, outcome: Outcome) -> InterferenceLine {
        let call = |axis| InterferingCall {
            axis,
            style: Style::Sweep,
            collective: Collective::AllReduce,
            element_type: ElementType::Bfloat16,
            bytes_total: Bytes(1 << 22),
        };
        InterferenceLine {
            step: 0,
            replicate,
            timed: call(Axis::Tp),
            overlapping: call(Axis::Dp),
            outcome,
            calls_beside: 4,
            alone_nanoseconds: vec![1000, 1010, 9000],
            together_nanoseconds: [1000.0, 1010.0, 9000.0].map(|time| (time * slower) as u64).to_vec(),
            still_waited_nanoseconds: vec![100_000; 3],
            beside_alone_nanoseconds: vec![500; 3],
        }
    }

    fn of(interference: Vec<InterferenceLine>) -> Vec<Interference> {
        let record = Record { interference, ..commgauge_model::record::testing::sample() };
        let mut ratios = Ratios::new();
        add_interference(&mut ratios, &record);
        super::interference(&ratios, 200)
    }

    const GOOD: Outcome = Outcome::Measured { verified: true };

    #[test]
    fn missing_pairs_and_wrong_data_give_no_coefficient() {
        assert!(of(Vec::new()).is_empty());
        let wrong = Outcome::Corrupt {
            when: "before".to_owned(),
            rank: 0,
            element: 0,
            expected: "1".to_owned(),
            got: "2".to_owned(),
            count: 1,
            call: None,
        };
        assert!(of(vec![line(0, 2.0, GOOD), line(1, 2.0, wrong)]).is_empty());
        assert!(of(vec![line(0, 2.0, Outcome::Failed { reason: "no".to_owned() })]).is_empty());
    }

    #[test]
    fn the_slow_down_is_the_median_over_replicates_with_an_interval() {
        let slower = [1.5, 1.6, 1.55, 1.45, 1.7, 8.0];
        let found = of(slower.iter().zip(0..).map(|(slower, replicate)| line(replicate, *slower, GOOD)).collect());
        let [pair] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((pair.calls.axis, pair.calls.beside_axis), (Axis::Tp, Axis::Dp));
        assert!((pair.slowdown.value - 1.575).abs() < 0.01, "{pair:?}");
        assert!(pair.slowdown.low.unwrap() >= 1.45 && pair.slowdown.high.unwrap() < 8.0, "{pair:?}");
        assert!(of(vec![line(0, 2.0, GOOD)])[0].slowdown.low.is_none(), "one replicate has no interval");
    }
}

#[cfg(test)]
mod both_ways_tests {

    use super::overlap_tests::{GOOD, record, replay};
    use super::*;
    use commgauge_base::units::Seconds;
    use commgauge_model::workload::op::Pass;

    /// A pipeline of two stages on two hosts with `messages` messages, which take `times_alone` times as long in the
    /// replay as in sequence alone.
    fn pipeline(messages: u64, times_alone: f64, change: impl Fn(&mut Record)) -> Vec<BothWays> {
        let mut record = record(Vec::new(), messages);
        let known = times(&record);
        let mut first = None;
        for (case, index) in record.plan.cases.iter_mut().zip(0u32..).filter(|(case, _)| !case.uses.is_empty()) {
            if *first.get_or_insert(index) != index {
                case.uses.clear();
                continue;
            }
            (case.axis, case.group_size, case.locality.nodes_spanned) = (Axis::Pp, 2, 2);
            case.uses[0].when = When::Boundary { pass: Pass::Forward, sends_per_step: messages };
        }
        let alone = known[&first.unwrap()] * messages as f64;
        let mut replay = replay(Axis::Pp, 0.0, (times_alone * alone * 1e9) as u64, GOOD);
        replay.forward_seconds_per_layer = Seconds(0.0);
        record.replays = vec![replay];
        change(&mut record);
        let mut exchanged = Exchanged::new();
        add_both_ways(&mut exchanged, &record);
        both_ways(&exchanged, 100)
    }

    #[test]
    fn replays_with_computing_one_direction_or_a_failure_give_no_coefficient() {
        assert_eq!(pipeline(8, 2.0, |record| record.replays[0].forward_seconds_per_layer = Seconds(1e-3)), []);
        assert_eq!(pipeline(8, 2.0, |record| record.replays[0].schedule = "gpipe".to_owned()), []);
        let failed = Outcome::Failed { reason: "no".to_owned() };
        assert_eq!(pipeline(8, 2.0, |record| record.replays[0].outcome = failed.clone()), []);
        assert_eq!(pipeline(8, 2.0, |record| record.plan.cases.iter_mut().for_each(|case| case.group_size = 4)), []);
        let unknown =
            |record: &mut Record| record.plan.cases.iter_mut().for_each(|case| case.locality.nodes_spanned = 0);
        assert_eq!(pipeline(8, 2.0, unknown), []);
    }

    #[test]
    fn serialised_directions_take_twice_as_long_as_concurrent_ones() {
        for (messages, times_alone, expected) in
            [(8, 1.0, 1.0), (8, 2.0, 2.0), (7, 8.0 / 7.0, 1.0), (7, 16.0 / 7.0, 2.0)]
        {
            let found = pipeline(messages, times_alone, |_| ());
            let [both] = found.as_slice() else { panic!("{found:?}") };
            assert!(both.between_hosts && (both.slowdown.value - expected).abs() < 1e-3, "{both:?}");
        }
    }
}
