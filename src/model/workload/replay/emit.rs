//! Writes the actions of a program: which slots are free, and what is waited for after the next stretch of computing.

use super::{Action, Movement, Slot};
use crate::workload::when::Pass;
use std::collections::HashMap;

/// A program being written.
#[derive(Debug, Default)]
pub(super) struct Emitter {
    pub slots: Vec<Slot>,
    pub actions: Vec<Action>,
    /// Slots that are not under way.
    free: HashMap<Slot, Vec<u32>>,
    /// Under way, hidden by the next stretch of computing.
    hidden: Vec<u32>,
    /// Messages that were sent.
    sent: Vec<u32>,
}

impl Emitter {
    /// Starts a call in a slot that is free and returns it.
    pub(super) fn start(&mut self, op: usize, movement: Movement) -> u32 {
        let slot = Slot { op: op as u32, movement };
        let index = self.free.get_mut(&slot).and_then(Vec::pop).unwrap_or_else(|| {
            self.slots.push(slot);
            self.slots.len() as u32 - 1
        });
        self.actions.push(Action::Start { slot: index });
        index
    }

    /// Waits for a call.
    pub(super) fn wait(&mut self, slot: u32) {
        self.actions.push(Action::Wait { slot });
        self.free.entry(self.slots[slot as usize]).or_default().push(slot);
    }

    /// An exposed call, waited for at once.
    pub(super) fn exposed(&mut self, op: usize) {
        let slot = self.start(op, Movement::Together);
        self.wait(slot);
    }

    /// A call that the next stretch of computing hides.
    pub(super) fn hidden(&mut self, op: usize) {
        let slot = self.start(op, Movement::Together);
        self.hidden.push(slot);
    }

    /// Leaves calls under way to be hidden by the next stretch of computing.
    pub(super) fn hide(&mut self, slots: impl IntoIterator<Item = u32>) {
        self.hidden.extend(slots);
    }

    /// Sends a message; it is waited for when all passes are done.
    pub(super) fn send(&mut self, op: usize, to: u32, stream: u32) {
        let slot = self.start(op, Movement::Send { to, stream });
        self.sent.push(slot);
    }

    /// Computes, then waits for what that was to hide.
    pub(super) fn compute(&mut self, pass: Pass, nanoseconds: u64) {
        if nanoseconds > 0 {
            self.actions.push(Action::Compute { pass, nanoseconds });
        }
        self.wait_for_hidden();
    }

    /// Waits for what nothing hides any more.
    pub(super) fn wait_for_hidden(&mut self) {
        for slot in std::mem::take(&mut self.hidden) {
            self.wait(slot);
        }
    }

    /// Waits until all messages have left.
    pub(super) fn wait_for_sent(&mut self) {
        for slot in std::mem::take(&mut self.sent) {
            self.wait(slot);
        }
    }
}
