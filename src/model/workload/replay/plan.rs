//! The programs of all stages of a process, and the groups that they need, from a step and its timetable.

use super::expand::{Expansion, MessageSource, messages_of};
use super::{Action, Movement, ReplayProgram, Timetable};
use crate::layout::{Axis, Groups};
use crate::workload::Op;
use crate::workload::schedule::PassDirection;
use crate::workload::step::{AxisTotals, Step, TrainingStep};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::error::{Error, Result};
use commgauge_base::pattern::segments::View;
use commgauge_base::units::Seconds;
use commgauge_base::writing::ascending;
use std::collections::HashMap;

/// The longest forward pass of a layer: an hour.
const LONGEST_LAYER_SECONDS: f64 = 3600.0;

/// Maximum number of actions in a program; more would take gigabytes.
const MOST_ACTIONS: u128 = 1 << 28;

/// How often a step is replayed, and what it simulates between its calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayOptions {
    /// Number of timed replays of the step.
    pub repetitions: u32,
    /// Number of replays before that.
    pub warm_up: u32,
    /// Simulated computing time of the forward pass of a micro-batch through one layer. Each gradient takes equally long.
    pub forward_seconds_per_layer: Seconds,
}

/// A step as programs.
#[derive(Clone, Debug)]
pub struct ReplayPlan {
    /// Name of the schedule.
    pub schedule: String,
    /// The groups of every axis that any stage uses, in the same order on all ranks.
    pub groups: Vec<Groups>,
    pub stage_of_rank: Vec<u32>,
    /// By stage; only the requested ones.
    pub programs: Vec<Option<ReplayProgram>>,
    /// By stage: the bytes that a rank moves on each axis, according to the list of ops.
    pub listed: Vec<Vec<AxisTotals>>,
    /// For a trace: the time that the job itself took, from a rank's first call to the end of its last, on the slowest rank.
    pub job_nanoseconds: Option<u64>,
}

impl ReplayPlan {
    /// The plan of a step, with the programs of the ranks of this process, selected by `plays`.
    ///
    /// # Errors
    /// A step that is not a training step, invalid options, or a step whose list of ops and schedule disagree.
    pub fn new(
        step: &Step,
        timetable: &Timetable,
        options: &ReplayOptions,
        plays: impl Fn(u32) -> bool,
    ) -> Result<ReplayPlan> {
        let Step::Training(training) = step else {
            let phase = step.phase_name();
            return Err(Error::usage(format!("a step of {phase} has no schedule; only training can be replayed")));
        };
        let forward_nanoseconds = forward_nanoseconds(options)?;
        let stages = step.stages().count();
        let ops: Vec<Vec<Op>> = (0..stages).map(|stage| step.ops_of_stage(stage)).collect::<Result<_>>()?;
        let groups: Vec<Groups> = Axis::ALL
            .into_iter()
            .filter(|axis| ops.iter().flatten().any(|op| op.axis == *axis))
            .map(|axis| step.layout().groups(axis))
            .collect();
        let stage_of_rank = stages_of_ranks(training);
        let mut wanted = vec![false; stages as usize];
        for (rank, stage) in (0u32..).zip(&stage_of_rank) {
            wanted[*stage as usize] |= plays(rank);
        }
        let program = |stage: u32| -> Result<Option<ReplayProgram>> {
            if !wanted[stage as usize] {
                return Ok(None);
            }
            program_of(training, stage, timetable, &ops, &groups, forward_nanoseconds).map(Some)
        };
        let programs = (0..stages).map(program).collect::<Result<_>>()?;
        let listed = (0..stages).map(|stage| listed(step, stage, &ops[stage as usize])).collect::<Result<_>>()?;
        let schedule = timetable.name.clone();
        Ok(ReplayPlan { schedule, groups, stage_of_rank, programs, listed, job_nanoseconds: None })
    }

    /// The program of a rank of this process.
    pub fn program_of_rank(&self, rank: u32) -> Option<&ReplayProgram> {
        self.programs.get(*self.stage_of_rank.get(rank as usize)? as usize)?.as_ref()
    }
}

fn forward_nanoseconds(options: &ReplayOptions) -> Result<u64> {
    let seconds = options.forward_seconds_per_layer.0;
    if !(0.0..=LONGEST_LAYER_SECONDS).contains(&seconds) {
        return Err(Error::usage(format!(
            "forward seconds per layer: found {seconds}; accepted: 0 (no computing) to {LONGEST_LAYER_SECONDS}"
        )));
    }
    if options.repetitions == 0 {
        return Err(Error::usage("repetitions of a replay: found 0; accepted: 1 or more"));
    }
    Ok((seconds * 1e9).round() as u64)
}

/// A rank's stage is its rank in its pipeline's group.
fn stages_of_ranks(step: &TrainingStep) -> Vec<u32> {
    let pipelines = step.layout.groups(Axis::Pp).groups;
    let mut stages = vec![0; step.layout.degrees.world() as usize];
    for (stage, rank) in pipelines.iter().flat_map(|group| (0u32..).zip(group)) {
        stages[*rank as usize] = stage;
    }
    stages
}

fn program_of(
    step: &TrainingStep,
    stage: u32,
    timetable: &Timetable,
    ops: &[Vec<Op>],
    groups: &[Groups],
    forward_nanoseconds: u64,
) -> Result<ReplayProgram> {
    let Some(events) = timetable.events.get(stage as usize) else {
        let found = timetable.events.len();
        return Err(Error::usage(format!("schedule {} has {found} stages, the layout has more", timetable.name)));
    };
    let own = &ops[stage as usize];
    refuse_too_long(step, own)?;
    let mut all = own.clone();
    let mut received: HashMap<MessageSource, usize> = HashMap::new();
    for event in events {
        let Some(from) = event.receives else { continue };
        let source = MessageSource { stage: from.stage, direction: event.pass.direction() };
        if received.contains_key(&source) {
            continue;
        }
        let theirs = ops.get(from.stage as usize).map_or(&[][..], Vec::as_slice);
        let message = one_message(theirs, source)?.ok_or_else(|| {
            let (to, from) = (stage, from.stage);
            Error::usage(format!("stage {to} waits for stage {from}, whose list of ops has no message for it"))
        })?;
        received.insert(source, all.len());
        all.push(message.clone());
    }
    one_message(own, MessageSource { stage, direction: PassDirection::Forward })?;
    one_message(own, MessageSource { stage, direction: PassDirection::Backward })?;
    let mut program = ReplayProgram {
        stage,
        own_ops: own.len(),
        geometries: all.iter().map(|op| geometry(op, step)).collect::<Result<_>>()?,
        groups: all.iter().map(|op| groups.iter().position(|of| of.axis == op.axis).unwrap_or(0)).collect(),
        ops: all.clone(),
        slots: Vec::new(),
        actions: Vec::new(),
        at_once: Vec::new(),
        check_order: Vec::new(),
    };
    Expansion::new(step, stage, events, &all, own.len(), &received, forward_nanoseconds).write(&mut program);
    as_listed(step, &program)?;
    Ok(program.with_orders())
}

/// The message that a stage with these ops sends in one direction. The list may have it several times, for the phases of the
/// pipeline.
fn one_message(ops: &[Op], source: MessageSource) -> Result<Option<&Op>> {
    let MessageSource { stage, direction } = source;
    let messages = messages_of(ops, direction);
    let Some(first) = messages.first().map(|op| &ops[*op]) else { return Ok(None) };
    match messages.iter().find(|op| (ops[**op].bytes_total, ops[**op].element) != (first.bytes_total, first.element)) {
        None => Ok(Some(first)),
        Some(other) => Err(Error::usage(format!(
            "stage {stage} sends messages of {} and of {} in one direction; only messages of one length can be replayed",
            first.bytes_total, ops[*other].bytes_total
        ))),
    }
}

fn geometry(op: &Op, step: &TrainingStep) -> Result<commgauge_base::geometry::Geometry> {
    let ranks = step.layout.group_size(op.axis);
    op.geometry(ranks).map_err(|problem| {
        Error::usage(format!("{} {} of {} cannot be replayed: {problem}", op.axis, op.collective, op.bytes_total))
    })
}

fn refuse_too_long(step: &TrainingStep, ops: &[Op]) -> Result<()> {
    let calls = |op: &Op| op.when.count_per_step(step.micro_batches).map_or(u128::MAX / 1024, u128::from);
    let actions = 4 * ops.iter().map(calls).fold(0u128, u128::saturating_add);
    if actions > MOST_ACTIONS {
        return Err(Error::usage(format!(
            "a step of {} calls on each rank is too long to replay; accepted: up to {}; use fewer micro-batches or layers",
            actions / 4,
            MOST_ACTIONS / 4
        )));
    }
    Ok(())
}

/// Checks that every listed op occurs in the program exactly as often as listed.
fn as_listed(step: &TrainingStep, program: &ReplayProgram) -> Result<()> {
    let starts = program.starts_per_op();
    for (op, starts) in program.ops[..program.own_ops].iter().zip(starts) {
        let listed = op.when.count_per_step(step.micro_batches).unwrap_or(0);
        if starts != listed {
            return Err(Error::usage(format!(
                "stage {}: the schedule {} performs {} {} of {} ({:?}) {starts} times in a step, the list of ops has {listed}; a schedule in which micro-batches pass different layers of a stage cannot be replayed",
                program.stage, step.training.pipeline.schedule, op.axis, op.collective, op.bytes_total, op.when,
            )));
        }
    }
    Ok(())
}

fn listed(step: &Step, stage: u32, ops: &[Op]) -> Result<Vec<AxisTotals>> {
    let axes = Axis::ALL.into_iter().filter(|axis| ops.iter().any(|op| op.axis == *axis));
    let totals = |axis| {
        let of_axis: Vec<Op> = ops.iter().filter(|op| op.axis == axis).cloned().collect();
        AxisTotals::of(step, stage, axis, &of_axis)
    };
    axes.map(totals).collect()
}

// Buffer regions of each call of a program: calls that can be active together never share a region that is written
// to.

/// Buffers begin at multiples of a page, so that none shares a cache line with its neighbour.
const GRAIN_BYTES: u64 = 4096;

/// A stretch of the memory of all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Offset in bytes.
    pub offset: u64,
    /// Length; 0 if the call has no such buffer.
    pub bytes: u64,
}

/// The buffers of every slot of a program on one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regions {
    /// Read by the call; shared by all calls of the same length, as reads do not conflict.
    pub send: Vec<Region>,
    /// Written by the call.
    pub receive: Vec<Region>,
    /// Length of the memory for reads.
    pub send_bytes: u64,
    /// Length of the memory for writes.
    pub receive_bytes: u64,
}

/// Placement of a collective in a replay: in place if that exists, as in training.
pub fn placement_of(collective: Collective) -> Placement {
    match collective.placements() {
        offered if offered.contains(&Placement::InPlace) => Placement::InPlace,
        _ => Placement::OutOfPlace,
    }
}

impl Regions {
    /// The regions of a program; `place` returns the group and the rank within it for an index of groups.
    ///
    /// # Errors
    /// If the rank is in no group of an op of its stage.
    pub fn of<'a>(program: &ReplayProgram, place: impl Fn(usize) -> Option<(&'a [u32], u32)>) -> Result<Regions> {
        Regions::placed(program, place, placement_of)
    }

    /// As [`Regions::of`], for backends that place collectives differently.
    ///
    /// # Errors
    /// As [`Regions::of`].
    pub fn placed<'a>(
        program: &ReplayProgram,
        place: impl Fn(usize) -> Option<(&'a [u32], u32)>,
        placement: fn(Collective) -> Placement,
    ) -> Result<Regions> {
        let mut regions = Regions::default();
        let lengths: Vec<Lengths> =
            (0..program.slots.len()).map(|slot| lengths(program, slot, &place, placement)).collect::<Result<_>>()?;
        let mut shared: HashMap<u64, u64> = HashMap::new();
        for Lengths { send, .. } in &lengths {
            let next = &mut regions.send_bytes;
            let offset = *shared.entry(*send).or_insert_with(|| advance(next, *send));
            regions.send.push(Region { offset, bytes: *send });
        }
        let shares = shares(program, &lengths);
        let mut offsets: HashMap<(u64, usize), u64> = HashMap::new();
        for (Lengths { receive, .. }, share) in lengths.iter().zip(shares) {
            let next = &mut regions.receive_bytes;
            let offset = *offsets.entry((*receive, share)).or_insert_with(|| advance(next, *receive));
            regions.receive.push(Region { offset, bytes: *receive });
        }
        Ok(regions)
    }
}

fn advance(next: &mut u64, bytes: u64) -> u64 {
    let offset = *next;
    *next = next.saturating_add(bytes.checked_next_multiple_of(GRAIN_BYTES).unwrap_or(u64::MAX));
    offset
}

/// Bytes that a slot reads and writes.
#[derive(Clone, Copy)]
struct Lengths {
    send: u64,
    receive: u64,
}

fn lengths<'a>(
    program: &ReplayProgram,
    slot: usize,
    place: &impl Fn(usize) -> Option<(&'a [u32], u32)>,
    placement: fn(Collective) -> Placement,
) -> Result<Lengths> {
    let slot = &program.slots[slot];
    let op = program.op_of(slot);
    let geometry = &program.geometries[slot.op as usize];
    match slot.movement {
        Movement::Send { .. } => Ok(Lengths { send: geometry.bytes_total.0, receive: 0 }),
        Movement::Receive { .. } => Ok(Lengths { send: 0, receive: geometry.bytes_total.0 }),
        Movement::Together => {
            let (group, me) = place(program.groups[slot.op as usize]).ok_or_else(|| {
                Error::usage(format!("a rank of stage {} is in no group of {}", program.stage, op.axis))
            })?;
            let placement = placement(op.collective);
            let view = View { collective: op.collective, placement, geometry, group, me, root: op.root };
            let (send, receive) = view.buffer_elements();
            Ok(Lengths { send: send * geometry.element_bytes, receive: receive * geometry.element_bytes })
        }
    }
}

/// For each slot the number of its buffer among those of the same length: the lowest that no concurrently active slot uses. A slot keeps
/// its buffer for the whole program.
fn shares(program: &ReplayProgram, lengths: &[Lengths]) -> Vec<usize> {
    let slots = program.slots.len();
    let mut concurrent: Vec<Vec<u32>> = vec![Vec::new(); slots];
    let mut in_flight: Vec<u32> = Vec::new();
    for action in &program.actions {
        match action {
            Action::Start { slot } => {
                if lengths[*slot as usize].receive == 0 {
                    continue;
                }
                for other in &in_flight {
                    if lengths[*other as usize].receive == lengths[*slot as usize].receive {
                        insert(&mut concurrent[*slot as usize], *other);
                        insert(&mut concurrent[*other as usize], *slot);
                    }
                }
                in_flight.push(*slot);
            }
            Action::Wait { slot } => in_flight.retain(|other| other != slot),
            Action::Compute { .. } => {}
        }
    }
    let mut shares = vec![usize::MAX; slots];
    for slot in 0..slots {
        let in_use: Vec<usize> = ascending(concurrent[slot].iter().map(|other| shares[*other as usize]));
        shares[slot] =
            in_use.iter().enumerate().find(|(place, share)| place != *share).map_or(in_use.len(), |gap| gap.0);
    }
    shares
}

fn insert(sorted: &mut Vec<u32>, slot: u32) {
    if let Err(place) = sorted.binary_search(&slot) {
        sorted.insert(place, slot);
    }
}
