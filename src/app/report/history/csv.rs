//! The history as comma-separated values: one row for each run of each case, units in the column names.

use super::super::text::harmless;
use commgauge_analysis::verdict::history::{Change, History, Lineage, Series};
use commgauge_base::comma_separated::{Column, comma_separated};
use commgauge_base::error::Result;

/// A run of a case.
struct RunRow<'a> {
    lineage: &'a Lineage,
    case: &'a Series,
    run: usize,
}

pub(super) fn text(history: &History) -> Result<String> {
    let cases = history.lineages.iter().flat_map(|lineage| lineage.rows.iter().map(move |case| (lineage, case)));
    let runs = cases.flat_map(|(lineage, case)| (0..lineage.runs.len()).map(move |run| RunRow { lineage, case, run }));
    comma_separated("the history as CSV", &columns(), runs)
}

fn columns<'a>() -> Vec<Column<RunRow<'a>>> {
    vec![
        Column::new("suite", |row| harmless(&row.lineage.suite)),
        Column::new("place", |row| harmless(&row.lineage.place)),
        Column::new("case", |row| harmless(&row.case.name)),
        Column::new("bytes_total", |row| {
            row.case.subject.bytes().map_or_else(String::new, |bytes| bytes.0.to_string())
        }),
        Column::new("run_id", |row| harmless(&row.lineage.runs[row.run].run_id)),
        Column::new("started_at", |row| harmless(&row.lineage.runs[row.run].started_at)),
        Column::new("latency_seconds_median", |row| number(row.case.latency_seconds.get(row.run).copied().flatten())),
        Column::new("slowdown_since_change", |row| number(row.change().map(|change| change.slowdown))),
        Column::new("p_corrected", |row| number(row.change().map(|change| change.p_corrected))),
    ]
}

impl RunRow<'_> {
    fn change(&self) -> Option<&Change> {
        self.case.changes.iter().find(|change| change.run as usize == self.run)
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}
