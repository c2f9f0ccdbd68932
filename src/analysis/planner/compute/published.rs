//! What of the step model is known of any GPU without a measurement: constants that the published runs of `commgauge validate`
//! gave, and the peaks of the data sheet.

use super::{Compute, Efficiency, Saturation};
use crate::planner::kernels::Kernels;
use commgauge_base::units::{Rate, Seconds};
use commgauge_model::config::machine::Computing;
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

/// Those that did best on all published runs together; `validate` fits the first anew.
pub const PUBLISHED: Constants = Constants {
    share_of_peak: 0.79,
    half_width: 150.0,
    share_of_memory_rate: 0.75,
    seconds_per_kernel: 20e-6,
    lost_beside_calls: 0.2,
};

impl Constants {
    /// The model of a GPU with these constants.
    pub fn compute(&self, gpu: &Computing) -> Compute {
        Compute {
            peak_flops_per_second: gpu.peak_flops_per_second,
            peak_8_bits: None,
            efficiency: Efficiency::Saturating(Saturation { best: self.share_of_peak, half_width: self.half_width }),
            memory_rate: Rate(self.share_of_memory_rate * gpu.memory_rate.0),
            seconds_per_kernel: Seconds(self.seconds_per_kernel),
            kernels: Kernels::FUSED,
            lost_beside_calls: self.lost_beside_calls,
        }
    }
}
