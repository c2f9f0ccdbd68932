//! The files of an export, and what is not in them.

use commgauge_base::error::{Error, Result};
use serde_json::Value;

/// The files, and what is not in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// Each of them.
    pub files: Vec<ExportedFile>,
    /// Values that the planner needs and the fit does not contain, as sentences.
    pub gaps: Vec<String>,
    /// Remarks on the numbers, as sentences.
    pub notes: Vec<String>,
}

/// A file of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedFile {
    /// Its name, where the export is a folder.
    pub name: String,
    /// What is in it: text, or Parquet.
    pub content: Vec<u8>,
}

impl Export {
    pub(super) fn add(&mut self, name: impl Into<String>, content: impl Into<Vec<u8>>) {
        self.files.push(ExportedFile { name: name.into(), content: content.into() });
    }
}

/// A JSON text with four spaces, a line feed at its end.
pub(super) fn pretty(value: &Value) -> Result<String> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|cause| Error::environment(format!("cannot write the export as JSON: {cause}")))?;
    Ok(text + "\n")
}
