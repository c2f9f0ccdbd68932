//! Starting the launched programs under the MPI that they were built against, in a directory of their own.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// `open-mpi` or `mpich`, as the build found it.
pub const FAMILY: &str = env!("COMMGAUGE_MPI_FLAVOR");
pub const SWEEP: &str = env!("CARGO_BIN_EXE_commgauge-sweep");
pub const SUITE: &str = env!("CARGO_BIN_EXE_commgauge-suite");
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

/// What a program printed and how it ended.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub elapsed: Duration,
}

impl Ran {
    /// Runs a command to its end, or fails the test after `seconds`.
    pub fn of(command: &mut Command, seconds: u64) -> Ran {
        let begun = Instant::now();
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the launcher starts");
        let id = child.id();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        match receiver.recv_timeout(Duration::from_secs(seconds)) {
            Ok(output) => Ran::from(output.expect("the launcher can be waited for"), begun.elapsed()),
            Err(_) => {
                let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
                panic!("{command:?} did not end within {seconds} s");
            }
        }
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

    /// Fails the test unless the program said this on stderr.
    #[track_caller]
    pub fn said(self, text: &str) -> Ran {
        assert!(self.stderr.contains(text), "`{text}` is not in stderr:\n{}", self.stderr);
        self
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
