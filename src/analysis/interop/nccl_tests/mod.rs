//! nccl-tests (and rccl-tests, which prints the same): text of versions 2.0 to 2.20, and the JSON of `-J`.
//! <https://github.com/NVIDIA/nccl-tests>
//!
//! Its size argument is what `bytes_total` means, so sizes need no conversion. Times are means over calls that follow
//! each other without a pause, and over ranks unless it ran with `-a`.

mod collective;
mod columns;
mod devices;
mod json;
mod run;
mod text;

use super::imported::Imported;
use super::log_text::{self, Writer};
use commgauge_base::error::Result;
use std::path::Path;

/// Reads a file, text or JSON. Unreadable lines are returned with their number.
///
/// # Errors
/// A usage error if the file cannot be read, is truncated JSON, or was written by another tool.
pub fn read(path: &Path) -> Result<Imported> {
    parse(&log_text::bytes_of(path)?, path)
}

/// Parses the content of a file, as [`read`] does; `path` is for the messages and the names of the rows.
///
/// # Errors
/// As [`read`].
pub fn parse(bytes: &[u8], path: &Path) -> Result<Imported> {
    let text = log_text::text_of(bytes, path)?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if text.trim_start().starts_with('{') && !text.contains("\"commgauge-record\"") {
        return json::parse(&text, &name, path);
    }
    log_text::expect_writer(path, &text, Writer::NcclTests, "nccl-tests")?;
    Ok(text::parse(&text, &name))
}

#[cfg(test)]
mod tests;
