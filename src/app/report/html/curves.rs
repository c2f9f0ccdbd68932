//! Bus bandwidth and latency against size, with what is expected, the bound and the intervals; and the distributions of
//! latency.

use super::groups::{Curve, Group, groups};
use super::histograms;
use super::input::HtmlInput;
use crate::chart::{Axis, Line, LineKind, Plot, Point, Position, Series, Unit, xy};
use crate::report::document::{self, Block, Column, Figure, Table, Tone, optional, percent, range};
use crate::report::row::Row;
use commgauge_analysis::verdict::Metric;
use commgauge_base::stats::Interval;
use commgauge_base::units::counted;
use std::collections::{BTreeMap, BTreeSet};

/// Groups with charts; further ones are in the table only.
const MAX_GROUPS: usize = 16;
/// Groups whose charts are open initially.
const MAX_OPEN: usize = 3;
/// Points of a curve; a picture shows no more of them apart.
const MAX_POINTS: usize = 400;
/// Points of all curves with charts together, which keeps a page of very many sizes small.
const POINTS_OF_A_PAGE: usize = 1_200;
/// Points that a curve has in any case.
const MIN_POINTS: usize = 24;
/// Curves of a chart.
const MAX_CURVES: usize = 6;

/// Expectations by row name: metric, limit and source.
type Limits<'a> = BTreeMap<&'a str, (Metric, f64, &'a str)>;

/// A limit on the axis of a chart, for a row.
type OnAxis<'a> = &'a dyn Fn(&Row, (Metric, f64)) -> Option<f64>;

/// The section.
pub(super) fn blocks(input: &HtmlInput) -> Vec<Block> {
    let (groups, without) = groups(input);
    if groups.is_empty() {
        return vec![Block::absent(
            "Not available: no call was measured at three sizes or more. What was measured is among all rows.",
        )];
    }
    let limits = limits(input);
    let mut blocks = vec![Block::text(
        "Points are medians of the replicates' medians, whiskers the hull of their 95 % intervals. Small messages are to be read on the \
         time axis, large ones on the bandwidth axis.",
    )];
    let expected: BTreeSet<&str> = limits.values().map(|(.., from)| *from).collect();
    if !expected.is_empty() {
        let sources: Vec<&str> = expected.into_iter().collect();
        blocks.push(Block::text(format!("Expected: {}.", sources.join("; "))));
    }
    // Groups with the most sizes are the most informative.
    let mut picked: Vec<(usize, Group)> = groups.into_iter().enumerate().collect();
    picked.sort_by_key(|(_, group)| std::cmp::Reverse(group.curves.iter().map(|curve| curve.rows.len()).max()));
    let more = picked.len().saturating_sub(MAX_GROUPS);
    picked.truncate(MAX_GROUPS);
    picked.sort_by_key(|(place, _)| *place);
    let curves = picked.iter().map(|(_, group)| group.curves.len()).sum::<usize>().max(1);
    let points = (POINTS_OF_A_PAGE / curves).clamp(MIN_POINTS, MAX_POINTS);
    for (index, (_, mut group)) in picked.into_iter().enumerate() {
        let left_out = group.thin(points);
        let mut charts = of_group(input, &group, &limits);
        if left_out > 0 {
            charts.push(Block::text(format!(
                "For want of room {} between these are left out of the pictures and tables here; All rows has them.",
                counted(left_out, "row")
            )));
        }
        if index < MAX_OPEN {
            blocks.push(Block::heading(&group.name));
            blocks.extend(charts);
        } else {
            blocks.push(Block::folded(&group.name, charts));
        }
    }
    if more > 0 {
        blocks.push(Block::text(format!(
            "{} more of three sizes and more without a chart here; their rows are among all rows below.",
            kinds(more)
        )));
    }
    if without > 0 {
        let kinds = kinds(without);
        blocks.push(Block::text(format!("{kinds} measured at one or two sizes make no curve; see all rows.")));
    }
    blocks
}

fn kinds(count: usize) -> String {
    if count == 1 { "1 kind of call".to_owned() } else { format!("{count} kinds of calls") }
}

fn of_group(input: &HtmlInput, group: &Group, limits: &Limits) -> Vec<Block> {
    let mut figures = Vec::new();
    if group.curves.iter().any(|curve| curve.rows.iter().any(|(_, row)| row.busbw.is_some())) {
        figures.push(Figure::new("Bus bandwidth", bandwidth(group, limits).draw()));
    }
    figures.push(Figure::new("Latency", latency(group, limits).draw()));
    let (chart, table) = histograms::distributions(input, group);
    figures.extend(chart);
    vec![Block::Charts(figures), Block::Table(table_of(group, limits)), Block::Table(table.folded())]
}

fn limits<'a>(input: &HtmlInput<'a>) -> Limits<'a> {
    let rows = input.verdict.into_iter().flat_map(|verdict| &verdict.rows);
    let about = rows.filter_map(|row| Some((row.name.as_str(), row.against_limit.as_ref()?)));
    about.map(|(name, limit)| (name, (limit.metric, limit.limit, limit.source.as_str()))).collect()
}

fn bandwidth(group: &Group, limits: &Limits) -> Plot {
    let of = |row: &Row, seconds: f64| {
        let bytes = row.facts.bytes_accounted.0 as f64 * row.facts.bus_factor?;
        (seconds > 0.0 && bytes > 0.0).then(|| bytes / seconds)
    };
    let rate = Axis::linear("bus bandwidth", Unit::BytesPerSecond);
    let mut plot = plot(group, "Bus bandwidth", rate, &of).log_over_decades();
    let limit = |row: &Row, (metric, limit): (Metric, f64)| match metric {
        Metric::BusBandwidthBytesPerSecond => Some(limit),
        Metric::LatencySeconds => of(row, limit),
        Metric::CopyBytesPerSecond | Metric::FlopsPerSecond => None,
    };
    plot.lines.extend(expected(group, limits, &limit));
    plot.lines.extend(bound(group, |_, rate| Some(rate)));
    plot
}

fn latency(group: &Group, limits: &Limits) -> Plot {
    let mut plot = plot(group, "Latency", Axis::log("time of one call", Unit::Seconds), &|_, seconds| Some(seconds));
    let seconds = |row: &Row, rate: f64| {
        let bytes = row.facts.bytes_accounted.0 as f64 * row.facts.bus_factor?;
        (rate > 0.0 && bytes > 0.0).then(|| bytes / rate)
    };
    let limit = |row: &Row, (metric, limit): (Metric, f64)| match metric {
        Metric::BusBandwidthBytesPerSecond => seconds(row, limit),
        Metric::LatencySeconds => Some(limit),
        Metric::CopyBytesPerSecond | Metric::FlopsPerSecond => None,
    };
    plot.lines.extend(expected(group, limits, &limit));
    plot
}

fn plot(group: &Group, title: &str, y: Axis, of: &dyn Fn(&Row, f64) -> Option<f64>) -> Plot {
    let mut plot = Plot::new(title, Axis::log("bytes_total", Unit::Bytes), y);
    plot.description = format!("{title} of {} against size.", group.name);
    plot.series = group.curves.iter().take(MAX_CURVES).map(|curve| series(curve, of)).collect();
    plot
}

fn series(curve: &Curve, of: &dyn Fn(&Row, f64) -> Option<f64>) -> Series {
    let mut series = Series::new(&curve.name);
    for (_, row) in &curve.rows {
        let Some(latency) = row.latency else { continue };
        let x = row.facts.bytes_total.0 as f64;
        let Some(y) = of(row, latency.median.0) else { continue };
        let interval = latency.interval.and_then(|interval| of(row, interval.low.0).zip(of(row, interval.high.0)));
        let interval = interval.map(|(a, b)| Interval { low: a.min(b), high: a.max(b) });
        series.points.push(Point { interval, ..Point::at(x, y) });
        series.curve.push(xy(x, y));
    }
    series
}

fn expected(group: &Group, limits: &Limits, of: OnAxis) -> Option<Line> {
    let mut points: BTreeMap<u64, f64> = BTreeMap::new();
    for (_, row) in group.curves.iter().flat_map(|curve| &curve.rows) {
        let limit = limits.get(row.facts.name.as_str()).and_then(|(metric, limit, _)| of(row, (*metric, *limit)));
        if let Some(limit) = limit {
            points.insert(row.facts.bytes_total.0, limit);
        }
    }
    line("expected", LineKind::Expected, points)
}

fn bound(group: &Group, of: impl Fn(&Row, f64) -> Option<f64>) -> Option<Line> {
    let mut points: BTreeMap<u64, f64> = BTreeMap::new();
    for (_, row) in group.curves.iter().flat_map(|curve| &curve.rows) {
        if let Some(rate) = row.facts.bound_bytes_per_second.and_then(|rate| of(row, rate.0)) {
            points.insert(row.facts.bytes_total.0, rate);
        }
    }
    line("bound of the links", LineKind::Bound, points)
}

fn line(name: &str, kind: LineKind, points: BTreeMap<u64, f64>) -> Option<Line> {
    let points: Vec<Position> = points.into_iter().map(|(bytes, value)| xy(bytes as f64, value)).collect();
    (!points.is_empty()).then(|| Line { name: name.to_owned(), kind, points })
}

fn table_of(group: &Group, limits: &Limits) -> Table {
    const COLUMNS: [Column; 10] = [
        Column::right("bytes_total", 0),
        Column::left("curve", 0),
        Column::right("latency", 0),
        Column::right("95 % interval", 0),
        Column::right("busbw", 0),
        Column::right("of the bound", 0),
        Column::right("expected", 0),
        Column::right("samples", 0),
        Column::right("replicates", 0),
        Column::left("status", 0),
    ];
    let cells = |(curve, row): (&Curve, &Row)| {
        let limit = limits.get(row.facts.name.as_str());
        let cells = vec![
            row.facts.bytes_total.to_string(),
            curve.name.clone(),
            optional(row.latency.map(|latency| latency.median)),
            range(row.latency.and_then(|latency| latency.interval)),
            optional(row.busbw),
            optional(row.bound_share.map(|share| percent(share, 0))),
            optional(limit.map(|(metric, limit, _)| crate::report::verdict::value(*metric, *limit))),
            row.counts.samples.to_string(),
            row.counts.replicates.to_string(),
            row.status.label().to_owned(),
        ];
        document::Row::toned(if row.status.reason().is_some() { Tone::Bad } else { Tone::Plain }, cells)
    };
    let rows = group.curves.iter().flat_map(|curve| curve.rows.iter().map(move |(_, row)| (curve, *row)));
    Table::new(format!("Table: {}", group.name), &COLUMNS, rows.map(cells))
        .whole_in("`commgauge report --format csv` has every row")
        .folded()
}
