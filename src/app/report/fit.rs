//! The tables of a fit (every curve, the held-out errors, the coefficients of contention, interference and overlap) and its plots.

use super::document::{Block, Fields, Mark, Table, Terminal, Tone, between, gigabytes_per_second, optional, wrapped};
use crate::chart::{Axis, Line, LineKind, Plot, Point, Position, Series, Shade, Svg, Unit, xy};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Bytes, Seconds, three_digits};
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::{CommaSeparated, grouped};
use commgauge_cost::cost::{
    Coefficient, Contention, CurveFit, Errors, FamilyFit, FamilyKey, Fit, PointFit, Prediction, Predictor, Query,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;

/// The tables for a terminal of this width.
pub fn fit_text(fit: &Fit, width: u16) -> String {
    let synthetic = "SYNTHETIC: no data moved and no real time passed; nothing below was measured";
    let mut blocks: Vec<Block> = fit.synthetic.then(|| Block::Alarm(synthetic.to_owned())).into_iter().collect();
    blocks.push(Block::Table(Table { title: String::new(), ..curves(fit) }));
    blocks.extend(match held_out(fit) {
        Some(table) => vec![Block::Table(table)],
        None => vec![
            Block::heading("Held-out errors, relative"),
            Block::list(["not available: too few sizes to leave any out"]),
        ],
    });
    blocks.extend(coefficients(fit));
    blocks.push(Block::marked(Mark::Star, &fit.warnings));
    Terminal::plain(width).draw(&blocks)
}

/// Every curve.
pub(super) fn curves(fit: &Fit) -> Table {
    let title = "Alpha: cost of a call however small. 1/beta: bytes_total over time of a call however large";
    let microseconds = |seconds: Seconds| three_digits(seconds.0 * 1e6);
    let alpha = |curve: &CurveFit| between(curve.alpha_seconds_low, curve.alpha_seconds_high, "..", microseconds);
    let beta =
        |curve: &CurveFit| between(curve.bytes_per_second_low, curve.bytes_per_second_high, "..", gigabytes_per_second);
    let error = |curve: &CurveFit, of: fn(Errors) -> f64| {
        optional(curve.held_out_sizes.map(|errors| format!("{:.1}", 100.0 * of(errors))))
    };
    let curves = fit.families.iter().flat_map(|family| family.curves.iter().map(move |curve| (&family.key, curve)));
    Fields::of(curves)
        .left("collective", 0, |(key, _)| key.collective.to_string() + &labels(key))
        .left("type", 0, |(key, _)| element(key))
        .left("locality", 0, |(key, _)| key.place)
        .left("cadence", 0, |(key, _)| key.cadence)
        .right("ranks", 0, |(_, curve)| curve.ranks)
        .right("sizes", 5, |(_, curve)| curve.points.len())
        .right("disturbed", 7, |(_, curve)| curve.points.iter().filter(|point| point.is_disturbed()).count())
        .right("alpha us", 0, |(_, curve)| microseconds(curve.alpha_seconds))
        .right("95 %", 3, |(_, curve)| alpha(curve))
        .right("1/beta GB/s", 0, |(_, curve)| optional(curve.bytes_per_second.map(gigabytes_per_second)))
        .right("95 % GB/s", 4, |(_, curve)| beta(curve))
        .right("held-out median %", 1, |(_, curve)| error(curve, |errors| errors.median))
        .right("mean %", 8, |(_, curve)| {
            error(curve, |errors| errors.mean) + if curve.untrusted { " UNTRUSTED" } else { "" }
        })
        .toned(title, |(_, curve)| if curve.untrusted { Tone::Unsure } else { Tone::Plain })
        .whole_in("`commgauge calibrate --format json` has every curve")
}

fn element(key: &FamilyKey) -> String {
    key.element_type.map_or_else(|| "any".to_owned(), |element| element.to_string())
}

/// Errors at what the fit did not see; none where nothing could be left out.
pub(super) fn held_out(fit: &Fit) -> Option<Table> {
    let percent = |value: f64| format!("{:.1}", 100.0 * value);
    let sizes = fit.held_out.sizes.iter().map(|errors| ("every second size".to_owned(), errors));
    let regimes = fit.held_out.regimes.iter().map(|by| (format!("  {}", by.regime.name()), &by.errors));
    let group_sizes = fit.held_out.group_sizes.iter().map(|errors| ("inner group sizes".to_owned(), errors));
    let table = Fields::of(sizes.chain(regimes).chain(group_sizes))
        .left("left out", 0, |(name, _)| name.clone())
        .right("points", 2, |(_, errors)| errors.points)
        .right("median %", 0, |(_, errors)| percent(errors.median))
        .right("p95 %", 0, |(_, errors)| optional(errors.p95.map(percent)))
        .right("maximum %", 0, |(_, errors)| percent(errors.maximum))
        .right("bias %", 1, |(_, errors)| percent(errors.bias))
        .table("Held-out errors, relative");
    (!table.rows.is_empty()).then_some(table)
}

/// Labels that distinguish a curve from others of the same call.
pub(super) fn labels(key: &FamilyKey) -> String {
    let words: Vec<String> =
        key.labels.iter().map(|(name, text)| format!("{} {}", name.escape_debug(), text.escape_debug())).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

/// The tables of coefficients, as far as the fit has them.
pub(super) fn coefficients(fit: &Fit) -> impl Iterator<Item = Block> + '_ {
    let tables = [contention(fit), interference(fit), overlap(fit), both_ways(fit)];
    tables.into_iter().filter(|table| !table.rows.is_empty()).map(Block::Table)
}

fn contention(fit: &Fit) -> Table {
    let title = "Contention: with x times as many groups at once a call takes x^exponent times as long";
    let counted_per = |one: &Contention| match one.adapters_per_node {
        None => "node".to_owned(),
        Some(adapters) => format!("adapter ({adapters} a node)"),
    };
    Fields::of(&fit.contention)
        .left("call", 0, |one| one.collective.map_or_else(|| "all others".to_owned(), |call| call.to_string()))
        .left("groups", 1, |one| if one.across_nodes { "across nodes" } else { "within a node" })
        .left("cadence", 3, |one| one.cadence)
        .left("counted per", 5, |one| counted_per(one))
        .right("measured", 2, |one| format!("{}..{} groups", one.groups_fewest, one.groups_most))
        .right("latency ^", 0, |one| value(one.latency_exponent.as_ref()))
        .right("95 %", 0, |one| interval(one.latency_exponent.as_ref()))
        .right("bandwidth ^", 0, |one| value(one.bandwidth_exponent.as_ref()))
        .right("95 %", 0, |one| interval(one.bandwidth_exponent.as_ref()))
        .right("error p95 %", 1, |one| format!("{:.1}", 100.0 * one.errors.p95_or_maximum()))
        .left("of", 4, |one| one.errors_from.name())
        .table(title)
}

fn interference(fit: &Fit) -> Table {
    let title = "Interference: time of a call while calls of another axis are in flight, over its time alone";
    Fields::of(&fit.interference)
        .left("timed", 0, |pair| format!("{} {}", pair.calls.axis, pair.calls.collective))
        .left("beside", 0, |pair| format!("{} {}", pair.calls.beside_axis, pair.calls.beside_collective))
        .right("together/alone", 0, |pair| value(Some(&pair.slowdown)))
        .right("95 %", 0, |pair| interval(Some(&pair.slowdown)))
        .right("replicates", 1, |pair| pair.slowdown.measurements)
        .table(title)
}

fn overlap(fit: &Fit) -> Table {
    Fields::of(&fit.overlap)
        .left("axis", 0, |overlap| overlap.axis)
        .right("hidden share", 0, |overlap| value(Some(&overlap.hidden_share)))
        .right("95 %", 0, |overlap| interval(Some(&overlap.hidden_share)))
        .right("hidden/alone", 0, |overlap| value(overlap.slowdown.as_ref()))
        .right("95 %", 0, |overlap| interval(overlap.slowdown.as_ref()))
        .right("replays", 1, |overlap| overlap.hidden_share.measurements)
        .table("Overlap with computing, from replays")
}

fn both_ways(fit: &Fit) -> Table {
    Fields::of(&fit.both_ways)
        .left("stages", 0, |both| if both.between_hosts { "on different hosts" } else { "on one host" })
        .right("message both ways/alone", 0, |both| value(Some(&both.slowdown)))
        .right("95 %", 0, |both| interval(Some(&both.slowdown)))
        .right("replays", 1, |both| both.slowdown.measurements)
        .table("Messages of both directions at once, from replays without computing")
}

/// A number and its interval.
fn value(coefficient: Option<&Coefficient>) -> String {
    optional(coefficient.map(|found| format!("{:.2}", found.value)))
}

fn interval(coefficient: Option<&Coefficient>) -> String {
    let (low, high) = coefficient.map_or((None, None), |found| (found.low, found.high));
    between(low, high, "..", |end| format!("{end:.2}"))
}

// Plots of a fit: for every family of curves the measured points, the curve with its band, and below it the errors of
// held-out sizes.

/// Points per doubling of the size at which a curve is drawn.
const PER_DOUBLING: f64 = 6.0;

/// Factor by which the plot extends beyond the measured sizes.
const BEYOND: f64 = 4.0;

const WIDTH: f64 = 640.0;

/// The name of an SVG file for each family, and its content.
pub fn fit_plots(fit: &Fit) -> Vec<(String, String)> {
    let predictor = Predictor::new(fit);
    let drawn =
        |(index, family)| (format!("{}.svg", name(index, family)), picture(fit, &predictor, index).standalone());
    fit.families.iter().enumerate().map(drawn).collect()
}

/// A file name of letters, digits and dashes only: labels come from untrusted files.
fn name(index: usize, family: &FamilyFit) -> String {
    let key = &family.key;
    let text = format!("{:03}-{}-{}-{}-{}", index + 1, key.collective, element(key), key.place, key.cadence);
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect()
}

fn title(fit: &Fit, family: &FamilyFit) -> String {
    let key = &family.key;
    let element = key.element_type.map_or_else(String::new, |element| format!(" of {element}"));
    let labels: String = key.labels.iter().map(|(name, text)| format!(", {name} {text}")).collect();
    let begin = if fit.synthetic { "SYNTHETIC: " } else { "" };
    format!("{begin}{}{element}, locality {}, {}{labels}", key.collective, key.place, key.cadence)
}

fn picture(fit: &Fit, predictor: &Predictor, index: usize) -> Svg {
    let family = &fit.families[index];
    let times = Plot {
        description: "Measured times, the curve through them, and the band in which 95 of 100 predictions lie"
            .to_owned(),
        series: family.curves.iter().enumerate().map(|(color, curve)| series(predictor, index, curve, color)).collect(),
        shades: shades(family),
        width: WIDTH,
        room_height: 260.0,
        ..Plot::new(
            title(fit, family),
            Axis::log("bytes_total", Unit::Bytes),
            Axis::log("time of a call; crosses: outliers", Unit::Seconds),
        )
    };
    let ends = ends(family);
    let level = |percent: f64| vec![xy(ends.0 / BEYOND, percent), xy(ends.1 * BEYOND, percent)];
    let line = |name: &str, kind, percent| Line { name: name.to_owned(), kind, points: level(percent) };
    let errors = Plot {
        description: "Error of the prediction of each size from the other ones".to_owned(),
        series: family.curves.iter().enumerate().map(|(color, curve)| residuals(curve, color)).collect(),
        lines: vec![
            line("", LineKind::Plain, 0.0),
            line("10 %: above it, on average, a curve is untrusted", LineKind::Bound, 10.0),
            line("10 %: above it, on average, a curve is untrusted", LineKind::Bound, -10.0),
        ],
        width: WIDTH,
        room_height: 130.0,
        ..Plot::new(
            "Sizes left out: predicted against measured",
            Axis::log("bytes_total", Unit::Bytes),
            Axis::linear("error", Unit::Percent),
        )
    };
    times.draw().above(&errors.draw())
}

fn ends(family: &FamilyFit) -> (f64, f64) {
    let sizes = || family.curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.bytes_total.0 as f64));
    (sizes().fold(f64::INFINITY, f64::min), sizes().fold(1.0, f64::max))
}

/// Shades sizes outside of the measured range of all group sizes.
fn shades(family: &FamilyFit) -> Vec<Shade> {
    let (first, last) = ends(family);
    let shade = |from: f64, to: f64| Shade { from, to, name: "extrapolated".to_owned() };
    vec![shade((first / BEYOND).max(1.0), first), shade(last, last * BEYOND)]
}

fn series(predictor: &Predictor, index: usize, curve: &CurveFit, color: usize) -> Series {
    let suffix = if curve.untrusted { ", untrusted" } else { "" };
    let mut series = Series::new(format!("{} ranks{suffix}", curve.ranks));
    series.color = Some(color);
    series.points = curve
        .points
        .iter()
        .map(|point| Point {
            crossed: point.outlier,
            ..Point::at(point.bytes_total.0 as f64, point.measured_seconds.0)
        })
        .collect();
    let sizes = || curve.points.iter().map(|point| point.bytes_total.0 as f64);
    let (first, last) =
        ((sizes().fold(f64::INFINITY, f64::min) / BEYOND).max(1.0), sizes().fold(1.0, f64::max) * BEYOND);
    let steps = ((last / first).log2() * PER_DOUBLING).ceil().clamp(1.0, 1000.0);
    (series.curve, series.band) = predicted(predictor, index, curve.ranks, first, last, steps as u32);
    series
}

/// The predicted times between two sizes in this many steps, and the band around them.
pub(super) fn predicted(
    predictor: &Predictor,
    family: usize,
    ranks: u32,
    first: f64,
    last: f64,
    steps: u32,
) -> (Vec<Position>, Vec<(f64, f64, f64)>) {
    let (mut curve, mut band) = (Vec::new(), Vec::new());
    for step in 0..=steps {
        let bytes = (first * (last / first).powf(f64::from(step) / f64::from(steps))).round().max(1.0);
        let answer = predictor.predict_by(family, ranks, Bytes(bytes as u64));
        curve.extend(answer.seconds.map(|seconds| xy(bytes, seconds.0)));
        band.extend(answer.low.zip(answer.high).map(|(low, high)| (bytes, low.0, high.0)));
    }
    (curve, band)
}

fn residuals(curve: &CurveFit, color: usize) -> Series {
    let mut series = Series::new(String::new());
    series.color = Some(color);
    let point = |point: &PointFit| {
        Some(Point { crossed: point.outlier, ..Point::at(point.bytes_total.0 as f64, 100.0 * point.left_out_error?) })
    };
    series.points = curve.points.iter().filter_map(point).collect();
    series
}

// Predictions of single calls: the queries with the columns of their file, and the answers next to them.

const REQUIRED: [&str; 3] = ["collective", "ranks", "bytes_total"];

/// Queries, and the text that they were read from.
#[derive(Clone, Debug)]
pub struct QueryInput {
    columns: Vec<String>,
    values: Vec<Vec<String>>,
    /// The calls.
    pub queries: Vec<Query>,
}

impl QueryInput {
    /// One query, as a file with one line.
    ///
    /// # Errors
    /// A usage error that names the value that cannot be parsed.
    pub fn of_flags(columns: Vec<String>, values: Vec<String>) -> Result<QueryInput> {
        let query = query(&columns, &values).map_err(Error::usage)?;
        Ok(QueryInput { columns, values: vec![values], queries: vec![query] })
    }

    /// The text of a column, unless it is missing or empty.
    pub fn value(&self, query: usize, column: &str) -> Option<&str> {
        fit_query_text(&self.columns, self.values.get(query)?, column)
    }
}

/// Reads a CSV file of queries. Unknown columns are passed through.
///
/// # Errors
/// A usage error that names every line that cannot be parsed.
pub fn read_queries(path: &Path) -> Result<QueryInput> {
    let wrong = |problem: String| Error::usage(format!("--queries {}: {problem}", path.shown()));
    let file = commgauge_base::host::read(path).map_err(|cause| wrong(cause.to_string()))?;
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(file.as_slice());
    let columns: Vec<String> =
        reader.headers().map_err(|cause| wrong(cause.to_string()))?.iter().map(str::to_owned).collect();
    if let Some(missing) = REQUIRED.iter().find(|name| !columns.iter().any(|column| column == **name)) {
        return Err(wrong(format!("line 1: there is no column `{missing}`; needed are {}", REQUIRED.join(", "))));
    }
    let mut input = QueryInput { columns, values: Vec::new(), queries: Vec::new() };
    let mut problems = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|cause| wrong(cause.to_string()))?;
        let values: Vec<String> = record.iter().map(str::to_owned).collect();
        match query(&input.columns, &values) {
            Ok(query) => input.queries.push(query),
            Err(problem) => {
                let line = record.position().map_or(0, csv::Position::line);
                problems.push(format!("line {line}: {problem}"));
            }
        }
        input.values.push(values);
    }
    if problems.is_empty() { Ok(input) } else { Err(wrong(problems.join("\n"))) }
}

fn fit_query_text<'a>(columns: &[String], values: &'a [String], name: &str) -> Option<&'a str> {
    let index = columns.iter().position(|column| column == name)?;
    values.get(index).map(String::as_str).filter(|text| !text.is_empty())
}

fn query(columns: &[String], values: &[String]) -> std::result::Result<Query, String> {
    let needed = |name: &str| fit_query_text(columns, values, name).ok_or_else(|| format!("{name}: is missing"));
    let number = |name: &str| {
        let found = needed(name)?;
        found.parse::<u64>().map_err(|_| format!("{name}: found `{found}`; accepted: a whole number"))
    };
    let ranks = number("ranks")?;
    let parsed = |name: &str, problem: String| format!("{name}: {problem}");
    Ok(Query {
        collective: commgauge_readers::interop::collective_named(needed("collective")?)?,
        ranks: u32::try_from(ranks).map_err(|_| format!("ranks: found `{ranks}`; accepted: up to {}", u32::MAX))?,
        bytes_total: Bytes(number("bytes_total")?),
        element_type: fit_query_text(columns, values, "dtype")
            .map(|name| name.parse().map_err(|problem| parsed("dtype", problem)))
            .transpose()?,
        locality: fit_query_text(columns, values, "locality")
            .map(|name| name.parse().map_err(|problem| parsed("locality", problem)))
            .transpose()?,
        cadence: None,
    })
}

/// The value of `format`.
pub const PREDICTIONS_FORMAT: &str = "commgauge-predictions";

/// Incremented when a field is removed or changes its meaning.
pub const PREDICTIONS_VERSION: u32 = 1;

/// What `commgauge rank call --format json` prints.
#[derive(Serialize, JsonSchema)]
pub struct Predictions<'a> {
    /// Always `commgauge-predictions`.
    format: &'static str,
    /// Version of the document.
    version: u32,
    /// File of the fit.
    fit: String,
    /// True where the fit comes from records without real times: nothing here is a prediction of a machine.
    synthetic: bool,
    /// In the order of the queries.
    predictions: Vec<Answer<'a>>,
}

/// A query and its answer.
#[derive(Serialize, JsonSchema)]
struct Answer<'a> {
    /// The call.
    collective: &'a str,
    /// Ranks of the group.
    ranks: u32,
    /// The size argument in the sense of nccl-tests.
    bytes_total: Bytes,
    /// Element type, as it was requested.
    dtype: Option<&'a str>,
    /// Locality, as it was requested.
    locality: Option<&'a str>,
    #[serde(flatten)]
    prediction: &'a Prediction,
}

/// The document of a fit, queries to it, and the answers.
pub fn predictions_document<'a>(
    path: &Path,
    fit: &Fit,
    input: &'a QueryInput,
    answers: &'a [Prediction],
) -> Predictions<'a> {
    let predictions = input.queries.iter().enumerate().zip(answers).map(|((index, query), answer)| Answer {
        collective: query.collective.name(),
        ranks: query.ranks,
        bytes_total: query.bytes_total,
        dtype: input.value(index, "dtype"),
        locality: input.value(index, "locality"),
        prediction: answer,
    });
    Predictions {
        format: PREDICTIONS_FORMAT,
        version: PREDICTIONS_VERSION,
        fit: path.display().to_string(),
        synthetic: fit.synthetic,
        predictions: predictions.collect(),
    }
}

/// The columns of the queries, then the answers, as CSV.
///
/// # Errors
/// Where it cannot be written.
pub fn predictions_csv(input: &QueryInput, answers: &[Prediction]) -> Result<String> {
    let added = ["seconds", "low", "high", "status", "untrusted", "reason"];
    let heading = input.columns.iter().map(String::as_str).chain(added);
    let mut text = CommaSeparated::new("the answer as CSV", heading)?;
    for (values, answer) in input.values.iter().zip(answers) {
        let number = |seconds: Option<Seconds>| seconds.map_or_else(String::new, |seconds| format!("{:e}", seconds.0));
        let own = [
            number(answer.seconds),
            number(answer.low),
            number(answer.high),
            answer.status.name().to_owned(),
            answer.untrusted.to_string(),
            answer.reason.clone().unwrap_or_default(),
        ];
        text.row(values.iter().chain(&own))?;
    }
    text.finish()
}

/// The answers for a terminal of this width.
pub fn predictions_text(fit: &Fit, input: &QueryInput, answers: &[Prediction], width: u16) -> String {
    let status =
        |answer: &Prediction| format!("{}{}", answer.status.name(), if answer.untrusted { ", untrusted" } else { "" });
    let table = Fields::of(input.queries.iter().zip(answers))
        .left("collective", 0, |(query, _)| query.collective)
        .right("ranks", 0, |(query, _)| query.ranks)
        .right("size", 0, |(query, _)| query.bytes_total)
        .right("time", 0, |(_, answer)| optional(answer.seconds))
        .right("low", 0, |(_, answer)| optional(answer.low))
        .right("high", 0, |(_, answer)| optional(answer.high))
        .left("status", 0, |(_, answer)| status(answer))
        .text(width);
    let head = if fit.synthetic { "SYNTHETIC: the fit comes from records without real times\n\n" } else { "" };
    head.to_owned() + &table + &reasons(input, answers, width)
}

/// Reasons for refusals, and sources of scaled answers: each reason once, with the first call that it applies to.
fn reasons(input: &QueryInput, answers: &[Prediction], width: u16) -> String {
    let answered = input.queries.iter().zip(answers);
    let reasons = answered.filter_map(|(query, answer)| Some((answer.reason.as_deref()?, query)));
    let sentence = |(reason, queries): (&str, Vec<&Query>)| {
        let Query { collective, ranks, bytes_total, .. } = queries[0];
        let more = if queries.len() > 1 { format!(" and {} more", queries.len() - 1) } else { String::new() };
        wrapped(&format!("{collective} of {bytes_total} on {ranks} ranks{more}: {reason}"), width)
    };
    let lines: String = grouped(reasons).into_iter().map(sentence).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::published;
    use commgauge_cost::cost;
    use commgauge_cost::cost::{FitOptions, Measurements, fit as fitted};
    use commgauge_model::record::Record;
    use commgauge_model::record::line::ForeignTool;
    use commgauge_readers::interop::{Origin, read_csv, record_lines};
    use std::path::Path;

    fn h100() -> Fit {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/nccl/h100_sxm-nccl-2.29.2.csv");
        let lines = record_lines(
            "test",
            &Origin::of(ForeignTool::Csv, &["h100.csv".to_owned()]),
            &read_csv(&path).unwrap().rows,
        );
        let record = Record::from_lines(lines).unwrap();
        fitted(
            &Measurements::of([("h100.jsonl", &record)]).unwrap(),
            FitOptions { resamples: 40, ..FitOptions::default() },
        )
        .unwrap()
    }

    #[test]
    fn a_fit_fits_its_schema_and_reads_back_equal() {
        let fit = h100();
        let text = serde_json::to_string(&fit).unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let validator = jsonschema::validator_for(&published(cost::schema(), cost::FORMAT, cost::VERSION, "")).unwrap();
        let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fit.json");
        std::fs::write(&path, text).unwrap();
        assert_eq!(Fit::read(&path).unwrap(), fit);
    }

    #[test]
    fn the_table_of_a_fit() {
        insta::assert_snapshot!("fit_table_h100", fit_text(&h100(), 160));
    }

    #[test]
    fn a_synthetic_fit_is_labelled_first() {
        let fit = Fit { synthetic: true, ..h100() };
        assert!(fit_text(&fit, 100).starts_with("SYNTHETIC"));
    }

    #[test]
    fn every_family_gets_a_picture_with_its_curves_and_its_errors() {
        let fit = Fit { synthetic: true, ..h100() };
        let plots = fit_plots(&fit);
        assert_eq!(plots.len(), fit.families.len());
        for ((name, text), family) in plots.iter().zip(&fit.families) {
            for wanted in
                [&*format!("SYNTHETIC: {}", family.key.collective), "8 ranks", "extrapolated", "Sizes left out"]
            {
                assert!(text.contains(wanted), "{name}: {wanted}");
            }
            assert!(!text.contains("NaN") && !text.contains("inf"), "{name}");
        }
    }
}
