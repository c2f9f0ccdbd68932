//! A step: its calls, the totals of axes and styles, the rule TP > DP > PP, and where the order flips.

use super::crossover::Crossover;
use super::op::StepOp;
use super::totals::{Sum, Totals};
use super::{Ranking, Rule, StepView, charts};
use crate::report::document::{Block, Column, Row, Table, Tone, gigabytes, optional, percent, range, seconds_range};
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Seconds, three_digits};
use commgauge_model::workload::Crossing;

/// Where a page has all calls.
const WHOLE: &str = "`commgauge report --format json` has every call";

/// The step, with the rows that its times came from.
pub(in crate::report) fn document(step: &StepView, rows: &[crate::report::Row]) -> Vec<Block> {
    let facts = &step.facts;
    let mut all = vec![
        Block::Table(ops(step, rows)),
        Block::list(below_ops(step)),
        charts::of(step),
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

fn op_row(step: &StepView, op: &StepOp, rows: &[crate::report::Row]) -> Row {
    let row = rows.get(op.row);
    let facts = row.map(|row| &row.facts);
    let status = || row.map_or("missing", |row| row.status.label()).to_owned();
    let cost = op.seconds_per_step();
    let cells = vec![
        op.axis.to_string(),
        op.style.name().to_owned(),
        optional(row.map(crate::report::columns::collective)),
        optional(facts.map(|facts| facts.element_type)),
        optional(facts.map(|facts| format!("{} x {}", facts.groups, facts.group_size))),
        optional(facts.map(|facts| facts.bytes_total)),
        op.count_per_step.to_string(),
        op.seconds_per_call.map_or_else(status, |call| Seconds(call.middle).to_string()),
        cost.map_or_else(status, |cost| Seconds(cost.middle).to_string()),
        optional(cost.map(seconds_range)),
        optional(step.share(op).map(|share| percent(share, 1))),
        if op.exposed() { "yes" } else { "no" }.to_owned(),
        optional(op.overlaps_with.as_deref()),
        gigabytes(op.wire_bytes_per_step),
        optional(facts.map(|facts| &facts.name)),
        op.why.clone(),
    ];
    Row::toned(if cost.is_some() { Tone::Plain } else { Tone::Unsure }, cells)
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

fn rankings(rankings: &[Ranking]) -> Table {
    const COLUMNS: [Column; 3] = [Column::left("by", 0), Column::left("order", 1), Column::left("the rule", 0)];
    let row = |ranking: &Ranking| vec![ranking.measure.name().to_owned(), ranking.order_text(), ranking.rule.text()];
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
