//! What a launched program adds to the common flags.

use crate::cli::LaunchedArguments;
use crate::config::{LayoutTable, RunSettings};
use crate::error::Result;
use crate::layout::Nodes;
use crate::record::line::SuiteFacts;
use crate::workload::replay::ReplayOptions;
use crate::workload::{Interference, WorkPlan};

/// The work that a launched program adds to the common flags.
pub trait Work {
    /// The common flags.
    fn launched(&self) -> &LaunchedArguments;
    /// The plan, sampling settings and request on this many ranks.
    fn plan(&self, world_size: u32) -> Result<(WorkPlan, RunSettings, SuiteFacts)>;
    /// The same for plans that depend on which ranks share a node.
    fn plan_on(&self, nodes: &Nodes) -> Result<(WorkPlan, RunSettings, SuiteFacts)> {
        self.plan(nodes.ranks())
    }
    /// Whether rows are printed as they are done; the last replicate of the plan is then in their order.
    fn shows_rows(&self) -> bool {
        false
    }
    /// Two calls to be measured concurrently, in addition.
    fn interference(&self, _world_size: u32) -> Result<Option<Interference>> {
        Ok(None)
    }
    /// The layout whose step is also replayed as a whole, with options.
    fn replay(&self, _world_size: u32) -> Result<Option<(LayoutTable, ReplayOptions)>> {
        Ok(None)
    }
}
