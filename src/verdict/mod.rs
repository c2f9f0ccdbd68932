//! From records to verdicts: does a machine reach what is expected of it, and is it worse than before.
//!
//! Replicates are the unit: every statistic is over the medians of independent runs, never over their iterations, which
//! share communicators, placement and the mood of the machine. Whatever is missing, unverified, synthetic or unreliable is
//! never a pass. How a verdict looks is for [`crate::report`].

mod algorithm;
mod compare;
mod consistency;
mod curves;
mod decision;
mod document;
mod evidence;
mod expected;
mod family;
mod gate;
pub mod history;
mod learn;
mod likeness;
pub mod locate;
pub mod selftest;
mod slow_while;
mod template;

pub use compare::{CompareRule, compare};
pub use consistency::{Consistency, ConsistencyRule, Finding, Guideline, Timed, consistency};
pub use curves::{CurveChange, CurvePart};
pub use decision::{Decision, gravest};
pub use document::{
    AgainstBase, AgainstLimit, Coverage, FORMAT, FalseAlarms, Metric, Question, Row, Run, Trouble, VERSION, Verdict,
};
pub use gate::{GateRule, gate, gate_unknown_machine};
pub use learn::{LearnRule, Learned, learn};
pub use likeness::{Allowed, Difference, differences};
pub use selftest::{Asked, Counted, History, Noise, SelfTest, SelfTestRule, Trial, selftest};
pub use slow_while::SlowWhile;

use crate::error::{Error, Result};
use crate::record::Record;
use crate::units::three_digits;
use std::path::{Path, PathBuf};

/// A record and the file that it was read from.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The file, for messages.
    pub path: PathBuf,
    /// What it holds.
    pub record: Record,
}

impl Judged {
    /// Reads a record.
    ///
    /// # Errors
    /// As [`Record::read`].
    pub fn read(path: &Path) -> Result<Judged> {
        Ok(Judged { path: path.to_owned(), record: Record::read(path)? })
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

/// Refuses records that cannot be replicates of each other: one run given twice, or runs that were not alike.
///
/// # Errors
/// A usage error that names the records, and what may be allowed.
pub fn check_together(records: &[&Judged], allowed: &[Allowed]) -> Result<()> {
    let Some((first, others)) = records.split_first() else { return Err(Error::usage("name at least one record")) };
    for (index, other) in records.iter().enumerate() {
        let id = &other.record.header.run_id;
        if let Some(twin) = records[..index].iter().find(|twin| twin.record.header.run_id == *id) {
            let (a, b) = (twin.path.display(), other.path.display());
            return Err(Error::usage(format!("{a} and {b} are the same run ({id}); it counts once")));
        }
    }
    for other in others {
        likeness::refuse_unlike(first, other, allowed)?;
    }
    Ok(())
}

/// A share in per cent, for sentences.
fn percent(share: f64) -> String {
    format!("{} %", three_digits(share * 100.0))
}

#[cfg(test)]
mod compare_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod worse_tests;
