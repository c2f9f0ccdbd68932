//! `commgauge run`: builds the launch command of a suite, a sweep or a model's step, prints it, runs it, reports its
//! progress, and prints a summary.
//!
//! The measuring is done by `commgauge-suite`, `commgauge-sweep`, `commgauge-step` or `commgauge-pairs` in the launched
//! ranks; only the record is read back.

mod allocation;
mod arguments;
mod launches;
mod progress;
mod resumable;

pub use arguments::RunArguments;
pub(crate) use arguments::SummaryParts;
#[cfg(feature = "mpi")]
pub(crate) use resumable::{command as resume_command, exit_code_if_complete, state};

use super::launched_arguments::Backend;
use super::output::print_on;
use super::suite;
use super::suite::SuiteWork;
use crate::launch;
use crate::launch::{GRACE, LauncherContext};
use crate::report::{launch_check_text, plan_text};
use allocation::predicted_nodes;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::eprintln;
use commgauge_model::config::{Machine, Shipped};
use commgauge_model::layout::Nodes;
use commgauge_run::launch_check::LaunchReport;
use launches::{launch_all, print_allocation};
use progress::Progress;
use resumable::{Deadlines, Launched, run_in_process};
use std::io::Write;
use std::path::Path;

/// Runs the subcommand and returns the exit code. Data goes to `out`, everything else to standard error.
pub fn run(arguments: &RunArguments, out: &mut dyn Write) -> Result<i32> {
    arguments.check_sweep_flags()?;
    if arguments.dry_run || arguments.check_launch {
        let flag = if arguments.dry_run { "--dry-run" } else { "--check-launch" };
        arguments.output.check_answer(flag, arguments.check_launch)?;
    }
    if let Some(record) = &arguments.resume {
        return launches::run_resume(arguments, record, out);
    }
    if launches::is_requested(arguments) {
        launches::check(arguments)?;
    }
    // Errors in the files are best reported before anything is started.
    let machine = arguments.machine.as_deref().map(Machine::load).transpose()?;
    let (arguments, allocation) = allocation::resolve_ranks(arguments)?;
    let arguments = &arguments;
    let nodes = predicted_nodes(arguments, allocation.as_ref(), machine.as_ref())?;
    let wanted = resumable::of(arguments, &nodes)?;
    arguments.suite.iter().for_each(|suite| suite::report_resolved_file(Shipped::Suite, suite));
    arguments.machine.iter().for_each(|machine| suite::report_resolved_file(Shipped::Machine, machine));
    match arguments.backend {
        Backend::Simulated if arguments.check_launch => Err(Error::usage(
            "--check-launch: --backend simulated launches nothing; its ranks are played by this process",
        )),
        Backend::Simulated => run_in_process(arguments, wanted, &nodes, machine, out),
        Backend::Mpi | Backend::Nccl if arguments.dry_run => {
            print_allocation(allocation.as_ref(), arguments);
            dry_run(arguments, &wanted.work, &nodes, out)
        }
        Backend::Mpi | Backend::Nccl if arguments.check_launch => {
            print_allocation(allocation.as_ref(), arguments);
            allocation::wait(arguments)?;
            run_check_launch(arguments, out)
        }
        Backend::Mpi | Backend::Nccl => {
            print_allocation(allocation.as_ref(), arguments);
            allocation::wait(arguments)?;
            if launches::is_requested(arguments) {
                launches::run_combinations(arguments, out)
            } else {
                launch_all(arguments, out)
            }
        }
    }
}

fn dry_run(arguments: &RunArguments, work: &SuiteWork, nodes: &Nodes, out: &mut dyn Write) -> Result<i32> {
    // The default record gets its name at the start, so a dry run only shows such a name and creates no folder.
    let record = arguments.record.clone().unwrap_or_else(suite::default_record);
    let show = |arguments: &RunArguments, record: &Path, out: &mut dyn Write| {
        Launched::new(arguments, record)?.commands(arguments)?.print(out)
    };
    match launches::is_requested(arguments) {
        true => {
            let launches = launches::launches(arguments, &record);
            launches.iter().try_for_each(|launch| show(&launch.arguments, &launch.record, out))?;
        }
        false => show(arguments, &record, out)?,
    }
    print_on(out, &plan_text(&work.plan, &work.settings, &work.facts, nodes))?;
    Ok(0)
}

// `commgauge run --check-launch`: the same launch as for a run, whose ranks report and measure nothing.

/// Starts the ranks, and prints the report that rank 0 wrote.
fn run_check_launch(arguments: &RunArguments, out: &mut dyn Write) -> Result<i32> {
    // No record is made: its path only determines where the report goes, which rank 0 can write just like the record.
    let record = suite::record_path(arguments.record.as_deref())?;
    let report = record.with_extension("launch.json");
    let mut arguments = arguments.clone();
    arguments.extra.extend(["--check-launch".into(), "--launch-report".into(), suite::text(&report)?]);
    let commands = Launched::new(&arguments, &record)?.commands(&arguments)?;
    eprintln!("+ {}", commands.shown.for_shell());
    let mut progress = Progress::new(&record, Deadlines::of(&arguments, &commands.started))?;
    let ending = launch::supervise(&commands.started, &suite::new_run_id(), GRACE, &mut progress)?;
    let found = read(&report);
    let _ = std::fs::remove_file(&report);
    let Some(found) = found? else {
        let verdict = launch::conclude(&ending, &progress.finish().state);
        verdict.sentences.iter().for_each(|sentence| eprintln!("commgauge: {sentence}"));
        return Ok(if verdict.exit_code == 0 { 6 } else { verdict.exit_code });
    };
    progress.finish();
    arguments.output.show_answer(&found, |width| launch_check_text(&found, width), out)?;
    Ok(if found.refusals.is_empty() { 0 } else { 7 })
}

/// The report; none if the ranks did not write one.
fn read(path: &Path) -> Result<Option<LaunchReport>> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|cause| Error::environment(format!("{}: not the report of a launch: {cause}", path.shown()))),
        Err(_) => Ok(None),
    }
}
