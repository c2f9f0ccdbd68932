//! Applies a Slurm allocation to `commgauge run`: the number of ranks, their hosts, and srun's MPI plugin.

use super::arguments::RunArguments;
use crate::cli::backend_name::Backend;
use crate::launch::{self, Allocation, Family, Launcher, host, parse_hosts, srun_mpi};
use commgauge_base::error::Result;
use std::process::{Command, Stdio};

/// Default number of ranks of a simulation, and on GPUs, where cores are no limit.
const RANKS_WITHOUT_CORES: u32 = 4;
/// A single rank does not communicate.
const MIN_RANKS: u32 = 2;

/// The arguments with the final number of ranks, and the allocation of the launch, if any.
///
/// # Errors
/// If flags and allocation contradict each other.
pub(super) fn resolve_ranks(arguments: &RunArguments) -> Result<(RunArguments, Option<Allocation>)> {
    // A simulation runs in this process, inside or outside of an allocation.
    let allocation = if arguments.backend == Backend::Mpi { Allocation::here()? } else { None };
    let mut resolved = arguments.clone();
    resolved.ranks = match &allocation {
        None => arguments.asked_ranks.map_or_else(|| default_ranks(arguments), Ok)?,
        Some(allocation) => {
            arguments.hosts.as_deref().map_or(Ok(()), |hosts| allocation.check_hosts(hosts))?;
            allocation.ranks_for(arguments.asked_ranks)?
        }
    };
    Ok((resolved, allocation))
}

/// The default number of ranks: the slots of the hosts, else one for each core, since oversubscribed ranks give no
/// usable times.
fn default_ranks(arguments: &RunArguments) -> Result<u32> {
    if arguments.backend == Backend::Simulated {
        return Ok(RANKS_WITHOUT_CORES);
    }
    if let Some(hosts) = &arguments.hosts {
        let slots = parse_hosts(hosts)?.iter().fold(0, |sum: u32, (_, slots)| sum.saturating_add(*slots));
        return Ok(slots.max(MIN_RANKS));
    }
    match arguments.backend {
        Backend::Mpi if arguments.host_file.is_none() => Ok(ranks_for_cores(host::cores())),
        _ => Ok(RANKS_WITHOUT_CORES),
    }
}

/// With an odd number of cores one stays idle: layouts divide by two.
fn ranks_for_cores(cores: u32) -> u32 {
    (cores / 2 * 2).max(MIN_RANKS)
}

/// The value for srun's `--mpi`, if srun is the launcher and the user has not chosen one.
pub(super) fn srun_mpi_plugin(arguments: &RunArguments, launcher: &Launcher) -> Result<Option<String>> {
    let chosen = |word: &String| word == "--mpi" || word.starts_with("--mpi=");
    if launcher.family != Family::Slurm || arguments.launcher_arguments.iter().any(chosen) {
        return Ok(None);
    }
    let output = Command::new(&launcher.program).arg("--mpi=list").stdin(Stdio::null()).output();
    // Some versions write to stdout, some to stderr.
    let offered = output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
    );
    srun_mpi(launch::flavor(), &offered, &|name| std::env::var(name).ok()).map(|word| word.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_for_each_core_is_an_even_number_of_at_least_two() {
        for (cores, ranks) in [(0, 2), (1, 2), (2, 2), (3, 2), (4, 4), (7, 6), (64, 64)] {
            assert_eq!(ranks_for_cores(cores), ranks, "{cores} cores");
        }
    }
}
