//! The flags of `commgauge-sweep`, and the requested work. `launched` runs it.

use super::super::like::ToolDefaults;
use super::super::suite::SuiteWork;
use super::super::{LaunchedArguments, SweepArguments};
use super::work::Work;
use clap::Parser;
use commgauge_base::error::Result;
use commgauge_model::record::provenance::program_version;

/// Text of --help about flags that it does not list.
const NCCL_TESTS: &str = "Of the other options of nccl-tests (-t -g -p -a -N -I -K -C -M -u -S -z -G -R -D -V -x -J -y -T) the values that ask for what \
    happens here anyway are accepted, such as -g 1, and the others refused with what there is instead: docs/interop.md.";

/// Measure collectives over sizes on all ranks of the launch
///
/// mpirun -np 4 commgauge-sweep all_reduce -b 8 -e 64M -f 2
#[derive(Debug, Parser)]
#[command(name = "commgauge-sweep", version = program_version(), disable_version_flag = true, after_help = NCCL_TESTS)]
pub struct Sweep {
    #[command(flatten)]
    sweep: SweepArguments,
    #[command(flatten)]
    launched: LaunchedArguments,
    /// Print version
    // Without its usual letter, which nccl-tests has for something else.
    #[arg(long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    // Last, since it refers to the flags above.
    #[command(flatten)]
    _habits: ToolDefaults,
}

impl Work for Sweep {
    fn launched(&self) -> &LaunchedArguments {
        &self.launched
    }

    fn plan(&self, world_size: u32) -> Result<SuiteWork> {
        self.sweep.plan(world_size)
    }

    fn shows_rows(&self) -> bool {
        true
    }
}
