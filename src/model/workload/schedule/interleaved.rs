//! Interleaved 1F1B: v chunks per rank, visited in groups of p micro-batches.

use super::event::{Event, Pass};
use super::single_chunk::in_turn;

/// Warm-up of 2(p - rank - 1) + (v - 1)p chunk forwards, then one forward and one backward in turn (arXiv 2104.04473
/// section 2.2.2; Megatron-LM megatron/core/pipeline_parallel/schedules.py, `get_pp_rank_microbatches`).
pub(super) fn events(stages: u32, chunks: u32, micro_batches: u32) -> Vec<Vec<Event>> {
    // Group g of p micro-batches passes chunk 0, then chunk 1, ...; backwards the chunks are in reverse order.
    let place = |k: u32| {
        let in_round = k % (stages * chunks);
        (k / (stages * chunks) * stages + k % stages, in_round / stages)
    };
    let forward = |k: u32| {
        let (micro_batch, chunk) = place(k);
        Event { pass: Pass::Forward, micro_batch, chunk }
    };
    let backward = |k: u32| {
        let (micro_batch, chunk) = place(k);
        Event { pass: Pass::Backward, micro_batch, chunk: chunks - 1 - chunk }
    };
    (0..stages)
        .map(|rank| in_turn(2 * (stages - rank - 1) + (chunks - 1) * stages, micro_batches * chunks, forward, backward))
        .collect()
}
