//! Checks limits of the host: locked memory, open files, shared memory, cores.

use super::document::{Finding, Section, State};
use super::system::System;
use commgauge_base::units::Bytes;

/// The default size in containers, which is too small for several ranks.
const SMALL_SHARED_MEMORY: u64 = 64 << 20;
/// MPI and NCCL use a part of this for eight ranks.
const SUFFICIENT_SHARED_MEMORY: u64 = 1 << 30;
/// RDMA transports lock the memory of their buffers.
const SUFFICIENT_LOCKED_BYTES: u64 = 1 << 30;
/// Files that a rank with some hundred TCP connections needs.
const SUFFICIENT_FILES: u64 = 1024;

pub(super) fn check(system: &dyn System) -> Section {
    let (locked, files) = system.limits();
    let has_rdma = system.list("/sys/class/infiniband").is_some_and(|list| !list.is_empty());
    let mut findings = vec![memory_lock(locked, has_rdma), open_files(files), shared_memory(system)];
    let numa = system.list("/sys/devices/system/node").unwrap_or_default();
    let nodes =
        numa.iter().filter(|name| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok())).count();
    let nodes = if nodes > 1 { format!(" on {nodes} NUMA nodes") } else { String::new() };
    findings.push(Finding::new(
        "cores",
        State::Note,
        format!("{}{nodes}; more ranks than that take turns", system.cores()),
    ));
    Section::new("Host", findings)
}

fn memory_lock(limit: Option<u64>, has_rdma: bool) -> Finding {
    let item = "memory lock limit";
    match limit {
        None => Finding::new(item, State::Fine, "unlimited"),
        Some(bytes) if has_rdma && bytes < SUFFICIENT_LOCKED_BYTES => Finding::new(
            item,
            State::Warning,
            format!("{}, too little for RDMA adapters", Bytes(bytes)),
        )
        .with_fix(
            "ulimit -l unlimited (limits.conf, LimitMEMLOCK of slurmd or containerd, docker run --ulimit memlock=-1)",
        ),
        Some(bytes) => Finding::new(item, State::Note, format!("{}, enough without RDMA adapters", Bytes(bytes))),
    }
}

fn open_files(limit: Option<u64>) -> Finding {
    let item = "open files";
    match limit {
        None => Finding::new(item, State::Fine, "unlimited"),
        Some(files) if files < SUFFICIENT_FILES => {
            Finding::new(item, State::Warning, format!("{files}, fewer than a rank with many peers needs over TCP"))
                .with_fix("ulimit -n 65536")
        }
        Some(files) => Finding::new(item, State::Fine, files.to_string()),
    }
}

fn shared_memory(system: &dyn System) -> Finding {
    let item = "/dev/shm";
    let fix = "make it larger: docker run --shm-size=8g, a Kubernetes emptyDir with medium Memory, or mount -o remount,size=8g /dev/shm";
    let Some(volume) = system.volume("/dev/shm") else {
        return Finding::new(item, State::Warning, "not there: ranks of this host cannot share memory").with_fix(fix);
    };
    let found = format!("{}, {} free", Bytes(volume.bytes), Bytes(volume.free_bytes));
    match (volume.bytes, volume.free_bytes) {
        (all, _) if all <= SMALL_SHARED_MEMORY => {
            Finding::new(item, State::Warning, format!("{found}: as containers have it, too little for several ranks"))
                .with_fix(fix)
        }
        (_, free) if free < SMALL_SHARED_MEMORY => Finding::new(
            item,
            State::Warning,
            format!("{found}: is something of a killed run left in it?"),
        )
        .with_fix(
            "look for vader_segment.*, sm_segment.*, nccl-* and mpich_shm* that belong to no process and remove them",
        ),
        (all, _) if all < SUFFICIENT_SHARED_MEMORY => Finding::new(item, State::Note, found),
        _ => Finding::new(item, State::Fine, found),
    }
}
