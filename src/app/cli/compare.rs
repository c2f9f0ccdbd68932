//! `commgauge compare BASE NEW`: tests whether a run is slower than a base; a single record is checked for
//! contradictions.

use super::gate::confidence;
use super::verdict_output::{VerdictOutput, read_all};
use commgauge_analysis::verdict::{Allowed, CompareRule, ConsistencyRule, compare, consistency};
use commgauge_base::error::Result;
use std::path::{Path, PathBuf};

/// Decide whether a run is slower than a base, row by row, and end with the code of the verdict
///
/// 0 every row is shown to be no slower by what matters; 1 a row is slower, or alpha or beta of a curve; 3 inconclusive; 4
/// data arrived wrong; 5 to 6 a run failed; 7 something planned was not measured. Runs that are not alike are refused.
///
/// With one record and nothing to compare it with, the record is checked against itself: a call of twice the bytes that takes
/// more than 2.05 times as long, or less; all_reduce slower than reduce_scatter and all_gather together, and the like; sizes
/// at which the bandwidth dips.
#[derive(Clone, Debug, clap::Args)]
pub struct CompareCommand {
    /// Record of the base (JSON Lines)
    pub base: PathBuf,

    /// Record that is compared with it; without one the base is compared with itself
    pub new: Option<PathBuf>,

    /// Further records of the base; their replicates count with the first's
    #[arg(long, value_name = "RECORD")]
    pub more_base: Vec<PathBuf>,

    /// Further records that are compared with the base
    #[arg(long, value_name = "RECORD", requires = "new")]
    pub more_new: Vec<PathBuf>,

    /// The smallest slow-down that matters, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = relevant, requires = "new")]
    pub relevant: f64,

    /// Confidence, in per cent: the chance of any false alarm over all rows is at most the rest
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0, value_parser = confidence)]
    pub confidence: f64,

    /// In what the runs may differ
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    pub allow: Vec<Allowed>,

    /// How the verdict is shown.
    #[command(flatten)]
    pub shown: VerdictOutput,
}

impl CompareCommand {
    /// Compares, writes the verdict, and returns its exit code.
    pub fn execute(&self) -> Result<i32> {
        let base: Vec<PathBuf> = std::iter::once(&self.base).chain(&self.more_base).cloned().collect();
        let new: Vec<PathBuf> = self.new.iter().chain(&self.more_new).cloned().collect();
        let inputs: Vec<&Path> = base.iter().chain(&new).map(PathBuf::as_path).collect();
        let format = self.shown.check(&inputs)?;
        let false_alarm_level = 1.0 - self.confidence / 100.0;
        if new.is_empty() {
            let rule = ConsistencyRule { false_alarm_level, ..ConsistencyRule::default() };
            return self.shown.show(&consistency(&read_all(&base)?, rule, &self.allow)?, format);
        }
        let rule =
            CompareRule { false_alarm_level, relevant_slowdown: self.relevant / 100.0, allowed: self.allow.clone() };
        let mut judged = read_all(&[base.clone(), new].concat())?;
        let new = judged.split_off(base.len());
        self.shown.show(&compare(&judged, &new, &rule)?, format)
    }
}

pub(super) fn relevant(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.1..=100.0).contains(&percent) => Ok(percent),
        _ => Err(format!("found `{text}`; accepted: a number from 0.1 to 100")),
    }
}
