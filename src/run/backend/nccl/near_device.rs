//! Keeps a rank on the processors that are nearest to its GPU, so that its memory and the threads that NCCL starts are there too. What the
//! launcher has bound more closely stays as it is.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::path::Path;

/// Where Linux describes the devices of a host.
pub(super) const SYSFS: &str = "/sys";

/// Binds this thread, and with it those that it starts, to the processors of the NUMA node of a device. Returns them as a list of
/// ranges; none where nothing was changed: the system does not name them, the rank is bound to some of them or to others already, or they
/// are fewer than the ranks of the host.
pub(super) fn bind_near(sysfs: &Path, pci: &str, ranks_on_host: u32) -> Option<String> {
    let list = std::fs::read_to_string(sysfs.join("bus/pci/devices").join(pci).join("local_cpulist")).ok()?;
    let mut allowed = sched_getaffinity(None).ok()?;
    let near = nearest(&processors(&allowed), &parsed(&list)?, ranks_on_host as usize)?;
    allowed.clear();
    near.iter().for_each(|processor| allowed.set(*processor));
    sched_setaffinity(None, &allowed).ok()?;
    Some(list.trim().to_owned())
}

/// The allowed processors that are near; none if that is no narrower, nothing at all, or too little for so many ranks.
fn nearest(allowed: &[usize], local: &[usize], ranks: usize) -> Option<Vec<usize>> {
    let near: Vec<usize> = allowed.iter().copied().filter(|processor| local.contains(processor)).collect();
    (near.len() < allowed.len() && near.len() >= ranks.max(1)).then_some(near)
}

fn processors(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
}

/// A list of ranges, such as `0-3,8`; none if it is none.
fn parsed(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        all.extend(first..=last.min(CpuSet::MAX_CPU - 1));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_keeps_to_the_processors_near_its_device_unless_it_was_bound_more_closely() {
        let all: Vec<usize> = (0..16).collect();
        let near: Vec<usize> = (8..16).collect();
        for (allowed, local, ranks, expected) in [
            (&all[..], &near[..], 2, Some(near.clone())),
            (&all[4..12], &near, 2, Some((8..12).collect())),
            // Bound to some of them, or to others: by the user.
            (&all[9..11], &near, 2, None),
            (&all[0..4], &near, 2, None),
            // The host has one node.
            (&all, &all, 2, None),
            // Fewer than ranks, which would take turns.
            (&all, &near[..1], 2, None),
        ] {
            assert_eq!(nearest(allowed, local, ranks), expected, "{allowed:?} {local:?} {ranks}");
        }
        assert_eq!(parsed("0-2,7\n"), Some(vec![0, 1, 2, 7]));
        assert_eq!((parsed(""), parsed("0-x")), (None, None));
    }

    #[test]
    fn the_processors_that_the_system_names_for_a_device_are_those_of_the_thread_afterwards() {
        let before = sched_getaffinity(None).unwrap();
        let allowed = processors(&before);
        let Some(last) = allowed.last().filter(|_| allowed.len() > 1) else { return };
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("bus/pci/devices/0000:20:00.0");
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("local_cpulist"), format!("{last}\n")).unwrap();
        // In a thread of its own, so that other tests keep their processors.
        let pinned = std::thread::scope(|scope| {
            let bound = scope.spawn(|| {
                assert_eq!(bind_near(folder.path(), "0000:21:00.0", 1), None, "another device");
                assert_eq!(bind_near(folder.path(), "0000:20:00.0", 1), Some(last.to_string()));
                processors(&sched_getaffinity(None).unwrap())
            });
            bound.join().unwrap()
        });
        assert_eq!(pinned, [*last]);
    }
}
