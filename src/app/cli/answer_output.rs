//! For commands whose answer is a table for people, a document for programs, or lines for spreadsheets.

use super::text_output::FormattedOutput;

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AnswerFormat {
    /// For people
    #[default]
    Table,
    /// One document, in base units, whose schema `commgauge schema` prints
    Json,
    /// Comma-separated lines with a line of names, in base units
    Csv,
}

/// How an answer is shown.
pub type AnswerOutput = FormattedOutput<AnswerFormat>;
