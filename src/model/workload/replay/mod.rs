//! One training step, or what a trace recorded, as a program for each rank: computing, started calls and waits, in order.
//!
//! Nothing is sent here; a backend executes the programs. All ranks of a stage have the same program, since every
//! group except those of the pipeline is within a stage; messages name the stage at their other end.
//!
//! Why there is no deadlock. Within a stage all ranks start the same calls in the same order. Groups across stages
//! (the embedding, all ranks of a replica) have calls only after the last pass, in the order of the list of ops, which
//! is the same on every stage. Messages are started, never waited for, until all passes are complete, and receives are
//! posted before they are waited for: so a pass waits only for passes before it in the schedule, which has no cycle.

mod buffers;
mod emit;
mod expand;
mod layer_calls;
mod plan;
mod recorded;
mod spread;
mod timetable;

#[cfg(test)]
mod deadlock;
#[cfg(test)]
mod tests;

pub use buffers::{Region, Regions, placement_of};
pub use plan::{ReplayOptions, ReplayPlan};
pub use recorded::{RECORDED_SCHEDULE, RecordedAction, RecordedCall, RecordedKind, RecordedRank};
pub use timetable::{Timetable, TimetableEvent, Transfer};

use super::Op;
use super::when::Pass;
use commgauge_base::geometry::Geometry;

/// Actions of a rank of a stage in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayProgram {
    /// The stage.
    pub stage: u32,
    /// The ops of the stage, and behind them those of its neighbours that it receives.
    pub ops: Vec<Op>,
    /// Number of `ops` that belong to the stage itself.
    pub own_ops: usize,
    /// Element counts of each op.
    pub geometries: Vec<Geometry>,
    /// Index of each op's groups in the plan.
    pub groups: Vec<usize>,
    /// Every call that can be active together with others, once.
    pub slots: Vec<Slot>,
    /// The actions, in order.
    pub actions: Vec<Action>,
    /// For each slot, whether it is a collective that all ranks of its group wait for right after its start, always.
    pub at_once: Vec<bool>,
    /// Slots in an order in which all ranks can carry them out one after another.
    pub check_order: Vec<usize>,
}

/// A call that can be active together with others. Two of one op that overlap in time are two slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Index of the op.
    pub op: u32,
    /// The transfer.
    pub movement: Movement,
}

/// The transfer of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Movement {
    /// All ranks of the group at once.
    Together,
    /// A message to the rank of another stage in the same pipeline.
    Send {
        /// Its stage, which is its rank in the pipeline's group.
        to: u32,
        /// Messages of one stream arrive in the order in which they were sent.
        stream: u32,
    },
    /// A message from the rank of another stage in the same pipeline.
    Receive {
        /// Its stage, which is its rank in the pipeline's group.
        from: u32,
        /// Messages of one stream arrive in the order in which they were sent.
        stream: u32,
    },
}

/// One action of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Computes for a time, during which started calls progress.
    Compute {
        /// The pass that would be computed.
        pass: Pass,
        /// How long.
        nanoseconds: u64,
    },
    /// Starts a call.
    Start {
        /// Index of the slot.
        slot: u32,
    },
    /// Waits until a call that was started is done.
    Wait {
        /// Index of the slot.
        slot: u32,
    },
}

impl ReplayProgram {
    /// The op of a slot.
    pub fn op_of(&self, slot: &Slot) -> &Op {
        &self.ops[slot.op as usize]
    }

    /// For each op, whether its calls are collectives that something hides.
    pub fn hidden_collectives(&self) -> Vec<bool> {
        let together = |op: usize| {
            let mut own = self.slots.iter().filter(|slot| slot.op as usize == op);
            own.any(|slot| slot.movement == Movement::Together)
        };
        (0..self.ops.len()).map(|op| !self.ops[op].overlap.is_exposed() && together(op)).collect()
    }

    /// The program with its orders filled in, as the actions have them.
    pub(in crate::workload) fn with_orders(mut self) -> ReplayProgram {
        self.at_once = self.waited_for_at_once();
        self.check_order = self.slots_to_check();
        self
    }

    /// For each slot, whether it is a collective that is always waited for right after its start. In a step all ranks of a group
    /// agree on it: groups within a stage have one program, and those across stages only calls of this kind.
    fn waited_for_at_once(&self) -> Vec<bool> {
        let mut at_once: Vec<bool> = self.slots.iter().map(|slot| slot.movement == Movement::Together).collect();
        for (index, action) in self.actions.iter().enumerate() {
            if let Action::Start { slot } = action {
                at_once[*slot as usize] &= self.actions.get(index + 1) == Some(&Action::Wait { slot: *slot });
            }
        }
        at_once
    }

    /// Every slot once, in an order in which all ranks can carry them out one after another: collectives as the program has them,
    /// then the messages from stage to stage in one order for all ranks.
    fn slots_to_check(&self) -> Vec<usize> {
        let mut order: Vec<usize> =
            (0..self.slots.len()).filter(|slot| self.slots[*slot].movement == Movement::Together).collect();
        let mut messages: Vec<(u32, u32, u32, usize)> = Vec::new();
        for (index, slot) in self.slots.iter().enumerate() {
            let message = match slot.movement {
                Movement::Together => continue,
                Movement::Send { to, stream } => (self.stage, to, stream, index),
                Movement::Receive { from, stream } => (from, self.stage, stream, index),
            };
            // One of each stream: the others are the same message in other buffers.
            if !messages.iter().any(|known| (known.0, known.1, known.2) == (message.0, message.1, message.2)) {
                messages.push(message);
            }
        }
        messages.sort_unstable();
        order.extend(messages.into_iter().map(|message| message.3));
        order
    }

    /// How often each op of the list is started in the program.
    pub fn starts_per_op(&self) -> Vec<u64> {
        let mut starts = vec![0; self.ops.len()];
        for action in &self.actions {
            if let Action::Start { slot } = action {
                starts[self.slots[*slot as usize].op as usize] += 1;
            }
        }
        starts
    }

    /// Nanoseconds of all computing.
    pub fn compute_nanoseconds(&self) -> u64 {
        let of = |action: &Action| match action {
            Action::Compute { nanoseconds, .. } => *nanoseconds,
            _ => 0,
        };
        self.actions.iter().map(of).sum()
    }
}
