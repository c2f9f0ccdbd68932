//! A verdict as text: a table for people, and the formats of pages, test reports and monitoring.
//!
//! Every text that comes from a record or a machine file is escaped here, by format.

mod curves;
mod document;
mod junit;
mod prometheus;

pub(super) use curves::document as curves;
pub(super) use document::{findings, rows, tone, troubles};

use super::document::{Terminal, escaped_markdown, markdown};
use super::text::visible;
use commgauge_analysis::verdict::{Metric, Question, Row, Verdict};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Rate, Seconds};

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
        VerdictFormat::Json => json(verdict),
    }
}

/// A document as JSON without control characters for terminals.
pub(super) fn json(document: &impl serde::Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|cause| Error::environment(format!("cannot write the answer as JSON: {cause}")))?;
    Ok(ascii_controls(&text) + "\n")
}

/// JSON does not escape bidirectional controls; inside its strings an escape is the same text.
pub(super) fn ascii_controls(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' => out.push(c),
            c if super::text::is_control_or_format(c) => {
                let mut units = [0; 2];
                c.encode_utf16(&mut units).iter().for_each(|unit| out += &format!("\\u{unit:04x}"));
            }
            c => out.push(c),
        }
    }
    out
}

/// The first line: the question, the answer and its exit code.
fn headline(verdict: &Verdict) -> String {
    let what = verdict.question.name();
    let judged = if verdict.question == Question::Gate { format!("; {}", thresholds(verdict)) } else { String::new() };
    format!("{what}: {} (exit code {}){judged}", verdict.decision.name().to_uppercase(), verdict.exit_code)
}

/// How many limits of the machine file the verdict rests on.
pub(super) fn thresholds(verdict: &Verdict) -> String {
    let c = &verdict.coverage;
    let missing = c.expectations.saturating_sub(c.expectations_judged);
    format!("{} of {} thresholds judged, {missing} not measured", c.expectations_judged, c.expectations)
}

/// The coverage, as sentences.
pub(super) fn coverage(verdict: &Verdict) -> Vec<String> {
    let c = &verdict.coverage;
    if verdict.question == Question::Consistency {
        let certain = verdict.findings.iter().filter(|finding| finding.certain).count();
        let found = verdict.findings.len();
        return vec![format!(
            "{} rows; {certain} findings beyond chance, {} that may be chance",
            c.rows,
            found - certain
        )];
    }
    vec![
        format!(
            "coverage: {} of {} rows judged: {} passed, {} failed, {} inconclusive; {} not judged",
            c.rows_judged, c.rows, c.rows_passed, c.rows_failed, c.rows_inconclusive, c.rows_not_judged
        ),
        format!("replicates of judged rows: {} of {} measured", c.replicates_measured, c.replicates_planned),
    ]
}

/// A row's decision in a word.
fn decision(row: &Row) -> &'static str {
    row.decision.map_or("not judged", |decision| decision.name())
}

/// A value of a limit with its unit.
pub(super) fn value(metric: Metric, value: f64) -> String {
    match metric {
        Metric::BusBandwidthBytesPerSecond => Rate(value).to_string(),
        Metric::LatencySeconds => Seconds(value).to_string(),
    }
}

/// Reasons joined into one escaped text.
fn reasons(row: &Row) -> String {
    visible(&row.reasons.join("; "))
}

#[cfg(test)]
mod tests;
