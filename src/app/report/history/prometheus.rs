//! The history as a text file for the collector of Prometheus' node exporter: the newest run of each row, and its last change.

use crate::report::prometheus::{RowLabels, label, line, metric};
use commgauge_analysis::verdict::history::{Change, History, Lineage, Series};

pub(super) fn text(history: &History) -> String {
    let mut out = String::new();
    metric(
        &mut out,
        "commgauge_history_exit_code",
        "0 no row is slower since its last change, 1 one is, 3 too few runs.",
    );
    line(&mut out, "commgauge_history_exit_code", &[], f64::from(history.exit_code));
    metric(&mut out, "commgauge_history_runs", "Runs that repeat one another.");
    for lineage in &history.lineages {
        let labels = [label("place", &lineage.place), label("suite", &lineage.suite)];
        line(&mut out, "commgauge_history_runs", &labels, lineage.runs.len() as f64);
    }
    metric(&mut out, "commgauge_history_left_out_files", "Files that have no say.");
    line(&mut out, "commgauge_history_left_out_files", &[], history.left_out.len() as f64);
    let newest = |row: &Series| row.latency_seconds.last().copied().flatten();
    let name = "commgauge_history_row_latency_seconds";
    rows(&mut out, history, name, "Median latency in the newest run.", newest);
    let last = |row: &Series, of: fn(&Change) -> f64| row.changes.last().map(of);
    let name = "commgauge_history_row_slowdown_ratio";
    let help = "Share by which a row is slower since its last change; below 0 where it became faster, 0 where it never changed.";
    rows(&mut out, history, name, help, |row| Some(last(row, |change| change.slowdown).unwrap_or(0.0)));
    let name = "commgauge_history_row_runs_since_change";
    rows(&mut out, history, name, "Runs since the last change of a row.", |row| {
        last(row, |change| f64::from(change.run)).map(|run| row.latency_seconds.len() as f64 - run)
    });
    out
}

fn rows(out: &mut String, history: &History, name: &str, help: &str, of: impl Fn(&Series) -> Option<f64>) {
    metric(out, name, help);
    for lineage in &history.lineages {
        for row in &lineage.rows {
            if let Some(value) = of(row) {
                labels(lineage, row).line(out, name, &[label("place", &lineage.place)], value);
            }
        }
    }
}

fn labels<'a>(lineage: &'a Lineage, row: &'a Series) -> RowLabels<'a> {
    RowLabels {
        case: &row.name,
        subject: &row.subject,
        suite: &lineage.suite,
        machine: &lineage.machine,
        backend: &lineage.backend,
        hosts: None,
    }
}
