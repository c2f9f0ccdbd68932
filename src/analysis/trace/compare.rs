//! The calls of a trace compared with the list of a step.

use super::call::CallKind;
use super::expected::{ExpectedOp, ExpectedStep, ListedStages};
use super::places::{GroupPlace, TracedPlaces};
use super::read::Trace;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::units::Bytes;
use commgauge_model::layout::Layout;
use std::collections::BTreeMap;

/// Counts that differ by less of a call in a step are the same: a trace may begin or end within a step.
const SAME_COUNT: f64 = 0.5;

/// How a call of the trace and one of the list compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The same call, as often.
    Same,
    /// The same call, more or less often.
    Count,
    /// The same call of another size or type.
    Size,
    /// In the list, and not in the trace.
    Missing,
    /// In the trace, and not in the list.
    Extra,
    /// In the list, for ranks of which the trace has none.
    NotTraced,
    /// In the trace, of ranks of a pipeline stage of which the list has nothing on this axis.
    OtherStage,
}

impl Difference {
    /// The name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Difference::Same => "same",
            Difference::Count => "other count",
            Difference::Size => "other size",
            Difference::Missing => "missing",
            Difference::Extra => "extra",
            Difference::NotTraced => "not traced",
            Difference::OtherStage => "other stage",
        }
    }
}

/// Size, type and count of a call on one of both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneSide {
    /// Type of the elements; none of a barrier, and where the trace does not say it.
    pub element: Option<ElementType>,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Calls of a rank in a step.
    pub calls_per_step: f64,
}

/// A call of the list, of the trace, or of both.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Where its groups are.
    pub place: GroupPlace,
    /// The call.
    pub kind: CallKind,
    /// As listed.
    pub expected: Option<OneSide>,
    /// As traced.
    pub traced: Option<OneSide>,
    /// How both compare.
    pub difference: Difference,
}

/// What distinguishes calls of one kind at one place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct CallSize {
    /// None of a barrier, and where the trace does not say it.
    element: Option<ElementType>,
    bytes_total: Bytes,
}

/// The calls of one kind at one place, as listed and as traced: how many in a step.
#[derive(Default)]
struct Calls {
    expected: BTreeMap<CallSize, f64>,
    traced: BTreeMap<CallSize, f64>,
    /// Of ranks of stages that the list is not of.
    elsewhere: BTreeMap<CallSize, f64>,
    is_traced: bool,
}

/// Holds a trace of that many steps against a listed step on its layout.
pub fn compare(
    trace: &Trace,
    places: &TracedPlaces,
    steps: u64,
    expected: &ExpectedStep,
    layout: &Layout,
) -> Vec<Compared> {
    let mut all: BTreeMap<(GroupPlace, CallKind), Calls> = BTreeMap::new();
    for op in &expected.ops {
        let place = GroupPlace::Axis(places.named(op.axis));
        let calls = all.entry((place, kind_of(op.collective))).or_default();
        *calls.expected.entry(CallSize::of(op)).or_default() += op.count_per_step as f64;
        calls.is_traced |= trace.ranks.iter().any(|rank| layout.stage_of(*rank) == op.stage);
    }
    let stages = ListedStages::of(expected, places);
    let is_listed = |place: &GroupPlace, rank| stages.has(place, layout.stage_of(rank));
    for ((place, kind, size), counts) in counts_per_rank(trace, places) {
        let calls = all.entry((place.clone(), kind)).or_default();
        let most = |counts: Vec<u64>| counts.into_iter().max().map(|count| count as f64 / steps as f64);
        let (listed, elsewhere): (Vec<_>, Vec<_>) = counts.into_iter().partition(|(rank, _)| is_listed(&place, *rank));
        let of = |counts: Vec<(u32, u64)>| most(counts.into_iter().map(|(_, count)| count).collect());
        calls.traced.extend(of(listed).map(|count| (size, count)));
        calls.elsewhere.extend(of(elsewhere).map(|count| (size, count)));
    }
    let compared = |((place, kind), calls): ((GroupPlace, CallKind), Calls)| calls.compared(&place, kind);
    all.into_iter().flat_map(compared).collect()
}

impl Calls {
    /// Where the trace does not say types, sizes alone are compared.
    fn without_unknown_types(self) -> Calls {
        if self.traced.keys().chain(self.elsewhere.keys()).all(|size| size.element.is_some()) {
            return self;
        }
        let without_types = |calls: BTreeMap<CallSize, f64>| {
            let mut sizes: BTreeMap<CallSize, f64> = BTreeMap::new();
            for (size, count) in calls {
                *sizes.entry(CallSize { element: None, ..size }).or_default() += count;
            }
            sizes
        };
        Calls {
            expected: without_types(self.expected),
            traced: without_types(self.traced),
            elsewhere: without_types(self.elsewhere),
            ..self
        }
    }

    fn compared(self, place: &GroupPlace, kind: CallKind) -> Vec<Compared> {
        let mut this = self.without_unknown_types();
        let is_known = |size: &CallSize| this.expected.contains_key(size) || this.traced.contains_key(size);
        let elsewhere: Vec<_> = this.elsewhere.iter().filter(|(size, _)| !is_known(size)).collect();
        let elsewhere: Vec<OneSide> = elsewhere.into_iter().map(|(size, count)| size.one_side(*count)).collect();
        let mut rows = Vec::new();
        let row = |expected: Option<OneSide>, traced: Option<OneSide>, difference| Compared {
            place: place.clone(),
            kind,
            expected,
            traced,
            difference,
        };
        let (mut missing, mut extra) = (Vec::new(), Vec::new());
        for (size, expected) in std::mem::take(&mut this.expected) {
            let expected = size.one_side(expected);
            match this.traced.remove(&size).map(|count| size.one_side(count)) {
                Some(traced) => {
                    let is_same = (traced.calls_per_step - expected.calls_per_step).abs() < SAME_COUNT;
                    rows.push(row(
                        Some(expected),
                        Some(traced),
                        if is_same { Difference::Same } else { Difference::Count },
                    ));
                }
                None => missing.push(expected),
            }
        }
        extra.extend(this.traced.into_iter().map(|(size, count)| size.one_side(count)));
        let pairs = missing.len().min(extra.len());
        let absent = if this.is_traced { Difference::Missing } else { Difference::NotTraced };
        let unpaired = missing.split_off(pairs).into_iter().map(|side| row(Some(side), None, absent));
        let unlisted: Vec<OneSide> = extra.split_off(pairs);
        rows.extend(missing.into_iter().zip(extra).map(|(one, other)| row(Some(one), Some(other), Difference::Size)));
        rows.extend(unpaired);
        rows.extend(unlisted.into_iter().map(|side| row(None, Some(side), Difference::Extra)));
        rows.extend(elsewhere.into_iter().map(|side| row(None, Some(side), Difference::OtherStage)));
        rows
    }
}

impl CallSize {
    fn of(op: &ExpectedOp) -> CallSize {
        let is_barrier = op.collective == Collective::Barrier;
        CallSize { element: (!is_barrier).then_some(op.element_type), bytes_total: op.bytes_total }
    }

    fn one_side(self, calls_per_step: f64) -> OneSide {
        OneSide { element: self.element, bytes_total: self.bytes_total, calls_per_step }
    }
}

/// The kind under which a job calls a listed one: messages one by one, and calls of uneven shares under the name of even ones.
fn kind_of(collective: Collective) -> CallKind {
    match collective {
        Collective::SendRecv | Collective::SendRecvChain | Collective::PingPong | Collective::Bidirectional => {
            CallKind::Send
        }
        Collective::AllGatherV => CallKind::Collective(Collective::AllGather),
        Collective::ReduceScatterV => CallKind::Collective(Collective::ReduceScatter),
        Collective::AllToAllV => CallKind::Collective(Collective::AllToAll),
        even => CallKind::Collective(even),
    }
}

/// How often each rank makes each call; what is received was sent, and is counted there.
fn counts_per_rank(
    trace: &Trace,
    places: &TracedPlaces,
) -> BTreeMap<(GroupPlace, CallKind, CallSize), BTreeMap<u32, u64>> {
    let mut per_rank: BTreeMap<(GroupPlace, CallKind, CallSize), BTreeMap<u32, u64>> = BTreeMap::new();
    for call in trace.calls.iter().filter(|call| call.kind != CallKind::Receive) {
        let size = CallSize { element: call.element, bytes_total: call.bytes_total };
        let kind = match places.kind_of(call) {
            CallKind::Collective(collective) => kind_of(collective),
            message => message,
        };
        let key = (places.of(call.group).clone(), kind, size);
        *per_rank.entry(key).or_default().entry(call.rank).or_default() += 1;
    }
    per_rank
}
