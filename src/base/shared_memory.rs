//! Shared memory segments that the MPI of killed ranks leaves on this host: noted while they run, removed when no
//! process uses them.
//!
//! If ranks end normally, or their launcher survives, their MPI cleans up; a killed launcher cannot.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the system has shared memory.
const FOLDER: &str = "/dev/shm/";
/// Name prefixes of the segments of Open MPI 4 and 5, MPICH and NCCL. Others are not touched.
const KNOWN: [&str; 4] = ["vader_segment.", "sm_segment.", "mpich_", "nccl-"];

/// The segments that some processes had mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments(BTreeSet<PathBuf>);

impl Segments {
    /// The segments of processes of this host.
    pub fn of(pids: &[u32]) -> Segments {
        let mut noted = Segments::default();
        pids.iter().for_each(|pid| noted.note(*pid));
        noted
    }

    /// Notes what a process of this host has mapped, too.
    pub fn note(&mut self, pid: u32) {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        self.0.extend(segments(&maps));
    }

    /// Removes the segments that no process maps any more, and those of other ranks of the same launch, which may have made theirs
    /// since.
    pub fn remove_left(&self) {
        let there = fs::read_dir(FOLDER).into_iter().flatten().flatten().map(|entry| entry.path());
        let left: Vec<PathBuf> = there.filter(|path| self.is_of_a_noted_launch(path)).collect();
        if left.is_empty() {
            return;
        }
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let maps = entries.filter_map(|entry| fs::read_to_string(entry.path().join("maps")).ok());
        let used: BTreeSet<PathBuf> = maps.flat_map(|maps| segments(&maps)).collect();
        for path in left.into_iter().filter(|path| !used.contains(path)) {
            // An error is ignored: a segment of another user is not ours, and a library may have removed it first.
            let _ = fs::remove_file(path);
        }
    }

    fn is_of_a_noted_launch(&self, path: &Path) -> bool {
        let is_noted = |launch| self.0.iter().any(|noted| launch_of(noted) == Some(launch));
        self.0.contains(path) || launch_of(path).is_some_and(is_noted)
    }
}

/// The part of a name that all ranks of a launch share: Open MPI's segments are called `vader_segment.HOST.UID.JOB.RANK`
/// (`opal/mca/btl/vader/btl_vader_module.c`), and `sm_segment` in the same way.
fn launch_of(path: &Path) -> Option<&str> {
    let (launch, rank) = path.file_name()?.to_str()?.rsplit_once('.')?;
    let is_rank = !rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit());
    (is_rank && (launch.starts_with("vader_segment.") || launch.starts_with("sm_segment."))).then_some(launch)
}

/// From lines such as `7f.. rw-s 0 00:17 5 /dev/shm/vader_segment.vm.0.1.2`; a deleted one has a note behind its name.
fn segments(maps: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let name = &line[line.find(FOLDER)? + FOLDER.len()..];
        let is_known = KNOWN.iter().any(|known| name.starts_with(known));
        (is_known && !name.contains(['/', ' '])).then(|| Path::new(FOLDER).join(name))
    };
    maps.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_segments_of_known_libraries_that_still_have_a_name_are_noted() {
        let maps = "7f01 rw-s 0 00:17 5 /dev/shm/vader_segment.vm.0.1.2\n7f02 rw-s 0 00:17 6 /dev/shm/mpich_a (deleted)\n\
                    7f03 rw-s 0 00:17 7 /dev/shm/database\n7f04 rw-s 0 00:17 8 /dev/shm/nccl-x/../../etc/passwd\n\
                    7f05 r-xp 0 08:01 9 /usr/lib/libmpi.so\n7f06 rw-s 0 00:17 10 /dev/shm/nccl-Ab12\n";
        assert_eq!(segments(maps), ["/dev/shm/vader_segment.vm.0.1.2", "/dev/shm/nccl-Ab12"].map(PathBuf::from));
    }

    #[test]
    fn segments_of_other_ranks_of_the_same_launch_count() {
        let noted = ["/dev/shm/vader_segment.vm.0.1a2b0001.2", "/dev/shm/nccl-Ab.1"].map(PathBuf::from);
        let noted = Segments(noted.into());
        for (name, counts) in [
            ("vader_segment.vm.0.1a2b0001.2", true),
            ("vader_segment.vm.0.1a2b0001.511", true),
            ("vader_segment.vm.0.1a2b0002.2", false),
            ("vader_segment.vm.0.1a2b0001", false),
            ("vader_segment.vm.0.1a2b0001.", false),
            ("nccl-Ab.1", true),
            ("nccl-Ab.2", false),
        ] {
            assert_eq!(noted.is_of_a_noted_launch(&Path::new(FOLDER).join(name)), counts, "{name}");
        }
    }

    #[test]
    fn only_unused_segments_are_removed() {
        let name = format!("{FOLDER}mpich_commgauge_test_{}", std::process::id());
        if fs::write(&name, "x").is_err() {
            return;
        }
        assert_eq!(Segments::of(&[std::process::id()]), Segments::default(), "it is not mapped here");
        Segments::default().remove_left();
        assert!(Path::new(&name).exists());
        Segments([PathBuf::from(&name)].into()).remove_left();
        assert!(!Path::new(&name).exists());
    }
}
