//! A step in figures, for the record.

use super::step::Step;
use crate::layout::Degrees;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A step that cases belong to, as far as a reader of the record must know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepFacts {
    /// The model.
    pub model: String,
    /// The degrees above 1, such as `tp 2 x dp 2`.
    pub layout: String,
    /// `training`, `prefill` or `decode`.
    pub phase: String,
    /// The degrees.
    pub degrees: Degrees,
    /// Micro-batches of one replica in a step.
    pub micro_batches: u64,
    /// Tokens of one replica in a step.
    pub tokens_per_replica: u64,
}

impl StepFacts {
    /// The facts of a step.
    pub fn of(step: &Step) -> StepFacts {
        let degrees = step.layout().degrees;
        StepFacts {
            model: step.model().shown_name(),
            layout: degrees.name(),
            phase: step.phase_name().to_owned(),
            degrees,
            micro_batches: step.micro_batches(),
            tokens_per_replica: step.tokens_per_replica(),
        }
    }
}
