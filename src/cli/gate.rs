//! `commgauge gate RECORD --machine FILE`: does the machine reach what is expected of it?

use super::verdict_output::{VerdictOutput, read_all};
use crate::config::Machine;
use crate::error::{Error, Result};
use crate::verdict::{Allowed, GateRule, gate};
use std::path::{Path, PathBuf};

/// Hold a record against what a machine file expects, and end with the code of the verdict
///
/// 0 every judged row passed; 1 a row failed; 3 inconclusive; 4 data arrived wrong; 5 to 6 the run failed; 7 something
/// planned was not measured. Missing, unverified, synthetic and doubtful rows never pass.
#[derive(Clone, Debug, clap::Args)]
pub struct GateCommand {
    /// Records of a run (JSON Lines); the replicates of several like runs are taken together
    #[arg(required = true)]
    pub records: Vec<PathBuf>,

    /// Machine file whose [[expect]] rows are the limits; without it the answer is inconclusive, with rows to fill in
    #[arg(long, value_name = "FILE")]
    pub machine: Option<PathBuf>,

    /// Confidence of the bounds, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0, value_parser = confidence)]
    pub confidence: f64,

    /// In what several records may differ
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    pub allow: Vec<Allowed>,

    /// How the verdict is shown.
    #[command(flatten)]
    pub shown: VerdictOutput,
}

impl GateCommand {
    /// Judges, writes the verdict, and gives its exit code.
    pub fn execute(&self) -> Result<i32> {
        let inputs: Vec<&Path> = self.records.iter().chain(&self.machine).map(PathBuf::as_path).collect();
        self.shown.check(&inputs)?;
        let machine = self.machine.as_deref().map(load).transpose()?;
        let rule = GateRule { confidence: self.confidence / 100.0, allowed: self.allow.clone() };
        let verdict = gate(&read_all(&self.records)?, machine.as_ref(), &rule)?;
        self.shown.show(&verdict)
    }
}

/// A path that leads to no file is the user's mistake, not the machine's.
pub(super) fn load(path: &Path) -> Result<Machine> {
    if !path.is_file() {
        return Err(Error::usage(format!(
            "--machine: {} is no file; without --machine the rows to fill in for a new one are printed",
            path.display()
        )));
    }
    Machine::load(path)
}

/// A confidence in per cent that some number of replicates can reach.
pub(super) fn confidence(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (50.0..=99.999).contains(&percent) => Ok(percent),
        _ => Err(format!("found `{text}`; accepted: a number from 50 to 99.999")),
    }
}
