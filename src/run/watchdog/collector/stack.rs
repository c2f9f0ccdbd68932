//! The functions of a rank's measuring thread, from eu-stack or gdb, whichever is installed. Bounded in time and bytes, and optional: a
//! system without them, or one that forbids tracing, gives no stacks.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;

/// Maximum number of functions, innermost first.
const MAX_FUNCTIONS: usize = 24;

/// Maximum total length, so that they fit into one message.
pub(super) const MAX_BYTES: usize = 1000;

/// Maximum number of bytes read from the tool.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

/// Precedes the stack of each process in the output for several.
const MARK: &str = "commgauge: process ";

/// Marks functions outside the program's own.
const RUNTIME: &str = "__rust_begin_short_backtrace";

/// Output of a tool until it ended, or until it was killed at the deadline.
struct Output {
    tool: &'static str,
    text: String,
    is_whole: bool,
}

/// The functions of each process's first thread, innermost first: `poll < wait_for_message < MPI_Allreduce < main`, or why they are
/// missing. Returns soon after the deadline at the latest.
pub(super) fn functions_of(pids: &[u32], deadline: Instant) -> Vec<Result<String, String>> {
    let found = with_eu_stack(pids, deadline).or_else(|| with_gdb(pids, deadline));
    found.unwrap_or_else(|| vec![Err("neither eu-stack nor gdb is installed".to_owned()); pids.len()])
}

/// The lighter tool; `None` if it is not installed.
fn with_eu_stack(pids: &[u32], deadline: Instant) -> Option<Vec<Result<String, String>>> {
    let of = |pid: &u32| Some(read(&run("eu-stack", &["-1", "-p", &pid.to_string()].map(String::from), deadline)?));
    pids.iter().map(of).collect()
}

/// One run for all processes, since reading the symbols takes long.
fn with_gdb(pids: &[u32], deadline: Instant) -> Option<Vec<Result<String, String>>> {
    // Nothing is fetched over the network, and no file of another user is executed.
    let mut words = ["--nx", "--batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load off"]
        .map(String::from)
        .to_vec();
    let backtrace = format!("thread apply 1 -q backtrace {MAX_FUNCTIONS}");
    for pid in pids {
        let commands =
            [format!("attach {pid}"), format!("echo \\n{MARK}{pid}\\n"), backtrace.clone(), "detach".to_owned()];
        words.extend(commands.into_iter().flat_map(|command| ["-ex".to_owned(), command]));
    }
    let Output { tool, text, is_whole } = run("gdb", &words, deadline)?;
    let of = |pid: &u32| {
        let begin = format!("\n{MARK}{pid}\n");
        let part = text.split_once(&begin).map_or("", |(_, rest)| rest.split(MARK).next().unwrap_or(rest));
        read(&Output { tool, text: part.to_owned(), is_whole })
    };
    Some(pids.iter().map(of).collect())
}

fn read(output: &Output) -> Result<String, String> {
    match (functions(&output.text), output.is_whole) {
        (functions, _) if !functions.is_empty() => Ok(functions),
        (_, true) => Err(format!("{} could not read the process", output.tool)),
        (_, false) => Err(format!("{} did not respond in time", output.tool)),
    }
}

/// Runs a tool until it ends or the deadline has passed; `None` if it cannot be started.
fn run(tool: &'static str, words: &[String], deadline: Instant) -> Option<Output> {
    let mut command = Command::new(tool);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().ok()?;
    let mut stream = child.stdout.take()?;
    let (sender, printed) = channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        // The receiver is gone after the deadline.
        while let Ok(count @ 1..) = stream.read(&mut bytes)
            && sender.send(bytes[..count].to_vec()).is_ok()
        {}
    });
    let (mut bytes, mut is_whole) = (Vec::new(), false);
    while bytes.len() < MAX_OUTPUT_BYTES && !is_whole {
        match printed.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(more) => bytes.extend(more),
            Err(RecvTimeoutError::Disconnected) => is_whole = true,
            Err(RecvTimeoutError::Timeout) => break,
        }
    }
    // It may have ended already. When it ends, the system detaches it from the traced process.
    let _ = child.kill();
    let _ = child.wait();
    Some(Output { tool, text: String::from_utf8_lossy(&bytes).into_owned(), is_whole })
}

/// The functions in the output of either tool: lines such as `#1  0x00007f in poll () from /lib/libc.so.6` and
/// `#1  0x00007f3a PMPI_Allreduce`.
fn functions(output: &str) -> String {
    // A tool that attaches shows the innermost function before the list; the list begins with its last `#0`.
    let list = output.rfind("#0 ").map_or("", |at| &output[at..]);
    let mut shown = String::new();
    for name in list.lines().filter_map(function).take(MAX_FUNCTIONS) {
        if shown.len() + name.len() + 8 > MAX_BYTES {
            shown.push_str(" < ...");
            break;
        }
        if !shown.is_empty() {
            shown.push_str(" < ");
        }
        shown.push_str(&name);
        if name == "main" || name.starts_with(RUNTIME) {
            break;
        }
    }
    shown
}

fn function(line: &str) -> Option<String> {
    let rest = line.strip_prefix('#')?.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    let rest = match rest.strip_prefix("0x") {
        Some(address) => address.split_once(' ').map_or("??", |(_, rest)| rest.trim_start()),
        None => rest,
    };
    let rest = rest.strip_prefix("in ").unwrap_or(rest);
    let name = rest.split(" (").next().unwrap_or(rest).trim();
    let library = rest.rsplit_once(" from ").and_then(|(_, path)| path.trim().rsplit('/').next());
    Some(match (name, library) {
        ("" | "??", Some(library)) => format!("?? of {library}"),
        ("", None) => "??".to_owned(),
        (name, _) => without_hash(name).to_owned(),
    })
}

/// Names of Rust's older mangling end with `::h` and a hexadecimal hash.
fn without_hash(name: &str) -> &str {
    let is_hash = |hash: &str| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.rsplit_once("::h").filter(|(_, hash)| is_hash(hash)).map_or(name, |(rest, _)| rest)
}

// The stacks of ranks known to a collector. `stacks` requests them and processes the answers.

pub(super) struct Stacks {
    pub(super) found: BTreeMap<u32, String>,
    pub(super) sender: Sender<(u32, String)>,
    pub(super) waiting: Receiver<(u32, String)>,
}

impl Default for Stacks {
    fn default() -> Stacks {
        let (sender, waiting) = channel();
        Stacks { found: BTreeMap::new(), sender, waiting }
    }
}

impl Stacks {
    pub(super) fn keep(&mut self, rank: u32, text: String) {
        // A host reports only about its own ranks, so there are at most as many as ranks.
        self.found.insert(rank, text);
    }

    pub(super) fn has_all(&self, wanted: &[u32]) -> bool {
        wanted.iter().all(|rank| self.found.contains_key(rank))
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use std::time::Duration;

    #[test]
    fn the_functions_of_either_tool_are_read_innermost_first() {
        let gdb = "[Thread debugging using libthread_db enabled]\n0x00007f in ?? () from /lib/x.so\n[Switching to thread 1]\n\
            #0  0x00007f12 in clock_nanosleep () from /lib/x86_64-linux-gnu/libc.so.6\n\
            #1  commgauge_base::progress::fault::sleep_forever::h66d77e199b6599a2 () at src/base/progress/fault.rs:90\n\
            #2  0x000055 in <commgauge_run::measure::A as B>::call (self=0x1)\n\
            #3  0x00007f in ?? () from /usr/lib/libmpi.so.40\n#4  0x0000 in main ()\n";
        let eu_stack = "PID 7 - process\nTID 7:\n#0  0x00007f clock_nanosleep\n#1  0x01\n#2  0x000055 main\n#3  0x02\n";
        for (output, expected) in [
            (
                gdb,
                "clock_nanosleep < commgauge_base::progress::fault::sleep_forever < <commgauge_run::measure::A as B>::call < \
                 ?? of libmpi.so.40 < main",
            ),
            (eu_stack, "clock_nanosleep < ?? < main"),
            ("ptrace: Operation not permitted.\n", ""),
        ] {
            assert_eq!(functions(output), expected);
        }
        let long = format!("#0  0x1 in g ()\n{}", format!("#1  0x1 in {} ()\n", "f".repeat(400)).repeat(9));
        assert!(functions(&long).len() <= MAX_BYTES && functions(&long).ends_with("f < ..."));
    }

    #[test]
    fn a_tool_that_does_not_end_is_ended_at_the_deadline_and_what_it_printed_is_used() {
        let begun = Instant::now();
        let script = "echo '#0  0x1 in poll ()'; exec sleep 60";
        let output = run("sh", &["-c".to_owned(), script.to_owned()], begun + Duration::from_secs(5)).expect("a shell");
        assert!(!output.is_whole && begun.elapsed() < Duration::from_secs(50));
        assert_eq!(read(&output), Ok("poll".to_owned()));
        let nothing = |is_whole| read(&Output { tool: "gdb", text: String::new(), is_whole });
        assert_eq!(nothing(false), Err("gdb did not respond in time".to_owned()));
        assert_eq!(nothing(true), Err("gdb could not read the process".to_owned()));
        assert!(run("no-such-tool", &[], begun).is_none());
    }
}
