//! The calls of a trace compared with the calls of a listed step.

use super::call::{CallKind, TracedCall, TracedGroup};
use super::read::Trace;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::host;
use commgauge_base::units::Bytes;
use commgauge_base::visible::ShownPath;
use commgauge_model::layout::{Axis, Layout, LayoutDescription};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// Counts per step that differ by less than this are equal: a trace may begin or end within a step.
const SAME_COUNT: f64 = 0.5;

/// Result of comparing a call of the trace with one of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(into = "&'static str")]
#[strum(serialize_all = "lowercase")]
pub enum Difference {
    /// The same call, the same number of times.
    Same,
    /// The same call, a different number of times.
    #[strum(serialize = "other count")]
    Count,
    /// The same call with another size or type.
    #[strum(serialize = "other size")]
    Size,
    /// In the list but not in the trace.
    Missing,
    /// In the trace but not in the list.
    Extra,
    /// In the list, for ranks that the trace lacks.
    #[strum(serialize = "not traced")]
    NotTraced,
    /// In the trace, from ranks of a pipeline stage that the list lacks on this axis.
    #[strum(serialize = "other stage")]
    OtherStage,
}

commgauge_base::error::names!(Difference);

/// Size, type and count of a call on one side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OneSide {
    /// Type of the elements; absent for a barrier, and if the trace lacks it.
    #[serde(rename = "element_type")]
    pub element: Option<ElementType>,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Calls of a rank in a step.
    pub calls_per_step: f64,
}

/// A call of the list, of the trace, or of both.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Compared {
    /// The axis of the layout whose groups these are, or their shape.
    #[schemars(with = "String")]
    pub place: GroupPlace,
    /// The call.
    #[serde(rename = "call")]
    #[schemars(with = "String")]
    pub kind: CallKind,
    /// `same`, `other count`, `other size`, `missing` (only in the list), `extra` (only in the trace), `other stage` (only in the trace,
    /// from ranks of a pipeline stage that the list lacks on this axis), or `not traced` (no rank that should call it is in the trace).
    #[schemars(with = "String")]
    pub difference: Difference,
    /// As listed.
    pub expected: Option<OneSide>,
    /// As traced.
    pub traced: Option<OneSide>,
}

/// What distinguishes calls of one kind at one place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct CallSize {
    /// Absent for a barrier, and if the trace lacks it.
    element: Option<ElementType>,
    bytes_total: Bytes,
}

/// The calls of one kind at one place, as listed and as traced, per step.
#[derive(Default)]
struct Calls {
    expected: BTreeMap<CallSize, f64>,
    traced: BTreeMap<CallSize, f64>,
    /// From ranks of stages outside the list.
    elsewhere: BTreeMap<CallSize, f64>,
    is_traced: bool,
}

/// Compares a trace of this many steps with a listed step on its layout.
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
        let (listed, elsewhere): (Vec<_>, Vec<_>) = counts.into_iter().partition(|(rank, _)| is_listed(&place, *rank));
        let of =
            |counts: Vec<(u32, u64)>| counts.iter().map(|(_, count)| *count as f64 / steps as f64).reduce(f64::max);
        calls.traced.extend(of(listed).map(|count| (size, count)));
        calls.elsewhere.extend(of(elsewhere).map(|count| (size, count)));
    }
    let compared = |((place, kind), calls): ((GroupPlace, CallKind), Calls)| calls.compared(&place, kind);
    all.into_iter().flat_map(compared).collect()
}

impl Calls {
    /// If the trace lacks types, only sizes are compared.
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
                    let difference = if is_same { Difference::Same } else { Difference::Count };
                    rows.push(row(Some(expected), Some(traced), difference));
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

/// The kind under which a job calls a listed one: messages one by one, and uneven calls under the name of even ones.
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

type CountsPerRank = BTreeMap<(GroupPlace, CallKind, CallSize), BTreeMap<u32, u64>>;

/// How often each rank makes each call; receives are counted at their send.
fn counts_per_rank(trace: &Trace, places: &TracedPlaces) -> CountsPerRank {
    let mut per_rank = CountsPerRank::new();
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

// The list of a step, for comparison with a trace.

/// The compared part of a step listed by `commgauge ops --format json`.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedStep {
    pub format: String,
    pub model: String,
    #[serde(flatten)]
    pub layout: LayoutDescription,
    pub ops: Vec<ExpectedOp>,
}

impl ExpectedStep {
    /// Reads the output of `commgauge ops --format json`.
    ///
    /// # Errors
    /// A usage error if the file cannot be read or is not such a list.
    pub fn read(path: &Path) -> Result<ExpectedStep> {
        let text = host::read_to_string(path)
            .map_err(|cause| Error::usage(format!("cannot read {}: {cause}", path.shown())))?;
        let wrong = |problem: String| {
            Error::usage(format!(
                "{} is not a step list: {problem}; accepted: the output of `commgauge ops --format json`",
                path.shown()
            ))
        };
        let step: ExpectedStep = serde_json::from_str(&text).map_err(|cause| wrong(cause.to_string()))?;
        match step.format.as_str() {
            "commgauge-ops" => Ok(step),
            other => Err(wrong(format!("its format is `{other}`"))),
        }
    }

    /// The pipeline stages in the list, if not all: calls of ranks on other stages are not compared.
    pub fn stages_note(&self, layout: &Layout) -> Option<String> {
        let stages = layout.group_size(Axis::Pp);
        let mut axes_of: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
        for op in &self.ops {
            axes_of.entry(op.stage).or_default().insert(op.axis.name());
        }
        let axes = |axes: &BTreeSet<&str>| axes.iter().copied().collect::<Vec<_>>().join(", ");
        let listed: Vec<String> = axes_of.iter().map(|(stage, of)| format!("stage {stage} ({})", axes(of))).collect();
        (stages > 1).then(|| {
            format!(
                "the list covers {} of {stages} pipeline stages; ranks of other stages are not compared: `commgauge ops --stage N` lists their calls",
                listed.join(" and ")
            )
        })
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedOp {
    /// The axis whose groups execute it.
    pub axis: Axis,
    pub collective: Collective,
    pub element_type: ElementType,
    /// The pipeline stage for which it is counted.
    pub stage: u32,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Calls of a rank in a step.
    pub count_per_step: u64,
}

/// The pipeline stages in a list.
pub(super) struct ListedStages {
    on_place: BTreeMap<GroupPlace, BTreeSet<u32>>,
    anywhere: BTreeSet<u32>,
}

impl ListedStages {
    pub(super) fn of(expected: &ExpectedStep, places: &TracedPlaces) -> ListedStages {
        let mut on_place: BTreeMap<GroupPlace, BTreeSet<u32>> = BTreeMap::new();
        for op in &expected.ops {
            on_place.entry(GroupPlace::Axis(places.named(op.axis))).or_default().insert(op.stage);
        }
        let anywhere = on_place.values().flatten().copied().collect();
        ListedStages { on_place, anywhere }
    }

    /// Whether the list covers the ranks of a stage at a place; at a place without any listed call, of any stage.
    pub(super) fn has(&self, place: &GroupPlace, stage: u32) -> bool {
        self.on_place.get(place).unwrap_or(&self.anywhere).contains(&stage)
    }
}

// Maps the groups of a trace to the axes of a layout, by their ranks.

/// Order of preference between axes with the same ranks: the first names the group.
const AXES: &str = "tp cp ep dp pp etp edp dp_cp mp etp_ep dp_shard dp_replicate dp_shard_inner dp_shard_outer cp_inner cp_outer world tp_cp tp_cp_dp expert_mp embedding ep_inner ep_outer dcp";

const ALL_TO_ALL: CallKind = CallKind::Collective(Collective::AllToAll);

/// The place of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(untagged)]
pub enum GroupPlace {
    Axis(Axis),
    /// A group that matches no axis of the layout, or no layout is given: its size and stride.
    Shape(String),
}

impl GroupPlace {
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
    /// Groups whose all_to_alls are each a message from every rank to one other.
    permuted: BTreeSet<usize>,
}

impl TracedPlaces {
    /// The groups of a trace in a layout, or by their shapes alone.
    pub fn new(trace: &Trace, layout: Option<&Layout>) -> TracedPlaces {
        let mut axis_of: HashMap<Vec<u32>, Axis> = HashMap::new();
        let mut first_of: HashMap<Axis, Axis> = HashMap::new();
        let axes = AXES.split(' ').filter_map(|name| Axis::named(name).zip(layout));
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

    /// The effective call: an all_to_all in which every rank sends to one other rank only, as when PyTorch's `permute_tensor` sends blocks
    /// round a ring (torch/distributed/_functional_collectives.py), is a message to that rank.
    pub(super) fn kind_of(&self, call: &TracedCall) -> CallKind {
        match call.kind {
            ALL_TO_ALL if self.permuted.contains(&call.group) => CallKind::Collective(Collective::SendRecv),
            kind => kind,
        }
    }

    /// The place of a group by its index in the trace.
    pub fn of(&self, group: usize) -> &GroupPlace {
        &self.places[group]
    }

    /// The axis that names the groups of this one, if another has the same ranks.
    pub fn named(&self, axis: Axis) -> Axis {
        self.first_of.get(&axis).copied().unwrap_or(axis)
    }
}

impl Trace {
    /// Completes a trace from the layout: a trace without the number of ranks gets the layout's, and groups without ranks get theirs if the
    /// layout or the callers leave no choice.
    pub fn complete(&mut self, layout: &Layout) {
        let ranks = layout.group_size(Axis::World);
        if self.world.is_none() {
            self.world = Some(ranks);
            self.note_missing_ranks();
        }
        self.complete_named_groups(ranks as usize == self.ranks.len());
        if has_one_group(layout) {
            self.complete_with_only_group(ranks);
        }
    }

    /// If a layout has only one group, every call without ranks belongs to it. If the call does not even name a group, as in gloo's events,
    /// its all_gather size is the input of one rank, and is converted to the whole.
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
                "calls without a group count on the layout's only group, of {ranks} ranks, and their all_gathers with the whole buffer"
            ));
        }
    }

    /// Groups in which every all_to_all goes to one other rank only: the router of experts never does that in all calls.
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

/// The ranks of a group of which the trace has only the name, as in gloo's flight recorder: its callers, if none can be missing. PyTorch
/// gives the groups of a job names that are the same on all ranks (`_process_group_name` of torch/distributed/distributed_c10d.py).
pub(super) fn callers_as_group(group: &TracedGroup, callers: &BTreeSet<u32>, all_are_there: bool) -> Option<Vec<u32>> {
    let is_complete = group.size.map_or(all_are_there, |size| size as usize == callers.len());
    (is_complete && !group.name.is_empty()).then(|| callers.iter().copied().collect())
}

/// Whether every axis with more than one rank spans all ranks.
fn has_one_group(layout: &Layout) -> bool {
    let ranks = layout.group_size(Axis::World);
    // Not every pipeline shares an embedding.
    let axes = AXES.split(' ').filter_map(Axis::named).filter(|axis| *axis != Axis::Embedding);
    ranks > 1 && axes.map(|axis| layout.group_size(axis)).all(|size| size == 1 || size == ranks)
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
