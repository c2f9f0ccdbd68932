//! Starts a launch command, forwards its output, and ensures that no process is left running.
//!
//! The purpose of the launch and its progress reports are up to the caller's [`Watch`].

use super::command::LaunchCommand;
use super::leftovers::{MARK, end_leftovers, segments_of, wait_for_watchdog};
use commgauge_base::error::{Error, Result};
use commgauge_base::process_stat::ProcessStat;
use commgauge_base::session_folder;
use commgauge_base::shared_memory::Segments;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

/// How long a launch may take to stop before it is terminated.
pub const GRACE: Duration = Duration::from_secs(5);
/// How long a terminated launch may take to end before it is killed.
const TERMINATION_GRACE: Duration = Duration::from_secs(3);
/// Polling interval of the watcher, and the longest delay of a signal.
const TICK: Duration = Duration::from_millis(50);
/// Bytes at the end of the output that are retained to diagnose a failed launch.
const RETAINED_OUTPUT_BYTES: usize = 64 * 1024;

/// Observer of a launch.
pub trait Watch {
    /// Called every few milliseconds, and once more after the end.
    fn tick(&mut self);
    /// A line that the launcher or a rank printed.
    fn output(&mut self, line: &str);
    /// A signal to forward, if one arrived since the last call.
    fn signal(&mut self) -> Option<i32>;
    /// Why the launch should be over by now, if so; it is then terminated. A sentence without full stop.
    fn overdue(&mut self) -> Option<String> {
        None
    }
}

/// How a launch ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// The launcher's exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended the launcher.
    pub signal: Option<i32>,
    /// The first signal that was forwarded.
    pub interrupted_by: Option<i32>,
    /// Why the launcher was terminated, where it should have ended by itself.
    pub overdue: Option<String>,
    /// The end of the output of launcher and ranks.
    pub output: String,
    /// Processes that outlived the launcher and had to be killed.
    pub leftovers_killed: usize,
    /// Shared memory that the processes had when they were made to end: ranks that still start have said nothing of theirs.
    pub segments: Segments,
}

/// Runs the command to its end. `mark` is an environment value unique to this launch; `grace` is [`GRACE`] except in
/// tests.
///
/// The launcher gets its own process group, so that a Ctrl-C at the terminal reaches it once, through us.
pub fn supervise(command: &LaunchCommand, mark: &str, grace: Duration, watch: &mut dyn Watch) -> Result<Ending> {
    let begun = SystemTime::now();
    let mut child = command
        .command()
        .env(MARK, mark)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|cause| Error::environment(format!("cannot start {}: {cause}", command.program)))?;
    let lines = read_lines(&mut child);
    let mut ending = Ending::default();
    let stop = Stop { mark, signal: command.stop_signal, grace };
    let status = wait(&mut child, &lines, stop, &mut ending, watch);
    // Kill what is left in every case, also after a failed wait.
    kill_group(&child, Signal::KILL);
    ending.leftovers_killed = end_leftovers(mark, Duration::from_secs(1), &mut ending.segments);
    wait_for_watchdog(mark, GRACE);
    ending.segments.remove_left();
    session_folder::remove_left_by(child.id());
    session_folder::remove_descriptions_since(begun);
    while let Ok(line) = lines.recv_timeout(Duration::from_millis(200)) {
        forward(&line, &mut ending, watch);
    }
    watch.tick();
    let status = status?;
    ending.code = status.code();
    ending.signal = status.signal();
    Ok(ending)
}

fn wait(
    child: &mut Child,
    lines: &Receiver<String>,
    stop: Stop<'_>,
    ending: &mut Ending,
    watch: &mut dyn Watch,
) -> Result<ExitStatus> {
    let mut pressure = Pressure::None;
    loop {
        let next = Instant::now() + TICK;
        loop {
            match lines.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(line) => forward(&line, ending, watch),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(next.saturating_duration_since(Instant::now()));
                    break;
                }
            }
            if Instant::now() >= next {
                break;
            }
        }
        watch.tick();
        if let Some(number) = watch.signal() {
            let is_repeated = ending.interrupted_by.is_some();
            if !is_repeated {
                ending.segments = segments_of(stop.mark);
            }
            ending.interrupted_by.get_or_insert(number);
            if is_repeated {
                kill_group(child, Signal::KILL);
            } else {
                kill_group(child, forwarded(number, stop.signal));
                pressure = pressure.max(Pressure::Asked(Instant::now() + stop.grace));
            }
        } else if pressure == Pressure::None
            && let Some(why) = watch.overdue()
        {
            ending.overdue = Some(why);
            ending.segments = segments_of(stop.mark);
            pressure = Pressure::Asked(Instant::now());
        }
        pressure = pressure.advance(child);
        let status =
            child.try_wait().map_err(|cause| Error::environment(format!("cannot wait for the launcher: {cause}")));
        if let Some(status) = status? {
            return Ok(status);
        }
    }
}

/// How a launch that is to end is made to, and until when that may take.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pressure {
    None,
    /// It was asked to stop in order.
    Asked(Instant),
    /// It was terminated, by which a launcher ends its ranks on all hosts.
    Terminated(Instant),
}

impl Pressure {
    fn advance(self, child: &Child) -> Pressure {
        let now = Instant::now();
        match self {
            Pressure::Asked(until) if now >= until => {
                kill_group(child, Signal::TERM);
                // It would not notice. mpirun forwards the signal, so that it is sent in need only.
                if ProcessStat::of(child.id()).is_some_and(ProcessStat::is_stopped) {
                    kill_group(child, Signal::CONT);
                }
                Pressure::Terminated(now + TERMINATION_GRACE)
            }
            Pressure::Terminated(until) if now >= until => {
                kill_group(child, Signal::KILL);
                self
            }
            _ => self,
        }
    }
}

/// Signal that asks a launch to stop, and how long it may take.
#[derive(Clone, Copy)]
struct Stop<'a> {
    /// Of the processes of the launch.
    mark: &'a str,
    signal: Option<i32>,
    grace: Duration,
}

fn forwarded(number: i32, instead: Option<i32>) -> Signal {
    if let Some(signal) = instead.and_then(Signal::from_named_raw) {
        return signal;
    }
    if number == Signal::TERM.as_raw() { Signal::TERM } else { Signal::INT }
}

fn kill_group(child: &Child, signal: Signal) {
    if let Some(group) = Pid::from_raw(child.id() as i32) {
        // The group may have ended already.
        let _ = kill_process_group(group, signal);
    }
}

fn forward(line: &str, ending: &mut Ending, watch: &mut dyn Watch) {
    watch.output(line);
    ending.output.push_str(line);
    ending.output.push('\n');
    if ending.output.len() > 2 * RETAINED_OUTPUT_BYTES {
        let mut from = ending.output.len() - RETAINED_OUTPUT_BYTES;
        while !ending.output.is_char_boundary(from) {
            from += 1;
        }
        ending.output.drain(..from);
    }
}

/// Both streams of the child, line by line, through a bounded channel, so that too much output blocks the child instead
/// of filling memory.
fn read_lines(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = sync_channel(256);
    if let Some(stream) = child.stdout.take() {
        read_into(stream, sender.clone());
    }
    if let Some(stream) = child.stderr.take() {
        read_into(stream, sender);
    }
    receiver
}

fn read_into(stream: impl Read + Send + 'static, sender: SyncSender<String>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            // A line without end is cut, so that it cannot fill the memory.
            match reader.by_ref().take(RETAINED_OUTPUT_BYTES as u64).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            // The launcher of Open MPI 5 ends some of its messages with a zero.
            let had_zeros = line.contains(&0);
            line.retain(|byte| *byte != 0);
            if had_zeros && line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let text = String::from_utf8_lossy(&line);
            if sender.send(text.trim_end_matches(['\n', '\r']).to_owned()).is_err() {
                return;
            }
        }
    });
}

#[cfg(test)]
#[path = "child_tests.rs"]
mod tests;
