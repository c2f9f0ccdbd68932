//! The main function of the programs that MPI launches: flags become a plan, the session measures it, and the end of
//! its record is shown.

use super::launched_arguments::{Backend, LaunchedArguments, NcclArguments};
use super::output::{Sink, replace};
use super::report::{Live, write_above};
use super::run::{exit_code_if_complete, resume_command, state};
use super::suite::SuiteWork;
use super::work::{PlannedWork, Work, planned};
use super::{output, suite};
use crate::report::{View, launch_check_text, pretty_json, refusal as refusal_text};
use clap::Parser;
use commgauge_base::collective::Collective;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::eprintln;
use commgauge_model::config::{Machine, Peer};
use commgauge_model::layout::Nodes;
use commgauge_model::record::Record;
use commgauge_model::record::line::{End, EndStatus};
use commgauge_model::workload::Case;
use commgauge_run::backend::nccl;
use commgauge_run::launch_check::LaunchReport;
use commgauge_run::session::{
    InjectedFaults, Launch, LaunchedBackend, NcclLaunch, Rank, Request, Resume, ResumedRecord, WatchdogOptions,
};
use commgauge_run::{launcher, session};
use std::path::Path;
use std::time::{Duration, Instant};

/// Columns of the table of a refusal, which goes to standard error.
const REFUSAL_COLUMNS: u16 = 100;

/// The main function of a launched program. Does not return if the launch must be aborted.
pub fn run<W: Work + Parser>(name: &'static str) -> i32 {
    if let Some(exit_code) = session::run_collector() {
        return exit_code;
    }
    let begun = Instant::now();
    let work = match output::parse::<W>() {
        Ok(work) => work,
        Err(message) => return print_usage_once(&message),
    };
    let started = launch(&work, begun).and_then(|launch| Ok((Rank::start(&launch)?, launch)));
    match started {
        Ok((mut rank, launch)) => {
            let measured = measured(name, &work, &launch, &mut rank);
            rank.end(measured)
        }
        Err(error) => print_error_once(&error),
    }
}

/// The exit code of the work of a launch, the same on every rank. Collective.
fn measured<W: Work>(name: &'static str, work: &W, launch: &Launch, rank: &mut Rank) -> Result<i32> {
    let arguments = work.launched();
    rank.join(launch)?;
    if let Some(resumed) = &launch.resume
        && let Some(exit_code) = rank.from_first(|| exit_code_of_finished(&resumed.path, arguments))?
    {
        return Ok(exit_code);
    }
    let hosts = rank.hosts()?;
    let request = request(work, name, &Nodes::of_hosts(&hosts.hosts));
    let checked = rank.check(launch, hosts, request)?;
    let refusal = match &checked.report {
        Some(report) if !launch.only_check => refusal_text(report, REFUSAL_COLUMNS),
        _ => String::new(),
    };
    let mut prepared = rank.prepare(launch, checked, refusal)?;
    if launch.only_check {
        return rank.from_first(|| prepared.report.as_ref().map_or(Ok(0), |report| show_check(arguments, report)));
    }
    // A resumed run prints all rows at its end, since most were done before.
    let shows_rows = rank.is_first() && work.shows_rows() && !arguments.quiet && arguments.resume.is_none();
    let live = if shows_rows { arguments.output.live_rows(Sink::File).map(Live::new) } else { None };
    prepared.request.listener = live.as_ref().map(Live::listener).unwrap_or_default();
    let (request, end) = rank.measure(launch, prepared)?;
    let shown = match rank.is_first() {
        true => show_results(arguments, &request, live.as_ref(), end.as_ref().ok()),
        false => Ok(()),
    };
    let end = end?;
    rank.agree(shown)?;
    Ok(end.exit_code)
}

/// The exit code of a record to resume in which no work is left.
fn exit_code_of_finished(path: &Path, arguments: &LaunchedArguments) -> Result<Option<i32>> {
    let record = Record::read(path)?;
    let exit_code = exit_code_if_complete(&record, path)?;
    // `commgauge run` has printed it already.
    if exit_code.is_none() && !arguments.quiet {
        state(&record, path).iter().for_each(|sentence| eprintln!("commgauge: {sentence}"));
    }
    Ok(exit_code)
}

/// Shows the launch check, and returns the exit code.
fn show_check(arguments: &LaunchedArguments, report: &LaunchReport) -> Result<i32> {
    let out = &mut std::io::stdout().lock();
    match &arguments.launch_report {
        Some(path) => replace(path, &pretty_json(report)?)?,
        None => arguments.output.show_answer(report, |width| launch_check_text(report, width), out)?,
    }
    Ok(if report.refusals.is_empty() { 0 } else { 7 })
}

/// Shows the record, also that of a run that failed and so has no end.
fn show_results(
    arguments: &LaunchedArguments,
    request: &Request,
    live: Option<&Live>,
    end: Option<&End>,
) -> Result<()> {
    if arguments.quiet || !request.record.exists() {
        return Ok(());
    }
    // Never treated as a terminal: some launchers give rank 0 a pseudo-terminal and copy its output.
    let view = View::new(&Record::read(&request.record)?);
    let out = &mut std::io::stdout().lock();
    match live {
        Some(live) => write_above(None, out, &live.finish(&view)),
        None => arguments.output.show_on(&view, Sink::File, out)?,
    }
    // A launcher forwards the two streams in pieces of its own, and could put this into the middle of a table.
    let record = request.record.shown();
    match arguments.output.format().comment_mark() {
        Some(mark) => write_above(None, out, &format!("{mark}record: {record}\n")),
        None => eprintln!("record: {record}"),
    }
    if let Some(end) = end.filter(|end| end.status != EndStatus::Complete) {
        eprintln!("commgauge: {}", end.error.as_deref().unwrap_or("the run did not end"));
        eprintln!("commgauge: resume with: {}", resume_command(&request.record));
    }
    Ok(())
}

/// Whether this copy prints messages for all copies before MPI has assigned ranks.
fn is_reporting_copy() -> bool {
    launcher::rank_before_mpi().is_none_or(|rank| rank == "0")
}

/// How long the other copies wait for that message: launchers kill all copies as soon as one ends with an error.
const REPORTING_GRACE: Duration = Duration::from_millis(500);

/// Runs `print` in one copy only; all copies return the exit code.
fn on_reporting_copy(exit_code: i32, print: impl FnOnce()) -> i32 {
    if is_reporting_copy() {
        print();
    } else if exit_code != 0 {
        std::thread::sleep(REPORTING_GRACE);
    }
    exit_code
}

/// Reports an error that every copy of the program found before MPI started.
fn print_error_once(error: &Error) -> i32 {
    on_reporting_copy(error.exit_code(), || eprintln!("commgauge: {}", output::written_out(error.to_string())))
}

/// Prints help, version or a usage error on one rank only.
fn print_usage_once(message: &clap::Error) -> i32 {
    on_reporting_copy(message.exit_code(), || output::show(message))
}

// From the flags of a launched program to plain data: how the launch is carried out, and what is measured in it.

/// How the launch is carried out.
///
/// # Errors
/// Flags that contradict each other or the backend.
pub(super) fn launch<W: Work>(work: &W, begun: Instant) -> Result<Launch> {
    let arguments = work.launched();
    let is_nccl = arguments.backend == Backend::Nccl;
    arguments.nccl.check(arguments.backend)?;
    if arguments.check_launch {
        arguments.output.check_answer("--check-launch", true)?;
    }
    if arguments.no_watchdog && arguments.timeout.is_some() && !is_nccl {
        return Err(Error::usage(
            "--timeout with --no-watchdog is for --backend nccl: MPI calls cannot be cancelled, so leave one of them out",
        ));
    }
    Ok(Launch {
        begun,
        backend: backend(work)?,
        expected_ranks: arguments.expect_ranks,
        only_check: arguments.check_launch,
        allow_mixed: arguments.allow_mixed,
        resume: arguments
            .resume
            .clone()
            .map(|path| ResumedRecord { path, options: Resume { allow_changed: arguments.allow_changed } }),
        time_limit: arguments.time_limit,
        watchdog: WatchdogOptions {
            is_enabled: !arguments.no_watchdog,
            timeout: arguments.timeout,
            fault: arguments.inject_fault,
        },
    })
}

fn backend<W: Work>(work: &W) -> Result<LaunchedBackend> {
    match work.launched().backend {
        Backend::Mpi => Ok(LaunchedBackend::Mpi),
        Backend::Nccl => Ok(LaunchedBackend::Nccl(Box::new(nccl_launch(work)))),
        Backend::Simulated => Err(Error::usage(
            "--backend simulated runs all ranks in one process and needs no launcher: commgauge run SUITE --backend simulated -n RANKS",
        )),
    }
}

fn nccl_launch<W: Work>(work: &W) -> NcclLaunch {
    let arguments: &NcclArguments = &work.launched().nccl;
    let sends = |case: &Case| case.op.collective == Collective::SendRecv;
    let (settings, like_nccl_tests) = (arguments.settings(), work.like() == Some(Peer::NcclTests));
    NcclLaunch {
        environment: nccl::Environment {
            share_gpu: arguments.share_gpu,
            settings: settings.clone(),
            calls_overlap: work.calls_overlap(),
            record_algorithm: arguments.record_algorithm,
            pairs: work.measured_pairs(),
            schedules_for_nvlink: like_nccl_tests,
            two_peers: like_nccl_tests && work.plan(2).is_ok_and(|work| work.plan.cases.iter().all(sends)),
        },
        options: nccl::Options {
            library: arguments.nccl_library.clone(),
            cublas: arguments.cublas_library.clone(),
            ctas: nccl::CtaLimits { least: arguments.min_ctas, most: arguments.only_max_ctas() },
            buffers: arguments.only_buffers(),
            allocates_plain: like_nccl_tests,
            stays_on_processors: arguments.no_numa_binding,
            deadlines: nccl::Deadlines::default(),
            settings,
            ranks_per_id: arguments.ranks_per_id,
        },
        device_map: arguments.device_map.clone(),
    }
}

/// What is measured on these nodes.
///
/// # Errors
/// Usage errors that name the flag or the file.
pub(super) fn request<W: Work>(work: &W, program: &'static str, nodes: &Nodes) -> Result<Request> {
    let (arguments, world_size) = (work.launched(), nodes.ranks());
    let PlannedWork { work: SuiteWork { plan, settings, facts: suite }, after_plan } =
        planned(work, arguments.backend, nodes, None)?;
    check_injected_ranks(arguments, world_size)?;
    let record = match &arguments.resume {
        Some(record) => record.clone(),
        None => suite::record_path(arguments.record.as_deref())?,
    };
    let launch_command = arguments.launch_command.as_deref().map(serde_json::from_str).transpose();
    Ok(Request {
        program,
        run_id: suite::new_run_id(),
        suite,
        plan,
        settings,
        machine: arguments.machine.as_deref().map(Machine::load).transpose()?,
        world_size,
        record,
        resume: arguments.resume.is_some().then_some(Resume { allow_changed: arguments.allow_changed }),
        launch_command: launch_command
            .map_err(|cause| Error::usage(format!("--launch-command: not a JSON list of words: {cause}")))?,
        injected: InjectedFaults { delay: arguments.inject_delay, panicking_rank: arguments.inject_panic },
        labels: arguments.nccl.labels(),
        after_plan,
        ..Request::default()
    })
}

fn check_injected_ranks(arguments: &LaunchedArguments, world_size: u32) -> Result<()> {
    let injected = [
        ("--inject-delay", arguments.inject_delay.map(|delay| delay.rank)),
        ("--inject-panic", arguments.inject_panic),
        ("--inject-fault", arguments.inject_fault.map(|fault| fault.rank)),
    ];
    match injected.iter().find(|(_, rank)| rank.is_some_and(|rank| rank >= world_size)) {
        Some((flag, Some(rank))) => {
            Err(Error::usage(format!("{flag}: rank {rank} is not in this launch; the last is {}", world_size - 1)))
        }
        _ => Ok(()),
    }
}
