//! Shared by the programs that MPI launches: flags, start-up and shutdown.

use super::backend_name::Backend;
use super::launched_arguments::LaunchedArguments;
use super::launched_check;
use super::live::{Live, write_above};
use super::nccl_arguments::{Algorithm, Protocol};
use super::places;
use super::programs::Work;
use super::run::{exit_code_if_complete, resume_command, state};
use super::step::replays_of;
use super::terminal;
use crate::report::View;
use clap::Parser;
use commgauge_base::error::{Error, Result};
use commgauge_model::config::Machine;
use commgauge_model::layout::Nodes;
use commgauge_model::record::line::{End, EndStatus};
use commgauge_model::record::{Record, provenance};
use commgauge_model::workload::step::Step;
use commgauge_run::backend;
use commgauge_run::backend::mpi::MpiBackend;
use commgauge_run::backend::nccl::{Deadlines, Environment, Log, Opened, Options, Placing};
use commgauge_run::mpi_call;
use commgauge_run::session::{self, LaunchFacts, Request, Resume, Signals, TimeLimit};
use commgauge_run::watchdog::{self, Activity, SETUP_DEADLINE, Watch};
use commgauge_run::world::{MpiWorld, World, agree};
use std::time::{Duration, Instant};

/// Time for a launcher to forward the output of a rank.
const FORWARDING_DELAY: Duration = Duration::from_millis(200);

/// The main function of a launched program: flags, launch, run, result. Does not return if the launch must be aborted.
pub fn run<W: Work + Parser>(program: &'static str) -> i32 {
    if std::env::var_os(watchdog::COLLECTOR_VARIABLE).is_some() {
        // A process that is no rank must not hold the launcher's or MPI's files open.
        mpi_call::close_inherited_files();
        return watchdog::collector::main();
    }
    let begun = Instant::now();
    let work = match terminal::parse::<W>() {
        Ok(work) => work,
        Err(message) => return print_usage_once(&message),
    };
    if let Err(error) = check_copies_are_connected(&|name| std::env::var(name).ok()) {
        // Printed by one copy only.
        if std::env::var("SLURM_PROCID").is_ok_and(|rank| rank == "0") {
            eprintln!("commgauge: {error}");
        }
        return error.exit_code();
    }
    let log = match prepare(work.launched()) {
        Ok(log) => log,
        Err(error) => return print_error_once(&error),
    };
    let started = mpi_call::initialize().and_then(|mpi| Ok((mpi, MpiWorld::new()?)));
    let (mpi, world) = match started {
        Ok(started) => started,
        Err(error) => abort(&error),
    };
    let mut watch = Watch::default();
    let (exit_code, why) = match measure(&work, (program, log), (&world, begun), &mut watch) {
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
    watch.begin(|| Activity::named("MPI_Finalize", SETUP_DEADLINE));
    drop(mpi);
    watch.leave(exit_code, &why);
    exit_code
}

/// Sets environment variables, which must happen before any library has started threads.
fn prepare(arguments: &LaunchedArguments) -> Result<Option<Log>> {
    let nccl = &arguments.nccl;
    let is_nccl = arguments.backend == Backend::Nccl;
    nccl.check(is_nccl)?;
    if arguments.no_watchdog && arguments.timeout.is_some() && !is_nccl {
        return Err(Error::usage(
            "--timeout with --no-watchdog is for --backend nccl: a call of MPI cannot be given up, so leave one of them out",
        ));
    }
    let environment = Environment {
        share_gpu: nccl.share_gpu,
        algorithm: nccl.algorithm.and_then(Algorithm::name),
        protocol: nccl.protocol.and_then(Protocol::name),
        record_algorithm: nccl.record_algorithm,
    };
    if is_nccl { environment.prepare() } else { Ok(None) }
}

/// Whether this copy prints messages for all copies before MPI has assigned ranks.
fn is_reporting_copy() -> bool {
    let ranks = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];
    ranks.iter().find_map(|name| std::env::var(name).ok()).is_none_or(|rank| rank == "0")
}

/// Reports an error that every copy of the program found before MPI started.
fn print_error_once(error: &Error) -> i32 {
    on_reporting_copy(error.exit_code(), || eprintln!("commgauge: {error}"))
}

/// Runs `print` in one copy only; all copies return the exit code.
fn on_reporting_copy(exit_code: i32, print: impl FnOnce()) -> i32 {
    if is_reporting_copy() {
        print();
    } else if exit_code != 0 {
        std::thread::sleep(REPORTING_GRACE);
    }
    exit_code
}

/// How long the other copies wait for that message: launchers kill all copies as soon as one ends with an error.
const REPORTING_GRACE: Duration = Duration::from_millis(500);

/// Prints help, version or a usage error on one rank only.
fn print_usage_once(message: &clap::Error) -> i32 {
    // A closed pipe is no reason to fail.
    on_reporting_copy(message.exit_code(), || drop(message.print()))
}

/// Ends the whole launch after an error that only this rank knows of.
fn abort(error: &Error) -> ! {
    let (rank, host, text) = (mpi_call::rank_of_this_process(), provenance::rank_facts(0).host, error.to_string());
    // An error of a device is reported with rank and host.
    let place = if text.starts_with("rank ") { String::new() } else { format!("{rank}host {host}: ") };
    eprintln!("commgauge: {place}{text}");
    // A busy MPICH launcher drops output that a rank wrote directly before it aborts.
    std::thread::sleep(FORWARDING_DELAY);
    mpi_call::abort(error.exit_code())
}

fn measure<W: Work>(
    work: &W,
    (program, log): (&'static str, Option<Log>),
    (world, begun): (&MpiWorld, Instant),
    watch: &mut Watch,
) -> Result<i32> {
    let arguments = work.launched();
    agree(world, launched_check::expected_launch(arguments, world.processes()))?;
    agree(world, launched(arguments.backend))?;
    check_same_options(arguments, world)?;
    if let Some(exit_code) = exit_code_if_finished(arguments, world)? {
        return Ok(exit_code);
    }
    let places = launched_check::locate_all_ranks(world)?;
    let hosts = &places.hosts;
    let request = request(work, program, &Nodes::of_hosts(hosts));
    let opened = open_device(arguments, world, hosts);
    let device = opened.as_ref().ok().and_then(|(opened, _)| opened.as_ref()).map(Opened::device_facts);
    let report = launched_check::compare_ranks(world, arguments, &places, (request.as_ref().ok(), device))?;
    if !arguments.check_launch {
        launched_check::refuse(world, report.as_ref())?;
    }
    let mut request = agree(world, request)?;
    let opened = agree(world, opened)?;
    if arguments.check_launch {
        return launched_check::show(world, arguments, report.as_ref());
    }
    launched_check::yield_if_oversubscribed(world, report.as_ref())?;
    let (warnings, notes) = report.map(|report| (report.warnings, report.notes)).unwrap_or_default();
    request.launch = LaunchFacts { hosts: hosts.clone(), warnings, notes };
    let limit = arguments.time_limit.map(|limit| TimeLimit::of(limit, begun));
    let signals = agree(world, Signals::catch())?.with_limit(limit);
    *watch = start_watch(arguments, world, hosts, &request, &signals)?;
    if let Some(opened) = &opened.0 {
        watch.device(&opened.device());
    }
    request.watch = watch.clone();
    let live = live_rows(work, arguments, world);
    request.listener = live.as_ref().map(Live::listener).unwrap_or_default();
    report_panics_to(watch);
    let mut backend = backend(arguments, watch, opened, log)?;
    let backend = backend.as_mut();
    let replay = agree(world, work.replay(world.processes()))?;
    let end = match &replay {
        None => session::run(world, backend, &request, &signals),
        Some((table, options)) => {
            let steps = agree(world, Step::all_of(table, request.world_size))?;
            session::run_with_replays(world, backend, &request, &replays_of(&steps, *options), &signals)
        }
    };
    let mine = if world.process() == 0 { show(arguments, &request, live.as_ref(), end.as_ref().ok()) } else { Ok(()) };
    end.and_then(|end| agree(world, mine).map(|()| end.exit_code))
}

/// Starts the watchdog, unless it is disabled.
fn start_watch(
    arguments: &LaunchedArguments,
    world: &MpiWorld,
    hosts: &[String],
    request: &Request,
    signals: &Signals,
) -> Result<Watch> {
    if arguments.no_watchdog {
        return Ok(Watch::disabled(arguments.timeout));
    }
    let setup = watchdog::Setup {
        hosts,
        record: request.record.clone(),
        backend: if arguments.backend == Backend::Nccl { "nccl" } else { "mpi" },
        timeout: arguments.timeout,
        signal: signals.number(),
        fault: arguments.inject_fault,
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

/// Detects copies that srun started without connecting them, before MPI starts: some MPIs let each continue alone,
/// others end with a page of advice and code 1. Reported by one copy only.
fn check_copies_are_connected(environment: &dyn Fn(&str) -> Option<String>) -> Result<()> {
    let tasks = environment("SLURM_STEP_NUM_TASKS").and_then(|text| text.parse::<u32>().ok()).unwrap_or(1);
    // Variables that PMIx, PMI-1 and PMI-2, mpirun and mpiexec set for ranks that they connect.
    let joined = ["PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "PMI_FD", "PMI_PORT", "OMPI_COMM_WORLD_SIZE"];
    if tasks < 2 || joined.iter().any(|name| environment(name).is_some()) {
        return Ok(());
    }
    let kind = environment("SLURM_MPI_TYPE").unwrap_or_else(|| "none".to_owned());
    Err(Error::usage(format!(
        "srun started {tasks} copies with nothing to join them by (--mpi={kind}): each would believe that it is alone; start \
         them with srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH), or through `commgauge run`, which asks for the right one"
    )))
}

/// The rank's device, if the backend needs one. Not collective: ranks agree on the result after MPI has started.
fn open_device(arguments: &LaunchedArguments, world: &MpiWorld, hosts: &[String]) -> Result<(Option<Opened>, Placing)> {
    let me = world.process() as usize;
    let nccl = &arguments.nccl;
    let placing = Placing {
        local_rank: hosts[..me].iter().filter(|host| **host == hosts[me]).count() as u32,
        ranks_on_host: hosts.iter().filter(|host| **host == hosts[me]).count() as u32,
        host: hosts[me].clone(),
        device_map: nccl.device_map.clone(),
        share_gpu: nccl.share_gpu,
    };
    if arguments.backend != Backend::Nccl {
        return Ok((None, placing));
    }
    Ok((Some(Opened::find(&options(arguments), &placing)?), placing))
}

fn options(arguments: &LaunchedArguments) -> Options {
    let nccl = &arguments.nccl;
    Options {
        library: nccl.nccl_library.clone(),
        cublas: nccl.cublas_library.clone(),
        ctas: (nccl.min_ctas, nccl.only_max_ctas()),
        buffers: nccl.only_buffers(),
        deadlines: Deadlines { communicator: arguments.timeout, replay: None },
    }
}

/// Creates the backend, after all ranks have what it needs.
fn backend(
    arguments: &LaunchedArguments,
    watch: &Watch,
    (opened, placing): (Option<Opened>, Placing),
    log: Option<Log>,
) -> Result<Box<dyn backend::Backend>> {
    let mut options = options(arguments);
    options.deadlines.replay = watch.timeout().map(|timeout| watch.local_timeout(timeout));
    match opened {
        None => Ok(Box::new(MpiBackend::new(placing.ranks_on_host)?)),
        Some(opened) => Ok(Box::new(opened.into_backend(&options, &placing, log)?)),
    }
}

fn launched(backend: Backend) -> Result<()> {
    match backend {
        Backend::Mpi | Backend::Nccl => Ok(()),
        Backend::Simulated => Err(Error::usage(
            "--backend simulated plays all ranks in one process and needs no launcher: commgauge run SUITE --backend simulated -n RANKS",
        )),
    }
}

fn request<W: Work>(work: &W, program: &'static str, nodes: &Nodes) -> Result<Request> {
    let (arguments, world_size) = (work.launched(), nodes.ranks());
    let (plan, settings, suite) = work.plan_on(nodes)?;
    let plan = plan.in_variants(&arguments.nccl.variants())?;
    if arguments.backend != Backend::Nccl {
        plan.ensure_portable()?;
    }
    let interference = work.interference(world_size)?;
    if interference.is_some() {
        arguments.nccl.check_without_variants("--interfere")?;
    }
    if work.replay(world_size)?.is_some() {
        arguments.nccl.check_without_variants("--replay")?;
    }
    let injected = [
        ("--inject-delay", arguments.inject_delay.map(|delay| delay.rank)),
        ("--inject-panic", arguments.inject_panic),
        ("--inject-fault", arguments.inject_fault.map(|fault| fault.rank)),
    ];
    if let Some((flag, Some(rank))) = injected.iter().find(|(_, rank)| rank.is_some_and(|rank| rank >= world_size)) {
        let last = world_size - 1;
        return Err(Error::usage(format!("{flag}: rank {rank} is not in this launch; the last is {last}")));
    }
    let record = match &arguments.resume {
        Some(record) => record.clone(),
        None => places::record_path(arguments.record.as_deref())?,
    };
    let launch_command = arguments.launch_command.as_deref().map(serde_json::from_str).transpose();
    Ok(Request {
        program,
        run_id: places::run_id_of(&record),
        suite,
        plan,
        settings,
        machine: arguments.machine.as_deref().map(Machine::load).transpose()?,
        world_size,
        record,
        resume: arguments.resume.is_some().then_some(Resume { allow_changed: arguments.allow_changed }),
        launch: LaunchFacts::default(),
        launch_command: launch_command
            .map_err(|cause| Error::usage(format!("--launch-command: not a JSON list of words: {cause}")))?,
        injected_delay: arguments.inject_delay,
        injected_panic: arguments.inject_panic,
        labels: arguments.nccl.labels(),
        interference,
        watch: Watch::default(),
        listener: Default::default(),
    })
}

/// Rows that are printed when they are done. A resumed run prints all of them at its end, since most were done before.
fn live_rows<W: Work>(work: &W, arguments: &LaunchedArguments, world: &MpiWorld) -> Option<Live> {
    let shows = work.shows_rows() && world.process() == 0 && !arguments.quiet && arguments.resume.is_none();
    shows.then(|| arguments.output.live_rows(false)).flatten().map(Live::new)
}

/// Prints the record that was just written, also if the run was not completed.
fn show(arguments: &LaunchedArguments, request: &Request, live: Option<&Live>, end: Option<&End>) -> Result<()> {
    if arguments.quiet || !request.record.exists() {
        return Ok(());
    }
    // Never treated as a terminal: some launchers give rank 0 a pseudo-terminal and copy its output.
    let view = View::new(&Record::read(&request.record)?);
    let out = &mut std::io::stdout().lock();
    match live {
        Some(live) => write_above(None, out, &live.finish(&view)),
        None => arguments.output.show_on(&view, false, out)?,
    }
    eprintln!("record: {}", request.record.display());
    if let Some(end) = end.filter(|end| end.status != EndStatus::Complete) {
        eprintln!("commgauge: {}", end.error.as_deref().unwrap_or("the run did not come to its end"));
        eprintln!("commgauge: go on with: {}", resume_command(&request.record));
    }
    Ok(())
}

/// Rejects ranks of which only some resume a record or have a time limit: they would wait for each other forever.
fn check_same_options(arguments: &LaunchedArguments, world: &MpiWorld) -> Result<()> {
    let mine = format!("{:?} {} {:?}", arguments.resume, arguments.allow_changed, arguments.time_limit);
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

/// The exit code of a record to resume in which no work is left, the same on every rank.
fn exit_code_if_finished(arguments: &LaunchedArguments, world: &MpiWorld) -> Result<Option<i32>> {
    let Some(path) = &arguments.resume else { return Ok(None) };
    let read_state = || {
        let record = Record::read(path)?;
        let exit_code = exit_code_if_complete(&record, path)?;
        // `commgauge run` has printed it already.
        if exit_code.is_none() && !arguments.quiet {
            state(&record, path).iter().for_each(|sentence| eprintln!("commgauge: {sentence}"));
        }
        Ok(exit_code)
    };
    let mine = agree(world, if world.process() == 0 { read_state() } else { Ok(None) })?;
    let mut shared = [mine.map_or(u64::MAX, |exit_code| exit_code as u64)];
    world.broadcast_u64(&mut shared)?;
    Ok(i32::try_from(shared[0]).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_srun_did_not_join_are_caught_before_mpi_starts() {
        let step = |more: &'static [(&str, &str)]| {
            move |name: &str| {
                let all = [("SLURM_STEP_NUM_TASKS", "4")].into_iter().chain(more.iter().copied());
                all.clone().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
            }
        };
        let error = check_copies_are_connected(&step(&[("SLURM_MPI_TYPE", "none")])).expect_err("alone");
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(text.contains("srun started 4 copies") && text.contains("(--mpi=none)"), "{text}");
        for joined in [&[("PMIX_RANK", "0")], &[("PMI_FD", "9")], &[("OMPI_COMM_WORLD_SIZE", "4")]] {
            assert!(check_copies_are_connected(&step(joined)).is_ok(), "{joined:?}");
        }
        assert!(check_copies_are_connected(&|_| None).is_ok());
    }
}
