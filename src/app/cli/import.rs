//! `commgauge import`: converts files of other tools to a record.

mod renew;

use super::places;
use commgauge_analysis::interop::{BadLine, Imported, read_csv, read_imb, read_nccl_tests, read_osu, record_lines};
use commgauge_base::error::{Error, Result};
use commgauge_model::record::Journal;
use std::path::{Path, PathBuf};

/// Maximum number of bad lines that an error lists.
const NAMED_LINES: usize = 20;

/// Turn what another tool measured into a record
///
/// What the files do not say stays unknown. Lines that cannot be read are reported with their number, and nothing is written
/// unless --skip-bad-lines is given; then the record lists them.
#[derive(Clone, Debug, clap::Args)]
pub struct ImportCommand {
    /// Files to read; one record is made of all of them
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Who wrote them
    #[arg(long, value_enum)]
    pub from: Foreign,

    /// The record to write; it must not exist. With several records of commgauge, the folder to write them into
    #[arg(short, long, value_name = "RECORD")]
    pub output: PathBuf,

    /// Ranks of the groups, for tools that do not print them (osu)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: Option<u32>,

    /// Leave out lines that cannot be read; the record says which
    #[arg(long)]
    pub skip_bad_lines: bool,
}

/// Formats of other tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Foreign {
    /// nccl-tests and rccl-tests: their text, or the JSON of -J
    NcclTests,
    /// OSU micro-benchmarks: point to point and blocking collectives
    Osu,
    /// Intel MPI Benchmarks: IMB-MPI1
    Imb,
    /// Columns collective, dtype, ranks, bytes_total, latency_us, optional locality; further columns become labels
    Csv,
    /// Records of an older commgauge, each checked and brought to the current version; several go into a folder
    Commgauge,
}

impl Foreign {
    fn read(self, path: &Path, ranks: Option<u32>) -> Result<Imported> {
        match self {
            Foreign::Commgauge => {
                Err(Error::usage("--from commgauge: records are renewed one by one, not put together"))
            }
            Foreign::NcclTests => read_nccl_tests(path),
            Foreign::Osu => read_osu(path, ranks),
            Foreign::Imb => read_imb(path),
            Foreign::Csv => read_csv(path),
        }
    }
}

impl ImportCommand {
    /// Reads all files, then writes the record.
    pub fn execute(&self) -> Result<i32> {
        if self.ranks.is_some() && self.from != Foreign::Osu {
            return Err(Error::usage("--ranks: is for --from osu; the other tools' files say it themselves"));
        }
        if self.from == Foreign::Commgauge {
            return renew::execute(self);
        }
        let (mut rows, mut bad, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        for path in &self.files {
            let imported = self.from.read(path, self.ranks)?;
            bad.extend(imported.bad_lines.iter().map(|line| bad_line_text(path, line)));
            notes.extend(imported.notes.iter().map(|note| format!("{}: {note}", path.display())));
            rows.extend(imported.rows);
        }
        if !bad.is_empty() && !self.skip_bad_lines {
            return Err(unreadable(&bad, bad.len() + rows.len()));
        }
        if rows.is_empty() {
            return Err(Error::usage("the files hold no line that can be read, so there is nothing to import"));
        }
        let files = self.files.iter().map(|path| places::text(path)).collect::<Result<Vec<_>>>()?;
        let warnings: Vec<String> = bad.into_iter().map(|line| format!("left out: {line}")).collect();
        let left_out = warnings.len();
        notes.iter().for_each(|note| eprintln!("{note}"));
        let warnings = warnings.into_iter().chain(notes).collect();
        let mut journal = Journal::create(&self.output)?;
        for line in record_lines(&places::new_run_id(), &files, &rows, warnings) {
            journal.write(&line)?;
        }
        journal.finish()?;
        let skipped = if left_out == 0 { String::new() } else { format!(", {left_out} lines left out") };
        eprintln!("{} times in {}{skipped}", rows.len(), self.output.display());
        Ok(0)
    }
}

/// The error about lines that cannot be parsed, with a list of the first ones.
fn unreadable(bad: &[String], all: usize) -> Error {
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

fn bad_line_text(path: &Path, line: &BadLine) -> String {
    format!("{}:{}: {}", path.display(), line.number, line.problem)
}
