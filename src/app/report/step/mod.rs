//! What a step of a model costs, op by op, from the record alone: times of calls, bytes, the ranking of parallelisms
//! against the rule TP > DP > PP, and where their order flips.

mod charts;
mod crossover;
mod document;
mod json;
mod op;
mod ranking;
#[cfg(test)]
pub(in crate::report) mod tests;
mod totals;

pub use commgauge_base::stats::Span;
pub use commgauge_model::workload::{Crossing, Family, Measure};
pub use crossover::Crossover;
pub use op::StepOp;
pub use ranking::{Place, Ranking, Rule};
pub use totals::{Sum, Totals};

pub(super) use document::document;
pub(super) use json::JsonStep;

use super::row::Row;
use commgauge_model::record::Record;
use commgauge_model::workload::StepFacts;

/// One step of the record.
#[derive(Clone, Debug, PartialEq)]
pub struct StepView {
    /// Model, layout, micro-batches and tokens.
    pub facts: StepFacts,
    /// Its calls, in the order of the plan.
    pub ops: Vec<StepOp>,
    /// Totals of all calls, in sequence.
    pub whole: Totals,
    /// Totals of each axis, the slowest first.
    pub axes: Vec<Totals>,
    /// Totals of each style, the slowest first.
    pub styles: Vec<Totals>,
    /// The parallelisms by each measure.
    pub rankings: Vec<Ranking>,
    /// Where their order flips.
    pub crossovers: Vec<Crossover>,
}

impl StepView {
    /// Every step of the record.
    pub(super) fn all_of(record: &Record, rows: &[Row]) -> Vec<StepView> {
        let view = |(index, facts): (usize, &StepFacts)| StepView::new(facts, op::ops_of(index as u32, rows));
        record.plan.steps.iter().enumerate().map(view).collect()
    }

    fn new(facts: &StepFacts, ops: Vec<StepOp>) -> StepView {
        StepView {
            facts: facts.clone(),
            whole: Totals::of("", &ops, |_| true),
            axes: Totals::by_name(&ops, |op| op.axis.name()),
            styles: Totals::by_name(&ops, |op| op.style.name()),
            rankings: Measure::ALL.into_iter().map(|measure| Ranking::of(measure, &ops)).collect(),
            crossovers: Crossover::all_of(&ops, facts),
            ops,
        }
    }

    /// The part of an op in the time of all; `None` where some op has no time.
    pub fn share(&self, op: &StepOp) -> Option<f64> {
        let whole = self.whole.time.complete()?.middle;
        op.seconds_per_step().filter(|_| whole > 0.0).map(|seconds| seconds.middle / whole)
    }
}
