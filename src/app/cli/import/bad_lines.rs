//! Lines of other tools that cannot be read, in the words of an error.

use commgauge_analysis::interop::BadLine;
use commgauge_base::error::Error;
use commgauge_base::visible::ShownPath;
use std::path::Path;

/// Maximum number of bad lines that an error lists.
const NAMED_LINES: usize = 20;

/// The error about lines that cannot be parsed, with a list of the first ones.
pub(super) fn unreadable(bad: &[String], all: usize) -> Error {
    let more = match bad.len().saturating_sub(NAMED_LINES) {
        0 => String::new(),
        more => format!("\n... and {more} more"),
    };
    let named = &bad[..bad.len().min(NAMED_LINES)];
    Error::usage(format!(
        "{} of {all} lines cannot be read; fix them, or leave them out with --skip-bad-lines:\n{}{more}",
        bad.len(),
        named.join("\n")
    ))
}

pub(super) fn bad_line_text(path: &Path, line: &BadLine) -> String {
    format!("{}:{}: {}", path.shown(), line.number, line.problem)
}
