//! A plan of the calls recorded in a trace: each rank has its own program, with its own order of calls and gaps of computing.
//!
//! `calls` simulates the records: it matches the calls of the ranks, rejects contradictions, and lets no rank wait for calls that others
//! start after it. The programs are made from the result.

mod calls;

pub use calls::{RecordedAction, RecordedCall, RecordedKind, RecordedRank};

use super::ReplayPlan;
use crate::layout::{Axis, Groups};
use crate::workload::op::Pass;
use crate::workload::replay::expand::Emitter;
use crate::workload::replay::{Movement, ReplayProgram};
use crate::workload::step::AxisTotals;
use crate::workload::{Op, Style};
use calls::{CallClass, Matched, Moves};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::geometry::Geometry;
use commgauge_base::units::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The work of a trace's ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedReplay {
    /// The groups of every axis that any rank uses.
    pub groups: Vec<Groups>,
    /// The work of each rank.
    pub ranks: Vec<RecordedRank>,
    /// From a rank's first call to the end of its last, on the slowest rank; absent if the trace has no times.
    pub job_nanoseconds: Option<u64>,
    /// Parts of the trace that the replay omits.
    pub notes: Vec<String>,
}

impl TracedReplay {
    /// The plan, with the programs of this process's ranks.
    ///
    /// # Errors
    /// Calls that contradict each other, or cannot be executed.
    pub fn plan(&self, plays: impl Fn(u32) -> bool) -> Result<ReplayPlan> {
        let plan = ReplayPlan::of_recorded(self.groups.clone(), &self.ranks, plays)?;
        Ok(ReplayPlan { job_nanoseconds: self.job_nanoseconds, ..plan })
    }
}

impl ReplayPlan {
    /// The plan of the work of ranks, one after another from rank 0 on, with the programs of this process's ranks, selected by `plays`.
    ///
    /// # Errors
    /// Calls that contradict each other, or cannot be executed.
    pub fn of_recorded(groups: Vec<Groups>, ranks: &[RecordedRank], plays: impl Fn(u32) -> bool) -> Result<ReplayPlan> {
        let matched = calls::matched(&groups, ranks)?;
        plan(groups, ranks, &matched, plays)
    }
}

// Programs of the ranks, from their matched calls.

/// The name in records that replaces a schedule's.
pub const RECORDED_SCHEDULE: &str = "trace";

/// The programs of all ranks; those of this process are kept.
fn plan(
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

/// A class with the data that its calls need.
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

/// A number for each type and size of messages: messages of one number arrive in order.
type Streams = HashMap<(ElementType, Bytes), u32>;

fn streams(classes: &[CallClass]) -> Streams {
    let mut streams = Streams::new();
    for class in classes.iter().filter(|class| matches!(class.moves, Moves::Message { .. })) {
        let next = streams.len() as u32;
        streams.entry((class.element, class.bytes_total)).or_insert(next);
    }
    streams
}

/// For each class, whether it is a collective that every rank waits for right after its start: MPI's blocking calls only match each other.
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
    // In class order, which is the same on all ranks.
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

/// The traffic of a rank on each axis.
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

#[cfg(test)]
mod tests {
    // Consistent records have programs without deadlock; others are rejected with the contradiction.
    use super::super::deadlock::carry_out;
    use super::super::{Action, Movement};
    use super::*;
    use crate::layout::Axis;
    use RecordedAction::{Compute, Start, Wait};
    use commgauge_base::collective::Collective;
    use commgauge_base::element::ElementType;
    use commgauge_base::units::Bytes;

    /// Two pipelines of two stages, and all ranks.
    fn groups() -> Vec<Groups> {
        vec![
            Groups { axis: Axis::Pp, groups: vec![vec![0, 2], vec![1, 3]] },
            Groups { axis: Axis::World, groups: vec![vec![0, 1, 2, 3]] },
        ]
    }

    fn call(groups: usize, kind: RecordedKind, bytes: u64) -> RecordedCall {
        let element = ElementType::Float32;
        RecordedCall { groups, kind, element, bytes_total: Bytes(bytes), elements_to_each: None, sequence: None }
    }

    fn together(collective: Collective, bytes: u64) -> RecordedCall {
        call(1, RecordedKind::Together(collective), bytes)
    }

    /// Every call waited for at once, after some computing.
    fn one_by_one(calls: &[RecordedCall]) -> RecordedRank {
        let of = |call| [Compute { nanoseconds: 5 }, Start { call }, Wait { call }];
        RecordedRank { calls: calls.to_vec(), actions: (0..calls.len()).flat_map(of).collect() }
    }

    fn plan(ranks: &[RecordedRank]) -> Result<ReplayPlan> {
        ReplayPlan::of_recorded(groups(), ranks, |_| true)
    }

    fn refused(ranks: &[RecordedRank]) -> String {
        let error = plan(ranks).expect_err("it is inconsistent");
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    }

    #[test]
    fn calls_keep_their_order_sizes_and_gaps_on_every_rank() {
        let calls = [
            together(Collective::AllReduce, 64),
            together(Collective::AllGather, 160),
            together(Collective::AllReduce, 64),
        ];
        let plan = plan(&[0; 4].map(|_| one_by_one(&calls))).unwrap();
        carry_out(&plan);
        for (rank, program) in plan.programs.iter().flatten().enumerate() {
            let started: Vec<(Collective, u64)> = program
                .actions
                .iter()
                .filter_map(|action| match action {
                    Action::Start { slot } => Some(program.op_of(&program.slots[*slot as usize])),
                    _ => None,
                })
                .map(|op| (op.collective, op.bytes_total.0))
                .collect();
            let expected = [(Collective::AllReduce, 64), (Collective::AllGather, 160), (Collective::AllReduce, 64)];
            assert_eq!((started.as_slice(), program.compute_nanoseconds()), (&expected[..], 15), "rank {rank}");
            // Twice 2 x 3/4 of 64, and 3/4 of 160.
            let [totals] = &plan.listed[rank][..] else { panic!("{:?}", plan.listed) };
            let bytes =
                (totals.payload_bytes_per_step.0, totals.wire_bytes_per_step.0, totals.exposed_wire_bytes_per_step.0);
            assert_eq!(bytes, (288, 192 + 120, 192 + 120));
            assert!(program.at_once.iter().all(|at_once| *at_once));
        }
    }

    #[test]
    fn a_call_that_one_rank_overlaps_is_started_by_all_alike() {
        let calls = [together(Collective::AllReduce, 64)];
        let overlapped = RecordedRank {
            calls: calls.to_vec(),
            actions: vec![Start { call: 0 }, Compute { nanoseconds: 9 }, Wait { call: 0 }],
        };
        let ranks = [one_by_one(&calls), overlapped, one_by_one(&calls), one_by_one(&calls)];
        let plan = plan(&ranks).unwrap();
        carry_out(&plan);
        // MPI's blocking calls only match each other.
        assert!(plan.programs.iter().flatten().all(|program| program.at_once == [false]));
    }

    #[test]
    fn messages_that_both_ends_send_first_do_not_wait() {
        let exchange = |peer: u32| {
            one_by_one(&[
                call(0, RecordedKind::Send { to: peer }, 40),
                call(0, RecordedKind::Receive { from: peer }, 40),
            ])
        };
        let plan = plan(&[exchange(1), exchange(1), exchange(0), exchange(0)]).unwrap();
        carry_out(&plan);
        let program = plan.programs[0].as_ref().unwrap();
        let kinds: Vec<Movement> = program.slots.iter().map(|slot| slot.movement).collect();
        assert_eq!(kinds, [Movement::Send { to: 1, stream: 0 }, Movement::Receive { from: 1, stream: 0 }]);
        assert_eq!(program.actions.last(), Some(&Action::Wait { slot: 0 }), "the wait for a send moves to the end");
        assert_eq!(plan.listed[0][0].wire_bytes_per_step, Bytes(40), "receives count at the sender");
    }

    #[test]
    fn a_broadcast_does_not_hold_up_its_root() {
        // The root completes its broadcast before rank 1, which waits for a message that the root sends afterwards, enters it.
        let root = one_by_one(&[together(Collective::Broadcast, 8), call(0, RecordedKind::Send { to: 1 }, 40)]);
        let other = one_by_one(&[together(Collective::Broadcast, 8)]);
        let last = one_by_one(&[call(0, RecordedKind::Receive { from: 0 }, 40), together(Collective::Broadcast, 8)]);
        let plan = plan(&[root, other.clone(), last, other]).unwrap();
        carry_out(&plan);
    }

    #[test]
    fn an_uneven_exchange_sends_what_each_rank_says() {
        let rows = [vec![1, 2, 3, 4], vec![4, 0, 0, 0], vec![1, 1, 1, 1], vec![0, 0, 5, 0]];
        let of = |row: &Vec<u64>| {
            let bytes = 4 * row.iter().sum::<u64>();
            let call = RecordedCall { elements_to_each: Some(row.clone()), ..together(Collective::AllToAll, bytes) };
            one_by_one(&[call])
        };
        let plan = plan(&rows.each_ref().map(of)).unwrap();
        carry_out(&plan);
        let program = plan.programs[0].as_ref().unwrap();
        assert_eq!(program.ops[0].collective, Collective::AllToAllV);
        for (rank, row) in rows.iter().enumerate() {
            assert_eq!(&program.geometries[0].counts_sent(rank as u32), row);
        }
        // Rank 0 sends 9 elements to others, rank 2 receives 8 from others and sends 3.
        let wire: Vec<u64> = plan.listed.iter().map(|totals| totals[0].wire_bytes_per_step.0).collect();
        assert_eq!(wire, [36, 16, 32, 20]);
    }

    #[test]
    fn what_does_not_fit_together_is_refused_with_both_sides() {
        let reduce = |bytes| together(Collective::AllReduce, bytes);
        let three = |odd: RecordedRank| {
            let usual = one_by_one(&[reduce(64)]);
            [usual.clone(), odd, usual.clone(), usual]
        };
        let numbered = |number| RecordedCall { sequence: Some(number), ..reduce(64) };
        for (what, ranks, words) in [
            (
                "another size",
                three(one_by_one(&[reduce(68)])),
                "call 1 of rank 1, all_reduce of 68 B of float32 on world, does not fit",
            ),
            (
                "another call",
                three(one_by_one(&[together(Collective::AllGather, 64)])),
                "does not fit all_reduce of 64 B",
            ),
            (
                "a call fewer",
                three(one_by_one(&[])),
                "call 1 of rank 0, all_reduce of 64 B of float32 on world, waits for rank 1",
            ),
            ("a call more", three(one_by_one(&[reduce(64), reduce(64)])), "waits for rank 0,2-3"),
            (
                "another window",
                [numbered(3), numbered(4), numbered(3), numbered(3)].map(|call| one_by_one(&[call])),
                "numbers 4 and 3 of the group",
            ),
            (
                "an exchange without counts",
                [16, 32, 16, 16].map(|bytes| one_by_one(&[together(Collective::AllToAll, bytes)])),
                "for an uneven all_to_all the trace must have the counts for each rank",
            ),
            (
                "a message that no rank receives",
                [
                    one_by_one(&[call(0, RecordedKind::Send { to: 1 }, 8)]),
                    one_by_one(&[]),
                    one_by_one(&[]),
                    one_by_one(&[]),
                ],
                "waits for rank 2, whose trace lacks it",
            ),
            (
                "bytes that do not divide",
                [0; 4].map(|_| one_by_one(&[together(Collective::AllGather, 20)])),
                "divided among 4 ranks",
            ),
        ] {
            let found = refused(&ranks);
            assert!(found.contains(words), "{what}: {found}");
        }
    }
}
