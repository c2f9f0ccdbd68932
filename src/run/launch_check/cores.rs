//! Checks whether the ranks of a host have their own cores: bound or unbound, overlapping, or more ranks than cores.

use commgauge_base::host::processors;
use commgauge_base::units::Bytes;
use commgauge_base::writing::{grouped, named};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
pub(super) struct RankCores<'a> {
    /// World rank.
    pub rank: u32,
    /// CPU affinity of the rank, as a list of ranges.
    pub list: &'a str,
    /// Cores that the rank can use at the same time: fewer than listed under a container's CPU quota.
    pub usable: u32,
    /// Cores that are online on the host.
    pub online: u32,
    /// Whether the rank has a GPU, and therefore library threads that need cores too.
    pub has_device: bool,
}

/// Binding of the ranks of a host to its cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    /// A label of two or three words for the table.
    pub label: String,
    /// Reason why the measurements are unreliable, as a sentence.
    pub warning: Option<String>,
    /// Reason why the measurements are noisier, as a sentence.
    pub note: Option<String>,
}

/// Classifies the binding of the ranks of one host.
pub(super) fn binding(host: &str, ranks: &[RankCores]) -> Binding {
    let fine = |label: String| Binding { label, warning: None, note: None };
    let all: Vec<u32> = ranks.iter().map(|one| one.rank).collect();
    let mut lists: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    ranks.iter().for_each(|one| lists.entry(one.list).or_default().push(one.rank));
    let masks: Vec<(&str, BTreeSet<usize>)> = lists.keys().map(|list| (*list, processors(list))).collect();
    if masks.iter().any(|(_, mask)| mask.is_empty()) {
        return fine("not known".to_owned());
    }
    let (list, union) = (masks[0].0, masks.iter().flat_map(|(_, mask)| mask.clone()).collect::<BTreeSet<usize>>());
    // Where all ranks share the same cores, they also share the CPU quota.
    let quota = if masks.len() == 1 { ranks.iter().map(|one| one.usable).min().unwrap_or(0) } else { 0 };
    let available = if quota == 0 { union.len() } else { union.len().min(quota as usize) };
    if ranks.len() > available {
        return Binding {
            label: format!("{} ranks on {available}", ranks.len()),
            warning: Some(too_many(host, ranks, list, available, &union)),
            note: None,
        };
    }
    let have_devices = ranks.iter().any(|rank| rank.has_device);
    if masks.len() == 1 && ranks.len() > 1 {
        // Intended: NCCL places its threads near the GPU itself.
        if have_devices {
            return fine("not bound".to_owned());
        }
        let note = format!(
            "ranks of host {host} are not bound to cores: all {} may run on cores {list}, so they migrate and collide; bind them \
             (mpirun --bind-to core, mpiexec -bind-to core, srun --cpu-bind=cores)",
            ranks.len()
        );
        return Binding { label: "not bound".to_owned(), warning: None, note: Some(note) };
    }
    if let Some(crowded) = masks.iter().find(|(list, mask)| lists[list].len() > mask.len()) {
        let warning = format!(
            "{} of host {host} are all bound to cores {}: they take turns, and times are unreliable",
            named(&lists[crowded.0]),
            crowded.0
        );
        return Binding { label: "shared cores".to_owned(), warning: Some(warning), note: None };
    }
    for (index, (list, mask)) in masks.iter().enumerate() {
        if let Some((other, _)) = masks[index + 1..].iter().find(|(_, other)| !mask.is_disjoint(other)) {
            let warning = format!(
                "cores of ranks on host {host} overlap: {} may run on {list}, {} on {other}",
                named(&lists[list]),
                named(&lists[other])
            );
            return Binding { label: "overlapping".to_owned(), warning: Some(warning), note: None };
        }
    }
    if let Some((list, _)) = masks.iter().find(|(_, mask)| have_devices && mask.len() == 1) {
        let note = format!(
            "{} of host {host} may run only on core {list}, which it shares with the threads that NCCL uses for network transfers: do not \
             bind to single cores (mpirun --bind-to none, mpiexec -bind-to none, srun --cpus-per-task)",
            named(&lists[list])
        );
        return Binding { label: "own cores".to_owned(), warning: None, note: Some(note) };
    }
    let groups = lists.values().any(|ranks| ranks.len() > 1);
    fine(match (groups, all.len()) {
        (true, _) => format!("bound, {} groups", lists.len()),
        (false, 1) if union.len() as u32 == ranks[0].online => "alone".to_owned(),
        (false, _) => "own cores".to_owned(),
    })
}

fn too_many(host: &str, ranks: &[RankCores], list: &str, available: usize, union: &BTreeSet<usize>) -> String {
    let online = ranks.iter().map(|one| one.online).max().unwrap_or(0) as usize;
    let summary = format!(
        "host {host} has {} ranks on {available} processors: ranks take turns, and times are unreliable",
        ranks.len()
    );
    let plural = if union.len() == 1 { "core" } else { "cores" };
    match union.len() {
        count if count < online.min(ranks.len()) => {
            format!("{summary}; they are bound to {plural} {list}, of {online} on the host")
        }
        count if available < count => {
            format!("{summary}; they see {count}, but their container or job may use {available}")
        }
        _ => summary,
    }
}

/// RDMA transports lock the memory of their buffers; a host with adapters and less than this will fail or fall back.
const RDMA_NEEDS_BYTES: u64 = 1 << 30;

/// Open files of a rank without any connection.
const FILES_OF_A_RANK: u64 = 64;

/// The limits of one host: the lowest of its ranks.
#[derive(Clone, Debug)]
pub(super) struct HostLimits<'a> {
    /// Name of the host.
    pub host: &'a str,
    pub ranks: u32,
    /// Locked memory limit; absent if unlimited.
    pub memory_lock_bytes: Option<u64>,
    /// Open files limit; absent if unlimited.
    pub open_files: Option<u64>,
    /// Whether it has RDMA adapters.
    pub has_rdma: bool,
}

/// A limit formatted for display.
pub(super) fn shown_memory(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |bytes| Bytes(bytes).to_string())
}

/// A limit of open files formatted for display.
pub(super) fn shown_files(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |files| files.to_string())
}

/// Warnings about limits that are too low or differ between hosts, as sentences with the value of each host concerned.
pub(super) fn warnings(hosts: &[HostLimits], ranks: u32) -> Vec<String> {
    let mut warnings = Vec::new();
    // A missing limit compares as the maximum.
    let lock = |host: &HostLimits| host.memory_lock_bytes.unwrap_or(u64::MAX);
    let files = |host: &HostLimits| host.open_files.unwrap_or(u64::MAX);
    let highest = hosts.iter().map(lock).max().unwrap_or(0);
    let lower: Vec<&HostLimits> = hosts.iter().filter(|host| lock(host) < highest).collect();
    if !lower.is_empty() {
        let values = listed(&lower, |host| shown_memory(host.memory_lock_bytes));
        let others = shown_memory((highest != u64::MAX).then_some(highest));
        warnings.push(format!(
            "some hosts allow less locked memory than the others, which allow {others}: {values}; set `ulimit -l unlimited` \
             there (limits.conf, or LimitMEMLOCK of the daemon that starts the ranks)"
        ));
    }
    let low: Vec<&HostLimits> = hosts.iter().filter(|host| host.has_rdma && lock(host) < RDMA_NEEDS_BYTES).collect();
    if !low.is_empty() {
        let values = listed(&low, |host| shown_memory(host.memory_lock_bytes));
        warnings.push(format!(
            "hosts with RDMA adapters allow too little locked memory: {values}; set `ulimit -l unlimited` there"
        ));
    }
    let highest = hosts.iter().map(files).max().unwrap_or(0);
    let lower: Vec<&HostLimits> = hosts.iter().filter(|host| files(host) < highest).collect();
    if !lower.is_empty() {
        let values = listed(&lower, |host| shown_files(host.open_files));
        let others = shown_files((highest != u64::MAX).then_some(highest));
        warnings.push(format!("some hosts allow fewer open files than the others, which allow {others}: {values}"));
    }
    // Over TCP a rank has a connection to every rank of the other hosts.
    let needed = |host: &HostLimits| u64::from(ranks - host.ranks.min(ranks)) + FILES_OF_A_RANK;
    let low: Vec<&HostLimits> = hosts.iter().filter(|host| files(host) < needed(host)).collect();
    if let Some(first) = low.first() {
        let values = listed(&low, |host| shown_files(host.open_files));
        warnings.push(format!(
            "too few open files for a connection to every rank of the other hosts ({} needed): {values}; raise \
             `ulimit -n`",
            needed(first)
        ));
    }
    warnings
}

/// `64 KiB on host1, host2`, by value; for many hosts only the first few.
fn listed(hosts: &[&HostLimits], value: impl Fn(&HostLimits) -> String) -> String {
    let values = grouped(hosts.iter().map(|host| (value(host), host.host)));
    let text = |(value, names): &(String, Vec<&str>)| {
        let more = if names.len() > 4 { format!(" and {} more", names.len() - 4) } else { String::new() };
        format!("{value} on {}{more}", names[..names.len().min(4)].join(", "))
    };
    values.iter().take(4).map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_and_exclusive_cores_are_distinguished() {
        for (lists, usable, label, warning) in [
            (&["0", "1", "2", "3"][..], 1, "own cores", None),
            (&["0-3"], 4, "alone", None),
            (&["0-1"], 2, "own cores", None),
            (&["0-1", "0-1", "2-3", "2-3"], 2, "bound, 2 groups", None),
            (&["unknown", "0"], 1, "not known", None),
            (&["0-3", "0-3"], 4, "not bound", Some("all 2 may run on cores 0-3")),
            (
                &["0-3", "0-3", "0-3", "0-3", "0-3"],
                4,
                "5 ranks on 4",
                Some("has 5 ranks on 4 processors: ranks take turns"),
            ),
            (&["0", "0", "0"], 1, "3 ranks on 1", Some("bound to core 0, of 4 on the host")),
            (&["0-3", "0-3", "0-3"], 2, "3 ranks on 2", Some("they see 4, but their container or job may use 2")),
            (&["0-1", "1-2"], 2, "overlapping", Some("rank 0 may run on 0-1, rank 1 on 1-2")),
            (&["0", "0", "1-3"], 1, "shared cores", Some("ranks 0, 1 of host h are all bound to cores 0")),
        ] {
            let ranks: Vec<RankCores> = (0..)
                .zip(lists)
                .map(|(rank, list)| RankCores { rank, list, usable, online: 4, has_device: false })
                .collect();
            let binding = binding("h", &ranks);
            assert_eq!(binding.label, label, "{lists:?}");
            // Unbound ranks are noisier, but their measurements are valid.
            assert_eq!(binding.note.is_some(), label == "not bound", "{lists:?}");
            match (warning, &binding.warning.or(binding.note)) {
                (None, None) => {}
                (Some(expected), Some(text)) if text.contains(expected) => {}
                other => panic!("{lists:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn ranks_with_gpus_are_to_have_several_cores_and_need_not_be_bound() {
        for (lists, label, note) in [
            (["0-3", "0-3"], "not bound", None),
            (["0-1", "2-3"], "own cores", None),
            (["0", "1"], "own cores", Some("rank 0 of host h may run only on core 0")),
        ] {
            let ranks: Vec<RankCores> = (0..)
                .zip(&lists)
                .map(|(rank, list)| RankCores { rank, list, usable: 4, online: 4, has_device: true })
                .collect();
            let binding = binding("h", &ranks);
            assert_eq!((binding.label.as_str(), binding.warning.is_none()), (label, true), "{lists:?}");
            assert_eq!(binding.note.is_some(), note.is_some(), "{lists:?}: {:?}", binding.note);
            assert!(note.is_none_or(|words| binding.note.is_some_and(|text| text.contains(words))));
        }
    }

    #[test]
    fn a_malformed_list_of_cores_is_cheap() {
        for list in ["", "0-99999999999", "5-1", "-", "a", "0-70000"] {
            assert_eq!(processors(list).len(), 0, "{list}");
        }
        assert_eq!(processors("0-3,64-67").len(), 8);
    }

    fn host(host: &str, memory_lock_bytes: Option<u64>, open_files: u64, has_rdma: bool) -> HostLimits<'_> {
        HostLimits { host, ranks: 2, memory_lock_bytes, open_files: Some(open_files), has_rdma }
    }

    #[test]
    fn limits_that_are_lower_on_one_host_or_too_low_are_reported_with_values() {
        let kib_64 = Some(64 << 10);
        for (hosts, ranks, expected) in [
            (vec![host("a", None, 1024, true), host("b", None, 1024, true)], 4, &[][..]),
            (vec![host("a", kib_64, 1024, false), host("b", kib_64, 1024, false)], 4, &[]),
            (vec![host("a", None, 1024, false), host("b", kib_64, 1024, false)], 4, &["unlimited: 64 KiB on b;"]),
            (
                vec![host("a", kib_64, 1024, true), host("b", kib_64, 1024, true)],
                4,
                &["too little locked memory: 64 KiB on a, b"],
            ),
            (vec![host("a", None, 4096, false), host("b", None, 1024, false)], 4, &["which allow 4096: 1024 on b"]),
            (vec![host("a", None, 1024, false)], 16_384, &["(16446 needed): 1024 on a"]),
        ] {
            let warnings = warnings(&hosts, ranks);
            assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
            for (warning, words) in warnings.iter().zip(expected) {
                assert!(warning.contains(words), "{warning}");
            }
        }
    }
}
