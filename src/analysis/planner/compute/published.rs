//! What of the step model is known of any GPU without a measurement: constants that the published runs of `commgauge validate`
//! gave, and the peaks of the data sheet.

use super::{Compute, Efficiency, Saturation};
use crate::planner::kernels::Kernels;
use crate::planner::step_error::StepError;
use commgauge_base::units::{Rate, Seconds};
use commgauge_model::config::machine::{Computing, Level};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is not on a data sheet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Constants {
    /// Share of the peak that the largest matrix products reach.
    pub share_of_peak: f64,
    /// Width at which a matrix product reaches half of what the largest do.
    pub half_width: f64,
    /// Share of the memory's rate that kernels reach which only move data.
    pub share_of_memory_rate: f64,
    /// Time in which PyTorch starts a kernel, with the Python around it.
    pub seconds_per_kernel: f64,
    /// Share of its speed that computing loses while a call runs beside it.
    pub lost_beside_calls: f64,
}

/// Those that did best on the A100 runs of Megatron-LM and vTrain; the share of the peak is that of a level, where one is known.
pub const PUBLISHED: Constants = Constants {
    share_of_peak: 0.79,
    half_width: 150.0,
    share_of_memory_rate: 0.75,
    seconds_per_kernel: 20e-6,
    lost_beside_calls: 0.2,
};

impl Constants {
    /// How fast products are.
    pub fn saturation(&self) -> Saturation {
        Saturation { best: self.share_of_peak, half_width: self.half_width }
    }

    /// Those of plans at a level.
    pub fn of(level: &Level) -> Constants {
        let Level { share_of_peak, share_of_memory_rate, .. } = *level;
        Constants { share_of_peak, share_of_memory_rate, ..PUBLISHED }
    }

    /// The model of a GPU with these constants.
    pub fn compute(&self, gpu: &Computing) -> Compute {
        Compute {
            peak_flops_per_second: gpu.peak_flops_per_second,
            peak_8_bits: None,
            efficiency: Efficiency::Saturating(self.saturation()),
            memory_rate: Rate(self.share_of_memory_rate * gpu.memory_rate.0),
            seconds_per_kernel: Seconds(self.seconds_per_kernel),
            kernels: Kernels::FUSED,
            lost_beside_calls: self.lost_beside_calls,
            error: StepError::EXACT,
        }
    }
}
