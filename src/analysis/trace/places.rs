//! Which axis of a layout the groups of a trace are, by their ranks.

use super::call::CallKind;
use super::read::Trace;
use super::trace_file::{TracedCall, TracedGroup};
use commgauge_base::collective::Collective;
use commgauge_base::units::Bytes;
use commgauge_model::layout::{Axis, Layout};
use std::collections::{BTreeSet, HashMap};

/// Axes by which a group is named, where several have the same ranks: the first.
const AXES: [Axis; 24] = [
    Axis::Tp,
    Axis::Cp,
    Axis::Ep,
    Axis::Dp,
    Axis::Pp,
    Axis::Etp,
    Axis::Edp,
    Axis::DpCp,
    Axis::Mp,
    Axis::EtpEp,
    Axis::DpShard,
    Axis::DpReplicate,
    Axis::DpShardInner,
    Axis::DpShardOuter,
    Axis::CpInner,
    Axis::CpOuter,
    Axis::World,
    Axis::TpCp,
    Axis::TpCpDp,
    Axis::ExpertMp,
    Axis::Embedding,
    Axis::EpInner,
    Axis::EpOuter,
    Axis::Dcp,
];

const ALL_TO_ALL: CallKind = CallKind::Collective(Collective::AllToAll);

/// Where a group stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupPlace {
    /// A group of this axis.
    Axis(Axis),
    /// A group of no axis of the layout, or there is no layout: how many ranks it has, and how far apart.
    Shape(String),
}

impl GroupPlace {
    /// The name in tables.
    pub fn name(&self) -> &str {
        match self {
            GroupPlace::Axis(axis) => axis.name(),
            GroupPlace::Shape(shape) => shape,
        }
    }
}

/// The places of all groups of a trace.
#[derive(Clone, Debug)]
pub struct TracedPlaces {
    places: Vec<GroupPlace>,
    first_of: HashMap<Axis, Axis>,
    /// Groups whose all_to_alls are each a message of every rank to one other.
    permuted: BTreeSet<usize>,
}

impl TracedPlaces {
    /// The groups of a trace in a layout, or by their shapes alone.
    pub fn new(trace: &Trace, layout: Option<&Layout>) -> TracedPlaces {
        let mut axis_of: HashMap<Vec<u32>, Axis> = HashMap::new();
        let mut first_of: HashMap<Axis, Axis> = HashMap::new();
        let axes = AXES.iter().filter_map(|axis| layout.map(|layout| (*axis, layout)));
        for (axis, layout) in axes.filter(|(axis, layout)| layout.group_size(*axis) > 1) {
            for group in layout.groups(axis).groups {
                let first = *axis_of.entry(sorted(&group)).or_insert(axis);
                first_of.entry(axis).or_insert(first);
            }
        }
        let place = |group: &TracedGroup| match group.ranks.as_ref().and_then(|ranks| axis_of.get(&sorted(ranks))) {
            Some(axis) => GroupPlace::Axis(*axis),
            None => GroupPlace::Shape(shape(group, trace.world)),
        };
        let permuted = trace.permuted_groups();
        TracedPlaces { places: trace.groups.iter().map(place).collect(), first_of, permuted }
    }

    /// What a call comes to: an all_to_all in which every rank has something for one other alone, as PyTorch's `permute_tensor` sends blocks
    /// round a ring (torch/distributed/_functional_collectives.py), is a message to it.
    pub(in crate::trace) fn kind_of(&self, call: &TracedCall) -> CallKind {
        match call.kind {
            ALL_TO_ALL if self.permuted.contains(&call.group) => CallKind::Collective(Collective::SendRecv),
            kind => kind,
        }
    }

    /// The place of a group by its index in the trace.
    pub fn of(&self, group: usize) -> &GroupPlace {
        &self.places[group]
    }

    /// The axis by which the groups of this one are named, where another has the same ranks.
    pub fn named(&self, axis: Axis) -> Axis {
        self.first_of.get(&axis).copied().unwrap_or(axis)
    }
}

impl Trace {
    /// A job of which the trace does not say how many ranks it had had those of the layout. Groups of which it does not say the ranks get them,
    /// where the layout or the callers leave no choice.
    pub fn complete(&mut self, layout: &Layout) {
        let ranks = layout.group_size(Axis::World);
        if self.world.is_none() {
            self.world = Some(ranks);
            self.note_missing_ranks();
        }
        self.complete_named_groups(ranks as usize == self.ranks.len());
        if is_of_one_group(layout) {
            self.complete_with_only_group(ranks);
        }
    }

    /// Where a layout has one group alone, it is the group of every call of which the trace does not say the ranks. Where it does not even name
    /// one, what one rank passes into an all_gather, as gloo's events have it, is made the whole.
    fn complete_with_only_group(&mut self, ranks: u32) {
        let mut unnamed = BTreeSet::new();
        for (at, group) in self.groups.iter_mut().enumerate().filter(|(_, group)| group.ranks.is_none()) {
            if group.size.is_none_or(|size| size == ranks) {
                group.ranks = Some((0..ranks).collect());
                unnamed.extend(group.name.is_empty().then_some(at));
            }
        }
        for call in self.calls.iter_mut().filter(|call| unnamed.contains(&call.group)) {
            if let CallKind::Collective(Collective::AllGather | Collective::Gather) = call.kind {
                call.bytes_total = Bytes(call.bytes_total.0.saturating_mul(u64::from(ranks)));
            }
        }
        if !unnamed.is_empty() {
            self.notes.push(format!(
                "calls that name no group are taken to be on the one of {ranks} ranks that the layout has, and their all_gathers are counted whole"
            ));
        }
    }

    /// Groups of which every all_to_all goes to one other rank alone: of a router of experts that is never so of all.
    fn permuted_groups(&self) -> BTreeSet<usize> {
        let (mut permuted, mut others) = (BTreeSet::new(), BTreeSet::new());
        for call in self.calls.iter().filter(|call| call.kind == ALL_TO_ALL) {
            let members = self.groups[call.group].ranks.as_ref();
            let mine = members.and_then(|members| members.iter().position(|rank| *rank == call.rank));
            let to_each = call.detail.elements_to_each.as_deref().unwrap_or_default();
            let mut targets = to_each.iter().enumerate().filter(|(_, elements)| **elements > 0).map(|(at, _)| at);
            let is_message = matches!((targets.next(), targets.next()), (Some(target), None) if mine.is_some_and(|mine| mine != target));
            if is_message {
                permuted.insert(call.group)
            } else {
                others.insert(call.group)
            };
        }
        &permuted - &others
    }

    fn complete_named_groups(&mut self, all_are_there: bool) {
        let callers = self.callers();
        for (at, group) in self.groups.iter_mut().enumerate().filter(|(_, group)| group.ranks.is_none()) {
            group.ranks = callers.get(&at).and_then(|callers| callers_as_group(group, callers, all_are_there));
        }
    }
}

/// The ranks of a group of which the trace has only the name, as gloo's flight recorder: those that call on it, where none can be missing. PyTorch
/// gives the groups of a job names that are the same on all ranks (`_process_group_name` of torch/distributed/distributed_c10d.py).
pub(in crate::trace) fn callers_as_group(
    group: &TracedGroup,
    callers: &BTreeSet<u32>,
    all_are_there: bool,
) -> Option<Vec<u32>> {
    let is_complete = group.size.map_or(all_are_there, |size| size as usize == callers.len());
    (is_complete && !group.name.is_empty()).then(|| callers.iter().copied().collect())
}

/// Whether every axis of more than one rank has all ranks.
fn is_of_one_group(layout: &Layout) -> bool {
    let ranks = layout.group_size(Axis::World);
    // Not every pipeline shares an embedding.
    let axes = AXES.iter().filter(|axis| **axis != Axis::Embedding);
    ranks > 1 && axes.map(|axis| layout.group_size(*axis)).all(|size| size == 1 || size == ranks)
}

fn sorted(ranks: &[u32]) -> Vec<u32> {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    ranks
}

fn shape(group: &TracedGroup, world: Option<u32>) -> String {
    let Some(ranks) = &group.ranks else {
        return match (group.size, group.name.as_str()) {
            (Some(size), name) => format!("{size} ranks ({name})"),
            (None, "") => "unknown group".to_owned(),
            (None, name) => format!("group {name}"),
        };
    };
    if world == Some(ranks.len() as u32) {
        return Axis::World.name().to_owned();
    }
    let ranks = sorted(ranks);
    let stride = ranks.get(1).map_or(0, |second| second - ranks[0]);
    match ranks.windows(2).all(|pair| pair[1] - pair[0] == stride) {
        true if ranks.len() > 1 => format!("{} ranks, stride {stride}", ranks.len()),
        _ => format!("{} ranks", ranks.len()),
    }
}
