//! What each parallelism costs in a step of the suite's model, and the order that follows: from the calls of the step
//! that the plan ranks, or of the measured step with the most parallelisms.

use crate::report::row::Row;
use crate::report::step::{StepView, parts};
use crate::report::view::View;
use commgauge_base::collective::Collective;
use commgauge_base::error::Error;
use commgauge_base::geometry::Splits;
use commgauge_base::stats::Span;
use commgauge_base::units::Bytes;
use commgauge_model::layout::{Axis, Locality};
use commgauge_model::record::line::CaseFacts;
use commgauge_model::workload::{Family, Measure, Op, RankedCall, RankedStep, StepFacts};
use commgauge_plan::planner::communication::OpCost;
use commgauge_plan::planner::rank::{Order, OrderPlace, Priced, RankOptions, Rule, orders_of, text_of};
use commgauge_plan::planner::rates::{Observed, ObservedCall, RatedCall};
use schemars::JsonSchema;
use serde::Serialize;

/// The parallelisms of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// The step.
    pub step: StepFacts,
    /// True where the run has enough ranks for the layout, so that its own calls were timed; else predicted from
    /// measured calls.
    pub measured: bool,
    /// Ranks of the run.
    pub ranks: u32,
    /// Every parallelism of the layout that communicates: those with a time first, the costliest first.
    pub families: Vec<FamilyCost>,
    /// `DP > TP = PP`, of those with a time.
    pub order: String,
    /// Whether TP > DP > PP holds, as a sentence.
    pub rule: String,
}

/// A parallelism, and what it costs or why that is not known.
#[derive(Clone, Debug, PartialEq)]
pub struct FamilyCost {
    /// The parallelism.
    pub family: Family,
    /// Seconds per step: all of its calls in sequence, and the exposed ones.
    pub seconds: Result<(Span, Span), String>,
}

/// The costs, or one line on how to get them.
pub(super) fn of(view: &View, program: &str) -> Result<Costs, String> {
    let backend = if view.header.backend.name == "nccl" { " --backend nccl" } else { "" };
    let no_model = || {
        format!(
            "Which parallelism costs most: this run has no step of a model; `{program} run quick{backend}` ranks TP, DP, PP, CP and EP"
        )
    };
    let ranked = match &view.ranking {
        Some(step) => Ranked::predicted(step, view).map_err(|error| error.to_string())?,
        None => Ranked::measured(view).ok_or_else(no_model)?,
    };
    let order_by = |measure: Measure| ranked.orders.iter().find(|order| order.measure == measure);
    let (Some(by_time), Some(by_exposed)) = (order_by(Measure::Time), order_by(Measure::ExposedTime)) else {
        return Err(no_model());
    };
    let ranks = view.header.world_size;
    let own = |family: Family| ranked.calls.iter().filter(move |(axis, _)| Family::of(*axis) == Some(family));
    let cost_of = |family: Family| {
        let reason = own(family).find_map(|(_, reason)| reason.clone());
        let seconds = reason.map_or_else(|| Ok((value(by_time, family), value(by_exposed, family))), Err);
        FamilyCost { family, seconds }
    };
    let communicates = |family: &Family| own(*family).next().is_some();
    let mut families: Vec<FamilyCost> = Family::ALL.into_iter().filter(communicates).map(cost_of).collect();
    families.sort_by(|a, b| middle(b).total_cmp(&middle(a)));
    let timed: Vec<OrderPlace> =
        by_time.places.iter().filter(|place| known(&families, place.family)).copied().collect();
    let measured = ranked.facts.degrees.world() == u64::from(ranks);
    let (order, rule) = (text_of(&timed), rule(by_time, &families));
    Ok(Costs { step: ranked.facts, measured, ranks, rule, families, order })
}

pub(super) fn middle(cost: &FamilyCost) -> f64 {
    cost.seconds.as_ref().map_or(-1.0, |(time, _)| time.middle)
}

fn known(families: &[FamilyCost], family: Family) -> bool {
    families.iter().any(|cost| cost.family == family && cost.seconds.is_ok())
}

fn value(order: &Order, family: Family) -> Span {
    let place = order.places.iter().find(|place| place.family == family);
    place.map_or(Span::exact(0.0), |place| place.value)
}

/// A step, ranked.
struct Ranked {
    facts: StepFacts,
    /// The axis of every call, and why it has no time.
    calls: Vec<(Axis, Option<String>)>,
    orders: Vec<Order>,
}

impl Ranked {
    /// A step that the ranks do not hold, from the calls that they measured.
    fn predicted(step: &RankedStep, view: &View) -> Result<Ranked, Error> {
        let (observed, ranks) = (observed(view), view.header.world_size);
        let ops: Vec<Op> = step.calls.iter().map(RankedCall::op).collect();
        let (mut calls, mut priced) = (Vec::new(), Vec::new());
        for (call, op) in step.calls.iter().zip(&ops) {
            let locality = locality(call, &view.rows);
            let cost = OpCost::of(op, call.group_size, &locality, 1, &observed)?;
            let what = called(call.axis, call.collective, call.bytes_total);
            let reason = match call.measured_as(ranks).is_empty() {
                true => format!("not measured: {what} needs groups of {} ranks, the run has {ranks}", call.group_size),
                false => format!("not known: {what} has no time"),
            };
            calls.push((call.axis, cost.time().is_none().then_some(reason)));
            priced.push(Priced { op, cost, locality });
        }
        Ok(Ranked { facts: step.facts.clone(), calls, orders: orders_of(&priced, RankOptions::default()) })
    }

    /// The step of which most parallelisms were measured, the first of several.
    fn measured(view: &View) -> Option<Ranked> {
        let families = |step: &&StepView| {
            let is_there = |family: &&Family| step.ops.iter().any(|op| Family::of(op.axis) == Some(**family));
            Family::ALL.iter().filter(is_there).count()
        };
        let step = view.steps.iter().filter(|step| families(step) > 0).rev().max_by_key(families)?;
        let calls = step.ops.iter().map(|op| {
            let facts = &view.rows[op.row].facts;
            let what = || called(op.axis, facts.collective, facts.bytes_total);
            (op.axis, op.seconds_per_call.is_none().then(|| format!("not known: {} has no time", what())))
        });
        Some(Ranked { facts: step.facts.clone(), calls: calls.collect(), orders: step.rankings.clone() })
    }
}

fn rule(order: &Order, families: &[FamilyCost]) -> String {
    let sure = |probability: Option<f64>| match probability {
        None => " by the medians; too few replicates to say how sure".to_owned(),
        Some(probability) => format!(", {:.0} % sure", (100.0 * probability).min(99.0)),
    };
    let names: Vec<&str> = order.of_rule.iter().map(|place| place.family.name()).collect();
    let missing: Vec<&str> =
        Family::RULE.into_iter().filter(|family| !known(families, *family)).map(Family::name).collect();
    match order.rule {
        Rule::Holds => format!("TP > DP > PP holds{}.", sure(order.rule_probability)),
        Rule::DoesNotHold => {
            let against = order.rule_probability.map(|holds| 1.0 - holds);
            format!("TP > DP > PP does not hold: {}{}.", names.join(" > "), sure(against))
        }
        Rule::Tie => "TP > DP > PP: cannot be decided, the intervals overlap.".to_owned(),
        Rule::NotKnown => format!("TP > DP > PP: not known without {}.", missing.join(" and ")),
        Rule::NothingToCompare => "TP > DP > PP: nothing to compare, fewer than two of them communicate.".to_owned(),
    }
}

fn called(axis: Axis, collective: Collective, bytes: Bytes) -> String {
    format!("{} {collective} of {bytes}", Family::of(axis).map_or("", Family::name))
}

/// Where the groups of a call's axis lay.
fn locality(call: &RankedCall, rows: &[Row]) -> Locality {
    let same = |row: &&Row| (row.facts.axis, row.facts.collective) == (call.axis, call.collective);
    rows.iter().find(same).map_or(Locality::UNKNOWN, |row| row.facts.locality.clone())
}

/// Every row with a time, except those on one group alone or with a non-default variant.
fn observed(view: &View) -> Observed {
    let usual = |row: &&Row| row.facts.solo_of.is_none() && row.facts.labels.is_empty();
    let calls = view.rows.iter().filter(usual).filter_map(|row| {
        let latency = row.latency?;
        let interval = latency.interval.map(|interval| interval.map(|seconds| seconds.0));
        let seconds = Span { middle: latency.median.0, interval }.times(f64::from(row.facts.transfers_per_call));
        Some(ObservedCall { call: rated(&row.facts), seconds })
    });
    Observed { calls: calls.collect(), synthetic: view.header.backend.synthetic }
}

fn rated(facts: &CaseFacts) -> RatedCall {
    let op = Op::new(facts.style, facts.axis, facts.collective, facts.element_type, facts.bytes_total.0);
    let op = Op { splits: facts.splits.clone().unwrap_or(Splits::Equal), ..op };
    RatedCall { cadence: Some(facts.cadence), ..RatedCall::of(&op, facts.group_size, &facts.locality) }
}

// The costs of a step's parallelisms in the report's JSON document: base units in the names, `null` where there is no number.

/// What each parallelism costs in a step, and whether TP > DP > PP holds.
#[derive(JsonSchema, Serialize)]
pub(in crate::report) struct JsonCosts {
    step: StepFacts,
    /// Whether the ranks of the run hold the layout; else the costs are predicted from the measured calls.
    measured: bool,
    parallelisms: Vec<JsonFamily>,
    /// `>` is sure (95 %), `=` a tie, `?` not known.
    order: String,
    /// The verdict on TP > DP > PP, as a sentence.
    rule: String,
}

#[derive(JsonSchema, Serialize)]
struct JsonFamily {
    parallelism: &'static str,
    /// Why it has no cost.
    reason: Option<String>,
    seconds_per_step: Option<f64>,
    seconds_per_step_interval_low: Option<f64>,
    seconds_per_step_interval_high: Option<f64>,
    exposed_seconds_per_step: Option<f64>,
    exposed_seconds_per_step_interval_low: Option<f64>,
    exposed_seconds_per_step_interval_high: Option<f64>,
}

impl JsonCosts {
    /// Of a record that ranks a step.
    pub(in crate::report) fn of(view: &View) -> Option<JsonCosts> {
        view.ranking.as_ref()?;
        let Costs { step, measured, families, order, rule, .. } = of(view, "commgauge").ok()?;
        Some(JsonCosts { step, measured, parallelisms: families.into_iter().map(json_family).collect(), order, rule })
    }
}

fn json_family(cost: FamilyCost) -> JsonFamily {
    let (time, exposed) = cost.seconds.as_ref().map_or((None, None), |(time, exposed)| (Some(*time), Some(*exposed)));
    let (time, exposed) = (parts(time), parts(exposed));
    JsonFamily {
        parallelism: cost.family.name(),
        seconds_per_step: time[0],
        seconds_per_step_interval_low: time[1],
        seconds_per_step_interval_high: time[2],
        exposed_seconds_per_step: exposed[0],
        exposed_seconds_per_step_interval_low: exposed[1],
        exposed_seconds_per_step_interval_high: exposed[2],
        reason: cost.seconds.err(),
    }
}
