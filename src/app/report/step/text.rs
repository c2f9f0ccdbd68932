//! A step as text: its calls, the totals of axes and styles, the rule TP > DP > PP, and where the order flips.

use super::crossover::Crossover;
use super::op::StepOp;
use super::totals::{Sum, Totals};
use super::{Ranking, Rule, StepView};
use crate::report::markdown::bullets;
use crate::report::plain_table::{Column, TableWriter, markdown_table, table, wrapped};
use crate::report::row::Row;
use crate::report::text::visible;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::Span;
use commgauge_base::units::{Bytes, Seconds, three_digits};
use commgauge_model::workload::Crossing;

/// A title, and the text below it.
pub(in crate::report) struct Part {
    /// The title.
    pub title: String,
    /// The text, with a line feed at the end of each line.
    pub body: String,
    /// Whether it belongs below the part before it.
    pub below: bool,
}

/// The parts of a step's section, for a terminal of so many columns.
pub(in crate::report) fn text(step: &StepView, rows: &[Row], width: u16) -> Vec<Part> {
    let lines = |sentences: Vec<String>| sentences.iter().map(|sentence| wrapped(sentence, width)).collect::<String>();
    parts(step, rows, &|columns, rows| table(columns, rows, width), &lines)
}

/// The same as Markdown.
pub(in crate::report) fn markdown(step: &StepView, rows: &[Row]) -> Vec<Part> {
    parts(step, rows, &markdown_table, &bullets)
}

type Lines<'a> = &'a dyn Fn(Vec<String>) -> String;

fn parts(step: &StepView, rows: &[Row], table: TableWriter, lines: Lines) -> Vec<Part> {
    let f = &step.facts;
    let title = format!(
        "step: {}, {}, {}: {} micro-batches, {} tokens of a replica",
        visible(&f.model),
        visible(&f.layout),
        visible(&f.phase),
        f.micro_batches,
        f.tokens_per_replica
    );
    let mut all =
        vec![Part { title, body: format!("{}{}", ops(step, rows, table), lines(below_ops(step))), below: false }];
    for (what, totals) in [("axis", &step.axes), ("style", &step.styles)] {
        all.push(Part {
            title: format!("per {what} and step"),
            body: totals_table(what, totals, &step.whole, table),
            below: true,
        });
    }
    // With a single parallelism there is nothing to compare.
    if step.rankings.iter().any(|ranking| ranking.rule != Rule::NothingToCompare) {
        all.push(Part {
            title: "the rule TP > DP > PP".to_owned(),
            body: rankings(&step.rankings, table),
            below: true,
        });
    }
    if !step.crossovers.is_empty() {
        let title = format!("tokens of a replica at which the order turns round (here {})", f.tokens_per_replica);
        all.push(Part { title, body: crossovers(&step.crossovers, table), below: true });
    }
    all
}

fn ops(step: &StepView, rows: &[Row], table: TableWriter) -> String {
    let mut columns = vec![
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
    ];
    let mut cells: Vec<Vec<String>> = step.ops.iter().map(|op| op_cells(step, op, rows)).collect();
    // A common cadence is given in a sentence below.
    if cadence_of_all(step).is_none() {
        columns.push(Column::left("taken from", 4));
        for (cells, op) in cells.iter_mut().zip(&step.ops) {
            cells.push(op.seconds_per_call.map_or_else(|| "-".to_owned(), |_| op.cadence.to_string()));
        }
    }
    table(&columns, &cells)
}

fn op_cells(step: &StepView, op: &StepOp, rows: &[Row]) -> Vec<String> {
    let row = rows.get(op.row);
    let facts = row.map(|row| &row.facts);
    let status = || row.map_or("missing", |row| row.status.label()).to_owned();
    let dash = || "-".to_owned();
    let cost = op.seconds_per_step();
    vec![
        op.axis.to_string(),
        op.style.name().to_owned(),
        row.map_or_else(dash, crate::report::columns::collective),
        facts.map_or_else(dash, |facts| facts.element_type.to_string()),
        facts.map_or_else(dash, |facts| format!("{} x {}", facts.groups, facts.group_size)),
        facts.map_or_else(dash, |facts| facts.bytes_total.to_string()),
        op.count_per_step.to_string(),
        op.seconds_per_call.map_or_else(status, |call| Seconds(call.middle).to_string()),
        cost.map_or_else(status, |cost| Seconds(cost.middle).to_string()),
        cost.map_or_else(dash, seconds_interval),
        step.share(op).map_or_else(dash, |share| format!("{:.1} %", share * 100.0)),
        if op.exposed() { "yes" } else { "no" }.to_owned(),
        op.overlaps_with.as_deref().map_or_else(dash, visible),
    ]
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
            Some(span) => format!("{what}: {} [{}]", Seconds(span.middle), seconds_interval(span)),
            None => format!("{what}: {}", sum_text(sum)),
        });
    }
    sentences
}

fn totals_table(what: &'static str, totals: &[Totals], whole: &Totals, table: TableWriter) -> String {
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
    let cells = totals.iter().map(|totals| {
        let (time, exposed) = (totals.time.complete(), totals.exposed_time.complete());
        let share = time.zip(whole.time.complete()).filter(|(_, whole)| whole.middle > 0.0);
        let dash = || "-".to_owned();
        vec![
            totals.name.to_owned(),
            gigabytes(totals.payload_bytes_per_step),
            gigabytes(totals.wire_bytes_per_step),
            sum_text(&totals.time),
            time.map_or_else(dash, seconds_interval),
            share.map_or_else(dash, |(time, whole)| format!("{:.1} %", time.middle / whole.middle * 100.0)),
            sum_text(&totals.exposed_time),
            exposed.filter(|_| totals.exposed_time.ops > 0).map_or_else(dash, seconds_interval),
        ]
    });
    table(&columns, &cells.collect::<Vec<_>>())
}

fn rankings(rankings: &[Ranking], table: TableWriter) -> String {
    let columns = [Column::left("by", 0), Column::left("order", 1), Column::left("the rule", 0)];
    let cells = rankings
        .iter()
        .map(|ranking| vec![ranking.measure.name().to_owned(), ranking.order_text(), ranking.rule.text()]);
    table(&columns, &cells.collect::<Vec<_>>())
}

fn crossovers(crossovers: &[Crossover], table: TableWriter) -> String {
    let columns = [
        Column::left("pair", 0),
        Column::right("by wire bytes", 0),
        Column::right("by time", 0),
        Column::left("[95 %]", 0),
    ];
    let cells = crossovers.iter().map(|crossover| {
        let (a, b) = crossover.families;
        let interval = match crossover.time {
            Crossing::At { tokens, .. } => tokens.interval.map_or_else(
                || "n/a".to_owned(),
                |interval| format!("{}..{}", tokens_text(interval.low), tokens_text(interval.high)),
            ),
            _ => "-".to_owned(),
        };
        vec![
            format!("{} and {}", a.name(), b.name()),
            crossing_text(&crossover.wire),
            crossing_text(&crossover.time),
            interval,
        ]
    });
    table(&columns, &cells.collect::<Vec<_>>())
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

/// `12.3..14.5 ms`, with the unit of the upper end.
fn seconds_interval(span: Span) -> String {
    let Some(interval) = span.interval else { return "n/a".to_owned() };
    let (scale, unit) = match interval.high {
        high if high < 1e-6 => (1e9, "ns"),
        high if high < 1e-3 => (1e6, "us"),
        high if high < 1.0 => (1e3, "ms"),
        _ => (1.0, "s"),
    };
    format!("{}..{} {unit}", three_digits(interval.low * scale), three_digits(interval.high * scale))
}

/// Decimal, as rates are.
fn gigabytes(bytes: Bytes) -> String {
    match bytes.0 {
        0..1_000_000 => format!("{} B", bytes.0),
        1_000_000..1_000_000_000 => format!("{} MB", three_digits(bytes.0 as f64 * 1e-6)),
        more => format!("{} GB", three_digits(more as f64 * 1e-9)),
    }
}
