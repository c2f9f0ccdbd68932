//! A launch and its run from the first check to the end line: the table of contents. Every process calls the same
//! functions with the same input; process 0 writes the record.
//!
//! Ranks that MPI starts call `launch`; its phases are in `launched`. One process that simulates all ranks calls
//! [`run`]. Whatever is measured goes through the work loop (`work_loop`), which asks for signals and for time, counts
//! and records. Work that a record already holds (`completed`) is left out.

mod calibrate;
mod case;
mod case_set;
mod cases;
mod completed;
mod copies;
mod devices;
mod end;
mod facts;
mod interference;
mod journal;
#[cfg(feature = "mpi")]
mod launched;
mod listener;
mod pace;
mod preflight;
mod products;
mod rehearse;
mod replay;
mod replicates;
mod request;
mod resume;
mod signals;
mod tally;
mod time_limit;
mod timekeeping;
mod within;
mod work_loop;

pub use end::OUT_OF_TIME;
#[cfg(feature = "mpi")]
pub use launched::description::{Launch, LaunchedBackend, NcclLaunch, Program, ResumedRecord, WatchdogOptions};
#[cfg(feature = "mpi")]
pub use launched::guard::run_collector;
pub use listener::Listener;
pub use rehearse::Rehearsal;
pub use request::{AfterPlan, InjectedFaults, LaunchFacts, ReplayRequest, ReplaySource, Request, Resume};
pub use signals::Signals;
pub use time_limit::TimeLimit;

use crate::backend::Backend;
use crate::world::World;
use commgauge_base::error::Result;
use commgauge_model::record::line::End;
use std::collections::BTreeSet;
use std::time::Instant;
use work_loop::Run;

/// A launch, from the start of MPI to its end. Returns the exit code, the same on every rank; does not return if the
/// launch must be aborted.
///
/// # Errors
/// What is wrong before MPI starts. Every rank finds that, and none knows its number yet.
#[cfg(feature = "mpi")]
pub fn launch(launch: &Launch, program: &mut dyn Program) -> Result<i32> {
    crate::launch_check::ensure_joined(&|name| std::env::var(name).ok())?;
    let nccl_log = launched::backend::prepare_environment(launch)?;
    let mut rank = launched::rank::Rank::start(program);
    let ended = check_and_run(launch, program, &mut rank, nccl_log);
    Ok(rank.end(ended, program))
}

/// The launch check, the watchdog, the run and its results.
#[cfg(feature = "mpi")]
fn check_and_run(
    launch: &Launch,
    program: &mut dyn Program,
    rank: &mut launched::rank::Rank,
    nccl_log: Option<crate::backend::nccl::Log>,
) -> Result<i32> {
    use crate::world::agree;
    use commgauge_model::layout::Nodes;
    use launched::backend::OpenedBackend;
    use launched::{check, guard};

    let world = &rank.world;
    check::number_of_ranks(launch, world)?;
    check::same_options(launch, world)?;
    if let Some(exit_code) = check::finished_record(launch, world, program)? {
        return Ok(exit_code);
    }
    let hosts = check::hosts(world)?;
    // What goes wrong on one rank is reported after the check, which may know the cause.
    let request = program.request(&Nodes::of_hosts(&hosts.hosts));
    let opened = OpenedBackend::open(launch, &hosts.hosts, world);
    let report = check::compare(launch, world, &hosts, request.as_ref().ok(), opened.as_ref().ok())?;
    if !launch.only_check {
        check::refuse(world, report.as_ref(), program)?;
    }
    let (mut request, opened) = (agree(world, request)?, agree(world, opened)?);
    if launch.only_check {
        return check::show(world, report.as_ref(), program);
    }
    check::yield_if_oversubscribed(world, report.as_ref())?;
    request.launch = check::facts(hosts, report);

    let limit = launch.time_limit.map(|limit| TimeLimit::of(limit, launch.begun));
    let signals = agree(world, Signals::catch())?.with_limit(limit);
    rank.watch = guard::start(launch, world, &request, &signals)?;
    guard::report_panics_to(&rank.watch);
    request.watch = rank.watch.clone();
    if world.process() == 0 {
        request.listener = program.listener();
    }
    let mut backend = opened.into_backend(&rank.watch, nccl_log)?;
    let end = run(world, backend.as_mut(), &request, &signals);
    let shown = if world.process() == 0 { program.show_results(&request, end.as_ref().ok()) } else { Ok(()) };
    end.and_then(|end| agree(world, shown).map(|()| end.exit_code))
}

/// Runs every case of the plan in every replicate, then the interference, the products, the copies and the replays, and writes the
/// record. Returns the end line, the same on every process.
///
/// # Errors
/// An error before the first line of the record, or one that the launch cannot survive (the caller must then abort it).
/// Once the record is begun, its end line gives the reason.
pub fn run(world: &dyn World, backend: &mut dyn Backend, request: &Request, signals: &Signals) -> Result<End> {
    let begun = Instant::now();
    let watched = request.watch.world(world);
    let world: &dyn World = &watched;
    let ranks = preflight::ranks(world, backend, request)?;
    let planned = preflight::plan(&ranks, request);
    preflight::memory(world, backend, request, &planned)?;
    products::preflight(world, backend, request)?;
    let replays = replay::plan(world, backend, request)?;
    let (journal, completed) = resume::open(world, backend, request, &ranks, &planned)?;

    let tally = completed.tally.clone();
    let unwatched_hosts = BTreeSet::new();
    let mut run = Run { world, request, ranks: &ranks, signals, completed, journal, tally, unwatched_hosts };
    let measured = measure(&mut run, backend, &planned, &replays);
    end::conclude(run.journal, measured.map(|()| run.tally), begun, signals.limit())
}

/// Everything between the first lines of the record and its last one.
fn measure(
    run: &mut Run,
    backend: &mut dyn Backend,
    planned: &[preflight::Planned],
    replays: &[replay::Replay],
) -> Result<()> {
    devices::record_devices(run, backend)?;
    cases::measure_all(run, backend, planned)?;
    if run.request.settings.is_soak() {
        return end::finalize(run);
    }
    interference::measure_all(run, backend)?;
    products::measure_all(run, backend)?;
    copies::measure_all(run, backend)?;
    replay::measure_all(run, backend, replays)?;
    end::finalize(run)
}

#[cfg(test)]
mod whole_run_tests;
#[cfg(test)]
mod within_tests;
