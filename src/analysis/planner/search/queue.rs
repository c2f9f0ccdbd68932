//! Layouts that wait, the one with the lowest bound first.

use super::prices::Candidate;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An entry of the queue, ordered by its lower bound in seconds; of equals the one nearer to a price first, then in
/// the order of enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiting {
    /// Positive numbers are in the order of their bits.
    pub seconds_bits: u64,
    pub stage: Stage,
    pub unit: u32,
    /// Which places of the shape, or which of its orders once that is distinguished.
    pub order: u32,
    pub zero_stage: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Priced,
    Counted,
    Waits,
    Divided,
    Computes,
}

impl Waiting {
    /// A unit of which nothing is known.
    pub fn to_compute(unit: u32) -> Waiting {
        Waiting { seconds_bits: 0, stage: Stage::Computes, unit, order: 0, zero_stage: 0 }
    }

    pub fn candidate(self) -> Candidate {
        Candidate { unit: self.unit, zero_stage: self.zero_stage }
    }

    /// Whether both are one layout that takes equally long in either order of its axes.
    pub fn differs_in_order_only(self, other: Waiting) -> bool {
        (self.seconds_bits, self.unit, self.zero_stage) == (other.seconds_bits, other.unit, other.zero_stage)
    }

    /// The same with a higher lower bound; never less than before.
    pub fn at(self, seconds: f64, stage: Stage) -> Waiting {
        let known = if stage == Stage::Priced { 0 } else { self.seconds_bits };
        Waiting { seconds_bits: seconds.max(0.0).to_bits().max(known), stage, ..self }
    }
}

/// The queue: one for each stage, so that layouts of one stage can be taken together.
pub(super) struct Queue([BinaryHeap<Reverse<Waiting>>; 5]);

impl Queue {
    /// Of layouts that all are at the stage of the first.
    pub fn of(first: Vec<Waiting>) -> Queue {
        let mut queue = Queue(Default::default());
        if let Some(stage) = first.first().map(|first| first.stage) {
            queue.0[stage as usize] = first.into_iter().map(Reverse).collect();
        }
        queue
    }

    pub fn push(&mut self, waiting: Waiting) {
        self.0[waiting.stage as usize].push(Reverse(waiting));
    }

    /// The first of all.
    pub fn pop(&mut self) -> Option<Waiting> {
        let first = self.0.iter().filter_map(|queue| queue.peek()).max().map(|Reverse(first)| first.stage)?;
        self.0[first as usize].pop().map(|Reverse(first)| first)
    }

    /// One that left the queue, and those of its stage that come next, `most` in all.
    pub fn with_following(&mut self, next: Waiting, most: usize) -> Vec<Waiting> {
        let mut together = vec![next];
        let queue = &mut self.0[next.stage as usize];
        while together.len() < most
            && let Some(Reverse(following)) = queue.pop()
        {
            together.push(following);
        }
        together
    }
}
