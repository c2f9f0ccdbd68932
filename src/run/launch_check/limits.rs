//! Limits of the system that are lower on one host than on others, or too low for the ranks.

use commgauge_base::units::Bytes;

/// RDMA transports lock the memory of their buffers; a host with adapters and less than this will fail or fall back.
const RDMA_NEEDS_BYTES: u64 = 1 << 30;
/// Files that a rank has open without any connection.
const FILES_OF_A_RANK: u64 = 64;

/// The limits of one host: the lowest of its ranks.
#[derive(Clone, Debug)]
pub(super) struct HostLimits<'a> {
    /// Name of the host.
    pub host: &'a str,
    /// Its ranks.
    pub ranks: u32,
    /// Memory that may be locked; absent where there is no limit.
    pub memory_lock_bytes: Option<u64>,
    /// Files that may be open; absent where there is no limit.
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
    // A missing limit compares as the highest value.
    let lock = |host: &HostLimits| host.memory_lock_bytes.unwrap_or(u64::MAX);
    let files = |host: &HostLimits| host.open_files.unwrap_or(u64::MAX);
    let highest = hosts.iter().map(lock).max().unwrap_or(0);
    let lower: Vec<&HostLimits> = hosts.iter().filter(|host| lock(host) < highest).collect();
    if !lower.is_empty() {
        let values = listed(&lower, |host| shown_memory(host.memory_lock_bytes));
        let others = shown_memory((highest != u64::MAX).then_some(highest));
        warnings.push(format!(
            "less memory may be locked on some hosts than on others, where it is {others}: {values}; set `ulimit -l unlimited` \
             there (limits.conf, or LimitMEMLOCK of the daemon that starts the ranks)"
        ));
    }
    let low: Vec<&HostLimits> = hosts.iter().filter(|host| host.has_rdma && lock(host) < RDMA_NEEDS_BYTES).collect();
    if !low.is_empty() {
        let values = listed(&low, |host| shown_memory(host.memory_lock_bytes));
        warnings.push(format!(
            "hosts with RDMA adapters may lock too little memory for them: {values}; set `ulimit -l unlimited` there"
        ));
    }
    let highest = hosts.iter().map(files).max().unwrap_or(0);
    let lower: Vec<&HostLimits> = hosts.iter().filter(|host| files(host) < highest).collect();
    if !lower.is_empty() {
        let values = listed(&lower, |host| shown_files(host.open_files));
        let others = shown_files((highest != u64::MAX).then_some(highest));
        warnings.push(format!("fewer files may be open on some hosts than on others, where it is {others}: {values}"));
    }
    // Over TCP a rank has a connection to every rank of the other hosts.
    let needed = |host: &HostLimits| u64::from(ranks - host.ranks.min(ranks)) + FILES_OF_A_RANK;
    let low: Vec<&HostLimits> = hosts.iter().filter(|host| files(host) < needed(host)).collect();
    if let Some(first) = low.first() {
        let values = listed(&low, |host| shown_files(host.open_files));
        warnings.push(format!(
            "too few files may be open for a connection to every rank of the other hosts ({} are needed): {values}; raise \
             `ulimit -n`",
            needed(first)
        ));
    }
    warnings
}

/// `64 KiB on host1, host2`, by value; for many hosts only the first few.
fn listed(hosts: &[&HostLimits], value: impl Fn(&HostLimits) -> String) -> String {
    let mut values: Vec<(String, Vec<&str>)> = Vec::new();
    for host in hosts {
        let value = value(host);
        match values.iter_mut().find(|known| known.0 == value) {
            Some((_, names)) => names.push(host.host),
            None => values.push((value, vec![host.host])),
        }
    }
    let text = |(value, names): &(String, Vec<&str>)| {
        let more = if names.len() > 4 { format!(" and {} more", names.len() - 4) } else { String::new() };
        format!("{value} on {}{more}", names[..names.len().min(4)].join(", "))
    };
    values.iter().take(4).map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

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
                &["too little memory for them: 64 KiB on a, b"],
            ),
            (vec![host("a", None, 4096, false), host("b", None, 1024, false)], 4, &["where it is 4096: 1024 on b"]),
            (vec![host("a", None, 1024, false)], 16_384, &["(16446 are needed): 1024 on a"]),
        ] {
            let warnings = warnings(&hosts, ranks);
            assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
            for (warning, words) in warnings.iter().zip(expected) {
                assert!(warning.contains(words), "{warning}");
            }
        }
    }
}
