//! What a launched program adds to the common flags.

use super::super::suite::SuiteWork;
use crate::cli::LaunchedArguments;
use commgauge_base::error::Result;
use commgauge_model::layout::Nodes;
use commgauge_model::workload::Interference;
use commgauge_run::session::ReplayRequest;

/// The work that a launched program adds to the common flags.
pub trait Work {
    /// The common flags.
    fn launched(&self) -> &LaunchedArguments;
    /// The plan, sampling settings and request on this many ranks.
    fn plan(&self, world_size: u32) -> Result<SuiteWork>;
    /// The same for plans that depend on which ranks share a node.
    fn plan_on(&self, nodes: &Nodes) -> Result<SuiteWork> {
        self.plan(nodes.ranks())
    }
    /// Whether rows are printed as they are done; the last replicate of the plan is then in their order.
    fn shows_rows(&self) -> bool {
        false
    }
    /// Whether calls of several groups of a rank are under way at once.
    fn calls_overlap(&self) -> bool {
        false
    }
    /// Two calls to be measured concurrently, in addition.
    fn interference(&self, _world_size: u32) -> Result<Option<Interference>> {
        Ok(None)
    }
    /// The layout whose step is also replayed as a whole, with options.
    fn replay(&self, _world_size: u32) -> Result<Option<ReplayRequest>> {
        Ok(None)
    }
}
