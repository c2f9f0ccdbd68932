//! A verdict as text: a table for people, and the formats of pages, test reports and monitoring.
//!
//! Every text that comes from a record or a machine file is escaped here, by format.

mod curves;
mod document;
mod github;
mod junit;
mod prometheus;
mod words;

pub(super) use curves::document as curves;
pub(super) use document::{findings, rows_on_page, tone, troubles};
pub(super) use words::{coverage, decision, thresholds, value};

use super::document::{Terminal, escaped_markdown, markdown};
use commgauge_analysis::verdict::Verdict;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::visible_json;
use words::headline;

/// How a verdict is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum VerdictFormat {
    /// For people, fitted to the width of the terminal.
    #[default]
    Table,
    /// One JSON document in base units, whose schema `commgauge schema verdict` prints.
    Json,
    /// A test report in JUnit's XML: one test case for each row.
    Junit,
    /// Tables for a page or an issue.
    Markdown,
    /// A text file for the collector of Prometheus' node exporter.
    Prometheus,
    /// Annotations of a GitHub workflow.
    Github,
}

/// The verdict as text. `width` is used by the table only.
///
/// # Errors
/// Where a document cannot be written as JSON or XML.
pub fn verdict_text(verdict: &Verdict, format: VerdictFormat, width: u16) -> Result<String> {
    match format {
        VerdictFormat::Table => {
            let terminal = Terminal::plain(width);
            Ok(format!("{}\n{}", headline(verdict), terminal.draw(&document::document(verdict))))
        }
        VerdictFormat::Markdown => {
            let title = escaped_markdown(&headline(verdict));
            Ok(format!("# commgauge {title}\n{}", markdown(&document::document(verdict))))
        }
        VerdictFormat::Junit => junit::text(verdict),
        VerdictFormat::Prometheus => Ok(prometheus::text(verdict)),
        VerdictFormat::Github => Ok(github::text(verdict)),
        VerdictFormat::Json => json(verdict),
    }
}

/// A document as JSON without control characters for terminals.
pub(super) fn json(document: &impl serde::Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|cause| Error::environment(format!("cannot write the answer as JSON: {cause}")))?;
    Ok(visible_json(&text).into_owned() + "\n")
}

#[cfg(test)]
mod tests;
