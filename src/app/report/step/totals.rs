//! Totals over the calls of an axis, a style or a whole step: bytes, time, and the number of calls without a time.

use super::op::StepOp;
use commgauge_base::stats::Span;
use commgauge_base::units::Bytes;

/// Totals over some calls of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Totals {
    /// The axis or style; empty for the whole step.
    pub name: &'static str,
    /// Size arguments of all calls.
    pub payload_bytes_per_step: Bytes,
    /// Bytes that a rank sends.
    pub wire_bytes_per_step: Bytes,
    /// Time of all calls, one after another.
    pub time: Sum,
    /// Time of the exposed calls only.
    pub exposed_time: Sum,
}

/// A sum over calls of which some may have no time. Missing times are always reported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sum {
    /// Seconds of the calls that have a time.
    pub known_seconds: Span,
    /// Distinct calls.
    pub ops: usize,
    /// Those of them without a time: skipped, failed, wrong or not measured.
    pub without_a_time: usize,
}

impl Sum {
    fn of<'a>(ops: impl Iterator<Item = &'a StepOp>) -> Sum {
        let mut sum = Sum { known_seconds: Span::exact(0.0), ops: 0, without_a_time: 0 };
        for op in ops {
            sum.ops += 1;
            match op.seconds_per_step() {
                Some(seconds) => sum.known_seconds = sum.known_seconds.plus(seconds),
                None => sum.without_a_time += 1,
            }
        }
        sum
    }

    /// The sum, where every call has a time.
    pub fn complete(&self) -> Option<Span> {
        (self.without_a_time == 0).then_some(self.known_seconds)
    }

    /// What is missing, as a sentence without full stop.
    pub fn incomplete(&self) -> Option<String> {
        (self.without_a_time > 0)
            .then(|| format!("incomplete: {} of {} ops without a time", self.without_a_time, self.ops))
    }
}

impl Totals {
    /// The totals of the calls that are wanted.
    pub(super) fn of(name: &'static str, ops: &[StepOp], wanted: impl Fn(&StepOp) -> bool) -> Totals {
        let chosen = || ops.iter().filter(|op| wanted(op));
        let bytes = |of: fn(&StepOp) -> Bytes| Bytes(chosen().fold(0u64, |sum, op| sum.saturating_add(of(op).0)));
        Totals {
            name,
            payload_bytes_per_step: bytes(|op| op.payload_bytes_per_step),
            wire_bytes_per_step: bytes(|op| op.wire_bytes_per_step),
            time: Sum::of(chosen()),
            exposed_time: Sum::of(chosen().filter(|op| op.exposed())),
        }
    }

    /// One for each name, the one that takes longest first; without times the one that sends most.
    pub(super) fn by_name(ops: &[StepOp], name_of: impl Fn(&StepOp) -> &'static str) -> Vec<Totals> {
        let mut names: Vec<&'static str> = Vec::new();
        for op in ops {
            if !names.contains(&name_of(op)) {
                names.push(name_of(op));
            }
        }
        let mut all: Vec<Totals> =
            names.into_iter().map(|name| Totals::of(name, ops, |op| name_of(op) == name)).collect();
        all.sort_by(|a, b| {
            let by_time = b.time.known_seconds.middle.total_cmp(&a.time.known_seconds.middle);
            by_time.then(b.wire_bytes_per_step.cmp(&a.wire_bytes_per_step))
        });
        all
    }
}
