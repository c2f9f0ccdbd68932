//! The launch check as launched programs run it: before anything is measured, and as the only action of
//! `--check-launch`.

use super::LaunchedArguments;
use super::launch_table;
use super::output::OutputArguments;
use super::table_or_json::{json, print};
use super::terminal::columns_of;
use super::verdict_output::replace;
use crate::report::Format;
use commgauge_base::error::{Error, Result};
use commgauge_model::record::provenance;
use commgauge_run::backend::nccl::DeviceFacts;
use commgauge_run::launch_check::{
    Allowances, Fact, LaunchReport, RankHosts, RankLocation, RankProfile, inspect, launcher_env, locate_ranks,
};
use commgauge_run::mpi_call;
use commgauge_run::session::Request;
use commgauge_run::world::{MpiWorld, World};

/// The host of every rank.
pub(super) fn locate_all_ranks(world: &MpiWorld) -> Result<RankHosts> {
    locate_ranks(world, &RankLocation::here(Some(world.shared_memory_leader()?)))
}

/// Detects a failed launch: a program started N times as N single processes.
pub(super) fn expected_launch(arguments: &LaunchedArguments, ranks: u32) -> Result<()> {
    let variables = launcher_env(&|name| std::env::var(name).ok());
    match (arguments.expect_ranks, variables.contradiction(ranks)) {
        (Some(expected), _) if expected == ranks => Ok(()),
        (Some(expected), _) => Err(Error::usage(format!(
            "--expect-ranks {expected}: this launch has {ranks} ranks; start it with the launcher of the MPI that commgauge was built with ({})",
            mpi_call::library_version()
        ))),
        (None, Some((name, reported))) if ranks == 1 => Err(Error::usage(format!(
            "the launcher reports {reported} ranks ({name}), MPI reports 1: the launcher is not that of the MPI that commgauge was built with ({})",
            mpi_call::library_version()
        ))),
        (None, _) if ranks == 1 => Err(Error::usage(
            "this launch has a single rank: start it as `mpirun -np 4 ...` or through `commgauge run`, or use --expect-ranks 1 if one rank is meant",
        )),
        _ => Ok(()),
    }
}

/// Compares all ranks. Collective; the report is on process 0. A rank whose input cannot be planned contributes no
/// plan; its error is reported after the ranks are known to belong together.
pub(super) fn compare_ranks(
    world: &MpiWorld,
    arguments: &LaunchedArguments,
    places: &RankHosts,
    (request, device): (Option<&Request>, Option<DeviceFacts>),
) -> Result<Option<LaunchReport>> {
    let mut profile = RankProfile::of_this_process(&provenance::rank_facts(world.process()));
    // If the program's file is gone, it is not compared; the run itself will report that.
    profile.set(Fact::Program, provenance::program_sha256().unwrap_or_default());
    profile.set(Fact::MpiLibrary, mpi_call::library_version());
    if let Some(request) = request {
        profile.set(Fact::Suite, request.suite.sha256.clone());
        profile.set_settings(&request.settings, request.plan.cases.len());
    }
    if let Some(device) = device {
        profile.set(Fact::DeviceModel, device.model);
        profile.set(Fact::DeviceUuid, device.uuid);
        profile.set(Fact::GpuDriver, device.driver);
        profile.set(Fact::NcclVersion, device.nccl_version);
        profile.set(Fact::NcclFile, device.nccl_file);
    }
    let allowed = Allowances { mixed: arguments.allow_mixed, shared_devices: arguments.nccl.share_gpu };
    inspect(world, &profile, places, allowed)
}

/// Ends all ranks with the same error if the report refuses the launch. Collective.
pub(super) fn refuse(world: &MpiWorld, report: Option<&LaunchReport>) -> Result<()> {
    let mut text = report.map_or_else(Vec::new, |report| launch_table::refusal(report, 100).into_bytes());
    world.broadcast(&mut text)?;
    if text.is_empty() { Ok(()) } else { Err(Error::mismatch(String::from_utf8_lossy(&text)).shared()) }
}

/// Makes all ranks yield their processors while they wait if any of them share processors, and none otherwise.
/// Collective.
pub(super) fn yield_if_oversubscribed(world: &MpiWorld, report: Option<&LaunchReport>) -> Result<()> {
    let mut shared = [report.map_or(0, |report| u64::from(report.hosts.iter().any(|host| host.ranks_take_turns)))];
    world.broadcast_u64(&mut shared)?;
    mpi_call::yield_while_waiting(shared[0] != 0);
    Ok(())
}

/// Prints the report for `--check-launch`; the exit code is the same on all ranks. Collective.
pub(super) fn show(world: &MpiWorld, arguments: &LaunchedArguments, report: Option<&LaunchReport>) -> Result<i32> {
    let mut refused = [report.map_or(0, |report| u64::from(!report.refusals.is_empty()))];
    let shown = match (report, &arguments.launch_report) {
        (None, _) => Ok(()),
        (Some(report), Some(path)) => json(report).and_then(|text| replace(path, &text)),
        (Some(report), None) => print(&rendered(report, &arguments.output, false)?),
    };
    commgauge_run::world::agree(world, shown)?;
    world.broadcast_u64(&mut refused)?;
    Ok(if refused[0] == 0 { 0 } else { 7 })
}

/// The report in the format that was requested.
fn rendered(report: &LaunchReport, output: &OutputArguments, is_terminal: bool) -> Result<String> {
    match output.format {
        Format::Json => json(report),
        Format::Table => Ok(launch_table::text(report, columns_of(output.width, is_terminal))),
        _ => Err(Error::usage("--check-launch writes --format table or json")),
    }
}
