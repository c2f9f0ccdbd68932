//! The definition of every program: its flags and the requested work. Parsing, help, completions and man pages are
//! derived from it.
//!
//! Nothing here needs MPI, so that `commgauge` has the definitions of the launched programs too; `launched` runs them.

mod commgauge;
mod pairs;
mod step;
mod suite;
mod sweep;

pub use commgauge::{Command, Commgauge};
pub use pairs::PairsRun;
pub use step::StepRun;
pub use suite::SuiteRun;
pub use sweep::Sweep;

use super::LaunchedArguments;
use super::help;
use clap::CommandFactory;
use commgauge_base::error::Result;
use commgauge_model::config::RunSettings;
use commgauge_model::layout::Nodes;
use commgauge_model::record::line::SuiteFacts;
use commgauge_model::workload::{Interference, WorkPlan};
use commgauge_run::session::ReplayRequest;

/// A program of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ProgramName {
    /// The one that people start; links no MPI
    #[default]
    Commgauge,
    /// Runs a suite file in one launch
    CommgaugeSuite,
    /// Collectives over sizes, with the flags of nccl-tests
    CommgaugeSweep,
    /// The traffic of a model's step
    CommgaugeStep,
    /// Every two ranks
    CommgaugePairs,
}

impl ProgramName {
    /// The definition of its command line.
    pub fn definition(self) -> clap::Command {
        help::finished(match self {
            ProgramName::Commgauge => Commgauge::command(),
            ProgramName::CommgaugeSuite => SuiteRun::command(),
            ProgramName::CommgaugeSweep => Sweep::command(),
            ProgramName::CommgaugeStep => StepRun::command(),
            ProgramName::CommgaugePairs => PairsRun::command(),
        })
    }
}

/// The work that a launched program adds to the common flags.
pub trait Work {
    /// The common flags.
    fn launched(&self) -> &LaunchedArguments;
    /// The plan, sampling settings and request on this many ranks.
    fn plan(&self, world_size: u32) -> Result<(WorkPlan, RunSettings, SuiteFacts)>;
    /// The same for plans that depend on which ranks share a node.
    fn plan_on(&self, nodes: &Nodes) -> Result<(WorkPlan, RunSettings, SuiteFacts)> {
        self.plan(nodes.ranks())
    }
    /// Whether rows are printed as they are done; the last replicate of the plan is then in their order.
    fn shows_rows(&self) -> bool {
        false
    }
    /// Two calls to be measured concurrently, in addition.
    fn interference(&self, _world_size: u32) -> Result<Option<Interference>> {
        Ok(None)
    }
    /// The layout whose step is also replayed as a whole, with options.
    fn replay(&self, _world_size: u32) -> Result<Option<ReplayRequest>> {
        Ok(None)
    }
}
