//! The ops of a step with their prices, by which parallelisms are ranked.

use crate::planner::communication::{OpCost, localities, span};
use crate::planner::rates::Rates;
use commgauge_base::error::Result;
use commgauge_base::stats::Span;
use commgauge_model::layout::{Axis, Layout, Locality};
use commgauge_model::workload::step::Step;
use commgauge_model::workload::{Measure, Op};
use std::collections::BTreeMap;

/// Number of resamples for the probability of an order, and their seed.
#[derive(Clone, Copy, Debug)]
pub struct RankOptions {
    /// Resamples; at least 1.
    pub resamples: u32,
    /// The same seed gives the same result.
    pub seed: u64,
}

impl Default for RankOptions {
    fn default() -> Self {
        RankOptions { resamples: 2000, seed: 1 }
    }
}

/// An op with its price, and what of it the ranking needs.
#[derive(Clone, Debug)]
pub(super) struct Priced<'o> {
    pub(super) op: &'o Op,
    pub(super) cost: OpCost,
    pub(super) locality: Locality,
}

impl Priced<'_> {
    /// Amount by a measure; none if it has no time.
    pub(super) fn amount(&self, measure: Measure) -> Option<Span> {
        match measure {
            Measure::PayloadBytes => Some(Span::exact(self.cost.payload_bytes.0 as f64)),
            Measure::WireBytes => Some(Span::exact(self.cost.wire_bytes.0 as f64)),
            Measure::Time => self.cost.time(),
            Measure::ExposedTime if self.op.overlap.is_exposed() => self.cost.time(),
            Measure::ExposedTime => Some(Span::exact(0.0)),
        }
    }

    /// Seconds of one call with their ends.
    pub(super) fn call(&self) -> Option<Span> {
        span(&self.cost.call)
    }
}

pub(super) fn priced<'o>(
    step: &Step,
    ops: &'o [Op],
    localities: &BTreeMap<Axis, Locality>,
    rates: &dyn Rates,
) -> Result<Vec<Priced<'o>>> {
    let known = ops.iter().filter_map(|op| Some((op, localities.get(&op.axis)?)));
    known
        .map(|(op, locality)| {
            let cost = OpCost::of(op, step.group_size(op.axis), locality, step.micro_batches(), rates)?;
            Ok(Priced { op, cost, locality: locality.clone() })
        })
        .collect()
}

/// Whether a group of the axis is on one node.
pub(super) fn is_inside(layout: &Layout, axis: Axis, ranks_per_node: u32) -> bool {
    localities(layout, &[axis], ranks_per_node).get(&axis).is_some_and(|locality| locality.nodes_spanned == 1)
}
