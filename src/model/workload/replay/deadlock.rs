//! A checker for tests: executes the programs of all ranks at once under the strictest rules, and reports deadlocked
//! ranks.
//!
//! A collective is complete when all its members started it, a message when both its ends did. Messages are matched by
//! sender, receiver and stream, in order; collectives by group, in order.

use super::{Action, Movement, ReplayPlan};
use crate::layout::Axis;
use commgauge_base::collective::Collective;
use std::collections::HashMap;

/// Key by which the calls of several ranks are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum MatchKey {
    Group { groups: usize, group: usize, turn: u64 },
    Message { from: u32, to: u32, stream: u32, turn: u64 },
}

#[derive(Debug)]
struct Call {
    what: (Collective, u64),
    there: u32,
    needed: u32,
}

/// Executes all ranks; panics if calls do not match, and on a deadlock with the ranks involved.
pub(super) fn carry_out(plan: &ReplayPlan) {
    let ranks = plan.stage_of_rank.len();
    let mut calls: HashMap<MatchKey, Call> = HashMap::new();
    // By rank: how often it started what has this key.
    let mut turns: Vec<HashMap<MatchKey, u64>> = vec![HashMap::new(); ranks];
    let mut next = vec![0usize; ranks];
    let at_once: Vec<Option<Vec<bool>>> =
        plan.programs.iter().map(|program| program.as_ref().map(|program| program.at_once.clone())).collect();
    // Blocking and nonblocking calls never match each other in MPI (MPI-3.1 5.12).
    let mut blocking: HashMap<MatchKey, bool> = HashMap::new();
    let mut pending: Vec<HashMap<u32, MatchKey>> = vec![HashMap::new(); ranks];
    loop {
        let mut moved = false;
        for rank in 0..ranks as u32 {
            let program = plan.program_of_rank(rank).expect("every rank has a program");
            while let Some(action) = program.actions.get(next[rank as usize]) {
                match action {
                    Action::Compute { .. } => {}
                    Action::Start { slot } => {
                        let key = start(plan, rank, *slot, &mut calls, &mut turns[rank as usize]);
                        let of_stage = at_once[plan.stage_of_rank[rank as usize] as usize].as_ref();
                        let blocks = of_stage.expect("every rank has a program")[*slot as usize];
                        let agreed = *blocking.entry(key).or_insert(blocks);
                        assert_eq!(agreed, blocks, "rank {rank}: others of the group take the other kind of call");
                        let before = pending[rank as usize].insert(*slot, key);
                        assert_eq!(before, None, "rank {rank} starts slot {slot}, which is under way");
                    }
                    Action::Wait { slot } => {
                        let key = pending[rank as usize][slot];
                        if calls[&key].there < calls[&key].needed {
                            break;
                        }
                        pending[rank as usize].remove(slot);
                    }
                }
                next[rank as usize] += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    for rank in 0..ranks {
        let program = plan.program_of_rank(rank as u32).unwrap();
        let (done, all) = (next[rank], program.actions.len());
        assert_eq!(done, all, "rank {rank} waits for ever at {:?}", &program.actions[done..all.min(done + 2)]);
        assert!(pending[rank].is_empty(), "rank {rank} never waits for {:?}", pending[rank]);
    }
    let alone: Vec<_> = calls.iter().filter(|(_, call)| call.there != call.needed).collect();
    assert!(alone.is_empty(), "calls that not all came to: {alone:?}");
}

fn start(
    plan: &ReplayPlan,
    rank: u32,
    slot: u32,
    calls: &mut HashMap<MatchKey, Call>,
    turns: &mut HashMap<MatchKey, u64>,
) -> MatchKey {
    let program = plan.program_of_rank(rank).unwrap();
    let slot = program.slots[slot as usize];
    let (op, groups) = (program.op_of(&slot), program.groups[slot.op as usize]);
    let pipeline = |stage: u32| {
        let pipelines = plan.groups.iter().find(|groups| groups.axis == Axis::Pp).unwrap();
        pipelines.groups[pipelines.place_of(rank).unwrap().group][stage as usize]
    };
    let (key, needed) = match slot.movement {
        Movement::Together => {
            let group = plan.groups[groups].place_of(rank).expect("only members start a collective").group;
            (MatchKey::Group { groups, group, turn: 0 }, plan.groups[groups].groups[group].len() as u32)
        }
        Movement::Send { to, stream } => (MatchKey::Message { from: rank, to: pipeline(to), stream, turn: 0 }, 2),
        Movement::Receive { from, stream } => {
            (MatchKey::Message { from: pipeline(from), to: rank, stream, turn: 0 }, 2)
        }
    };
    let now = turns.entry(key).or_default();
    let key = match key {
        MatchKey::Group { groups, group, .. } => MatchKey::Group { groups, group, turn: *now },
        MatchKey::Message { from, to, stream, .. } => MatchKey::Message { from, to, stream, turn: *now },
    };
    *now += 1;
    let what = (op.collective, op.bytes_total.0);
    let call = calls.entry(key).or_insert(Call { what, there: 0, needed });
    assert_eq!(call.what, what, "rank {rank} at {key:?}");
    call.there += 1;
    key
}
