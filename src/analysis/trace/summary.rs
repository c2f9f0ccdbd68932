//! The calls of a trace by place, call, type and size: how often each comes in a step, and how long it takes.

use super::call::CallKind;
use super::places::{GroupPlace, TracedPlaces};
use super::read::Trace;
use commgauge_base::element::ElementType;
use commgauge_base::stats::{median, percentile, sorted};
use commgauge_base::units::{Bytes, Seconds};
use std::collections::{BTreeMap, BTreeSet};

/// What identifies a call of a step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallKey {
    pub place: GroupPlace,
    pub kind: CallKind,
    pub element: Option<ElementType>,
    pub bytes_total: Bytes,
}

/// A call of a step, with all the times that it came.
#[derive(Clone, Debug, PartialEq)]
pub struct CountedCall {
    /// Where its groups are.
    pub place: GroupPlace,
    /// The call.
    pub kind: CallKind,
    /// Type of the elements; none of a barrier, and where the trace does not say it.
    pub element: Option<ElementType>,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Ranks of a group, where they are known.
    pub group_size: Option<u32>,
    /// Groups in which it was seen.
    pub groups: u64,
    /// Ranks that called it.
    pub ranks: u64,
    /// Calls of the rank with the most, in a step.
    pub calls_per_step: f64,
    /// Median time over all calls, where the trace has times.
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

/// Counts the calls of a trace of that many steps: in the order of place, call, type and size.
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
    /// Ranks of a group, where they are known.
    pub fn group_size(&self, group: usize) -> Option<u32> {
        let group = &self.groups[group];
        group.ranks.as_ref().map(|ranks| ranks.len() as u32).or(group.size)
    }
}
