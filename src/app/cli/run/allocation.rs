//! Applies a Slurm allocation to `commgauge run`: the number of ranks, their hosts, and srun's MPI plugin.

use super::arguments::RunArguments;
use crate::cli::launched_arguments::Backend;
use crate::cli::suite;
use crate::doctor::{Machine, Query, Response, System};
use crate::launch::{self, Allocation, Family, HostFile, Launcher, LauncherContext, find, parse_hosts, srun_mpi};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::counted;
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::{ascending, eprintln};
use commgauge_model::config::Machine as MachineFile;
use commgauge_model::layout::{MOST_RANKS, Nodes};
use commgauge_run::device_probe::{CudaAnswer, Probe};
use std::cell::LazyCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Default number of ranks of a simulation, of hosts in a file that gives no slots, and where GPUs are wanted and none is found, which
/// the ranks then report.
const RANKS_WITHOUT_CORES: u32 = 4;

/// A single rank does not communicate.
const MIN_RANKS: u32 = 2;

/// The arguments with the final number of ranks, and the allocation of the launch, if any.
///
/// # Errors
/// If flags and allocation contradict each other.
pub(super) fn resolve_ranks(arguments: &RunArguments, driver: &Driver) -> Result<(RunArguments, Option<Allocation>)> {
    let allocation = match arguments.backend {
        // It runs in this process, inside or outside of an allocation.
        Backend::Simulated => None,
        Backend::Mpi => Allocation::here()?,
        Backend::Nccl => Allocation::here()?.map(|job| job.with_a_rank_for_each_gpu(arguments.asked_ranks)),
    };
    let mut resolved = arguments.clone();
    resolved.hosts = arguments.hosts.as_deref().map(launch::expanded_hosts).transpose()?;
    let names_hosts = arguments.hosts.is_some() || arguments.host_file.is_some();
    let in_job = allocation.is_none() && !names_hosts && arguments.backend != Backend::Simulated;
    if in_job && let Some((variable, path)) = file_of_job(&|name| std::env::var_os(name)) {
        let shown = path.shown();
        if arguments.backend == Backend::Nccl && arguments.asked_ranks.is_none() {
            return Err(Error::usage(format!("{variable}: the slots of {shown} are no GPUs; give the ranks by -n")));
        }
        eprintln!("commgauge: hosts of the job: {shown} ({variable})");
        resolved.host_file = Some(path);
    }
    if arguments.backend != Backend::Simulated {
        resolved.listed_hosts = resolved.host_file.as_deref().map(read_hosts).transpose()?;
    }
    resolved.ranks = match &allocation {
        None => arguments.asked_ranks.map_or_else(|| default_ranks(&resolved, driver), Ok)?,
        Some(allocation) => {
            resolved.hosts.as_deref().map_or(Ok(()), |hosts| allocation.check_hosts(hosts))?;
            allocation.ranks_for(arguments.asked_ranks)?
        }
    };
    if resolved.ranks > MOST_RANKS {
        let ranks = resolved.ranks;
        return Err(Error::usage(format!("{ranks} ranks; accepted: at most {MOST_RANKS} (2^20), by -n or as slots")));
    }
    Ok((resolved, allocation))
}

/// Variables that name the host file of a job, which has a line for each slot: of PBS, and of LSF.
const JOB_FILES: [&str; 2] = ["PBS_NODEFILE", "LSB_DJOB_HOSTFILE"];

/// The host file of the job of this process, with its variable; none outside of one, and in a job of Flux, which writes none.
fn file_of_job(environment: &dyn Fn(&str) -> Option<OsString>) -> Option<(&'static str, PathBuf)> {
    let found = JOB_FILES.into_iter().find_map(|name| Some((name, PathBuf::from(environment(name)?))));
    if found.is_none() && environment("FLUX_JOB_ID").is_some() {
        eprintln!(
            "commgauge: a job of Flux writes no host file: ranks start here, or on --hosts (`flux hostlist local`)"
        );
    }
    found
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
fn default_ranks(arguments: &RunArguments, driver: &Driver) -> Result<u32> {
    if arguments.backend == Backend::Simulated {
        return Ok(RANKS_WITHOUT_CORES);
    }
    if let Some(hosts) = &arguments.hosts {
        let slots = parse_hosts(hosts)?.iter().fold(0, |sum: u32, (_, slots)| sum.saturating_add(*slots));
        return Ok(slots.max(MIN_RANKS));
    }
    if let Some(file) = &arguments.listed_hosts {
        return slots_of_file(file, arguments.backend);
    }
    Ok(match arguments.backend {
        Backend::Nccl => {
            let ranks = ranks_for_gpus(devices(driver), arguments.extra.iter().any(|word| word == "--share-gpu"));
            if ranks < MIN_RANKS {
                eprintln!(
                    "one GPU, so one rank, which communicates with no other; `-n 4 ... -- --share-gpu` lets four share it (NCCL 2.30 or newer)"
                );
            }
            ranks
        }
        Backend::Mpi | Backend::Simulated => ranks_for_cores(find::cores()),
    })
}

fn slots_of_file(file: &HostFile, backend: Backend) -> Result<u32> {
    match (file.slots(), backend) {
        (Ok(Some(slots)), _) => Ok(slots.max(MIN_RANKS)),
        (Ok(None), Backend::Nccl) => Err(Error::usage(format!(
            "--hostfile {}: it gives no slots, and the GPUs of other hosts are not known here; write `HOST slots=8` for eight GPUs \
             (MPICH: `HOST:8`), or give the ranks by -n",
            file.name
        ))),
        // A form that only the launcher understands does not prevent the launch.
        (Ok(None) | Err(_), _) => Ok(RANKS_WITHOUT_CORES),
    }
}

/// Says before ranks start what this host lacks, and what a user may have meant.
///
/// # Errors
/// A usage error where the ranks run on this host, whose driver cannot be asked.
pub(super) fn check_this_host(
    arguments: &RunArguments,
    allocation: Option<&Allocation>,
    driver: &Driver,
) -> Result<()> {
    if allocation.is_some() || arguments.hosts.is_some() || arguments.host_file.is_some() {
        return Ok(());
    }
    match (arguments.backend, arguments.asked_ranks) {
        (Backend::Nccl, _) => {
            if let Response::Failed(reason) = &**driver {
                return Err(Error::usage(format!(
                    "--backend nccl: {reason}; `commgauge doctor` shows what is missing, and --backend mpi measures host memory"
                )));
            }
        }
        (Backend::Mpi, Some(ranks)) if arguments.sweep.is_some() && ranks > find::cores() => {
            eprintln!("commgauge: -n {ranks} starts more ranks than cores; a number of calls is --iters {ranks}");
        }
        _ => {}
    }
    if arguments.backend == Backend::Mpi && Path::new("/dev/nvidia0").exists() {
        eprintln!("commgauge: --backend mpi measures host memory; --backend nccl measures the GPUs of this host");
    }
    Ok(())
}

/// What the GPU driver of this host answers, asked where it is first needed.
pub(super) type Driver = LazyCell<Response>;

/// The driver of this host, not asked yet.
pub(super) fn driver() -> Driver {
    LazyCell::new(|| Machine::default().query(Query::Library(Probe::Cuda)))
}

/// Devices that the driver shows to a process; none where it cannot be asked.
fn devices(driver: &Driver) -> u32 {
    let Response::Text(text) = &**driver else { return 0 };
    serde_json::from_str::<CudaAnswer>(text).map_or(0, |answer| answer.devices.len() as u32)
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

// Which ranks will share a host, as far as it can be said before the launch.

/// Predicts the hosts of the ranks from flags, host file, allocation and machine file; the launched program determines
/// them itself.
pub(super) fn predicted_nodes(
    arguments: &RunArguments,
    allocation: Option<&Allocation>,
    machine: Option<&MachineFile>,
) -> Result<Nodes> {
    let ranks = arguments.ranks as usize;
    let launched = arguments.backend != Backend::Simulated;
    if let Some(file) = &arguments.listed_hosts {
        match file.hosts_of_ranks(arguments.ranks) {
            Ok(host_of_rank) => return Ok(Nodes::of_hosts(&host_of_rank)),
            // A form that only the launcher understands does not prevent the launch.
            Err(cause) if arguments.dry_run => return Err(cause),
            Err(_) => {}
        }
    }
    if let Some(hosts) = arguments.hosts.as_deref().filter(|_| launched) {
        let slots = hosts.split(',').flat_map(|host| {
            let (name, count) = host.split_once(':').unwrap_or((host, "1"));
            std::iter::repeat_n(name, count.parse().unwrap_or(1))
        });
        let host_of_rank: Vec<&str> = slots.take(ranks).collect();
        if host_of_rank.len() == ranks {
            return Ok(Nodes::of_hosts(&host_of_rank));
        }
    }
    let host_of_rank = allocation.map_or_else(Vec::new, |allocation| allocation.host_of_rank(arguments.ranks));
    if host_of_rank.len() == ranks {
        return Ok(Nodes::of_hosts(&host_of_rank));
    }
    let filled = |machine: &MachineFile| Nodes::filled(arguments.ranks, machine.ranks_per_host());
    Ok(machine.map_or_else(|| Nodes::single(arguments.ranks), filled))
}

// `commgauge run --wait-for-hosts`: the hosts to wait for, and the messages.

/// Waits until the hosts of the launch are ready, if requested.
pub(super) fn wait(arguments: &RunArguments) -> Result<()> {
    let Some(timeout) = arguments.wait_for_hosts else { return Ok(()) };
    let Some(hosts) = hosts(arguments)? else {
        return Err(Error::usage("--wait-for-hosts needs --hosts or --hostfile: whom to wait for"));
    };
    let shell = shell(arguments)?;
    let count = counted(hosts.len(), "host");
    eprintln!("commgauge: waits for {count}, {timeout} at most");
    let waited = launch::wait_for_hosts(&hosts, shell.as_deref(), Duration::from_secs_f64(timeout.0))?;
    eprintln!("commgauge: {count} ready after {:.0} s", waited.as_secs_f64());
    Ok(())
}

/// How long the hosts of a launch that did not come together are looked for.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(4);

/// Hosts that are named.
const MAX_SHOWN: usize = 20;

/// Which hosts of a launch that did not come together are not reached from here; none where they were not named, or
/// all are.
pub(super) fn unreachable(arguments: &RunArguments) -> Option<String> {
    let (hosts, shell) = (hosts(arguments).ok()??, shell(arguments).ok()?);
    let silent = launch::silent_hosts(&hosts, SEARCH_TIMEOUT / 2);
    if silent.is_empty() {
        return launch::wait_for_hosts(&hosts, shell.as_deref(), SEARCH_TIMEOUT / 2)
            .err()
            .map(|error| error.to_string());
    }
    let shown = silent.iter().take(MAX_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    let (more, them) =
        (if silent.len() > MAX_SHOWN { ", ..." } else { "" }, if silent.len() == 1 { "it" } else { "them" });
    Some(format!("{shown}{more} cannot be reached from here: the host or the link to {them}"))
}

/// The hosts that the user named.
fn hosts(arguments: &RunArguments) -> Result<Option<Vec<String>>> {
    match (&arguments.hosts, &arguments.listed_hosts) {
        (Some(hosts), _) => {
            Ok(Some(launch::parse_hosts(hosts)?.into_iter().map(|(name, _)| name.to_owned()).collect()))
        }
        (None, Some(file)) => Ok(Some(ascending(file.hosts_of_ranks(arguments.ranks)?))),
        (None, None) => Ok(None),
    }
}

fn shell(arguments: &RunArguments) -> Result<Option<Vec<String>>> {
    let launcher = launch::find(&arguments.launcher, LauncherContext::here(), &launch::probe)?;
    Ok(launch::remote_shell(&launcher, &arguments.launcher_arguments, &|name| std::env::var(name).ok()))
}

fn read_hosts(file: &Path) -> Result<HostFile> {
    suite::check_file("--hostfile", file)?;
    let text = commgauge_base::host::read_to_string(file).map_err(|cause| Error::file("read", file, cause))?;
    Ok(HostFile { name: file.shown().into_owned(), text })
}

/// The hosts of a file in the form of another launcher. A form that is not known here is left to the launcher.
pub(super) fn hosts_for_launcher(arguments: &RunArguments, launcher: &Launcher) -> Option<String> {
    let file = arguments.listed_hosts.as_ref()?;
    let listed = file.list_for(launcher.family).ok()??;
    eprintln!("commgauge: {} does not read the form of {}; it gets its hosts as a list", launcher.program, file.name);
    Some(listed)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn jobs_of_pbs_and_lsf_name_their_host_file() {
        for (variable, found) in [("PBS_NODEFILE", true), ("LSB_DJOB_HOSTFILE", true), ("FLUX_JOB_ID", false)] {
            let environment = |name: &str| (name == variable).then(|| OsString::from("nodes"));
            let expected = found.then(|| (variable, PathBuf::from("nodes")));
            assert_eq!(file_of_job(&environment), expected, "{variable}");
        }
    }

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
        let file = |text: &str| HostFile { name: "hosts".to_owned(), text: text.to_owned() };
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
