//! Everything that needs no launch: starts suites, shows models and records, prints schemas. Links no MPI.

use clap::{Parser, Subcommand};
use commgauge::cli::compare::CompareCommand;
use commgauge::cli::fit::FitCommand;
use commgauge::cli::gate::GateCommand;
use commgauge::cli::import::ImportCommand;
use commgauge::cli::layout::LayoutCommand;
use commgauge::cli::locate::LocateCommand;
use commgauge::cli::model::ModelCommand;
use commgauge::cli::ops::OpsCommand;
use commgauge::cli::predict::PredictCommand;
use commgauge::cli::report::ReportCommand;
use commgauge::cli::run::{self, RunArguments};
use commgauge::cli::schema::SchemaCommand;
use commgauge::cli::simulate::SimulateCommand;
use std::process::exit;

/// Measure the communication that training and serving a large model really does on a cluster
#[derive(Parser)]
#[command(name = "commgauge", version, arg_required_else_help = true)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Launch a suite with mpirun, mpiexec or srun, follow it, and sum up what it measured
    Run(RunArguments),
    /// List every communication of a training or serving step: bytes, counts, what hides it, and why
    Ops(Box<OpsCommand>),
    /// Hold a record against what a machine file expects, and end with the code of the verdict
    Gate(GateCommand),
    /// Tell whether a run is slower than a base, row by row, and end with the code of the verdict
    Compare(CompareCommand),
    /// Name the node, link, rail or leaf that is slow, and say what the data cannot tell
    Locate(LocateCommand),
    /// Show a record as a table, or turn it into another format
    Report(ReportCommand),
    /// Show a model's parameters and shape, and what was inferred, from a Hugging Face config.json
    Model(ModelCommand),
    /// Show the groups of every axis of a layout, and how they lie on the nodes
    Layout(LayoutCommand),
    /// Turn what another tool measured into a record
    Import(ImportCommand),
    /// Fit the cost of communication to records, and tell its own held-out error
    Fit(FitCommand),
    /// Predict the time of a call from a fit
    Predict(PredictCommand),
    /// Rehearse a suite on a simulated machine: how long it takes, what it covers, and what it would find
    Simulate(SimulateCommand),
    /// Print the JSON Schema of what commgauge writes
    Schema(SchemaCommand),
}

fn main() {
    let done = match Program::parse().command {
        Command::Run(arguments) => run::run(&arguments, &mut std::io::stdout().lock()),
        Command::Ops(command) => command.execute(),
        Command::Gate(command) => command.execute(),
        Command::Compare(command) => command.execute(),
        Command::Locate(command) => command.execute(),
        Command::Report(command) => command.execute(),
        Command::Model(command) => command.execute(),
        Command::Layout(command) => command.execute(),
        Command::Import(command) => command.execute(),
        Command::Fit(command) => command.execute(),
        Command::Predict(command) => command.execute(),
        Command::Simulate(command) => command.execute(),
        Command::Schema(command) => command.execute(),
    };
    exit(done.unwrap_or_else(|error| {
        eprintln!("commgauge: {error}");
        error.exit_code()
    }))
}
