//! What came of a call, a copy or a matrix product, over all of its replicates.

use commgauge_model::record::line::{Header, Outcome};
use std::fmt;

/// Status of a case over all replicates: the first that applies, the worst first.
#[derive(Clone, Debug, PartialEq)]
pub enum Status {
    /// Wrong data was received in some replicate; there are no numbers.
    Wrong {
        /// The first mismatch, as a sentence.
        mismatch: String,
        /// Wrong elements at the rank that the mismatch names.
        wrong_elements: u64,
    },
    /// Some replicate failed.
    Failed(String),
    /// Planned, but without a line in the record.
    Missing,
    /// Cannot be run here.
    Skipped(String),
    /// No data moved and no real time passed.
    Synthetic,
    /// Timed, data not checked.
    NotVerified,
    /// Timed, data verified before and after.
    Verified,
}

impl Status {
    /// Every label, in the order in which they are counted.
    pub(super) const LABELS: [&'static str; 7] =
        ["verified", "not verified", "synthetic", "WRONG", "failed", "missing", "skipped"];

    /// The status without its reason, for the table.
    pub fn label(&self) -> &'static str {
        match self {
            Status::Wrong { .. } => "WRONG",
            Status::Failed(_) => "failed",
            Status::Missing => "missing",
            Status::Skipped(_) => "skipped",
            Status::Synthetic => "synthetic",
            Status::NotVerified => "not verified",
            Status::Verified => "verified",
        }
    }

    /// The reason, where there is one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Status::Wrong { mismatch: reason, .. } | Status::Failed(reason) | Status::Skipped(reason) => Some(reason),
            Status::Missing | Status::Synthetic | Status::NotVerified | Status::Verified => None,
        }
    }

    /// The status of what has these outcomes, one of each replicate.
    pub(super) fn of<'a>(outcomes: impl Iterator<Item = &'a Outcome> + Clone, header: &Header) -> Status {
        let wrong = outcomes.clone().find_map(|outcome| {
            Some(Status::Wrong { mismatch: outcome.mismatch()?, wrong_elements: outcome.wrong_elements() })
        });
        let failed = outcomes.clone().find_map(|outcome| match outcome {
            Outcome::Failed { reason } => Some(Status::Failed(reason.clone())),
            _ => None,
        });
        let skipped = outcomes.clone().find_map(|outcome| match outcome {
            Outcome::Skipped { reason } => Some(Status::Skipped(reason.clone())),
            _ => None,
        });
        let verified: Vec<bool> = outcomes
            .filter_map(|outcome| match outcome {
                Outcome::Measured { verified } => Some(*verified),
                _ => None,
            })
            .collect();
        let measured = match (verified.is_empty(), header.backend.synthetic, verified.iter().all(|verified| *verified))
        {
            (true, ..) => Status::Missing,
            (false, true, _) => Status::Synthetic,
            (false, false, false) => Status::NotVerified,
            (false, false, true) => Status::Verified,
        };
        wrong.or(failed).or(skipped).unwrap_or(measured)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            Some(reason) => write!(f, "{}: {reason}", self.label()),
            None => f.write_str(self.label()),
        }
    }
}
