//! Measures collectives over sizes; flags as nccl-tests has them. Started by mpirun or srun.

use clap::Parser;
use commgauge::cli::LaunchedArguments;
use commgauge::cli::SweepArguments;
use commgauge::cli::launched::{self, Work};
use commgauge::config::RunSettings;
use commgauge::error::Result;
use commgauge::record::line::SuiteFacts;
use commgauge::workload::WorkPlan;
use std::process::exit;

/// Measure collectives over sizes on all ranks of the launch
///
/// mpirun -np 4 commgauge-sweep all_reduce -b 8 -e 64M -f 2
#[derive(Parser)]
#[command(name = "commgauge-sweep", version)]
struct Sweep {
    #[command(flatten)]
    sweep: SweepArguments,
    #[command(flatten)]
    launched: LaunchedArguments,
}

impl Work for Sweep {
    fn launched(&self) -> &LaunchedArguments {
        &self.launched
    }

    fn plan(&self, world_size: u32) -> Result<(WorkPlan, RunSettings, SuiteFacts)> {
        self.sweep.plan(world_size)
    }
}

fn main() {
    exit(launched::run::<Sweep>("commgauge-sweep"))
}
