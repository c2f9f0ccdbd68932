//! The calls of one step, each with its measured time and its total in the step.

use crate::report::row::Row;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::Span;
use commgauge_base::units::Bytes;
use commgauge_model::layout::Axis;
use commgauge_model::record::line::{CaseFacts, StepUse};
use commgauge_model::workload::Style;
use commgauge_model::workload::when::When;

/// One call of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOp {
    /// Index of the row whose time is taken, or of the first of the call where none has a time.
    pub row: usize,
    /// The axis whose groups carry it out.
    pub axis: Axis,
    /// The parallelism style that issues it.
    pub style: Style,
    /// Whether it occurs in every micro-batch, so that its count grows with the tokens of a replica.
    pub every_micro_batch: bool,
    /// Calls in a step, on the rank that the axis loads most.
    pub count_per_step: u64,
    /// Size argument of all calls together.
    pub payload_bytes_per_step: Bytes,
    /// Bytes that this rank sends in all calls together.
    pub wire_bytes_per_step: Bytes,
    /// The computation that hides it; `None` for exposed calls.
    pub overlaps_with: Option<String>,
    /// Where the bytes come from.
    pub why: String,
    /// Cadence of the measurement.
    pub cadence: Cadence,
    /// Seconds of one call; `None` where there is no time.
    pub seconds_per_call: Option<Span>,
}

impl StepOp {
    /// Seconds of all its calls in a step, one after another.
    pub fn seconds_per_step(&self) -> Option<Span> {
        self.seconds_per_call.map(|call| call.times(self.count_per_step as f64))
    }

    /// Whether the step waits for it.
    pub fn exposed(&self) -> bool {
        self.overlaps_with.is_none()
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
        style: used.style,
        every_micro_batch: !matches!(used.when, When::Step { .. } | When::Outside),
        count_per_step: used.count_per_step,
        payload_bytes_per_step: Bytes(bytes_total.saturating_mul(used.count_per_step)),
        wire_bytes_per_step: used.wire_bytes_per_step,
        overlaps_with: (!used.exposed)
            .then(|| used.overlaps_with.clone().unwrap_or_else(|| "something unnamed".to_owned())),
        why: used.why.clone(),
        cadence: row.facts.cadence,
        seconds_per_call: seconds_per_call(row),
    }
}

/// The latency of a row is of one way; a call may have several.
fn seconds_per_call(row: &Row) -> Option<Span> {
    let latency = row.latency?;
    let interval = latency.interval.map(|interval| interval.map(|seconds| seconds.0));
    Some(Span { middle: latency.median.0, interval }.times(f64::from(row.facts.transfers_per_call)))
}
