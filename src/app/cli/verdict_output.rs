//! Records that are judged, and flags for the output of a verdict.

use super::text_output::FormattedOutput;
use crate::report::{VerdictFormat, verdict_text};
use commgauge_analysis::verdict::{LoadedRecord, Verdict};
use commgauge_base::error::Result;
use std::path::PathBuf;

/// How a verdict is shown.
pub type VerdictOutput = FormattedOutput<VerdictFormat>;

impl VerdictOutput {
    /// Writes the verdict, and returns its exit code.
    pub fn show(&self, verdict: &Verdict, format: VerdictFormat) -> Result<i32> {
        self.to.write(&verdict_text(verdict, format, self.to.columns())?)?;
        Ok(verdict.exit_code)
    }
}

/// Reads the records to be evaluated, in parallel.
pub(super) fn read_all(paths: &[PathBuf]) -> Result<Vec<LoadedRecord>> {
    std::thread::scope(|scope| {
        let reading: Vec<_> = paths.iter().map(|path| scope.spawn(move || LoadedRecord::read(path))).collect();
        reading.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}
