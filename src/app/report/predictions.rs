//! Predictions of single calls: the queries with the columns of their file, and the answers next to them.

use super::document::{Fields, optional, wrapped};
use commgauge_analysis::cost::{Fit, Prediction, Query};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Bytes, Seconds};
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::CommaSeparated;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::path::Path;

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

/// The value of `format`.
pub const FORMAT: &str = "commgauge-predictions";

/// Incremented when a field is removed or changes its meaning.
pub const VERSION: u32 = 1;

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
pub fn document<'a>(path: &Path, fit: &Fit, input: &'a QueryInput, answers: &'a [Prediction]) -> Predictions<'a> {
    let predictions = input.queries.iter().enumerate().zip(answers).map(|((index, query), answer)| Answer {
        collective: query.collective.name(),
        ranks: query.ranks,
        bytes_total: query.bytes_total,
        dtype: input.value(index, "dtype"),
        locality: input.value(index, "locality"),
        prediction: answer,
    });
    Predictions {
        format: FORMAT,
        version: VERSION,
        fit: path.display().to_string(),
        synthetic: fit.synthetic,
        predictions: predictions.collect(),
    }
}

/// The columns of the queries, then the answers, as CSV.
///
/// # Errors
/// Where it cannot be written.
pub fn csv(input: &QueryInput, answers: &[Prediction]) -> Result<String> {
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
pub fn text(fit: &Fit, input: &QueryInput, answers: &[Prediction], width: u16) -> String {
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
