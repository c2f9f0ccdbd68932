//! The definition of every program: its flags and the requested work. Parsing, help, completions and man pages are
//! derived from it.
//!
//! Nothing here needs MPI, so that `commgauge` has the definitions of the launched programs too; `launched` runs them.

use super::calibrate::Calibrate;
use super::doctor::DoctorCommand;
use super::expect::ExpectCommand;
use super::interop::ExportCommand;
use super::interop::ImportCommand;
use super::judge::HistoryCommand;
use super::judge::{CompareCommand, JudgeCommand};
use super::launched_arguments::Backend;
use super::launched_arguments::parse_time_limit;
use super::like::ToolDefaults;
use super::ops::OpsCommand;
use super::plan::Plan;
use super::rank::Rank;
use super::report::ReportCommand;
use super::run::RunArguments;
use super::show::ProgramName;
use super::show::ShowCommand;
use super::simulate::SimulateCommand;
use super::step::{StepArguments, without_trace};
use super::suite::{SuiteWork, suite_work};
use super::trace::TraceCommand;
use super::{PairsArguments, SweepArguments};
use crate::cli::{LaunchedArguments, help, run};
use clap::{CommandFactory, Parser, Subcommand};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Seconds;
use commgauge_model::layout::Nodes;
use commgauge_model::record::header::program_version;
use commgauge_model::workload::Interference;
use commgauge_run::session::{AfterPlan, ReplayRequest, ReplaySource};
use std::path::PathBuf;

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

// What a launched program adds to the common flags.

/// The work that a launched program adds to the common flags.
pub trait Work {
    /// The common flags.
    fn launched(&self) -> &LaunchedArguments;
    /// The plan, sampling settings and request on this many ranks.
    fn plan(&self, world_size: u32) -> Result<SuiteWork>;
    /// The same for plans that depend on which ranks share a node.
    fn plan_on(&self, nodes: &Nodes) -> Result<SuiteWork> {
        self.plan(nodes.ranks())
    }
    /// Whether rows are printed as they are done; the last replicate of the plan is then in their order.
    fn shows_rows(&self) -> bool {
        false
    }
    /// Whether a rank has calls of several groups in flight at once.
    fn calls_overlap(&self) -> bool {
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

// The flags of `commgauge-pairs`, and the requested work. `launched` runs it.

/// Measure latency and bandwidth between every two ranks of the launch
///
/// Shows which pair, link or host is slow.
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

// What a launched program measures by its flags: for the program itself, and for `commgauge run` before it starts one.

/// The work to be measured.
pub struct PlannedWork {
    /// The cases, in every variant that the flags ask for.
    pub work: SuiteWork,
    /// What is measured after them.
    pub after_plan: AfterPlan,
}

/// The work on these nodes.
///
/// # Errors
/// Usage errors that name the flag or the file.
pub fn planned(program: &impl Work, backend: Backend, nodes: &Nodes) -> Result<PlannedWork> {
    let nccl = &program.launched().nccl;
    let mut work = program.plan_on(nodes)?;
    work.plan = work.plan.in_variants(&nccl.variants())?;
    if backend != Backend::Nccl {
        work.plan.ensure_portable()?;
    }
    let interference = program.interference(nodes.ranks())?;
    if interference.is_some() {
        nccl.check_without_variants("--interfere")?;
    }
    let replay = program.replay(nodes.ranks())?;
    if let Some(replay) = &replay {
        nccl.check_without_variants("--replay")?;
        if backend == Backend::Nccl && matches!(replay.source, ReplaySource::Trace(_)) {
            return Err(Error::usage("--trace: a trace is replayed on host memory; accepted: --backend mpi"));
        }
    }
    Ok(PlannedWork { work, after_plan: AfterPlan { interference, replay } })
}

// The flags of `commgauge-step`, and the requested work. `launched` runs it.

/// Measure every call of a model's training or serving step on the launched ranks
///
/// Shows what each call costs in a step.
///
/// mpirun -np 4 commgauge-step --model llama-3-8b --layers 4 --tp 2 --pp 2 --sequence 1024 --micro-batches 4
///
/// mpirun -np 4 commgauge-step --trace trace-rank*.json.gz --tp 2 --dp 2
#[derive(Debug, Parser)]
#[command(name = "commgauge-step", version = program_version(), mut_arg("model", without_trace))]
pub struct StepRun {
    #[command(flatten)]
    step: StepArguments,
    #[command(flatten)]
    launched: LaunchedArguments,
}

impl Work for StepRun {
    fn launched(&self) -> &LaunchedArguments {
        &self.launched
    }

    fn plan(&self, world_size: u32) -> Result<SuiteWork> {
        self.step.work(world_size)
    }

    fn calls_overlap(&self) -> bool {
        self.step.calls_overlap()
    }

    fn interference(&self, world_size: u32) -> Result<Option<Interference>> {
        self.step.interference(world_size)
    }

    fn replay(&self, world_size: u32) -> Result<Option<ReplayRequest>> {
        self.step.replay(world_size)
    }
}

// The flags of `commgauge-sweep`, and the requested work. `launched` runs it.

/// Text of --help about flags that it does not list.
const NCCL_TESTS: &str = "Of the other options of nccl-tests (-t -g -p -a -N -I -K -C -M -u -S -z -G -R -D -V -x -J -y -T) the values that ask for what \
    happens here anyway are accepted, such as -g 1, and the others refused with what there is instead: docs/interop.md.";

/// Measure collectives over sizes on all ranks of the launch
///
/// mpirun -np 4 commgauge-sweep all_reduce -b 8 -e 64M -f 2
#[derive(Debug, Parser)]
#[command(name = "commgauge-sweep", version = program_version(), disable_version_flag = true, after_long_help = NCCL_TESTS)]
pub struct Sweep {
    #[command(flatten)]
    sweep: SweepArguments,
    #[command(flatten)]
    launched: LaunchedArguments,
    /// Print version
    // Without its usual letter, which nccl-tests has for something else.
    #[arg(long, action = clap::ArgAction::Version, hide_short_help = true)]
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

// The flags of `commgauge-suite`, and the requested work. `launched` runs it.

/// Run a suite file on all ranks of the launch
///
/// mpirun -np 4 commgauge-suite quick
#[derive(Debug, Parser)]
#[command(name = "commgauge-suite", version = program_version())]
pub struct SuiteRun {
    /// Suite file, or the name of one (`commgauge show suites`)
    suite: PathBuf,
    /// Time for all cases together, such as 10m
    ///
    /// A short round goes over all cases, then further ones (as many as the suite has replicates, at least one) in which those with the
    /// widest intervals get the most of the time.
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit, hide_short_help = true)]
    within: Option<Seconds>,
    /// Repeat all calls of the suite for this time, such as 2h, with rolling checks and changing data
    ///
    /// Ends at the first wrong byte and says which call it was. Products and copies of the suite are left out.
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit, conflicts_with = "within", hide_short_help = true)]
    soak: Option<Seconds>,
    #[command(flatten)]
    launched: LaunchedArguments,
}

impl Work for SuiteRun {
    fn launched(&self) -> &LaunchedArguments {
        &self.launched
    }

    fn plan(&self, world_size: u32) -> Result<SuiteWork> {
        self.plan_on(&Nodes::single(world_size))
    }

    fn plan_on(&self, nodes: &Nodes) -> Result<SuiteWork> {
        let work = suite_work(&self.suite, self.within, nodes)?;
        self.soak.map_or(Ok(work.clone()), |time| work.soaked(time))
    }
}
