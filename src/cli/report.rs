//! `commgauge report RECORD`: shows a record, and answers with the exit code that it earns.

use crate::error::{Error, Result};
use crate::record::Record;
use crate::report::{ColorChoice, Format, View, render};
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Columns of a table that goes into a file or a pipe.
const WIDTH_WITHOUT_TERMINAL: u16 = 100;

/// Show a record as a table, or turn it into another format
///
/// The exit code is that of the record: 0 complete and right, 4 data arrived wrong, 5 to 6 the run failed,
/// 7 something planned was not measured or the record was cut off. The report is written in any case.
#[derive(Clone, Debug, clap::Args)]
pub struct ReportCommand {
    /// Record of a run (JSON Lines)
    pub record: PathBuf,

    /// How to write it. `nccl-tests` prints that tool's columns, one block for each collective, and holds the
    /// streaming cases only
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,

    /// When to colour the table; NO_COLOR and TERM=dumb are heeded
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub color: ColorChoice,

    /// Columns that the table may take [default: those of the terminal, or 100 without one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..))]
    pub width: Option<u16>,

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
                self.show(&view, false, &mut file).map_err(|cause| Error::file("write", path, cause))?;
            }
            None => {
                let stdout = std::io::stdout();
                self.show(&view, stdout.is_terminal(), &mut stdout.lock())?;
            }
        }
        Ok(view.exit_code())
    }

    fn show(&self, view: &View, is_terminal: bool, out: &mut dyn Write) -> Result<()> {
        let (no_color, term) = (std::env::var_os("NO_COLOR"), std::env::var_os("TERM"));
        let color = self.color.decide(no_color.as_deref(), term.as_deref(), is_terminal);
        render(view, self.format, self.columns(is_terminal), color, out)
    }

    fn columns(&self, is_terminal: bool) -> u16 {
        let terminal = || terminal_size::terminal_size().filter(|_| is_terminal).map(|(width, _)| width.0);
        self.width.or_else(terminal).unwrap_or(WIDTH_WITHOUT_TERMINAL)
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
        ReportCommand { record, format: Format::Table, color: ColorChoice::Never, width: Some(80), output }
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
