//! The pairs as comma-separated values: one row for each, base units in the column names, empty where there is no number.

use super::{Pair, PairsView};
use crate::report::csv::harmless;
use commgauge_base::comma_separated::CommaSeparated;
use commgauge_base::error::Result;

pub(in crate::report) const COLUMNS: [&str; 12] = [
    "rank_a",
    "rank_b",
    "host_a",
    "host_b",
    "locality",
    "latency_seconds",
    "latency_percent_of_locality_median",
    "bandwidth_bytes_per_second",
    "bandwidth_percent_of_locality_median",
    "bidirectional_bandwidth_bytes_per_second",
    "bidirectional_bandwidth_percent_of_locality_median",
    "samples",
];

/// The rows, with a row of names above them.
pub(in crate::report) fn text(view: &PairsView) -> Result<String> {
    let mut text = CommaSeparated::new("the pairs as CSV", COLUMNS)?;
    for row in rows(view) {
        text.row(row)?;
    }
    text.finish()
}

/// The cells of every pair.
pub(in crate::report) fn rows(view: &PairsView) -> impl Iterator<Item = [String; COLUMNS.len()]> {
    view.pairs.iter().map(|pair| cells(view, pair))
}

fn cells(view: &PairsView, pair: &Pair) -> [String; COLUMNS.len()] {
    let (a, b) = (&view.ranks[pair.a], &view.ranks[pair.b]);
    let number = |index: usize, decimals: usize| {
        let value = pair.values[index];
        value.map(|value| format!("{:.decimals$}", value.value)).unwrap_or_default()
    };
    let percent = |index: usize| {
        let value = pair.values[index];
        value.map(|value| format!("{:.2}", value.percent)).unwrap_or_default()
    };
    let samples: u64 = pair.values.iter().flatten().map(|value| value.samples).sum();
    [
        a.rank.to_string(),
        b.rank.to_string(),
        harmless(&a.host),
        harmless(&b.host),
        pair.locality.name().to_owned(),
        number(0, 12),
        percent(0),
        number(1, 0),
        percent(1),
        number(2, 0),
        percent(2),
        samples.to_string(),
    ]
}
