//! All that a run will do: the groups of every axis in use, and the cases on them.

use super::Case;
use crate::layout::{Axis, Groups};

/// The cases of a run and the groups that carry them out.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkPlan {
    /// The groups of every axis that a case uses, one entry per axis.
    pub groups: Vec<Groups>,
    /// Every case, in the order in which it is shown. Names are unique.
    pub cases: Vec<Case>,
    /// Name of the model that ops were sized from.
    pub model: Option<String>,
    /// The layout as written, such as `tp 2 x dp 2`.
    pub layout: Option<String>,
}

impl WorkPlan {
    /// The groups of an axis.
    ///
    /// # Panics
    /// Where a case uses an axis that the plan has no groups for, which is a mistake in the making of the plan.
    pub fn groups_of(&self, axis: Axis) -> &Groups {
        self.groups
            .iter()
            .find(|groups| groups.axis == axis)
            .expect("a plan holds the groups of every axis that its cases use")
    }
}
