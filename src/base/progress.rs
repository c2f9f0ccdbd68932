//! The progress of a rank, in a cell of plain atomics: written by the measuring thread, read by the watchdog's thread.
//!
//! The timed loop does only stores and loads on this process's own cache line: no allocation, no lock, no system call.
//! Only the measuring thread writes, so no read-modify-write is needed.

use crate::writing::eprintln;
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use strum::VariantNames;

/// The activity of a rank within a step; [`Doing::CALL`] and below belong to the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Doing(pub u32);

/// Which end of a replayed call a rank is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPhase {
    /// The rank starts it.
    Start,
    /// The rank waits for it to end.
    Wait,
}

impl Doing {
    /// Between two operations.
    pub const OUTSIDE_CALLS: Doing = Doing(0);
    pub const BARRIER: Doing = Doing(1);
    pub const BROADCAST: Doing = Doing(2);
    pub const GATHER: Doing = Doing(3);
    pub const AGREEMENT: Doing = Doing(4);
    /// The call of the case.
    pub const CALL: Doing = Doing(5);
    /// A whole replay.
    pub const REPLAY: Doing = Doing(6);
    /// Inside a replay, computing.
    pub const COMPUTING: Doing = Doing(7);
    const FIRST_OP: u32 = 16;

    /// Inside a replay, starting the op of this index or waiting for it.
    pub const fn op(index: u32, phase: CallPhase) -> Doing {
        Doing((Doing::FIRST_OP + 2 * index) | phase as u32)
    }

    /// The index of a replay's op, and whether the rank starts it or waits for it.
    pub fn replayed_op(self) -> Option<(u32, CallPhase)> {
        let rest = self.0.checked_sub(Doing::FIRST_OP)?;
        Some((rest / 2, if rest % 2 == 0 { CallPhase::Start } else { CallPhase::Wait }))
    }
}

/// The progress cell. It has its own cache lines, to avoid false sharing.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Progress {
    activity: AtomicU64,
    /// Operations that all ranks perform in the same order, counted twice: odd inside an operation.
    step: AtomicU64,
    /// Data calls of the whole run; in a replay, its actions.
    calls: AtomicU64,
    calls_before: AtomicU64,
    doing: AtomicU32,
    /// The rank whose message is awaited, plus one; 0 for none.
    peer: AtomicU32,
    group: AtomicU32,
    deadline_nanoseconds: AtomicU64,
    fault: Option<Fault>,
}

/// No group: the rank is idle, or all ranks take part.
pub const NO_GROUP: u32 = u32::MAX;

/// A snapshot of the cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Number of the activity, the same on every rank.
    pub activity: u64,
    /// Twice the number of finished operations, plus one inside an operation.
    pub step: u64,
    /// Calls that the rank has entered in this activity.
    pub calls: u64,
    /// The current operation.
    pub doing: u32,
    /// The rank whose message it waits for.
    pub peer: Option<u32>,
    /// Its group in the activity.
    pub group: u32,
}

impl Progress {
    /// A cell whose rank misbehaves at a given call, for tests.
    pub fn with_fault(fault: Option<Fault>) -> Progress {
        Progress { fault, ..Progress::default() }
    }

    /// Begins an activity in a group. Must be called outside of timed loops.
    pub fn begin(&self, group: u32, deadline: Duration) {
        self.calls_before.store(self.calls.load(Ordering::Relaxed), Ordering::Relaxed);
        self.step.store(0, Ordering::Relaxed);
        self.doing.store(Doing::OUTSIDE_CALLS.0, Ordering::Relaxed);
        self.group.store(group, Ordering::Relaxed);
        self.set_deadline(deadline);
        self.activity.store(self.activity.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Sets how long the rank may stay in an operation.
    pub fn set_deadline(&self, deadline: Duration) {
        let nanoseconds = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
        self.deadline_nanoseconds.store(nanoseconds, Ordering::Relaxed);
    }

    /// How long the rank may stay in an operation.
    pub fn deadline(&self) -> Duration {
        Duration::from_nanos(self.deadline_nanoseconds.load(Ordering::Relaxed))
    }

    /// Enters an operation of the control plane.
    #[inline]
    pub fn enter(&self, doing: Doing) {
        self.doing.store(doing.0, Ordering::Relaxed);
        self.step.store(self.step.load(Ordering::Relaxed) | 1, Ordering::Release);
    }

    /// Enters a call of data.
    #[inline]
    pub fn enter_call(&self) {
        let call = self.calls.load(Ordering::Relaxed) + 1;
        let fault = self.fault.as_ref().filter(|fault| fault.call == call);
        fault.inspect(|fault| fault.instead_of_entering());
        self.calls.store(call, Ordering::Relaxed);
        self.enter(Doing::CALL);
        fault.inspect(|fault| fault.inside());
    }

    /// Ends the operation that was entered.
    #[inline]
    pub fn finish(&self) {
        let step = self.step.load(Ordering::Relaxed);
        self.doing.store(Doing::OUTSIDE_CALLS.0, Ordering::Relaxed);
        self.step.store(step + (step & 1), Ordering::Release);
    }

    /// Inside a replay: begins an action.
    #[inline]
    pub fn begin_action(&self, doing: Doing) {
        let call = self.calls.load(Ordering::Relaxed) + 1;
        let fault = self.fault.as_ref().filter(|fault| fault.call == call);
        fault.inspect(|fault| fault.instead_of_entering());
        self.calls.store(call, Ordering::Relaxed);
        self.doing.store(doing.0, Ordering::Release);
        fault.inspect(|fault| fault.inside());
    }

    /// Inside a replay: ends an action.
    #[inline]
    pub fn end_action(&self) {
        self.doing.store(Doing::OUTSIDE_CALLS.0, Ordering::Release);
    }

    /// Sets or clears the rank whose message is awaited.
    pub fn wait_for(&self, peer: Option<u32>) {
        self.peer.store(peer.map_or(0, |peer| peer.saturating_add(1)), Ordering::Release);
    }

    /// A snapshot of the cell. The parts are read one by one: they are consistent only if the rank makes no progress.
    pub fn shown(&self) -> Shown {
        Shown {
            activity: self.activity.load(Ordering::Acquire),
            step: self.step.load(Ordering::Acquire),
            calls: self.calls.load(Ordering::Relaxed).saturating_sub(self.calls_before.load(Ordering::Relaxed)),
            doing: self.doing.load(Ordering::Relaxed),
            peer: self.peer.load(Ordering::Relaxed).checked_sub(1),
            group: self.group.load(Ordering::Relaxed),
        }
    }
}

// Test faults: a rank that stops, dies, loops or hangs at a given call.

/// A rank that misbehaves at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// World rank.
    pub rank: u32,
    /// Kind of misbehaviour.
    pub kind: FaultKind,
    /// Number of the data call, counted from 1 over the whole run; in a replay, of the action.
    pub call: u64,
}

/// How a rank misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum FaultKind {
    /// Sleeps forever instead of entering.
    Hang,
    /// Loops forever instead of entering.
    Loop,
    /// Enters, sleeps and never finishes.
    NeverFinish,
    /// Enters, loops and never finishes.
    LoopInside,
    /// Stops its whole process, as SIGSTOP does.
    Stop,
    /// Is killed, as by SIGKILL.
    Kill,
    /// Exits with success, long before the others.
    Exit,
}

impl Fault {
    /// Parses `RANK:KIND` or `RANK:KIND:CALL`.
    ///
    /// # Errors
    /// A message with the invalid text and the accepted forms.
    pub fn parse(text: &str) -> Result<Fault, String> {
        let kinds = FaultKind::VARIANTS.join(", ");
        let wrong = || format!("found `{text}`; accepted: RANK:KIND[:CALL], where KIND is one of {kinds}");
        let mut parts = text.split(':');
        let rank = parts.next().and_then(|part| part.parse().ok()).ok_or_else(wrong)?;
        let kind = parts.next().and_then(|part| part.parse().ok());
        let call = parts.next().map_or(Some(100), |part| part.parse().ok()).filter(|call| *call > 0);
        match (kind, call, parts.next()) {
            (Some(kind), Some(call), None) => Ok(Fault { rank, kind, call }),
            _ => Err(wrong()),
        }
    }

    #[cold]
    fn instead_of_entering(&self) {
        eprintln!("commgauge: rank {} misbehaves now, as requested by --inject-fault", self.rank);
        match self.kind {
            FaultKind::Hang => sleep_forever(),
            FaultKind::Loop => loop_forever(),
            // A failure to signal itself is ignored.
            FaultKind::Stop => drop(kill_process(getpid(), Signal::STOP)),
            FaultKind::Kill => drop(kill_process(getpid(), Signal::KILL)),
            FaultKind::Exit => std::process::exit(0),
            FaultKind::NeverFinish | FaultKind::LoopInside => {}
        }
    }

    #[cold]
    fn inside(&self) {
        match self.kind {
            FaultKind::NeverFinish => sleep_forever(),
            FaultKind::LoopInside => loop_forever(),
            _ => {}
        }
    }
}

/// A separate function, whose name appears in stacks.
#[inline(never)]
fn loop_forever() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

#[inline(never)]
fn sleep_forever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_odd_inside_an_operation_and_starts_again_with_the_next_activity() {
        let progress = Progress::default();
        progress.begin(3, Duration::from_secs(2));
        let shown = |progress: &Progress| {
            let Shown { activity, step, calls, doing, .. } = progress.shown();
            (activity, step, calls, doing)
        };
        assert_eq!(shown(&progress), (1, 0, 0, 0));
        progress.enter(Doing::BARRIER);
        assert_eq!(shown(&progress), (1, 1, 0, Doing::BARRIER.0));
        progress.finish();
        progress.enter_call();
        assert_eq!(shown(&progress), (1, 3, 1, Doing::CALL.0));
        // A stream takes several calls before it finishes any.
        progress.enter_call();
        assert_eq!(shown(&progress), (1, 3, 2, Doing::CALL.0));
        progress.finish();
        progress.finish();
        assert_eq!(shown(&progress), (1, 4, 2, 0), "nothing is finished twice");
        progress.begin(NO_GROUP, Duration::from_secs(3));
        assert_eq!(shown(&progress), (2, 0, 0, 0), "calls are counted from the beginning of the activity");
        assert_eq!(progress.deadline(), Duration::from_secs(3));
    }

    #[test]
    fn ops_of_a_replay_read_back() {
        use CallPhase::{Start, Wait};
        for (index, phase) in [(0, Start), (0, Wait), (7, Wait), (100_000, Start)] {
            assert_eq!(Doing::op(index, phase).replayed_op(), Some((index, phase)));
        }
        assert_eq!(Doing::COMPUTING.replayed_op(), None);
    }

    #[test]
    fn a_fault_is_read_or_refused_with_what_would_be_right() {
        for text in ["", "2", "2:sleep", "x:hang", "2:hang:0", "2:hang:1:1", "-1:hang"] {
            assert!(Fault::parse(text).unwrap_err().contains("RANK:KIND"), "{text}");
        }
        assert_eq!(Fault::parse("2:stop:7"), Ok(Fault { rank: 2, kind: FaultKind::Stop, call: 7 }));
        assert_eq!(Fault::parse("0:kill").map(|fault| fault.call), Ok(100));
    }
}
