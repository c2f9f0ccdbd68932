//! Applies a Slurm allocation to `commgauge run`: the number of ranks, their hosts, and srun's MPI plugin.

use super::arguments::RunArguments;
use crate::cli::backend_name::Backend;
use crate::cli::places;
use crate::doctor::{Machine, Query, Response, System};
use crate::launch::{self, Allocation, Family, Launcher, host, parse_hosts, slots_of_hosts, srun_mpi};
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::visible::ShownPath;
use commgauge_run::device_probe::{CudaAnswer, Probe};
use std::path::Path;
use std::process::{Command, Stdio};

/// Default number of ranks of a simulation, of hosts in a file that gives no slots, and where GPUs are wanted and none is found, which
/// the ranks then report.
const RANKS_WITHOUT_CORES: u32 = 4;
/// A single rank does not communicate.
const MIN_RANKS: u32 = 2;

/// The arguments with the final number of ranks, and the allocation of the launch, if any.
///
/// # Errors
/// If flags and allocation contradict each other.
pub(super) fn resolve_ranks(arguments: &RunArguments) -> Result<(RunArguments, Option<Allocation>)> {
    let allocation = match arguments.backend {
        // It runs in this process, inside or outside of an allocation.
        Backend::Simulated => None,
        Backend::Mpi => Allocation::here()?,
        Backend::Nccl => Allocation::here()?.map(|job| job.with_a_rank_for_each_gpu(arguments.asked_ranks)),
    };
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

/// Ranks of every host of an allocation, where they are as many as its GPUs, of which the launcher knows nothing.
pub(super) fn ranks_per_host(arguments: &RunArguments) -> Result<Option<u32>> {
    if arguments.backend != Backend::Nccl {
        return Ok(None);
    }
    let Some(tasks) = Allocation::here()? else { return Ok(None) };
    let of_gpus = tasks.clone().with_a_rank_for_each_gpu(arguments.asked_ranks);
    Ok(of_gpus.gpus_per_host.filter(|_| of_gpus.hosts != tasks.hosts && of_gpus.ranks == arguments.ranks))
}

/// The default number of ranks: the slots of the hosts, else one for each GPU, or for each core, since oversubscribed ranks give no usable
/// times.
fn default_ranks(arguments: &RunArguments) -> Result<u32> {
    if arguments.backend == Backend::Simulated {
        return Ok(RANKS_WITHOUT_CORES);
    }
    if let Some(hosts) = &arguments.hosts {
        let slots = parse_hosts(hosts)?.iter().fold(0, |sum: u32, (_, slots)| sum.saturating_add(*slots));
        return Ok(slots.max(MIN_RANKS));
    }
    if let Some(file) = &arguments.host_file {
        return slots_of_file(file, arguments.backend);
    }
    Ok(match arguments.backend {
        Backend::Nccl => {
            let ranks = ranks_for_gpus(gpus_of_this_host(), arguments.extra.iter().any(|word| word == "--share-gpu"));
            if ranks < MIN_RANKS {
                eprintln!(
                    "one GPU, so one rank, which communicates with no other; `-n 4 ... -- --share-gpu` lets four share it (NCCL 2.30 or newer)"
                );
            }
            ranks
        }
        Backend::Mpi | Backend::Simulated => ranks_for_cores(host::cores()),
    })
}

fn slots_of_file(file: &Path, backend: Backend) -> Result<u32> {
    places::check_file("--hostfile", file)?;
    let text = commgauge_base::input_file::read_to_string(file).map_err(|cause| Error::file("read", file, cause))?;
    match (slots_of_hosts(&file.shown(), &text), backend) {
        (Ok(Some(slots)), _) => Ok(slots.max(MIN_RANKS)),
        (Ok(None), Backend::Nccl) => Err(Error::usage(format!(
            "--hostfile {}: it gives no slots, and the GPUs of other hosts are not known here; write `HOST slots=8` for eight GPUs \
             (MPICH: `HOST:8`), or give the ranks by -n",
            file.shown()
        ))),
        // A form that only the launcher understands does not prevent the launch.
        (Ok(None) | Err(_), _) => Ok(RANKS_WITHOUT_CORES),
    }
}

/// Devices that the driver of this host shows to a process; none where it cannot be asked.
fn gpus_of_this_host() -> u32 {
    let Response::Text(text) = Machine::default().query(Query::Library(Probe::Cuda)) else { return 0 };
    serde_json::from_str::<CudaAnswer>(&text).map_or(0, |answer| answer.devices.len() as u32)
}

fn ranks_for_gpus(gpus: u32, are_shared: bool) -> u32 {
    if gpus == 0 || are_shared { gpus.max(RANKS_WITHOUT_CORES) } else { gpus }
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
    fn there_is_a_rank_for_each_gpu_and_four_where_fewer_are_shared() {
        for (gpus, are_shared, ranks) in
            [(8, false, 8), (3, false, 3), (1, false, 1), (0, false, 4), (1, true, 4), (8, true, 8)]
        {
            assert_eq!(ranks_for_gpus(gpus, are_shared), ranks, "{gpus} GPUs, shared: {are_shared}");
        }
    }

    #[test]
    fn a_file_of_hosts_gives_the_ranks_by_its_slots_and_on_gpus_needs_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = |text: &str| {
            let path = folder.path().join("hosts");
            std::fs::write(&path, text).unwrap();
            path
        };
        let slots = |text: &str, backend| slots_of_file(&file(text), backend);
        assert_eq!(slots("a slots=8\nb slots=8\n", Backend::Nccl).unwrap(), 16);
        assert_eq!(slots("a\nb\n", Backend::Mpi).unwrap(), RANKS_WITHOUT_CORES);
        let error = slots("a\nb\n", Backend::Nccl).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("write `HOST slots=8`"), "{error}");
    }

    #[test]
    fn a_rank_for_each_core_is_an_even_number_of_at_least_two() {
        for (cores, ranks) in [(0, 2), (1, 2), (2, 2), (3, 2), (4, 4), (7, 6), (64, 64)] {
            assert_eq!(ranks_for_cores(cores), ranks, "{cores} cores");
        }
    }
}
