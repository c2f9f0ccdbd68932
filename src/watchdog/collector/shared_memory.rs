//! What the libraries of killed ranks leave in shared memory: seen while the ranks run, taken away when they are gone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where the system keeps shared memory.
const FOLDER: &str = "/dev/shm/";
/// How the segments of Open MPI 4 and 5, MPICH and NCCL are called. Nothing else is touched.
const KNOWN: [&str; 4] = ["vader_segment.", "sm_segment.", "mpich_", "nccl-"];

/// The segments of a host's ranks.
#[derive(Debug, Default)]
pub(super) struct Segments(BTreeSet<PathBuf>);

impl Segments {
    /// Remembers what a process has mapped.
    pub(super) fn note(&mut self, pid: u32) {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        self.0.extend(segments(&maps));
    }

    /// Removes those that nobody uses any more.
    pub(super) fn remove_left(&self) {
        let left: Vec<&PathBuf> = self.0.iter().filter(|path| path.exists()).collect();
        if left.is_empty() {
            return;
        }
        let used = used_by_anybody();
        for path in left.into_iter().filter(|path| !used.contains(*path)) {
            // Who may not remove it did not make it, and a library may have been quicker.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn used_by_anybody() -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let maps = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("maps")).ok());
    maps.flat_map(|maps| segments(&maps)).collect()
}

/// Of lines such as `7f.. rw-s 0 00:17 5 /dev/shm/vader_segment.vm.0.1.2`; one that is deleted says so behind its name.
fn segments(maps: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let at = line.find(FOLDER)?;
        let name = &line[at + FOLDER.len()..];
        let is_known = KNOWN.iter().any(|known| name.starts_with(known));
        (is_known && !name.contains(['/', ' '])).then(|| Path::new(FOLDER).join(name))
    };
    maps.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_segments_of_known_libraries_that_still_have_a_name_are_taken() {
        let maps = "7f01 rw-s 0 00:17 5 /dev/shm/vader_segment.vm.0.11de0001.2\n\
                    7f02 rw-s 0 00:17 6 /dev/shm/mpich_shm_abc (deleted)\n\
                    7f03 rw-s 0 00:17 7 /dev/shm/database\n\
                    7f04 rw-s 0 00:17 8 /dev/shm/nccl-x/../../../etc/passwd\n\
                    7f05 r-xp 0 08:01 9 /usr/lib/libmpi.so\n\
                    7f06 rw-s 0 00:17 10 /dev/shm/nccl-Ab12\n";
        let paths = ["/dev/shm/vader_segment.vm.0.11de0001.2", "/dev/shm/nccl-Ab12"].map(PathBuf::from);
        assert_eq!(segments(maps), paths);
    }
}
