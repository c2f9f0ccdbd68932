//! The flags of `commgauge-pairs`, and the requested work. `launched` runs it.

use super::super::suite::SuiteWork;
use super::super::{LaunchedArguments, PairsArguments};
use super::work::Work;
use clap::Parser;
use commgauge_base::error::Result;
use commgauge_model::record::provenance::program_version;

/// Measure latency and bandwidth between every two ranks of the launch, and show which pair, link or host is slow
///
/// mpirun -np 16 commgauge-pairs
#[derive(Debug, Parser)]
#[command(name = "commgauge-pairs", version = program_version())]
pub struct PairsRun {
    #[command(flatten)]
    pairs: PairsArguments,
    #[command(flatten)]
    launched: LaunchedArguments,
}

impl Work for PairsRun {
    fn launched(&self) -> &LaunchedArguments {
        &self.launched
    }

    fn plan(&self, world_size: u32) -> Result<SuiteWork> {
        self.pairs.work(world_size)
    }
}
