//! The line that resumes a run which had ended early: the facts of this launch, and what has changed since.

use super::rank_facts::RankFacts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A further launch that goes on with the record. What follows belongs to the same run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResumeLine {
    /// Wall-clock time, RFC 3339 with offset.
    pub resumed_at: String,
    /// Command line of the program that measures now, word by word.
    pub command_line: Vec<String>,
    /// The launch command that `commgauge run` built, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_command: Option<Vec<String>>,
    /// The ranks of this launch, as in the header.
    pub ranks: Vec<RankFacts>,
    /// Bytes of a torn last line that were cut off.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut_bytes: u64,
    /// What is another than the header says, where that was allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Warnings about the machine that hold for all cases from here on, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A fact that is not what the header says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Which fact, such as `host of rank 3`.
    pub what: String,
    /// In the header.
    pub before: String,
    /// In this launch.
    pub now: String,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl ResumeLine {
    /// The warning about the changes; none where nothing changed.
    pub(super) fn warning(&self) -> Option<String> {
        if self.changes.is_empty() {
            return None;
        }
        let list: Vec<String> = self.changes.iter().take(5).map(Change::sentence).collect();
        let more = self.changes.len().saturating_sub(list.len());
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        Some(format!("resumed at {} although it was not the same: {}{more}", self.resumed_at, list.join("; ")))
    }
}

impl Change {
    fn sentence(&self) -> String {
        format!("{} was {}, is {}", self.what, shortened(&self.before), shortened(&self.now))
    }
}

/// A value of limited length, since some are long (such as digests).
pub(super) fn shortened(text: &str) -> String {
    const MAX: usize = 40;
    if text.chars().count() <= MAX {
        text.to_owned()
    } else {
        text.chars().take(MAX - 3).chain("...".chars()).collect()
    }
}
