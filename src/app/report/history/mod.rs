//! A history as text and pictures: what changed first, then the rows, then what was left out.

mod csv;
mod document;
mod github;
mod junit;
mod page;
mod plot;
mod prometheus;
mod row_names;
mod shown;
mod trend;

pub use plot::plots;
pub use shown::ShownRows;

use super::document::{Terminal, markdown};
use commgauge_analysis::verdict::history::History;
use commgauge_base::error::Result;

/// How a history is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum HistoryFormat {
    /// For people, fitted to the width of the terminal.
    #[default]
    Table,
    /// One JSON document in base units, whose schema `commgauge schema history` prints.
    Json,
    /// One row for each run of each case.
    Csv,
    /// Tables for a page or an issue.
    Markdown,
    /// A page with every row; `-o FILE.html` makes it, too.
    Html,
    /// A test report in JUnit's XML: a row that is slower since its last change fails.
    Junit,
    /// A text file for the collector of Prometheus' node exporter.
    Prometheus,
    /// Annotations of a GitHub workflow.
    Github,
}

/// The history as text. `width` is used by the table only, `shown` by the table and Markdown.
///
/// # Errors
/// Where a document cannot be written as JSON, CSV, XML or HTML.
pub fn history_text(history: &History, format: HistoryFormat, width: u16, shown: ShownRows) -> Result<String> {
    match format {
        HistoryFormat::Table => Ok(Terminal::plain(width).draw(&document::document(history, shown))),
        HistoryFormat::Csv => csv::text(history),
        HistoryFormat::Markdown => {
            Ok(format!("# commgauge history\n{}", markdown(&document::document(history, shown))))
        }
        HistoryFormat::Html => page::text(history),
        HistoryFormat::Junit => junit::text(history),
        HistoryFormat::Prometheus => Ok(prometheus::text(history)),
        HistoryFormat::Github => Ok(github::text(history)),
        HistoryFormat::Json => super::verdict::json(history),
    }
}

#[cfg(test)]
mod tests;
