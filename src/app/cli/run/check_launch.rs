//! `commgauge run --check-launch`: the same launch as for a run, whose ranks report and measure nothing.

use super::super::table_or_json::print_on;
use super::arguments::RunArguments;
use super::commands::Launched;
use super::deadlines::Deadlines;
use super::outcome;
use super::progress::Progress;
use crate::cli::table_or_json::json;
use crate::cli::terminal::columns;
use crate::cli::{launch_table, places};
use crate::launch::{self, GRACE, LauncherContext};
use crate::report::Format;
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::visible::ShownPath;
use commgauge_run::launch_check::LaunchReport;
use std::io::Write;
use std::path::Path;

/// Starts the ranks, and prints the report that rank 0 wrote.
pub(super) fn run(arguments: &RunArguments, out: &mut dyn Write) -> Result<i32> {
    if !matches!(arguments.output.format(), Format::Table | Format::Json) {
        return Err(Error::usage("--check-launch writes --format table or json"));
    }
    // No record is made: its path only determines where the report goes, which rank 0 can write just like the record.
    let record = places::record_path(arguments.record.as_deref())?;
    let report = record.with_extension("launch.json");
    let mut arguments = arguments.clone();
    arguments.extra.extend(["--check-launch".into(), "--launch-report".into(), places::text(&report)?]);
    let commands = Launched::new(&arguments, &record)?.commands(&arguments)?;
    eprintln!("+ {}", commands.shown.for_shell());
    let in_slurm = LauncherContext::here().in_slurm;
    let mut progress = Progress::new(&record, Deadlines::of(&arguments, &commands.started, in_slurm))?;
    let ending = launch::supervise(&commands.started, &places::new_run_id(), GRACE, &mut progress)?;
    let found = read(&report);
    let _ = std::fs::remove_file(&report);
    let Some(found) = found? else {
        let verdict = outcome::conclude(&ending, &progress.finish().state);
        verdict.sentences.iter().for_each(|sentence| eprintln!("commgauge: {sentence}"));
        return Ok(if verdict.exit_code == 0 { 6 } else { verdict.exit_code });
    };
    progress.finish();
    let text = match arguments.output.format() {
        Format::Json => json(&found)?,
        _ => launch_table::text(&found, columns(arguments.output.width)),
    };
    print_on(out, &text)?;
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
