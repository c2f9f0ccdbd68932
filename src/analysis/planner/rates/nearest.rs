//! Which measured curve is used for a call: the same call in the same place, or the nearest to it, and the possible
//! error of the difference.
//!
//! * Another number of concurrent groups: the fitted contention. If there is none, the groups share the links: going
//!   from g to g' groups, a fair share makes a call at most g'/g times as long, and at best leaves it unchanged; the
//!   estimate is the square root.
//! * Other hosts: the line in the steps of the algorithm that extrapolates a curve to other group sizes
//!   ([`crate::cost::transfer`]), through two numbers of hosts with equally many ranks on each.
//! * A message to a neighbour takes equally long for any number of neighbours: only whether it leaves the host counts.
//!
//! Everything but the same call in the same place is marked as extrapolated.

use crate::cost::transfer;
use crate::cost::{Labels, LoneCall, Place};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::units::Bytes;

/// The kind of call of a curve, without its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub collective: Collective,
    /// Only where the call reduces.
    pub element_type: Option<ElementType>,
}

/// A family of curves of one kind.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// Its index in the fit.
    pub family: usize,
    pub place: Place,
    /// Group sizes that were measured, ascending.
    pub ranks: Vec<u32>,
    /// Ranks and sizes that were measured without a curve.
    pub lone: Vec<LoneCall>,
    /// Labels that distinguish it from other families of the same kind and place.
    pub labels: Labels,
}

impl Candidate {
    /// Whether the family has the group size, two others to extrapolate from, or this very call.
    pub(super) fn answers(&self, ranks: u32, bytes_total: Bytes) -> bool {
        let is_it = |call: &LoneCall| call.ranks == ranks && call.bytes_total == bytes_total;
        self.ranks.contains(&ranks) || transfer::neighbours(&self.ranks, ranks).is_some() || self.lone.iter().any(is_it)
    }
}

/// Defaults of labels that a call does not state, as in nccl-tests.
const USUAL: [(&str, &str); 2] = [("placement", "out-of-place"), ("reduce_op", "sum")];

/// Leaves out families that differ from another one of the same place only in being unusual: in place, or no sum.
pub(super) fn usual_only(candidates: &mut Vec<Candidate>) {
    for (name, usual) in USUAL {
        let is_usual = |candidate: &Candidate| candidate.labels.get(name).is_some_and(|text| text == usual);
        let usual_places: Vec<Place> =
            candidates.iter().filter(|candidate| is_usual(candidate)).map(|candidate| candidate.place).collect();
        candidates.retain(|candidate| is_usual(candidate) || !usual_places.contains(&candidate.place));
    }
}

/// Slowdown of a call relative to the measured one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sharing {
    pub low: f64,
    pub middle: f64,
    pub high: f64,
}

impl Sharing {
    /// As many groups as measured.
    pub const SAME: Sharing = Sharing { low: 1.0, middle: 1.0, high: 1.0 };

    /// From `measured` concurrent groups on a host to `requested`, if no contention was fitted.
    pub fn unknown(measured: u32, requested: u32) -> Sharing {
        let ratio = f64::from(requested.max(1)) / f64::from(measured.max(1));
        Sharing { low: ratio.min(1.0), middle: ratio.sqrt(), high: ratio.max(1.0) }
    }
}

/// Calls of equal cost that replace one without a measurement: the even forms for the vector forms, a ring for a
/// chain.
pub(in crate::planner) fn stand_in(collective: Collective) -> Option<Collective> {
    use Collective::*;
    match collective {
        AllGatherV => Some(AllGather),
        ReduceScatterV => Some(ReduceScatter),
        AllToAllV => Some(AllToAll),
        SendRecvChain => Some(SendRecv),
        SendRecv => Some(SendRecvChain),
        _ => None,
    }
}

/// Whether a call is one message to a neighbour, which takes equally long for any size of the group.
pub(super) fn is_message(collective: Collective) -> bool {
    matches!(collective, Collective::SendRecv | Collective::SendRecvChain)
}

/// The types that may be used for one that was not measured: first those of equal width, then any.
pub(super) fn similar_type(wanted: ElementType, measured: &[ElementType]) -> Option<ElementType> {
    let same_width = measured.iter().find(|element| element.size() == wanted.size());
    same_width.or_else(|| measured.iter().min_by_key(|element| element.size().abs_diff(wanted.size()))).copied()
}

/// Of candidates on the same number of hosts, the one with the nearest number of concurrent groups, then the nearest stride.
pub(super) fn nearest_groups(
    candidates: impl Iterator<Item = usize>,
    all: &[Candidate],
    requested: Place,
) -> Option<usize> {
    let apart = |a: u32, b: u32| (f64::from(a.max(1)) / f64::from(b.max(1))).ln().abs();
    candidates.min_by(|a, b| {
        let distance = |index: usize| {
            let place = all[index].place;
            let groups = apart(place.concurrent_groups_per_node, requested.concurrent_groups_per_node);
            (groups, apart(place.stride, requested.stride))
        };
        let (a, b) = (distance(*a), distance(*b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    })
}
