//! What a Slurm allocation settles for `commgauge run`: the number of ranks, where they lie, how srun brings them together.

use super::arguments::{Backend, RunArguments};
use crate::error::Result;
use crate::launch::{self, Allocation, Family, Launcher, srun_mpi};
use std::process::{Command, Stdio};

/// Ranks where neither a flag nor an allocation says how many.
const RANKS: u32 = 4;

/// The arguments with the number of ranks settled, and the allocation that they are launched in, if any.
///
/// # Errors
/// Where flags and allocation contradict each other.
pub(super) fn settle(arguments: &RunArguments) -> Result<(RunArguments, Option<Allocation>)> {
    // What is simulated runs in this process, wherever that is.
    let allocation = if arguments.backend == Backend::Mpi { Allocation::here()? } else { None };
    let mut settled = arguments.clone();
    settled.ranks = match &allocation {
        None => arguments.asked_ranks.unwrap_or(RANKS),
        Some(allocation) => {
            arguments.hosts.as_deref().map_or(Ok(()), |hosts| allocation.check_hosts(hosts))?;
            allocation.ranks_for(arguments.asked_ranks)?
        }
    };
    Ok((settled, allocation))
}

/// The word for srun's `--mpi`, where there is srun and nobody has chosen.
pub(super) fn mpi_of_srun(arguments: &RunArguments, launcher: &Launcher) -> Result<Option<String>> {
    let chosen = |word: &String| word == "--mpi" || word.starts_with("--mpi=");
    if launcher.family != Family::Slurm || arguments.launcher_arguments.iter().any(chosen) {
        return Ok(None);
    }
    let output = Command::new(&launcher.program).arg("--mpi=list").stdin(Stdio::null()).output();
    // Some versions answer on the one stream, some on the other.
    let offered = output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
    );
    srun_mpi(launch::flavor(), &offered, &|name| std::env::var(name).ok()).map(|word| word.map(str::to_owned))
}
