//! A published run, priced by the machinery that plans: what of it is set by hand, and what its seconds are made of.

use super::sets::PublishedRun;
use crate::planner::compute::{Compute, Efficiency, Saturation};
use crate::planner::price::{PreparedStep, Unpriced};
use crate::planner::rates::Published;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Rate, Seconds};
use commgauge_model::config::Machine;
use commgauge_model::workload::step::TrainingStep;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is set by hand, one for all sets: all of them ran on A100.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Constants {
    /// Dense matrix products in fp16: 312 TFLOP/s (NVIDIA A100 data sheet).
    pub peak_flops_per_second: f64,
    /// Width at which a matrix product reaches half of what the largest do.
    pub half_width: f64,
    /// What kernels that only move data reach: about two thirds of the 2.0 TB/s of an A100-80GB (same data sheet).
    pub memory_bytes_per_second: f64,
    /// Time in which PyTorch starts a kernel, with the Python around it.
    pub seconds_per_kernel: f64,
}

impl Default for Constants {
    fn default() -> Self {
        Constants {
            peak_flops_per_second: 312e12,
            half_width: 100.0,
            memory_bytes_per_second: 1.3e12,
            seconds_per_kernel: 20e-6,
        }
    }
}

impl Constants {
    /// The machine's GPU, whose largest products reach such a share of the peak.
    fn compute(&self, share_of_peak: f64) -> Compute {
        Compute {
            peak_flops_per_second: self.peak_flops_per_second,
            efficiency: Efficiency::Saturating(Saturation { best: share_of_peak, half_width: self.half_width }),
            memory_rate: Rate(self.memory_bytes_per_second),
            seconds_per_kernel: Seconds(self.seconds_per_kernel),
            fused_attention: false,
        }
    }
}

/// What the seconds of a step are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Parts {
    /// Passes of the busiest stage.
    pub compute_seconds: f64,
    /// What they take longer because the host cannot start kernels faster.
    pub host_seconds: f64,
    /// Waiting for other stages.
    pub bubble_seconds: f64,
    /// Communication that nothing hides.
    pub exposed_seconds: f64,
    /// The optimizer.
    pub optimizer_seconds: f64,
}

impl Parts {
    /// The step.
    pub fn total(&self) -> f64 {
        self.compute_seconds + self.host_seconds + self.bubble_seconds + self.exposed_seconds + self.optimizer_seconds
    }
}

/// A run, ready to be priced with any share.
pub(super) struct Replay<'a> {
    pub run: &'a PublishedRun,
    pub step: TrainingStep<'a>,
    prepared: PreparedStep,
    machine: &'a Machine,
    constants: &'a Constants,
}

impl<'a> Replay<'a> {
    pub fn new(run: &'a PublishedRun, machine: &'a Machine, constants: &'a Constants) -> Result<Replay<'a>> {
        let step = run.step()?;
        let prepared = PreparedStep::new(&step).map_err(|problem| unpriced(run, &problem))?;
        Ok(Replay { run, step, prepared, machine, constants })
    }

    /// Seconds of the products alone, at the peak and evenly on all ranks.
    pub fn seconds_at_peak(&self) -> f64 {
        let compute =
            Compute { fused_attention: false, ..Compute::constant(self.constants.peak_flops_per_second, 1.0) };
        let stages = self.step.stages.count();
        let of = |stage: u32| {
            let work = compute.stage(&self.step, stage);
            work.forward_seconds() + work.backward_seconds()
        };
        self.step.micro_batches as f64 * (0..stages).map(of).sum::<f64>() / f64::from(stages)
    }

    /// Seconds with such a share of the peak.
    pub fn parts(&self, share_of_peak: f64) -> Result<Parts> {
        let (compute, rates) = (self.constants.compute(share_of_peak), Published::new(self.machine));
        let price = self.prepared.price(&self.step, &compute, &rates, self.machine.ranks_per_node);
        let price = price.map_err(|problem| unpriced(self.run, &problem))?;
        Ok(Parts {
            compute_seconds: price.compute_seconds,
            host_seconds: price.host_seconds,
            bubble_seconds: price.bubble_seconds,
            exposed_seconds: price.exposed.total(),
            optimizer_seconds: price.optimizer_seconds,
        })
    }
}

fn unpriced(run: &PublishedRun, problem: &Unpriced) -> Error {
    Error::usage(format!("{}: {problem}", run.name))
}
