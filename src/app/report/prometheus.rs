//! A record as a text file for the collector of Prometheus' node exporter: no time stamps, base units, one line for
//! each row and known quantity.

use super::row::{Latency, Row};
use super::text::visible;
use super::view::View;
use commgauge_base::units::Seconds;

/// The file.
pub(super) fn text(view: &View) -> String {
    let header = &view.header;
    let mut out = String::new();
    metric(&mut out, "commgauge_record_info", "Which run was recorded.");
    let synthetic = if header.backend.synthetic { "true" } else { "false" };
    let labels = [
        ("backend", header.backend.name.as_str()),
        ("library", &header.backend.library),
        ("run_id", &header.run_id),
        ("suite", &header.suite.name),
        ("synthetic", synthetic),
    ];
    line(&mut out, "commgauge_record_info", &labels, 1.0);
    metric(&mut out, "commgauge_record_exit_code", "Exit code of the record; 0 is complete and right.");
    line(&mut out, "commgauge_record_exit_code", &[], f64::from(view.exit_code()));
    metric(&mut out, "commgauge_record_rows", "Rows of the plan by what came of them.");
    for status in ["verified", "not verified", "synthetic", "WRONG", "failed", "missing", "skipped"] {
        let count = view.rows.iter().filter(|row| row.status.label() == status).count();
        line(&mut out, "commgauge_record_rows", &[("status", &status.to_lowercase())], count as f64);
    }
    latencies(&mut out, view);
    values(&mut out, view, "bus_bandwidth_bytes_per_second", "Bus bandwidth at the median.", |row| {
        row.busbw.map(|rate| rate.0)
    });
    values(&mut out, view, "samples", "Samples that count.", |row| Some(row.samples as f64));
    values(&mut out, view, "samples_excluded", "Samples left out.", |row| Some(row.samples_excluded as f64));
    out
}

fn latencies(out: &mut String, view: &View) {
    type Quantile = (&'static str, fn(&Latency) -> Option<Seconds>);
    const QUANTILES: [Quantile; 4] = [
        ("0.5", |latency| Some(latency.median)),
        ("0.9", |latency| latency.p90),
        ("0.99", |latency| latency.p99),
        ("0.999", |latency| latency.p999),
    ];
    let name = "commgauge_row_latency_seconds";
    metric(out, name, "Time of a call; quantiles with too few samples are absent.");
    for (row, latency) in view.rows.iter().filter_map(|row| Some((row, row.latency.as_ref()?))) {
        for (quantile, of) in QUANTILES {
            if let Some(seconds) = of(latency) {
                line(out, name, &[("case", &row.facts.name), ("quantile", quantile)], seconds.0);
            }
        }
    }
}

fn values(out: &mut String, view: &View, name: &str, help: &str, of: impl Fn(&Row) -> Option<f64>) {
    let name = format!("commgauge_row_{name}");
    metric(out, &name, help);
    for row in &view.rows {
        if let Some(value) = of(row) {
            line(out, &name, &[("case", &row.facts.name)], value);
        }
    }
}

/// The head of a metric.
pub(super) fn metric(out: &mut String, name: &str, help: &str) {
    *out += &format!("# HELP {name} {help}\n# TYPE {name} gauge\n");
}

/// Label values escape what the exposition format says: backslash, double quote, line feed; the last is written out before.
pub(super) fn line(out: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    let labels: Vec<String> = labels
        .iter()
        .map(|(label, text)| format!("{label}=\"{}\"", visible(text).replace('\\', "\\\\").replace('"', "\\\"")))
        .collect();
    match labels.is_empty() {
        true => *out += &format!("{name} {value}\n"),
        false => *out += &format!("{name}{{{}}} {value}\n", labels.join(",")),
    }
}
