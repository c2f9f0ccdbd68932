//! Measures latency and bandwidth between every two ranks. Started by mpirun or srun, or by `commgauge run`.

use clap::Parser;
use commgauge::cli::launched::{self, Work};
use commgauge::cli::{LaunchedArguments, PairsArguments};
use commgauge::config::RunSettings;
use commgauge::error::Result;
use commgauge::record::line::SuiteFacts;
use commgauge::workload::WorkPlan;
use std::process::exit;

/// Measure latency and bandwidth between every two ranks of the launch, and show which pair, link or host is slow
///
/// mpirun -np 16 commgauge-pairs
#[derive(Parser)]
#[command(name = "commgauge-pairs", version)]
struct PairsRun {
    #[command(flatten)]
    pairs: PairsArguments,
    #[command(flatten)]
    launched: LaunchedArguments,
}

impl Work for PairsRun {
    fn launched(&self) -> &LaunchedArguments {
        &self.launched
    }

    fn plan(&self, world_size: u32) -> Result<(WorkPlan, RunSettings, SuiteFacts)> {
        self.pairs.work(world_size)
    }
}

fn main() {
    exit(launched::run::<PairsRun>("commgauge-pairs"))
}
