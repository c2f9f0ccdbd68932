//! One launch in which a rank misbehaves, and what is left when it is over.

use crate::common::{SWEEP, launcher, lines, of_kind, words};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// The deadline of a trial.
pub const TIMEOUT: Duration = Duration::from_secs(2);
/// Message of a rank when its fault begins.
const MARK: &str = "misbehaves now";

/// Result of a trial.
#[derive(Debug)]
pub struct Trial {
    pub code: Option<i32>,
    pub stderr: String,
    pub lines: Vec<serde_json::Value>,
    /// From the deadline (of a rank that dies: from its death) to the report, and to the end of the last process.
    pub report_seconds: f64,
    pub gone_seconds: f64,
    pub report: String,
    /// Shared memory and session folders of a launcher that were not there before.
    pub left: Vec<PathBuf>,
}

impl Trial {
    /// What the watchdog wrote into the record.
    pub fn hang(&self) -> &serde_json::Value {
        of_kind(&self.lines, "hang").first().copied().unwrap_or(&serde_json::Value::Null)
    }

    pub fn end(&self) -> &serde_json::Value {
        self.lines.last().expect("a record has lines")
    }
}

/// A sweep of four ranks of which one misbehaves in its second case.
pub fn sweep(record: &Path, fault: &str) -> Command {
    sweep_of("all_reduce", record, fault)
}

/// The same for another collective.
pub fn sweep_of(collective: &str, record: &Path, fault: &str) -> Command {
    let mut command = launcher(4);
    let flags = "-b 64 -e 64 -n 10 -w 2 --cadence streaming --warm-buffers --replicates 9 --timeout 2 --inject-fault";
    command.args([SWEEP, collective]).args(words(flags)).arg(fault).arg("--record").arg(record);
    command
}

/// Runs a launch to its end and waits for the last of its processes.
pub fn trial(mut command: Command, record: &Path, dies: bool) -> Trial {
    let before = shared_memory();
    let name = format!("COMMGAUGE_TRIAL={}", record.display());
    command.env("COMMGAUGE_TRIAL", record).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the launcher starts");
    let launcher = child.id();
    let stream = child.stderr.take().expect("it is piped");
    let reader = std::thread::spawn(move || {
        let (mut text, mut fault) = (String::new(), None);
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if line.contains(MARK) {
                fault.get_or_insert((Instant::now(), SystemTime::now()));
            }
            text.push_str(&line);
            text.push('\n');
        }
        (text, fault)
    });
    let limit = Instant::now() + Duration::from_secs(120);
    let code = loop {
        if let Some(status) = child.try_wait().expect("it is ours") {
            break status.code();
        }
        if Instant::now() > limit {
            let _ = child.kill();
            panic!("the launch did not end: {}", record.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    while !with_variable(&name).is_empty() {
        assert!(Instant::now() < limit, "processes are left: {:?}", with_variable(&name));
        std::thread::sleep(Duration::from_millis(5));
    }
    let gone = Instant::now();
    let (stderr, fault) = reader.join().expect("it reads to the end");
    let (fault, fault_at) = fault.unwrap_or_else(|| panic!("nothing misbehaved: {stderr}"));
    let allowed = if dies { Duration::ZERO } else { TIMEOUT };
    let path = record.with_extension("hang.txt");
    let written = std::fs::metadata(&path).and_then(|data| data.modified()).expect("the report is written");
    let since = |time: Result<Duration, Duration>| match time {
        Ok(after) => after.as_secs_f64(),
        Err(before) => -before.as_secs_f64(),
    };
    let report = written.duration_since(fault_at + allowed).map_err(|before| before.duration());
    Trial {
        code,
        stderr,
        lines: lines(record),
        report_seconds: since(report),
        gone_seconds: gone.duration_since(fault).as_secs_f64() - allowed.as_secs_f64(),
        report: std::fs::read_to_string(&path).expect("the report reads"),
        left: left_since(&before).into_iter().chain(session_folders_of(launcher)).collect(),
    }
}

/// What a launcher of Open MPI keeps in the folder for temporary files.
pub fn session_folders_of(launcher: u32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten().map(|entry| entry.path());
    let roots = entries.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ompi.")));
    roots.map(|root| root.join(format!("pid.{launcher}"))).filter(|path| path.exists()).collect()
}

/// Segments of MPI libraries and NCCL in shared memory; a browser or a database of another test may have some too.
fn shared_memory() -> BTreeSet<PathBuf> {
    let segments = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let is_of_mpi =
        |name: &str| ["vader_segment.", "sm_segment.", "mpich_", "nccl-"].iter().any(|kind| name.starts_with(kind));
    segments.filter(|entry| is_of_mpi(&entry.file_name().to_string_lossy())).map(|entry| entry.path()).collect()
}

/// New segments that no process uses: other launches on this machine start and end.
fn left_since(before: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let limit = Instant::now() + Duration::from_secs(3);
    loop {
        let used = maps_of_all();
        let is_left = |path: &&PathBuf| path.exists() && !used.contains(&*path.to_string_lossy());
        let left: Vec<PathBuf> = shared_memory().difference(before).filter(is_left).cloned().collect();
        if left.is_empty() || Instant::now() > limit {
            return left;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Everything that any process has mapped.
fn maps_of_all() -> String {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("maps")).ok()).collect()
}

/// Processes that have this in their environment; a zombie has none.
fn with_variable(wanted: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let carries = |path: &PathBuf| {
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    entries.map(|entry| entry.path()).filter(carries).map(|path| path.display().to_string()).collect()
}
