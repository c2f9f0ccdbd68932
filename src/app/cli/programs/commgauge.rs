//! The user-facing program: its commands, each in its own file. None needs a launch; does not link MPI.

use super::super::calibrate::CalibrateCommand;
use super::super::compare::CompareCommand;
use super::super::doctor::DoctorCommand;
use super::super::expect::ExpectCommand;
use super::super::export::ExportCommand;
use super::super::fit::FitCommand;
use super::super::gate::GateCommand;
use super::super::history::HistoryCommand;
use super::super::import::ImportCommand;
use super::super::judge::JudgeCommand;
use super::super::layout::LayoutCommand;
use super::super::list::ListCommand;
use super::super::locate::LocateCommand;
use super::super::manual::{CompletionsCommand, ManCommand};
use super::super::model::ModelCommand;
use super::super::ops::OpsCommand;
use super::super::plan::PlanCommand;
use super::super::predict::PredictCommand;
use super::super::rank::RankCommand;
use super::super::report::ReportCommand;
use super::super::run::RunArguments;
use super::super::schema::SchemaCommand;
use super::super::selftest::SelfTestCommand;
use super::super::show::ShowCommand;
use super::super::simulate::SimulateCommand;
use super::super::trace::TraceCommand;
use super::super::validate::ValidateCommand;
use clap::{Parser, Subcommand};
use commgauge_model::record::provenance::program_version;

/// Further reading.
const MORE: &str = "Start with `commgauge run quick`, then `commgauge list`; `commgauge COMMAND -h` has its main flags, `--help` all of them.";

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
    /// Compare a record with what a machine file expects
    Gate(GateCommand),
    /// Decide whether a run is slower than a base, row by row
    Compare(CompareCommand),
    /// Show runs over time, and where they changed
    History(HistoryCommand),
    /// Machine files: check them, or make one from healthy runs
    Expect(ExpectCommand),
    /// Name the node, link, rail or leaf that is slow
    Locate(LocateCommand),
    /// Show a record as a table, or turn it into another format
    Report(ReportCommand),
    /// Show a model's shape and parameters, from its config.json
    Model(ModelCommand),
    /// Show the groups of a layout, and how they are placed on the nodes
    Layout(LayoutCommand),
    /// Turn what another tool measured into a record
    Import(ImportCommand),
    /// Fit the cost of communication to records
    Fit(FitCommand),
    /// Write a fit as the calibration files that another planner reads
    Export(ExportCommand),
    /// Measure what planning a model asks for, fit it, and end with the ranking and the plan
    Calibrate(Box<CalibrateCommand>),
    /// Predict the time of a call from a fit
    Predict(PredictCommand),
    /// Rank the parallelisms of a layout by bytes and predicted time
    Rank(Box<RankCommand>),
    /// Find the fastest way to divide a model over GPUs
    Plan(Box<PlanCommand>),
    /// Predict published training runs, and show how far off it is
    Validate(ValidateCommand),
    /// Measure how often the rules of gate and compare err
    Selftest(SelfTestCommand),
    /// Rehearse a suite on a simulated machine
    Simulate(SimulateCommand),
    /// Print the JSON Schema of what commgauge writes
    Schema(SchemaCommand),
    /// List suites, models, machines, collectives and all other names
    List(ListCommand),
    /// Print an embedded suite, model or machine file, as a copy to change
    Show(ShowCommand),
    /// Show what can run on this machine, what is missing, and the fix
    Doctor(DoctorCommand),
    /// Print the completions of a shell
    Completions(CompletionsCommand),
    /// Print or write man pages
    Man(ManCommand),
}
