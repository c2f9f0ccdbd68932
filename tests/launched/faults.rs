//! Machine faults during a launch: whatever dies, stops or fails, every rank ends, what was measured is stored, and
//! nothing is left behind. docs/reference/faults.md lists them all. Needs the launcher of the MPI that was built with, and a C
//! compiler.

use crate::common;

use commgauge::record::Record;
use common::{
    COMMGAUGE, FAMILY, Ran, SWEEP, Started, concurrent, count_so_far, ending, launcher, lines, pids, record_in, signal,
    start, still_running, wait_until, words,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A sweep that would run for minutes.
const LONG: &str = "name = 'long'\n[measure]\nprecision = 1e-6\nminimum_samples = 10\nmaximum_samples = 1_000_000\n\
    case_budget = '100ms'\nreplicates = 40\n[[sweep]]\ncollectives = ['all_reduce', 'broadcast']\nbytes = ['64B', '1KiB']\n";

/// With buffers that are created again for each case.
const LARGE: &str = "name = 'large'\n[measure]\nprecision = 1e-6\nminimum_samples = 10\nmaximum_samples = 1_000_000\n\
    case_budget = '100ms'\nreplicates = 40\n[[sweep]]\ncollectives = ['all_reduce', 'all_gather']\nbytes = ['4MiB', '8MiB']\n";

/// A sweep that takes a moment.
const SHORT: &str = "all_reduce -b 8 -e 64 -f 2 -n 3 -w 0 --replicates 2 --warm-buffers --quiet";

struct Running {
    child: Started,
    record: PathBuf,
    ranks: Vec<u32>,
    shared: BTreeSet<String>,
    /// Locks out tests that must be alone until the end.
    _concurrent: common::locks::Launches,
    _folder: tempfile::TempDir,
}

/// `commgauge run` of the long sweep, of which some cases are measured.
fn running() -> Running {
    running_suite(LONG)
}

fn running_suite(text: &str) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let (suite, record) = (folder.path().join("long.toml"), record_in(&folder));
    std::fs::write(&suite, text).unwrap();
    let concurrent = concurrent();
    let mut command = Command::new(COMMGAUGE);
    command.env("NO_COLOR", "1").env("OMPI_MCA_mpi_yield_when_idle", "1").stdin(Stdio::null());
    let unbound = if FAMILY == "open-mpi" { "--bind-to" } else { "-bind-to" };
    command.arg("run").arg(&suite).args(["-n", "4", "--launcher-arg", unbound, "--launcher-arg", "none", "--record"]);
    let mut child = start(command.arg(&record));
    child.wait_until(60, "two cases are measured", || count_so_far(&record, "case") >= 2);
    let ranks = pids(&record);
    let shared = common::shared_memory_of(&ranks);
    Running { child, record, ranks, shared, _concurrent: concurrent, _folder: folder }
}

impl Running {
    /// The process that launched the ranks, a child of `commgauge run`.
    fn launcher(&self) -> u32 {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let text = std::fs::read_to_string(children).unwrap();
        text.split_whitespace().next().and_then(|pid| pid.parse().ok()).expect("commgauge run has a child")
    }

    /// Waits for the end, and sees to it that no rank and no shared memory is left and that the record reads and does not claim to be
    /// complete.
    #[track_caller]
    fn ends_with(self, code: i32) -> (Ran, Vec<u32>) {
        let ran = ending(self.child, 20).ended_with(code);
        wait_until(5, "no rank runs", || still_running(&self.ranks).is_empty());
        let left: Vec<&String> = self.shared.iter().filter(|path| Path::new(path).exists()).collect();
        assert_eq!(left, Vec::<&String>::new());
        let record = Record::read(&self.record).unwrap();
        assert!(record.cases.len() >= 2 && !record.is_finished());
        assert!(ran.stdout.contains(" verified, 0 failed"), "what was measured is counted: {}", ran.stdout);
        assert!(ran.stderr.contains("resume with: commgauge run --resume"), "{}", ran.stderr);
        (ran, self.ranks)
    }
}

#[test]
fn a_rank_that_crashes_is_named_with_its_signal() {
    let run = running();
    signal(run.ranks[1], "SEGV");
    std::thread::sleep(std::time::Duration::from_millis(200));
    // The first may only have taken away Rust's own handler, which looks for overflows of the stack; a true fault comes again by
    // itself.
    if !still_running(&run.ranks[1..2]).is_empty() {
        signal(run.ranks[1], "SEGV");
    }
    let (ran, ranks) = run.ends_with(6);
    // MPICH's launcher now and then names a rank that it ended itself. Then none is blamed for the signal but the right one.
    if FAMILY == "open-mpi" {
        ran.printed_error(&format!("rank 1 (process {} on ", ranks[1])).printed_error("was killed by SIGSEGV");
    } else {
        let blamed = |line: &&str| line.contains("(process ") && line.contains("was killed by SIGSEGV");
        let wrong =
            ran.stderr.lines().filter(blamed).find(|line| !line.contains(&format!("(process {} on ", ranks[1])));
        assert_eq!(wrong, None, "{}", ran.stderr);
        ran.printed_error("died");
    }
}

#[test]
fn without_rank_0_the_others_end_and_the_record_can_be_resumed() {
    let run = running();
    signal(run.ranks[0], "KILL");
    let record = run.record.clone();
    let ranks = run.ranks.clone();
    let ran = ending(run.child, 20).ended_with(6);
    ran.printed_error(&format!("rank 0 (process {} on ", ranks[0]))
        .printed_error("resume with: commgauge run --resume");
    wait_until(5, "no rank runs", || still_running(&ranks).is_empty());
    let mut again = Command::new(COMMGAUGE);
    again.env("NO_COLOR", "1").env("OMPI_MCA_mpi_yield_when_idle", "1");
    again.args(["run", "--time-limit", "1s", "--resume"]).arg(&record).stdin(Stdio::null());
    let before = Record::read(&record).unwrap().measured_lines();
    Ran::of(&mut again, 60).ended_with(75);
    assert!(Record::read(&record).unwrap().measured_lines() >= before);
}

#[test]
fn ranks_end_where_their_launcher_was_killed() {
    let run = running();
    signal(run.launcher(), "KILL");
    let (ran, _) = run.ends_with(6);
    // Whether a process is left to end the record depends on which one dies first.
    let output_text = ["and its ranks with it; ", "and the record has no end line; "]
        .map(|end| format!("the launcher was ended by SIGKILL, {end}"));
    let first = ran.stderr.lines().find(|line| line.starts_with("commgauge: ")).unwrap_or_default();
    assert!(output_text.iter().any(|words| first.contains(words)), "{}", ran.stderr);
}

#[test]
fn of_two_launches_that_begin_one_record_at_once_the_refused_one_leaves_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, record) = (folder.path().join("small.toml"), record_in(&folder));
    std::fs::write(
        &suite,
        "name = 'small'\n[measure]\nreplicates = 2\n[[sweep]]\ncollectives = ['all_reduce']\nbytes = '64B'\n",
    )
    .unwrap();
    let _concurrent = concurrent();
    let begin = || {
        let mut command = Command::new(COMMGAUGE);
        command.env("NO_COLOR", "1").env("OMPI_MCA_mpi_yield_when_idle", "1").stdin(Stdio::null());
        command.arg("run").arg(&suite).args(["-n", "2", "--record"]).arg(&record);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut ended = [begin(), begin()].map(|child| child.wait_with_output().unwrap());
    ended.sort_by_key(|output| output.status.code());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, said) = (text(&ended[1].stdout), text(&ended[1].stderr));
    assert_eq!(ended.each_ref().map(|output| output.status.code()), [Some(0), Some(2)], "{said}");
    // Neither the results nor the resume command of a run that is another's.
    assert!(!out.contains("verified") && !said.contains("resume with"), "{out}{said}");
    assert!(Record::read(&record).unwrap().is_finished());
}

#[test]
fn a_launch_that_may_open_too_few_files_ends_at_once_with_what_to_raise() {
    let folder = tempfile::tempdir().unwrap();
    let mut few = Command::new("sh");
    few.args(["-c", r#"ulimit -n 24; exec "$0" "$@""#, COMMGAUGE, "run", "-n", "2", "--record"])
        .arg(record_in(&folder));
    Ran::of(&mut few, 20).ended_with(6).printed_error("24 open files are allowed").printed_error("raise `ulimit -n`");
}

/// Files of ranks and launcher that only they, or the watchdog after them, remove.
fn files_of(ranks: &[u32]) -> BTreeSet<String> {
    let environment = |pid: &u32| std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let folder = |all: Vec<u8>| {
        let of = |word: &[u8]| Some(String::from_utf8_lossy(word.strip_prefix(b"PMIX_SERVER_TMPDIR=")?).into_owned());
        all.split(|byte| *byte == 0).find_map(of)
    };
    let mut files = common::shared_memory_of(ranks);
    files.extend(ranks.iter().map(environment).filter_map(folder));
    files.retain(|path| Path::new(path).exists());
    files
}

#[test]
fn nothing_is_left_where_run_launcher_and_ranks_are_killed_at_once() {
    let run = running();
    let files = files_of(&run.ranks);
    assert!(!files.is_empty() || FAMILY != "open-mpi", "they have some while they run");
    let all: Vec<u32> = [run.child.id(), run.launcher()].into_iter().chain(run.ranks.iter().copied()).collect();
    all.iter().for_each(|pid| signal(*pid, "KILL"));
    drop(ending(run.child, 20));
    wait_until(20, "no rank runs", || still_running(&run.ranks).is_empty());
    wait_until(20, "their files are removed", || !files.iter().any(|path| Path::new(path).exists()));
    // By the watchdog, which outlives them.
    wait_until(20, "the record has its end", || count_so_far(&run.record, "end") > 0);
    let end = common::lines(&run.record).pop().expect("lines");
    assert_eq!((&end["line"], &end["status"]), (&"end".into(), &"failed".into()), "{end}");
}

/// A control group with a memory limit of its present use; none if this user cannot create one. Removed on drop.
struct NoMemory(PathBuf);

impl NoMemory {
    fn new() -> Option<NoMemory> {
        let name = format!("commgauge-test-{}", std::process::id());
        let groups = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
            ("/sys/fs/cgroup/unified", "memory.max"),
        ];
        let found = groups.into_iter().find_map(|(folder, limit)| {
            let group = Path::new(folder).join(&name);
            std::fs::create_dir(&group).ok()?;
            let group = NoMemory(group);
            std::fs::write(group.0.join(limit), "0").ok().map(|()| group)
        });
        if found.is_none() {
            common::skipped(
                "a rank without memory",
                "no memory limit can be set here (needs root and a writable cgroup)",
            );
        }
        found
    }
}

impl Drop for NoMemory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_rank_that_the_system_kills_out_of_memory_is_named_with_that_reason() {
    let Some(group) = NoMemory::new() else { return };
    let run = running_suite(LARGE);
    std::fs::write(group.0.join("cgroup.procs"), run.ranks[1].to_string()).unwrap();
    let (ran, ranks) = run.ends_with(6);
    let ran = ran.printed_error(&format!("rank 1 (process {} on ", ranks[1]));
    if FAMILY == "open-mpi" {
        ran.printed_error("ran out of memory meanwhile: the kernel killed 1 of its processes");
    }
}

#[test]
fn a_cancelled_run_with_a_stopped_rank_never_ends_as_if_nothing_had_happened() {
    let run = running();
    signal(run.ranks[2], "STOP");
    signal(run.child.id(), "TERM");
    let (ran, _) = run.ends_with(143);
    ran.printed_error("stopped by SIGTERM");
}

/// A sweep on which a rank has a fault.
fn faulty(ranks: u32, (shim, record): (&Path, &Path), fault: (&str, &str), rank: u32, flags: &str) -> Command {
    let mut command = launcher(ranks);
    command.env("LD_PRELOAD", shim).env(fault.0, fault.1).env("FAULT_RANK", rank.to_string());
    command.arg(SWEEP).args(words(flags)).arg("--record").arg(record);
    command
}

#[test]
fn a_rank_that_leaves_early_or_a_disk_that_fails_or_a_clock_that_steps_is_met() {
    let Some(shim) = common::shim() else { return };
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);

    // A rank that leaves with 0 is no success.
    let record = place("left.jsonl");
    let long = "all_reduce -b 8 -e 64 -f 2 --precision 0.0001 --budget 200ms --replicates 40 --quiet";
    let ran = Ran::of(&mut faulty(3, (&shim, &record), ("FAULT_LEAVE_MILLISECONDS", "2500"), 1, long), 60);
    assert_ne!(ran.code, Some(0), "{}", ran.stderr);
    assert!(!Record::read(&record).is_ok_and(|record| record.is_finished()));

    // A file that cannot be synced to the disk is reported, with the exit code of the environment.
    for (errno, text) in [("28", "No space left on device"), ("5", "Input/output error")] {
        let record = place(&format!("sync-{errno}.jsonl"));
        let ran = Ran::of(&mut faulty(2, (&shim, &record), ("FAULT_SYNC_ERRNO", errno), 0, SHORT), 40).ended_with(6);
        ran.printed_error("cannot bring to the disk the record").printed_error(text);
        // How far the run had progressed at the sync depends on how busy the machine is.
        assert!(!lines(&record).is_empty());
    }

    // A wall clock that is an hour off on one host, and steps, is in no duration.
    for rank in [0, 1] {
        let record = place(&format!("clock-{rank}.jsonl"));
        let flags = format!("{SHORT} --cadence both");
        Ran::of(&mut faulty(2, (&shim, &record), ("FAULT_CLOCK_SECONDS", "3600"), rank, &flags), 40).ended_with(0);
        let read = Record::read(&record).unwrap();
        assert!(read.end.unwrap().elapsed_seconds.0 < 3000.0);
        let longest = read.cases.iter().flat_map(|case| &case.samples.slowest_nanoseconds).max().copied();
        assert!(longest.is_some_and(|longest| longest < 1_000_000_000_000), "{longest:?}");
        assert!(read.clocks.iter().all(|clock| clock.residual_nanoseconds < 1_000_000_000));
    }
    let _ = std::fs::remove_file(shim);
}
