//! Calls of a record that break a rule of self-consistency.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which rule a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Guideline {
    /// A call of k times the bytes takes longer than k calls.
    SplitIsFaster,
    /// A call takes longer than the same call of more bytes.
    MoreBytesAreFaster,
    /// A call takes longer than other calls that together do the same.
    OthersTogetherAreFaster,
    /// The bandwidth at one size is below that at both its neighbours.
    Dip,
}

impl Guideline {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Guideline::SplitIsFaster => "split_is_faster",
            Guideline::MoreBytesAreFaster => "more_bytes_are_faster",
            Guideline::OthersTogetherAreFaster => "others_together_are_faster",
            Guideline::Dip => "dip",
        }
    }
}

/// Calls that break a rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The rule.
    pub guideline: Guideline,
    /// The cases: the slow one, then those that it is compared with.
    pub cases: Vec<String>,
    /// Median time over the longest that the rule allows: 1.2 is 20 % more.
    pub times_allowed: f64,
    /// Its lower confidence bound; absent with too few replicates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times_allowed_lower_bound: Option<f64>,
    /// Exact rank-sum probability of as much by chance, corrected for the number of rules that were looked at.
    pub p_corrected: f64,
    /// True where chance is ruled out.
    pub certain: bool,
    /// The same as a sentence.
    pub text: String,
}
