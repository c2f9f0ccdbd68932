//! A history as text and pictures: what changed first, then the rows, then what was left out.

mod csv;
mod document;
mod plot;

pub use plot::plots;

use super::document::Terminal;
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
}

/// The history as text. `width` and `all_rows` are used by the table only: without the latter it shows the rows that changed.
///
/// # Errors
/// Where a document cannot be written as JSON or CSV.
pub fn history_text(history: &History, format: HistoryFormat, width: u16, all_rows: bool) -> Result<String> {
    match format {
        HistoryFormat::Table => Ok(Terminal::plain(width).draw(&document::document(history, all_rows))),
        HistoryFormat::Csv => csv::text(history),
        HistoryFormat::Json => super::verdict::json(history),
    }
}

#[cfg(test)]
mod tests;
