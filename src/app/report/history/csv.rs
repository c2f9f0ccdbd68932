//! The history as comma-separated values: one row for each run of each case, units in the column names.

use super::super::csv::harmless;
use commgauge_analysis::verdict::history::History;
use commgauge_base::comma_separated::CommaSeparated;
use commgauge_base::error::Result;

const COLUMNS: [&str; 9] = [
    "suite",
    "place",
    "case",
    "bytes_total",
    "run_id",
    "started_at",
    "latency_seconds_median",
    "slowdown_since_change",
    "p_corrected",
];

pub(super) fn text(history: &History) -> Result<String> {
    let mut text = CommaSeparated::new("the history as CSV", COLUMNS)?;
    for lineage in &history.lineages {
        for row in &lineage.rows {
            for (index, (run, seconds)) in lineage.runs.iter().zip(&row.latency_seconds).enumerate() {
                let change = row.changes.iter().find(|change| change.run as usize == index);
                let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
                let cells = [
                    harmless(&lineage.suite),
                    harmless(&lineage.place),
                    harmless(&row.name),
                    row.bytes_total.0.to_string(),
                    harmless(&run.run_id),
                    harmless(&run.started_at),
                    number(*seconds),
                    number(change.map(|change| change.slowdown)),
                    number(change.map(|change| change.p_corrected)),
                ];
                text.row(&cells)?;
            }
        }
    }
    text.finish()
}
