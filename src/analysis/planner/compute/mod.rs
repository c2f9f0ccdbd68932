//! Computing time of a rank: the passes of a micro-batch through a chunk, and the optimizer.
//!
//! `work` has the amount of computing, `efficiency` the speed of matrix products. Communication is not counted here.

mod efficiency;
mod measured;
#[cfg(test)]
mod tests;
mod work;

pub use efficiency::{Efficiency, MeasuredProduct, MeasuredProducts, Saturation};
pub use work::{Product, Work};

use crate::planner::memory::optimizer_bytes;
use commgauge_base::units::{Rate, Seconds};
use commgauge_model::workload::step::TrainingStep;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Adam reads and writes its state of each parameter, reads the gradient and writes the parameter: 30 bytes for the 12
/// bytes of state in 16-bit training.
const OPTIMIZER_MOVES: f64 = 2.5;

/// Computing speed of one GPU (or host rank).
#[derive(Clone, Debug, PartialEq)]
pub struct Compute {
    /// Peak of dense matrix products in the type of the activations, floating-point operations per second.
    pub peak_flops_per_second: f64,
    /// Share of the peak that products reach.
    pub efficiency: Efficiency,
    /// Rate of kernels that only move data, reading and writing together.
    pub memory_rate: Rate,
    /// Host time of one kernel: a pass is never faster than its kernels can be started.
    pub seconds_per_kernel: Seconds,
    /// Attention in one kernel that stores no matrix of tokens by tokens; it skips what a causal mask hides.
    pub fused_attention: bool,
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

impl Compute {
    /// All products at one share of the peak, and everything else included in that share, as set by `--peak-tflops`
    /// and `--efficiency`. The optimizer takes no time until `memory_rate` is set.
    pub fn constant(peak_flops_per_second: f64, efficiency: f64) -> Compute {
        Compute {
            peak_flops_per_second,
            efficiency: Efficiency::Whole(efficiency),
            memory_rate: Rate(f64::INFINITY),
            seconds_per_kernel: Seconds(0.0),
            fused_attention: true,
        }
    }

    /// Computing time of a rank of a stage; zero for a stage that does not exist.
    pub fn stage(&self, step: &TrainingStep, stage: u32) -> StageCompute {
        if stage >= step.stages.count() {
            return StageCompute::default();
        }
        let chunks = (0..step.stages.chunks()).map(|chunk| self.chunk(step, stage, chunk)).collect();
        StageCompute { chunks, optimizer: self.optimizer(step, stage) }
    }

    /// One micro-batch through one chunk.
    pub fn chunk(&self, step: &TrainingStep, stage: u32, chunk: u32) -> ChunkCompute {
        let layers = step.stages.layers_of_chunk(stage, chunk);
        let mut sum = ChunkCompute::default();
        let mut known: Option<(bool, bool, ChunkCompute)> = None;
        for layer in layers {
            // Layers of a kind cost the same.
            let kind = (step.model.has_experts_in(*layer), step.model.has_sliding_window_in(*layer));
            let one = match known {
                Some((experts, window, one)) if (experts, window) == kind => one,
                _ => work::of_layer(step, *layer, self.fused_attention).seconds(self),
            };
            known = Some((kind.0, kind.1, one));
            sum = sum.and(one);
        }
        if layers.contains(&0) {
            sum = sum.and(work::of_input(step).seconds(self));
        }
        if layers.contains(&step.model.layers.saturating_sub(1)) {
            sum = sum.and(work::of_output(step).seconds(self));
        }
        sum
    }

    /// The matrix products of a forward pass of a micro-batch through every layer and the end of the model.
    pub fn products(&self, step: &TrainingStep) -> Vec<Product> {
        let layers = (0..step.model.layers).map(|layer| work::of_layer(step, layer, self.fused_attention));
        layers.chain([work::of_output(step)]).flat_map(|work| work.products).collect()
    }

    /// Adam's update, which computes little and moves much.
    fn optimizer(&self, step: &TrainingStep, stage: u32) -> Seconds {
        let own = optimizer_bytes(step, stage).0 as f64;
        Seconds(OPTIMIZER_MOVES * own / self.memory_rate.0)
    }
}

impl ChunkCompute {
    fn and(self, other: ChunkCompute) -> ChunkCompute {
        ChunkCompute {
            forward: Seconds(self.forward.0 + other.forward.0),
            recompute: Seconds(self.recompute.0 + other.recompute.0),
            input_gradient: Seconds(self.input_gradient.0 + other.input_gradient.0),
            weight_gradient: Seconds(self.weight_gradient.0 + other.weight_gradient.0),
        }
    }
}
