//! The position of a call in a step, how often it occurs, and whether it is overlapped.
//!
//! Counts and the replay of a step are both derived from this, so that they agree.

use super::schedule::PassDirection;
use crate::config::{Blocks, FeedForward, LayerParts, Mixer, Model};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pass of a micro-batch through a model chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pass {
    /// Forward.
    Forward,
    /// Forward again, for a backward pass that kept nothing.
    Recompute,
    /// Gradients of the inputs.
    Backward,
    /// Gradients of the weights, where they are computed apart.
    WeightGradient,
}

impl Pass {
    /// Which way its micro-batch goes: a repeated forward pass is a part of the backward one.
    pub(super) fn direction(self) -> PassDirection {
        match self {
            Pass::Forward => PassDirection::Forward,
            Pass::Recompute | Pass::Backward | Pass::WeightGradient => PassDirection::Backward,
        }
    }
}

/// The layers of a stage in which a call comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LayerKind {
    /// All.
    Any,
    /// Those with a dense feed-forward.
    Dense,
    /// Those with experts.
    Experts,
    /// Those with attention and a dense feed-forward, in hybrid models.
    AttentionAndDense,
    /// Those with attention and experts, in hybrid models.
    AttentionAndExperts,
    /// Those with linear attention and a dense feed-forward.
    LinearAndDense,
    /// Those with linear attention and experts.
    LinearAndExperts,
    /// Those with attention and no feed-forward.
    AttentionAlone,
    /// Those with linear attention and no feed-forward.
    LinearAlone,
}

impl LayerKind {
    /// Whether a layer of these parts is of the kind.
    pub fn has(self, parts: LayerParts) -> bool {
        use {FeedForward as F, Mixer as M};
        let exactly = |mixer, feed_forward| parts == LayerParts { mixer: Some(mixer), feed_forward };
        match self {
            LayerKind::Any => true,
            LayerKind::Dense => parts.feed_forward == Some(F::Dense),
            LayerKind::Experts => parts.feed_forward == Some(F::Experts),
            LayerKind::AttentionAndDense => exactly(M::Attention, Some(F::Dense)),
            LayerKind::AttentionAndExperts => exactly(M::Attention, Some(F::Experts)),
            LayerKind::LinearAndDense => exactly(M::Linear, Some(F::Dense)),
            LayerKind::LinearAndExperts => exactly(M::Linear, Some(F::Experts)),
            LayerKind::AttentionAlone => exactly(M::Attention, None),
            LayerKind::LinearAlone => exactly(M::Linear, None),
        }
    }

    /// Kinds whose layers have as many parameters each; every layer of the model is of one of them.
    pub fn of_equal_layers(model: &Model) -> &'static [LayerKind] {
        match (&model.blocks, &model.attention.linear, &model.mixture) {
            (Blocks::Single { .. }, _, _) => {
                &[LayerKind::AttentionAlone, LayerKind::LinearAlone, LayerKind::Dense, LayerKind::Experts]
            }
            (Blocks::Pairs, Some(_), _) => &[
                LayerKind::AttentionAndDense,
                LayerKind::AttentionAndExperts,
                LayerKind::LinearAndDense,
                LayerKind::LinearAndExperts,
            ],
            (Blocks::Pairs, None, Some(_)) => &[LayerKind::Dense, LayerKind::Experts],
            (Blocks::Pairs, None, None) => &[LayerKind::Any],
        }
    }
}

/// Where outside of layers a call comes in a pass of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Before the first layer of the model, on the stage that holds it.
    Input,
    /// Before the first layer of the chunk that holds the last one of the model.
    BeforeOutput,
    /// After the last layer of the model, on the stage that holds it.
    Output,
    /// With all layers of the stage done, on every stage.
    Whole,
}

/// When in a step a call comes that does not come in every micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// While the first micro-batch goes forward.
    FirstForward,
    /// While the last micro-batch goes backward.
    LastBackward,
    /// When all gradients are there: reductions that nothing hides.
    AfterBackward,
    /// Around the optimizer: norms, flags, averages.
    Optimizer,
}

/// Where in a step a call stands, as one rank of the stage in question sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// In no step: a sweep.
    Outside,
    /// In layers, in one pass of every micro-batch.
    Layer {
        /// The pass.
        pass: Pass,
        /// The layers.
        kind: LayerKind,
        /// Calls in each of these layers.
        calls_per_layer: u64,
        /// Such layers of the stage.
        layers: u64,
    },
    /// Outside of layers, in one pass of every micro-batch.
    MicroBatch {
        /// The pass.
        pass: Pass,
        /// Where.
        end: End,
        /// Calls in each micro-batch.
        calls: u64,
        /// 1 where every micro-batch comes by, 2 where every second one does: DualPipe's go in at either of two ends.
        one_in: u64,
    },
    /// Messages to a neighbouring stage.
    Boundary {
        /// The pass after which they are sent.
        pass: Pass,
        /// Messages that the rank sends in a step.
        sends_per_step: u64,
    },
    /// Once in a step, or a few times.
    Step {
        /// When.
        moment: Moment,
        /// Calls in a step.
        calls: u64,
    },
}

impl When {
    /// The pass in which it occurs, where it does in every micro-batch.
    pub fn pass(&self) -> Option<Pass> {
        match self {
            When::Layer { pass, .. } | When::MicroBatch { pass, .. } | When::Boundary { pass, .. } => Some(*pass),
            When::Outside | When::Step { .. } => None,
        }
    }

    /// Calls in each layer of its kind.
    pub fn count_per_layer(&self) -> Option<u64> {
        match self {
            When::Layer { calls_per_layer, .. } => Some(*calls_per_layer),
            _ => None,
        }
    }

    /// Calls in a micro-batch, if it occurs in every one.
    pub fn count_per_micro_batch(&self) -> Option<u64> {
        match self {
            When::Layer { calls_per_layer, layers, .. } => calls_per_layer.checked_mul(*layers),
            When::MicroBatch { calls, .. } => Some(*calls),
            When::Outside | When::Boundary { .. } | When::Step { .. } => None,
        }
    }

    /// Calls in a step of this many micro-batches; `None` outside of steps, and if the number passes 64 bits.
    pub fn count_per_step(&self, micro_batches: u64) -> Option<u64> {
        match self {
            When::Outside => None,
            When::Boundary { sends_per_step, .. } => Some(*sends_per_step),
            When::Step { calls, .. } => Some(*calls),
            When::Layer { .. } => self.count_per_micro_batch().and_then(|count| count.checked_mul(micro_batches)),
            When::MicroBatch { calls, one_in, .. } => calls.checked_mul(micro_batches / one_in),
        }
    }
}

/// Whether anything useful is done while a call is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Nothing: all wait for it.
    Exposed,
    /// The weight-gradient product of the same layer.
    WeightGradient,
    /// The input-gradient product of the same layer.
    InputGradient,
    /// Attention over the blocks that are already there.
    Attention,
    /// The backward pass of the last micro-batch.
    LastBackward,
    /// The backward pass of every micro-batch.
    Backward,
    /// The forward pass of the first micro-batch.
    FirstForward,
    /// The layer before, whose successor's parameters are fetched ahead.
    Prefetch,
    /// The work of other micro-batches in the steady state of the pipeline.
    SteadyState,
    /// The next layers of the same pass.
    NextLayers,
    /// The product that needs it or makes it, piece by piece.
    Pieces,
}

/// Whether the ranks wait for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exposure {
    /// They wait: nothing is computed meanwhile.
    Exposed,
    /// They compute while it is under way.
    Hidden,
}

impl Overlap {
    /// True if the ranks wait for it.
    pub fn is_exposed(self) -> bool {
        self == Overlap::Exposed
    }

    /// Whether the ranks wait for it, or compute meanwhile.
    pub fn exposure(self) -> Exposure {
        if self.is_exposed() { Exposure::Exposed } else { Exposure::Hidden }
    }

    /// The computing that hides it, in words; `exposed` if none does.
    pub fn name(self) -> &'static str {
        match self {
            Overlap::Exposed => "exposed",
            Overlap::WeightGradient => "weight-gradient product",
            Overlap::InputGradient => "input-gradient product",
            Overlap::Attention => "attention of earlier blocks",
            Overlap::LastBackward => "last micro-batch's backward",
            Overlap::Backward => "backward",
            Overlap::FirstForward => "first micro-batch's forward",
            Overlap::Prefetch => "the layer before (prefetch)",
            Overlap::SteadyState => "other micro-batches (steady state)",
            Overlap::NextLayers => "the next layers",
            Overlap::Pieces => "its own product, in pieces",
        }
    }
}
