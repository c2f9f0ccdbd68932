//! One communication call as data.

use super::when::{Overlap, When};
use crate::layout::Axis;
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::geometry::{Geometry, Splits};
use commgauge_base::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who asks for an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// A sweep over sizes.
    Sweep,
    /// All pairs of ranks.
    Pairs,
    /// Tensor parallelism of a model's layers.
    Tensor,
    /// Tensor parallelism with Megatron-LM's sequence parallelism.
    Sequence,
    /// Vocabulary-parallel embedding, output projection and loss.
    Vocabulary,
    /// Data parallelism of a model.
    Data,
    /// Pipeline parallelism of a model.
    Pipeline,
    /// Context parallelism of a model.
    Context,
    /// Expert parallelism of a model.
    Expert,
    /// Small calls that everybody waits for: norms, flags, averages.
    Control,
    /// A model that serves requests.
    Serving,
}

impl Style {
    /// Every style of a model's step, in the order in which they are listed.
    pub const OF_A_STEP: [Style; 9] = [
        Style::Tensor,
        Style::Sequence,
        Style::Vocabulary,
        Style::Data,
        Style::Pipeline,
        Style::Context,
        Style::Expert,
        Style::Control,
        Style::Serving,
    ];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Style::Sweep => "sweep",
            Style::Pairs => "pairs",
            Style::Tensor => "tensor",
            Style::Sequence => "sequence",
            Style::Vocabulary => "vocabulary",
            Style::Data => "data",
            Style::Pipeline => "pipeline",
            Style::Context => "context",
            Style::Expert => "expert",
            Style::Control => "control",
            Style::Serving => "serving",
        }
    }
}

/// One communication call: collective, size, groups, number and formula.
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
    /// How elements are combined, if the collective reduces.
    pub reduce_op: Option<ReduceOp>,
    /// Rank within the group that is special, where the collective has one.
    pub root: u32,
    /// The size argument, in the sense of nccl-tests (see [`commgauge_base::geometry`]).
    pub bytes_total: Bytes,
    /// How the vector forms divide their elements.
    pub splits: Splits,
    /// Number and position in a step.
    pub when: When,
    /// Whether anything useful is done meanwhile.
    pub overlap: Overlap,
    /// Tensors that the host copies one after another beside each call, because the call takes a list of them.
    pub copies_per_call: u64,
    /// Where the bytes come from: formula with numbers put in, and its source; empty for sweeps.
    pub why: String,
}

impl Op {
    /// A call of a step on equal shares, exposed, to be completed with `..` by the styles.
    pub fn new(style: Style, axis: Axis, collective: Collective, element: ElementType, bytes_total: u64) -> Op {
        Op {
            style,
            axis,
            collective,
            element,
            reduce_op: collective.reduces().then_some(ReduceOp::Sum),
            root: 0,
            bytes_total: Bytes(bytes_total),
            splits: Splits::Equal,
            when: When::Outside,
            overlap: Overlap::Exposed,
            copies_per_call: 0,
            why: String::new(),
        }
    }

    /// The element counts on a group of `ranks` ranks, or why the call does not exist there.
    pub fn geometry(&self, ranks: u32) -> Result<Geometry, String> {
        if self.collective.has_root() && self.root >= ranks {
            return Err(format!("root {} is not in a group of {ranks} ranks; the last is {}", self.root, ranks - 1));
        }
        Geometry::new(self.collective, self.element, self.bytes_total, ranks, &self.splits)
    }
}
