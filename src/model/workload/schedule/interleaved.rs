//! Interleaved 1F1B: v chunks per rank, visited in groups of p micro-batches; with whole backwards, or with weight gradients apart.

use super::event::{Event, Pass};
use super::single_chunk::in_turn;

/// The passes of a rank, counted in the order in which micro-batches come round: group g of p micro-batches passes chunk 0, then
/// chunk 1, ...; backwards the chunks are in reverse order.
struct Rounds {
    stages: u32,
    chunks: u32,
}

impl Rounds {
    fn forward(&self, k: u32) -> Event {
        let (round, in_round) = (k / (self.stages * self.chunks), k % (self.stages * self.chunks));
        let micro_batch = round * self.stages + k % self.stages;
        Event { pass: Pass::Forward, micro_batch, chunk: in_round / self.stages }
    }

    fn backward(&self, pass: Pass, k: u32) -> Event {
        let forward = self.forward(k);
        Event { pass, chunk: self.chunks - 1 - forward.chunk, ..forward }
    }
}

/// Warm-up of 2(p - rank - 1) + (v - 1)p chunk forwards, then one forward and one backward in turn (arXiv 2104.04473
/// section 2.2.2; Megatron-LM megatron/core/pipeline_parallel/schedules.py, `get_pp_rank_microbatches`).
pub(super) fn events(stages: u32, chunks: u32, micro_batches: u32) -> Vec<Vec<Event>> {
    let rounds = Rounds { stages, chunks };
    let of_rank = |rank| {
        let warm_up = 2 * (stages - rank - 1) + (chunks - 1) * stages;
        in_turn(warm_up, micro_batches * chunks, |k| rounds.forward(k), |k| rounds.backward(Pass::Backward, k))
    };
    (0..stages).map(of_rank).collect()
}

/// Warm-up of (p - rank - 1) + (v - 1)p chunk forwards, then a forward, an input gradient and the weight gradient of `rank` backward
/// passes ago in turn (torch/distributed/pipelining/schedules.py, `ScheduleInterleavedZeroBubble`, `_get_1f1b_rank_ops`).
pub(super) fn zero_bubble(stages: u32, chunks: u32, micro_batches: u32) -> Vec<Vec<Event>> {
    let rounds = Rounds { stages, chunks };
    let count = micro_batches * chunks;
    let of_rank = |rank: u32| {
        let weights = |k: u32| rounds.backward(Pass::WeightGradient, k);
        let warm_up = (stages - rank - 1) + (chunks - 1) * stages;
        let passes = in_turn(warm_up, count, |k| rounds.forward(k), |k| rounds.backward(Pass::InputGradient, k));
        let mut list = Vec::with_capacity(3 * count as usize);
        let mut gradients = 0;
        for event in passes {
            list.push(event);
            if event.pass == Pass::InputGradient {
                list.extend((gradients >= rank).then(|| weights(gradients - rank)));
                gradients += 1;
            }
        }
        list.extend((count.saturating_sub(rank)..count).map(weights));
        list
    };
    (0..stages).map(of_rank).collect()
}
