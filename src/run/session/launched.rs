//! The phases of a launch before and after its run, in the order in which `session` calls them: `check` that the ranks
//! belong together, `backend` with its devices, `guard`, the watchdog; around all of them `rank`, from the start of MPI
//! to its end. `description` is what they are given.

use crate::backend::mpi::MpiBackend;
use crate::backend::nccl::{DeviceFacts, Log, Opened, Options, Placing, visible_devices};
use crate::backend::{Backend, mpi, nccl};
use crate::launch_check::{
    Allowances, Fact, LaunchReport, NumberVariable, RankHosts, RankLocation, RankProfile, inspect, launcher_env,
    locate_ranks,
};
use crate::mpi_call::Waiting;
use crate::session::journal::{Listener, Signals};
use crate::session::request::{LaunchFacts, Request, Resume};
use crate::watchdog::Watch;
use crate::world::{MpiWorld, World, agree};
use crate::{mpi_call, watchdog};
use commgauge_base::error::{Error, Result};
use commgauge_base::progress::Fault;
use commgauge_base::units::Seconds;
use commgauge_model::layout::Nodes;
use commgauge_model::record::line::End;
use commgauge_model::record::{Record, header};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

// The backend of a launch: first its device, which the launch check compares, then the backend itself.

/// What a rank needs for its backend, found but not used yet.
pub enum OpenedBackend {
    /// Host memory over MPI.
    Mpi {
        /// Ranks on the host of this one.
        ranks_on_host: u32,
    },
    /// A device over NCCL.
    Nccl(Box<OpenedDevice>),
}

/// The device of a rank.
pub struct OpenedDevice {
    opened: Opened,
    placing: Placing,
    options: Options,
}

/// Sets the variables that libraries read. To be called while the process has a single thread, so before MPI starts.
pub fn prepare_environment(launch: &Launch) -> Result<Option<Log>> {
    match &launch.backend {
        LaunchedBackend::Mpi => Ok(None),
        LaunchedBackend::Nccl(nccl) => nccl.environment.prepare(),
    }
}

/// Unique names of the devices that each rank sees. Collective.
fn seen_by_all(world: &dyn World) -> Result<Vec<Vec<String>>> {
    let mut all = world.gather(visible_devices().join("\n").as_bytes())?.join(&b'\0');
    world.broadcast(&mut all)?;
    let names = |rank: &str| rank.lines().map(str::to_owned).collect();
    Ok(String::from_utf8_lossy(&all).split('\0').map(names).collect())
}

impl OpenedBackend {
    /// Opens the device of a rank, if the backend needs one. Collective in what devices the ranks see; they agree on the result
    /// later.
    pub fn open(launch: &Launch, hosts: &[String], world: &dyn World) -> Result<OpenedBackend> {
        let me = world.process() as usize;
        let ranks_on_host = hosts.iter().filter(|host| **host == hosts[me]).count() as u32;
        let LaunchedBackend::Nccl(nccl) = &launch.backend else { return Ok(OpenedBackend::Mpi { ranks_on_host }) };
        let seen = seen_by_all(world)?;
        let on_this_host = |(host, seen): (&String, Vec<String>)| (*host == hosts[me]).then_some(seen);
        let placing = Placing {
            visible: hosts.iter().zip(seen).filter_map(on_this_host).collect(),
            local_rank: hosts[..me].iter().filter(|host| **host == hosts[me]).count() as u32,
            ranks_on_host,
            host: hosts[me].clone(),
            device_map: nccl.device_map.clone(),
            share_gpu: nccl.environment.share_gpu,
        };
        let mut options = nccl.options.clone();
        options.deadlines.communicator = launch.watchdog.timeout;
        let opened = Opened::find(&options, &placing)?;
        Ok(OpenedBackend::Nccl(Box::new(OpenedDevice { opened, placing, options })))
    }

    /// Facts about the device, for the launch check.
    pub fn device_facts(&self) -> Option<DeviceFacts> {
        match self {
            OpenedBackend::Mpi { .. } => None,
            OpenedBackend::Nccl(device) => Some(device.opened.device_facts()),
        }
    }

    /// The backend, after all ranks have what it needs; the watchdog gets the name of the device. Collective.
    pub fn into_backend(self, watch: &Watch, log: Option<Log>) -> Result<Box<dyn Backend>> {
        match self {
            OpenedBackend::Mpi { ranks_on_host } => Ok(Box::new(MpiBackend::new(ranks_on_host)?)),
            OpenedBackend::Nccl(device) => {
                let OpenedDevice { opened, placing, mut options } = *device;
                options.deadlines.replay = watch.timeout().map(|timeout| watch.local_timeout(timeout));
                watch.device(&opened.device());
                Ok(Box::new(opened.into_backend(&options, &placing, log)?))
            }
        }
    }
}

// The launch check: that the ranks are as many as expected, were given the same options, and belong together.

/// Detects a failed launch: a program started N times as N single processes. Collective.
pub fn number_of_ranks(launch: &Launch, world: &dyn World) -> Result<()> {
    let ranks = world.processes();
    let variables = launcher_env(&|name| std::env::var(name).ok());
    let library = mpi_call::library_version();
    let verdict = match (launch.expected_ranks, variables.contradiction(ranks)) {
        (Some(expected), _) if expected == ranks => Ok(()),
        (Some(expected), _) => Err(Error::usage(format!(
            "--expect-ranks {expected}: this launch has {ranks} ranks; start it with the launcher of the MPI that commgauge was built with ({library})"
        ))),
        (None, Some(NumberVariable { name, number: reported })) if ranks == 1 => Err(Error::usage(format!(
            "the launcher reports {reported} ranks ({name}), MPI reports 1: the launcher is not that of the MPI that commgauge was built with ({library})"
        ))),
        (None, _) if ranks == 1 => Err(Error::usage(
            "this launch has a single rank: start it as `mpirun -np 4 ...` or through `commgauge run`, or use --expect-ranks 1 if one rank is meant",
        )),
        _ => Ok(()),
    };
    agree(world, verdict)
}

/// Rejects ranks of which only some resume a record or have a time limit: they would wait for each other forever.
/// Collective.
pub fn same_options(launch: &Launch, world: &dyn World) -> Result<()> {
    let mine = format!("{:?} {:?}", launch.resume, launch.time_limit);
    let all = world.gather(mine.as_bytes())?;
    let differing = all.iter().position(|theirs| Some(theirs) != all.first());
    agree(
        world,
        differing.map_or(Ok(()), |rank| {
            let flags = "--resume, --allow-changed and --time-limit";
            Err(Error::mismatch(format!(
                "rank {rank} was not given the same {flags} as rank 0; give all ranks the same"
            )))
        }),
    )
}

/// The exit code of a record to resume in which no work is left, the same on every rank. Collective.
pub fn finished_record(launch: &Launch, world: &dyn World, program: &dyn Program) -> Result<Option<i32>> {
    let Some(resumed) = &launch.resume else { return Ok(None) };
    let inspected = || program.inspect_resumed(&Record::read(&resumed.path)?, &resumed.path);
    let mine = agree(world, if world.process() == 0 { inspected() } else { Ok(None) })?;
    let mut shared = [mine.map_or(u64::MAX, |exit_code| exit_code as u64)];
    world.broadcast_u64(&mut shared)?;
    Ok(i32::try_from(shared[0]).ok())
}

/// The host of every rank. Collective.
pub fn hosts(world: &MpiWorld) -> Result<RankHosts> {
    locate_ranks(world, &RankLocation::here(Some(world.shared_memory_leader()?)))
}

/// Compares all ranks. Collective; the report is on process 0. A rank whose input cannot be planned, or which has no
/// device, contributes nothing of it; its error is reported after the ranks are known to belong together.
pub fn compare(
    launch: &Launch,
    world: &dyn World,
    hosts: &RankHosts,
    request: Option<&Request>,
    opened: Option<&OpenedBackend>,
) -> Result<Option<LaunchReport>> {
    let mut profile = RankProfile::of_this_process(&header::rank_facts(world.process()));
    // If the program's file is gone, it is not compared; the run itself will report that.
    profile.set(Fact::Program, header::program_sha256().unwrap_or_default());
    profile.set(Fact::MpiLibrary, mpi_call::library_version());
    if let Some(request) = request {
        profile.set(Fact::Suite, request.suite.sha256.clone());
        profile.set_settings(&request.settings, request.plan.cases.len());
    }
    if let Some(device) = opened.and_then(OpenedBackend::device_facts) {
        profile.set(Fact::DeviceModel, device.model);
        profile.set(Fact::DeviceUuid, device.uuid);
        profile.set(Fact::GpuDriver, device.driver);
        profile.set(Fact::NcclVersion, device.nccl_version);
        profile.set(Fact::NcclFile, device.nccl_file);
    }
    let shared_devices = matches!(&launch.backend, LaunchedBackend::Nccl(nccl) if nccl.environment.share_gpu);
    inspect(world, &profile, hosts, Allowances { mixed: launch.allow_mixed, shared_devices })
}

/// Ends all ranks with the same error if the report refuses the launch. Collective.
pub fn refuse(world: &dyn World, report: Option<&LaunchReport>, program: &dyn Program) -> Result<()> {
    let mut text = report.map_or_else(Vec::new, |report| program.refusal(report).into_bytes());
    world.broadcast(&mut text)?;
    if text.is_empty() { Ok(()) } else { Err(Error::mismatch(String::from_utf8_lossy(&text)).shared()) }
}

/// Shows the report as the only result; the exit code is the same on all ranks. Collective.
pub fn show(world: &dyn World, report: Option<&LaunchReport>, program: &dyn Program) -> Result<i32> {
    let mut refused = [report.map_or(0, |report| u64::from(!report.refusals.is_empty()))];
    agree(world, report.map_or(Ok(()), |report| program.show_check(report)))?;
    world.broadcast_u64(&mut refused)?;
    Ok(if refused[0] == 0 { 0 } else { 7 })
}

/// Makes all ranks yield their processors while they wait if any of them share processors, and none otherwise.
/// Collective.
pub fn yield_if_oversubscribed(world: &dyn World, report: Option<&LaunchReport>) -> Result<()> {
    let mut shared =
        [report.map_or(0, |report| u64::from(report.hosts.iter().any(|host| host.ranks_share_processors)))];
    world.broadcast_u64(&mut shared)?;
    mpi_call::set_waiting(if shared[0] == 0 { Waiting::Spins } else { Waiting::Yields });
    Ok(())
}

/// What the record holds of the check.
pub fn facts(hosts: RankHosts, report: Option<LaunchReport>) -> LaunchFacts {
    let (warnings, notes) = report.map(|report| (report.warnings, report.notes)).unwrap_or_default();
    LaunchFacts { hosts: hosts.hosts, warnings, notes }
}

// A launch as plain data, and what its program contributes.

/// How a launch is to be carried out, whatever it measures.
#[derive(Clone, Debug)]
pub struct Launch {
    /// When this process began, from which the time limit counts.
    pub begun: Instant,
    /// Who carries the calls out.
    pub backend: LaunchedBackend,
    /// Number of ranks that the launch must have; needed for a launch of one rank.
    pub expected_ranks: Option<u32>,
    /// Whether the launch ends after its check.
    pub only_check: bool,
    /// Whether ranks may differ in environment, libraries or drivers.
    pub allow_mixed: bool,
    /// The record to resume.
    pub resume: Option<ResumedRecord>,
    /// Time after which no work is begun.
    pub time_limit: Option<Seconds>,
    /// Detection of hangs.
    pub watchdog: WatchdogOptions,
}

/// A backend whose ranks are launched.
#[derive(Clone, Debug)]
pub enum LaunchedBackend {
    /// Host memory over MPI.
    Mpi,
    /// Device memory over NCCL.
    Nccl(Box<NcclLaunch>),
}

/// What a launch over NCCL needs to know.
#[derive(Clone, Debug)]
pub struct NcclLaunch {
    /// The variables that NCCL reads.
    pub environment: nccl::Environment,
    /// Options of the backend; its deadlines follow from those of the watchdog.
    pub options: nccl::Options,
    /// Device of each rank of a host, in order.
    pub device_map: Option<Vec<u32>>,
}

/// A record of an earlier launch, with which this one goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumedRecord {
    /// The file.
    pub path: PathBuf,
    /// What may differ.
    pub options: Resume,
}

/// How hangs are detected.
#[derive(Clone, Debug)]
pub struct WatchdogOptions {
    /// Whether there is a watchdog.
    pub is_enabled: bool,
    /// How long a rank may stay in one operation, instead of what follows from each case.
    pub timeout: Option<Duration>,
    /// A rank that misbehaves, for tests.
    pub fault: Option<Fault>,
}

/// The program of a launch: plans the work once the ranks are known, and shows what the session finds. Messages and
/// results are shown on process 0 only, where nothing else is said.
pub trait Program {
    /// What is to be measured on these nodes. Called on every process.
    ///
    /// # Errors
    /// Usage errors; the other ranks need not have them.
    fn request(&self, nodes: &Nodes) -> Result<Request>;

    /// Looks at a record before it is resumed. Returns its exit code if nothing is left to measure.
    ///
    /// # Errors
    /// If it cannot be resumed.
    fn inspect_resumed(&self, record: &Record, path: &Path) -> Result<Option<i32>>;

    /// Why a launch is refused, as text; empty if it is not.
    fn refusal(&self, report: &LaunchReport) -> String;

    /// Shows the result of the launch check, where nothing else was requested.
    ///
    /// # Errors
    /// If it cannot be written.
    fn show_check(&self, report: &LaunchReport) -> Result<()>;

    /// Receives the lines of the record.
    fn listener(&mut self) -> Listener;

    /// Shows the record, also of a run that failed and so has no end.
    ///
    /// # Errors
    /// If it cannot be read or shown.
    fn show_results(&self, request: &Request, end: Option<&End>) -> Result<()>;

    /// Prints an error. Called on process 0 if all have it, else on the process that has it.
    fn print_error(&self, text: &str);
}

// The watchdog of a launch: its collectors, its start, and how it learns of panics.

/// Runs this process as a collector of the watchdog if it was started as one, and returns its exit code. To be called
/// before anything else.
pub fn run_collector() -> Option<i32> {
    std::env::var_os(watchdog::COLLECTOR_VARIABLE)?;
    // A process that is no rank must not hold the launcher's or MPI's files open.
    mpi_call::close_inherited_files();
    Some(watchdog::collector::main())
}

/// Starts the watchdog, unless it is disabled. Collective.
pub fn start(launch: &Launch, world: &dyn World, request: &Request, signals: &Signals) -> Result<Watch> {
    let options = &launch.watchdog;
    if !options.is_enabled {
        return Ok(Watch::disabled(options.timeout));
    }
    let setup = watchdog::Setup {
        hosts: &request.launch.hosts,
        record: request.record.clone(),
        backend: match launch.backend {
            LaunchedBackend::Mpi => "mpi",
            LaunchedBackend::Nccl(_) => "nccl",
        },
        timeout: options.timeout,
        signal: signals.number(),
        fault: options.fault,
        end_launch: mpi_call::abort,
    };
    watchdog::start(world, setup)
}

/// A rank that panics ends the launch; the watchdog is informed first, so that no other rank becomes a suspect.
pub fn report_panics_to(watch: &Watch) {
    let (watch, before) = (watch.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        watch.leave(6, &format!("a broken assumption: {panic}"));
        before(panic);
    }));
}

// A rank of a launch, from the start of MPI to its end.

/// Time for a launcher to forward the output of a rank.
const FORWARDING_DELAY: Duration = Duration::from_millis(200);

/// This process as a rank.
pub struct Rank {
    mpi: mpi_call::Session,
    /// The ranks of the launch.
    pub world: MpiWorld,
    /// The watchdog, once it was started.
    pub watch: Watch,
}

impl Rank {
    /// Starts MPI. Does not return if that fails.
    pub fn start(program: &dyn Program) -> Rank {
        let started = mpi_call::initialize().and_then(|mpi| Ok((mpi, MpiWorld::new()?)));
        match started {
            Ok((mpi, world)) => Rank { mpi, world, watch: Watch::default() },
            Err(error) => abort(&error, program),
        }
    }

    /// Ends MPI, and returns the exit code. Does not return if only this rank has an error: the launch is aborted.
    pub fn end(self, measured: Result<i32>, program: &dyn Program) -> i32 {
        let Rank { mpi, world, watch } = self;
        let (exit_code, why) = match measured {
            Ok(exit_code) => (exit_code, String::new()),
            Err(error) if error.is_shared() => {
                if world.process() == 0 {
                    program.print_error(&error.to_string());
                }
                (error.exit_code(), error.to_string())
            }
            Err(error) => {
                watch.leave(error.exit_code(), &error.to_string());
                abort(&error, program)
            }
        };
        watch.begin_end();
        drop(mpi);
        watch.leave(exit_code, &why);
        mpi_call::pause_before_exit(mpi::processors());
        exit_code
    }
}

/// Ends the whole launch after an error that only this rank knows of.
fn abort(error: &Error, program: &dyn Program) -> ! {
    let (rank, host, text) = (mpi_call::rank_of_this_process(), header::rank_facts(0).host, error.to_string());
    // An error of a device is reported with rank and host.
    let place = if text.starts_with("rank ") { String::new() } else { format!("{rank}host {host}: ") };
    program.print_error(&format!("{place}{text}"));
    // A busy MPICH launcher drops output that a rank wrote directly before it aborts.
    std::thread::sleep(FORWARDING_DELAY);
    mpi_call::abort(error.exit_code())
}
