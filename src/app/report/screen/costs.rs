//! What each parallelism costs in a step of the suite's model, and the order that follows: from the calls of the step
//! that the plan ranks, or of the measured step with the most parallelisms.

use crate::report::row::Row;
use crate::report::step::{StepView, parts};
use crate::report::view::View;
use commgauge_base::stats::Span;
use commgauge_model::layout::Locality;
use commgauge_model::record::line::CaseFacts;
use commgauge_model::workload::{Family, Measure, RankedCall, RankedStep, StepFacts};
use commgauge_plan::planner::communication::OpCost;
use commgauge_plan::planner::rank::{Order, PlacedCall, RankOptions, Rule, orders_of};
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
    /// Every parallelism: those with a time first, the costliest first.
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
    let step = view.ranking.clone().or_else(|| of_a_measured_step(view)).ok_or_else(no_model)?;
    let measured = step.facts.degrees.world() == u64::from(view.header.world_size);
    let observed = observed(view);
    let calls: Vec<PlacedCall> = step.calls.iter().map(|call| placed(call, &view.rows)).collect();
    let orders = orders_of(&calls, &observed, RankOptions::default()).map_err(|error| error.to_string())?;
    let order_by = |measure: Measure| orders.iter().find(|order| order.measure == measure);
    let (Some(by_time), Some(by_exposed)) = (order_by(Measure::Time), order_by(Measure::ExposedTime)) else {
        return Err(no_model());
    };
    let ranks = view.header.world_size;
    let mut families: Vec<FamilyCost> = Family::ALL
        .into_iter()
        .map(|family| {
            let own: Vec<OwnCall> = (step.calls.iter().zip(&calls))
                .map(|(ranked, placed)| OwnCall { ranked, placed })
                .filter(|call| Family::of(call.ranked.axis) == Some(family))
                .collect();
            let seconds = match reason_for_missing_cost(family, &own, &step.facts, &observed, ranks) {
                Some(reason) => Err(reason),
                None => Ok((value(by_time, family), value(by_exposed, family))),
            };
            FamilyCost { family, seconds }
        })
        .collect();
    families.sort_by(|a, b| middle(b).total_cmp(&middle(a)));
    let timed = by_time.places.iter().filter(|place| known(&families, place.family)).copied().collect();
    let order = Order { places: timed, ..by_time.clone() }.text();
    Ok(Costs { step: step.facts, measured, ranks, rule: rule(by_time, &families), families, order })
}

fn middle(cost: &FamilyCost) -> f64 {
    cost.seconds.as_ref().map_or(-1.0, |(time, _)| time.middle)
}

fn known(families: &[FamilyCost], family: Family) -> bool {
    families.iter().any(|cost| cost.family == family && cost.seconds.is_ok())
}

fn value(order: &Order, family: Family) -> Span {
    let place = order.places.iter().find(|place| place.family == family);
    place.map_or(Span::exact(0.0), |place| place.value)
}

/// A call of a parallelism, as it is ranked and where its groups lie.
struct OwnCall<'a> {
    ranked: &'a RankedCall,
    placed: &'a PlacedCall,
}

/// Why a parallelism has no cost: it is not in the layout, or a call has no time.
fn reason_for_missing_cost(
    family: Family,
    own: &[OwnCall],
    facts: &StepFacts,
    observed: &Observed,
    ranks: u32,
) -> Option<String> {
    if own.is_empty() {
        return Some(format!("not in this layout, {}", facts.layout));
    }
    let lacking = own.iter().find(|OwnCall { placed, .. }| {
        OpCost::of(&placed.op, placed.ranks, &placed.locality, 1, observed).is_ok_and(|cost| cost.time().is_none())
    });
    lacking.map(|OwnCall { ranked, placed: call }| {
        let what = format!("{} {} of {}", family.name(), call.op.collective, call.op.bytes_total);
        match ranked.measured_as(ranks).is_empty() {
            true => format!("not measured: {what} needs groups of {} ranks, the run has {ranks}", call.ranks),
            false => format!("not known: {what} has no time"),
        }
    })
}

fn rule(order: &Order, families: &[FamilyCost]) -> String {
    let sure = |probability: Option<f64>| {
        probability.map_or_else(
            || " by the medians; how sure that is, is not known".to_owned(),
            |probability| format!(" ({:.0} % sure)", (100.0 * probability).min(99.0)),
        )
    };
    let of_rule = order.places.iter().filter(|place| Family::RULE.contains(&place.family));
    let found = Order { places: of_rule.copied().collect(), ..order.clone() };
    let names: Vec<&str> = found.places.iter().map(|place| place.family.name()).collect();
    let missing: Vec<&str> =
        Family::RULE.into_iter().filter(|family| !known(families, *family)).map(Family::name).collect();
    match order.rule {
        Rule::Holds => format!("TP > DP > PP holds here{}.", sure(order.rule_probability)),
        Rule::DoesNotHold => {
            let against = order.rule_probability.map(|holds| 1.0 - holds);
            format!("TP > DP > PP does not hold here{}: {}.", sure(against), names.join(" > "))
        }
        Rule::Tie => "Whether TP > DP > PP holds here cannot be decided: the intervals overlap.".to_owned(),
        Rule::NotKnown => format!("Whether TP > DP > PP holds here is not known without {}.", missing.join(" and ")),
        Rule::NothingToCompare => "TP > DP > PP: nothing to compare, as fewer than two of them communicate.".to_owned(),
    }
}

/// The step of which most parallelisms were measured, the first of several.
fn of_a_measured_step(view: &View) -> Option<RankedStep> {
    let steps = view.steps.iter().map(|step| ranked(step, &view.rows));
    let families = |step: &RankedStep| {
        Family::ALL
            .iter()
            .filter(|family| step.calls.iter().any(|call| Family::of(call.axis) == Some(**family)))
            .count()
    };
    steps.filter(|step| families(step) > 0).rev().max_by_key(families)
}

fn ranked(step: &StepView, rows: &[Row]) -> RankedStep {
    let calls = step.ops.iter().filter_map(|op| {
        let facts = &rows.get(op.row)?.facts;
        Family::of(op.axis)?;
        Some(RankedCall {
            style: op.style,
            axis: op.axis,
            count_per_step: op.count_per_step,
            exposed: op.exposed(),
            ..once(facts)
        })
    });
    RankedStep { facts: step.facts.clone(), calls: calls.collect() }
}

/// The call in the place in which its axis was measured.
fn placed(call: &RankedCall, rows: &[Row]) -> PlacedCall {
    let same = |row: &&Row| (row.facts.axis, row.facts.collective) == (call.axis, call.collective);
    let locality = rows.iter().find(same).map_or(Locality::UNKNOWN, |row| row.facts.locality.clone());
    PlacedCall { op: call.op(), ranks: call.group_size, locality }
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

/// A call of a case, as if a step made it once and waited for it.
fn once(facts: &CaseFacts) -> RankedCall {
    RankedCall {
        style: facts.style,
        axis: facts.axis,
        group_size: facts.group_size,
        stride: facts.locality.stride,
        collective: facts.collective,
        element_type: facts.element_type,
        reduce_op: facts.reduce_op,
        bytes_total: facts.bytes_total,
        splits: facts.splits.clone(),
        count_per_step: 1,
        exposed: true,
    }
}

fn rated(facts: &CaseFacts) -> RatedCall {
    let call = once(facts);
    RatedCall { cadence: Some(facts.cadence), ..RatedCall::of(&call.op(), facts.group_size, &facts.locality) }
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
    /// What becomes of TP > DP > PP, as a sentence.
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
