//! The launch check: that the ranks are as many as expected, were given the same options, and belong together.

use super::backend::OpenedBackend;
use super::description::{Launch, LaunchedBackend, Program};
use crate::launch_check::{
    Allowances, Fact, LaunchReport, NumberVariable, RankHosts, RankLocation, RankProfile, inspect, launcher_env,
    locate_ranks,
};
use crate::mpi_call::{self, Waiting};
use crate::session::request::{LaunchFacts, Request};
use crate::world::{MpiWorld, World, agree};
use commgauge_base::error::{Error, Result};
use commgauge_model::record::{Record, provenance};

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
    let mut profile = RankProfile::of_this_process(&provenance::rank_facts(world.process()));
    // If the program's file is gone, it is not compared; the run itself will report that.
    profile.set(Fact::Program, provenance::program_sha256().unwrap_or_default());
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
