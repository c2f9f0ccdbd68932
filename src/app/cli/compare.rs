//! `commgauge compare BASE NEW`: tests whether a run is slower than a base; with --consistency it looks for contradictions within
//! one run.

use super::gate::confidence;
use super::verdict_output::{VerdictOutput, read_all};
use commgauge_analysis::verdict::{Allowed, CompareRule, ConsistencyRule, compare, consistency};
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use std::path::{Path, PathBuf};

/// Decide whether a run is slower than a base, row by row, and end with the code of the verdict
///
/// 0 every row is shown to be no slower by what matters; 1 a row is slower, or alpha or beta of a curve; 3 inconclusive; 4
/// data arrived wrong; 5 to 6 a run failed; 7 something planned was not measured. Runs that are not alike are refused.
///
/// Where several runs are compared, one that is slower by itself is named, and good runs do not make up for it.
///
/// --consistency compares nothing: it checks one run for contradictions. A call of twice the bytes takes more than 2.05 times as
/// long; a larger call takes less time; all_reduce is slower than reduce_scatter and all_gather together, and the like; the
/// bandwidth dips at a size.
#[derive(Clone, Debug, clap::Args)]
pub struct CompareCommand {
    /// Record of the base (JSON Lines)
    pub base: PathBuf,

    /// Record that is compared with it; only --consistency goes without
    pub new: Option<PathBuf>,

    /// Check BASE alone for contradictions within it, and compare it with nothing
    #[arg(long, conflicts_with_all = ["new", "more_new", "relevant"])]
    pub consistency: bool,

    /// Further records of the base; their replicates count with the first's
    #[arg(long, value_name = "RECORD")]
    pub more_base: Vec<PathBuf>,

    /// Further records that are compared with the base
    #[arg(long, value_name = "RECORD")]
    pub more_new: Vec<PathBuf>,

    /// The smallest slow-down that matters, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = relevant)]
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
        if self.new.is_none() && !self.consistency {
            return Err(Error::usage(format!(
                "NEW is missing, so {base} is compared with nothing (an empty variable?): name the record of the new run, or check {base} \
                 for contradictions within itself with `commgauge compare --consistency {base}`",
                base = self.base.shown()
            )));
        }
        let base: Vec<PathBuf> = std::iter::once(&self.base).chain(&self.more_base).cloned().collect();
        let new: Vec<PathBuf> = self.new.iter().chain(&self.more_new).cloned().collect();
        let inputs: Vec<&Path> = base.iter().chain(&new).map(PathBuf::as_path).collect();
        let format = self.shown.check(&inputs)?;
        let false_alarm_level = 1.0 - self.confidence / 100.0;
        if self.consistency {
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
