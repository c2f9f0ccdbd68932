//! How the times of a call scatter: histograms whose bins are the same in every report, and percentiles.

use super::groups::{Curve, Group};
use super::input::HtmlInput;
use crate::chart::{Histogram, HistogramRow, Mark};
use crate::report::document::{Column, Figure, Table};
use crate::report::row::Row;
use commgauge_base::units::Seconds;
use commgauge_model::record::line::{CaseLine, Outcome};
use std::collections::BTreeMap;

/// Sizes in the picture, spread over those measured.
const MAX_SIZES: usize = 5;

/// Picture and table of the first curve that has samples.
pub(super) fn distributions(input: &HtmlInput, group: &Group) -> (Option<Figure>, Table) {
    const COLUMNS: [Column; 6] = [
        Column::right("bytes_total", 0),
        Column::right("samples", 0),
        Column::right("p50", 0),
        Column::right("p99", 0),
        Column::right("p99.9", 0),
        Column::right("maximum", 0),
    ];
    let Some(curve) = group.curves.iter().max_by_key(|curve| (curve.rows.len(), std::cmp::Reverse(curve.run))) else {
        return (None, Table::new("Percentiles", &COLUMNS, Vec::<Vec<String>>::new()));
    };
    let mut cells = Vec::new();
    let mut rows = Vec::new();
    let lines = lines_of(input, curve);
    for (index, row) in &curve.rows {
        let (Some(latency), Some(lines)) = (row.latency, lines.get(index)) else { continue };
        let (bins, largest) = bins(row, lines);
        let percentile = |value: Option<Seconds>, fewest: u64| {
            value.map_or_else(|| format!("not available below {fewest} samples"), |value| value.to_string())
        };
        cells.push(vec![
            row.facts.bytes_total.to_string(),
            row.counts.samples.to_string(),
            latency.median.to_string(),
            percentile(latency.p99, 100),
            percentile(latency.p999, 1000),
            Seconds(largest).to_string(),
        ]);
        let marks = [("p50", Some(latency.median)), ("p99", latency.p99), ("p99.9", latency.p999)];
        let mut marks: Vec<Mark> = marks.into_iter().filter_map(|(name, at)| Some(Mark { name, at: at?.0 })).collect();
        marks.push(Mark { name: "max", at: largest });
        rows.push(HistogramRow { label: row.facts.bytes_total.to_string(), bins, marks });
    }
    let table = Table::new(format!("Percentiles of {}, {}", group.name, curve.name), &COLUMNS, cells)
        .whole_in("`commgauge report --format csv` has every row");
    if rows.is_empty() {
        return (None, table);
    }
    let all = rows.len();
    let rows = spread(rows);
    let mut histogram = Histogram::new("How latency scatters");
    histogram.description = format!("Histograms of the times of {}; {} of {all} sizes.", group.name, rows.len());
    histogram.rows = rows;
    let curve = format!("{}; bins are 40 to a factor of ten in every report", curve.name);
    (Some(Figure::new("How latency scatters", histogram.draw())), table.noted(curve))
}

/// The first, the last and some between.
fn spread(rows: Vec<HistogramRow>) -> Vec<HistogramRow> {
    let all = rows.len();
    if all <= MAX_SIZES {
        return rows;
    }
    let chosen: Vec<usize> = (0..MAX_SIZES).map(|index| index * (all - 1) / (MAX_SIZES - 1)).collect();
    rows.into_iter().enumerate().filter(|(index, _)| chosen.contains(index)).map(|(_, row)| row).collect()
}

fn lines_of<'a>(input: &HtmlInput<'a>, curve: &Curve) -> BTreeMap<usize, Vec<&'a CaseLine>> {
    let wanted: BTreeMap<usize, ()> = curve.rows.iter().map(|(index, _)| (*index, ())).collect();
    let mut lines: BTreeMap<usize, Vec<&CaseLine>> = BTreeMap::new();
    let Some(run) = input.runs.iter().chain(input.base).nth(curve.run) else { return lines };
    for line in &run.record.cases {
        if wanted.contains_key(&(line.case as usize)) && matches!(line.outcome, Outcome::Measured { .. }) {
            lines.entry(line.case as usize).or_default().push(line);
        }
    }
    lines
}

fn bins(row: &Row, lines: &[&CaseLine]) -> (Vec<(i32, u64)>, f64) {
    let (mut bins, mut largest) = (BTreeMap::new(), 0.0f64);
    for line in lines {
        let transfers = f64::from(line.calls_per_sample) * f64::from(row.facts.transfers_per_call);
        for index in line.samples.valid() {
            let seconds = Seconds::from_nanoseconds(line.samples.slowest_nanoseconds[index]).0 / transfers;
            if let Some(bin) = Histogram::bin_of(seconds) {
                *bins.entry(bin).or_insert(0) += 1;
                largest = largest.max(seconds);
            }
        }
    }
    (bins.into_iter().collect(), largest)
}
