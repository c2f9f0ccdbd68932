//! The definition of every program: its flags and the requested work. Parsing, help, completions and man pages are
//! derived from it.
//!
//! Nothing here needs MPI, so that `commgauge` has the definitions of the launched programs too; `launched` runs them.

use super::calibrate::Calibrate;
use super::doctor::DoctorCommand;
use super::expect::ExpectCommand;
use super::interop::{ExportCommand, ImportCommand};
use super::judge::{CompareCommand, HistoryCommand, JudgeCommand};
use super::plan::Plan;
use super::rank::{OpsCommand, Rank};
use super::report::ReportCommand;
use super::run::RunArguments;
use super::show::{ProgramName, ShowCommand};
use super::simulate::SimulateCommand;
use super::trace::TraceCommand;
use super::work::{PairsRun, StepRun, SuiteRun, Sweep};
use crate::cli::{help, run};
use clap::{CommandFactory, Parser, Subcommand};
use commgauge_base::error::Result;
use commgauge_model::record::header::program_version;

// The user-facing program: its commands, each in its own file. None needs a launch; does not link MPI.

/// Further reading.
const MORE: &str = "Start with `commgauge run quick`. COMMAND -h has its main flags, COMMAND --help\nall of them.";

/// Measure the communication of training and serving a large model on a cluster
#[derive(Debug, Parser)]
#[command(name = "commgauge", version = program_version(), arg_required_else_help = true, after_help = MORE)]
pub struct Commgauge {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do, in the order of the groups of the help.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Launch a suite, follow it, and sum up what it measured
    Run(RunArguments),
    /// Show what can run here, what is missing, and the fix
    Doctor(DoctorCommand),
    /// Rehearse a suite on a simulated machine
    Simulate(SimulateCommand),

    /// Judge a finished run: thresholds, suspects and the page
    Judge(JudgeCommand),
    /// Decide whether a run is slower than a base, row by row
    Compare(CompareCommand),
    /// Show runs over time, and where they changed
    History(HistoryCommand),
    /// Check or learn machine files; test the rules of verdicts
    Expect(ExpectCommand),

    /// Show a record as a table, or turn it into another format
    Report(ReportCommand),
    /// Turn what another tool measured into a record
    Import(ImportCommand),
    /// Write a fit as calibration files of another planner
    Export(ExportCommand),

    /// Fit the cost of calls to records, or measure for a plan
    Calibrate(Box<Calibrate>),
    /// Find the fastest way to divide a model over GPUs
    Plan(Box<Plan>),
    /// Rank the axes of a layout by time, or predict a call
    Rank(Box<Rank>),

    /// List every call of a training or serving step, and why
    Ops(Box<OpsCommand>),
    /// Show what a job called, from its traces, against its step
    Trace(Box<TraceCommand>),
    /// Show names, shipped files, models, layouts and schemas
    Show(ShowCommand),
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
            Command::Show(command) => command.execute(ProgramName::definition),
            Command::Doctor(command) => command.execute(),
        }
    }
}
