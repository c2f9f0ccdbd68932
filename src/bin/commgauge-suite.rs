//! Runs everything that a suite file names, in one launch. Started by mpirun or srun, or by `commgauge run`.

use clap::Parser;
use commgauge::cli::LaunchedArguments;
use commgauge::cli::launched::{self, Work};
use commgauge::config::RunSettings;
use commgauge::error::Result;
use commgauge::layout::Nodes;
use commgauge::record::line::SuiteFacts;
use commgauge::workload::WorkPlan;
use std::path::PathBuf;
use std::process::exit;

/// Run a suite file on all ranks of the launch
///
/// mpirun -np 4 commgauge-suite suites/quick.toml
#[derive(Parser)]
#[command(name = "commgauge-suite", version)]
struct SuiteRun {
    /// Suite file (suites/*.toml), or the name of one in suites/
    suite: PathBuf,
    #[command(flatten)]
    launched: LaunchedArguments,
}

impl Work for SuiteRun {
    fn launched(&self) -> &LaunchedArguments {
        &self.launched
    }

    fn plan(&self, world_size: u32) -> Result<(WorkPlan, RunSettings, SuiteFacts)> {
        self.plan_on(&Nodes::single(world_size))
    }

    fn plan_on(&self, nodes: &Nodes) -> Result<(WorkPlan, RunSettings, SuiteFacts)> {
        commgauge::cli::suite_work(&self.suite, nodes)
    }
}

fn main() {
    exit(launched::run::<SuiteRun>("commgauge-suite"))
}
