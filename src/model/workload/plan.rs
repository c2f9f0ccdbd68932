//! Everything that a run will do: the groups of every axis in use, the cases on them, and the steps of the cases.

use super::step_facts::StepFacts;
use super::{Case, CopyShape, ProductShape, RankedStep};
use crate::layout::Groups;

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
    /// Copies that every rank makes with its own GPU.
    pub copies: Vec<CopyShape>,
    /// Names of the models that ops were sized from.
    pub model: Option<String>,
    /// The layouts as written, such as `tp 2 x dp 2`.
    pub layout: Option<String>,
}

impl WorkPlan {
    /// The groups that carry a case out.
    pub fn groups_of(&self, case: &Case) -> &Groups {
        &self.groups[case.groups]
    }
}
