//! Which parts each layer of a model has. Layers of hybrid models differ in what mixes their tokens.

use super::{Blocks, FeedForward, LayerParts, LinearAttention, Mixer, Model};

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
        match &self.attention.linear {
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
    pub fn linear_attention_in_use(&self) -> Option<&LinearAttention> {
        self.attention.linear.as_ref().filter(|linear| linear.layers.first().is_some_and(|first| *first < self.layers))
    }

    /// Mixers and feed-forwards in each layer: 2, or 1 where every layer is only one of them.
    pub fn blocks_per_layer(&self) -> u64 {
        match self.blocks {
            Blocks::Pairs => 2,
            Blocks::Single { .. } => 1,
        }
    }
}
