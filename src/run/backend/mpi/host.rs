//! Caches, memory and MPI transports of the host, as the system and the MPI library report them.

use std::fs;

/// Used if no cache size can be read: larger than most last-level caches.
const ASSUMED_CACHE_BYTES: u64 = 64 << 20;

/// Bytes of the largest cache of the first processor, from sysfs.
pub fn last_level_cache_bytes() -> u64 {
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("size")).ok()?;
        text.trim().strip_suffix('K')?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    caches.filter_map(size).max().unwrap_or(ASSUMED_CACHE_BYTES)
}

/// Bytes that may be allocated without swapping: `MemAvailable`, or less where a control group allows less.
pub fn available_memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let host = kib.map_or(u64::MAX, |kib| kib << 10);
    let read = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let limit = read("/sys/fs/cgroup/memory.max").zip(read("/sys/fs/cgroup/memory.current"));
    host.min(limit.map_or(u64::MAX, |(most, used)| most.saturating_sub(used)))
}

/// Processors that are online, whichever processes may use them.
pub fn processors() -> u32 {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let span = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<u32>().ok()?.saturating_sub(first.parse::<u32>().ok()?) + 1)
    };
    online.trim().split(',').filter_map(span).sum::<u32>().max(1)
}

/// The variables that choose the transports of MPI.
pub const TRANSPORTS: [&str; 6] = [
    "OMPI_MCA_pml",
    "OMPI_MCA_btl",
    "OMPI_MCA_btl_vader_single_copy_mechanism",
    "UCX_TLS",
    "MPIR_CVAR_CH4_NETMOD",
    "FI_PROVIDER",
];

/// The transports that the environment names, as `variable=value` pairs; `None` where the library chooses itself.
pub fn transport_from_environment(names: &[&str]) -> Option<String> {
    let set: Vec<String> =
        names.iter().filter_map(|name| std::env::var(name).ok().map(|value| format!("{name}={value}"))).collect();
    (!set.is_empty()).then(|| set.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_a_cache_and_memory() {
        assert!(last_level_cache_bytes() >= 64 << 10);
        assert!(available_memory_bytes() > 1 << 20);
        assert!(processors() >= 1);
    }
}
