//! Test faults: a rank that stops, dies, loops or hangs at a given call.

use crate::message::eprintln;
use rustix::process::{Signal, getpid, kill_process};
use std::time::Duration;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl FaultKind {
    /// Every kind with its name.
    pub const ALL: [(&'static str, FaultKind); 7] = [
        ("hang", FaultKind::Hang),
        ("loop", FaultKind::Loop),
        ("never-finish", FaultKind::NeverFinish),
        ("loop-inside", FaultKind::LoopInside),
        ("stop", FaultKind::Stop),
        ("kill", FaultKind::Kill),
        ("exit", FaultKind::Exit),
    ];
}

impl Fault {
    /// Parses `RANK:KIND` or `RANK:KIND:CALL`.
    ///
    /// # Errors
    /// A message with the invalid text and the accepted forms.
    pub fn parse(text: &str) -> Result<Fault, String> {
        let kinds = FaultKind::ALL.map(|(name, _)| name).join(", ");
        let wrong = || format!("found `{text}`; accepted: RANK:KIND[:CALL], where KIND is one of {kinds}");
        let mut parts = text.split(':');
        let rank = parts.next().and_then(|part| part.parse().ok()).ok_or_else(wrong)?;
        let kind = parts.next().and_then(|part| FaultKind::ALL.iter().find(|(name, _)| *name == part));
        let call = parts.next().map_or(Some(100), |part| part.parse().ok()).filter(|call| *call > 0);
        match (kind, call, parts.next()) {
            (Some((_, kind)), Some(call), None) => Ok(Fault { rank, kind: *kind, call }),
            _ => Err(wrong()),
        }
    }

    #[cold]
    pub(super) fn instead_of_entering(&self) {
        eprintln!("commgauge: rank {} misbehaves now, as requested by --inject-fault", self.rank);
        match self.kind {
            FaultKind::Hang => sleep_for_ever(),
            FaultKind::Loop => loop_for_ever(),
            // A failure to signal itself is ignored.
            FaultKind::Stop => drop(kill_process(getpid(), Signal::STOP)),
            FaultKind::Kill => drop(kill_process(getpid(), Signal::KILL)),
            FaultKind::Exit => std::process::exit(0),
            FaultKind::NeverFinish | FaultKind::LoopInside => {}
        }
    }

    #[cold]
    pub(super) fn inside(&self) {
        match self.kind {
            FaultKind::NeverFinish => sleep_for_ever(),
            FaultKind::LoopInside => loop_for_ever(),
            _ => {}
        }
    }
}

/// A function of its own, by whose name a stack shows it.
#[inline(never)]
fn loop_for_ever() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

#[inline(never)]
fn sleep_for_ever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read_or_refused_with_what_would_be_right() {
        for text in ["", "2", "2:sleep", "x:hang", "2:hang:0", "2:hang:1:1", "-1:hang"] {
            assert!(Fault::parse(text).unwrap_err().contains("RANK:KIND"), "{text}");
        }
        assert_eq!(Fault::parse("2:stop:7"), Ok(Fault { rank: 2, kind: FaultKind::Stop, call: 7 }));
        assert_eq!(Fault::parse("0:kill").map(|fault| fault.call), Ok(100));
    }
}
