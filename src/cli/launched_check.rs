//! The launch check as launched programs run it: before anything is measured, and as the only action of
//! `--check-launch`.

use super::LaunchedArguments;
use super::launch_table;
use super::output::OutputArguments;
use super::table_or_json::{json, print};
use super::terminal::columns_of;
use super::verdict_output::replace;
use crate::backend::nccl::DeviceFacts;
use crate::error::{Error, Result};
use crate::launch_check::{Asked, Fact, LaunchReport, Places, Sheet, Whereabouts, inspect, places, told};
use crate::mpi_call;
use crate::record::provenance;
use crate::report::Format;
use crate::session::Request;
use crate::world::{MpiWorld, World};

/// Which host every rank is on.
pub(super) fn where_all_are(world: &MpiWorld) -> Result<Places> {
    places(world, &Whereabouts::here(Some(world.shared_memory_leader()?)))
}

/// Catches the launch that was none: a binary started N times, each thinking that it is alone.
pub(super) fn expected_launch(arguments: &LaunchedArguments, ranks: u32) -> Result<()> {
    let said = told(&|name| std::env::var(name).ok());
    match (arguments.expect_ranks, said.contradiction(ranks)) {
        (Some(expected), _) if expected == ranks => Ok(()),
        (Some(expected), _) => Err(Error::usage(format!(
            "--expect-ranks {expected}: this launch has {ranks} ranks; start it with the launcher of the MPI that commgauge was built with ({})",
            mpi_call::library_version()
        ))),
        (None, Some((name, told))) if ranks == 1 => Err(Error::usage(format!(
            "the launcher reports {told} ranks ({name}), MPI reports 1: the launcher is not that of the MPI that commgauge was built with ({})",
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
pub(super) fn compared(
    world: &MpiWorld,
    arguments: &LaunchedArguments,
    places: &Places,
    (request, device): (Option<&Request>, Option<DeviceFacts>),
) -> Result<Option<LaunchReport>> {
    let mut sheet = Sheet::of_this_process(&provenance::rank_facts(world.process()));
    // If the program's file is gone, it is not compared; the run itself will report that.
    sheet.set(Fact::Program, provenance::program_sha256().unwrap_or_default());
    sheet.set(Fact::MpiLibrary, mpi_call::library_version());
    if let Some(request) = request {
        sheet.set(Fact::Suite, request.suite.sha256.clone());
        sheet.set_settings(&request.settings, request.plan.cases.len());
    }
    if let Some(device) = device {
        sheet.set(Fact::DeviceModel, device.model);
        sheet.set(Fact::DeviceUuid, device.uuid);
        sheet.set(Fact::GpuDriver, device.driver);
        sheet.set(Fact::NcclVersion, device.nccl_version);
        sheet.set(Fact::NcclFile, device.nccl_file);
    }
    let asked = Asked { mixed: arguments.allow_mixed, shared_devices: arguments.nccl.share_gpu };
    inspect(world, &sheet, places, asked)
}

/// Ends all ranks with the same error if the report refuses the launch. Collective.
pub(super) fn refuse(world: &MpiWorld, report: Option<&LaunchReport>) -> Result<()> {
    let mut text = report.map_or_else(Vec::new, |report| launch_table::refusal(report, 100).into_bytes());
    world.broadcast(&mut text)?;
    if text.is_empty() { Ok(()) } else { Err(Error::mismatch(String::from_utf8_lossy(&text)).shared()) }
}

/// Has all ranks give their processors away while they wait, where any of them share processors, and none where each has its own.
/// Collective.
pub(super) fn yield_where_ranks_take_turns(world: &MpiWorld, report: Option<&LaunchReport>) -> Result<()> {
    let mut shared = [report.map_or(0, |report| u64::from(report.hosts.iter().any(|host| host.ranks_take_turns)))];
    world.broadcast_u64(&mut shared)?;
    mpi_call::yield_while_waiting(shared[0] != 0);
    Ok(())
}

/// Shows the report, for `--check-launch`; the exit code is the same on all ranks. Collective.
pub(super) fn show(world: &MpiWorld, arguments: &LaunchedArguments, report: Option<&LaunchReport>) -> Result<i32> {
    let mut refused = [report.map_or(0, |report| u64::from(!report.refusals.is_empty()))];
    let shown = match (report, &arguments.launch_report) {
        (None, _) => Ok(()),
        (Some(report), Some(path)) => json(report).and_then(|text| replace(path, &text)),
        (Some(report), None) => print(&rendered(report, &arguments.output, false)?),
    };
    crate::world::agree(world, shown)?;
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
