//! The launched programs: their flags, and the work that these ask for.

use super::launched_arguments::{Backend, LaunchedArguments, parse_time_limit};
use super::like::with_tool_defaults;
use super::step::{StepArguments, without_trace};
use super::suite::{SuiteWork, suite_work};
use super::{PairsArguments, SweepArguments};
use clap::Parser;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Seconds;
use commgauge_model::config::{Machine, Peer, Suite};
use commgauge_model::layout::Nodes;
use commgauge_model::record::header::program_version;
use commgauge_model::workload::Interference;
use commgauge_run::backend::MeasuredPairs;
use commgauge_run::session::{AfterPlan, ReplayRequest, ReplaySource};
use std::path::PathBuf;

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
    /// Whether pairs of ranks are measured.
    fn measured_pairs(&self) -> MeasuredPairs {
        MeasuredPairs::None
    }
    /// The tool whose way of measuring is followed.
    fn like(&self) -> Option<Peer> {
        None
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
        self.pairs.work(world_size, self.launched.backend)
    }

    fn measured_pairs(&self) -> MeasuredPairs {
        MeasuredPairs::Only
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
pub fn planned(program: &impl Work, backend: Backend, nodes: &Nodes, machine: Option<&Machine>) -> Result<PlannedWork> {
    let nccl = &program.launched().nccl;
    let mut work = program.plan_on(nodes)?;
    work.plan = work.plan.in_variants(&nccl.variants())?;
    work.plan.communicators = backend.communicators(machine);
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
    let perftest = program.launched().perftest.clone();
    if perftest.is_some() && backend == Backend::Simulated {
        return Err(Error::usage("--perftest: simulated hosts have no adapters; accepted: --backend mpi or nccl"));
    }
    Ok(PlannedWork { work, after_plan: AfterPlan { interference, replay, perftest } })
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
#[command(name = "commgauge-step", version = program_version())]
#[command(mut_arg("model", without_trace), mut_arg("from", |flag| flag.hide_short_help(true)))]
pub struct StepRun {
    /// What is measured.
    #[command(flatten)]
    pub step: StepArguments,
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
#[command(name = "commgauge-sweep", version = program_version(), disable_version_flag = true)]
#[command(after_long_help = NCCL_TESTS, mut_args(with_tool_defaults))]
pub struct Sweep {
    #[command(flatten)]
    sweep: SweepArguments,
    #[command(flatten)]
    launched: LaunchedArguments,
    /// Print version
    // Without its usual letter, which nccl-tests has for something else.
    #[arg(long, action = clap::ArgAction::Version, hide_short_help = true)]
    version: Option<bool>,
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

    fn like(&self) -> Option<Peer> {
        self.sweep.like
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
        match self.soak {
            Some(time) => work.soaked(time),
            None => Ok(work),
        }
    }

    fn measured_pairs(&self) -> MeasuredPairs {
        // A file that cannot be read is refused when the work is planned.
        match Suite::load(&self.suite) {
            Ok(Suite { pairs: Some(_), .. }) => MeasuredPairs::Among,
            _ => MeasuredPairs::None,
        }
    }
}
