//! `commgauge predict`: predicts times from a fit, for one call or for a file of calls.

use super::fit_query::{QueryInput, read_queries};
use super::published::published;
use super::table_or_json::json;
use super::{AnswerFormat, AnswerOutput};
use crate::report::document::{Column, optional, table, wrapped};
use commgauge_analysis::cost::{Fit, Prediction, Predictor, Query, Status};
use commgauge_base::comma_separated::CommaSeparated;
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Bytes, Seconds};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The value of `format`.
const FORMAT: &str = "commgauge-predictions";
/// Version of the JSON document.
const VERSION: u32 = 1;
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
    #[arg(long, value_name = "FILE", conflicts_with_all = ["collective", "ranks", "bytes", "dtype", "locality"])]
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
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<String>,

    /// Hosts, concurrent groups per host and stride of the group, such as 1n, 2n/4g or 2n/4g/s8; needed where several were
    /// fitted
    #[arg(long)]
    pub locality: Option<String>,

    /// What is timed; streaming where both were fitted
    #[arg(long, value_parser = cadence)]
    pub cadence: Option<Cadence>,

    /// Answer from curves of this kind only, where the records hold several, such as algorithm=ring or placement=in-place
    #[arg(long, value_name = "NAME=TEXT", value_parser = label)]
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
        self.shown.to.write(&match format {
            AnswerFormat::Table => text(&fit, &input, &answers, self.shown.to.columns()),
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
pub(super) fn schema() -> Value {
    published(schemars::schema_for!(Document).to_value(), FORMAT, VERSION, "Predictions of commgauge")
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
        format: FORMAT,
        version: VERSION,
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

fn text(fit: &Fit, input: &QueryInput, answers: &[Prediction], width: u16) -> String {
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
