//! Launches: of a new run, repeated, and of one that goes on; each is followed to its end, and its result is printed.

use super::arguments::RunArguments;
use super::commands::{Commands, Launched};
use super::progress::{Progress, Rows};
use super::resumed_launch::ResumedLaunch;
use super::summary::summarise;
use super::{allocation, outcome, resumable, wait_hosts};
use crate::cli::live::write_above;
use crate::cli::places;
use crate::cli::table_or_json::print_on;
use crate::launch::{self, Allocation, GRACE};
use crate::report::{LiveRows, View};
use commgauge_base::error::Result;
use commgauge_model::record::Record;
use std::io::{IsTerminal, Write};
use std::path::Path;

pub(super) fn print_allocation(allocation: Option<&Allocation>, arguments: &RunArguments) {
    if let Some(allocation) = allocation {
        eprintln!("commgauge: {}", allocation.describe(arguments.ranks));
    }
}

/// Runs every launch of `--launches`, each with its own record; stops at the first failure.
pub(super) fn launch_all(arguments: &RunArguments, out: &mut dyn Write) -> Result<i32> {
    let first = places::record_path(arguments.record.as_deref())?;
    let records = places::numbered(&first, arguments.launches);
    records.iter().try_for_each(|record| places::refuse_existing(record))?;
    for (index, record) in records.iter().enumerate() {
        let exit_code = launch_one(arguments, record, out)?;
        if exit_code != 0 {
            if index + 1 < records.len() {
                eprintln!("commgauge: launch {} of {} failed; the rest is not started", index + 1, records.len());
            }
            return Ok(exit_code);
        }
    }
    Ok(0)
}

pub(super) fn launch_one(arguments: &RunArguments, record: &Path, out: &mut dyn Write) -> Result<i32> {
    let commands = Launched::new(arguments, record)?.commands(arguments)?;
    let live =
        if arguments.sweep.is_some() { arguments.output.live_rows(std::io::stdout().is_terminal()) } else { None };
    let rows = live.map(|rows| Rows { rows, out: &mut *out });
    let progress = Progress::new(record)?.with_rows(rows);
    let result = follow((&commands, record), progress)?;
    print_result(arguments, record, result, out)
}

/// Resumes a run.
pub(super) fn resume_launch(
    arguments: &RunArguments,
    resumed: &ResumedLaunch,
    (path, record): (&Path, &Record),
    out: &mut dyn Write,
) -> Result<i32> {
    let (arguments, allocation) =
        allocation::resolve_ranks(&RunArguments { asked_ranks: Some(resumed.ranks), ..arguments.clone() })?;
    print_allocation(allocation.as_ref(), &arguments);
    let commands = Launched::resumed(resumed, &arguments, path)?.commands(&arguments)?;
    if arguments.dry_run {
        print_on(out, &format!("{}\n", commands.shown.for_shell()))?;
        return Ok(0);
    }
    wait_hosts::wait(&arguments)?;
    let result = follow((&commands, path), Progress::resuming(path, record)?)?;
    print_result(&arguments, path, result, out)
}

/// Result of a supervised launch.
struct LaunchResult {
    exit_code: i32,
    /// Whether there is a record to show.
    has_header: bool,
    /// The rows that were printed during the run.
    live: Option<LiveRows>,
}

/// Runs a launch to its end and reports its progress.
fn follow((commands, record): (&Commands, &Path), mut progress: Progress) -> Result<LaunchResult> {
    eprintln!("+ {}", commands.shown.for_shell());
    let ending = launch::supervise(&commands.started, &places::new_run_id(), GRACE, &mut progress)?;
    let (record_state, live) = progress.finish();
    let verdict = outcome::conclude(&ending, &record_state);
    for sentence in &verdict.sentences {
        eprintln!("commgauge: {sentence}");
    }
    if record_state.can_be_resumed() {
        eprintln!("commgauge: resume with: {}", resumable::command(record));
    }
    Ok(LaunchResult { exit_code: verdict.exit_code, has_header: record_state.header.is_some(), live })
}

/// Prints the results of a launch's record, and returns its exit code.
fn print_result(arguments: &RunArguments, record: &Path, result: LaunchResult, out: &mut dyn Write) -> Result<i32> {
    let exit_code = result.exit_code;
    match result {
        LaunchResult { has_header: false, .. } => {}
        LaunchResult { live: None, .. } => summarise(arguments, record, out)?,
        LaunchResult { live: Some(live), .. } => {
            write_above(None, out, &live.finish(&View::new(&Record::read(record)?)));
            eprintln!("record: {}", record.display());
        }
    }
    Ok(exit_code)
}
