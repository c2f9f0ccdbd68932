//! Whether the run of a record can go on, with how much work, and by which command.

use crate::launch::quote;
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::visible::ShownPath;
use commgauge_model::record::Record;
use std::path::Path;

/// The command that resumes a record.
pub(crate) fn command(record: &Path) -> String {
    format!("commgauge run --resume {}", quote(&record.display().to_string()))
}

/// The exit code of a record without remaining work; none if there is work left.
///
/// # Errors
/// If the record cannot be resumed.
pub(crate) fn exit_code_if_complete(record: &Record, path: &Path) -> Result<Option<i32>> {
    let path = path.shown();
    if record.file.running {
        return Err(Error::usage(format!(
            "--resume {path}: the run that writes it is still going on; wait for its end"
        )));
    }
    if let Some(problem) = record.file.seal.tampering() {
        return Err(Error::usage(format!("--resume {path}: {problem}, so no run can continue it; start a new one")));
    }
    let Some(end) = record.end.as_ref().filter(|_| record.is_finished()) else { return Ok(None) };
    eprintln!("commgauge: {path} is complete: nothing is left to measure");
    Ok(Some(if (0..=255).contains(&end.exit_code) { end.exit_code } else { 6 }))
}

/// Completed and remaining work, in sentences.
pub(crate) fn state(record: &Record, path: &Path) -> Vec<String> {
    let planned = record.plan.case_lines.saturating_add(record.plan.product_lines);
    // With a budget for all cases there may be more lines than planned.
    let there = record.measured_lines().min(planned);
    let shown = path.shown();
    let mut sentences = vec![format!("{shown} holds {there} of {planned} measured cases; the rest is measured now")];
    if record.file.torn {
        sentences.push("its last line is torn and will be cut off; that case is measured again".to_owned());
    }
    sentences
}
