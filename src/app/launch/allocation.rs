//! Reads the Slurm allocation of this process from the environment: the job, its hosts, and the ranks on each.
//!
//! Neither Slurm's daemons nor srun are used here.

use commgauge_base::error::{Error, Result};
use commgauge_run::launcher::{MAX_HOSTS, slurm_numbers};

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
        let counts = slurm_numbers(&per_host).ok_or_else(|| unreadable("SLURM_TASKS_PER_NODE", &per_host))?;
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

/// Parses Slurm's number of GPUs of a host, such as `8`, `h100:8` or `a100:4,v100:2`; `None` if it is invalid.
fn gpus_of_host(text: &str) -> Option<u32> {
    let count = |part: &str| part.rsplit(':').next().and_then(|number| number.trim().parse::<u32>().ok());
    let sum = text.split(',').try_fold(0u32, |sum, part| sum.checked_add(count(part)?))?;
    (sum > 0).then_some(sum)
}

/// All names of a list, in its order; none if it cannot be parsed.
pub(super) fn expand(list: &str) -> Option<Vec<String>> {
    let (mut names, mut inside) = (Vec::new(), false);
    let is_between = |letter| {
        inside = letter == '[' || (inside && letter != ']');
        letter == ',' && !inside
    };
    for part in list.split(is_between) {
        let more = expand_one(part)?;
        if names.len() + more.len() > MAX_HOSTS {
            return None;
        }
        names.extend(more);
    }
    Some(names)
}

/// `; did you mean a2?`, if the list has a similar name.
pub(super) fn first_difference(name: &str, list: &str) -> String {
    let names = expand(list).unwrap_or_default();
    let likeness = |known: &&String| strsim::jaro_winkler(name, known);
    let nearest = names.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    nearest.filter(|known| likeness(known) > 0.8).map_or_else(String::new, |known| format!("; did you mean {known}?"))
}

/// Expands one name with any number of bracketed ranges; the last one varies fastest.
fn expand_one(part: &str) -> Option<Vec<String>> {
    if part.is_empty() {
        return None;
    }
    let (mut names, mut rest) = (vec![String::new()], part);
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, behind) = after.split_once(']')?;
        let numbers = numbers(inside)?;
        if before.contains(']') || names.len().checked_mul(numbers.len())? > MAX_HOSTS {
            return None;
        }
        names =
            names.iter().flat_map(|name| numbers.iter().map(move |number| format!("{name}{before}{number}"))).collect();
        rest = behind;
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    (!rest.contains(']')).then_some(names)
}

/// Expands `01-03,7` to 01, 02, 03, 7; the width of a range's first number applies to the whole range.
fn numbers(text: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let digits = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(first) || !digits(last) {
            return None;
        }
        let (from, to) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        if to < from || to - from >= MAX_HOSTS as u64 || all.len() > MAX_HOSTS {
            return None;
        }
        let width = first.len();
        all.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Some(all)
}

#[cfg(test)]
mod hostlist_tests {

    use super::*;

    #[test]
    fn lists_that_slurm_would_not_write_are_refused() {
        for text in [
            "",
            ",",
            "a,",
            "a[",
            "a]",
            "a[1",
            "a[1[2]]",
            "a[]",
            "a[x]",
            "a[3-1]",
            "a[1-]",
            "a[-1]",
            "a[0-999999999]",
            "a[1-1000]b[1-1000]",
        ] {
            assert_eq!(expand(text), None, "{text}");
        }
    }

    /// The forms of "scontrol show hostnames" in Slurm's manual, and its behaviour with leading zeros.
    #[test]
    fn lists_are_read_as_slurm_writes_them() {
        for (text, expected) in [
            ("a", "a"),
            ("host[0-1]", "host0 host1"),
            ("a,b", "a b"),
            ("n[08-11,3],login", "n08 n09 n10 n11 n3 login"),
            ("r[1-2]n[0-1]x", "r1n0x r1n1x r2n0x r2n1x"),
            ("a[1,3].b.c", "a1.b.c a3.b.c"),
        ] {
            assert_eq!(expand(text).expect("a list").join(" "), expected, "{text}");
        }
        assert_eq!(expand("n[1-131072]").expect("just so").len(), MAX_HOSTS);
    }
}

#[cfg(test)]
mod tests {
    // Job environments as Slurm 22.05 sets them, and invalid variants.
    use super::*;
    use crate::launch::Flavor;

    /// Environment of a batch script after `sbatch -N 2 --ntasks-per-node=2`.
    const BATCH: &[(&str, &str)] = &[
        ("SLURM_JOB_ID", "7"),
        ("SLURM_JOB_NODELIST", "host[0-1]"),
        ("SLURM_TASKS_PER_NODE", "2(x2)"),
        ("SLURM_NTASKS", "4"),
    ];

    fn read(pairs: &[(&str, &str)], changes: &[(&str, &str)]) -> Result<Option<Allocation>> {
        let look = |name: &str| {
            let all = changes.iter().chain(pairs);
            all.clone().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
        };
        Allocation::of(&look)
    }

    fn batch() -> Allocation {
        read(BATCH, &[]).expect("readable").expect("a job")
    }

    #[test]
    fn environments_that_contradict_themselves_are_refused() {
        for (changes, exit_code, words) in [
            (&[("SLURM_STEP_NUM_TASKS", "4")][..], 2, "srun started `commgauge run` 4 times"),
            (&[("SLURM_JOB_NODELIST", "")], 6, "SLURM_JOB_NODELIST is not set"),
            (&[("SLURM_TASKS_PER_NODE", "")], 6, "SLURM_TASKS_PER_NODE is not set"),
            (&[("SLURM_JOB_NODELIST", "host[0-")], 6, "SLURM_JOB_NODELIST=host[0-"),
            (&[("SLURM_TASKS_PER_NODE", "2(x")], 6, "SLURM_TASKS_PER_NODE=2(x"),
            (&[("SLURM_TASKS_PER_NODE", "1(x99999999999)")], 6, "SLURM_TASKS_PER_NODE"),
            (&[("SLURM_NTASKS", "0")], 6, "SLURM_NTASKS=0"),
            (&[("SLURM_NTASKS", "many")], 6, "SLURM_NTASKS=many"),
            (&[("SLURM_TASKS_PER_NODE", "2(x3)")], 7, "names 2 hosts, SLURM_TASKS_PER_NODE=2(x3) has 3"),
        ] {
            let error = read(BATCH, changes).expect_err(words);
            assert_eq!(error.exit_code(), exit_code, "{error}");
            assert!(error.to_string().contains(words), "{error} lacks {words}");
        }
    }

    #[test]
    fn ranks_and_hosts_come_from_the_job() {
        assert_eq!(read(&[], &[]).expect("readable"), None);
        let job = batch();
        assert_eq!((job.ranks, job.host_of_rank(3)), (4, vec!["host0", "host0", "host1"]));
        assert_eq!(job.describe(4), "Slurm job 7: 4 ranks on 2 hosts (host[0-1])");
        assert_eq!(job.describe(2), "Slurm job 7: 2 of its 4 ranks on 2 hosts (host[0-1])");
        // Without --ntasks, SLURM_NTASKS is not set, and the slots on the hosts count. An interactive step has one task.
        for changes in
            [[("SLURM_NTASKS", ""), ("SLURM_TASKS_PER_NODE", "3,1")], [("SLURM_STEP_NUM_TASKS", "1"), ("", "")]]
        {
            assert_eq!(read(BATCH, &changes).expect("readable").expect("a job").ranks, 4);
        }
    }

    #[test]
    fn requests_beyond_the_job_are_refused() {
        let job = batch();
        assert_eq!((job.ranks_for(None).ok(), job.ranks_for(Some(2)).ok()), (Some(4), Some(2)));
        let error = job.ranks_for(Some(8)).expect_err("too many").to_string();
        assert!(error.contains("-n 8: Slurm job 7 has 4 ranks on 2 hosts") && error.contains("--ntasks=8"), "{error}");
        assert!(job.check_hosts("host1:2,host0").is_ok());
        for (hosts, words) in [
            ("host0,host2", "host2 is not of Slurm job 7, which has host[0-1]; did you mean host"),
            ("host0:3", "has 2 ranks on host0, not 3"),
        ] {
            let error = job.check_hosts(hosts).expect_err(hosts);
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn srun_gets_the_plugin_of_the_mpi_unless_one_was_chosen() {
        let list =
            "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n";
        let unset = |_: &str| None;
        for (flavor, expected) in
            [(Some(Flavor::OpenMpi), Some("pmix")), (Some(Flavor::Mpich), Some("pmi2")), (None, None)]
        {
            assert_eq!(srun_mpi(flavor, list, &unset).expect("offered"), expected);
        }
        assert_eq!(srun_mpi(Some(Flavor::OpenMpi), "", &|_| Some("pmi2".into())).expect("chosen"), None);
        let error =
            srun_mpi(Some(Flavor::OpenMpi), "MPI plugin types are...\n\tnone\n\tpmi2\n", &unset).expect_err("none");
        assert_eq!(error.exit_code(), 6);
        assert!(error.to_string().contains("no --mpi=pmix (it has none, pmi2)"), "{error}");
    }

    #[test]
    fn a_job_that_asked_for_gpus_alone_has_a_rank_for_each() {
        // sbatch --nodes=2 --gpus-per-node=8, on whole hosts of 128 processors, and on shared ones.
        let bare = |gpus: (&'static str, &'static str), tasks: &'static str| {
            let changes = [("SLURM_NTASKS", ""), ("SLURM_TASKS_PER_NODE", tasks), gpus];
            read(BATCH, &changes).expect("readable").expect("a job")
        };
        for (gpus, tasks) in [
            (("SLURM_GPUS_PER_NODE", "8"), "128(x2)"),
            (("SLURM_GPUS_PER_NODE", "h100:8"), "1(x2)"),
            (("SLURM_GPUS_PER_NODE", "a100:6,v100:2"), "1(x2)"),
            (("SLURM_GPUS_ON_NODE", "8"), "1(x2)"),
        ] {
            let job = bare(gpus, tasks).with_a_rank_for_each_gpu(None);
            assert_eq!((job.ranks, job.host_of_rank(16)[7..9].to_vec()), (16, vec!["host0", "host1"]), "{gpus:?}");
        }
        // What was asked for counts.
        let asked = read(BATCH, &[("SLURM_GPUS_PER_NODE", "8")]).expect("readable").expect("a job");
        assert_eq!(asked.clone().with_a_rank_for_each_gpu(Some(4)).ranks, 4);
        assert_eq!(bare(("SLURM_GPUS_PER_NODE", "many"), "1(x2)").with_a_rank_for_each_gpu(None).ranks, 2);
        // As in `srun --pty --gpus=8 bash`, which has one task: more are there if they are requested.
        assert_eq!(asked.with_a_rank_for_each_gpu(Some(5)).ranks_for(Some(5)).ok(), Some(5));
        assert!(batch().with_a_rank_for_each_gpu(Some(5)).ranks_for(Some(5)).is_err(), "no GPUs were asked for");
    }
}
