//! From the flags of a launched program to plain data: how the launch is carried out, and what is measured in it.

use super::backend_name::Backend;
use super::launched_arguments::LaunchedArguments;
use super::nccl_arguments::{NcclArguments, Setting};
use super::places;
use super::programs::{PlannedWork, Work, planned};
use super::suite::SuiteWork;
use commgauge_base::error::{Error, Result};
use commgauge_model::config::Machine;
use commgauge_model::layout::Nodes;
use commgauge_run::backend::nccl;
use commgauge_run::session::{
    InjectedFaults, Launch, LaunchFacts, LaunchedBackend, NcclLaunch, Request, Resume, ResumedRecord, WatchdogOptions,
};
use commgauge_run::watchdog::Watch;
use std::time::Instant;

/// How the launch is carried out.
///
/// # Errors
/// Flags that contradict each other or the backend.
pub(super) fn launch<W: Work>(work: &W, begun: Instant) -> Result<Launch> {
    let arguments = work.launched();
    let is_nccl = arguments.backend == Backend::Nccl;
    arguments.nccl.check(arguments.backend)?;
    if arguments.no_watchdog && arguments.timeout.is_some() && !is_nccl {
        return Err(Error::usage(
            "--timeout with --no-watchdog is for --backend nccl: a call of MPI cannot be given up, so leave one of them out",
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
            "--backend simulated plays all ranks in one process and needs no launcher: commgauge run SUITE --backend simulated -n RANKS",
        )),
    }
}

fn nccl_launch<W: Work>(work: &W) -> NcclLaunch {
    let arguments: &NcclArguments = &work.launched().nccl;
    let of_flags = arguments.settings().into_iter();
    let settings: Vec<nccl::Setting> = of_flags
        .map(|Setting { flag, variable, value, since_minor }| nccl::Setting {
            flag,
            variable,
            value,
            since: nccl::Version(2, since_minor, 0),
        })
        .collect();
    NcclLaunch {
        environment: nccl::Environment {
            share_gpu: arguments.share_gpu,
            settings: settings.clone(),
            calls_overlap: work.calls_overlap(),
            record_algorithm: arguments.record_algorithm,
        },
        options: nccl::Options {
            library: arguments.nccl_library.clone(),
            cublas: arguments.cublas_library.clone(),
            ctas: nccl::CtaLimits { least: arguments.min_ctas, most: arguments.only_max_ctas() },
            buffers: arguments.only_buffers(),
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
        planned(work, arguments.backend, nodes)?;
    check_injected_ranks(arguments, world_size)?;
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
        injected: InjectedFaults { delay: arguments.inject_delay, panicking_rank: arguments.inject_panic },
        labels: arguments.nccl.labels(),
        after_plan,
        watch: Watch::default(),
        listener: Default::default(),
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
