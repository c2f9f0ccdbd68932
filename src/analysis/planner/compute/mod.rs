//! Computing time of a rank: the passes of a micro-batch through a chunk, and the optimizer.
//!
//! `work` has the amount of computing, `efficiency` the speed of matrix products. Communication is not counted here.

mod efficiency;
mod linear_attention;
mod measured;
mod product;
mod published;
mod speed;
#[cfg(test)]
mod tests;
mod work;

pub use efficiency::{Efficiency, MeasuredProduct, MeasuredProducts, Saturation};
pub use product::Product;
pub use published::{Constants, PUBLISHED};
pub use speed::{ChunkCompute, Compute, StageCompute};
pub use work::Work;

use crate::planner::kernels::Kernels;
use crate::planner::memory::optimizer_bytes;
use crate::planner::step_error::StepError;
use commgauge_base::units::{Rate, Seconds};
use commgauge_model::config::LayerParts;
use commgauge_model::workload::step::TrainingStep;

/// Adam reads and writes its state of each parameter, reads the gradient and writes the parameter: 30 bytes for the 12
/// bytes of state in 16-bit training.
const OPTIMIZER_MOVES: f64 = 2.5;

impl Compute {
    /// All products at one share of the peak, and nothing else: the simplest rival of a model of steps.
    pub fn constant(peak_flops_per_second: f64, share: f64) -> Compute {
        Compute {
            peak_flops_per_second,
            peak_8_bits: None,
            efficiency: Efficiency::Saturating(Saturation { best: share, half_width: 0.0 }),
            memory_rate: Rate(f64::INFINITY),
            seconds_per_kernel: Seconds(0.0),
            kernels: Kernels::FUSED,
            lost_beside_calls: 0.0,
            error: StepError::EXACT,
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
        let mut known: Vec<((LayerParts, bool), ChunkCompute)> = Vec::new();
        for layer in layers {
            // Layers of a kind cost the same.
            let kind = (step.model.parts_of(*layer), step.model.has_sliding_window_in(*layer));
            let one = match known.iter().find(|(other, _)| *other == kind) {
                Some((_, one)) => *one,
                None => {
                    let one = work::of_layer(step, *layer, self).seconds(self);
                    known.push((kind, one));
                    one
                }
            };
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
        let layers = (0..step.model.layers).map(|layer| work::of_layer(step, layer, self));
        layers.chain([work::of_output(step)]).flat_map(|work| work.products).collect()
    }

    /// Adam's update, which computes little and moves much.
    pub(super) fn optimizer(&self, step: &TrainingStep, stage: u32) -> Seconds {
        let own = optimizer_bytes(step, stage).0 as f64;
        Seconds(OPTIMIZER_MOVES * own / self.memory_rate.0)
    }
}
