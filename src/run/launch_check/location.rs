//! Where a rank is, according to every source.

use commgauge_base::digest::sha256;
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Location of a rank according to every source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankLocation {
    /// Host name, as the host gives it.
    pub host: String,
    /// Boot id of the kernel, shortened to a hash; 0 where it cannot be read.
    pub boot: u64,
    /// Machine id of the system image, shortened to a hash; 0 where it cannot be read.
    pub machine: u64,
    /// Number of the network namespace, 0 where it cannot be read.
    pub network: u64,
    /// Number of the user namespace, 0 where it cannot be read.
    pub user: u64,
    /// Number of the file system at /dev/shm, 0 where there is none.
    pub shared_memory: u64,
    /// The lowest rank that shares memory with this one according to MPI; absent where MPI was not queried.
    pub leader: Option<u32>,
}

impl RankLocation {
    /// Location of this process.
    pub fn here(leader: Option<u32>) -> RankLocation {
        let hash = |path: &str| fs::read_to_string(path).ok().map_or(0, |text| short_hash(text.trim()));
        RankLocation {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot: hash("/proc/sys/kernel/random/boot_id"),
            machine: hash("/etc/machine-id"),
            network: fs::metadata("/proc/self/ns/net").map_or(0, |facts| facts.ino()),
            user: fs::metadata("/proc/self/ns/user").map_or(0, |facts| facts.ino()),
            shared_memory: fs::metadata("/dev/shm").map_or(0, |facts| facts.dev()),
            leader,
        }
    }

    /// Identifies the machine: by the kernel's boot id, or by the machine id of its image where there is no boot id.
    pub(super) fn kernel(&self) -> u64 {
        if self.boot == 0 { self.machine } else { self.boot }
    }
}

/// The first 64 bits of a SHA-256; 0 for an empty text.
pub(super) fn short_hash(text: &str) -> u64 {
    if text.is_empty() { 0 } else { u64::from_str_radix(&sha256(text)[..16], 16).unwrap_or(0) }
}

/// A host of the launch.
pub(super) struct Node<'a> {
    /// Where its first rank is.
    pub(super) facts: &'a RankLocation,
    pub(super) ranks: Vec<u32>,
}
