//! A step in the report's JSON document: base units in the names, `null` where there is no number.

use super::op::{Crossover, StepOp};
use super::{Family, StepView, Sum, Totals};
use crate::chart::{Axis as ChartAxis, Bar, Bars, Unit};
use crate::report::document::{
    Block, Column, Figure, Row as TableRow, Table, Tone, gigabytes, optional, percent, range, seconds_range,
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
        of(step),
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
    const COLUMNS: [Column; 16] = [
        Column::left("axis", 0),
        Column::left("style", 3),
        Column::left("call", 0),
        Column::left("type", 5),
        Column::right("groups x ranks", 6),
        Column::right("size", 0),
        Column::right("a step", 0),
        Column::right("one call", 2),
        Column::right("in a step", 0),
        Column::left("[95 %]", 1),
        Column::right("share", 0),
        Column::left("exposed", 0),
        Column::left("hidden by", 7),
        Column::right("wire", Column::PAGES_ONLY),
        Column::left("case", Column::PAGES_ONLY),
        Column::left("why", Column::PAGES_ONLY),
    ];
    let table = Table::new(title, &COLUMNS, step.ops.iter().map(|op| op_row(step, op, rows))).whole_in(WHOLE).folded();
    // A cadence that all have is given in a sentence below.
    match cadence_of_all(step) {
        Some(_) => table,
        None => table.with_column(
            Column::left("taken from", 4),
            step.ops.iter().map(|op| optional(op.seconds_per_call.map(|_| op.cadence))),
        ),
    }
}

fn op_row(step: &StepView, op: &StepOp, rows: &[crate::report::Row]) -> TableRow {
    let row = rows.get(op.row);
    let facts = row.map(|row| &row.facts);
    let status = || row.map_or("missing", |row| row.status.label()).to_owned();
    let cost = op.seconds_per_step();
    let cells = vec![
        op.axis.to_string(),
        op.used.style.name().to_owned(),
        optional(row.map(crate::report::columns::collective)),
        optional(facts.map(|facts| facts.element_type)),
        optional(facts.map(|facts| format!("{} x {}", facts.groups, facts.group_size))),
        optional(facts.map(|facts| facts.bytes_total)),
        op.used.count_per_step.to_string(),
        op.seconds_per_call.map_or_else(status, |call| Seconds(call.middle).to_string()),
        cost.map_or_else(status, |cost| Seconds(cost.middle).to_string()),
        optional(cost.map(seconds_range)),
        optional(step.share(op).map(|share| percent(share, 1))),
        if op.used.exposed { "yes" } else { "no" }.to_owned(),
        optional(op.overlaps_with()),
        gigabytes(op.used.wire_bytes_per_step),
        optional(facts.map(|facts| &facts.name)),
        op.used.why.clone(),
    ];
    TableRow::toned(if cost.is_some() { Tone::Plain } else { Tone::Unsure }, cells)
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
    let columns = [
        Column::left(what, 0),
        Column::right("payload", 1),
        Column::right("wire", 0),
        Column::right("time", 0),
        Column::left("[95 %]", 2),
        Column::right("share", 3),
        Column::right("exposed", 0),
        Column::left("exposed [95 %]", 4),
    ];
    let row = |totals: &Totals| {
        let (time, exposed) = (totals.time.complete(), totals.exposed_time.complete());
        let share = time.zip(whole.time.complete()).filter(|(_, whole)| whole.middle > 0.0);
        vec![
            totals.name.to_owned(),
            gigabytes(totals.payload_bytes_per_step),
            gigabytes(totals.wire_bytes_per_step),
            sum_text(&totals.time),
            optional(time.map(seconds_range)),
            optional(share.map(|(time, whole)| percent(time.middle / whole.middle, 1))),
            sum_text(&totals.exposed_time),
            optional(exposed.filter(|_| totals.exposed_time.ops > 0).map(seconds_range)),
        ]
    };
    Table::new(format!("per {what} and step"), &columns, totals.iter().map(row)).below()
}

fn rankings(rankings: &[Order]) -> Table {
    const COLUMNS: [Column; 3] = [Column::left("by", 0), Column::left("order", 1), Column::left("the rule", 0)];
    let row = |ranking: &Order| vec![ranking.measure.name().to_owned(), ranking.text(), ranking.rule_text()];
    Table::new("the rule TP > DP > PP", &COLUMNS, rankings.iter().map(row)).below()
}

fn crossovers(title: String, crossovers: &[Crossover]) -> Table {
    const COLUMNS: [Column; 4] = [
        Column::left("pair", 0),
        Column::right("by wire bytes", 0),
        Column::right("by time", 0),
        Column::left("[95 %]", 0),
    ];
    let row = |crossover: &Crossover| {
        let [a, b] = crossover.families;
        let interval = match crossover.time {
            Crossing::At { tokens, .. } => range(tokens.interval.map(|interval| interval.map(tokens_text))),
            _ => optional(None::<String>),
        };
        vec![
            format!("{} and {}", a.name(), b.name()),
            crossing_text(&crossover.wire),
            crossing_text(&crossover.time),
            interval,
        ]
    };
    Table::new(title, &COLUMNS, crossovers.iter().map(row)).below()
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

// Bytes and times of a step as bars, for pages.

/// Bytes by axis, time by axis, time by style.
pub(super) fn of(step: &StepView) -> Block {
    Block::Charts(vec![
        Figure::new("Wire bytes by axis", bytes("Bytes that a rank sends in a step, by axis", &step.axes).draw()),
        Figure::new("Time by axis", time("Time of all calls in a step, by axis", &step.axes).draw()),
        Figure::new("Time by style", time("Time of all calls in a step, by style", &step.styles).draw()),
    ])
}

fn bytes(title: &str, totals: &[Totals]) -> Bars {
    let mut bars = Bars::new(title, ChartAxis::linear("", Unit::Bytes));
    bars.description = "The numbers are in the table below.".into();
    bars.bars = totals
        .iter()
        .map(|totals| Bar {
            label: totals.name.to_owned(),
            parts: vec![totals.wire_bytes_per_step.0 as f64],
            interval: None,
            note: totals.wire_bytes_per_step.to_string(),
        })
        .collect();
    bars
}

fn time(title: &str, totals: &[Totals]) -> Bars {
    let mut bars = Bars::new(title, ChartAxis::linear("", Unit::Seconds));
    bars.description =
        "Stacked: what nothing hides, and what may be hidden. The numbers are in the table below.".into();
    bars.parts = vec!["exposed".into(), "may be hidden".into()];
    bars.bars = totals
        .iter()
        .map(|totals| {
            let (all, exposed) = (totals.time.known_seconds, totals.exposed_time.known_seconds);
            let note = match totals.time.without_a_time {
                0 => Seconds(all.middle).to_string(),
                without if without == totals.time.ops => "not measured".to_owned(),
                _ => format!("{}, incomplete", Seconds(all.middle)),
            };
            Bar {
                label: totals.name.to_owned(),
                parts: vec![exposed.middle, (all.middle - exposed.middle).max(0.0)],
                interval: all.interval,
                note,
            }
        })
        .collect();
    bars
}
