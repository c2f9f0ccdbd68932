//! A run as a line of SuperBench's `results-summary.jsonl`, which `sb result summary` and `sb result diagnosis` read: one flat object
//! with `node` and `BENCHMARK/METRIC`, times in microseconds and rates in GB/s, as SuperBench names them for nccl-tests.
//!
//! A synthetic run is of another benchmark, so that no rule about measured ones takes it in. Rows with wrong data have no
//! numbers; how many there are is a metric of its own.

use super::entry::Entry;
use super::status::Status;
use super::text::visible;
use super::view::View;
use commgauge_base::error::{Error, Result};
use serde_json::{Map, Number, Value};

/// The line.
pub(super) fn text(view: &View) -> Result<String> {
    let header = &view.header;
    let benchmark = if header.backend.synthetic { "commgauge-synthetic" } else { "commgauge" };
    let benchmark = format!("{benchmark}:{}", plain(&header.suite.name));
    let mut line = Map::new();
    line.insert("node".to_owned(), Value::String(node(view)));
    let mut metric = |name: &str, value: f64| {
        if let Some(number) = Number::from_f64(value) {
            line.insert(format!("{benchmark}/{name}"), Value::Number(number));
        }
    };
    metric("return_code", f64::from(view.exit_code()));
    for status in Status::LABELS {
        let count = view.entries().filter(|entry| entry.status.label() == status).count();
        metric(&format!("rows_{}", status.to_lowercase().replace(' ', "_")), count as f64);
    }
    for entry in view.entries().filter(|entry| !matches!(*entry.status, Status::Wrong { .. })) {
        for (quantity, value) in quantities(&entry) {
            metric(&format!("{}_{quantity}", plain(&entry.name)), value);
        }
    }
    let text = serde_json::to_string(&line);
    Ok(text.map_err(|cause| Error::environment(format!("cannot write the report as JSON: {cause}")))? + "\n")
}

/// What SuperBench knows of a call, a copy (`bw`, as its `gpu-copy-bw`) and a product (`flops`, as its `gemm-flops`): microseconds, GB/s and
/// GFLOP/s.
fn quantities(entry: &Entry) -> impl Iterator<Item = (&'static str, f64)> {
    let time = entry.latency.map(|latency| ("time", latency.median.0 * 1e6));
    let algbw = entry.row.and_then(|row| row.algbw).map(|rate| ("algbw", rate.0 / 1e9));
    let busbw = entry.busbw().map(|rate| ("busbw", rate.0 / 1e9));
    let copied = entry.copy_rate().map(|rate| ("bw", rate.0 / 1e9));
    let computed = entry.flops_per_second().map(|rate| ("flops", rate / 1e9));
    [time, algbw, busbw, copied, computed].into_iter().flatten()
}

/// The hosts of the run, in the order of their first ranks.
fn node(view: &View) -> String {
    let mut hosts: Vec<&str> = Vec::new();
    for rank in &view.header.ranks {
        if !hosts.contains(&rank.host.as_str()) {
            hosts.push(&rank.host);
        }
    }
    visible(&hosts.join(","))
}

/// A name without what separates benchmark and metric.
fn plain(name: &str) -> String {
    name.chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' })
        .collect()
}
