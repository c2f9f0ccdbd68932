//! `commgauge schema`: the published JSON Schema of a line of a record, or of another document.

use crate::error::{Error, Result};
use crate::record;
use std::io::{ErrorKind, Write};

/// Print the JSON Schema of the lines of a record, or of another document
#[derive(Clone, Debug, clap::Args)]
pub struct SchemaCommand {
    /// Of what
    #[arg(value_enum, default_value_t)]
    pub document: Document,
}

/// What has a published schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Document {
    /// One line of a record.
    #[default]
    Record,
    /// The document of `commgauge layout --format json`.
    Layout,
}

impl SchemaCommand {
    /// Prints the schema on stdout.
    pub fn execute(&self) -> Result<i32> {
        let schema = match self.document {
            Document::Record => record::schema(),
            Document::Layout => super::layout::schema(),
        };
        let text = serde_json::to_string_pretty(&schema)
            .map_err(|cause| Error::environment(format!("cannot print the schema: {cause}")))?;
        match writeln!(std::io::stdout().lock(), "{text}") {
            Err(cause) if cause.kind() != ErrorKind::BrokenPipe => {
                Err(Error::environment(format!("cannot write to stdout: {cause}")))
            }
            _ => Ok(0),
        }
    }
}
