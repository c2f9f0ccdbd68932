//! One communication call as data.

use crate::collective::{Collective, ReduceOp};
use crate::element::ElementType;
use crate::geometry::{Geometry, Splits};
use crate::layout::Axis;
use crate::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who asks for an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// A sweep over sizes.
    Sweep,
    /// Tensor parallelism of a model.
    Tensor,
    /// Data parallelism of a model.
    Data,
    /// Pipeline parallelism of a model.
    Pipeline,
}

impl Style {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Style::Sweep => "sweep",
            Style::Tensor => "tensor",
            Style::Data => "data",
            Style::Pipeline => "pipeline",
        }
    }
}

/// One communication call: what, how much, in which groups, how often and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    /// The style that performs it.
    pub style: Style,
    /// The axis whose groups carry it out, all at once.
    pub axis: Axis,
    /// The call.
    pub collective: Collective,
    /// Type of the elements.
    pub element: ElementType,
    /// How elements are combined, where the collective reduces.
    pub reduce_op: Option<ReduceOp>,
    /// Rank within the group that is special, where the collective has one.
    pub root: u32,
    /// The size argument, in the sense of nccl-tests (see [`crate::geometry`]).
    pub bytes_total: Bytes,
    /// How the vector forms divide their elements.
    pub splits: Splits,
    /// Calls in one optimizer step on the busiest rank; `None` for sweeps.
    pub count_per_step: Option<u64>,
    /// Where the bytes come from: formula with numbers put in; empty for sweeps.
    pub why: String,
}

impl Op {
    /// The element counts on a group of `ranks` ranks, or why the call does not exist there.
    pub fn geometry(&self, ranks: u32) -> Result<Geometry, String> {
        if self.collective.reduces() && self.element.moves_only() {
            return Err(format!("{} cannot reduce {}; it can only be moved", self.collective, self.element));
        }
        if self.collective.has_root() && self.root >= ranks {
            return Err(format!("root {} is not in a group of {ranks} ranks; the last is {}", self.root, ranks - 1));
        }
        Geometry::new(self.collective, self.element, self.bytes_total, ranks, &self.splits)
    }
}
