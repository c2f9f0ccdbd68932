//! The schedules with one chunk per rank and whole backwards: naive, GPipe and 1F1B.

use super::event::{Event, Pass};

/// One micro-batch at a time, forward and backward.
pub(super) fn naive(stages: u32, micro_batches: u32) -> Vec<Vec<Event>> {
    let list = (0..micro_batches).flat_map(|k| [forward(k), backward(k)]).collect();
    vec![list; stages as usize]
}

/// All forwards, then all backwards in the same order.
pub(super) fn gpipe(stages: u32, micro_batches: u32) -> Vec<Vec<Event>> {
    let list = (0..micro_batches).map(forward).chain((0..micro_batches).map(backward)).collect();
    vec![list; stages as usize]
}

/// Warm-up of p - rank - 1 forwards, then one forward and one backward in turn, then the backwards that are left
/// (Megatron-LM megatron/core/pipeline_parallel/schedules.py,
/// `forward_backward_pipelining_without_interleaving`).
pub(super) fn one_forward_one_backward(stages: u32, micro_batches: u32) -> Vec<Vec<Event>> {
    (0..stages).map(|rank| in_turn(stages - rank - 1, micro_batches, forward, backward)).collect()
}

/// `warm_up` of the first, then one of the first and one of the second in turn, then the rest of the second.
pub(super) fn in_turn(
    warm_up: u32,
    count: u32,
    first: impl Fn(u32) -> Event,
    second: impl Fn(u32) -> Event,
) -> Vec<Event> {
    let warm_up = warm_up.min(count);
    let mut list: Vec<Event> = (0..warm_up).map(&first).collect();
    for k in 0..count {
        if k < count - warm_up {
            list.push(first(warm_up + k));
        }
        list.push(second(k));
    }
    list
}

fn forward(micro_batch: u32) -> Event {
    Event { pass: Pass::Forward, micro_batch, chunk: 0 }
}

fn backward(micro_batch: u32) -> Event {
    Event { pass: Pass::Backward, micro_batch, chunk: 0 }
}
