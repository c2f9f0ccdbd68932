//! How fast a rank computes, and what its passes and its optimizer take.

use super::efficiency::Efficiency;
use super::product::Product;
use crate::planner::kernels::Kernels;
use crate::planner::step_error::StepError;
use commgauge_base::units::{Rate, Seconds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Computing speed of one GPU (or host rank).
#[derive(Clone, Debug, PartialEq)]
pub struct Compute {
    /// Peak of dense matrix products in the type of the activations, floating-point operations per second.
    pub peak_flops_per_second: f64,
    /// The same for the linear layers of blocks where they are computed in 8 bits.
    pub peak_8_bits: Option<f64>,
    /// Share of the peak that products reach.
    pub efficiency: Efficiency,
    /// Rate of kernels that only move data, reading and writing together.
    pub memory_rate: Rate,
    /// Host time of one kernel: a pass is never faster than its kernels can be started.
    pub seconds_per_kernel: Seconds,
    /// How a layer is split into kernels.
    pub kernels: Kernels,
    /// Share of its speed that computing loses while a call runs beside it.
    pub lost_beside_calls: f64,
    /// How far steps are off that follow from all this.
    pub error: StepError,
}

impl Compute {
    /// The peak that a product could reach.
    pub(super) fn peak_of(&self, product: &Product) -> f64 {
        self.peak_8_bits.filter(|_| product.in_8_bits).unwrap_or(self.peak_flops_per_second)
    }
}

/// The passes of one micro-batch through one chunk of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChunkCompute {
    /// Forward.
    pub forward: Seconds,
    /// What is computed again for the backward pass.
    pub recompute: Seconds,
    /// Gradients of inputs, and of everything that is no linear layer.
    pub input_gradient: Seconds,
    /// Gradients of weights.
    pub weight_gradient: Seconds,
}

impl ChunkCompute {
    /// The whole backward pass, recomputation included.
    pub fn backward(&self) -> Seconds {
        Seconds(self.recompute.0 + self.input_gradient.0 + self.weight_gradient.0)
    }
}

/// What a rank of a stage computes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageCompute {
    /// The passes of a micro-batch, chunk by chunk of the stage.
    pub chunks: Vec<ChunkCompute>,
    /// The optimizer's update of what the rank keeps, once in a step.
    pub optimizer: Seconds,
}

impl StageCompute {
    /// All chunks of the stage together.
    pub fn passes(&self) -> ChunkCompute {
        self.chunks.iter().fold(ChunkCompute::default(), |sum, chunk| ChunkCompute {
            forward: Seconds(sum.forward.0 + chunk.forward.0),
            recompute: Seconds(sum.recompute.0 + chunk.recompute.0),
            input_gradient: Seconds(sum.input_gradient.0 + chunk.input_gradient.0),
            weight_gradient: Seconds(sum.weight_gradient.0 + chunk.weight_gradient.0),
        })
    }

    /// Forward of all chunks, seconds for one micro-batch.
    pub fn forward_seconds(&self) -> f64 {
        self.passes().forward.0
    }

    /// Backward of all chunks, recomputation included, seconds for one micro-batch.
    pub fn backward_seconds(&self) -> f64 {
        self.passes().backward().0
    }
}

impl ChunkCompute {
    pub(super) fn and(self, other: ChunkCompute) -> ChunkCompute {
        ChunkCompute {
            forward: Seconds(self.forward.0 + other.forward.0),
            recompute: Seconds(self.recompute.0 + other.recompute.0),
            input_gradient: Seconds(self.input_gradient.0 + other.input_gradient.0),
            weight_gradient: Seconds(self.weight_gradient.0 + other.weight_gradient.0),
        }
    }
}
