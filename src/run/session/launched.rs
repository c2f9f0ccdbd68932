//! The ranks of a launch that MPI started: [`Rank`] is one of them, from the start of MPI to its end. [`Launch`] says
//! how they are started and watched.

use crate::backend::mpi::MpiBackend;
use crate::backend::nccl::{Deadlines, Log, Opened, Placing, visible_devices};
use crate::backend::{Backend, mpi, nccl};
use crate::device_probe::RankFabric;
use crate::launch_check::{
    Allowances, Fact, LaunchFacts, LaunchReport, NumberVariable, RankLocation, RankProfile, ensure_joined,
    fabric_warnings, inspect, launcher_env, locate_ranks,
};
use crate::mpi_call::{Communicator, Waiting};
use crate::session::TimeLimit;
use crate::session::pace::Signals;
use crate::session::request::{Request, Resume};
use crate::watchdog::Watch;
use crate::world::{World, agree, decided, from_first, gather_all, share_all};
use crate::{launcher, mpi_call, watchdog};
use commgauge_base::error::{Error, Result};
use commgauge_base::progress::Fault;
use commgauge_base::units::Seconds;
use commgauge_base::writing::eprintln;
use commgauge_model::record::header;
use commgauge_model::record::line::End;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::time::{Duration, Instant};

// The backend of a launch: first its device, which the launch check compares, then the backend itself.

/// A rank's resources for its backend, found but not used yet.
enum OpenedBackend {
    /// Host memory over MPI.
    Mpi { ranks_on_host: u32 },
    /// A device over NCCL.
    Nccl(Box<Opened>),
}

impl OpenedBackend {
    /// Opens the device of a rank, if the backend needs one. Collective, as ranks exchange their visible devices; they agree on the result
    /// later.
    fn open(launch: &Launch, hosts: &[String], world: &dyn World) -> Result<OpenedBackend> {
        let me = world.process() as usize;
        let ranks_on_host = hosts.iter().filter(|host| **host == hosts[me]).count() as u32;
        let LaunchedBackend::Nccl(nccl) = &launch.backend else { return Ok(OpenedBackend::Mpi { ranks_on_host }) };
        let seen = share_all(world, &visible_devices())?;
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
        let WatchdogOptions { is_enabled, timeout, .. } = launch.watchdog;
        // The watchdog acts first, since it can name the missing rank.
        let replay = timeout.map(|timeout| if is_enabled { timeout * 2 } else { timeout });
        options.deadlines = Deadlines { communicator: timeout, replay };
        Ok(OpenedBackend::Nccl(Box::new(Opened::find(options, placing)?)))
    }

    /// The backend, after all ranks have what they need; the watchdog gets the name of the device. Collective.
    fn into_backend(self, watch: &Watch, log: Option<Log>) -> Result<Box<dyn Backend>> {
        match self {
            OpenedBackend::Mpi { ranks_on_host } => Ok(Box::new(MpiBackend::new(ranks_on_host)?)),
            OpenedBackend::Nccl(device) => {
                watch.device(&device.device());
                Ok(Box::new(device.into_backend(log)?))
            }
        }
    }
}

// The launch check: the number of ranks, their options, and what must be equal on all.

/// Detects a failed launch: a program started N times as N single processes.
fn number_of_ranks(launch: &Launch, ranks: u32) -> Result<()> {
    let variables = launcher_env(&|name| std::env::var(name).ok());
    let library = mpi_call::library_version();
    match (launch.expected_ranks, variables.contradiction(ranks)) {
        (Some(expected), _) if expected == ranks => Ok(()),
        (Some(expected), _) => Err(Error::usage(format!(
            "--expect-ranks {expected}: this launch has {ranks} ranks; start it with the launcher of the MPI that commgauge was built with ({library})"
        ))),
        (None, Some(NumberVariable { name, number: reported })) if ranks == 1 => Err(Error::usage(format!(
            "the launcher reports {reported} ranks ({name}), MPI reports 1: the launcher does not belong to the MPI that commgauge was built with ({library})"
        ))),
        (None, _) if ranks == 1 => Err(Error::usage(
            "this launch has a single rank: start it with `mpirun -np 4 ...` or `commgauge run`; for one rank add --expect-ranks 1",
        )),
        _ => Ok(()),
    }
}

/// Rejects a launch if only some ranks resume a record or have a time limit: they would block each other forever. Collective, except its
/// result.
fn same_options(launch: &Launch, world: &dyn World) -> Result<()> {
    let mine = format!("{:?} {:?}", launch.resume, launch.time_limit);
    let all = world.gather(mine.as_bytes())?;
    match all.iter().position(|theirs| Some(theirs) != all.first()) {
        None => Ok(()),
        Some(rank) => Err(Error::mismatch(format!(
            "rank {rank} and rank 0 have different --resume, --allow-changed or --time-limit; give all ranks the same"
        ))),
    }
}

/// Compares all ranks. Collective; the report is on process 0. A rank whose input cannot be planned, or that has no device, contributes no
/// facts about it; its error is reported once the ranks are known to belong together.
fn compare(
    launch: &Launch,
    world: &dyn World,
    hosts: &LaunchFacts,
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
    if let Some(OpenedBackend::Nccl(opened)) = opened {
        let device = opened.device_facts();
        profile.set(Fact::DeviceModel, device.model);
        profile.set(Fact::DeviceUuid, device.uuid);
        profile.set(Fact::GpuDriver, device.driver);
        profile.set(Fact::NcclVersion, device.nccl_version);
        profile.set(Fact::NcclFile, device.nccl_file);
    }
    let shared_devices = matches!(&launch.backend, LaunchedBackend::Nccl(nccl) if nccl.environment.share_gpu);
    inspect(world, &profile, hosts, Allowances { mixed: launch.allow_mixed, shared_devices })
}

/// Makes all ranks yield their processors while they wait if any ranks share processors. Collective.
fn yield_if_oversubscribed(world: &dyn World, report: Option<&LaunchReport>) -> Result<()> {
    let shares = report.is_some_and(|report| report.hosts.iter().any(|host| host.ranks_share_processors));
    mpi_call::set_waiting(if decided(world, shares)? { Waiting::Yields } else { Waiting::Spins });
    Ok(())
}

// A launch as plain data.

/// How a launch is executed, whatever it measures.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Start time of this process, from which the time limit counts.
    pub begun: Instant,
    /// What executes the calls.
    pub backend: LaunchedBackend,
    /// Required number of ranks; needed for a launch of one rank.
    pub expected_ranks: Option<u32>,
    /// Whether the launch ends after its check.
    pub only_check: bool,
    /// Whether ranks may differ in environment, libraries or drivers.
    pub allow_mixed: bool,
    pub resume: Option<ResumedRecord>,
    /// Time after which no work starts.
    pub time_limit: Option<Seconds>,
    pub watchdog: WatchdogOptions,
}

/// The library that executes the calls of a launched program.
#[derive(Clone, Debug)]
pub enum LaunchedBackend {
    /// Host memory over MPI.
    Mpi,
    /// Device memory over NCCL.
    Nccl(Box<NcclLaunch>),
}

/// Settings of a launch over NCCL.
#[derive(Clone, Debug)]
pub struct NcclLaunch {
    /// The variables that NCCL reads.
    pub environment: nccl::Environment,
    /// Options of the backend; its deadlines follow from those of the watchdog.
    pub options: nccl::Options,
    /// Device of each rank of a host, in order.
    pub device_map: Option<Vec<u32>>,
}

/// A record of an earlier launch that this one resumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumedRecord {
    pub path: PathBuf,
    /// What may differ.
    pub options: Resume,
}

/// How hangs are detected.
#[derive(Clone, Debug)]
pub struct WatchdogOptions {
    pub is_enabled: bool,
    /// How long a rank may stay in one operation, instead of the deadline computed for each case.
    pub timeout: Option<Duration>,
    /// A rank that misbehaves, for tests.
    pub fault: Option<Fault>,
}

// The watchdog of a launch: its collectors, its start, and how it learns of panics.

/// Runs this process as a collector of the watchdog if it was started as one, and returns its exit code. Must be called first.
pub fn run_collector() -> Option<i32> {
    std::env::var_os(watchdog::COLLECTOR_VARIABLE)?;
    // A collector must not hold the launcher's or MPI's files open.
    mpi_call::close_inherited_files();
    Some(watchdog::collector::main())
}

/// Starts the watchdog, unless it is disabled. Collective.
fn start_watchdog(launch: &Launch, world: &dyn World, request: &Request, signals: &Signals) -> Result<Watch> {
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
fn report_panics_to(watch: &Watch) {
    let (watch, before) = (watch.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        watch.leave(6, &format!("a broken assumption: {panic}"));
        before(panic);
    }));
}

/// Time for a launcher to forward the output of a rank.
const FORWARDING_DELAY: Duration = Duration::from_millis(200);

/// This process as a rank of a launch. The program of the launch calls [`Rank::start`], then [`Rank::join`],
/// [`Rank::hosts`], [`Rank::check`], [`Rank::prepare`] and [`Rank::measure`] with its plan, and [`Rank::end`] after any
/// error. All but the first and the last are collective.
pub struct Rank {
    mpi: mpi_call::Session,
    world: Communicator,
    nccl_log: Option<Log>,
    /// The watchdog, once started.
    watch: Watch,
}

/// Compared ranks, each with its plan and device or its error.
pub struct Checked {
    /// The comparison, on process 0.
    pub report: Option<LaunchReport>,
    hosts: LaunchFacts,
    request: Result<Request>,
    opened: Result<OpenedBackend>,
}

pub struct Prepared {
    /// The comparison, on process 0.
    pub report: Option<LaunchReport>,
    /// The plan; a listener may be added.
    pub request: Request,
    opened: OpenedBackend,
    hosts: LaunchFacts,
    signals: Signals,
}

impl Rank {
    /// Starts MPI. Does not return if that fails.
    ///
    /// # Errors
    /// An error that every rank finds before MPI starts, when ranks do not know their number yet.
    pub fn start(launch: &Launch) -> Result<Rank> {
        ensure_joined(&|name| std::env::var(name).ok())?;
        // Sets variables that libraries read, which needs a process with a single thread: MPI has not started yet.
        let nccl_log = match &launch.backend {
            LaunchedBackend::Mpi => None,
            LaunchedBackend::Nccl(nccl) => Some(nccl.environment.prepare(nccl.options.library.as_deref())?),
        };
        match mpi_call::initialize().and_then(|mpi| Ok((mpi, Communicator::world()?))) {
            Ok((mpi, world)) => Ok(Rank { mpi, world, nccl_log, watch: Watch::default() }),
            Err(error) => abort(&error),
        }
    }

    /// Whether this is process 0, which writes and prints.
    pub fn is_first(&self) -> bool {
        self.world.process() == 0
    }

    /// A value found by process 0, on every rank.
    ///
    /// # Errors
    /// If process 0 does not find it.
    pub fn from_first<T: Serialize + DeserializeOwned>(&self, find: impl FnOnce() -> Result<T>) -> Result<T> {
        let found = self.agree(self.is_first().then(find).transpose())?;
        from_first(&self.world, &found)
    }

    /// Success only if all ranks succeeded, else the first error.
    ///
    /// # Errors
    /// The first error.
    pub fn agree<T>(&self, mine: Result<T>) -> Result<T> {
        agree(&self.world, mine)
    }

    /// Checks that the launcher has connected the ranks and gave all of them the same task.
    ///
    /// # Errors
    /// If it did not.
    pub fn join(&self, launch: &Launch) -> Result<()> {
        let same = same_options(launch, &self.world);
        self.agree(number_of_ranks(launch, self.world.processes()).and(same))
    }

    /// The host of every rank.
    ///
    /// # Errors
    /// If ranks cannot communicate.
    pub fn hosts(&self) -> Result<LaunchFacts> {
        locate_ranks(&self.world, &RankLocation::here(Some(self.world.shared_memory_leader()?)))
    }

    /// Compares all ranks with the plan of each. An error of one rank is reported by [`Rank::prepare`], since the
    /// comparison may show its cause.
    ///
    /// # Errors
    /// If ranks cannot communicate.
    pub fn check(&self, launch: &Launch, mut hosts: LaunchFacts, request: Result<Request>) -> Result<Checked> {
        let opened = OpenedBackend::open(launch, &hosts.hosts, &self.world);
        let mine = match &opened {
            Ok(OpenedBackend::Nccl(opened)) => opened.fabric(),
            _ => RankFabric::default(),
        };
        let groups = request.as_ref().map_or(&[][..], |request| &request.plan.groups);
        hosts.warnings.extend(fabric_warnings(&hosts.hosts, &gather_all(&self.world, &mine)?, groups));
        let report = compare(launch, &self.world, &hosts, request.as_ref().ok(), opened.as_ref().ok())?;
        Ok(Checked { report, hosts, request, opened })
    }

    /// Ends the launch with the reason for its refusal (on process 0; empty if it is accepted) or with the error of a rank.
    ///
    /// # Errors
    /// The reason or error.
    pub fn prepare(&self, launch: &Launch, checked: Checked, refusal: String) -> Result<Prepared> {
        let mut refusal = refusal.into_bytes();
        self.world.broadcast(&mut refusal)?;
        if !refusal.is_empty() {
            return Err(Error::mismatch(String::from_utf8_lossy(&refusal)).shared());
        }
        let Checked { report, hosts, request, opened } = checked;
        let catch = || if launch.only_check { Ok(Signals::default()) } else { Signals::catch() };
        let (request, opened, signals) = self.agree(request.and_then(|request| Ok((request, opened?, catch()?))))?;
        Ok(Prepared { report, request, opened, hosts, signals })
    }

    /// Measures the plan and writes the record. Returns the plan as it was run, and the end of the record or why it has
    /// none.
    ///
    /// # Errors
    /// An error before anything was measured.
    pub fn measure(&mut self, launch: &Launch, prepared: Prepared) -> Result<(Request, Result<End>)> {
        let Prepared { report, mut request, opened, hosts, signals } = prepared;
        yield_if_oversubscribed(&self.world, report.as_ref())?;
        let (warnings, notes) = report.map(|report| (report.warnings, report.notes)).unwrap_or_default();
        request.launch = LaunchFacts { hosts: hosts.hosts, warnings, notes };
        let limit = launch.time_limit.map(|limit| TimeLimit::of(limit, launch.begun));
        let signals = signals.with_limit(limit);
        self.watch = start_watchdog(launch, &self.world, &request, &signals)?;
        report_panics_to(&self.watch);
        request.watch = self.watch.clone();
        let mut backend = opened.into_backend(&self.watch, self.nccl_log.take())?;
        let end = super::run(&self.world, backend.as_mut(), &request, &signals);
        Ok((request, end))
    }

    /// Ends MPI, and returns the exit code. Does not return if only this rank has an error: the launch is aborted.
    pub fn end(self, measured: Result<i32>) -> i32 {
        let Rank { mpi, world, watch, .. } = self;
        let (exit_code, why) = match measured {
            Ok(exit_code) => (exit_code, String::new()),
            Err(error) if error.is_shared() => {
                if world.process() == 0 {
                    eprintln!("commgauge: {error}");
                }
                (error.exit_code(), error.to_string())
            }
            Err(error) => {
                watch.leave(error.exit_code(), &error.to_string());
                abort(&error)
            }
        };
        watch.begin_end();
        drop(mpi);
        watch.leave(exit_code, &why);
        mpi_call::pause_before_exit(launcher::ranks_with_misread_exit(), mpi::processors());
        exit_code
    }
}

/// Ends the whole launch after an error that only this rank has.
fn abort(error: &Error) -> ! {
    let (rank, host, text) = (mpi_call::rank_of_this_process(), header::rank_facts(0).host, error.to_string());
    // An error of a device is reported with rank and host.
    let place = if text.starts_with("rank ") { String::new() } else { format!("{rank}host {host}: ") };
    eprintln!("commgauge: {place}{text}");
    // A busy MPICH launcher drops output that a rank wrote directly before it aborts.
    std::thread::sleep(FORWARDING_DELAY);
    mpi_call::abort(error.exit_code())
}
