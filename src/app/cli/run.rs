//! `commgauge run`: builds the launch command of a suite, a sweep or a model's step, prints it, runs it, reports its
//! progress, and prints a summary.
//!
//! The measuring is done by `commgauge-suite`, `commgauge-sweep`, `commgauge-step` or `commgauge-pairs` in the launched
//! ranks; only the record is read back.

mod allocation;
mod arguments;
mod check_launch;
mod combinations;
mod commands;
mod deadlines;
mod in_process;
mod launches;
mod nodes;
mod outcome;
mod progress;
mod record_state;
mod resumable;
mod resume;
mod resumed_launch;
mod summary;
mod sweep_flags;
mod unwatched;
mod wait_hosts;
mod work;

pub use arguments::RunArguments;
pub(crate) use arguments::SummaryParts;
#[cfg(feature = "mpi")]
pub(crate) use resumable::{command as resume_command, exit_code_if_complete, state};

use super::backend_name::Backend;
use super::places;
use super::suite::{SuiteWork, plan_text};
use super::table_or_json::print_on;
use commands::Launched;
use commgauge_base::error::{Error, Result};
use commgauge_model::config::{Machine, Shipped};
use commgauge_model::layout::Nodes;
use in_process::run_in_process;
use launches::{launch_all, print_allocation};
use nodes::predicted_nodes;
use std::io::Write;
use std::path::Path;

/// Runs the subcommand and returns the exit code. Data goes to `out`, everything else to standard error.
pub fn run(arguments: &RunArguments, out: &mut dyn Write) -> Result<i32> {
    arguments.check_sweep_flags()?;
    if let Some(record) = &arguments.resume {
        return resume::run(arguments, record, out);
    }
    if combinations::is_requested(arguments) {
        combinations::check(arguments)?;
    }
    // Errors in the files are best reported before anything is started.
    let machine = arguments.machine.as_deref().map(Machine::load).transpose()?;
    let (arguments, allocation) = allocation::resolve_ranks(arguments)?;
    let arguments = &arguments;
    let nodes = predicted_nodes(arguments, allocation.as_ref(), machine.as_ref())?;
    let wanted = work::of(arguments, &nodes)?;
    arguments.suite.iter().for_each(|suite| places::report_resolved_file(Shipped::Suite, suite));
    arguments.machine.iter().for_each(|machine| places::report_resolved_file(Shipped::Machine, machine));
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
            wait_hosts::wait(arguments)?;
            check_launch::run(arguments, out)
        }
        Backend::Mpi | Backend::Nccl => {
            print_allocation(allocation.as_ref(), arguments);
            wait_hosts::wait(arguments)?;
            if combinations::is_requested(arguments) {
                combinations::run(arguments, out)
            } else {
                launch_all(arguments, out)
            }
        }
    }
}

fn dry_run(arguments: &RunArguments, work: &SuiteWork, nodes: &Nodes, out: &mut dyn Write) -> Result<i32> {
    // The default record gets its name at the start, so a dry run only shows such a name and creates no folder.
    let record = arguments.record.clone().unwrap_or_else(places::default_record);
    let show = |arguments: &RunArguments, record: &Path, out: &mut dyn Write| {
        Launched::new(arguments, record)?.commands(arguments)?.print(out)
    };
    match combinations::is_requested(arguments) {
        true => {
            let launches = combinations::launches(arguments, &record);
            launches.iter().try_for_each(|launch| show(&launch.arguments, &launch.record, out))?;
        }
        false => show(arguments, &record, out)?,
    }
    print_on(out, &plan_text(work, nodes))?;
    Ok(0)
}
