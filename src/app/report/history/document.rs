//! The history for people: the changes of each place, the rows that changed, and what was left out.

use super::row_names::RowNames;
use super::shown::ShownRows;
use super::trend::trend;
use crate::report::document::{Block, Column, Mark, Table, optional, signed_percent};
use commgauge_analysis::verdict::history::{Event, History, Lineage, Series};
use commgauge_base::units::Seconds;

/// Maximum number of left-out files that are listed one by one.
const MAX_LEFT_OUT: usize = 10;

/// The rows that are shown.
pub(super) fn document(history: &History, shown: ShownRows) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    if history.lineages.is_empty() {
        blocks.push(Block::list(["no run that could be looked at"]));
    }
    blocks.extend(history.lineages.iter().flat_map(|lineage| of_lineage(lineage, shown)));
    blocks.extend(left_out(history));
    blocks.extend(Block::headed_list("How it was decided:", Mark::None, &history.rule));
    blocks
}

/// The files that have no say.
pub(super) fn left_out(history: &History) -> Vec<Block> {
    let shown = history.left_out.iter().take(MAX_LEFT_OUT);
    let mut left_out: Vec<String> = shown.map(|file| format!("{}: {}", file.path, file.reason)).collect();
    if history.left_out.len() > MAX_LEFT_OUT {
        left_out.push(format!("and {} more; --format json lists them", history.left_out.len() - MAX_LEFT_OUT));
    }
    let heading = format!("Left out: {} files", history.left_out.len());
    Block::headed_list(&heading, Mark::None, left_out)
}

fn of_lineage(lineage: &Lineage, shown: ShownRows) -> Vec<Block> {
    let mut blocks = changes(lineage);
    let shown: Vec<&Series> = lineage.rows.iter().filter(|row| shown.has(row)).collect();
    if !shown.is_empty() {
        blocks.push(Block::Table(rows(lineage, &shown)));
    }
    blocks
}

/// A place, and the runs at which its rows changed.
pub(super) fn changes(lineage: &Lineage) -> Vec<Block> {
    let dates = lineage.runs.first().zip(lineage.runs.last());
    let span = dates.map_or_else(String::new, |(first, last)| format!(", {} to {}", first.started_at, last.started_at));
    let heading = format!(
        "{} on {}: runs {}, rows {}{span}",
        lineage.suite,
        lineage.place,
        lineage.runs.len(),
        lineage.rows.len()
    );
    let mut blocks = vec![Block::apart(Mark::None, [heading])];
    if !lineage.odd_times.is_empty() {
        blocks.push(Block::list(&lineage.odd_times));
    }
    for event in &lineage.events {
        blocks.extend(event_blocks(lineage, event));
    }
    if lineage.events.is_empty() {
        blocks.push(Block::list(["no row changed"]));
    }
    blocks.extend(lineage.rows_without_say().map(|few| Block::list([few])));
    blocks
}

/// One line for each change of the rows, one for a row without any.
pub(super) fn rows(lineage: &Lineage, rows: &[&Series]) -> Table {
    let names = RowNames::of(&lineage.rows);
    let cells = rows.iter().flat_map(|row| cells(lineage, row, names.name(row)));
    Table::new("", &COLUMNS, cells).noted(names.note())
}

fn event_blocks(lineage: &Lineage, event: &Event) -> Vec<Block> {
    let Some(run) = lineage.runs.get(event.run as usize) else { return Vec::new() };
    let steps = match event.rows_slower + event.rows_faster {
        1 => signed_percent(event.slowdown_most),
        _ => format!("{} to {}", signed_percent(event.slowdown_least), signed_percent(event.slowdown_most)),
    };
    let change = format!(
        "from run {} of {} on: rows slower {}, faster {} ({steps} time)",
        run.run_id, run.started_at, event.rows_slower, event.rows_faster
    );
    vec![Block::marked(Mark::Alarm, [change]), Block::list([run.what_else_changed()])]
}

const COLUMNS: [Column; 10] = [
    Column::left("case", 0),
    Column::right("runs", 3),
    Column::right("first", 2),
    Column::right("newest", 1),
    Column::left("trend", 5),
    Column::left("changed at", 0),
    Column::right("before", 2),
    Column::right("after", 2),
    Column::right("step", 0),
    Column::right("p", 4),
];

/// One line for each change, one for a row without any.
fn cells(lineage: &Lineage, row: &Series, name: String) -> Vec<Vec<String>> {
    let time = |seconds: Option<f64>| optional(seconds.map(Seconds));
    let measured = row.latency_seconds.iter().flatten();
    let begin = vec![
        name,
        measured.clone().count().to_string(),
        time(measured.clone().next().copied()),
        time(measured.last().copied()),
        trend(&row.latency_seconds),
    ];
    if row.changes.is_empty() {
        return vec![[begin, vec![optional(None::<String>); 5]].concat()];
    }
    let lines = row.changes.iter().enumerate().map(|(index, change)| {
        let begin = if index == 0 { begin.clone() } else { vec![String::new(); begin.len()] };
        let tail = vec![
            optional(lineage.runs.get(change.run as usize).map(|run| to_the_minute(&run.started_at))),
            time(Some(change.latency_seconds_before)),
            time(Some(change.latency_seconds_after)),
            signed_percent(change.slowdown),
            format!("{:.4}", change.p_corrected),
        ];
        [begin, tail].concat()
    });
    lines.collect()
}

/// A time as the record says it, without seconds and zone, which the lines above the table have.
fn to_the_minute(started_at: &str) -> String {
    match (started_at.get(..10), started_at.get(10..11), started_at.get(11..16)) {
        (Some(day), Some("T"), Some(minute)) => format!("{day} {minute}"),
        _ => started_at.to_owned(),
    }
}
