//! Parses queries to a fit from a file or flags; the columns of a file are retained, so that answers can be printed
//! next to them.

use commgauge_analysis::cost::Query;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_base::visible::ShownPath;
use std::path::Path;

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
        text(&self.columns, self.values.get(query)?, column)
    }
}

/// Reads a CSV file of queries. Unknown columns are passed through.
///
/// # Errors
/// A usage error that names every line that cannot be parsed.
pub(super) fn read_queries(path: &Path) -> Result<QueryInput> {
    let wrong = |problem: String| Error::usage(format!("--queries {}: {problem}", path.shown()));
    let file = commgauge_base::input_file::read(path).map_err(|cause| wrong(cause.to_string()))?;
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

fn text<'a>(columns: &[String], values: &'a [String], name: &str) -> Option<&'a str> {
    let index = columns.iter().position(|column| column == name)?;
    values.get(index).map(String::as_str).filter(|text| !text.is_empty())
}

fn query(columns: &[String], values: &[String]) -> std::result::Result<Query, String> {
    let needed = |name: &str| text(columns, values, name).ok_or_else(|| format!("{name}: is missing"));
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
        element_type: text(columns, values, "dtype")
            .map(|name| name.parse().map_err(|problem| parsed("dtype", problem)))
            .transpose()?,
        locality: text(columns, values, "locality")
            .map(|name| name.parse().map_err(|problem| parsed("locality", problem)))
            .transpose()?,
        cadence: None,
    })
}
