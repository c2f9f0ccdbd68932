//! Memory of a rank outside its buffers: the largest resident memory of the ranks of a sweep with buffers of a few KiB, compared with ranks
//! that only start MPI. Ends with exit code 1 if it exceeds the limit.

use commgauge::error::{Error, Result};
use commgauge::launch::{LauncherContext, Request, build, find, probe};
use commgauge::mpi_call;
use commgauge::units::Bytes;
use std::io::Write;
use std::process::{Command, ExitCode, Stdio};

const RANKS: u32 = 2;
const LARGEST_MESSAGE: Bytes = Bytes(4096);
const MOST: Bytes = Bytes(64 << 20);
const ONLY_START_MPI: &str = "--only-start-mpi";
const WATCH: &str = "--watch";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let end = match words.first().map(String::as_str) {
        Some(ONLY_START_MPI) => mpi_call::initialize().map(|_| true),
        Some(WATCH) => watch(&words[1..]),
        _ => compare(),
    };
    match end {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "rank_memory: {error}");
            ExitCode::from(error.exit_code() as u8)
        }
    }
}

/// Launches both and compares.
fn compare() -> Result<bool> {
    let own = std::env::current_exe()
        .map_err(|cause| Error::environment(format!("the path of this program is unknown: {cause}")))?;
    let own = own.to_string_lossy().into_owned();
    let record = std::env::temp_dir().join(format!("commgauge-rank-memory-{}.jsonl", std::process::id()));
    let record_path = record.to_string_lossy().into_owned();
    let largest = LARGEST_MESSAGE.0.to_string();
    let sweep = [env!("CARGO_BIN_EXE_commgauge-sweep"), "all", "-b", "64", "-e", &largest, "-f", "4", "-n", "200"];
    let rest = ["-w", "10", "--warm-buffers", "--replicates", "1", "--quiet", "--record", &record_path];
    let bare = largest_resident(&own, &[&own, ONLY_START_MPI]);
    let ours = largest_resident(&own, &[&sweep[..], &rest].concat());
    // Also where the sweep failed half-way.
    let _ = std::fs::remove_file(&record);
    let (bare, ours) = (bare?, ours?);
    // Up to a send and a receive buffer, each of one message of each rank and a page for its alignment.
    let buffers = 2 * (LARGEST_MESSAGE.0 * u64::from(RANKS) + 4096);
    let outside = Bytes(ours.0.saturating_sub(buffers));
    let within = outside.0 < MOST.0;
    let verdict = if within { "PASS" } else { "FAIL" };
    let text = format!(
        "{verdict}: a rank takes {outside} outside its buffers, {} of it more than a rank that only starts MPI \
         ({bare}); under {MOST} is required\n",
        Bytes(outside.0.saturating_sub(bare.0))
    );
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|cause| Error::environment(format!("cannot write the result: {cause}")))?;
    Ok(within)
}

/// The largest resident memory of any rank that runs this command.
fn largest_resident(own: &str, command: &[&str]) -> Result<Bytes> {
    let launcher = find("auto", LauncherContext::here(), &probe)?;
    let words = std::iter::once(WATCH).chain(command.iter().copied()).map(str::to_owned).collect();
    let (cores, root) = (find::cores(), find::is_root());
    let program = own.to_owned();
    let request = Request { ranks: RANKS, cores, root, program, program_arguments: words, ..Request::default() };
    let launch = build(&launcher, &request)?;
    let output = launch
        .command()
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|cause| Error::environment(format!("cannot start {}: {cause}", launch.program)))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let ranks: Vec<u64> = text.lines().filter_map(|line| line.strip_prefix("resident ")?.parse().ok()).collect();
    match ranks.iter().max() {
        Some(most) if output.status.success() && ranks.len() == RANKS as usize => Ok(Bytes(*most)),
        _ => Err(Error::environment(format!("`{}` ended with {}: {text}", launch.for_shell(), output.status))),
    }
}

/// Runs a command as a child, in its place as a rank, and says how much memory it had at most.
fn watch(command: &[String]) -> Result<bool> {
    let (program, words) = command.split_first().ok_or_else(|| Error::usage("--watch wants a command"))?;
    let status = Command::new(program)
        .args(words)
        .status()
        .map_err(|cause| Error::environment(format!("cannot start {program}: {cause}")))?;
    // SAFETY: all-zero is a valid value of this struct of integers, and it is ours to be written.
    let (code, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage), usage)
    };
    if code != 0 {
        return Err(Error::environment("getrusage does not give the memory of the child"));
    }
    // Linux counts in KiB.
    let line = format!("resident {}\n", usage.ru_maxrss as u64 * 1024);
    std::io::stdout()
        .write_all(line.as_bytes())
        .map_err(|cause| Error::environment(format!("cannot write the memory: {cause}")))?;
    Ok(status.success())
}
