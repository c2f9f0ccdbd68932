//! The flags of every program that MPI launches. They are known without MPI too, so that `commgauge run` can check what it hands
//! on.

use super::nccl_arguments::NcclArguments;
use super::output::OutputArguments;
use super::run::Backend;
use crate::measure::InjectedDelay;
use crate::units::parse_seconds;
use clap::Args;
use std::path::PathBuf;

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

fn parse_delay(text: &str) -> std::result::Result<InjectedDelay, String> {
    let accepted = || format!("found `{text}`; accepted: RANK:TIME, such as 2:2ms");
    let (rank, delay) = text.split_once(':').ok_or_else(accepted)?;
    Ok(InjectedDelay { rank: rank.parse().map_err(|_| accepted())?, delay: parse_seconds(delay)? })
}
