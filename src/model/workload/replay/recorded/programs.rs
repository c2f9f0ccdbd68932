//! Programs of what ranks did, from their matched calls.

use super::calls::{RecordedAction, RecordedRank};
use super::matching::{CallClass, Matched, Moves};
use crate::layout::{Axis, Groups};
use crate::workload::replay::emit::Emitter;
use crate::workload::replay::{Movement, ReplayPlan, ReplayProgram};
use crate::workload::step::AxisTotals;
use crate::workload::when::Pass;
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::geometry::Geometry;
use commgauge_base::units::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What stands for a schedule in the record of what was recorded.
pub const RECORDED_SCHEDULE: &str = "trace";

/// The programs of all ranks, of which those that this process plays are kept.
pub(super) fn plan(
    groups: Vec<Groups>,
    ranks: &[RecordedRank],
    matched: &Matched,
    plays: impl Fn(u32) -> bool,
) -> Result<ReplayPlan> {
    let at_once = classes_waited_for_at_once(matched);
    let streams = streams(&matched.classes);
    let classes: Vec<PlannedClass> = (matched.classes.iter().zip(at_once))
        .map(|(class, at_once)| PlannedClass::new(class, &groups, &streams, at_once))
        .collect::<Result<_>>()?;
    let mut programs = Vec::with_capacity(ranks.len());
    let mut listed = Vec::with_capacity(ranks.len());
    for rank in 0..ranks.len() {
        let program = program(rank, &classes, matched, &groups)?;
        listed.push(totals(rank as u32, &program, &groups)?);
        programs.push(plays(rank as u32).then_some(program));
    }
    Ok(ReplayPlan {
        schedule: RECORDED_SCHEDULE.to_owned(),
        groups,
        stage_of_rank: (0..ranks.len() as u32).collect(),
        programs,
        listed,
        job_nanoseconds: None,
    })
}

/// A class with what its calls need.
struct PlannedClass<'a> {
    class: &'a CallClass,
    op: Op,
    geometry: Geometry,
    stream: u32,
    at_once: bool,
}

impl<'a> PlannedClass<'a> {
    fn new(class: &'a CallClass, groups: &[Groups], streams: &Streams, at_once: bool) -> Result<PlannedClass<'a>> {
        let axis = groups[class.groups].axis;
        let ranks = groups[class.groups].groups[class.group].len() as u32;
        let collective = match (class.moves, &class.rows) {
            (Moves::Message { .. }, _) => Collective::SendRecvChain,
            (Moves::Together(_), Some(_)) => Collective::AllToAllV,
            (Moves::Together(collective), None) => collective,
        };
        let mut op = Op::new(Style::Sweep, axis, collective, class.element, class.bytes_total.0);
        let geometry = match &class.rows {
            Some(rows) => Geometry::of_rows(class.element, rows),
            None => op.geometry(ranks),
        };
        let cannot = |problem: String| {
            let what = format!("{collective} of {} of {} on {axis}", class.bytes_total, class.element);
            Error::usage(format!("{what} cannot be replayed: {problem}"))
        };
        let geometry = geometry.map_err(cannot)?;
        if class.rows.is_none() && geometry.bytes_total != class.bytes_total {
            return Err(cannot(format!("it cannot be divided among {ranks} ranks")));
        }
        op.bytes_total = geometry.bytes_total;
        let stream = streams.get(&(class.element, class.bytes_total)).copied().unwrap_or(0);
        Ok(PlannedClass { class, op, geometry, stream, at_once })
    }

    /// The part of a rank, by its place in the group.
    fn movement(&self, rank_in_group: u32) -> Movement {
        match self.class.moves {
            Moves::Together(_) => Movement::Together,
            Moves::Message { from, to } if from == rank_in_group => Movement::Send { to, stream: self.stream },
            Moves::Message { from, .. } => Movement::Receive { from, stream: self.stream },
        }
    }
}

/// A number for each type and size of messages: those of one number arrive in order.
type Streams = HashMap<(ElementType, Bytes), u32>;

fn streams(classes: &[CallClass]) -> Streams {
    let mut streams = Streams::new();
    for class in classes.iter().filter(|class| matches!(class.moves, Moves::Message { .. })) {
        let next = streams.len() as u32;
        streams.entry((class.element, class.bytes_total)).or_insert(next);
    }
    streams
}

/// For each class, whether it is a collective that every rank waits for right after its start: MPI's blocking calls match no others.
fn classes_waited_for_at_once(matched: &Matched) -> Vec<bool> {
    let mut at_once: Vec<bool> =
        matched.classes.iter().map(|class| matches!(class.moves, Moves::Together(_))).collect();
    for (rank, actions) in matched.actions.iter().enumerate() {
        for (index, action) in actions.iter().enumerate() {
            if let RecordedAction::Start { call } = action {
                let waits = actions.get(index + 1) == Some(&RecordedAction::Wait { call: *call });
                at_once[matched.class_of_call[rank][*call]] &= waits;
            }
        }
    }
    at_once
}

fn program(rank: usize, classes: &[PlannedClass], matched: &Matched, groups: &[Groups]) -> Result<ReplayProgram> {
    let class_of_call = &matched.class_of_call[rank];
    // In the order of the classes, which is the same on all ranks.
    let own: BTreeSet<usize> = class_of_call.iter().copied().collect();
    let own: Vec<usize> = own.into_iter().collect();
    let op_of_class: HashMap<usize, usize> = own.iter().enumerate().map(|(op, class)| (*class, op)).collect();
    let place_in = |class: &PlannedClass| {
        let place = groups[class.class.groups].place_of(rank as u32);
        place
            .map(|place| place.rank_in_group)
            .ok_or_else(|| Error::usage(format!("rank {rank} is in no group of its call")))
    };
    let movements: Vec<Movement> =
        own.iter().map(|class| Ok(classes[*class].movement(place_in(&classes[*class])?))).collect::<Result<_>>()?;
    let mut emitter = Emitter::default();
    let mut slot_of_call: HashMap<usize, u32> = HashMap::new();
    for action in &matched.actions[rank] {
        match *action {
            RecordedAction::Compute { nanoseconds } => emitter.compute(Pass::Forward, nanoseconds),
            RecordedAction::Start { call } => {
                let op = op_of_class[&class_of_call[call]];
                slot_of_call.insert(call, emitter.start(op, movements[op]));
            }
            RecordedAction::Wait { call } => slot_of_call.remove(&call).into_iter().for_each(|slot| emitter.wait(slot)),
        }
    }
    let of = |class: &usize| &classes[*class];
    let first_slot = |op: usize| emitter.slots.iter().position(|slot| slot.op as usize == op);
    Ok(ReplayProgram {
        stage: rank as u32,
        own_ops: own.len(),
        ops: own.iter().map(|class| of(class).op.clone()).collect(),
        geometries: own.iter().map(|class| of(class).geometry.clone()).collect(),
        groups: own.iter().map(|class| of(class).class.groups).collect(),
        at_once: emitter.slots.iter().map(|slot| of(&own[slot.op as usize]).at_once).collect(),
        check_order: (0..own.len()).filter_map(first_slot).collect(),
        slots: emitter.slots,
        actions: emitter.actions,
    })
}

/// What a rank moves on each axis.
fn totals(rank: u32, program: &ReplayProgram, groups: &[Groups]) -> Result<Vec<AxisTotals>> {
    let mut starts = vec![0u64; program.ops.len()];
    let mut exposed = vec![false; program.ops.len()];
    for action in &program.actions {
        if let crate::workload::replay::Action::Start { slot } = action {
            let slot_of = &program.slots[*slot as usize];
            exposed[slot_of.op as usize] = program.at_once[*slot as usize];
            starts[slot_of.op as usize] += u64::from(!matches!(slot_of.movement, Movement::Receive { .. }));
        }
    }
    let too_many = || Error::usage(format!("the bytes that rank {rank} of the trace moves do not fit 64 bits"));
    let mut by_axis: BTreeMap<Axis, AxisTotals> = BTreeMap::new();
    for (index, ((op, geometry), count)) in program.ops.iter().zip(&program.geometries).zip(starts).enumerate() {
        if count == 0 {
            continue;
        }
        let place = groups[program.groups[index]].place_of(rank);
        let wire = match op.collective {
            Collective::AllToAllV => {
                geometry.bytes_with_others(place.map_or(0, |place| place.rank_in_group)).checked_mul(count)
            }
            _ => op.wire_bytes(geometry.ranks(), count),
        };
        let wire = wire.ok_or_else(too_many)?;
        let payload = op.bytes_total.0.checked_mul(count).ok_or_else(too_many)?;
        let totals = by_axis.entry(op.axis).or_insert(AxisTotals {
            axis: op.axis,
            stage: rank,
            payload_bytes_per_step: Bytes(0),
            wire_bytes_per_step: Bytes(0),
            exposed_wire_bytes_per_step: Bytes(0),
        });
        let add = |sum: &mut Bytes, bytes: u64| -> Result<()> {
            sum.0 = sum.0.checked_add(bytes).ok_or_else(too_many)?;
            Ok(())
        };
        add(&mut totals.payload_bytes_per_step, payload)?;
        add(&mut totals.wire_bytes_per_step, wire)?;
        add(&mut totals.exposed_wire_bytes_per_step, if exposed[index] { wire } else { 0 })?;
    }
    Ok(by_axis.into_values().collect())
}
