//! `commgauge report RECORD`: shows a record, and answers with the exit code that it earns.

use super::OutputArguments;
use crate::error::{Error, Result};
use crate::record::Record;
use crate::report::View;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// Show a record as a table, or turn it into another format
///
/// The exit code is that of the record: 0 complete and right, 4 data arrived wrong, 5 to 6 the run failed,
/// 7 something planned was not measured or the record was cut off. The report is written in any case.
#[derive(Clone, Debug, clap::Args)]
pub struct ReportCommand {
    /// Record of a run (JSON Lines)
    pub record: PathBuf,

    /// How results are shown.
    #[command(flatten)]
    pub shown: OutputArguments,

    /// Write to a file instead of stdout; an existing file is replaced
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

impl ReportCommand {
    /// Reads, shows, and returns the exit code that the record earns.
    pub fn execute(&self) -> Result<i32> {
        let view = View::new(&Record::read(&self.record)?);
        match self.output.as_deref().filter(|path| *path != Path::new("-")) {
            Some(path) => {
                let mut file = BufWriter::new(self.replace(path)?);
                self.shown.show_on(&view, false, &mut file).map_err(|cause| Error::file("write", path, cause))?;
            }
            None => self.shown.show(&view)?,
        }
        Ok(view.exit_code())
    }

    /// Opens the file to write to, unless it is the record itself.
    fn replace(&self, path: &Path) -> Result<File> {
        let same = |a: &Path, b: &Path| a.canonicalize().ok().zip(b.canonicalize().ok()).is_some_and(|(a, b)| a == b);
        if same(path, &self.record) {
            return Err(Error::usage(format!("--output {} is the record itself; name another file", path.display())));
        }
        File::create(path).map_err(|cause| Error::usage(format!("--output: cannot create {}: {cause}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = include_str!("../../tests/data/sample-record.jsonl");

    fn command(record: &Path, output: &Path) -> ReportCommand {
        let (record, output) = (record.to_owned(), Some(output.to_owned()));
        let shown = OutputArguments { width: Some(80), ..OutputArguments::default() };
        ReportCommand { record, shown, output }
    }

    #[test]
    fn a_report_is_written_and_answers_with_the_exit_code_of_the_record() {
        let folder = tempfile::tempdir().unwrap();
        let (record, output) = (folder.path().join("r.jsonl"), folder.path().join("r.txt"));
        std::fs::write(&record, SAMPLE).unwrap();
        assert_eq!(command(&record, &output).execute().unwrap(), 4, "data arrived wrong");
        assert!(std::fs::read_to_string(&output).unwrap().contains("all_reduce"));
    }

    #[test]
    fn a_report_never_overwrites_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("r.jsonl");
        std::fs::write(&record, SAMPLE).unwrap();
        assert_eq!(command(&record, &record).execute().unwrap_err().exit_code(), 2);
        assert_eq!(std::fs::read_to_string(&record).unwrap(), SAMPLE);
        let nowhere = folder.path().join("missing/r.txt");
        assert_eq!(command(&record, &nowhere).execute().unwrap_err().exit_code(), 2);
    }
}
