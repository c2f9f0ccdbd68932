//! Launches: of a new run, repeated, and of one that goes on; each is followed to its end, and its result is printed.

use super::arguments::RunArguments;
use super::commands::{Commands, Launched};
use super::deadlines::Deadlines;
use super::progress::{Followed, Progress, Rows};
use super::resumed_launch::ResumedLaunch;
use super::summary::summarise;
use super::{allocation, outcome, resumable, unwatched, wait_hosts};
use crate::cli::live::write_above;
use crate::cli::places;
use crate::cli::terminal::Sink;
use crate::launch::{self, Allocation, GRACE, LauncherContext};
use crate::report::View;
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::visible::ShownPath;
use commgauge_model::record::{Line, Record, Writer, append_missing_end};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the record of ranks that are gone may still be locked.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);

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
    let live = if arguments.sweep.is_some() { arguments.output.live_rows(Sink::stdout()) } else { None };
    let rows = live.map(|rows| Rows { rows, out: &mut *out });
    let progress = Progress::new(record, deadlines(arguments, &commands))?.with_rows(rows);
    let result = follow(arguments, &commands, progress)?;
    print_result(arguments, result, out)
}

/// Resumes a run.
pub(super) fn resume_launch(
    arguments: &RunArguments,
    resumed: &ResumedLaunch,
    path: &Path,
    record: &Record,
    out: &mut dyn Write,
) -> Result<i32> {
    let (arguments, allocation) =
        allocation::resolve_ranks(&RunArguments { asked_ranks: Some(resumed.ranks), ..arguments.clone() })?;
    print_allocation(allocation.as_ref(), &arguments);
    let commands = Launched::resumed(resumed, &arguments, path)?.commands(&arguments)?;
    if arguments.dry_run {
        commands.print(out)?;
        return Ok(0);
    }
    wait_hosts::wait(&arguments)?;
    let progress = Progress::resuming(path, record, deadlines(&arguments, &commands))?;
    let result = follow(&arguments, &commands, progress)?;
    print_result(&arguments, result, out)
}

fn deadlines(arguments: &RunArguments, commands: &Commands) -> Deadlines {
    Deadlines::of(arguments, &commands.started, LauncherContext::here().in_slurm)
}

/// Result of a supervised launch.
struct LaunchResult {
    exit_code: i32,
    followed: Followed,
}

/// Runs a launch to its end and reports its progress.
fn follow(arguments: &RunArguments, commands: &Commands, mut progress: Progress) -> Result<LaunchResult> {
    eprintln!("+ {}", commands.shown.for_shell());
    let started = Instant::now();
    let ending = launch::supervise(&commands.started, &places::new_run_id(), GRACE, &mut progress)?;
    let followed = progress.finish();
    let verdict = outcome::conclude(&ending, &followed.state);
    for sentence in &verdict.sentences {
        eprintln!("commgauge: {sentence}");
    }
    if ending.overdue.is_some() && followed.state.header.is_none() {
        wait_hosts::unreachable(arguments).iter().for_each(|sentence| eprintln!("commgauge: {sentence}"));
    }
    if followed.state.header.is_some() && followed.state.end.is_none() {
        let end = outcome::missing_end(&ending, &followed.state, verdict.exit_code, started.elapsed());
        let unwatched = unwatched::missing_line(&ending.output, &followed.state);
        let hang = outcome::lone_hang(&followed.state).map(|line| Line::Hang(Box::new(line.clone())));
        let lines: Vec<Line> = unwatched.into_iter().chain(hang).collect();
        // A rank that still writes, on a host out of reach, keeps its record.
        if let Err(cause) = append_missing_end(&followed.record, &lines, &end, Writer::Ending(LOCK_TIMEOUT)) {
            eprintln!("commgauge: {cause}");
        }
    }
    if followed.state.can_be_resumed() {
        eprintln!("commgauge: resume with: {}", resumable::command(&followed.record));
    }
    Ok(LaunchResult { exit_code: verdict.exit_code, followed })
}

/// What is wrong with a record that this launch began whole.
fn changed(problem: &str) -> Error {
    Error::environment(format!("{problem}; somebody changed the record while it was written"))
}

/// Prints the results of a launch's record, and returns its exit code.
fn print_result(arguments: &RunArguments, result: LaunchResult, out: &mut dyn Write) -> Result<i32> {
    let LaunchResult { exit_code, followed: Followed { record, state, live } } = result;
    if state.header.is_none() {
        return if exit_code == 0 { Err(changed(&format!("{} has no header", record.shown()))) } else { Ok(exit_code) };
    }
    if !record.exists() {
        return Err(Error::environment(format!(
            "the record {} was removed, and nothing was written to it since; what it held is lost",
            record.shown()
        )));
    }
    match live {
        // What was a record when the run began is no mistake of who started it.
        None => summarise(arguments, &record, out).map_err(|cause| match Record::read(&record) {
            Ok(_) => cause,
            Err(cause) => changed(&cause.to_string()),
        })?,
        Some(live) => {
            write_above(None, out, &live.finish(&View::new(&Record::read(&record)?)));
            eprintln!("record: {}", record.shown());
        }
    }
    Ok(exit_code)
}
