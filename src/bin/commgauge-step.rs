//! Measures the communication of a model's training or serving step, op by op. Started by mpirun or srun, or by `commgauge run`.

use clap::Parser;
use commgauge::cli::LaunchedArguments;
use commgauge::cli::launched::{self, Work};
use commgauge::cli::step::StepArguments;
use commgauge::config::{LayoutTable, RunSettings};
use commgauge::error::Result;
use commgauge::record::line::SuiteFacts;
use commgauge::workload::replay::ReplayOptions;
use commgauge::workload::{Interference, WorkPlan};
use std::process::exit;

/// Measure every call of a model's training or serving step on all ranks of the launch, and what each costs in a step
///
/// mpirun -np 4 commgauge-step --model llama-3-8b --layers 4 --tp 2 --pp 2 --sequence 1024 --micro-batches 4
#[derive(Parser)]
#[command(name = "commgauge-step", version)]
struct StepRun {
    #[command(flatten)]
    step: StepArguments,
    #[command(flatten)]
    launched: LaunchedArguments,
}

impl Work for StepRun {
    fn launched(&self) -> &LaunchedArguments {
        &self.launched
    }

    fn plan(&self, world_size: u32) -> Result<(WorkPlan, RunSettings, SuiteFacts)> {
        self.step.work(world_size)
    }

    fn interference(&self, world_size: u32) -> Result<Option<Interference>> {
        self.step.interference(world_size)
    }

    fn replay(&self, world_size: u32) -> Result<Option<(LayoutTable, ReplayOptions)>> {
        self.step.replay(world_size)
    }
}

fn main() {
    exit(launched::run::<StepRun>("commgauge-step"))
}
