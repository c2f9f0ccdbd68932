//! The calls of one step, each with its measured time and its total in the step.

use crate::report::row::Row;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::Span;
use commgauge_base::units::Bytes;
use commgauge_cost::cost::{Prediction, Status};
use commgauge_model::layout::Axis;
use commgauge_model::record::line::{CaseFacts, StepUse};
use commgauge_model::workload::op::{Overlap, When};
use commgauge_model::workload::{Crossing, Family, Measure, Op, StepFacts};
use commgauge_plan::planner::communication::OpCost;
use commgauge_plan::planner::rank::{Flip, Priced, crossings};

/// One call of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOp {
    /// Index of the row whose time is taken, or of the first of the call where none has a time.
    pub row: usize,
    /// The axis whose groups carry it out.
    pub axis: Axis,
    /// How the step performs it.
    pub used: StepUse,
    /// Size argument of all calls together.
    pub payload_bytes_per_step: Bytes,
    /// Cadence of the measurement.
    pub cadence: Cadence,
    /// Seconds of one call; `None` where there is no time.
    pub seconds_per_call: Option<Span>,
}

impl StepOp {
    /// Seconds of all its calls in a step, one after another.
    pub fn seconds_per_step(&self) -> Option<Span> {
        self.seconds_per_call.map(|call| call.times(self.used.count_per_step as f64))
    }

    /// Whether it occurs in every micro-batch, so that its count grows with the tokens of a replica.
    pub fn every_micro_batch(&self) -> bool {
        is_in_every_micro_batch(self.used.when)
    }

    /// The call as a style would have it.
    pub(super) fn called(&self, rows: &[Row]) -> Op {
        let facts = &rows[self.row].facts;
        let overlap = if self.used.exposed { Overlap::Exposed } else { Overlap::Backward };
        let op = Op::new(self.used.style, self.axis, facts.collective, facts.element_type, facts.bytes_total.0);
        Op { when: self.used.when, overlap, ..op }
    }

    /// The computing that hides it; `None` for exposed calls.
    pub fn overlaps_with(&self) -> Option<&str> {
        (!self.used.exposed).then(|| self.used.overlaps_with.as_deref().unwrap_or("something unnamed"))
    }
}

/// The calls of a step, in the order of the plan.
pub(super) fn ops_of(step: u32, rows: &[Row]) -> Vec<StepOp> {
    let serves = |row: &Row| row.facts.uses.iter().any(|used| used.step == step);
    let mut ops = Vec::new();
    for (index, first) in rows.iter().enumerate().filter(|(_, row)| serves(row)) {
        let same = |row: &Row| serves(row) && is_same_call(&row.facts, &first.facts);
        // The same call in another placement or cadence is listed once.
        if rows[..index].iter().any(same) {
            continue;
        }
        let chosen = chosen(rows, same).unwrap_or(index);
        ops.extend(
            first.facts.uses.iter().filter(|used| used.step == step).map(|used| op(chosen, &rows[chosen], used)),
        );
    }
    ops
}

/// The row whose time is taken: streaming where that was measured, as a step has its calls back to back; else isolated.
fn chosen(rows: &[Row], same: impl Fn(&Row) -> bool) -> Option<usize> {
    let timed = |cadence| {
        rows.iter().position(|row| same(row) && row.facts.cadence == cadence && seconds_per_call(row).is_some())
    };
    timed(Cadence::Streaming).or_else(|| timed(Cadence::Isolated))
}

/// Whether two cases differ in placement and cadence only.
fn is_same_call(a: &CaseFacts, b: &CaseFacts) -> bool {
    let key = |facts: &CaseFacts| {
        let CaseFacts { axis, group_size, groups, collective, element_type, reduce_op, root, bytes_total, .. } = facts;
        (*axis, *group_size, *groups, *collective, *element_type, *reduce_op, *root, *bytes_total)
    };
    key(a) == key(b) && a.splits == b.splits && a.uses == b.uses
}

fn op(index: usize, row: &Row, used: &StepUse) -> StepOp {
    let bytes_total = row.facts.bytes_total.0;
    StepOp {
        row: index,
        axis: row.facts.axis,
        used: used.clone(),
        payload_bytes_per_step: Bytes(bytes_total.saturating_mul(used.count_per_step)),
        cadence: row.facts.cadence,
        seconds_per_call: seconds_per_call(row),
    }
}

/// The latency of a row covers one way; a call may have several.
fn seconds_per_call(row: &Row) -> Option<Span> {
    let latency = row.latency?;
    let interval = latency.interval.map(|interval| interval.map(|seconds| seconds.0));
    Some(Span { middle: latency.median.0, interval }.times(f64::from(row.facts.transfers_per_call)))
}

// Where the order of two parallelisms of a measured step flips: every pair that crosses somewhere, and those of the rule.

/// Where two parallelisms are equal.
#[derive(Clone, Debug, PartialEq)]
pub struct Crossover {
    /// The two.
    pub families: [Family; 2],
    /// By the bytes that a rank sends.
    pub wire: Crossing,
    /// By the time of all calls.
    pub time: Crossing,
}

impl Crossover {
    /// Every pair of parallelisms that cross somewhere, and the pairs of the rule in any case.
    pub(super) fn all_of(priced: &[Priced], facts: &StepFacts) -> Vec<Crossover> {
        let grows = |op: &Op, _| is_in_every_micro_batch(op.when);
        let flips = crossings(priced, facts.tokens_per_replica, facts.micro_batches, grows);
        let of_pair = |pair: &[Flip]| {
            let by = |measure| pair.iter().find(|flip| flip.measure == measure).map(|flip| flip.crossing);
            let (wire, time) = by(Measure::WireBytes).zip(by(Measure::Time))?;
            let crosses = [wire, time].iter().any(|crossing| matches!(crossing, Crossing::At { .. }));
            let families = pair[0].families.into();
            (crosses || pair[0].is_of_rule()).then_some(Crossover { families, wire, time })
        };
        flips.chunk_by(|a, b| a.families == b.families).filter_map(of_pair).collect()
    }
}

/// The calls with the times that were measured.
pub(super) fn priced<'o>(ops: &[StepOp], called: &'o [Op], rows: &[Row]) -> Vec<Priced<'o>> {
    let price = |(op, called): (&StepOp, &'o Op)| {
        let Row { facts, status, .. } = &rows[op.row];
        let call = match op.seconds_per_call {
            Some(seconds) => Prediction::of(seconds, Status::Measured),
            None => Prediction::refused(status.label().to_owned()),
        };
        let cost = OpCost {
            ranks: facts.group_size,
            calls: op.used.count_per_step,
            payload_bytes: op.payload_bytes_per_step,
            wire_bytes: op.used.wire_bytes_per_step,
            call,
        };
        Priced { op: called, cost, locality: facts.locality.clone() }
    };
    ops.iter().zip(called).map(price).collect()
}

fn is_in_every_micro_batch(when: When) -> bool {
    !matches!(when, When::Step { .. } | When::Outside)
}
