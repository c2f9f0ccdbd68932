//! A step in the report's JSON document: base units in the names, `null` where there is no number.

use super::{Crossover, Family, StepOp, StepView, Sum, Totals};
use crate::report::document::{
    Block, Column, Fields, Table, Tone, gigabytes, optional, percent, range, seconds_range, yes_or_no,
};
use crate::report::row::Row;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::Span;
use commgauge_base::units::{Bytes, Seconds, three_digits};
use commgauge_model::workload::{Crossing, StepFacts};
use commgauge_plan::planner::rank::{Order, OrderPlace, Rule, TIE};
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

// A step: its calls, the totals of axes and styles, the rule TP > DP > PP, and where the order flips.

/// Where a page has all calls.
const WHOLE: &str = "`commgauge report --format json` has every call";

/// The step, with the rows that its times came from.
pub(in crate::report) fn document(step: &StepView, rows: &[crate::report::Row]) -> Vec<Block> {
    let facts = &step.facts;
    let mut all = vec![
        Block::Table(ops(step, rows)),
        Block::list(below_ops(step)),
        Block::Table(totals("axis", &step.axes, &step.whole)),
        Block::Table(totals("style", &step.styles, &step.whole)),
    ];
    // With a single parallelism there is nothing to compare.
    if step.rankings.iter().any(|ranking| ranking.rule != Rule::NothingToCompare) {
        all.push(Block::Table(rankings(&step.rankings)));
    }
    if !step.crossovers.is_empty() {
        let title = format!("tokens of a replica at which the order turns round (here {})", facts.tokens_per_replica);
        all.push(Block::Table(crossovers(title, &step.crossovers)));
    }
    all
}

fn ops(step: &StepView, rows: &[crate::report::Row]) -> Table {
    let facts = &step.facts;
    let title = format!(
        "step: {}, {}, {}: {} micro-batches, {} tokens of a replica",
        facts.model, facts.layout, facts.phase, facts.micro_batches, facts.tokens_per_replica
    );
    let row = |op: &StepOp| rows.get(op.row);
    let called = |op: &StepOp| row(op).map(|row| &row.facts);
    let seconds = |op: &StepOp, span: Option<Span>| match span {
        Some(span) => Seconds(span.middle).to_string(),
        None => row(op).map_or("missing", |row| row.status.label()).to_owned(),
    };
    let tone = |op: &&StepOp| if op.seconds_per_step().is_some() { Tone::Plain } else { Tone::Unsure };
    Fields::of(&step.ops)
        .left("axis", 0, |op| op.axis)
        .left("style", 3, |op| op.used.style.name())
        .left("call", 0, |op| optional(row(op).map(crate::report::columns::collective)))
        .left("type", 5, |op| optional(called(op).map(|facts| facts.element_type)))
        .right("groups x ranks", 6, |op| {
            optional(called(op).map(|facts| format!("{} x {}", facts.groups, facts.group_size)))
        })
        .right("size", 0, |op| optional(called(op).map(|facts| facts.bytes_total)))
        .right("a step", 0, |op| op.used.count_per_step)
        .right("one call", 2, |op| seconds(op, op.seconds_per_call))
        .right("in a step", 0, |op| seconds(op, op.seconds_per_step()))
        .left("[95 %]", 1, |op| optional(op.seconds_per_step().map(seconds_range)))
        .right("share", 0, |op| optional(step.share(op).map(|share| percent(share, 1))))
        .left("exposed", 0, |op| yes_or_no(op.used.exposed))
        .left("hidden by", 7, |op| optional(op.overlaps_with()))
        .right("wire", Column::PAGES_ONLY, |op| gigabytes(op.used.wire_bytes_per_step))
        .left("case", Column::PAGES_ONLY, |op| optional(called(op).map(|facts| &facts.name)))
        .left("why", Column::PAGES_ONLY, |op| op.used.why.clone())
        // A cadence that all have is given in a sentence below.
        .when(cadence_of_all(step).is_none(), |fields| {
            fields.left("taken from", 4, |op| optional(op.seconds_per_call.map(|_| op.cadence)))
        })
        .toned(title, tone)
        .whole_in(WHOLE)
        .folded()
}

/// The cadence that all times were taken from, if it is one.
fn cadence_of_all(step: &StepView) -> Option<Cadence> {
    let mut cadences = step.ops.iter().filter(|op| op.seconds_per_call.is_some()).map(|op| op.cadence);
    let first = cadences.next()?;
    cadences.all(|cadence| cadence == first).then_some(first)
}

fn below_ops(step: &StepView) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(cadence) = cadence_of_all(step) {
        sentences.push(format!("times of one call are those of {cadence} calls"));
    }
    for (what, sum) in
        [("all calls one after another", &step.whole.time), ("the exposed alone", &step.whole.exposed_time)]
    {
        sentences.push(match sum.complete() {
            Some(span) => format!("{what}: {} [{}]", Seconds(span.middle), seconds_range(span)),
            None => format!("{what}: {}", sum_text(sum)),
        });
    }
    sentences
}

fn totals(what: &'static str, totals: &[Totals], whole: &Totals) -> Table {
    let whole = whole.time.complete().filter(|whole| whole.middle > 0.0);
    let share = |totals: &Totals| Some(totals.time.complete()?.middle / whole?.middle);
    let exposed = |totals: &Totals| totals.exposed_time.complete().filter(|_| totals.exposed_time.ops > 0);
    Fields::of(totals)
        .left(what, 0, |totals| totals.name)
        .right("payload", 1, |totals| gigabytes(totals.payload_bytes_per_step))
        .right("wire", 0, |totals| gigabytes(totals.wire_bytes_per_step))
        .right("time", 0, |totals| sum_text(&totals.time))
        .left("[95 %]", 2, |totals| optional(totals.time.complete().map(seconds_range)))
        .right("share", 3, |totals| optional(share(totals).map(|share| percent(share, 1))))
        .right("exposed", 0, |totals| sum_text(&totals.exposed_time))
        .left("exposed [95 %]", 4, |totals| optional(exposed(totals).map(seconds_range)))
        .table(format!("per {what} and step"))
        .below()
}

fn rankings(rankings: &[Order]) -> Table {
    Fields::of(rankings)
        .left("by", 0, |ranking| ranking.measure.name())
        .left("order", 1, |ranking| ranking.text())
        .left("the rule", 0, |ranking| ranking.rule_text())
        .table("the rule TP > DP > PP")
        .below()
}

fn crossovers(title: String, crossovers: &[Crossover]) -> Table {
    let interval = |crossing: &Crossing| match crossing {
        Crossing::At { tokens, .. } => range(tokens.interval.map(|interval| interval.map(tokens_text))),
        _ => optional(None::<String>),
    };
    Fields::of(crossovers)
        .left("pair", 0, |crossover| crossover.families.map(Family::name).join(" and "))
        .right("by wire bytes", 0, |crossover| crossing_text(&crossover.wire))
        .right("by time", 0, |crossover| crossing_text(&crossover.time))
        .left("[95 %]", 0, |crossover| interval(&crossover.time))
        .table(title)
        .below()
}

fn crossing_text(crossing: &Crossing) -> String {
    match crossing {
        Crossing::At { tokens, larger_above } => {
            format!("{} (above: {})", tokens_text(tokens.middle), larger_above.name())
        }
        Crossing::Never(larger) => format!("never: always {}", larger.name()),
        Crossing::Unknown => "not known".to_owned(),
    }
}

fn tokens_text(tokens: f64) -> String {
    if tokens < 100.0 { three_digits(tokens) } else { format!("{tokens:.0}") }
}

/// The sum, or the reason why it is incomplete.
fn sum_text(sum: &Sum) -> String {
    match sum.incomplete() {
        Some(what) => format!("> {}, {what}", Seconds(sum.known_seconds.middle)),
        None if sum.ops == 0 => "none".to_owned(),
        None => Seconds(sum.known_seconds.middle).to_string(),
    }
}
