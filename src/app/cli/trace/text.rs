//! The calls of a job as text: what was read, the calls, the differences, who was late.

use super::document::{ComparedLine, LateRankLine, SideLine, TraceDocument, TracedCallLine};
use crate::report::document::{Column, optional, table, wrapped};
use commgauge_base::units::Seconds;

/// The complete text for a terminal of this width.
pub(super) fn text(document: &TraceDocument, width: u16) -> String {
    let of = document.job_ranks.map_or_else(String::new, |ranks| format!(" of {ranks}"));
    let steps = if document.steps == 1 { "1 step".to_owned() } else { format!("{} steps", document.steps) };
    let sources = document.sources.join(", ");
    let mut out = wrapped(&format!("{sources}: ranks {}{of}, {steps}", document.ranks), width);
    for note in &document.notes {
        out += &wrapped(&format!("note: {note}"), width);
    }
    out += &format!("\n{}", calls(document, width));
    for reason in reasons(document) {
        out += &wrapped(&format!("not predicted: {reason}"), width);
    }
    if let Some(comparison) = &document.comparison {
        out +=
            &format!("\ncompared with the list of the step, per rank and step\n\n{}", differences(comparison, width));
        out += &wrapped(&outcome(comparison), width);
    }
    if !document.late_ranks.is_empty() {
        out += "\nranks that came last while others waited\n\n";
        document.late_ranks.iter().for_each(|late| out += &wrapped(&late_text(late), width));
    }
    out
}

fn calls(document: &TraceDocument, width: u16) -> String {
    let is_predicted = document.calls.iter().any(|call| call.predicted_seconds.is_some());
    let mut columns = vec![
        Column::left("groups of", 0),
        Column::left("call", 0),
        Column::left("type", 3),
        Column::right("bytes", 0),
        Column::right("group ranks", 4),
        Column::right("groups", 5),
        Column::right("/step", 0),
        Column::right("median", 1),
        Column::right("95 %", 2),
    ];
    if is_predicted {
        columns.extend([Column::right("fit", 1), Column::right("times the fit", 0)]);
    }
    let lines = &document.calls;
    let row = |(at, call): (usize, &TracedCallLine)| {
        let around = [at.checked_sub(1), at.checked_add(1)].into_iter().flatten().filter_map(|at| lines.get(at));
        let mut row = call_row(call, is_predicted);
        // Equal sizes of other calls of its kind are told apart by their bytes.
        if around.filter(|other| (&other.place, other.call) == (&call.place, call.call)).any(|other| {
            other.element_type == call.element_type && other.bytes_total.to_string() == call.bytes_total.to_string()
        }) {
            row[BYTES] = format!("{} B", call.bytes_total.0);
        }
        row
    };
    let rows: Vec<Vec<String>> = lines.iter().enumerate().map(row).collect();
    table(&columns, &rows, width)
}

/// The column of sizes.
const BYTES: usize = 3;

fn call_row(call: &TracedCallLine, is_predicted: bool) -> Vec<String> {
    let mut row = vec![
        call.place.clone(),
        call.call.to_owned(),
        optional(call.element_type),
        call.bytes_total.to_string(),
        optional(call.group_size),
        call.groups.to_string(),
        count(call.calls_per_step),
        optional(call.seconds_median),
        optional(call.seconds_p95),
    ];
    if is_predicted {
        let ratio = |(seconds, predicted): (Seconds, Seconds)| format!("{:.2}", seconds.0 / predicted.0);
        row.push(optional(call.predicted_seconds));
        row.push(optional(call.seconds_median.zip(call.predicted_seconds).map(ratio)));
    }
    row
}

/// Why a fit does not say some times, each reason once.
fn reasons(document: &TraceDocument) -> Vec<&str> {
    let mut reasons: Vec<&str> = Vec::new();
    for reason in document.calls.iter().filter_map(|call| call.not_predicted_because.as_deref()) {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

fn differences(comparison: &[ComparedLine], width: u16) -> String {
    let columns = [
        Column::left("groups of", 0),
        Column::left("call", 0),
        Column::left("", 0),
        Column::right("listed", 0),
        Column::right("bytes", 0),
        Column::left("type", 3),
        Column::right("traced", 0),
        Column::right("bytes", 0),
        Column::left("type", 3),
    ];
    let side = |side: &Option<SideLine>| match side {
        Some(side) => [count(side.calls_per_step), side.bytes_total.to_string(), optional(side.element_type)],
        None => ["-".to_owned(), "-".to_owned(), "-".to_owned()],
    };
    let row = |line: &ComparedLine| {
        let mut row = vec![line.place.clone(), line.call.to_owned(), line.difference.to_owned()];
        row.extend(side(&line.expected));
        row.extend(side(&line.traced));
        row
    };
    table(&columns, &comparison.iter().map(row).collect::<Vec<_>>(), width)
}

fn outcome(comparison: &[ComparedLine]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for line in comparison {
        match counts.iter_mut().find(|(name, _)| *name == line.difference) {
            Some((_, count)) => *count += 1,
            None => counts.push((line.difference, 1)),
        }
    }
    let counts: Vec<String> = counts.into_iter().map(|(name, count)| format!("{count} {name}")).collect();
    format!("{} calls: {}", comparison.len(), counts.join(", "))
}

fn late_text(late: &LateRankLine) -> String {
    format!(
        "rank {} came last in {} of {} calls of its {} group ({}); the first to come waited {} (median)",
        late.rank, late.late, late.calls, late.place, late.group_ranks, late.waited_seconds_median
    )
}

/// A number of calls, without decimals where it is whole.
fn count(calls: f64) -> String {
    if calls.fract() == 0.0 { format!("{calls:.0}") } else { format!("{calls:.1}") }
}
