//! A step in the report's JSON document: base units in the names, `null` where there is no number.

use super::{Crossover, Family, StepOp, StepView, Totals};
use crate::report::columns::collective;
use crate::report::document::Block;
use crate::report::row::Row;
use crate::report::template::blocks;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::Span;
use commgauge_base::units::{Bytes, Seconds};
use commgauge_model::workload::{Crossing, StepFacts};
use commgauge_plan::planner::rank::{Order, OrderPlace, Rule, TIE};
use minijinja::value::Serde;
use schemars::JsonSchema;
use serde::Serialize;

/// One step.
#[derive(JsonSchema, Serialize)]
pub(in crate::report) struct JsonStep<'a> {
    #[serde(flatten)]
    facts: &'a StepFacts,
    ops: Vec<JsonOp<'a>>,
    whole: JsonTotals,
    axes: Vec<JsonTotals>,
    styles: Vec<JsonTotals>,
    rankings: Vec<JsonRanking>,
    crossovers: Vec<JsonCrossover>,
}

#[derive(JsonSchema, Serialize)]
struct JsonOp<'a> {
    case: &'a str,
    status: &'static str,
    axis: &'static str,
    style: &'static str,
    collective: &'static str,
    /// The collective and what else distinguishes two calls of it.
    call: String,
    element_type: &'static str,
    group_size: u32,
    groups: u32,
    bytes_total: Bytes,
    bytes_per_rank: Bytes,
    every_micro_batch: bool,
    count_per_step: u64,
    payload_bytes_per_step: Bytes,
    wire_bytes_per_step: Bytes,
    exposed: bool,
    overlaps_with: Option<&'a str>,
    why: &'a str,
    cadence: Option<Cadence>,
    seconds_per_call_median: Option<f64>,
    seconds_per_call_interval_low: Option<f64>,
    seconds_per_call_interval_high: Option<f64>,
    seconds_per_step_median: Option<f64>,
    seconds_per_step_interval_low: Option<f64>,
    seconds_per_step_interval_high: Option<f64>,
    share: Option<f64>,
}

#[derive(JsonSchema, Serialize)]
struct JsonTotals {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'static str,
    payload_bytes_per_step: Bytes,
    wire_bytes_per_step: Bytes,
    ops: usize,
    ops_without_a_time: usize,
    /// Time of the calls that have one.
    known_seconds_per_step: Seconds,
    exposed_ops: usize,
    exposed_ops_without_a_time: usize,
    known_exposed_seconds_per_step: Seconds,
    seconds_per_step_median: Option<f64>,
    seconds_per_step_interval_low: Option<f64>,
    seconds_per_step_interval_high: Option<f64>,
    exposed_seconds_per_step_median: Option<f64>,
    exposed_seconds_per_step_interval_low: Option<f64>,
    exposed_seconds_per_step_interval_high: Option<f64>,
}

#[derive(JsonSchema, Serialize)]
struct JsonRanking {
    by: &'static str,
    order: Vec<JsonPlace>,
    /// The order in words: `>` is sure, `=` a tie, `?` not known.
    text: String,
    rule: &'static str,
    rule_text: String,
}

#[derive(JsonSchema, Serialize)]
struct JsonPlace {
    parallelism: &'static str,
    ties_with_next: Option<bool>,
}

#[derive(JsonSchema, Serialize)]
struct JsonCrossover {
    between: [&'static str; 2],
    by_wire_bytes: JsonCrossing,
    by_time: JsonCrossing,
}

#[derive(JsonSchema, Serialize)]
struct JsonCrossing {
    tokens_per_replica: Option<f64>,
    tokens_per_replica_interval_low: Option<f64>,
    tokens_per_replica_interval_high: Option<f64>,
    larger_above: Option<&'static str>,
    always_larger: Option<&'static str>,
}

/// Median and ends of the interval.
pub(in crate::report) fn parts(span: Option<Span>) -> [Option<f64>; 3] {
    let interval = span.and_then(|span| span.interval);
    [span.map(|span| span.middle), interval.map(|interval| interval.low), interval.map(|interval| interval.high)]
}

impl<'a> JsonStep<'a> {
    /// The step, with the rows that its times came from.
    pub(in crate::report) fn new(step: &'a StepView, rows: &'a [Row]) -> JsonStep<'a> {
        JsonStep {
            facts: &step.facts,
            ops: step.ops.iter().filter_map(|op| json_op(step, op, rows.get(op.row)?)).collect(),
            whole: json_totals(&step.whole),
            axes: step.axes.iter().map(json_totals).collect(),
            styles: step.styles.iter().map(json_totals).collect(),
            rankings: step.rankings.iter().map(json_ranking).collect(),
            crossovers: step.crossovers.iter().map(json_crossover).collect(),
        }
    }
}

fn json_op<'a>(step: &StepView, op: &'a StepOp, row: &'a Row) -> Option<JsonOp<'a>> {
    let facts = &row.facts;
    let (call, cost) = (parts(op.seconds_per_call), parts(op.seconds_per_step()));
    Some(JsonOp {
        case: &facts.name,
        status: row.status.label(),
        axis: op.axis.name(),
        style: op.used.style.name(),
        collective: facts.collective.name(),
        call: collective(row),
        element_type: facts.element_type.name(),
        group_size: facts.group_size,
        groups: facts.groups,
        bytes_total: facts.bytes_total,
        bytes_per_rank: facts.bytes_per_rank,
        every_micro_batch: op.every_micro_batch(),
        count_per_step: op.used.count_per_step,
        payload_bytes_per_step: op.payload_bytes_per_step,
        wire_bytes_per_step: op.used.wire_bytes_per_step,
        exposed: op.used.exposed,
        overlaps_with: op.overlaps_with(),
        why: &op.used.why,
        cadence: op.seconds_per_call.map(|_| op.cadence),
        seconds_per_call_median: call[0],
        seconds_per_call_interval_low: call[1],
        seconds_per_call_interval_high: call[2],
        seconds_per_step_median: cost[0],
        seconds_per_step_interval_low: cost[1],
        seconds_per_step_interval_high: cost[2],
        share: step.share(op),
    })
}

fn json_totals(totals: &Totals) -> JsonTotals {
    let (time, exposed) = (parts(totals.time.complete()), parts(totals.exposed_time.complete()));
    JsonTotals {
        name: totals.name,
        payload_bytes_per_step: totals.payload_bytes_per_step,
        wire_bytes_per_step: totals.wire_bytes_per_step,
        ops: totals.time.ops,
        ops_without_a_time: totals.time.without_a_time,
        known_seconds_per_step: Seconds(totals.time.known_seconds.middle),
        exposed_ops: totals.exposed_time.ops,
        exposed_ops_without_a_time: totals.exposed_time.without_a_time,
        known_exposed_seconds_per_step: Seconds(totals.exposed_time.known_seconds.middle),
        seconds_per_step_median: time[0],
        seconds_per_step_interval_low: time[1],
        seconds_per_step_interval_high: time[2],
        exposed_seconds_per_step_median: exposed[0],
        exposed_seconds_per_step_interval_low: exposed[1],
        exposed_seconds_per_step_interval_high: exposed[2],
    }
}

fn json_ranking(ranking: &Order) -> JsonRanking {
    let place = |place: &OrderPlace| JsonPlace {
        parallelism: place.family.name(),
        ties_with_next: place.probability_above_next.map(|probability| probability < TIE),
    };
    let rule = match ranking.rule {
        Rule::Holds | Rule::DoesNotHold if ranking.rule_probability.is_none() => "too few samples",
        Rule::NotKnown => "incomplete",
        rule => rule.name(),
    };
    JsonRanking {
        by: ranking.measure.name(),
        order: ranking.places.iter().map(place).collect(),
        text: ranking.text(),
        rule,
        rule_text: ranking.rule_text(),
    }
}

fn json_crossover(crossover: &Crossover) -> JsonCrossover {
    let [a, b] = crossover.families;
    JsonCrossover {
        between: [a.name(), b.name()],
        by_wire_bytes: json_crossing(&crossover.wire),
        by_time: json_crossing(&crossover.time),
    }
}

fn json_crossing(crossing: &Crossing) -> JsonCrossing {
    let (tokens, larger_above, always_larger) = match crossing {
        Crossing::At { tokens, larger_above } => (Some(*tokens), Some(*larger_above), None),
        Crossing::Never(larger) => (None, None, Some(*larger)),
        Crossing::Unknown => (None, None, None),
    };
    let [middle, low, high] = parts(tokens);
    JsonCrossing {
        tokens_per_replica: middle,
        tokens_per_replica_interval_low: low,
        tokens_per_replica_interval_high: high,
        larger_above: larger_above.map(Family::name),
        always_larger: always_larger.map(Family::name),
    }
}

/// The step for people, with the rows that its times came from: its calls, the totals of axes and styles, the rule TP > DP > PP, and where
/// the order flips.
pub(in crate::report) fn document(step: &StepView, rows: &[Row]) -> Vec<Block> {
    blocks("step.txt", include_str!("../templates/step.txt"), Serde(JsonStep::new(step, rows)).into())
}
