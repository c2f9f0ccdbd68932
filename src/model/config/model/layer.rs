//! What each layer of a model consists of: what mixes its tokens, and which feed-forward it has. Hybrid models alternate.

use super::Model;
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

impl Model {
    /// The parts of a layer, counted from 0. Layers behind the last one, which predict further tokens, have attention and the
    /// feed-forward of the last one.
    pub fn parts_of(&self, layer: u32) -> LayerParts {
        let is_feed_forward = match &self.blocks {
            Blocks::Pairs => return LayerParts { mixer: Some(self.mixer_in(layer)), ..self.feed_forward_alone(layer) },
            Blocks::Single { feed_forward_layers } => feed_forward_layers.binary_search(&layer).is_ok(),
        };
        match is_feed_forward {
            true => self.feed_forward_alone(layer),
            false => LayerParts { mixer: Some(self.mixer_in(layer)), feed_forward: None },
        }
    }

    fn feed_forward_alone(&self, layer: u32) -> LayerParts {
        let last = self.layers.saturating_sub(1);
        let has_experts = self.mixture.as_ref().is_some_and(|mixture| mixture.is_in(layer.min(last)));
        let feed_forward = if has_experts { FeedForward::Experts } else { FeedForward::Dense };
        LayerParts { mixer: None, feed_forward: Some(feed_forward) }
    }

    fn mixer_in(&self, layer: u32) -> Mixer {
        let is_linear = |layers: &[u32]| layer < self.layers && layers.binary_search(&layer).is_ok();
        match &self.linear_attention {
            Some(linear) if is_linear(&linear.layers) => Mixer::Linear,
            _ => Mixer::Attention,
        }
    }

    /// Whether a layer, counted from 0, has experts. Layers behind the last one, which predict further tokens, are as that.
    pub fn has_experts_in(&self, layer: u32) -> bool {
        self.parts_of(layer).feed_forward == Some(FeedForward::Experts)
    }

    /// Whether a layer of the model has a feed-forward without experts.
    pub fn has_dense_layers(&self) -> bool {
        (0..self.layers).any(|layer| self.parts_of(layer).feed_forward == Some(FeedForward::Dense))
    }

    /// The linear attention that layers of the model in use have, if any has.
    pub fn linear_attention_in_use(&self) -> Option<&super::LinearAttention> {
        self.linear_attention.as_ref().filter(|linear| linear.layers.first().is_some_and(|first| *first < self.layers))
    }

    /// Mixers and feed-forwards in each layer: 2, or 1 where every layer is only one of them.
    pub fn blocks_per_layer(&self) -> u64 {
        match self.blocks {
            Blocks::Pairs => 2,
            Blocks::Single { .. } => 1,
        }
    }
}
