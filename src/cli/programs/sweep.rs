//! The flags of `commgauge-sweep`, and the work that they ask for. The launch is in `launched`.

use super::super::LaunchedArguments;
use super::super::SweepArguments;
use super::Work;
use crate::config::RunSettings;
use crate::error::Result;
use crate::record::line::SuiteFacts;
use crate::record::provenance::PROGRAM_VERSION;
use crate::workload::WorkPlan;
use clap::Parser;

/// Measure collectives over sizes on all ranks of the launch
///
/// mpirun -np 4 commgauge-sweep all_reduce -b 8 -e 64M -f 2
#[derive(Debug, Parser)]
#[command(name = "commgauge-sweep", version = PROGRAM_VERSION)]
pub struct Sweep {
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
