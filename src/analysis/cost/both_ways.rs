//! Slowdown of messages between stages while messages of the other direction are in flight, from replays of a pipeline without
//! computing.
//!
//! Links are full duplex, but the software above may not be. In Open MPI over TCP the clear-to-send of a long message queues
//! behind the data in the same direction, so messages of the two directions are serialised.

use super::coefficient::Coefficient;
use super::overlap::{cases_of_step, times};
use commgauge_model::layout::Axis;
use commgauge_model::record::Record;
use commgauge_model::record::line::Outcome;
use commgauge_model::record::replay_line::ReplayLine;
use commgauge_model::workload::when::When;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const SEED: u64 = 0x0b07_3a15;
/// Maximum time of all other calls of the step, as a share of the messages.
const MAX_SHARE_OF_OTHERS: f64 = 0.05;

/// Messages of both directions between two stages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BothWays {
    /// Whether the stages lay on different hosts.
    pub between_hosts: bool,
    /// Time of a message with another in the opposite direction over that of the same message alone: 1 where a link carries both
    /// directions at once, 2 where one waits for the other.
    pub slowdown: Coefficient,
}

/// Slowdown of each replay, by whether the stages are on different hosts.
pub(super) type Exchanged = BTreeMap<bool, Vec<f64>>;

/// Adds the replays of a record that show it: two stages, 1F1B, no computing, and almost no other calls.
pub(super) fn add(exchanged: &mut Exchanged, record: &Record) {
    let measured = |replay: &&ReplayLine| matches!(replay.outcome, Outcome::Measured { .. });
    for replay in record.replays.iter().filter(measured) {
        if let Some((between_hosts, slowdown)) = of_replay(record, replay) {
            exchanged.entry(between_hosts).or_default().push(slowdown);
        }
    }
}

/// With full duplex, 1F1B on two stages sends two micro-batches there and back in the time of two messages each: as long as all
/// messages of one direction in sequence, plus one where the last micro-batch is alone.
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
    let under_way = replay.axes.iter().find(|axis| axis.axis == Axis::Pp)?.under_way_nanoseconds_median as f64 * 1e-9;
    let free = alone * (messages + messages % 2) as f64 / messages as f64;
    Some((between_hosts?, under_way / free))
}

/// The coefficients with their intervals.
pub(super) fn both_ways(exchanged: &Exchanged, resamples: u32) -> Vec<BothWays> {
    let one = |(between_hosts, slowdowns): (&bool, &Vec<f64>)| {
        let slowdown = Coefficient::median_of(slowdowns, resamples, SEED)?;
        Some(BothWays { between_hosts: *between_hosts, slowdown })
    };
    exchanged.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::overlap::tests::{GOOD, record, replay};
    use super::*;
    use commgauge_base::units::Seconds;
    use commgauge_model::workload::when::Pass;

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
        add(&mut exchanged, &record);
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
