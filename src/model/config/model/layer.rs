//! What a layer can consist of: what mixes its tokens, and which feed-forward it has. Which layer has what is in `layer_parts`.

use schemars::JsonSchema;
use serde::Serialize;

/// What carries information from token to token in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mixer {
    /// Attention, which keeps keys and values of all tokens that it looks back to.
    Attention,
    /// Linear attention, which keeps a state of fixed size.
    Linear,
}

/// What works on each token for itself in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FeedForward {
    /// One feed-forward for every token.
    Dense,
    /// Experts.
    Experts,
}

/// The parts of a layer. Layers of the same parts have the same parameters and calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerParts {
    /// What mixes tokens, if anything does.
    pub mixer: Option<Mixer>,
    /// The feed-forward, if there is one.
    pub feed_forward: Option<FeedForward>,
}

/// How mixers and feed-forwards are put together to layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Each layer has both.
    Pairs,
    /// Each layer has one of the two (Nemotron-H, arXiv 2504.03624 section 2.1).
    Single {
        /// The layers that are a feed-forward, counted from 0, in order; all others are a mixer.
        feed_forward_layers: Vec<u32>,
    },
}

impl LayerParts {
    /// Mixers and feed-forwards of the layer: each is added to the residual stream, behind a norm of its own or a shared one.
    pub fn count(self) -> u64 {
        u64::from(self.mixer.is_some()) + u64::from(self.feed_forward.is_some())
    }
}
