//! `commgauge fit`: fits a cost model to records, writes it to a file and prints it.

use super::output::{check_only_format, json, make_folder, replace};
use super::published::published;
use super::{AnswerArguments, AnswerFormat, AnswerOutput};
use crate::chart::{Axis, Line, LineKind, Plot, Point, Series, Shade, Svg, Unit, xy};
use crate::report::document::{Column, optional, table, wrapped};
use crate::report::fit_text as text;
use commgauge_analysis::cost;
use commgauge_analysis::cost::{
    CurveFit, FORMAT, FamilyFit, Fit, FitOptions, Measurements, Prediction, Predictor, Query, Status, VERSION,
};
use commgauge_base::error::{Error, Result};
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Bytes, Seconds};
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::{CommaSeparated, eprintln};
use commgauge_model::record::Record;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Fit the cost of communication to records, and report its own held-out error
///
/// Sizes between measured ones are interpolated, sizes outside follow an envelope of lines alpha + beta bytes, group sizes
/// that were not measured follow from the steps of the algorithms. Every error shown is that of points that were left
/// out.
#[derive(Clone, Debug, clap::Args)]
pub struct FitCommand {
    /// Records of one machine
    #[arg(required = true, value_name = "RECORD")]
    pub records: Vec<PathBuf>,

    /// Write the fit to a file; an existing one is replaced
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Resamples behind the intervals; 0 for none
    #[arg(long, default_value_t = FitOptions::default().resamples, value_name = "N",
          value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub resamples: u32,

    /// Network adapters of a node: contention of groups across nodes is then counted per adapter
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub adapters_per_node: Option<u32>,

    /// Draw every family of curves as an SVG file in this directory, which is made where it is not there
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,

    /// How the fit is shown.
    #[command(flatten)]
    pub shown: AnswerArguments,
}

impl FitCommand {
    /// Reads the records, fits, writes the fit and prints it.
    pub fn execute(&self) -> Result<i32> {
        if let Some(path) = &self.output {
            check_only_format(path, "json", &self.records.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
        }
        let options = FitOptions { resamples: self.resamples, adapters_per_node: self.adapters_per_node };
        let fit = fit_of(&self.records, options)?;
        if let Some(path) = &self.output {
            replace(path, json(&fit)?)?;
        }
        if let Some(folder) = &self.plots {
            write(folder, &fit)?;
        }
        self.shown.show(&fit, |width| text(&fit, width))?;
        Ok(0)
    }
}

/// The fit of records of one machine.
///
/// # Errors
/// A record that cannot be read; records without a curve, or of several machines.
pub(super) fn fit_of(records: &[PathBuf], options: FitOptions) -> Result<Fit> {
    let records =
        records.iter().map(|path| Ok((path.display().to_string(), Record::read(path)?))).collect::<Result<Vec<_>>>()?;
    let measurements = Measurements::of(records.iter().map(|(name, record)| (name.as_str(), record)))?;
    cost::fit(&measurements, options)
}

/// The JSON Schema of `fit.json`.
pub(super) fn schema() -> Value {
    published(cost::schema(), FORMAT, VERSION, "A commgauge fit")
}

// Plots of a fit: for every family of curves the measured points, the curve with its band, and below it the errors of
// held-out sizes.

/// Points per doubling of the size at which a curve is drawn.
const PER_DOUBLING: f64 = 6.0;

/// Factor by which the plot extends beyond the measured sizes.
const BEYOND: f64 = 4.0;

const WIDTH: f64 = 640.0;

/// Writes one file for each family.
pub(super) fn write(folder: &Path, fit: &Fit) -> Result<()> {
    make_folder("--plots", folder)?;
    let predictor = Predictor::new(fit);
    for (index, family) in fit.families.iter().enumerate() {
        let path = folder.join(format!("{}.svg", name(index, family)));
        replace(&path, picture(fit, &predictor, index).standalone())?;
    }
    Ok(())
}

/// A file name of letters, digits and dashes only: labels come from untrusted files.
fn name(index: usize, family: &FamilyFit) -> String {
    let key = &family.key;
    let element = key.element_type.map_or_else(|| "any".to_owned(), |element| element.to_string());
    let text = format!("{:03}-{}-{element}-{}-{}", index + 1, key.collective, key.place, key.cadence);
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
    for step in 0..=steps as u32 {
        let bytes = (first * (last / first).powf(f64::from(step) / steps)).round().max(1.0);
        let answer = predictor.predict_by(index, curve.ranks, Bytes(bytes as u64));
        series.curve.extend(answer.seconds.map(|seconds| xy(bytes, seconds.0)));
        series.band.extend(answer.low.zip(answer.high).map(|(low, high)| (bytes, low.0, high.0)));
    }
    series
}

fn residuals(curve: &CurveFit, color: usize) -> Series {
    let mut series = Series::new(String::new());
    series.color = Some(color);
    let point = |point: &commgauge_analysis::cost::PointFit| {
        Some(Point { crossed: point.outlier, ..Point::at(point.bytes_total.0 as f64, 100.0 * point.left_out_error?) })
    };
    series.points = curve.points.iter().filter_map(point).collect();
    series
}

// Parses queries to a fit from a file or flags; the columns of a file are retained, so that answers can be printed
// next to them.

const REQUIRED: [&str; 3] = ["collective", "ranks", "bytes_total"];

/// Queries, and the text that they were read from.
#[derive(Clone, Debug)]
pub(super) struct QueryInput {
    pub columns: Vec<String>,
    pub values: Vec<Vec<String>>,
    pub queries: Vec<Query>,
}

impl QueryInput {
    /// One query.
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
pub(super) fn read_queries(path: &Path) -> Result<QueryInput> {
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
        collective: commgauge_analysis::interop::collective_named(needed("collective")?)?,
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

// `commgauge predict`: predicts times from a fit, for one call or for a file of calls.

/// The value of `format`.
const PREDICT_FORMAT: &str = "commgauge-predictions";

/// Version of the JSON document.
const PREDICT_VERSION: u32 = 1;

/// Exit code if a query given by flags is refused: coverage is missing.
const REFUSED: i32 = 7;

/// Predict the time of a call from a fit
///
/// Answers with seconds, an interval, and what it rests on: interpolated, extrapolated, transferred from other group
/// sizes, or refused. A single call that is refused ends with 7. As CSV the query's columns come first, then seconds, low, high,
/// status, untrusted, reason.
#[derive(Clone, Debug, clap::Args)]
pub struct PredictCommand {
    /// The fit, from `commgauge fit -o`
    #[arg(long, value_name = "FILE")]
    pub fit: PathBuf,

    /// Many calls: a CSV file with the columns collective, ranks, bytes_total, optional dtype and locality
    #[arg(long, value_name = "FILE", conflicts_with_all = ["collective", "ranks", "bytes", "dtype", "locality"], hide_short_help = true)]
    pub queries: Option<PathBuf>,

    /// The call, such as all_reduce
    #[arg(long, required_unless_present = "queries")]
    pub collective: Option<String>,

    /// Ranks of the group
    #[arg(long, required_unless_present = "queries", value_name = "N")]
    pub ranks: Option<u32>,

    /// Size as nccl-tests counts it, such as 1MiB
    #[arg(long, required_unless_present = "queries", value_name = "SIZE", value_parser = bytes)]
    pub bytes: Option<Bytes>,

    /// Element type; needed where several were fitted
    #[arg(long, value_name = "TYPE", hide_short_help = true)]
    pub dtype: Option<String>,

    /// Place of the group, such as 1n or 2n/4g; needed where several were fitted. Hosts, concurrent groups per host and stride (2n/4g/s8)
    #[arg(long)]
    pub locality: Option<String>,

    /// What is timed; streaming where both were fitted
    #[arg(long, value_parser = cadence, hide_short_help = true)]
    pub cadence: Option<Cadence>,

    /// Answer from curves of this kind only, where the records hold several, such as algorithm=ring or placement=in-place
    #[arg(long, value_name = "NAME=TEXT", value_parser = label, hide_short_help = true)]
    pub label: Vec<(String, String)>,

    #[command(flatten)]
    shown: AnswerOutput,
}

fn bytes(text: &str) -> std::result::Result<Bytes, String> {
    Bytes::parse(text)
}

fn label(text: &str) -> std::result::Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("found `{text}`; accepted: NAME=TEXT"))?;
    Ok((name.to_owned(), value.to_owned()))
}

fn cadence(text: &str) -> std::result::Result<Cadence, String> {
    [Cadence::Streaming, Cadence::Isolated]
        .into_iter()
        .find(|cadence| cadence.name() == text)
        .ok_or_else(|| format!("found cadence `{text}`; accepted: streaming, isolated"))
}

impl PredictCommand {
    /// Reads the fit, prints the predictions, and returns the exit code.
    pub fn execute(&self) -> Result<i32> {
        let inputs = [&self.fit].into_iter().chain(&self.queries).map(PathBuf::as_path);
        let format = self.shown.check(&inputs.collect::<Vec<_>>())?;
        let fit = Fit::read(&self.fit)?;
        let input = match &self.queries {
            Some(path) => read_queries(path)?,
            None => self.single()?,
        };
        let predictor = Predictor::new(&fit).choosing(self.label.iter().cloned().collect());
        let answers: Vec<Prediction> =
            input.queries.iter().map(|query| predictor.predict(&self.with_cadence(query))).collect();
        if fit.synthetic && format == AnswerFormat::Csv {
            eprintln!(
                "synthetic: the fit comes from records without real times; these are not predictions of a machine"
            );
        }
        self.shown.write(&match format {
            AnswerFormat::Table => predict_text(&fit, &input, &answers, self.shown.to.columns()),
            AnswerFormat::Csv => comma_separated(&input, &answers)?,
            AnswerFormat::Json => json(&document(&self.fit, &fit, &input, &answers))?,
        })?;
        let refused = answers.iter().any(|answer| answer.status == Status::Refused);
        Ok(if refused && self.queries.is_none() { REFUSED } else { 0 })
    }

    fn with_cadence(&self, query: &Query) -> Query {
        Query { cadence: self.cadence, ..*query }
    }

    /// The call given by flags, in the form of a file with one line.
    fn single(&self) -> Result<QueryInput> {
        let missing = || Error::usage("predict needs --collective, --ranks and --bytes, or --queries FILE");
        let bytes = self.bytes.ok_or_else(missing)?;
        let mut columns = vec!["collective".to_owned(), "ranks".to_owned(), "bytes_total".to_owned()];
        let mut values = vec![
            self.collective.clone().ok_or_else(missing)?,
            self.ranks.ok_or_else(missing)?.to_string(),
            bytes.0.to_string(),
        ];
        for (name, value) in [("dtype", &self.dtype), ("locality", &self.locality)] {
            if let Some(value) = value {
                columns.push(name.to_owned());
                values.push(value.clone());
            }
        }
        QueryInput::of_flags(columns, values)
    }
}

/// What `commgauge predict --format json` prints.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Predictions")]
struct Document<'a> {
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
    /// Time of a call; null where refused.
    seconds: Option<Seconds>,
    /// 95 of 100 held-out predictions of this kind were not farther off than from here ...
    low: Option<Seconds>,
    /// ... to here; both null where nothing could be left out to tell.
    high: Option<Seconds>,
    /// On what ground it stands.
    status: Status,
    /// Why it was refused or is not to be trusted, or from which place it was scaled.
    reason: Option<&'a str>,
    /// True where it comes from a curve whose held-out error is over 10 %, or where larger groups are on slower links.
    untrusted: bool,
}

/// The JSON Schema of predictions.
pub(super) fn predict_schema() -> Value {
    published(schemars::schema_for!(Document).to_value(), PREDICT_FORMAT, PREDICT_VERSION, "Predictions of commgauge")
}

fn document<'a>(path: &Path, fit: &Fit, input: &'a QueryInput, answers: &'a [Prediction]) -> Document<'a> {
    let predictions = input.queries.iter().enumerate().zip(answers).map(|((index, query), answer)| Answer {
        collective: query.collective.name(),
        ranks: query.ranks,
        bytes_total: query.bytes_total,
        dtype: input.value(index, "dtype"),
        locality: input.value(index, "locality"),
        seconds: answer.seconds,
        low: answer.low,
        high: answer.high,
        status: answer.status,
        reason: answer.reason.as_deref(),
        untrusted: answer.untrusted,
    });
    Document {
        format: PREDICT_FORMAT,
        version: PREDICT_VERSION,
        fit: path.display().to_string(),
        synthetic: fit.synthetic,
        predictions: predictions.collect(),
    }
}

fn comma_separated(input: &QueryInput, answers: &[Prediction]) -> Result<String> {
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

fn predict_text(fit: &Fit, input: &QueryInput, answers: &[Prediction], width: u16) -> String {
    let shown_columns = [
        Column::left("collective", 0),
        Column::right("ranks", 0),
        Column::right("size", 0),
        Column::right("time", 0),
        Column::right("low", 0),
        Column::right("high", 0),
        Column::left("status", 0),
    ];
    let rows = input.queries.iter().zip(answers).map(|(query, answer)| {
        let suffix = if answer.untrusted { ", untrusted" } else { "" };
        vec![
            query.collective.to_string(),
            query.ranks.to_string(),
            query.bytes_total.to_string(),
            optional(answer.seconds),
            optional(answer.low),
            optional(answer.high),
            format!("{}{suffix}", answer.status.name()),
        ]
    });
    let head = if fit.synthetic { "SYNTHETIC: the fit comes from records without real times\n\n" } else { "" };
    head.to_owned() + &table(&shown_columns, &rows.collect::<Vec<_>>(), width) + &reasons(input, answers, width)
}

/// Reasons for refusals, and sources of scaled answers: each reason once, with the first call that it applies to.
fn reasons(input: &QueryInput, answers: &[Prediction], width: u16) -> String {
    let mut first_and_count: Vec<(&str, &Query, usize)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (query, answer) in input.queries.iter().zip(answers) {
        let Some(reason) = answer.reason.as_deref() else { continue };
        let place = *places.entry(reason).or_insert(first_and_count.len());
        match first_and_count.get_mut(place) {
            Some((_, _, count)) => *count += 1,
            None => first_and_count.push((reason, query, 1)),
        }
    }
    let sentence = |(reason, query, count): (&str, &Query, usize)| {
        let Query { collective, ranks, bytes_total, .. } = query;
        let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        wrapped(&format!("{collective} of {bytes_total} on {ranks} ranks{more}: {reason}"), width)
    };
    let lines: String = first_and_count.into_iter().map(sentence).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

#[cfg(test)]
mod fit_tests {

    use super::*;
    use commgauge_analysis::interop::{Origin, read_csv, record_lines};
    use commgauge_model::record::line::ForeignTool;
    use std::path::Path;

    pub(in crate::cli) fn h100() -> Fit {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/nccl/h100_sxm-nccl-2.29.2.csv");
        let lines = record_lines(
            "test",
            &Origin::of(ForeignTool::Csv, &["h100.csv".to_owned()]),
            &read_csv(&path).unwrap().rows,
        );
        let record = Record::from_lines(lines).unwrap();
        cost::fit(
            &Measurements::of([("h100.jsonl", &record)]).unwrap(),
            FitOptions { resamples: 40, ..FitOptions::default() },
        )
        .unwrap()
    }

    #[test]
    fn a_fit_fits_its_schema_and_reads_back_equal() {
        let fit = h100();
        let document: Value = serde_json::from_str(&json(&fit).unwrap()).unwrap();
        let validator = jsonschema::validator_for(&schema()).unwrap();
        let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fit.json");
        std::fs::write(&path, json(&fit).unwrap()).unwrap();
        assert_eq!(Fit::read(&path).unwrap(), fit);
    }

    #[test]
    fn the_table_of_a_fit() {
        insta::assert_snapshot!("fit_table_h100", text(&h100(), 160));
    }

    #[test]
    fn a_synthetic_fit_is_labelled_first() {
        let fit = Fit { synthetic: true, ..h100() };
        assert!(text(&fit, 100).starts_with("SYNTHETIC"));
    }
}

#[cfg(test)]
mod fit_plots_tests {

    use super::fit_tests::h100;
    use super::*;

    #[test]
    fn every_family_gets_a_picture_with_its_curves_and_its_errors() {
        let folder = tempfile::tempdir().unwrap();
        let fit = Fit { synthetic: true, ..h100() };
        write(&folder.path().join("new"), &fit).unwrap();
        let mut files: Vec<_> =
            std::fs::read_dir(folder.path().join("new")).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        assert_eq!(files.len(), fit.families.len());
        for (path, family) in files.iter().zip(&fit.families) {
            let text = std::fs::read_to_string(path).unwrap();
            for wanted in
                [&*format!("SYNTHETIC: {}", family.key.collective), "8 ranks", "extrapolated", "Sizes left out"]
            {
                assert!(text.contains(wanted), "{}: {wanted}", path.display());
            }
            assert!(!text.contains("NaN") && !text.contains("inf"), "{}", path.display());
        }
    }

    #[test]
    fn a_folder_that_cannot_be_created_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = write(&file.join("below"), &h100()).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("--plots: cannot make"), "{error}");
    }
}
