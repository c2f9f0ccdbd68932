//! The paired bench: commgauge's streaming cadence against a plain loop in C over the same MPI calls, block by block in the
//! same ranks. docs/evidence.md tells what is compared and why so.
//!
//! Started plainly it launches its own ranks; started by an MPI launcher it is one of them.

mod blocks;
mod driver;
mod pair;
mod rank;
mod raw_loop;
mod summary;

use clap::Parser;
use commgauge::error::Result;
use commgauge::units::{Bytes, Seconds, parse_seconds};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// commgauge's streaming cadence against a plain loop in C
#[derive(Clone, Debug, Parser)]
pub struct Arguments {
    /// Ranks to launch, a list with commas
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4])]
    ranks: Vec<u32>,
    /// Launches for each number of ranks
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    launches: u32,
    /// Time for each collective and size, such as 3s
    #[arg(long, default_value = "3s", value_parser = parse_seconds)]
    budget: Seconds,
    /// Fewest pairs of blocks, however long they take
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(6..))]
    pairs: u32,
    /// Sizes, a list with commas
    #[arg(long, value_delimiter = ',', default_value = "8,64,512,4KiB,32KiB,256KiB,2MiB,16MiB,64MiB", value_parser = parse_bytes)]
    sizes: Vec<Bytes>,
    /// Only these collectives, a list with commas
    #[arg(long, value_delimiter = ',', default_value = "all_reduce,all_gather,all_to_all,ping_pong")]
    collectives: Vec<String>,
    /// Seed of the order of the blocks
    #[arg(long, default_value_t = 20_240_613)]
    seed: u64,
    /// Write all blocks to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// A rank that prints its blocks for the launch number N
    #[arg(long, hide = true, value_name = "N")]
    rows_of_launch: Option<u32>,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn parse_bytes(text: &str) -> std::result::Result<Bytes, String> {
    Bytes::parse(text)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let launched =
        ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"].iter().any(|name| std::env::var_os(name).is_some());
    let end: Result<bool> = if launched { rank::run(&arguments) } else { driver::run(&arguments) };
    match end {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "against_raw_loop: {error}");
            if launched {
                commgauge::mpi_call::abort(error.exit_code());
            }
            ExitCode::from(error.exit_code() as u8)
        }
    }
}
