//! Facts of this host that affect the launch flags: available cores and user.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZero;

/// Cores that ranks started here may use.
///
/// Launchers count physical cores, the operating system counts hardware threads, and a container may have a CPU quota;
/// the smallest of the three is what ranks can use at the same time.
pub fn cores() -> u32 {
    let allowed = std::thread::available_parallelism().map_or(1, NonZero::get) as u32;
    physical_cores().map_or(allowed, |physical| physical.min(allowed)).max(1)
}

/// Cores of the Slurm allocation, over all its hosts.
pub fn slurm_cores() -> Option<u32> {
    count_slurm_cores(&std::env::var("SLURM_JOB_CPUS_PER_NODE").ok()?)
}

/// Whether the user is root; Open MPI then needs an extra flag.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Name of this host, as the host gives it.
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Processes that the OOM killer of this host has killed since boot, including those in containers with a limit; none
/// where the system does not count them (before Linux 4.13).
pub fn out_of_memory_kills() -> Option<u64> {
    count_out_of_memory_kills(&fs::read_to_string("/proc/vmstat").ok()?)
}

fn count_out_of_memory_kills(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

/// Distinct (package, core) pairs of the processors that are online.
fn physical_cores() -> Option<u32> {
    let mut pairs = BTreeSet::new();
    for entry in fs::read_dir("/sys/devices/system/cpu").ok()?.flatten() {
        let topology = entry.path().join("topology");
        let number = |name: &str| fs::read_to_string(topology.join(name)).ok()?.trim().parse::<i64>().ok();
        if let (Some(package), Some(core)) = (number("physical_package_id"), number("core_id")) {
            pairs.insert((package, core));
        }
    }
    (!pairs.is_empty()).then_some(pairs.len() as u32)
}

/// Reads Slurm's short form, such as `72(x2),36`.
fn count_slurm_cores(text: &str) -> Option<u32> {
    text.split(',').try_fold(0u32, |sum, part| {
        let (cores, hosts) = match part.split_once("(x") {
            Some((cores, hosts)) => (cores, hosts.strip_suffix(')')?.parse().ok()?),
            None => (part, 1u32),
        };
        sum.checked_add(cores.trim().parse::<u32>().ok()?.checked_mul(hosts)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurms_short_form_of_cores_is_read() {
        for (text, expected) in [
            ("", None),
            ("x", None),
            ("4(x", None),
            ("4294967295(x2)", None),
            ("8", Some(8)),
            ("72(x2),36", Some(180)),
            ("4,4", Some(8)),
        ] {
            assert_eq!(count_slurm_cores(text), expected, "{text}");
        }
    }

    #[test]
    fn kills_for_want_of_memory_are_read_from_the_systems_counters() {
        for (text, expected) in
            [("", None), ("oom_kill x", None), ("oom_killer 3\n", None), ("pgfault 7\noom_kill 3\nswap 1\n", Some(3))]
        {
            assert_eq!(count_out_of_memory_kills(text), expected, "{text}");
        }
    }

    #[test]
    fn there_is_at_least_one_core_and_never_more_than_the_system_allows() {
        let allowed = std::thread::available_parallelism().expect("known").get() as u32;
        assert!((1..=allowed).contains(&cores()));
    }
}
