//! The calls of a trace by place, call, type and size: number per step, and duration.

use super::call::CallKind;
use super::compare::{GroupPlace, TracedPlaces};
use super::read::Trace;
use commgauge_base::element::ElementType;
use commgauge_base::stats::{median, percentile, sorted};
use commgauge_base::units::{Bytes, Seconds};
use commgauge_base::writing::ranges;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

/// What identifies a call of a step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallKey {
    pub place: GroupPlace,
    pub kind: CallKind,
    pub element: Option<ElementType>,
    pub bytes_total: Bytes,
}

/// A call of a step, with all its times.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CountedCall {
    /// The axis of the layout whose groups these are, or their shape.
    #[schemars(with = "String")]
    pub place: GroupPlace,
    /// The call: a collective, `send` or `receive`.
    #[serde(rename = "call")]
    #[schemars(with = "String")]
    pub kind: CallKind,
    /// Type of the elements; absent for a barrier, and if the trace lacks it.
    #[serde(rename = "element_type")]
    pub element: Option<ElementType>,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Ranks of a group, if known.
    pub group_size: Option<u32>,
    /// Groups with this call.
    pub groups: u64,
    /// Ranks with this call.
    pub ranks: u64,
    /// Calls per step of the rank with the most.
    pub calls_per_step: f64,
    /// Median time, if the trace has times; includes the wait for late ranks.
    pub seconds_median: Option<Seconds>,
    /// 95th percentile.
    pub seconds_p95: Option<Seconds>,
}

#[derive(Default)]
struct Counts {
    per_rank: BTreeMap<u32, u64>,
    groups: BTreeSet<usize>,
    group_size: Option<u32>,
    seconds: Vec<f64>,
}

/// Counts the calls of a trace of this many steps, ordered by place, call, type and size.
pub fn counted_calls(trace: &Trace, places: &TracedPlaces, steps: u64) -> Vec<CountedCall> {
    let mut all: BTreeMap<CallKey, Counts> = BTreeMap::new();
    for call in &trace.calls {
        let (kind, element, bytes_total) = (places.kind_of(call), call.element, call.bytes_total);
        let key = CallKey { place: places.of(call.group).clone(), kind, element, bytes_total };
        let counts = all.entry(key).or_default();
        *counts.per_rank.entry(call.rank).or_default() += 1;
        counts.groups.insert(call.group);
        counts.group_size = counts.group_size.or(trace.group_size(call.group));
        counts.seconds.extend(call.duration.map(|seconds| seconds.0));
    }
    all.into_iter().map(|(key, counts)| counted(key, counts, steps)).collect()
}

fn counted(key: CallKey, counts: Counts, steps: u64) -> CountedCall {
    let seconds = sorted(counts.seconds);
    let most = counts.per_rank.values().copied().max().unwrap_or(0);
    CountedCall {
        place: key.place,
        kind: key.kind,
        element: key.element,
        bytes_total: key.bytes_total,
        group_size: counts.group_size,
        groups: counts.groups.len() as u64,
        ranks: counts.per_rank.len() as u64,
        calls_per_step: most as f64 / steps as f64,
        seconds_median: median(&seconds).map(Seconds),
        seconds_p95: percentile(&seconds, 95.0).map(Seconds),
    }
}

impl Trace {
    /// Ranks of a group, if known.
    pub fn group_size(&self, group: usize) -> Option<u32> {
        let group = &self.groups[group];
        group.ranks.as_ref().map(|ranks| ranks.len() as u32).or(group.size)
    }
}

// Finds late ranks in the calls of a trace.
//
// Clocks of hosts differ, so start times on different ranks cannot be compared. Durations can: a call ends on all ranks together and starts
// on each when it enters, so the rank with the shortest duration came last, and the longest is the wait.

/// Fewer calls say nothing about late ranks.
const FEWEST_CALLS: u64 = 10;

/// A rank is named if it came last in at least this share of calls; in a group of two chance gives half.
const LATE_SHARE: f64 = 0.7;

/// A call whose longest wait is below this share of its time has no late rank.
const WAIT_SHARE: f64 = 0.1;

/// A rank that came last into most calls of a group.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LateRank {
    /// The rank.
    pub rank: u32,
    /// The axis of the layout whose group this is, or its shape.
    #[schemars(with = "String")]
    pub place: GroupPlace,
    /// Ranks of the group.
    #[serde(rename = "group_ranks", serialize_with = "as_ranges")]
    #[schemars(with = "String")]
    pub group: Vec<u32>,
    /// Number of calls considered.
    pub calls: u64,
    /// Number of these in which it came last and others waited.
    pub late: u64,
    /// Median wait of the first rank in these.
    pub waited_seconds_median: Seconds,
}

fn as_ranges<S: Serializer>(ranks: &[u32], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&ranges(ranks))
}

type CallsOfRank = BTreeMap<u32, Vec<f64>>;

/// The late ranks of all groups whose ranks are all in the trace, those with the longest waits first.
pub fn late_ranks(trace: &Trace, places: &TracedPlaces) -> Vec<LateRank> {
    let mut all: BTreeMap<usize, BTreeMap<(CallKind, Bytes), CallsOfRank>> = BTreeMap::new();
    for call in trace.calls.iter().filter(|call| matches!(call.kind, CallKind::Collective(_))) {
        let Some(duration) = call.duration else { continue };
        let calls = all.entry(call.group).or_default().entry((call.kind, call.bytes_total)).or_default();
        calls.entry(call.rank).or_default().push(duration.0);
    }
    let of_group = |(group, calls): (usize, BTreeMap<(CallKind, Bytes), CallsOfRank>)| {
        let ranks = trace.groups[group].ranks.as_ref().filter(|ranks| ranks.len() > 1)?;
        late_rank(ranks, places.of(group), calls.values())
    };
    let mut late: Vec<LateRank> = all.into_iter().filter_map(of_group).collect();
    let lost = |of: &LateRank| of.waited_seconds_median.0 * of.late as f64;
    late.sort_by(|one, other| lost(other).total_cmp(&lost(one)));
    late
}

fn late_rank<'a>(ranks: &[u32], place: &GroupPlace, calls: impl Iterator<Item = &'a CallsOfRank>) -> Option<LateRank> {
    let (mut looked_at, mut waits): (u64, BTreeMap<u32, Vec<f64>>) = (0, BTreeMap::new());
    // A trace that begins or ends within a call has it on some ranks only, and the calls cannot be matched.
    for calls in calls.filter(|calls| ranks.iter().all(|rank| calls.contains_key(rank)) && are_equally_many(calls)) {
        let count = calls.values().next().map_or(0, Vec::len);
        for at in 0..count {
            looked_at += 1;
            let durations = calls.iter().map(|(rank, durations)| (durations[at], *rank));
            let (shortest, rank) = durations.clone().min_by(|one, other| one.0.total_cmp(&other.0))?;
            let longest = durations.map(|(duration, _)| duration).fold(0.0, f64::max);
            if longest - shortest > WAIT_SHARE * longest {
                waits.entry(rank).or_default().push(longest - shortest);
            }
        }
    }
    let (rank, waits) = waits.into_iter().max_by_key(|(_, waits)| waits.len())?;
    let late = waits.len() as u64;
    if looked_at < FEWEST_CALLS || (late as f64) < LATE_SHARE * looked_at as f64 {
        return None;
    }
    let waited_seconds_median = Seconds(median(&sorted(waits))?);
    Some(LateRank { rank, place: place.clone(), group: ranks.to_vec(), calls: looked_at, late, waited_seconds_median })
}

fn are_equally_many(calls: &CallsOfRank) -> bool {
    let mut counts = calls.values().map(Vec::len);
    let first = counts.next();
    counts.all(|count| Some(count) == first)
}
