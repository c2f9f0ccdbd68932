//! Reads the Slurm allocation of this process from the environment: the job, its hosts, and the ranks on each.
//!
//! Neither Slurm's daemons nor srun are used here.

use super::hostlist::{MAX_HOSTS, expand, first_difference};
use commgauge_base::error::{Error, Result};

/// The resources of a Slurm job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The job's number.
    pub job: String,
    /// Hosts in Slurm's short form, such as `node[1-4]`.
    pub host_list: String,
    /// Number of ranks that was requested for the allocation, or that it has room for.
    pub ranks: u32,
    /// Every host and its ranks.
    pub hosts: Vec<(String, u32)>,
    /// GPUs of each host, where the job asked Slurm for GPUs.
    pub gpus_per_host: Option<u32>,
    /// Whether the job asked for a number of tasks.
    pub has_tasks: bool,
}

/// Slurm's own setting for the MPI plugin, set by a site or a user.
const MPI_TYPE: &str = "SLURM_MPI_TYPE";

impl Allocation {
    /// The allocation of this process; none outside of one.
    pub fn here() -> Result<Option<Self>> {
        Self::of(&|name| std::env::var(name).ok())
    }

    /// Reads the allocation from an environment.
    ///
    /// # Errors
    /// If this process is one of several tasks of a step, or the environment contradicts itself.
    pub fn of(environment: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let set = |name: &str| environment(name).filter(|text| !text.is_empty());
        let Some(job) = set("SLURM_JOB_ID") else { return Ok(None) };
        if let Some(tasks) = set("SLURM_STEP_NUM_TASKS").and_then(|text| text.parse::<u32>().ok()).filter(|n| *n > 1) {
            return Err(Error::usage(format!(
                "srun started `commgauge run` {tasks} times (SLURM_STEP_NUM_TASKS): each copy would start ranks of its own; \
                 call `commgauge run` once, without srun: it calls srun itself"
            )));
        }
        let needed = |name: &str| {
            set(name).ok_or_else(|| {
                Error::environment(format!(
                    "this is Slurm job {job} (SLURM_JOB_ID), but {name} is not set, so its hosts are not known; \
                     outside of the job, unset SLURM_JOB_ID"
                ))
            })
        };
        let host_list = needed("SLURM_JOB_NODELIST")?;
        let per_host = needed("SLURM_TASKS_PER_NODE")?;
        let names = expand(&host_list).ok_or_else(|| unreadable("SLURM_JOB_NODELIST", &host_list))?;
        let counts = counts(&per_host).ok_or_else(|| unreadable("SLURM_TASKS_PER_NODE", &per_host))?;
        if names.len() != counts.len() {
            return Err(Error::mismatch(format!(
                "job {job}: SLURM_JOB_NODELIST={host_list} names {} hosts, SLURM_TASKS_PER_NODE={per_host} has {}; \
                 was the environment of another job inherited?",
                names.len(),
                counts.len()
            )));
        }
        let room = counts.iter().map(|count| u64::from(*count)).sum::<u64>();
        let ranks = match set("SLURM_NTASKS") {
            Some(text) => text.parse::<u32>().ok().filter(|ranks| *ranks > 0),
            None => u32::try_from(room).ok(),
        };
        let ranks = ranks.ok_or_else(|| unreadable("SLURM_NTASKS", &set("SLURM_NTASKS").unwrap_or(per_host)))?;
        let hosts = names.into_iter().zip(counts).collect();
        let has_tasks = ["SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"].iter().any(|name| set(name).is_some());
        let gpus_per_host =
            ["SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"].iter().find_map(|name| gpus_of_host(&set(name)?));
        Ok(Some(Self { job, host_list, ranks, hosts, gpus_per_host, has_tasks }))
    }

    /// The same with a rank for each GPU, where the job asked for GPUs and for no number of tasks, as Slurm then counts a task for each
    /// processor, or one for each host; or where more ranks are requested than tasks, as in an interactive job of one.
    pub fn with_a_rank_for_each_gpu(mut self, requested: Option<u32>) -> Self {
        let is_beyond_tasks = requested.is_some_and(|requested| requested > self.ranks);
        if let Some(gpus) = self.gpus_per_host.filter(|_| !self.has_tasks || is_beyond_tasks) {
            self.hosts.iter_mut().for_each(|host| host.1 = gpus);
            self.ranks = gpus.saturating_mul(self.hosts.len() as u32);
        }
        self
    }

    /// Number of ranks of a run: `requested`, or all ranks of the allocation where the user gave no number.
    ///
    /// # Errors
    /// If more ranks are requested than the allocation has.
    pub fn ranks_for(&self, requested: Option<u32>) -> Result<u32> {
        match requested {
            Some(requested) if requested > self.ranks => Err(Error::usage(format!(
                "-n {requested}: Slurm job {} has {} ranks on {} hosts ({}); leave -n out to take them all, or request --ntasks={requested} from \
                 Slurm",
                self.job,
                self.ranks,
                self.hosts.len(),
                self.host_list
            ))),
            requested => Ok(requested.unwrap_or(self.ranks)),
        }
    }

    /// Rejects hosts, as in `a:2,b:2`, that are not part of this allocation, or for which it has fewer ranks.
    ///
    /// # Errors
    /// A usage error that names the first such host.
    pub fn check_hosts(&self, requested: &str) -> Result<()> {
        for part in requested.split(',') {
            let (name, count) = part.split_once(':').unwrap_or((part, "1"));
            let Some(host) = self.hosts.iter().find(|host| host.0 == name) else {
                return Err(Error::usage(format!(
                    "--hosts {requested}: {name} is not of Slurm job {}, which has {}{}",
                    self.job,
                    self.host_list,
                    first_difference(name, &self.host_list)
                )));
            };
            if count.parse().is_ok_and(|count: u32| count > host.1) {
                return Err(Error::usage(format!(
                    "--hosts {requested}: Slurm job {} has {} ranks on {name}, not {count}",
                    self.job, host.1
                )));
            }
        }
        Ok(())
    }

    /// Hosts of the first `ranks` ranks, where each host is filled before the next.
    pub fn host_of_rank(&self, ranks: u32) -> Vec<&str> {
        let all = self.hosts.iter().flat_map(|(name, count)| std::iter::repeat_n(name.as_str(), *count as usize));
        all.take(ranks as usize).collect()
    }

    /// A sentence that describes the part of the allocation in use.
    pub fn describe(&self, ranks: u32) -> String {
        let of = if ranks == self.ranks { String::new() } else { format!(" of its {}", self.ranks) };
        let hosts = if self.hosts.len() == 1 { "host" } else { "hosts" };
        format!("Slurm job {}: {ranks}{of} ranks on {} {hosts} ({})", self.job, self.hosts.len(), self.host_list)
    }
}

/// The value for srun's `--mpi` that fits this MPI; none where the user or site has chosen one.
///
/// `offered` is the output of `srun --mpi=list`. Open MPI needs PMIx and MPICH needs Slurm's PMI-2; without either,
/// every rank starts as a single process.
///
/// # Errors
/// If the site's Slurm offers neither.
pub fn srun_mpi(
    flavor: Option<super::Flavor>,
    offered: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<&'static str>> {
    let wanted = match flavor {
        _ if environment(MPI_TYPE).is_some_and(|text| !text.is_empty()) => return Ok(None),
        Some(super::Flavor::OpenMpi) => "pmix",
        Some(super::Flavor::Mpich) => "pmi2",
        None => return Ok(None),
    };
    let kinds: Vec<&str> =
        offered.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains(' ')).collect();
    if kinds.contains(&wanted) {
        return Ok(Some(wanted));
    }
    Err(Error::environment(format!(
        "srun here has no --mpi={wanted} (it has {}), without which ranks of {} would not find each other; have Slurm's \
         plugin installed, or run with --launcher mpirun",
        if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") },
        flavor.map_or("this MPI", super::Flavor::name),
    )))
}

fn unreadable(name: &str, text: &str) -> Error {
    Error::environment(format!("{name}={text} is not in the form that Slurm gives it"))
}

/// Reads Slurm's number of GPUs of a host, such as `8`, `h100:8` or `a100:4,v100:2`; none where it is none.
fn gpus_of_host(text: &str) -> Option<u32> {
    let count = |part: &str| part.rsplit(':').next().and_then(|number| number.trim().parse::<u32>().ok());
    let sum = text.split(',').try_fold(0u32, |sum, part| sum.checked_add(count(part)?))?;
    (sum > 0).then_some(sum)
}

/// Reads Slurm's counts, such as `2(x2),1`.
fn counts(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse::<usize>().ok()?),
            None => (part, 1),
        };
        let count = count.parse::<u32>().ok()?;
        if all.len().checked_add(times)? > MAX_HOSTS {
            return None;
        }
        all.extend(std::iter::repeat_n(count, times));
    }
    Some(all)
}

#[cfg(test)]
#[path = "allocation_tests.rs"]
mod tests;
