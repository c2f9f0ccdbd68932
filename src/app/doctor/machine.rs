//! The machine that this program runs on.

use super::system::{Query, Response, System, Volume};
use crate::launch::{Flavor, host};
use commgauge_model::record::provenance::{self, Variable};
use rustix::process::{Resource, getrlimit};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// A program or library without an answer for so long is taken as hung. Initialising the driver on eight GPUs may take
/// seconds.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longer output is cut.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// This machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// NCCL's file, where one was named.
    pub nccl_library: Option<PathBuf>,
    /// That of cuBLAS.
    pub cublas_library: Option<PathBuf>,
}

impl System for Machine {
    fn host(&self) -> String {
        host::name()
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn variables(&self) -> Vec<Variable> {
        provenance::environment().into_iter().map(|(name, value)| Variable { name, value }).collect()
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }

    fn list(&self, path: &str) -> Option<Vec<String>> {
        let entries = std::fs::read_dir(path).ok()?.flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        Some(names)
    }

    fn exists(&self, path: &str) -> bool {
        std::path::Path::new(path).exists()
    }

    fn query(&self, question: Query) -> Response {
        let mut command;
        match question {
            Query::Version(program) => {
                command = Command::new(program);
                command.arg("--version");
            }
            Query::Libraries(program) => {
                command = Command::new(program);
                command.env("LD_TRACE_LOADED_OBJECTS", "1");
            }
            Query::Library(probe) => {
                let Ok(own) = std::env::current_exe() else {
                    return Response::Died(
                        "commgauge's own file cannot be determined, so it cannot be started for the question"
                            .to_owned(),
                    );
                };
                command = Command::new(own);
                command.args(["doctor", "--probe", probe.name()]);
                let named = [("--nccl-library", &self.nccl_library), ("--cublas-library", &self.cublas_library)];
                for (flag, library) in named {
                    if let Some(library) = library {
                        command.arg(flag).arg(library);
                    }
                }
            }
        }
        run(command, TIMEOUT)
    }

    fn limits(&self) -> (Option<u64>, Option<u64>) {
        (getrlimit(Resource::Memlock).current, getrlimit(Resource::Nofile).current)
    }

    fn volume(&self, path: &str) -> Option<Volume> {
        let facts = rustix::fs::statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
        Some(Volume { bytes: bytes(facts.f_blocks), free_bytes: bytes(facts.f_bavail) })
    }

    fn cores(&self) -> u32 {
        host::cores()
    }

    fn is_root(&self) -> bool {
        host::is_root()
    }

    fn programs(&self) -> PathBuf {
        crate::launch::folder().unwrap_or_default()
    }

    fn flavor(&self) -> Option<Flavor> {
        crate::launch::flavor()
    }
}

/// Runs a command, with a time limit.
fn run(mut command: Command, timeout: Duration) -> Response {
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(cause) => return Response::Absent(cause.to_string()),
    };
    let (sender, receiver) = channel();
    let read = |stream: Option<Box<dyn Read + Send>>| {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let mut text = Vec::new();
            // A stream that cannot be read counts as empty.
            let _ = stream.map(|stream| stream.take(MAX_ANSWER_BYTES).read_to_end(&mut text));
            let _ = sender.send(());
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let stdout = read(child.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>));
    let stderr = read(child.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>));
    let deadline = Instant::now() + timeout;
    // Both streams end with the process, unless it leaves children behind, which are not waited for.
    let ended = (0..2).all(|_| receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok());
    if !ended {
        let _ = child.kill();
        let _ = child.wait();
        return Response::Died(format!("no answer within {} s", timeout.as_secs()));
    }
    let status = child.wait();
    let (stdout, stderr) = (stdout.join().unwrap_or_default(), stderr.join().unwrap_or_default());
    match status {
        Ok(status) if status.success() => Response::Text(stdout + &stderr),
        Ok(status) => match status.signal() {
            Some(signal) => {
                Response::Died(format!("killed by signal {signal}{}", if signal == 11 { " (SIGSEGV)" } else { "" }))
            }
            None => Response::Failed((stdout + &stderr).trim().to_owned()),
        },
        Err(cause) => Response::Died(cause.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, seconds: u64) -> Response {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, Duration::from_secs(seconds))
    }

    #[test]
    fn crashed_hung_or_missing_programs_give_an_answer_too() {
        assert_eq!(shell("kill -SEGV $$", 20), Response::Died("killed by signal 11 (SIGSEGV)".to_owned()));
        assert_eq!(shell("echo why >&2; exit 3", 20), Response::Failed("why".to_owned()));
        assert_eq!(shell("echo yes", 20), Response::Text("yes\n".to_owned()));
        assert_eq!(shell("exec sleep 100", 0), Response::Died("no answer within 0 s".to_owned()));
        assert!(matches!(run(Command::new("/nowhere/program"), TIMEOUT), Response::Absent(_)));
    }
}
