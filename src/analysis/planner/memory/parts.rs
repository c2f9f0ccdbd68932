//! What a rank holds at the worst moment of a step, part by part, and the choices on which that depends.

use crate::planner::kernels::Kernels;
use commgauge_base::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What one rank holds at the worst moment of a step, each part for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryUse {
    /// Parameters in the type that the model computes in, or the rank's shard of them.
    pub parameters: Bytes,
    /// Gradients, accumulated over the micro-batches, or the rank's shard of them.
    pub gradients: Bytes,
    /// Adam's moments, and the fp32 copies that 16-bit training needs, or the rank's shard of them.
    pub optimizer: Bytes,
    /// Parameters of other ranks that are gathered for the moment, and their gradients before they are scattered.
    pub unsharded: Bytes,
    /// What the layers keep of every micro-batch in flight for its backward pass.
    pub activations: Bytes,
    /// What one layer needs while it is computed again for the backward pass.
    pub recomputation: Bytes,
    /// Gradients of the activations inside one layer while its backward pass runs.
    #[serde(default)]
    pub backward: Bytes,
    /// What embedding, last norm and head keep beside the logits, on the stages that have them.
    pub ends: Bytes,
    /// Logits in fp32, on the stage with the head.
    pub logits: Bytes,
    /// Buffers for messages between stages and for gathered sequences.
    pub buffers: Bytes,
}

impl MemoryUse {
    /// Every part with its name, in the order in which they are listed.
    pub fn parts(&self) -> [(&'static str, Bytes); 10] {
        [
            ("parameters", self.parameters),
            ("gradients", self.gradients),
            ("optimizer", self.optimizer),
            ("unsharded", self.unsharded),
            ("activations", self.activations),
            ("recomputation", self.recomputation),
            ("backward", self.backward),
            ("ends", self.ends),
            ("logits", self.logits),
            ("buffers", self.buffers),
        ]
    }

    /// All parts together.
    pub fn total(&self) -> Bytes {
        Bytes(self.parts().iter().fold(0, |sum, (_, bytes)| sum.saturating_add(bytes.0)))
    }

    /// Memory in use during the whole step: parameters, gradients and optimizer.
    pub fn state(&self) -> Bytes {
        Bytes(
            [self.parameters, self.gradients, self.optimizer].iter().fold(0, |sum, bytes| sum.saturating_add(bytes.0)),
        )
    }
}

/// Choices that a step does not contain and that its memory depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryChoices {
    /// How a layer is split into kernels, which keep what each of them needs for its backward pass.
    pub kernels: Kernels,
    /// The optimizer stores an fp32 copy of 16-bit gradients, as in Megatron-LM; ZeRO (arXiv 1910.02054) counts none.
    pub optimizer_gradient_copy: bool,
}

impl MemoryChoices {
    /// Layers in such kernels, and the optimizer of ZeRO.
    pub fn with(kernels: Kernels) -> MemoryChoices {
        MemoryChoices { kernels, optimizer_gradient_copy: false }
    }
}

impl Default for MemoryChoices {
    fn default() -> Self {
        MemoryChoices::with(Kernels::FUSED)
    }
}

/// Bytes of a number in fp32, as logits, sums of exponentials and scores of routers are.
pub(super) const FULL_PRECISION_BYTES: u128 = 4;

/// Converts a count of bytes, saturating at 64 bits.
pub(super) fn bytes(count: u128) -> Bytes {
    Bytes(u64::try_from(count).unwrap_or(u64::MAX))
}
