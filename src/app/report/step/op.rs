//! The calls of one step, each with its measured time and its total in the step.

use crate::report::row::Row;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::Span;
use commgauge_base::units::Bytes;
use commgauge_model::layout::Axis;
use commgauge_model::record::line::{CaseFacts, StepUse};
use commgauge_model::workload::op::When;
use commgauge_model::workload::{Crossing, Family, Spending, StepFacts, Style, crossing};

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
    pub(super) fn all_of(ops: &[StepOp], facts: &StepFacts) -> Vec<Crossover> {
        let tokens = [facts.tokens_per_replica, facts.tokens_per_replica / facts.micro_batches.max(1)];
        let there: Vec<Family> = Family::ALL
            .into_iter()
            .filter(|family| ops.iter().any(|op| Family::of(op.axis) == Some(*family)))
            .collect();
        let mut all = Vec::new();
        for (index, &a) in there.iter().enumerate() {
            for &b in &there[index + 1..] {
                let by = |amount: fn(&StepOp) -> Option<Span>| between(ops, [a, b], tokens, amount);
                let wire = by(|op| Some(Span::exact(op.wire_bytes_per_step.0 as f64)));
                let crossover = Crossover { families: [a, b], wire, time: by(StepOp::seconds_per_step) };
                let crosses = [&crossover.wire, &crossover.time].iter().any(|c| matches!(c, Crossing::At { .. }));
                if crosses || (Family::RULE.contains(&a) && Family::RULE.contains(&b)) {
                    all.push(crossover);
                }
            }
        }
        all
    }
}

fn between(
    ops: &[StepOp],
    [a, b]: [Family; 2],
    [tokens, tokens_per_micro_batch]: [u64; 2],
    amount: fn(&StepOp) -> Option<Span>,
) -> Crossing {
    let sum = |family, every_micro_batch| {
        let chosen =
            ops.iter().filter(|op| Family::of(op.axis) == Some(family) && op.every_micro_batch == every_micro_batch);
        chosen.map(amount).try_fold(Span::exact(0.0), |sum, amount| Some(sum.plus(amount?)))
    };
    let spending = |family| Some(Spending { family, every_micro_batch: sum(family, true)?, once: sum(family, false)? });
    match spending(a).zip(spending(b)) {
        Some((a, b)) => crossing(&a, &b, tokens, tokens_per_micro_batch),
        None => Crossing::Unknown,
    }
}
