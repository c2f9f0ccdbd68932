//! The flags of `commgauge-step`, and the requested work. `launched` runs it.

use super::super::LaunchedArguments;
use super::super::step::{StepArguments, without_trace};
use super::super::suite::SuiteWork;
use super::work::Work;
use clap::Parser;
use commgauge_base::error::Result;
use commgauge_model::record::provenance::program_version;
use commgauge_model::workload::Interference;
use commgauge_run::session::ReplayRequest;

/// Measure every call of a model's training or serving step on all ranks of the launch, and what each costs in a step
///
/// mpirun -np 4 commgauge-step --model llama-3-8b --layers 4 --tp 2 --pp 2 --sequence 1024 --micro-batches 4
///
/// mpirun -np 4 commgauge-step --trace trace-rank*.json.gz --tp 2 --dp 2
#[derive(Debug, Parser)]
#[command(name = "commgauge-step", version = program_version(), mut_arg("model", without_trace))]
pub struct StepRun {
    #[command(flatten)]
    step: StepArguments,
    #[command(flatten)]
    launched: LaunchedArguments,
}

impl Work for StepRun {
    fn launched(&self) -> &LaunchedArguments {
        &self.launched
    }

    fn plan(&self, world_size: u32) -> Result<SuiteWork> {
        self.step.work(world_size)
    }

    fn calls_overlap(&self) -> bool {
        self.step.calls_overlap()
    }

    fn interference(&self, world_size: u32) -> Result<Option<Interference>> {
        self.step.interference(world_size)
    }

    fn replay(&self, world_size: u32) -> Result<Option<ReplayRequest>> {
        self.step.replay(world_size)
    }
}
