//! Which parallelism of a layout costs most: by payload, wire bytes, predicted time and exposed time, how sure the order is, at
//! how many tokens it turns round, and what another order of the axes would change.
//!
//! Every axis is seen from the rank that it loads most, as `commgauge ops` does. Times are those of calls one after another:
//! all of them (nothing hidden), and those that nothing hides.

mod draws;
mod moves;
mod order;
mod priced;
#[cfg(test)]
mod tests;

pub use moves::{Change, Move, Moves};
pub use order::{Order, OrderPlace, Rule, TIE};
pub use priced::RankOptions;

use super::communication::{AxisCost, OpCost, localities};
use super::rates::{RatedCall, Rates};
use commgauge_base::error::Result;
use commgauge_base::stats::Span;
use commgauge_model::layout::{Axis, Locality};
use commgauge_model::workload::step::Step;
use commgauge_model::workload::when::When;
use commgauge_model::workload::{Crossing, Family, Measure, Op, Spending, crossing};
use draws::Draws;
use priced::{Priced, priced};

/// The parallelisms of a step in a layout, ranked.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// Every axis on which the step communicates.
    pub axes: Vec<RankedAxis>,
    /// One for each measure.
    pub orders: Vec<Order>,
    /// Crossings of pairs of parallelisms: every pair that crosses, and those of TP, DP and PP in any case.
    pub flips: Vec<Flip>,
    /// The effect of other orders of the axes.
    pub moves: Moves,
}

/// An axis, and the basis of the time of its costliest call.
#[derive(Clone, Debug, PartialEq)]
pub struct RankedAxis {
    /// What it costs.
    pub cost: AxisCost,
    /// The pipeline stage of the rank that it loads most.
    pub stage: u32,
    /// Source of the time of its costliest call.
    pub ground: String,
}

/// Crossing of two parallelisms by one measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Flip {
    /// The two.
    pub families: (Family, Family),
    /// The measure.
    pub measure: Measure,
    /// The crossing.
    pub crossing: Crossing,
}

/// Ranks the parallelisms of a step on nodes of this many ranks, neighbours in world rank.
///
/// # Errors
/// If the ops of the step cannot be generated, or bytes pass 64 bits.
pub fn rank(step: &Step, ranks_per_node: u32, rates: &dyn Rates, options: RankOptions) -> Result<Ranked> {
    let chosen = step.ops(|_| true)?;
    let axes: Vec<Axis> = chosen.axes.iter().map(|totals| totals.axis).collect();
    let priced = priced(step, &chosen.ops, &localities(step.layout(), &axes, ranks_per_node), rates)?;
    let mut draws = Draws::new(options);
    let ranked = chosen.axes.iter().map(|totals| {
        let of_axis: Vec<&Priced> = priced.iter().filter(|op| op.op.axis == totals.axis).collect();
        RankedAxis { cost: axis_cost(&of_axis, totals.axis), stage: totals.stage, ground: ground(&of_axis, rates) }
    });
    Ok(Ranked {
        axes: ranked.collect(),
        orders: Measure::ALL.into_iter().map(|measure| Order::of(measure, &priced, &mut draws)).collect(),
        flips: flips(step, &priced),
        moves: Moves::of(step, &chosen.ops, &axes, ranks_per_node, rates, &mut draws)?,
    })
}

/// A call of a step, and the placement of its groups.
#[derive(Clone, Debug)]
pub struct PlacedCall {
    /// The call; its number does not depend on micro-batches.
    pub op: Op,
    /// Ranks of a group.
    pub ranks: u32,
    /// Placement of its groups.
    pub locality: Locality,
}

/// The parallelisms of some calls by each measure, each call in its own place.
///
/// # Errors
/// Bytes that pass 64 bits.
pub fn orders_of(calls: &[PlacedCall], rates: &dyn Rates, options: RankOptions) -> Result<Vec<Order>> {
    let price = |call: &'_ PlacedCall| OpCost::of(&call.op, call.ranks, &call.locality, 1, rates);
    let costs = calls.iter().map(price).collect::<Result<Vec<_>>>()?;
    let with_cost = calls.iter().zip(costs);
    let priced: Vec<Priced> =
        with_cost.map(|(call, cost)| Priced { op: &call.op, cost, locality: call.locality.clone() }).collect();
    let mut draws = Draws::new(options);
    Ok(Measure::ALL.into_iter().map(|measure| Order::of(measure, &priced, &mut draws)).collect())
}

fn axis_cost(priced: &[&Priced], axis: Axis) -> AxisCost {
    let (ranks, locality) = priced.first().map_or((1, Locality::UNKNOWN), |op| (op.cost.ranks, op.locality.clone()));
    let mut cost = AxisCost::nothing(axis, ranks, locality);
    priced.iter().for_each(|op| cost.add(op.op, &op.cost));
    cost
}

fn ground(priced: &[&Priced], rates: &dyn Rates) -> String {
    let seconds = |op: &&Priced| op.cost.time().map_or(0.0, |time| time.middle);
    let costliest = priced.iter().copied().max_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    costliest.map_or_else(String::new, |op| rates.ground(&RatedCall::of(op.op, op.cost.ranks, &op.locality)))
}

fn flips(step: &Step, priced: &[Priced]) -> Vec<Flip> {
    let tokens = step.tokens_per_replica();
    let of_micro_batch = tokens / step.micro_batches().max(1);
    let there: Vec<Family> = Family::ALL
        .into_iter()
        .filter(|family| priced.iter().any(|op| Family::of(op.op.axis) == Some(*family)))
        .collect();
    let mut flips = Vec::new();
    for (index, &a) in there.iter().enumerate() {
        for &b in &there[index + 1..] {
            for measure in Measure::ALL {
                let both = spending(step, priced, a, measure).zip(spending(step, priced, b, measure));
                let crossing = both.map_or(Crossing::Unknown, |(a, b)| crossing(&a, &b, tokens, of_micro_batch));
                let of_rule = Family::RULE.contains(&a) && Family::RULE.contains(&b);
                if of_rule || matches!(crossing, Crossing::At { .. }) {
                    flips.push(Flip { families: (a, b), measure, crossing });
                }
            }
        }
    }
    flips
}

fn spending(step: &Step, priced: &[Priced], family: Family, measure: Measure) -> Option<Spending> {
    let sum = |every_micro_batch: bool| {
        let chosen = priced.iter().filter(|op| Family::of(op.op.axis) == Some(family));
        let chosen = chosen.filter(|op| grows(step, op.op, measure) == every_micro_batch);
        chosen.map(|op| op.amount(measure)).try_fold(Span::exact(0.0), |sum, amount| Some(sum.plus(amount?)))
    };
    Some(Spending { family, every_micro_batch: sum(true)?, once: sum(false)? })
}

/// Whether the number of such calls grows with the number of micro-batches. All messages between stages do; exposed
/// messages only if the schedule has no steady state, since they occur while the pipeline fills and drains.
fn grows(step: &Step, op: &Op, measure: Measure) -> bool {
    use commgauge_model::config::step::ScheduleKind::{GPipe, Naive};
    match op.when {
        When::Step { .. } | When::Outside => false,
        When::Boundary { .. } if measure == Measure::ExposedTime => match step {
            Step::Training(training) => matches!(training.training.pipeline.schedule, GPipe | Naive),
            Step::Serving(_) => true,
        },
        _ => true,
    }
}
