//! How many bytes one rank of a stage needs for a training step, part by part.
//!
//! Counted is what the model, the optimizer and the schedule need. What a CUDA context, a communication library and a
//! fragmented allocator take besides is not: leave room for it in the limit. The forms and their sources are in docs/method/memory.md.

mod activations;
mod explain;
mod in_flight;
mod parts;
mod state;
#[cfg(test)]
mod tests;

pub use explain::MemoryPart;
pub use parts::{MemoryChoices, MemoryUse};

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

/// Optimizer state on a rank of a stage in bytes, with the usual choices.
pub(super) fn optimizer_bytes(step: &TrainingStep, stage: u32) -> Bytes {
    state::of(step, stage, MemoryChoices::default().optimizer_gradient_copy).optimizer
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

    /// Everything else, in bytes.
    pub(in crate::planner) fn stored_bytes(&self, step: &TrainingStep, stage: u32) -> u64 {
        let chunks = in_flight::chunks(step, stage);
        let activations::StoredActivations { layers, recomputation, ends, logits, buffers } =
            activations::of(step, stage, self.fused_attention, chunks);
        let stored = [layers, recomputation, ends, logits, buffers];
        stored.iter().fold(0, |sum, bytes| sum.saturating_add(bytes.0))
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
        let stored = activations::of(step, stage, self.fused_attention, chunks_in_flight);
        MemoryUse {
            activations: stored.layers,
            recomputation: stored.recomputation,
            ends: stored.ends,
            logits: stored.logits,
            buffers: stored.buffers,
            ..state
        }
    }
}
