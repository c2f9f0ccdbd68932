//! A measured run, priced by the machinery that plans.

use super::runs::MeasuredRun;
use crate::planner::compute::{Compute, Constants};
use crate::planner::kernels::Kernels;
use crate::planner::price::{PreparedStep, StepPrice, Unpriced};
use crate::planner::rates::Rates;
use commgauge_base::error::{Error, Result};
use commgauge_model::config::machine::Computing;
use commgauge_model::workload::step::TrainingStep;

/// Where runs were made: a GPU, what calls take, and how many GPUs are on a node.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The GPU.
    pub gpu: Computing,
    /// Times of calls.
    pub rates: &'a dyn Rates,
    /// GPUs of a node.
    pub ranks_per_node: u32,
}

/// A run, ready to be priced with any constants.
pub(super) struct Replay<'a> {
    pub run: &'a MeasuredRun,
    pub step: TrainingStep<'a>,
    prepared: PreparedStep,
    site: Site<'a>,
}

impl<'a> Replay<'a> {
    pub fn new(run: &'a MeasuredRun, site: Site<'a>) -> Result<Replay<'a>> {
        let step = run.step()?;
        let prepared = PreparedStep::new(&step).map_err(|problem| unpriced(run, &problem))?;
        Ok(Replay { run, step, prepared, site })
    }

    /// Seconds of the products alone, at the peak and evenly on all ranks.
    pub fn seconds_at_peak(&self) -> f64 {
        let compute = Compute {
            kernels: Kernels::WITH_ATTENTION_MATRICES,
            ..Compute::constant(self.site.gpu.peak_flops_per_second, 1.0)
        };
        let stages = self.step.stages.count();
        let of = |stage: u32| {
            let work = compute.stage(&self.step, stage);
            work.forward_seconds() + work.backward_seconds()
        };
        self.step.micro_batches as f64 * (0..stages).map(of).sum::<f64>() / f64::from(stages)
    }

    /// The price with such constants.
    pub fn price(&self, constants: &Constants) -> Result<StepPrice> {
        let compute = Compute { kernels: self.run.kernels, ..constants.compute(&self.site.gpu) };
        let price = self.prepared.price(&self.step, &compute, self.site.rates, self.site.ranks_per_node);
        price.map_err(|problem| unpriced(self.run, &problem))
    }
}

fn unpriced(run: &MeasuredRun, problem: &Unpriced) -> Error {
    Error::usage(format!("{}: {problem}", run.place))
}
