//! The definition of every program: its flags and the requested work. Parsing, help, completions and man pages are
//! derived from it.
//!
//! Nothing here needs MPI, so that `commgauge` has the definitions of the launched programs too; `launched` runs them.

mod name;
mod work;

pub use name::ProgramName;
pub use work::{PairsRun, PlannedWork, StepRun, SuiteRun, Sweep, Work, planned};

use super::calibrate::Calibrate;
use super::doctor::DoctorCommand;
use super::expect::ExpectCommand;
use super::export::ExportCommand;
use super::history::HistoryCommand;
use super::import::ImportCommand;
use super::judge::{CompareCommand, JudgeCommand};
use super::ops::OpsCommand;
use super::plan::Plan;
use super::rank::Rank;
use super::report::ReportCommand;
use super::run::RunArguments;
use super::show::ShowCommand;
use super::simulate::SimulateCommand;
use super::trace::TraceCommand;
use crate::cli::{help, run};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use commgauge_base::error::Result;
use commgauge_model::record::header::program_version;

// The user-facing program: its commands, each in its own file. None needs a launch; does not link MPI.

/// Further reading.
const MORE: &str = "Start with `commgauge run quick`, then `commgauge show`; `commgauge COMMAND -h` has its main flags, `--help` all of them.";

/// Measure the communication that training and serving a large model really does on a cluster
#[derive(Debug, Parser)]
#[command(name = "commgauge", version = program_version(), arg_required_else_help = true, after_help = MORE)]
pub struct Commgauge {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Launch a suite, follow it, and sum up what it measured
    Run(RunArguments),
    /// List every call of a training or serving step, and why
    Ops(Box<OpsCommand>),
    /// Show what a job really called, from its traces, against the list of its step
    Trace(Box<TraceCommand>),
    /// Judge a finished run: thresholds, suspects and the page in one
    Judge(JudgeCommand),
    /// Decide whether a run is slower than a base, row by row
    Compare(CompareCommand),
    /// Show runs over time, and where they changed
    History(HistoryCommand),
    /// Machine files: check them, or make one from healthy runs
    Expect(ExpectCommand),
    /// Show a record as a table, or turn it into another format
    Report(ReportCommand),
    /// Turn what another tool measured into a record
    Import(ImportCommand),
    /// Write a fit as the calibration files that another planner reads
    Export(ExportCommand),
    /// Fit the cost of communication to records, or measure what a plan needs
    Calibrate(Box<Calibrate>),
    /// Rank the parallelisms of a layout by cost, or predict one call
    Rank(Box<Rank>),
    /// Find the fastest way to divide a model over GPUs
    Plan(Box<Plan>),
    /// Rehearse a suite on a simulated machine
    Simulate(SimulateCommand),
    /// Show names, shipped files, models, layouts and schemas
    Show(ShowCommand),
    /// Show what can run on this machine, what is missing, and the fix
    Doctor(DoctorCommand),
}

// The definition of every program's command line, of which help, completions, man pages and lists are made.

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

/// The definitions of all programs.
pub fn definitions() -> Vec<clap::Command> {
    ProgramName::value_variants().iter().map(|program| program.definition()).collect()
}

// Runs the command that a user asked `commgauge` for.

impl Commgauge {
    /// Runs the requested command; its output goes to stdout.
    ///
    /// # Errors
    /// Those of the command.
    pub fn execute(self) -> Result<i32> {
        match self.command {
            Command::Run(arguments) => run::run(&arguments, &mut std::io::stdout().lock()),
            Command::Ops(command) => command.execute(),
            Command::Judge(command) => command.execute(),
            Command::Compare(command) => command.execute(),
            Command::History(command) => command.execute(),
            Command::Expect(command) => command.execute(),
            Command::Report(command) => command.execute(),
            Command::Import(command) => command.execute(),
            Command::Trace(command) => command.execute(),
            Command::Export(command) => command.execute(),
            Command::Calibrate(command) => command.execute(),
            Command::Rank(command) => command.execute(),
            Command::Plan(command) => command.execute(),
            Command::Simulate(command) => command.execute(),
            Command::Show(command) => command.execute(),
            Command::Doctor(command) => command.execute(),
        }
    }
}
