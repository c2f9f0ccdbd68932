//! Which measured curve stands in for a call: the same call in the same place, or what is nearest to it, and what the
//! difference may cost.
//!
//! * Another number of concurrent groups: they share the links. Going from g to g' groups, a fair share makes a call at most
//!   g'/g times as long, and at best leaves it as it is; in the middle, without anything measured, is the square root.
//! * Other hosts: the line in the steps of the algorithm that carries a curve over to other group sizes
//!   ([`crate::cost::transfer`]), through two numbers of hosts with equally many ranks on each.
//! * A message to a neighbour takes as long however many neighbours there are: only whether it leaves the host counts.
//!
//! Everything but the same call in the same place is extrapolated, and said to be.

use crate::collective::Collective;
use crate::cost::Place;
use crate::element::ElementType;

/// What a curve was measured of, whatever the place.
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
}

/// How much longer a call may take than the one that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sharing {
    pub low: f64,
    pub middle: f64,
    pub high: f64,
}

impl Sharing {
    /// As many groups as were measured.
    pub const SAME: Sharing = Sharing { low: 1.0, middle: 1.0, high: 1.0 };

    /// From `measured` concurrent groups on a host to `asked`.
    pub fn of(measured: u32, asked: u32) -> Sharing {
        let ratio = f64::from(asked.max(1)) / f64::from(measured.max(1));
        Sharing { low: ratio.min(1.0), middle: ratio.sqrt(), high: ratio.max(1.0) }
    }
}

/// Calls that take as long, where one was not measured itself: the vector forms as the even ones, a chain as a ring.
pub(super) fn stand_in(collective: Collective) -> Option<Collective> {
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

/// Whether a call is one message to a neighbour, which takes as long whatever the size of the group.
pub(super) fn is_message(collective: Collective) -> bool {
    matches!(collective, Collective::SendRecv | Collective::SendRecvChain)
}

/// The types that may speak for one that was not measured: first those of equal width, then any.
pub(super) fn alike(wanted: ElementType, measured: &[ElementType]) -> Option<ElementType> {
    let same_width = measured.iter().find(|element| element.size() == wanted.size());
    same_width.or_else(|| measured.iter().min_by_key(|element| element.size().abs_diff(wanted.size()))).copied()
}

/// Of candidates on the same number of hosts, the one with the nearest number of concurrent groups, then the nearest stride.
pub(super) fn nearest_groups(
    candidates: impl Iterator<Item = usize>,
    all: &[Candidate],
    asked: Place,
) -> Option<usize> {
    let apart = |a: u32, b: u32| (f64::from(a.max(1)) / f64::from(b.max(1))).ln().abs();
    candidates.min_by(|a, b| {
        let distance = |index: usize| {
            let place = all[index].place;
            let groups = apart(place.concurrent_groups_per_node, asked.concurrent_groups_per_node);
            (groups, apart(place.stride, asked.stride))
        };
        let (a, b) = (distance(*a), distance(*b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    })
}
