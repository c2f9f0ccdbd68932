//! The pairs as comma-separated values: one row for each, base units in the column names, empty where there is no number.

use super::view::{Measure, Pair, PairRank, PairsView};
use crate::report::text::harmless;
use commgauge_base::comma_separated::{Column, comma_separated};
use commgauge_base::error::Result;

/// A pair with the ranks of its view.
pub(in crate::report) struct PairRow<'a> {
    pair: &'a Pair,
    a: &'a PairRank,
    b: &'a PairRank,
}

/// The rows, with a row of names above them.
pub(in crate::report) fn text(view: &PairsView) -> Result<String> {
    comma_separated("the pairs as CSV", &columns(), rows(view))
}

/// Every pair.
pub(in crate::report) fn rows(view: &PairsView) -> impl Iterator<Item = PairRow<'_>> {
    view.pairs.iter().map(|pair| PairRow { pair, a: &view.ranks[pair.a], b: &view.ranks[pair.b] })
}

/// Their columns.
pub(in crate::report) fn columns<'a>() -> Vec<Column<PairRow<'a>>> {
    vec![
        Column::new("rank_a", |row| row.a.rank.to_string()),
        Column::new("rank_b", |row| row.b.rank.to_string()),
        Column::new("host_a", |row| harmless(&row.a.host)),
        Column::new("host_b", |row| harmless(&row.b.host)),
        Column::new("locality", |row| row.pair.locality.name().to_owned()),
        Column::new("latency_seconds", |row| row.value(Measure::Latency, 12)),
        Column::new("latency_percent_of_locality_median", |row| row.percent(Measure::Latency)),
        Column::new("bandwidth_bytes_per_second", |row| row.value(Measure::OneWay, 0)),
        Column::new("bandwidth_percent_of_locality_median", |row| row.percent(Measure::OneWay)),
        Column::new("bidirectional_bandwidth_bytes_per_second", |row| row.value(Measure::BothWays, 0)),
        Column::new("bidirectional_bandwidth_percent_of_locality_median", |row| row.percent(Measure::BothWays)),
        Column::new("samples", |row| {
            row.pair.values.iter().flatten().map(|value| value.samples).sum::<u64>().to_string()
        }),
    ]
}

impl PairRow<'_> {
    fn value(&self, measure: Measure, decimals: usize) -> String {
        let value = self.pair.values[measure as usize];
        value.map(|value| format!("{:.decimals$}", value.value)).unwrap_or_default()
    }

    fn percent(&self, measure: Measure) -> String {
        let value = self.pair.values[measure as usize];
        value.map(|value| format!("{:.2}", value.percent)).unwrap_or_default()
    }
}
