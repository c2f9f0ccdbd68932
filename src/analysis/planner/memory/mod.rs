//! How many bytes one rank of a stage needs for a training step, part by part.
//!
//! Counted is what the model, the optimizer and the schedule need. What a CUDA context, a communication library and a
//! fragmented allocator take besides is not: leave room for it in the limit. Each part's form
//! and source is in its file.

mod activations;
mod attention;
mod elementwise;
mod explain;
mod in_flight;
#[cfg(test)]
mod kept_tests;
mod parts;
mod precision;
mod state;
mod stored;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod torchtitan_tests;

pub use explain::MemoryPart;
pub(in crate::planner) use in_flight::chunks as chunks_in_flight;
pub use parts::{MemoryChoices, MemoryUse};
pub(in crate::planner) use stored::{MicroBatches, SampleBytes};

use commgauge_base::units::Bytes;
use commgauge_model::workload::step::TrainingStep;

/// The memory of a rank of a stage, with the usual choices.
pub fn memory(step: &TrainingStep, stage: u32) -> MemoryUse {
    MemoryChoices::default().memory(step, stage)
}

/// The stage whose ranks need most, and what they need, with the usual choices.
pub fn most_loaded(step: &TrainingStep) -> (u32, MemoryUse) {
    MemoryChoices::default().most_loaded(step)
}

/// What the optimizer updates on a rank of a stage, in bytes, with the usual choices.
pub(super) fn optimizer_bytes(step: &TrainingStep, stage: u32) -> Bytes {
    Bytes(state::updated_bytes(step, stage))
}

impl MemoryChoices {
    /// The memory of a rank of a stage; nothing for a stage that is not there.
    pub fn memory(&self, step: &TrainingStep, stage: u32) -> MemoryUse {
        if stage >= step.stages.count() {
            return MemoryUse::default();
        }
        self.of_stage(step, stage, in_flight::chunks(step, stage))
    }

    /// Parameters, gradients, optimizer and what is gathered for the moment, on a rank of a stage that is there, in bytes.
    pub(in crate::planner) fn state_bytes(&self, step: &TrainingStep, stage: u32) -> u64 {
        state::of(step, stage, self.optimizer_gradient_copy).total().0
    }

    /// What each sample of a micro-batch needs beside that.
    pub(in crate::planner) fn sample_bytes(&self, step: &TrainingStep, stage: u32) -> SampleBytes {
        SampleBytes::of(step, stage, self.kernels)
    }

    /// The stage whose ranks need most, the first of equals, and what they need.
    pub fn most_loaded(&self, step: &TrainingStep) -> (u32, MemoryUse) {
        let mut most = (0, MemoryUse::default());
        for (stage, chunks) in (0..).zip(in_flight::of_stages(step)) {
            let used = self.of_stage(step, stage, chunks);
            if used.total() > most.1.total() {
                most = (stage, used);
            }
        }
        most
    }

    /// With the forwards of a chunk that the schedule has in flight on the stage.
    fn of_stage(&self, step: &TrainingStep, stage: u32, chunks_in_flight: u64) -> MemoryUse {
        let state = state::of(step, stage, self.optimizer_gradient_copy);
        let micro_batches =
            MicroBatches { samples: step.training.micro_batch, count: step.micro_batches, chunks_in_flight };
        let stored = self.sample_bytes(step, stage).stored(micro_batches);
        MemoryUse {
            activations: stored.layers,
            recomputation: stored.recomputation,
            backward: stored.backward,
            ends: stored.ends,
            logits: stored.logits,
            buffers: Bytes(stored.buffers.0.saturating_add(state.buffers.0)),
            ..state
        }
    }
}
