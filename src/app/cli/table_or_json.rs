//! For commands that print one answer: as a table, or as JSON for programs.

use super::terminal::columns;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::{visible_json, visible_lines};
use serde::Serialize;
use std::io::{ErrorKind, Write};

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TableOrJson {
    /// For people, fitted to the width of the terminal.
    #[default]
    Table,
    /// One JSON document in base units, whose schema `commgauge schema` prints.
    Json,
}

/// How an answer is shown.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AnswerArguments {
    /// How to write the answer
    #[arg(long, value_enum, default_value_t)]
    pub format: TableOrJson,

    /// Columns that the table may take [default: COLUMNS, else those of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..))]
    pub width: Option<u16>,
}

impl AnswerArguments {
    /// Prints on stdout: the document as JSON, or the table for a width.
    pub fn show(&self, document: &impl Serialize, table: impl FnOnce(u16) -> String) -> Result<()> {
        match self.format {
            TableOrJson::Table => print(&table(columns(self.width))),
            TableOrJson::Json => print(&json(document)?),
        }
    }
}

/// A document as indented JSON, with a line feed at the end.
pub(crate) fn json(document: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|cause| Error::environment(format!("cannot write the answer as JSON: {cause}")))?;
    Ok(visible_json(&text).into_owned() + "\n")
}

/// Writes text without colours to stdout, with the control characters of names from elsewhere written out. If the reader closes
/// the pipe early (`| head`), writing stops without an error.
pub(crate) fn print(text: &str) -> Result<()> {
    print_on(&mut std::io::stdout().lock(), text)
}

/// The same for any writer in place of stdout.
pub(crate) fn print_on(out: &mut dyn Write, text: &str) -> Result<()> {
    print_drawn_on(out, &visible_lines(text))
}

/// The same for what a drawer has escaped and coloured.
pub(crate) fn print_drawn_on(out: &mut dyn Write, text: &str) -> Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(cause) if cause.kind() != ErrorKind::BrokenPipe => {
            Err(Error::environment(format!("cannot write to stdout: {cause}")))
        }
        _ => Ok(()),
    }
}
