//! The host's monotonic clock, the only clock used for durations.

use crate::output_file::write_own;
use rustix::process::Signal;
use rustix::time::{ClockId, clock_getres, clock_gettime};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Nanoseconds on this host's monotonic clock. All processes of one boot of one host read the same clock.
#[inline]
pub fn now_nanoseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Readings of the clock in memory reserved beforehand, so that taking one is a clock call and a store.
#[derive(Clone, Debug, Default)]
pub struct Readings(Vec<u64>);

impl Readings {
    pub fn reserve(&mut self, readings: usize) {
        self.0.clear();
        self.0.reserve(readings);
    }

    #[inline]
    pub fn take(&mut self) {
        self.0.push(now_nanoseconds());
    }

    /// Copies all readings, in nanoseconds.
    pub fn copy_to(&self, nanoseconds: &mut Vec<u64>) {
        nanoseconds.clone_from(&self.0);
    }
}

/// The clock's stated resolution in nanoseconds.
pub fn stated_resolution_nanoseconds() -> u64 {
    let resolution = clock_getres(ClockId::Monotonic);
    resolution.tv_sec as u64 * 1_000_000_000 + resolution.tv_nsec as u64
}

/// The smallest step between consecutive readings that differ, which limits what a timed loop can resolve.
pub fn seen_resolution_nanoseconds() -> u64 {
    let mut smallest = u64::MAX;
    for _ in 0..1000 {
        let first = now_nanoseconds();
        let mut second = now_nanoseconds();
        while second == first {
            second = now_nanoseconds();
        }
        smallest = smallest.min(second - first);
    }
    smallest.max(stated_resolution_nanoseconds())
}

// Facts about a process from `/proc/PID/stat`.

/// More processors than any system has.
const MAX_PROCESSORS: usize = 1 << 16;

/// The processors of a list of ranges, such as `0-3,8`; empty if it cannot be parsed.
pub fn processors(list: &str) -> BTreeSet<usize> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last && last < MAX_PROCESSORS).then_some(first..=last)
    };
    let ranges: Option<Vec<_>> = list.split(',').map(range).collect();
    ranges.into_iter().flatten().flatten().collect()
}

/// Number of processors that are online, whichever processes may use them; 0 if it is not known.
pub fn online_processors() -> u32 {
    processors(&fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default()).len() as u32
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

/// A process as described by the system (proc_pid_stat(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Its state: a letter.
    pub state: char,
    /// The process that started it, or adopted it.
    pub parent: u32,
    /// Kernel flags (`PF_*`).
    pub flags: u64,
    /// When it started, in clock ticks since boot: with its id this identifies a process.
    pub start: u64,
}

impl ProcessStat {
    /// A process of this host; `None` if it is gone.
    pub fn of(pid: u32) -> Option<ProcessStat> {
        parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether it is a zombie.
    pub fn is_zombie(self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Whether a signal or a debugger has stopped it.
    pub fn is_stopped(self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

/// Fields 3, 4, 9 and 22, after the name in parentheses.
fn parse(text: &str) -> Option<ProcessStat> {
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let flags = fields.nth(4)?.parse().ok()?;
    Some(ProcessStat { state, parent, flags, start: fields.nth(12)?.parse().ok()? })
}

// Temporary folders of launchers, which they may leave behind: Open MPI's session folders after a kill, MPICH 5's processor descriptions
// for each failed launch.

/// The folder of MPICH's processor descriptions, whatever `TMPDIR` says.
const DESCRIPTIONS: &str = "/tmp";

/// Removes the session folders of a dead launcher of this host: `ompi.HOST.UID/pid.PID` of Open MPI 4, `prte.HOST.UID/dvm.PID` or
/// `prte.HOST.PID.UID` of Open MPI 5.
pub fn remove_left_by(launcher: u32) {
    if is_gone(launcher) {
        // Folders of another user stay; a process without the right to remove them did not start the launcher.
        remove(launcher, &std::env::temp_dir());
    }
}

/// Whether a process no longer uses its files.
fn is_gone(pid: u32) -> bool {
    ProcessStat::of(pid).is_none_or(ProcessStat::is_zombie)
}

/// The folder that a launcher, or its helper on another host, keeps for the ranks of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFolder {
    path: PathBuf,
    launcher: u32,
}

impl SessionFolder {
    /// The folder in a rank's `PMIX_SERVER_TMPDIR`: besides those of [`remove_left_by`] `ompi.HOST.UID/jf.JOB`, which Open MPI 4 has on
    /// hosts with its helper. `None` if it has another name, or the rank is gone.
    pub fn of_rank(path: &Path, rank: u32) -> Option<SessionFolder> {
        let is_number = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let name = path.file_name()?.to_str()?;
        let root = path.parent()?.file_name()?.to_str()?;
        let is_known = ["pid.", "dvm.", "jf."].iter().any(|known| name.strip_prefix(known).is_some_and(is_number));
        let is_session = is_known && ["ompi.", "prte."].iter().any(|known| root.starts_with(known));
        let launcher = ProcessStat::of(rank)?.parent;
        is_session.then(|| SessionFolder { path: path.to_owned(), launcher })
    }

    /// The process that started the rank.
    pub fn launcher(&self) -> u32 {
        self.launcher
    }

    /// Removes it if that process is gone.
    pub fn remove_left(&self) {
        if is_gone(self.launcher) {
            remove_with_root(&self.path);
        }
    }
}

fn remove(launcher: u32, temporary: &Path) {
    for folder in folders_of(launcher, temporary) {
        match folder.parent() {
            Some(root) if root != temporary => remove_with_root(&folder),
            _ => drop(fs::remove_dir_all(&folder)),
        }
    }
}

/// Removes a folder, and its parent with the last launch, as a launcher does when it ends normally; a folder that is not empty stays.
fn remove_with_root(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
    if let Some(root) = folder.parent() {
        let _ = fs::remove_dir(root);
    }
}

fn folders_of(launcher: u32, temporary: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(temporary).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = |path: &PathBuf, prefix: &str| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)) && path.is_dir()
    };
    let own = |path: PathBuf| {
        let is_own_root = named(&path, "prte.")
            && path.file_name().is_some_and(|name| name.to_string_lossy().contains(&format!(".{launcher}.")));
        let inner = [format!("pid.{launcher}"), format!("dvm.{launcher}")].map(|name| path.join(name));
        is_own_root.then_some(path).into_iter().chain(inner)
    };
    let roots = entries.filter(|path| named(path, "ompi.") || named(path, "prte."));
    roots.flat_map(own).filter(|path| path.is_dir()).collect()
}

/// Removes the processor descriptions that MPICH's launcher has left on this host since then. A description does not show its launch, so
/// none is removed while any MPICH launch runs here.
pub fn remove_descriptions_since(begun: SystemTime) {
    let left = descriptions_since(begun, Path::new(DESCRIPTIONS));
    if !left.is_empty() && !has_proxy() {
        // Descriptions of another user stay.
        left.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

fn descriptions_since(begun: SystemTime, folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_new = |entry: &fs::DirEntry| {
        let written = entry.metadata().ok().filter(fs::Metadata::is_file).and_then(|file| file.modified().ok());
        written.is_some_and(|written| written >= begun)
            && entry.file_name().to_string_lossy().starts_with("hydra_hwloc_xmlfile_")
    };
    entries.filter(is_new).map(|entry| entry.path()).collect()
}

/// Whether MPICH's launcher has a helper on this host; an ended helper has no command line.
fn has_proxy() -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut commands = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    commands
        .any(|command| command.split(|byte| *byte == 0).next().is_some_and(|word| word.ends_with(b"hydra_pmi_proxy")))
}

// Shared memory segments that the MPI of killed ranks leaves on this host: noted while they run, removed when no
// process uses them.
//
// If ranks end normally, or their launcher survives, their MPI cleans up; a killed launcher cannot.

/// Folder of the system's shared memory.
const FOLDER: &str = "/dev/shm/";

/// Name prefixes of the segments of Open MPI 4 and 5, MPICH and NCCL. Other names are not touched.
const KNOWN: [&str; 4] = ["vader_segment.", "sm_segment.", "mpich_", "nccl-"];

/// The segments mapped by some processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments(BTreeSet<PathBuf>);

impl Segments {
    /// The segments of processes of this host.
    pub fn of(pids: &[u32]) -> Segments {
        let mut noted = Segments::default();
        pids.iter().for_each(|pid| noted.note(*pid));
        noted
    }

    /// Also notes the segments mapped by a process of this host.
    pub fn note(&mut self, pid: u32) {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        self.0.extend(segments(&maps));
    }

    /// Removes the segments that no process maps, and those of other ranks of the same launch, which may have created theirs since.
    pub fn remove_left(&self) {
        let there = fs::read_dir(FOLDER).into_iter().flatten().flatten().map(|entry| entry.path());
        let left: Vec<PathBuf> = there.filter(|path| self.belongs_to_noted_launch(path)).collect();
        if left.is_empty() {
            return;
        }
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let maps = entries.filter_map(|entry| fs::read_to_string(entry.path().join("maps")).ok());
        let used: BTreeSet<PathBuf> = maps.flat_map(|maps| segments(&maps)).collect();
        for path in left.into_iter().filter(|path| !used.contains(path)) {
            // An error is ignored: a segment may belong to another user, or a library may have removed it first.
            let _ = fs::remove_file(path);
        }
    }

    fn belongs_to_noted_launch(&self, path: &Path) -> bool {
        let is_noted = |launch| self.0.iter().any(|noted| launch_of(noted) == Some(launch));
        self.0.contains(path) || launch_of(path).is_some_and(is_noted)
    }
}

/// The part of a name that all ranks of a launch share: Open MPI's segments are called `vader_segment.HOST.UID.JOB.RANK`
/// (`opal/mca/btl/vader/btl_vader_module.c`), and likewise `sm_segment`.
fn launch_of(path: &Path) -> Option<&str> {
    let (launch, rank) = path.file_name()?.to_str()?.rsplit_once('.')?;
    let is_rank = !rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit());
    (is_rank && (launch.starts_with("vader_segment.") || launch.starts_with("sm_segment."))).then_some(launch)
}

/// From lines such as `7f.. rw-s 0 00:17 5 /dev/shm/vader_segment.vm.0.1.2`; a deleted one has a note after its name.
fn segments(maps: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let name = &line[line.find(FOLDER)? + FOLDER.len()..];
        let is_known = KNOWN.iter().any(|known| name.starts_with(known));
        (is_known && !name.contains(['/', ' '])).then(|| Path::new(FOLDER).join(name))
    };
    maps.lines().filter_map(path).collect()
}

// The signals that ask a run to stop with its results kept, and the note by which ranks learn the original signal: launchers forward a
// different one.

/// A signal to catch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopSignal {
    pub number: i32,
    /// The number under which it is reported: schedulers and launchers send SIGUSR1 instead of SIGTERM.
    pub counts_as: i32,
}

/// SIGINT, SIGTERM and SIGUSR1; also SIGHUP and SIGQUIT, unless this process was started to ignore them, as with `nohup`.
pub fn stop_signals() -> Vec<StopSignal> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    stop_signals_of(&status)
}

/// `SIGTERM`; `signal 64` for a signal without a name.
pub fn signal_name(number: i32) -> String {
    signal_hook::low_level::signal_name(number).map_or_else(|| format!("signal {number}"), str::to_owned)
}

/// Notes next to the record the signal that stops its run. The process that leaves a note removes it after the launch.
///
/// # Errors
/// If it cannot be written.
pub fn leave_note(record: &Path, number: i32) -> Result<()> {
    write_own(&note_path(record), number.to_string().as_bytes())
}

/// The signal that stops the run of a record, if a note gives it. An old note belongs to a killed launch.
pub fn noted(record: &Path) -> Option<i32> {
    let path = note_path(record);
    let age = std::fs::metadata(&path).and_then(|data| data.modified()).ok()?.elapsed();
    // Clocks of two hosts may differ, so that the note seems to come from the future.
    if age.is_ok_and(|age| age > NOTE_LIFETIME) {
        return None;
    }
    std::fs::read_to_string(path).ok()?.parse().ok()
}

/// Removes the note about a launch; a missing note is no error.
pub fn remove_note(record: &Path) {
    let _ = std::fs::remove_file(note_path(record));
}

/// Ranks are killed some seconds after they were asked to stop.
const NOTE_LIFETIME: Duration = Duration::from_secs(60);

fn note_path(record: &Path) -> PathBuf {
    record.with_extension("stopped.txt")
}

fn stop_signals_of(status: &str) -> Vec<StopSignal> {
    let always = [(Signal::INT, Signal::INT), (Signal::TERM, Signal::TERM), (Signal::USR1, Signal::TERM)];
    let unless_ignored = [Signal::HUP, Signal::QUIT].into_iter().filter(|signal| !is_ignored(*signal, status));
    let all = always.into_iter().chain(unless_ignored.map(|signal| (signal, signal)));
    all.map(|(signal, as_which)| StopSignal { number: signal.as_raw(), counts_as: as_which.as_raw() }).collect()
}

/// From the mask of ignored signals in `/proc/PID/status`, where the lowest bit is signal 1 (proc(5)).
fn is_ignored(signal: Signal, status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal.as_raw() - 1) & 1 == 1
}

// Opens a file that a user named, without waiting for pipes, sockets or devices or reading them endlessly.

/// Opens a file for reading.
///
/// # Errors
/// Errors of the system; and `InvalidInput` if the path is not a file, with its kind.
pub fn open(path: &Path) -> Result<File> {
    ensure_file(path)?;
    File::open(path)
}

/// Checks that an existing path is a file. Opening a pipe would wait.
///
/// # Errors
/// As [`open`].
pub fn ensure_file(path: &Path) -> Result<()> {
    let kind = std::fs::metadata(path)?.file_type();
    let found = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(Error::new(ErrorKind::InvalidInput, format!("it is {found}; accepted: a file")))
}

/// The bytes of a file, like [`std::fs::read`].
///
/// # Errors
/// As [`open`].
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file, like [`std::fs::read_to_string`].
///
/// # Errors
/// As [`open`], and if it is not UTF-8.
pub fn read_to_string(path: &Path) -> Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_stored_in_order_and_dropped_by_the_next_reservation() {
        let (mut readings, mut seen) = (Readings::default(), Vec::new());
        for count in [3, 1] {
            readings.reserve(count);
            (0..count).for_each(|_| readings.take());
            readings.copy_to(&mut seen);
            assert_eq!(seen.len(), count);
            assert!(seen.is_sorted() && seen[0] > 0, "{seen:?}");
        }
    }

    #[test]
    fn the_clock_moves_forward_and_states_a_resolution() {
        let first = now_nanoseconds();
        assert!(now_nanoseconds() >= first);
        assert!(seen_resolution_nanoseconds() > 0);
    }

    #[test]
    fn fields_are_counted_behind_whatever_the_program_is_called() {
        let rest = "T 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23";
        let expected = ProcessStat { state: 'T', parent: 4, flags: 9, start: 22 };
        assert_eq!(parse(&format!("1 (a) b) {rest}")), Some(expected));
        assert_eq!(parse("1 (a) T 4"), None);
    }

    #[test]
    fn this_process_runs_and_has_a_parent() {
        let own = ProcessStat::of(std::process::id()).expect("it exists");
        assert!(own.parent > 0 && !own.is_zombie() && !own.is_stopped());
        assert_eq!(ProcessStat::of(u32::MAX), None);
    }

    #[test]
    fn only_the_folders_of_the_launcher_are_found() {
        let folder = std::env::temp_dir().join(format!("commgauge-sessions-{}", std::process::id()));
        let names = [
            "ompi.vm.0/pid.12",
            "ompi.vm.0/pid.123",
            "prte.vm.0/dvm.12",
            "prte.vm.12.0",
            "prte.vm.7.0",
            "other/pid.12",
        ];
        names.iter().for_each(|name| fs::create_dir_all(folder.join(name)).unwrap());
        let mut found = folders_of(12, &folder);
        found.sort();
        let expected = ["ompi.vm.0/pid.12", "prte.vm.0/dvm.12", "prte.vm.12.0"].map(|name| folder.join(name));
        assert_eq!(found, expected);
        remove(12, &folder);
        let left = ["ompi.vm.0/pid.123", "prte.vm.7.0", "other/pid.12"].map(|name| folder.join(name).exists());
        let gone = ["ompi.vm.0/pid.12", "prte.vm.0", "prte.vm.12.0"].map(|name| folder.join(name).exists());
        assert_eq!((left, gone), ([true; 3], [false; 3]));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_what_is_called_like_a_session_folder_is_one() {
        let own = std::process::id();
        for (path, expected) in [
            ("/tmp/ompi.vm.0/pid.12035", true),
            ("/tmp/prte.vm.0/dvm.7", true),
            ("/tmp/ompi.host1.0/jf.30512", true),
            ("/tmp/ompi.host1.0/jf.", false),
            ("/tmp/other/pid.7", false),
            ("/tmp/slurmd/pmix.1.0", false),
            ("/", false),
        ] {
            assert_eq!(SessionFolder::of_rank(Path::new(path), own).is_some(), expected, "{path}");
        }
        assert_eq!(SessionFolder::of_rank(Path::new("/tmp/ompi.vm.0/pid.1"), u32::MAX), None, "a rank that is gone");
    }

    #[test]
    fn a_session_folder_goes_with_its_launcher_and_not_before() {
        let folder = std::env::temp_dir().join(format!("commgauge-session-{}", std::process::id()));
        let path = folder.join("ompi.vm.0/jf.12");
        fs::create_dir_all(path.join("0/1")).unwrap();
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let session = SessionFolder { path: path.clone(), launcher: child.id() };
        session.remove_left();
        assert!(path.is_dir());
        child.kill().unwrap();
        // No process has waited for its exit code yet.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while path.is_dir() {
            assert!(std::time::Instant::now() < deadline, "it is removed");
            session.remove_left();
        }
        assert!(!folder.join("ompi.vm.0").exists());
        child.wait().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn descriptions_of_the_time_of_a_launch_are_found_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("commgauge-descriptions-{}", std::process::id()));
        fs::create_dir_all(folder.join("hydra_hwloc_xmlfile_folder")).unwrap();
        for name in ["hydra_hwloc_xmlfile_a", "hydra_hwloc_xmlfile_old", "other"] {
            fs::write(folder.join(name), "x").unwrap();
        }
        let now = SystemTime::now();
        let hour = std::time::Duration::from_secs(3600);
        let old = fs::File::options().write(true).open(folder.join("hydra_hwloc_xmlfile_old")).unwrap();
        old.set_modified(now - 2 * hour).unwrap();
        assert_eq!(descriptions_since(now - hour, &folder), [folder.join("hydra_hwloc_xmlfile_a")]);
        fs::remove_dir_all(&folder).unwrap();
    }

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
            assert_eq!(noted.belongs_to_noted_launch(&Path::new(FOLDER).join(name)), counts, "{name}");
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

    #[test]
    fn a_hang_up_stops_a_run_unless_it_was_started_to_ignore_hang_ups() {
        let numbers = |status: &str| stop_signals_of(status).iter().map(|signal| signal.number).collect::<Vec<_>>();
        for (status, expected) in [
            ("", vec![2, 15, 10, 1, 3]),
            ("Name:\tx\nSigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n", vec![2, 15, 10, 1, 3]),
            ("SigIgn:\t0000000000000001\n", vec![2, 15, 10, 3]),
            ("SigIgn:\t0000000000001005\n", vec![2, 15, 10]),
        ] {
            assert_eq!(numbers(status), expected, "{status}");
        }
    }

    #[test]
    fn a_note_says_which_signal_stops_a_run_until_it_is_removed_or_old() {
        let folder = tempfile::tempdir().expect("a folder");
        let record = folder.path().join("run.jsonl");
        assert_eq!(noted(&record), None);
        leave_note(&record, 1).expect("written");
        assert_eq!(noted(&record), Some(1));
        let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
        std::fs::File::options()
            .write(true)
            .open(note_path(&record))
            .expect("it exists")
            .set_modified(hour_ago)
            .expect("set");
        assert_eq!(noted(&record), None);
        remove_note(&record);
        assert!(!note_path(&record).exists());
    }

    #[test]
    fn only_files_are_opened() {
        let error = read(Path::new("/dev/zero")).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("is a device"), "{error}");
        let socket = std::env::temp_dir().join(format!("commgauge-input-file-{}", std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(open(&socket).unwrap_err().to_string().contains("is a socket"));
        drop((listener, std::fs::remove_file(&socket)));
        assert_eq!(open(Path::new("/")).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(open(Path::new("/nowhere/at/all")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
