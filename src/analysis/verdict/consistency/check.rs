//! The cases that a rule compares, each with its times.

use crate::verdict::finding::Guideline;
use commgauge_model::record::line::CaseFacts;
use std::collections::BTreeMap;

/// A case and the median time, in seconds, of each of its replicates that counts.
#[derive(Clone, Debug)]
pub struct Timed<'a> {
    /// The case.
    pub facts: &'a CaseFacts,
    /// Median seconds by replicate number.
    pub seconds: BTreeMap<usize, f64>,
}

/// One comparison under a rule.
pub(super) struct Check<'a> {
    pub(super) guideline: Guideline,
    pub(super) slow: &'a CaseFacts,
    pub(super) against: Vec<&'a CaseFacts>,
    /// Replicate by replicate.
    pub(super) times: Vec<CheckedTimes>,
}

/// One replicate of a comparison, in seconds.
pub(super) struct CheckedTimes {
    /// Of the slow call.
    pub(super) slow: f64,
    /// The longest that the rule allows it.
    pub(super) allowed: f64,
}
