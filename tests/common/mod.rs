//! Starting the launched programs under the MPI that they were built against, in a directory of their own.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod doubles;
pub mod hosts;
pub mod locks;
pub mod programs;

pub use locks::{alone, concurrent};

use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// `open-mpi` or `mpich`, as the build found it.
pub const FAMILY: &str = commgauge::world::MPI_FLAVOR.expect("tests are built with MPI");
pub const SWEEP: &str = env!("CARGO_BIN_EXE_commgauge-sweep");
pub const SUITE: &str = env!("CARGO_BIN_EXE_commgauge-suite");
pub const STEP: &str = env!("CARGO_BIN_EXE_commgauge-step");
pub const PAIRS: &str = env!("CARGO_BIN_EXE_commgauge-pairs");
pub const COMMGAUGE: &str = env!("CARGO_BIN_EXE_commgauge");

/// The launch command for `ranks` ranks, to which program and arguments are added.
pub fn launcher(ranks: u32) -> Command {
    let mut command;
    if FAMILY == "open-mpi" {
        command = Command::new("mpirun");
        command.args(["--oversubscribe", "--bind-to", "none", "-np", &ranks.to_string()]);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("OMPI_MCA_mpi_yield_when_idle", "1");
    } else {
        command = Command::new("mpiexec.mpich");
        command.args(["-n", &ranks.to_string()]);
    }
    command.current_dir(env!("CARGO_MANIFEST_DIR")).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// A shell script that carries out another one on each rank. Not an application for each rank: mpirun of Open MPI 5.0.7 (Debian 13) crashes
/// if a `:` separates two.
pub fn by_rank(scripts: &[impl AsRef<str>]) -> String {
    let arms = scripts.iter().enumerate().map(|(rank, script)| format!("{rank}) {} ;;\n", script.as_ref()));
    format!("case ${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} in\n{}esac", arms.collect::<String>())
}

/// The first of three attempts that succeeds. For what work of others on the machine can blur, and never three times on end.
pub fn in_three_attempts(attempt: impl Fn(u32) -> Result<(), String>) {
    let failures: Vec<String> = (0..3).map_while(|number| attempt(number).err()).collect();
    assert!(failures.len() < 3, "{}", failures.join("\n\n"));
}

/// Asserts that a document is valid by the schema that `commgauge show schema NAME` prints.
#[track_caller]
pub fn fits_schema(name: &str, document: &serde_json::Value) {
    let printed =
        Command::new(COMMGAUGE).args(["show", "schema", name]).stdin(Stdio::null()).output().expect("commgauge starts");
    let schema = serde_json::from_slice(&printed.stdout).expect("a schema");
    let validator = jsonschema::validator_for(&schema).expect("a valid schema");
    let errors: Vec<String> = validator.iter_errors(document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

/// Reports that `name` was not tested, and why. `scripts/test` collects these lines for its summary.
pub fn skipped(name: &str, reason: &str) {
    let reason: Vec<&str> = reason.split_whitespace().collect();
    // Past the harness, which shows what a test prints through the macros only if it fails.
    let _ = std::io::stderr().write_all(format!("SKIPPED {name}: {}\n", reason.join(" ")).as_bytes());
}

/// The bits of a command line, cut at the spaces.
pub fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// What a program printed and how it ended.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub elapsed: Duration,
}

impl Ran {
    /// Runs a command that takes at most `seconds` on an idle machine to its end. Other tests may run at the same
    /// time.
    pub fn of(command: &mut Command, seconds: u64) -> Ran {
        let _concurrent = concurrent();
        ending(start(command), seconds)
    }

    /// The same while no other launch of the tests runs, as its times count.
    pub fn alone(command: &mut Command, seconds: u64) -> Ran {
        let _alone = alone();
        ending(start(command), seconds)
    }

    fn from(output: Output, elapsed: Duration) -> Ran {
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            elapsed,
        }
    }

    /// Fails the test unless the program ended with this code.
    #[track_caller]
    pub fn ended_with(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Fails the test unless the program wrote this to stderr.
    #[track_caller]
    pub fn printed_error(self, text: &str) -> Ran {
        assert!(self.stderr.contains(text), "`{text}` is not in stderr:\n{}", self.stderr);
        self
    }
}

/// The shim of `tests/faults/shim.c`, compiled for one test; none without a compiler.
pub fn shim() -> Option<PathBuf> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fault-shim-{}-{call}.so", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/shim.c");
    let cc =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-pthread", source, "-ldl", "-o"]).arg(&library).output();
    match cc {
        Ok(output) if output.status.success() => Some(library),
        other => {
            skipped("faults by a shim", &format!("the shim cannot be compiled: {other:?}"));
            None
        }
    }
}

/// A path for a record in a directory that lasts as long as the value.
pub fn record_in(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("run.jsonl")
}

/// The lines of a record, read as JSON.
pub fn lines(record: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(record).expect("the record is there");
    text.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
}

/// The lines of one kind.
pub fn of_kind<'a>(lines: &'a [serde_json::Value], kind: &str) -> Vec<&'a serde_json::Value> {
    lines.iter().filter(|line| line["line"] == kind).collect()
}

/// Factor on the time limits of an idle machine before a test gives up. Waiting costs a passing test nothing, and one
/// that hangs is still found; a machine with eight times as much work as processors is no reason to fail.
const PATIENCE: u32 = 10;

/// Waits for a condition that takes at most `seconds` on an idle machine, and fails the test if it does not become
/// true.
#[track_caller]
pub fn wait_until(seconds: u64, what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Duration::from_secs(seconds) * PATIENCE;
    let deadline = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How many whole lines of a kind a record has that may not be there yet, or be written at this moment.
pub fn count_so_far(record: &Path, kind: &str) -> usize {
    let text = std::fs::read_to_string(record).unwrap_or_default();
    let begin = format!("{{\"line\":\"{kind}\"");
    text.split_inclusive('\n').filter(|line| line.starts_with(&begin) && line.ends_with('\n')).count()
}

/// Sends a signal to a process.
pub fn signal(pid: u32, name: &str) {
    try_signal(pid, name).unwrap_or_else(|cause| panic!("process {pid} cannot be signalled: {cause}"));
}

/// Sends a signal to a process that may be gone. By system call: a small machine has no program `kill`.
fn try_signal(pid: u32, name: &str) -> rustix::io::Result<()> {
    let signal = match name {
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "QUIT" => Signal::QUIT,
        "TERM" => Signal::TERM,
        "KILL" => Signal::KILL,
        "STOP" => Signal::STOP,
        "CONT" => Signal::CONT,
        "SEGV" => Signal::SEGV,
        other => panic!("the tests send no signal {other}"),
    };
    let pid = Pid::from_raw(pid as i32).expect("process ids are positive");
    kill_process(pid, signal)
}

/// Files in shared memory that some processes have mapped.
pub fn shared_memory_of(pids: &[u32]) -> BTreeSet<String> {
    let maps = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let file = |line: &str| line.find("/dev/shm/").map(|at| line[at..].trim_end_matches(" (deleted)").to_owned());
    pids.iter().flat_map(|pid| maps(pid).lines().filter_map(file).collect::<Vec<_>>()).collect()
}

/// Starts a program whose end is waited for with [`ending`].
pub fn start(command: &mut Command) -> Started {
    Started(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")))
}

/// A program that runs during the test. If the test fails, the program is ended; otherwise its ranks would run forever and take the
/// processors from the following tests.
pub struct Started(Option<Child>);

impl Started {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.as_ref().expect("it is given up only at its end").id()
    }

    /// As [`wait_until`], and fails the test with what the program said if it ends meanwhile, or does not get there.
    #[track_caller]
    pub fn wait_until(&mut self, seconds: u64, what: &str, mut holds: impl FnMut() -> bool) {
        let limit = Duration::from_secs(seconds) * PATIENCE;
        let deadline = Instant::now() + limit;
        while !holds() {
            let child = self.0.as_mut().expect("it is given up only at its end");
            let has_ended = child.try_wait().expect("it can be waited for").is_some();
            // What was waited for may have come just before the end.
            if has_ended && holds() {
                return;
            }
            if has_ended || Instant::now() >= deadline {
                let child = self.0.take().expect("it is given up only here");
                let _ = try_signal(child.id(), "TERM");
                let output = child.wait_with_output().expect("it can be waited for");
                let stderr = String::from_utf8_lossy(&output.stderr);
                panic!("not within {limit:?}, and it ended with {}: {what}\n{stderr}", output.status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        // The way in which a launcher ends its ranks; killed, it could not.
        let _ = try_signal(child.id(), "TERM");
        let _ = child.wait();
    }
}

/// Waits for a started program that takes at most `seconds` on an idle machine, and fails the test if it does not end.
pub fn ending(mut started: Started, seconds: u64) -> Ran {
    let limit = Duration::from_secs(seconds) * PATIENCE;
    let begun = Instant::now();
    let id = started.id();
    let child = started.0.take().expect("it is given up only here");
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(limit) {
        Ok(output) => Ran::from(output.expect("it can be waited for"), begun.elapsed()),
        Err(_) => {
            // First the way in which a launcher ends its ranks, then the way in which it cannot.
            for name in ["TERM", "KILL"] {
                let _ = try_signal(id, name);
                let _ = receiver.recv_timeout(Duration::from_secs(8));
            }
            panic!("process {id} did not end within {limit:?}");
        }
    }
}

/// Processes of the ranks in a record that still run; a zombie does not.
pub fn still_running(pids: &[u32]) -> Vec<u32> {
    let runs = |pid: &&u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    pids.iter().filter(runs).copied().collect()
}

/// The first process that one of these has started.
pub fn child_of(parents: &[u32]) -> Option<u32> {
    let tasks = |pid: &u32| std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).ok();
    let all: String = parents.iter().flat_map(tasks).filter_map(children).collect();
    all.split_whitespace().next().and_then(|pid| pid.parse().ok())
}

/// The processes of the ranks, in rank order, from the rank map of a record that may still be growing.
pub fn pids(record: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(record).expect("the record is there");
    let header: serde_json::Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    header["ranks"]
        .as_array()
        .expect("a rank map")
        .iter()
        .map(|rank| rank["pid"].as_u64().expect("a pid") as u32)
        .collect()
}
