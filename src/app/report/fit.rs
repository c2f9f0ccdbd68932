//! The tables of a fit (every curve, the held-out errors, the coefficients of contention, interference and overlap) and its plots.

use super::document::{Block, Mark, Terminal};
use super::template::{blocks, prose};
use crate::chart::{Axis, Line, LineKind, Plot, Point, Position, Series, Shade, Svg, Unit, xy};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Bytes, Seconds};
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::CommaSeparated;
use commgauge_cost::cost::{CurveFit, FamilyFit, Fit, PointFit, Prediction, Predictor, Query};
use minijinja::context;
use minijinja::value::Serde;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;

/// The tables for a terminal of this width.
pub fn fit_text(fit: &Fit, width: u16) -> String {
    let synthetic = "SYNTHETIC: no data moved and no real time passed; nothing below was measured";
    let mut blocks: Vec<Block> = fit.synthetic.then(|| Block::Alarm(synthetic.to_owned())).into_iter().collect();
    blocks.extend(tables(fit));
    blocks.push(Block::marked(Mark::Star, &fit.warnings));
    Terminal::plain(width).draw(&blocks)
}

/// Every curve, the errors at what the fit did not see, and the coefficients that it has.
pub(super) fn tables(fit: &Fit) -> Vec<Block> {
    blocks("fit.txt", TABLES, Serde(fit).into())
}

/// The sizes of a family.
pub(super) fn points(name: &str, family: &FamilyFit) -> Vec<Block> {
    blocks("fit.txt", TABLES, context! { name, curves => Serde(&family.curves) })
}

const TABLES: &str = include_str!("templates/fit.txt");

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
    let drawn = |(index, family)| {
        (format!("{}.svg", name(index, family)), picture(fit, &predictor, index, family).standalone())
    };
    fit.families.iter().enumerate().map(drawn).collect()
}

/// A file name of letters, digits and dashes only: labels come from untrusted files.
fn name(index: usize, family: &FamilyFit) -> String {
    let key = &family.key;
    let element = key.element_type.map_or("any", |element| element.name());
    let text = format!("{:03}-{}-{element}-{}-{}", index + 1, key.collective, key.place, key.cadence);
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect()
}

/// What distinguishes the curves of a family from all others.
pub(super) fn title(fit: &Fit, family: &FamilyFit) -> String {
    let key = &family.key;
    let element = key.element_type.map_or_else(String::new, |element| format!(" of {element}"));
    let labels: String = key.labels.iter().map(|(name, text)| format!(", {name} {text}")).collect();
    let begin = if fit.synthetic { "SYNTHETIC: " } else { "" };
    format!("{begin}{}{element}, locality {}, {}{labels}", key.collective, key.place, key.cadence)
}

/// The curves of the family of this number, and below them the errors of sizes that were left out.
pub(super) fn picture(fit: &Fit, predictor: &Predictor, index: usize, family: &FamilyFit) -> Svg {
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

/// The points of a curve, and the curve with its band.
pub(super) fn series(predictor: &Predictor, index: usize, curve: &CurveFit, color: usize) -> Series {
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
fn predicted(
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
pub fn predictions_text(document: &Predictions, width: u16) -> String {
    prose("predictions.txt", include_str!("templates/predictions.txt"), context! { width, ..Serde(document) })
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
    fn coefficients_are_in_tables_of_their_own_with_a_dash_for_what_is_not_known() {
        let coefficient = |low: Option<f64>| serde_json::json!({ "value": 0.5, "low": low, "high": low.map(|low| low + 0.25), "measurements": 7 });
        let errors = serde_json::json!({ "points": 3, "median": 0.01, "mean": 0.02, "maximum": 0.125, "bias": 0.0 });
        let mut fit = serde_json::to_value(h100()).unwrap();
        fit["contention"] = serde_json::json!([{
            "cadence": "streaming", "across_nodes": true, "adapters_per_node": 8, "latency_exponent": coefficient(None),
            "groups_fewest": 1, "groups_most": 8, "curves": 2, "errors": errors, "errors_from": "curves_left_out"
        }]);
        fit["interference"] = serde_json::json!([{
            "axis": "tp", "collective": "all_reduce", "beside_axis": "dp", "beside_collective": "all_gather", "slowdown": coefficient(Some(0.25))
        }]);
        fit["overlap"] = serde_json::json!([{ "axis": "dp", "hidden_share": coefficient(Some(0.25)) }]);
        fit["both_ways"] = serde_json::json!([{ "between_hosts": true, "slowdown": coefficient(Some(0.25)) }]);
        let text = fit_text(&serde_json::from_value(fit).unwrap(), 200);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        for expected in [
            "all others across nodes streaming adapter (8 a node) 1..8 groups 0.50 - - - 12.5 curves left out",
            "tp all_reduce dp all_gather 0.50 0.25..0.50 7",
            "dp 0.50 0.25..0.50 - - 7",
            "on different hosts 0.50 0.25..0.50 7",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected}: {text}");
        }
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
