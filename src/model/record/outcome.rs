//! What became of a measured piece of work.

use commgauge_base::sample::WrongCall;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// Timed; data right before and after, where it was checked.
    Measured {
        /// False for the barrier, for synthetic results, and where checking was switched off.
        verified: bool,
    },
    /// Cannot be run here; not failed and not passed.
    #[serde(alias = "waived")]
    Skipped {
        /// Why.
        reason: String,
    },
    /// Data arrived wrong; the numbers are withheld.
    Corrupt {
        /// `before` or `after` timing.
        when: String,
        /// World rank that holds the first wrong element.
        rank: u32,
        /// Index of the element in the receive buffer.
        element: u64,
        /// What it should be.
        expected: String,
        /// What it is.
        got: String,
        /// Wrong elements in that rank's buffer.
        count: u64,
        /// Which call it was; absent where a single one was compared.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<WrongCall>,
    },
    /// Another tool found wrong data and does not say where; the numbers are withheld.
    FoundWrong {
        /// Wrong elements over all ranks, where the tool counts them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        count: Option<u64>,
    },
    /// Could not be run to its end; what failed.
    Failed {
        /// The error, with rank, host and call.
        reason: String,
    },
}

impl Outcome {
    /// Whether data arrived wrong.
    pub fn is_wrong(&self) -> bool {
        matches!(self, Outcome::Corrupt { .. } | Outcome::FoundWrong { .. })
    }

    /// What arrived wrong, as a sentence; none where nothing did.
    pub fn mismatch(&self) -> Option<String> {
        match self {
            Outcome::Corrupt { when, rank, element, expected, got, count, call } => {
                let call = call.map_or_else(String::new, |call| {
                    format!(", call {}, wrong in {} of {} copies", call.number, call.wrong_copies, call.compared_copies)
                });
                Some(format!(
                    "rank {rank}, element {element}: expected {expected}, got {got} ({count} wrong elements there, {when} timing{call})"
                ))
            }
            Outcome::FoundWrong { count: Some(count) } => Some(format!("the tool counted {count} wrong elements")),
            Outcome::FoundWrong { count: None } => Some("the tool found wrong data".to_owned()),
            Outcome::Measured { .. } | Outcome::Skipped { .. } | Outcome::Failed { .. } => None,
        }
    }

    /// Elements that were wrong: at the rank that a mismatch names, or of all ranks where none is named; 0 where nobody counted.
    pub fn wrong_elements(&self) -> u64 {
        match self {
            Outcome::Corrupt { count, .. } => *count,
            Outcome::FoundWrong { count } => count.unwrap_or(0),
            Outcome::Measured { .. } | Outcome::Skipped { .. } | Outcome::Failed { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples_line::Samples;
    use super::*;

    #[test]
    fn records_with_the_former_words_for_skipped_and_excluded_are_read() {
        let outcome: Outcome = serde_json::from_str(r#"{"status":"waived","reason":"no device"}"#).unwrap();
        assert_eq!(outcome, Outcome::Skipped { reason: "no device".to_owned() });
        let text = r#"{"slowest_nanoseconds":[5],"slowest_rank":[0],"doubtful":[[0,"missed_start"]]}"#;
        assert_eq!(serde_json::from_str::<Samples>(text).unwrap().excluded.len(), 1);
    }
}
