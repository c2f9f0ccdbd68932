//! State shared by a rank and its watchdog thread: the connection to the collector of the host, and the state of the run as seen by the
//! collectors.

use super::wire::{Direction, Frame, print_message};
use commgauge_base::error::Result;
use commgauge_base::host;
use commgauge_base::progress::{CallPhase, Doing, NO_GROUP, Progress};
use commgauge_model::layout::Groups;
use commgauge_model::record::launch_lines::{HungActivity, UnwatchedLine, has_unwatched_line};
use commgauge_model::record::line::{End, EndStatus};
use commgauge_model::record::{Line, Moved, WriteAccess, Writer, append_missing_end};
use commgauge_model::workload::Case;
use std::collections::VecDeque;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of unsent activities.
const MAX_ACTIVITIES: usize = 64;

/// How long rank 0 waits for permission to record its run as complete.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of ops of a replay whose names are stored.
const MAX_OPS: usize = 4096;

/// State shared by this thread and the measuring thread.
pub(super) struct Reporter {
    pub(super) rank: u32,
    pub(super) host: String,
    pub(super) progress: Arc<Progress>,
    pub(super) activities: Mutex<Activities>,
    outgoing: Mutex<Outgoing>,
    pub(super) run_state: Mutex<RunState>,
    changed: Condvar,
    pub(super) signal: Arc<AtomicUsize>,
    /// The record, on the rank that writes it.
    pub(super) record: Mutex<Option<OwnRecord>>,
    /// Set once the collector was lost or silent for long.
    pub(super) is_unwatched: AtomicBool,
}

/// The sending direction of the rank's connection.
pub(super) struct Outgoing {
    pub(super) stream: TcpStream,
    pub(super) sealer: Direction,
}

#[derive(Default)]
pub(super) struct Activities {
    begun: u64,
    pub(super) unsent: VecDeque<(u64, String)>,
    ops: Vec<String>,
}

/// State of the run according to the first collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunState {
    Watched,
    /// It may be recorded as complete.
    Concluded,
    Aborted,
    /// It is being ended with this exit code, and the collector writes the record.
    GivenUp(i32),
    Unwatched,
    /// The rank has ended normally.
    Left,
}

impl std::fmt::Debug for Reporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reporter of rank {}", self.rank)
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every store leaves a valid state, also if a thread panics in between.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reporter {
    /// `signal` is the number of the received stop signal, or 0.
    pub(super) fn new(
        rank: u32,
        host: &str,
        progress: Progress,
        outgoing: Outgoing,
        signal: Arc<AtomicUsize>,
    ) -> Reporter {
        Reporter {
            rank,
            host: host.to_owned(),
            progress: Arc::new(progress),
            activities: Mutex::default(),
            outgoing: Mutex::new(outgoing),
            run_state: Mutex::new(RunState::Watched),
            changed: Condvar::new(),
            signal,
            record: Mutex::default(),
            is_unwatched: AtomicBool::new(false),
        }
    }

    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    pub(super) fn begin(&self, mut activity: Activity) {
        let text = serde_json::to_string(&activity.facts).unwrap_or_default();
        let mut activities = locked(&self.activities);
        activities.begun += 1;
        let number = activities.begun;
        if activities.unsent.len() == MAX_ACTIVITIES {
            activities.unsent.pop_front();
        }
        activities.unsent.push_back((number, text));
        activity.ops.truncate(MAX_OPS);
        activities.ops = activity.ops;
        drop(activities);
        self.progress.begin(activity.group, activity.deadline);
    }

    pub(super) fn device(&self, name: &str) {
        // A lost collector is noticed at the next heartbeat.
        let _ = self.send(&[Frame::Device(self.rank, name.to_owned())]);
    }

    pub(super) fn record(&self, access: WriteAccess, path: &Path) {
        *locked(&self.record) = Some(OwnRecord { access, path: path.to_owned() });
    }

    pub(super) fn is_unwatched(&self) -> bool {
        self.is_unwatched.load(Ordering::Relaxed)
    }

    pub(super) fn record_moved(&self, moved: &Moved) {
        if let Some(record) = locked(&self.record).as_mut() {
            record.path.clone_from(&moved.to);
        }
        let _ = self.send(&[Frame::RecordMoved(moved.to.display().to_string())]);
    }

    pub(super) fn lost_collector_of(&self, host: u32) {
        if !self.is_unwatched() {
            // If the collector is gone too, there is nothing to decide.
            let _ = self.send(&[Frame::Unwatched(host)]);
        }
    }

    pub(super) fn conclude(&self) {
        // A stopped collector would not answer, and ranks with a stop request have little time.
        if self.is_unwatched() || self.send(&[Frame::Conclude]).is_err() {
            return;
        }
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let mut run_state = locked(&self.run_state);
        loop {
            match *run_state {
                RunState::Concluded | RunState::Unwatched | RunState::Left => return,
                // The run is being ended: this thread must not continue.
                RunState::Aborted | RunState::GivenUp(_) => loop {
                    run_state = self.changed.wait(run_state).unwrap_or_else(PoisonError::into_inner);
                },
                RunState::Watched => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                print_message(&format!(
                    "rank {}: the watchdog does not answer; the run continues without it",
                    self.rank
                ));
                return;
            }
            run_state = self.changed.wait_timeout(run_state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn leave(&self, exit_code: i32, why: &str) {
        let mut run_state = locked(&self.run_state);
        if *run_state == RunState::Watched || *run_state == RunState::Concluded {
            *run_state = RunState::Left;
            drop(run_state);
            // An unreachable collector has ended already.
            let _ = self.send(&[Frame::Left(self.rank, exit_code, why.to_owned())]);
        }
    }

    pub(super) fn set_run_state(&self, next: RunState) {
        *locked(&self.run_state) = next;
        self.changed.notify_all();
    }

    pub(super) fn send(&self, frames: &[Frame]) -> std::io::Result<()> {
        let mut bytes = Vec::with_capacity(256);
        let mut outgoing = locked(&self.outgoing);
        frames.iter().for_each(|frame| outgoing.sealer.seal(frame, &mut bytes));
        outgoing.stream.write_all(&bytes)
    }

    /// Describes what the rank is doing.
    pub(super) fn detail(&self, thread: &str) -> String {
        let shown = self.progress.shown();
        let mut text = match Doing(shown.doing) {
            Doing::OUTSIDE_CALLS if shown.peer.is_some() => {
                format!("waits for a message of rank {}", shown.peer.unwrap_or_default())
            }
            Doing::COMPUTING => format!("computes (action {} of the replay)", shown.calls),
            doing => match doing.replayed_op() {
                Some((op, phase)) => {
                    let activities = locked(&self.activities);
                    let name = activities.ops.get(op as usize).map_or("a call", String::as_str);
                    let does = match phase {
                        CallPhase::Start => "starts",
                        CallPhase::Wait => "waits for",
                    };
                    format!("{does} {name} (action {} of the replay)", shown.calls)
                }
                None => String::new(),
            },
        };
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(thread);
        text
    }
}

// The activity of this process's measuring thread, according to the operating system.

/// CPU time of the measuring thread when it was first seen without progress.
pub(super) struct MainThread {
    ticks: u64,
    at_nanoseconds: u64,
}

impl MainThread {
    pub(super) fn now() -> MainThread {
        MainThread { ticks: read_stat().map_or(0, |stat| stat.1), at_nanoseconds: host::now_nanoseconds() }
    }

    /// Whether it has slept since then, and a description of its activity.
    pub(super) fn since(&self) -> (bool, String) {
        let Some((state, ticks)) = read_stat() else { return (false, "its thread is not visible".to_owned()) };
        let elapsed = host::now_nanoseconds().saturating_sub(self.at_nanoseconds).max(1) as f64;
        // The kernel counts in hundredths of a second.
        let busy = (ticks.saturating_sub(self.ticks) as f64 * 1e7 / elapsed * 100.0).min(100.0);
        let place = place_in_kernel();
        let words = match state {
            'D' => format!("its thread waits inside the kernel (state D){place}, {busy:.0} % busy"),
            'S' => format!("its thread sleeps{place}, {busy:.0} % busy"),
            'R' => format!("its thread runs, {busy:.0} % busy"),
            other => format!("its thread is in state {other}, {busy:.0} % busy"),
        };
        (matches!(state, 'S' | 'D') && busy < 5.0, words)
    }
}

/// State and CPU ticks of the main thread of this process.
fn read_stat() -> Option<(char, u64)> {
    let pid = std::process::id();
    parse_stat(&std::fs::read_to_string(format!("/proc/self/task/{pid}/stat")).ok()?)
}

/// Where the main thread of this process waits in the kernel, as ` in system call 230 (hrtimer_nanosleep)`; empty while it runs, or if the
/// system does not show it.
fn place_in_kernel() -> String {
    let pid = std::process::id();
    let read = |file: &str| std::fs::read_to_string(format!("/proc/self/task/{pid}/{file}")).unwrap_or_default();
    describe_place(&read("syscall"), &read("wchan"))
}

/// From `/proc/PID/syscall`, which begins with the number of the call, and `/proc/PID/wchan`, the kernel function or 0.
fn describe_place(call: &str, function: &str) -> String {
    let number = call.split_ascii_whitespace().next().and_then(|word| word.parse::<u32>().ok());
    let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.');
    let function = Some(function.trim()).filter(|name| !matches!(*name, "" | "0") && name.len() < 100).filter(is_name);
    match (number, function) {
        (Some(number), Some(function)) => format!(" in system call {number} ({function})"),
        (Some(number), None) => format!(" in system call {number}"),
        (None, Some(function)) => format!(" in the kernel's {function}"),
        (None, None) => String::new(),
    }
}

/// The program name is in parentheses, and may contain any character.
fn parse_stat(text: &str) -> Option<(char, u64)> {
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let mut ticks = fields.skip(10).map_while(|field| field.parse::<u64>().ok());
    Some((state, ticks.next()? + ticks.next()?))
}

// The current activity of a rank, in the form used by a report.

/// A phase of the run that all ranks execute together.
#[derive(Clone, Debug)]
pub struct Activity {
    /// Description for the report.
    pub facts: HungActivity,
    /// This rank's group in it, by index.
    pub group: u32,
    /// How long a rank may stay in an operation.
    pub deadline: Duration,
    /// Names of a replay's ops, by index.
    pub ops: Vec<String>,
}

impl Activity {
    pub fn named(name: impl Into<String>, deadline: Duration) -> Activity {
        let facts = HungActivity { name: name.into(), ..HungActivity::default() };
        Activity { facts, group: NO_GROUP, deadline, ops: Vec::new() }
    }

    /// A case of a plan, from the view of one rank.
    pub fn case(name: String, case: &Case, groups: &Groups, rank: u32, deadline: Duration) -> Activity {
        let op = &case.op;
        let facts = HungActivity {
            name,
            case: Some(case.name()),
            collective: Some(op.collective.name().to_owned()),
            bytes_total: Some(op.bytes_total),
            axis: Some(op.axis.name().to_owned()),
        };
        let group = groups.place_of(rank).map_or(NO_GROUP, |place| place.group as u32);
        Activity { facts, group, deadline, ops: Vec::new() }
    }
}

/// How long to wait for a write in progress before the record is not released.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub(super) struct OwnRecord {
    access: WriteAccess,
    path: PathBuf,
}

impl OwnRecord {
    /// Stops this process from writing; false if a write takes too long.
    pub(super) fn give_up(&self) -> bool {
        self.access.give_up(PATIENCE)
    }

    /// Ends the record of a run whose watchdog was lost, and stops this process from writing. Records the loss too, unless the run already
    /// had.
    pub(super) fn end(&self, exit_code: i32, why: String, lost: UnwatchedLine, elapsed: Duration) -> Result<bool> {
        if !self.give_up() {
            return Ok(false);
        }
        let lines = if has_unwatched_line(&self.path) { Vec::new() } else { vec![Line::Unwatched(lost)] };
        let end = End::new(EndStatus::Failed, exit_code, Some(why), elapsed);
        append_missing_end(&self.path, &lines, &end, Writer::Ending(PATIENCE))
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn state_and_ticks_are_read_behind_whatever_the_program_is_called() {
        let rest = "R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15";
        for name in ["(a)", "(a b)", "(a) b) R )"] {
            assert_eq!(parse_stat(&format!("7 {name} {rest}")), Some(('R', 23)), "{name}");
        }
        assert_eq!(parse_stat("7 (a) R 1"), None);
        assert_eq!(parse_stat(""), None);
        assert!(read_stat().is_some());
    }

    #[test]
    fn the_place_in_the_kernel_is_as_precise_as_the_system_tells() {
        for (call, function, place) in [
            (
                "230 0x0 0x0 0x7ffd 0x7ffd 0x0 0x0 0x7ffd 0x7f04\n",
                "hrtimer_nanosleep",
                " in system call 230 (hrtimer_nanosleep)",
            ),
            ("230 0x0\n", "0", " in system call 230"),
            ("-1 0x7ffd 0x7f04\n", "do_exit", " in the kernel's do_exit"),
            ("running\n", "0", ""),
            ("", "", ""),
            ("", "a\nb", ""),
        ] {
            assert_eq!(describe_place(call, function), place);
        }
    }
}
