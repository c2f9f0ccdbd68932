//! The history for people.

use super::super::plain_table::{Column, table, wrapped};
use super::super::text::{signed_percent, visible};
use commgauge_analysis::verdict::history::{Event, History, Lineage, Series};
use commgauge_base::units::Seconds;

/// Maximum number of left-out files that are listed one by one.
const MAX_LEFT_OUT: usize = 10;

pub(super) fn text(history: &History, width: u16, all_rows: bool) -> String {
    let mut out = String::new();
    if history.lineages.is_empty() {
        out += "no run that could be looked at\n";
    }
    for (index, lineage) in history.lineages.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        out += &of_lineage(lineage, width, all_rows);
    }
    if !history.left_out.is_empty() {
        out += &format!("\nLeft out: {} files\n", history.left_out.len());
        for file in history.left_out.iter().take(MAX_LEFT_OUT) {
            out += &wrapped(&format!("{}: {}", visible(&file.path), visible(&file.reason)), width);
        }
        if history.left_out.len() > MAX_LEFT_OUT {
            out += &format!("and {} more; --format json lists them\n", history.left_out.len() - MAX_LEFT_OUT);
        }
    }
    out += "\nHow it was decided:\n";
    for sentence in &history.rule {
        out += &wrapped(&visible(sentence), width);
    }
    out
}

fn of_lineage(lineage: &Lineage, width: u16, all_rows: bool) -> String {
    let dates = lineage.runs.first().zip(lineage.runs.last());
    let span = dates.map_or_else(String::new, |(first, last)| {
        format!(", {} to {}", visible(&first.started_at), visible(&last.started_at))
    });
    let heading = format!(
        "{} on {}: runs {}, rows {}{span}",
        visible(&lineage.suite),
        visible(&lineage.place),
        lineage.runs.len(),
        lineage.rows.len()
    );
    let mut out = wrapped(&heading, width);
    for event in &lineage.events {
        out += &event_text(lineage, event, width);
    }
    if lineage.events.is_empty() {
        out += "no row changed\n";
    }
    let shown: Vec<&Series> = lineage.rows.iter().filter(|row| all_rows || !row.changes.is_empty()).collect();
    if !shown.is_empty() {
        let cells: Vec<Vec<String>> = shown.iter().flat_map(|row| cells(lineage, row)).collect();
        out += &format!("\n{}", table(&columns(), &cells, width));
    }
    out
}

fn event_text(lineage: &Lineage, event: &Event, width: u16) -> String {
    let Some(run) = lineage.runs.get(event.run as usize) else { return String::new() };
    let steps = match event.rows_slower + event.rows_faster {
        1 => signed_percent(event.slowdown_most),
        _ => format!("{} to {}", signed_percent(event.slowdown_least), signed_percent(event.slowdown_most)),
    };
    let mut out = wrapped(
        &format!(
            "! from run {} of {} on: rows slower {}, faster {} ({steps} time)",
            visible(&run.run_id),
            visible(&run.started_at),
            event.rows_slower,
            event.rows_faster
        ),
        width,
    );
    let differs = match run.differences.as_slice() {
        [] => "    nothing else that the records hold changed there".to_owned(),
        differences => format!("    changed there: {}", visible(&differences.join("; "))),
    };
    out += &wrapped(&differs, width);
    out
}

fn columns() -> Vec<Column> {
    vec![
        Column::left("case", 0),
        Column::right("runs", 3),
        Column::right("first", 2),
        Column::right("newest", 1),
        Column::left("changed at", 0),
        Column::right("before", 2),
        Column::right("after", 2),
        Column::right("step", 0),
        Column::right("p", 4),
    ]
}

/// One line for each change, one for a row without any.
fn cells(lineage: &Lineage, row: &Series) -> Vec<Vec<String>> {
    let time = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), |seconds| Seconds(seconds).to_string());
    let dash = || "-".to_owned();
    let measured = row.latency_seconds.iter().flatten();
    let begin = vec![
        visible(&row.name),
        measured.clone().count().to_string(),
        time(measured.clone().next().copied()),
        time(measured.last().copied()),
    ];
    if row.changes.is_empty() {
        return vec![[begin, vec![dash(), dash(), dash(), dash(), dash()]].concat()];
    }
    let lines = row.changes.iter().enumerate().map(|(index, change)| {
        let run = lineage.runs.get(change.run as usize).map_or_else(dash, |run| visible(&run.started_at));
        let begin = if index == 0 { begin.clone() } else { vec![String::new(); begin.len()] };
        let tail = vec![
            run,
            time(Some(change.latency_seconds_before)),
            time(Some(change.latency_seconds_after)),
            signed_percent(change.slowdown),
            format!("{:.4}", change.p_corrected),
        ];
        [begin, tail].concat()
    });
    lines.collect()
}
