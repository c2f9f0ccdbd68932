//! The flags of `commgauge import`.

use commgauge_analysis::interop::{Imported, read_csv, read_imb, read_nccl_tests, read_osu};
use commgauge_base::error::{Error, Result};
use commgauge_model::record::line::ForeignTool;
use std::path::{Path, PathBuf};

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

    /// Ranks on each node, for tools that do not say where ranks were (osu, imb), so that gate can judge them; nodes are filled one
    /// after another
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks_per_node: Option<u32>,

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
    /// The tool whose times a record then holds.
    pub(super) fn tool(self) -> Result<ForeignTool> {
        match self {
            Foreign::NcclTests => Ok(ForeignTool::NcclTests),
            Foreign::Osu => Ok(ForeignTool::Osu),
            Foreign::Imb => Ok(ForeignTool::Imb),
            Foreign::Csv => Ok(ForeignTool::Csv),
            Foreign::Commgauge => Err(not_put_together()),
        }
    }

    pub(super) fn read(self, path: &Path, ranks: Option<u32>) -> Result<Imported> {
        match self {
            Foreign::Commgauge => Err(not_put_together()),
            Foreign::NcclTests => read_nccl_tests(path),
            Foreign::Osu => read_osu(path, ranks),
            Foreign::Imb => read_imb(path),
            Foreign::Csv => read_csv(path),
        }
    }
}

fn not_put_together() -> Error {
    Error::usage("--from commgauge: records are renewed one by one, not put together")
}
