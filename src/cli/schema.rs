//! `commgauge schema`: the published JSON Schema of a line of a record.

use crate::error::{Error, Result};
use crate::record;
use std::io::{ErrorKind, Write};

/// Print the JSON Schema of the lines of a record
#[derive(Clone, Debug, clap::Args)]
pub struct SchemaCommand {}

impl SchemaCommand {
    /// Prints the schema on stdout.
    pub fn execute(&self) -> Result<i32> {
        let text = serde_json::to_string_pretty(&record::schema())
            .map_err(|cause| Error::environment(format!("cannot print the schema: {cause}")))?;
        match writeln!(std::io::stdout().lock(), "{text}") {
            Err(cause) if cause.kind() != ErrorKind::BrokenPipe => {
                Err(Error::environment(format!("cannot write to stdout: {cause}")))
            }
            _ => Ok(0),
        }
    }
}
