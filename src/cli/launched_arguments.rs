//! The flags of every program that MPI launches. They are known without MPI too, so that `commgauge run` can check what it hands
//! on.

use super::output::OutputArguments;
use super::run::Backend;
use crate::measure::InjectedDelay;
use crate::progress::Fault;
use crate::units::{Seconds, parse_seconds};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Flags of every launched program.
#[derive(Clone, Debug, Args)]
pub struct LaunchedArguments {
    /// Who carries the calls out
    #[arg(long, value_enum, default_value = "mpi")]
    pub backend: Backend,
    /// Machine file (suites/machines/*.toml) whose link rates bound the bus bandwidth
    #[arg(long, value_name = "FILE")]
    pub machine: Option<PathBuf>,
    /// Record to write; must not exist. Without it: reports/runs/RUN_ID.jsonl
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Number of ranks that the launch must have; needed for a launch of one rank
    #[arg(long, value_name = "N")]
    pub expect_ranks: Option<u32>,
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
    /// Run without the watchdog that ends and explains a run that hangs
    #[arg(long, conflicts_with = "timeout")]
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
    /// The launch command, as a JSON list; set by `commgauge run`
    #[arg(long, hide = true)]
    pub launch_command: Option<String>,
}

fn parse_delay(text: &str) -> std::result::Result<InjectedDelay, String> {
    let accepted = || format!("found `{text}`; accepted: RANK:TIME, such as 2:2ms");
    let (rank, delay) = text.split_once(':').ok_or_else(accepted)?;
    Ok(InjectedDelay { rank: rank.parse().map_err(|_| accepted())?, delay: parse_seconds(delay)? })
}

/// Seconds, or a time with its unit.
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
        for text in ["", "0", "-1", "nan", "inf", "1e99", "2h", "0ns"] {
            assert!(parse_timeout(text).is_err(), "{text}");
        }
        for (text, milliseconds) in [("2", 2_000), ("0.5", 500), ("500ms", 500), ("2m", 120_000)] {
            assert_eq!(parse_timeout(text), Ok(Duration::from_millis(milliseconds)));
        }
    }
}
