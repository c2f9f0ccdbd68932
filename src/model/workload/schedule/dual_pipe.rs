//! DualPipe and DualPipeV: micro-batches that enter from both ends, over two copies of the model or over the two arms of a V.

use super::event::{Event, Pass};

/// DualPipe (arXiv 2412.19437 figure 5): half of the micro-batches enter at rank 0 (chunk 0), half at the last rank
/// (chunk 1). Rank i and rank p - 1 - i do the same with the directions exchanged.
pub(super) fn two_directions(stages: u32, micro_batches: u32) -> Vec<Vec<Event>> {
    let half = micro_batches / 2;
    (0..stages)
        .map(|rank| {
            let mirrored = stages - 1 - rank;
            let mut list = arms(stages / 2, rank.min(mirrored), half);
            for event in &mut list {
                // Arm 0 is the direction that enters at this rank's end.
                event.chunk = if rank < stages / 2 { event.chunk } else { 1 - event.chunk };
                event.micro_batch += half * event.chunk;
            }
            list
        })
        .collect()
}

/// DualPipeV: the half of DualPipe in which a micro-batch that leaves arm 0 at the last rank returns through arm 1.
pub(super) fn v_shape(stages: u32, micro_batches: u32) -> Vec<Vec<Event>> {
    (0..stages).map(|rank| arms(stages, rank, micro_batches)).collect()
}

/// The eight steps of one rank (repository deepseek-ai/DualPipe, dualpipe/dualpipe.py, `step`): `half` ranks from the
/// outer end to the middle, this one `depth` from the outer end, `micro_batches` through each arm. A forward and a
/// whole backward that DualPipe overlaps are listed one after the other.
fn arms(half: u32, depth: u32, micro_batches: u32) -> Vec<Event> {
    let to_middle = half - depth - 1;
    let mut list = List { events: Vec::with_capacity(6 * micro_batches as usize), ..List::default() };
    for _ in 0..2 * to_middle {
        list.forward(0);
    }
    for _ in 0..depth + 1 {
        list.forward(0);
        list.forward(1);
    }
    for _ in 0..to_middle {
        list.input_gradient(1);
        list.weight_gradient();
        list.forward(1);
    }
    for _ in 0..micro_batches + depth + 1 - 2 * half {
        list.forward(0);
        list.backward(1);
        list.forward(1);
        list.backward(0);
    }
    for _ in 0..to_middle {
        list.backward(1);
        list.forward(1);
        list.backward(0);
    }
    // The second half of these backwards leave their weight gradients for the gaps that follow.
    let pairs = depth + 1;
    for k in 0..2 * pairs {
        let arm = 1 - k % 2;
        if k >= pairs { list.input_gradient(arm) } else { list.backward(arm) }
    }
    for _ in 0..to_middle {
        list.weight_gradient();
        list.input_gradient(0);
    }
    for _ in 0..pairs {
        list.weight_gradient();
    }
    list.events
}

/// A forward that a whole backward follows overlaps with it; only the first such pair in the middle does not, which
/// shortens the bubble (same source).
pub(super) fn overlaps_next(half: u32, depth: u32, events: &[Event], place: usize) -> bool {
    let first_in_the_middle = depth + 1 == half && place == 2 * half as usize;
    match events.get(place..place + 2) {
        Some([forward, backward]) => {
            forward.pass == Pass::Forward && backward.pass == Pass::Backward && !first_in_the_middle
        }
        _ => false,
    }
}

#[derive(Default)]
struct List {
    events: Vec<Event>,
    forwards: [u32; 2],
    backwards: [u32; 2],
    /// Deferred weight gradients, oldest first.
    deferred: std::collections::VecDeque<Event>,
}

impl List {
    fn forward(&mut self, arm: u32) {
        self.events.push(next(Pass::Forward, arm, &mut self.forwards));
    }

    fn backward(&mut self, arm: u32) {
        self.events.push(next(Pass::Backward, arm, &mut self.backwards));
    }

    fn input_gradient(&mut self, arm: u32) {
        let event = next(Pass::InputGradient, arm, &mut self.backwards);
        self.deferred.push_back(Event { pass: Pass::WeightGradient, ..event });
        self.events.push(event);
    }

    fn weight_gradient(&mut self) {
        self.events.extend(self.deferred.pop_front());
    }
}

fn next(pass: Pass, arm: u32, counts: &mut [u32; 2]) -> Event {
    let count = &mut counts[arm as usize];
    *count += 1;
    Event { pass, micro_batch: *count - 1, chunk: arm }
}
