//! A measured run, priced by the machinery that plans.

use super::runs::{LevelKey, MeasuredRun};
use crate::planner::compute::{Compute, Constants, PUBLISHED};
use crate::planner::price::{PreparedStep, StepPrice, Unpriced};
use crate::planner::rates::{Published, Rates};
use commgauge_base::error::{Error, Result};
use commgauge_model::config::machine::Computing;
use commgauge_model::workload::step::TrainingStep;

/// Where runs were made whose rows name no machine: a GPU, what calls take, and how many GPUs are on a node.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The GPU.
    pub gpu: &'a Computing,
    /// Its peak and its memory's rate, with who says them.
    pub described: &'a str,
    /// Times of calls.
    pub rates: &'a dyn Rates,
    /// GPUs of a node.
    pub ranks_per_node: u32,
}

impl Site<'_> {
    /// The kind of GPU, as levels name it; empty where it is not known.
    pub(super) fn kind(&self) -> &str {
        self.gpu.gpu.as_deref().unwrap_or_default()
    }
}

/// A run, ready to be priced with any constants.
pub(super) struct Replay<'a> {
    pub run: &'a MeasuredRun,
    pub step: TrainingStep<'a>,
    /// The kind of GPU with precision and layers.
    pub key: LevelKey,
    /// What a GPU reaches at most, and who says so.
    pub gpu: String,
    prepared: PreparedStep,
    computing: Computing,
    calls: Calls<'a>,
    ranks_per_node: u32,
}

/// Times of calls: of the machine that the row names, or of the site.
enum Calls<'a> {
    OfRow(Published<'a>),
    OfSite(&'a dyn Rates),
}

impl<'a> Replay<'a> {
    /// Of the machine that the run names, else of the site.
    ///
    /// # Errors
    /// Names the row: no machine, a machine without a GPU, 8 bits on a GPU whose peak in them is not known, calls without a time.
    pub fn new(run: &'a MeasuredRun, site: Option<Site<'a>>) -> Result<Replay<'a>> {
        let step = run.step()?;
        let prepared = PreparedStep::new(&step).map_err(|problem| unpriced(run, &problem))?;
        let (kind, gpu, computing, calls, ranks_per_node) = match (&run.machine, site) {
            (Some(machine), _) => {
                let missing = || run.wrong("machine", &format!("{}: [computing] is missing", machine.name));
                let gpu = machine.computing.clone().ok_or_else(missing)?;
                let described = format!("{}, memory {}", gpu.peak_by(&machine.name), gpu.memory_by(&machine.name));
                let kind = gpu.gpu.clone().unwrap_or_default();
                (kind, described, gpu, Calls::OfRow(Published::new(machine)), machine.ranks_per_node)
            }
            (None, Some(site)) => {
                let described = site.described.to_owned();
                (site.kind().to_owned(), described, site.gpu.clone(), Calls::OfSite(site.rates), site.ranks_per_node)
            }
            (None, None) => {
                return Err(run.wrong("machine", "is missing; accepted: a machine file, or --machine for all rows"));
            }
        };
        if run.bits == 8 && computing.peak_fp8_flops_per_second.is_none() {
            return Err(run.wrong("fp8_linears", "the machine has no `peak_tflops_fp8`"));
        }
        let key = LevelKey { gpu: kind, bits: run.bits, layers: run.layers() };
        let ranks_per_node = run.ranks_per_node.unwrap_or(ranks_per_node);
        Ok(Replay { run, step, key, gpu, prepared, computing, calls, ranks_per_node })
    }

    /// Times of calls.
    pub fn rates(&self) -> &dyn Rates {
        match &self.calls {
            Calls::OfRow(published) => published,
            Calls::OfSite(rates) => *rates,
        }
    }

    /// The peak of the linear layers of blocks.
    pub fn peak_flops_per_second(&self) -> f64 {
        self.peak_8_bits().unwrap_or(self.computing.peak_flops_per_second)
    }

    fn peak_8_bits(&self) -> Option<f64> {
        self.computing.peak_fp8_flops_per_second.filter(|_| self.run.bits == 8)
    }

    /// Seconds of the products alone, at the peak and evenly on all ranks.
    pub fn seconds_at_peak(&self) -> f64 {
        let compute = Compute {
            peak_8_bits: self.peak_8_bits(),
            kernels: self.run.kernels,
            ..Compute::constant(self.computing.peak_flops_per_second, 1.0)
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
        let compute = self.in_its_kernels(&constants.compute(&self.computing));
        let price = self.prepared.price(&self.step, &compute, self.rates(), self.ranks_per_node);
        price.map_err(|problem| unpriced(self.run, &problem))
    }

    /// The seconds of its step with such computing, in the kernels and the precision of the run.
    pub fn seconds(&self, compute: &Compute) -> Result<f64> {
        let compute = self.in_its_kernels(compute);
        let seconds = self.prepared.step_seconds(&self.step, &compute, self.rates(), self.ranks_per_node);
        seconds.map_err(|problem| unpriced(self.run, &problem))
    }

    /// The seconds of its step at a share of the peak.
    pub fn seconds_at(&self, share_of_peak: f64) -> Result<f64> {
        self.seconds(&Constants { share_of_peak, ..PUBLISHED }.compute(&self.computing))
    }

    fn in_its_kernels(&self, compute: &Compute) -> Compute {
        Compute { kernels: self.run.kernels, peak_8_bits: self.peak_8_bits(), ..compute.clone() }
    }
}

fn unpriced(run: &MeasuredRun, problem: &Unpriced) -> Error {
    Error::usage(format!("{}: {problem}", run.place))
}
