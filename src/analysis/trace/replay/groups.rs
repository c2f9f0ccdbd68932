//! On which groups of the layout the calls of a trace are, and which of their ranks is which.

use crate::trace::places::{GroupPlace, TracedPlaces, callers_as_group};
use crate::trace::read::Trace;
use commgauge_base::error::{Error, Result};
use commgauge_model::layout::{Axis, Groups, Layout};
use std::collections::BTreeSet;

/// The groups of all calls.
pub(super) struct CallPlaces {
    groups: Vec<Groups>,
    /// By group of the trace: its ranks in the trace's order, and the index of its axis among `groups`; none of a group of one rank.
    places: Vec<Option<(Vec<u32>, usize)>>,
}

/// Where a call is.
pub(super) struct CallPlace<'a> {
    /// Index of the groups.
    pub groups: usize,
    pub peers: Peers<'a>,
}

/// The ranks of a group in the trace's order and in the layout's.
pub(super) struct Peers<'a> {
    traced: &'a [u32],
    members: &'a [u32],
    me: u32,
}

impl Peers<'_> {
    /// The rank within the layout's group of the other end of a message, which the trace numbers in its own order; of two ranks the other.
    pub(super) fn of(&self, peer: Option<u32>) -> Option<u32> {
        let world_rank = match peer {
            Some(peer) => *self.traced.get(peer as usize)?,
            None if self.traced.len() == 2 => *self.traced.iter().find(|rank| **rank != self.me)?,
            None => return None,
        };
        self.members.iter().position(|rank| *rank == world_rank).map(|at| at as u32)
    }

    /// Counts for each rank of the trace's group, in the order of the layout's.
    pub(super) fn in_order(&self, counts: &[u64]) -> Vec<u64> {
        let count_of =
            |rank: &u32| self.traced.iter().position(|traced| traced == rank).and_then(|at| counts.get(at)).copied();
        self.members.iter().filter_map(count_of).collect()
    }
}

impl CallPlaces {
    /// Finds the axis of every group on which there are calls.
    pub(super) fn new(trace: &Trace, layout: Option<&Layout>) -> Result<CallPlaces> {
        let used: BTreeSet<usize> = trace.calls.iter().map(|call| call.group).collect();
        let trace = groups_with_ranks(trace)?;
        let named = TracedPlaces::new(&trace, layout);
        let mut groups: Vec<Groups> = Vec::new();
        let mut places = Vec::with_capacity(trace.groups.len());
        for (index, group) in trace.groups.iter().enumerate() {
            let ranks = group.ranks.clone().unwrap_or_default();
            if ranks.len() < 2 || !used.contains(&index) {
                places.push(None);
                continue;
            }
            let of_axis = groups_of(named.of(index), &ranks, trace.world, layout)?;
            let at = groups.iter().position(|known| known.axis == of_axis.axis).unwrap_or_else(|| {
                groups.push(of_axis);
                groups.len() - 1
            });
            places.push(Some((ranks, at)));
        }
        Ok(CallPlaces { groups, places })
    }

    pub(super) fn groups(&self) -> &[Groups] {
        &self.groups
    }

    /// Whether nobody else is in a group.
    pub(super) fn is_alone(&self, group: usize) -> bool {
        self.places[group].is_none()
    }

    /// The place of a call of a rank on a group of the trace.
    pub(super) fn of(&self, group: usize, rank: u32) -> Result<CallPlace<'_>> {
        let outside = || {
            Error::usage(format!(
                "--trace: rank {rank} has a call on a group without it; accepted: the traces of one job"
            ))
        };
        let (traced, at) = self.places[group].as_ref().ok_or_else(outside)?;
        let groups = &self.groups[*at];
        let place = groups.place_of(rank).filter(|_| traced.contains(&rank)).ok_or_else(outside)?;
        Ok(CallPlace { groups: *at, peers: Peers { traced, members: &groups.groups[place.group], me: rank } })
    }
}

/// The groups of an axis of the layout, or all ranks.
fn groups_of(place: &GroupPlace, ranks: &[u32], world: Option<u32>, layout: Option<&Layout>) -> Result<Groups> {
    match (place, layout, world) {
        (GroupPlace::Axis(axis), Some(layout), _) => Ok(layout.groups(*axis)),
        (GroupPlace::Shape(shape), _, Some(world)) if shape == Axis::World.name() => Ok(Groups::world(world)),
        _ => Err(Error::usage(format!(
            "--trace: calls are on a group of ranks {} ({}), which is none of the layout; accepted: the degrees of the job (--tp, --dp, ..., \
             --order)",
            commgauge_base::rank_list::ranges(ranks),
            place.name()
        ))),
    }
}

/// The groups of a trace with their ranks, and no calls. Where it does not say the ranks, they are those that call on the group.
fn groups_with_ranks(trace: &Trace) -> Result<Trace> {
    let callers = trace.callers();
    let world = trace.world.or(Some(trace.ranks.len() as u32));
    let mut groups = Trace { world, groups: trace.groups.clone(), ..Trace::default() };
    for (index, group) in groups.groups.iter_mut().enumerate() {
        let (None, Some(callers)) = (&group.ranks, callers.get(&index)) else { continue };
        group.ranks = callers_as_group(group, callers, true);
        if group.ranks.is_none() {
            let size = group.size.map_or_else(String::new, |size| format!(" of {size} ranks"));
            return Err(Error::usage(format!(
                "--trace: the trace does not say which ranks are in a group{size} that {} ranks call on; accepted: traces of NCCL, dumps of the \
                 flight recorder, execution traces",
                callers.len()
            )));
        }
    }
    Ok(groups)
}
