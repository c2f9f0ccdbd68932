//! What a rank and its watchdog thread share: the connection to the collector of the host, and the state of the run as the collectors
//! see it.

use super::activity::Activity;
use super::authentication::Sealer;
use super::message::print_message;
use super::own_record::OwnRecord;
use super::wire::Frame;
use commgauge_base::progress::{CallPhase, Doing, Progress};
use commgauge_model::record::{Moved, WriteAccess};
use std::collections::VecDeque;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of activities that wait to be sent.
const MAX_ACTIVITIES: usize = 64;
/// How long rank 0 waits for the permission to record its run as complete.
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
    /// Set once the collector was gone or silent for long.
    pub(super) is_unwatched: AtomicBool,
}

/// The direction of the connection in which this rank sends.
pub(super) struct Outgoing {
    pub(super) stream: TcpStream,
    pub(super) sealer: Sealer,
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
    /// It is being ended.
    Aborted,
    /// It is being ended with this exit code, and its record is the collector's.
    GivenUp(i32),
    /// The collector is gone.
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
    // Every single store leaves a valid state, also if a thread panicked in between.
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
        *locked(&self.record) = Some(OwnRecord::new(access, path));
    }

    pub(super) fn is_unwatched(&self) -> bool {
        self.is_unwatched.load(Ordering::Relaxed)
    }

    pub(super) fn record_moved(&self, moved: &Moved) {
        if let Some(record) = locked(&self.record).as_mut() {
            record.move_to(&moved.to);
        }
        let _ = self.send(&[Frame::RecordMoved(moved.to.display().to_string())]);
    }

    pub(super) fn lost_collector_of(&self, host: u32) {
        if !self.is_unwatched() {
            // A collector that is gone as well has nothing to decide.
            let _ = self.send(&[Frame::Unwatched(host)]);
        }
    }

    pub(super) fn conclude(&self) {
        // A stopped collector would not answer, and ranks that were asked to stop have little time.
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
                print_message(&format!("rank {}: the watchdog does not answer; the run goes on without it", self.rank));
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
