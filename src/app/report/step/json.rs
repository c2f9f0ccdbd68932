//! A step in the report's JSON document: base units in the names, `null` where there is no number.

use super::crossover::Crossover;
use super::op::StepOp;
use super::ranking::{Ranking, Rule};
use super::totals::Totals;
use super::{Family, StepView};
use crate::report::row::Row;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::Span;
use commgauge_base::units::Bytes;
use commgauge_model::workload::Crossing;
use commgauge_model::workload::StepFacts;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use std::borrow::Cow;

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
    #[serde(flatten)]
    call: JsonSeconds<Call>,
    #[serde(flatten)]
    cost: JsonSeconds<Step>,
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
    #[serde(flatten)]
    time: JsonSeconds<Step>,
    #[serde(flatten)]
    exposed: JsonSeconds<Exposed>,
}

#[derive(JsonSchema, Serialize)]
struct JsonRanking {
    by: &'static str,
    order: Vec<JsonPlace>,
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

/// Median and interval under names of their own, each in seconds.
struct JsonSeconds<Name> {
    span: Option<Span>,
    name: std::marker::PhantomData<Name>,
}

trait Names {
    const NAMES: [&'static str; 3];
}

struct Call;
struct Step;
struct Exposed;

impl Names for Call {
    const NAMES: [&'static str; 3] =
        ["seconds_per_call_median", "seconds_per_call_interval_low", "seconds_per_call_interval_high"];
}

impl Names for Step {
    const NAMES: [&'static str; 3] =
        ["seconds_per_step_median", "seconds_per_step_interval_low", "seconds_per_step_interval_high"];
}

impl Names for Exposed {
    const NAMES: [&'static str; 3] = [
        "exposed_seconds_per_step_median",
        "exposed_seconds_per_step_interval_low",
        "exposed_seconds_per_step_interval_high",
    ];
}

impl<Name: Names> Serialize for JsonSeconds<Name> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let interval = self.span.and_then(|span| span.interval);
        let values = [self.span.map(|span| span.middle), interval.map(|i| i.low), interval.map(|i| i.high)];
        serializer.collect_map(Name::NAMES.into_iter().zip(values))
    }
}

impl<Name: Names> JsonSchema for JsonSeconds<Name> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Name::NAMES[0].into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let number = || serde_json::json!({"type": ["number", "null"], "format": "double"});
        let properties: serde_json::Map<String, serde_json::Value> =
            Name::NAMES.iter().map(|name| ((*name).to_owned(), number())).collect();
        json_schema!({"type": "object", "properties": properties, "required": Name::NAMES})
    }
}

fn seconds<Name>(span: Option<Span>) -> JsonSeconds<Name> {
    JsonSeconds { span, name: std::marker::PhantomData }
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
    Some(JsonOp {
        case: &facts.name,
        status: row.status.label(),
        axis: op.axis.name(),
        style: op.style.name(),
        collective: facts.collective.name(),
        element_type: facts.element_type.name(),
        group_size: facts.group_size,
        groups: facts.groups,
        bytes_total: facts.bytes_total,
        bytes_per_rank: facts.bytes_per_rank,
        every_micro_batch: op.every_micro_batch,
        count_per_step: op.count_per_step,
        payload_bytes_per_step: op.payload_bytes_per_step,
        wire_bytes_per_step: op.wire_bytes_per_step,
        exposed: op.exposed(),
        overlaps_with: op.overlaps_with.as_deref(),
        why: &op.why,
        cadence: op.seconds_per_call.map(|_| op.cadence),
        call: seconds(op.seconds_per_call),
        cost: seconds(op.seconds_per_step()),
        share: step.share(op),
    })
}

fn json_totals(totals: &Totals) -> JsonTotals {
    JsonTotals {
        name: totals.name,
        payload_bytes_per_step: totals.payload_bytes_per_step,
        wire_bytes_per_step: totals.wire_bytes_per_step,
        ops: totals.time.ops,
        ops_without_a_time: totals.time.without_a_time,
        time: seconds(totals.time.complete()),
        exposed: seconds(totals.exposed_time.complete()),
    }
}

fn json_ranking(ranking: &Ranking) -> JsonRanking {
    let place =
        |place: &super::Place| JsonPlace { parallelism: place.family.name(), ties_with_next: place.ties_with_next };
    let rule = match ranking.rule {
        Rule::Holds => "holds",
        Rule::DoesNotHold(_) => "does not hold",
        Rule::Tie(_) => "tie",
        Rule::TooFewSamples => "too few samples",
        Rule::Incomplete(_) => "incomplete",
        Rule::NothingToCompare => "nothing to compare",
    };
    JsonRanking {
        by: ranking.measure.name(),
        order: ranking.order.iter().map(place).collect(),
        rule,
        rule_text: ranking.rule.text(),
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
    let interval = tokens.and_then(|tokens| tokens.interval);
    JsonCrossing {
        tokens_per_replica: tokens.map(|tokens| tokens.middle),
        tokens_per_replica_interval_low: interval.map(|interval| interval.low),
        tokens_per_replica_interval_high: interval.map(|interval| interval.high),
        larger_above: larger_above.map(Family::name),
        always_larger: always_larger.map(Family::name),
    }
}
