//! What a planner needs and a fit does not contain.

use crate::cost::{Place, PlaceQuery};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use serde_json::Value;

/// Information that a planner needs and the fit does not contain.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Nodes of the machine that is planned on.
    pub nodes: u32,
    /// Ranks on each.
    pub ranks_per_node: Option<u32>,
    /// Placement of groups whose records do not contain it.
    pub unknown: Option<PlaceQuery>,
    /// Type of the elements of calls that reduce, if several were fitted.
    pub element_type: Option<ElementType>,
    /// The planner's own system file, whose other parts are copied unchanged.
    pub base: Option<Value>,
    /// Ranks and place of the groups of the axes `tp`, `dp`, `ep` and `pp`.
    pub axes: Vec<AxisPlace>,
}

/// The groups of one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisPlace {
    /// `tp`, `dp`, `ep` or `pp`.
    pub axis: String,
    /// Ranks of a group.
    pub ranks: u32,
    /// Placement of the groups.
    pub place: Place,
}

/// Ranks of a node, which formats that build a machine need.
pub(super) fn ranks_per_node(options: &ExportOptions) -> Result<u32> {
    let missing =
        "--ranks-per-node is missing; the format describes a machine, and a fit does not say how many ranks a node has";
    options.ranks_per_node.filter(|ranks| *ranks > 0).ok_or_else(|| Error::usage(missing))
}
