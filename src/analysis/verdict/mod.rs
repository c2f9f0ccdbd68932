//! From records to verdicts: does a machine meet its expectations, and is it slower than before.
//!
//! Statistics are over the medians of replicates, never over their iterations, which share communicators, placement and the
//! state of the machine. Missing, unverified, synthetic or unreliable data never pass. Rendering is in `report`.

mod algorithm;
mod comparability;
mod compare;
mod consistency;
mod curves;
mod decision;
mod document;
mod evidence;
mod expected;
mod gate;
pub mod history;
mod learn;
pub mod locate;
mod permutation;
mod scope;
pub mod selftest;
mod template;
mod transient_slowdown;

pub use comparability::{Allowed, Difference, differences};
pub use compare::{CompareRule, compare};
pub use consistency::{Consistency, ConsistencyRule, Finding, Guideline, Timed, consistency};
pub use curves::{CurveChange, CurvePart};
pub use decision::{Decision, most_severe};
pub use document::{
    AgainstBase, AgainstLimit, Coverage, FORMAT, FalseAlarms, Metric, Question, Row, Run, Trouble, VERSION, Verdict,
};
pub use gate::{GateRule, gate, gate_unknown_machine};
pub use learn::{LearnRule, Learned, learn};
pub use selftest::{Counted, History, Noise, SelfTest, SelfTestRule, Trial, TrialKind, selftest};
pub use transient_slowdown::TransientSlowdown;

use commgauge_base::error::{Error, Result};
use commgauge_base::units::three_digits;
use commgauge_model::record::Record;
use std::path::{Path, PathBuf};

/// A record and the file that it was read from.
#[derive(Clone, Debug)]
pub struct LoadedRecord {
    /// The file, for messages.
    pub path: PathBuf,
    /// Its contents.
    pub record: Record,
}

impl LoadedRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// As [`Record::read`].
    pub fn read(path: &Path) -> Result<LoadedRecord> {
        Ok(LoadedRecord { path: path.to_owned(), record: Record::read(path)? })
    }

    fn run(&self, role: &str) -> Run {
        let header = &self.record.header;
        Run {
            role: role.to_owned(),
            path: self.path.display().to_string(),
            run_id: header.run_id.clone(),
            started_at: header.started_at.clone(),
            suite: header.suite.name.clone(),
            library: header.backend.library.clone(),
            world_size: header.world_size,
            synthetic: header.backend.synthetic,
        }
    }
}

/// Checks that records can be replicates of each other: no run is given twice, and the runs are comparable.
///
/// # Errors
/// A usage error that names the records, and the `--allow` flag that would accept them.
pub fn ensure_comparable(records: &[&LoadedRecord], allowed: &[Allowed]) -> Result<()> {
    let Some((first, others)) = records.split_first() else { return Err(Error::usage("name at least one record")) };
    for (index, other) in records.iter().enumerate() {
        let id = &other.record.header.run_id;
        if let Some(twin) = records[..index].iter().find(|twin| twin.record.header.run_id == *id) {
            let (a, b) = (twin.path.display(), other.path.display());
            return Err(Error::usage(format!("{a} and {b} are the same run ({id}); it counts once")));
        }
    }
    for other in others {
        comparability::ensure_alike(first, other, allowed)?;
    }
    Ok(())
}

/// A share in per cent, for sentences.
fn percent(share: f64) -> String {
    format!("{} %", three_digits(share * 100.0))
}

#[cfg(test)]
mod cheat_tests;
#[cfg(test)]
mod compare_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod monotonicity_tests;
#[cfg(any(test, feature = "test-support"))]
pub mod testing;
#[cfg(test)]
mod tests;
