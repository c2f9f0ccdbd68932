//! The flags of every program that MPI launches. They do not depend on MPI, so that `commgauge run` can check the
//! arguments that it passes on.

use super::backend_name::Backend;
use super::nccl_arguments::NcclArguments;
use super::output::OutputArguments;
use clap::Args;
use commgauge_base::progress::Fault;
use commgauge_base::units::{Seconds, parse_seconds};
use commgauge_run::measure::InjectedDelay;
use std::path::PathBuf;
use std::time::Duration;

/// Flags of every launched program.
#[derive(Clone, Debug, Args)]
pub struct LaunchedArguments {
    /// Who carries the calls out
    #[arg(long, value_enum, default_value = "mpi")]
    pub backend: Backend,
    /// Machine file, or the name of one (`commgauge list machines`), whose link rates bound the bus bandwidth
    #[arg(long, value_name = "FILE")]
    pub machine: Option<PathBuf>,
    /// Record to write; must not exist. Without it: reports/runs/RUN_ID.jsonl
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Record of a run that ended early, to resume; everything else must be given as it was then
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    pub resume: Option<PathBuf>,
    /// Go on although hosts, binary, versions or environment are others than in the record, which then says so
    #[arg(long, requires = "resume")]
    pub allow_changed: bool,
    /// Stop with exit code 75 before this time is over, such as 25m: no case is begun that would not be done by then
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit)]
    pub time_limit: Option<Seconds>,
    /// Number of ranks that the launch must have; needed for a launch of one rank
    #[arg(long, value_name = "N")]
    pub expect_ranks: Option<u32>,
    /// Show what the ranks have in common and where they differ, and stop before anything is measured; exit code 7 where they
    /// do not belong together
    #[arg(long)]
    pub check_launch: bool,
    /// Go on where ranks differ in environment, libraries or drivers; the record then says where
    #[arg(long)]
    pub allow_mixed: bool,
    /// Where the check of the launch goes, as JSON; set by `commgauge run --check-launch`
    #[arg(long, hide = true, value_name = "FILE", requires = "check_launch")]
    pub launch_report: Option<PathBuf>,
    /// Test option: delay a rank in every isolated iteration, as RANK:TIME, such as 2:2ms
    #[arg(long, value_name = "RANK:TIME", value_parser = parse_delay)]
    pub inject_delay: Option<InjectedDelay>,
    /// Test option: panic on a rank when it comes to its first case
    #[arg(long, value_name = "RANK", hide = true)]
    pub inject_panic: Option<u32>,
    /// How long a rank may stay in one place before the run counts as hung and is ended with code 5, in seconds or as 500ms, 2m
    /// [default: follows from each case]
    #[arg(long, value_name = "SECONDS", value_parser = parse_timeout)]
    pub timeout: Option<Duration>,
    /// Run without the watchdog that ends and explains a run that hangs; calls on GPUs then give up by themselves, after --timeout
    #[arg(long)]
    pub no_watchdog: bool,
    /// Test option: a rank that hangs, loops, stops, dies or leaves at a call, as RANK:KIND[:CALL]
    #[arg(long, value_name = "RANK:KIND[:CALL]", value_parser = Fault::parse, conflicts_with = "no_watchdog", hide = true)]
    pub inject_fault: Option<Fault>,
    /// Print no result, only write the record
    #[arg(long)]
    pub quiet: bool,
    /// How results are shown.
    #[command(flatten)]
    pub output: OutputArguments,
    /// What only NCCL understands.
    #[command(flatten)]
    pub nccl: NcclArguments,
    /// The launch command, as a JSON list; set by `commgauge run`
    #[arg(long, hide = true)]
    pub launch_command: Option<String>,
}

/// Parses the time limit of any measuring program.
pub(super) fn parse_time_limit(text: &str) -> std::result::Result<Seconds, String> {
    match parse_seconds(text)? {
        time if time.0 > 0.0 => Ok(time),
        _ => Err(format!("found `{text}`; accepted: more than 0 s, such as 25m or 1.5h")),
    }
}

fn parse_delay(text: &str) -> std::result::Result<InjectedDelay, String> {
    let accepted = || format!("found `{text}`; accepted: RANK:TIME, such as 2:2ms");
    let (rank, delay) = text.split_once(':').ok_or_else(accepted)?;
    Ok(InjectedDelay { rank: rank.parse().map_err(|_| accepted())?, delay: parse_seconds(delay)? })
}

/// Parses seconds, or a time with its unit.
pub fn parse_timeout(text: &str) -> std::result::Result<Duration, String> {
    let seconds = text.trim().parse().map(Seconds).or_else(|_| parse_seconds(text))?.0;
    if (1e-3..=1e6).contains(&seconds) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(format!("found `{text}`; accepted: from 1ms to 1000000 seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_seconds_or_has_a_unit() {
        for text in ["", "0", "-1", "nan", "inf", "1e99", "2d", "0ns"] {
            assert!(parse_timeout(text).is_err(), "{text}");
        }
        for (text, milliseconds) in [("2", 2_000), ("0.5", 500), ("500ms", 500), ("2m", 120_000)] {
            assert_eq!(parse_timeout(text), Ok(Duration::from_millis(milliseconds)));
        }
    }
}
