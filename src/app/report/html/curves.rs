//! Bus bandwidth and latency against size, with what is expected, the bound and the intervals; and the distributions of
//! latency.

use super::page::HtmlInput;
use crate::chart::{Axis, Histogram, HistogramRow, Line, LineKind, Mark, Plot, Point, Position, Series, Unit, xy};
use crate::report::document::{Block, Figure};
use crate::report::row::{Latency, Row};
use commgauge_base::collective::Placement;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::Interval;
use commgauge_base::units::{Seconds, counted};
use commgauge_base::variant;
use commgauge_base::writing::grouped;
use commgauge_judge::verdict::Metric;
use commgauge_model::record::line::{CaseFacts, CaseLine, Outcome};
use commgauge_model::workload::Style;
use std::collections::{BTreeMap, BTreeSet};

/// Groups with charts; further ones are in the table only.
const MAX_GROUPS: usize = 16;

/// Groups whose charts are open initially.
const MAX_OPEN: usize = 1;

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

/// The section.
pub(super) fn blocks(input: &HtmlInput) -> Vec<Block> {
    let (groups, without) = groups(input);
    if groups.is_empty() {
        return Vec::new();
    }
    let limits = limits(input);
    let mut blocks = vec![Block::text(
        "Points are medians of the replicates' medians, whiskers the hull of their 95 % intervals; All rows has the numbers. Small messages \
         are to be read on the time axis, large ones on the bandwidth axis.",
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
                "{} in between are omitted from the pictures here; see All rows.",
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
    let others =
        [(more, "have three sizes or more and no chart here"), (without, "have one or two sizes and no curve")];
    let others = others.into_iter().filter(|(count, _)| *count > 0);
    blocks.extend(others.map(|(count, what)| Block::text(format!("{} {what}: see All rows.", kinds(count)))));
    blocks
}

/// All collectives on one chart of bandwidth and one of latency: the streaming curves, of many only the first of each call.
pub(super) fn overview(input: &HtmlInput) -> Option<Block> {
    let (groups, _) = groups(input);
    let is_streaming = |curve: &&Curve| curve.rows.iter().all(|(_, row)| row.facts.cadence == Cadence::Streaming);
    let streaming = groups.iter().any(|group| group.curves.iter().any(|curve| is_streaming(&curve)));
    let shown = |curve: &&Curve| !streaming || is_streaming(curve);
    let all: usize = groups.iter().map(|group| group.curves.iter().filter(shown).count()).sum();
    let of_each = if all > MAX_CURVES { 1 } else { MAX_CURVES };
    let named = groups.iter().flat_map(|group| group.curves.iter().filter(shown).take(of_each)).map(|curve| Curve {
        run: curve.run,
        name: format!("{}, {}", curve.rows.first().map_or("", |(_, row)| row.facts.collective.name()), curve.name),
        rows: curve.rows.clone(),
    });
    let mut together = Group { name: "every collective".to_owned(), curves: named.collect() };
    if together.curves.is_empty() {
        return None;
    }
    together.thin(MAX_POINTS);
    let none = Limits::new();
    let drawn = [("Bus bandwidth", bandwidth(&together, &none)), ("Latency", latency(&together, &none))];
    let figures = drawn.into_iter().filter(|(_, plot)| plot.series.iter().any(|series| !series.points.is_empty()));
    let figure = |(name, plot): (&str, Plot)| Figure::new(name, Plot { room_height: 150.0, ..plot }.draw());
    Some(Block::Charts(figures.map(figure).collect()))
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
    figures.extend(distributions(input, group));
    vec![Block::Charts(figures)]
}

fn limits<'a>(input: &HtmlInput<'a>) -> Limits<'a> {
    let rows = input.verdict.into_iter().flat_map(|verdict| &verdict.rows);
    let about = rows.filter_map(|row| Some((row.name.as_str(), row.against_limit.as_ref()?)));
    about.map(|(name, limit)| (name, (limit.metric, limit.limit, limit.source.as_str()))).collect()
}

fn bandwidth(group: &Group, limits: &Limits) -> Plot {
    let rate = Axis::linear("bus bandwidth", Unit::BytesPerSecond);
    let mut plot = plot(group, "Bus bandwidth", rate, &bytes_over).log_over_decades();
    plot.lines.extend(expected(group, limits, Metric::BusBandwidthBytesPerSecond));
    plot.lines.extend(bound(group));
    plot
}

fn latency(group: &Group, limits: &Limits) -> Plot {
    let mut plot = plot(group, "Latency", Axis::log("time of one call", Unit::Seconds), &|_, seconds| Some(seconds));
    plot.lines.extend(expected(group, limits, Metric::LatencySeconds));
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

/// The bus bandwidth of a row that takes these seconds, or its seconds at this bandwidth.
fn bytes_over(row: &Row, other: f64) -> Option<f64> {
    let bytes = row.facts.bytes_accounted.0 as f64 * row.facts.bus_factor?;
    (other > 0.0 && bytes > 0.0).then(|| bytes / other)
}

/// The limits of the rows on an axis of this metric.
fn expected(group: &Group, limits: &Limits, axis: Metric) -> Option<Line> {
    let of = |row: &Row, metric: Metric, limit: f64| match metric {
        Metric::CopyBytesPerSecond | Metric::FlopsPerSecond => None,
        _ if metric == axis => Some(limit),
        _ => bytes_over(row, limit),
    };
    let limit = |row: &Row| {
        let (metric, limit, _) = limits.get(row.facts.name.as_str())?;
        Some((row.facts.bytes_total.0, of(row, *metric, *limit)?))
    };
    let points = group.curves.iter().flat_map(|curve| &curve.rows).filter_map(|(_, row)| limit(row)).collect();
    line("expected", LineKind::Expected, points)
}

fn bound(group: &Group) -> Option<Line> {
    let rows = group.curves.iter().flat_map(|curve| &curve.rows);
    let points = rows.filter_map(|(_, row)| Some((row.facts.bytes_total.0, row.facts.bound_bytes_per_second?.0)));
    line("bound of the links", LineKind::Bound, points.collect())
}

fn line(name: &str, kind: LineKind, points: BTreeMap<u64, f64>) -> Option<Line> {
    let points: Vec<Position> = points.into_iter().map(|(bytes, value)| xy(bytes as f64, value)).collect();
    (!points.is_empty()).then(|| Line { name: name.to_owned(), kind, points })
}

// How the times of a call scatter: histograms whose bins are the same in every report, and percentiles.

/// Sizes in the picture, spread over those measured.
const MAX_SIZES: usize = 5;

/// The picture of the curve with the most sizes.
fn distributions(input: &HtmlInput, group: &Group) -> Option<Figure> {
    let curve = group.curves.iter().max_by_key(|curve| (curve.rows.len(), std::cmp::Reverse(curve.run)))?;
    let lines = lines_of(input, curve);
    let of_row = |(index, row): &(usize, &Row)| Some(scattered(row, row.latency?, lines.get(index)?));
    let rows: Vec<HistogramRow> = curve.rows.iter().filter_map(of_row).collect();
    let mut histogram = Histogram::new("How latency scatters");
    let all = rows.len();
    histogram.rows = spread(rows);
    histogram.description =
        format!("Histograms of the times of {}, {}; {} of {all} sizes.", group.name, curve.name, histogram.rows.len());
    (all > 0).then(|| Figure::new("How latency scatters", histogram.draw()))
}

/// The samples of a row.
fn scattered(row: &Row, latency: Latency, lines: &[&CaseLine]) -> HistogramRow {
    let (bins, largest) = bins(row, lines);
    let percentiles = [("p50", Some(latency.median)), ("p99", latency.p99), ("p99.9", latency.p999)];
    let marks = percentiles.into_iter().chain([("max", Some(Seconds(largest)))]);
    HistogramRow {
        label: row.facts.bytes_total.to_string(),
        bins,
        marks: marks.filter_map(|(name, at)| Some(Mark { name, at: at?.0 })).collect(),
    }
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

/// The measured lines of each case of the run of a curve.
fn lines_of<'a>(input: &HtmlInput<'a>, curve: &Curve) -> BTreeMap<usize, Vec<&'a CaseLine>> {
    let mut lines: BTreeMap<usize, Vec<&CaseLine>> = BTreeMap::new();
    let cases = input.runs.iter().chain(input.base).nth(curve.run).map_or(&[][..], |run| &run.record.cases);
    for line in cases.iter().filter(|line| matches!(line.outcome, Outcome::Measured { .. })) {
        lines.entry(line.case as usize).or_default().push(line);
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

// Groups rows by chart: the same call, group, place and cadence, at several sizes.

/// Fewer sizes make no curve.
const MIN_SIZES: usize = 3;

/// Rows, each with its index in its run.
type Numbered<'a> = Vec<(usize, &'a Row)>;

/// One chart's worth of rows.
pub(super) struct Group<'a> {
    /// Common properties, as a heading.
    pub name: String,
    /// The curves.
    pub curves: Vec<Curve<'a>>,
}

impl Group<'_> {
    /// Leaves about `most` rows in each curve: its ends, every n-th between, and those that did not measure what they should.
    /// Returns the number of rows that are left out.
    pub fn thin(&mut self, most: usize) -> usize {
        let is_odd = |(_, row): &(usize, &Row)| row.status.reason().is_some();
        self.curves.iter_mut().map(|curve| thin(&mut curve.rows, most, is_odd)).sum()
    }
}

/// Leaves about `most` of them: the ends, every n-th between, and those that stand out. Returns how many are left out.
pub(super) fn thin<T>(all: &mut Vec<T>, most: usize, is_kept: impl Fn(&T) -> bool) -> usize {
    let (count, mut index) = (all.len(), 0);
    let step = count.div_ceil(most).max(1);
    all.retain(|one| {
        index += 1;
        (index - 1) % step == 0 || index == count || is_kept(one)
    });
    count - all.len()
}

/// One run's rows of a group in one placement, by size.
pub(super) struct Curve<'a> {
    /// Index of the run; those of the base come after the records.
    pub run: usize,
    /// Name in the legend.
    pub name: String,
    /// Index of each row in its run, and the row.
    pub rows: Numbered<'a>,
}

/// Every group with enough sizes for a curve, in the order of the plan, and the number of those without.
pub(super) fn groups<'a>(input: &HtmlInput<'a>) -> (Vec<Group<'a>>, usize) {
    let runs: Vec<_> = input.runs.iter().chain(input.base).collect();
    let rows = runs.iter().enumerate().flat_map(|(run, shown)| {
        let rows = shown.view.rows.iter().enumerate();
        rows.map(move |(index, row)| (key(&row.facts), (run, index, row)))
    });
    let is_drawn = |row: &Row| row.facts.style != Style::Pairs && row.facts.solo_of.is_none() && row.latency.is_some();
    let of_key = |(name, rows): (String, Vec<(usize, usize, &'a Row)>)| {
        let mut curves: BTreeMap<(usize, Placement, String), Numbered<'a>> = BTreeMap::new();
        for (run, index, row) in rows {
            let curve = (run, row.facts.placement, variant::shown(&row.facts.labels));
            curves.entry(curve).or_default().push((index, row));
        }
        let curve = |((run, placement, variant), mut rows): ((usize, Placement, String), Numbered<'a>)| {
            rows.sort_by_key(|(_, row)| row.facts.bytes_total);
            Curve { run, name: curve_name(input, run, placement, &variant), rows }
        };
        Group { name, curves: curves.into_iter().map(curve).collect() }
    };
    let drawn = rows.filter(|(_, (.., row))| is_drawn(row));
    let mut groups: Vec<Group> = grouped(drawn).into_iter().map(of_key).collect();
    let all = groups.len();
    groups.retain(|group| group.curves.iter().any(|curve| sizes(curve) >= MIN_SIZES));
    let without = all - groups.len();
    (groups, without)
}

/// Which run it is, where there are several, and what else tells the curve from others of its group.
fn curve_name(input: &HtmlInput, run: usize, placement: Placement, variant: &str) -> String {
    let placement = placement.to_string().replace('_', " ");
    let name = match input.runs.len() + input.base.len() {
        1 => placement,
        _ if run >= input.runs.len() => format!("base, {placement}"),
        _ => format!("run {}, {placement}", run + 1),
    };
    if variant.is_empty() { name } else { format!("{name}, {variant}") }
}

fn sizes(curve: &Curve) -> usize {
    let mut sizes: Vec<u64> = curve.rows.iter().map(|(_, row)| row.facts.bytes_total.0).collect();
    sizes.dedup();
    sizes.len()
}

fn key(facts: &CaseFacts) -> String {
    let groups = if facts.groups == 1 { String::new() } else { format!(", {} groups at once", facts.groups) };
    let place = match facts.locality.is_known() {
        true => format!(" on {} (hosts x ranks)", facts.locality),
        false => String::new(),
    };
    let combined = facts.reduce_op.map_or_else(String::new, |op| format!(" {op}"));
    format!(
        "{}, {} of {} ranks{place}{groups}, {}{combined}, {}",
        facts.collective, facts.axis, facts.group_size, facts.element_type, facts.cadence
    )
}
