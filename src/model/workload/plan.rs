//! Everything that a run will do: the groups of every axis in use, the cases on them, and the steps of the cases.

use super::step::Step;
use super::{Case, ProductShape, RankedStep};
use crate::layout::{Degrees, Groups};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The cases of a run and the groups that carry them out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkPlan {
    /// The groups that cases use.
    pub groups: Vec<Groups>,
    /// Every case, in the order in which it is shown. Names are unique.
    pub cases: Vec<Case>,
    /// The steps that use the cases.
    pub steps: Vec<StepFacts>,
    /// The step whose parallelisms are ranked, if the ranks are too few for its layout.
    pub ranking: Option<RankedStep>,
    /// Matrix products that every rank computes for itself.
    pub products: Vec<ProductShape>,
    /// Names of the models that ops were sized from.
    pub model: Option<String>,
    /// The layouts as written, such as `tp 2 x dp 2`.
    pub layout: Option<String>,
}

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

impl WorkPlan {
    /// The groups that carry a case out.
    pub fn groups_of(&self, case: &Case) -> &Groups {
        &self.groups[case.groups]
    }
}
