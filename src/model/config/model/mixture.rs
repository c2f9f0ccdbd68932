//! Mixture of experts: its shape, and which layers have it. Reading the fields is in `read`.

use schemars::JsonSchema;
use serde::Serialize;

/// Mixture of experts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Mixture {
    /// Routed experts of a layer.
    pub experts: u64,
    /// Experts that each token goes to.
    pub experts_per_token: u64,
    /// Inner width of one routed expert.
    pub expert_feed_forward: u64,
    /// Experts that every token goes to.
    pub shared_experts: u64,
    /// Inner width of all experts that every token goes to, together.
    pub shared_feed_forward: u64,
    /// A gate, as wide as the residual stream, that weighs what the shared expert gives (Qwen2-MoE).
    pub shared_expert_gate: bool,
    /// Bias on the router.
    pub router_bias: bool,
    /// Layers at the front that have a dense feed-forward instead.
    pub first_dense_layers: u32,
    /// Every how many layers there are experts, 1 being every layer.
    pub layer_step: u32,
    /// Layer, counted from 0, that the steps are counted from; it has experts itself.
    pub layer_offset: u32,
    /// Further layers that have a dense feed-forward, in order.
    pub dense_layers: Vec<u32>,
    /// Groups that the router chooses among, and how many it keeps.
    pub router_groups: Option<(u64, u64)>,
}

impl Mixture {
    /// Whether a layer, counted from 0, has experts.
    pub fn is_in(&self, layer: u32) -> bool {
        layer >= self.first_dense_layers
            && layer % self.layer_step == self.layer_offset
            && self.dense_layers.binary_search(&layer).is_err()
    }

    /// The same experts in every layer.
    pub fn in_every_layer(self) -> Mixture {
        Mixture { first_dense_layers: 0, layer_step: 1, layer_offset: 0, dense_layers: Vec::new(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(change: impl FnOnce(&mut Mixture)) -> Vec<u32> {
        let mut mixture = Mixture {
            experts: 8,
            experts_per_token: 2,
            expert_feed_forward: 64,
            shared_experts: 0,
            shared_feed_forward: 0,
            shared_expert_gate: false,
            router_bias: false,
            first_dense_layers: 0,
            layer_step: 1,
            layer_offset: 0,
            dense_layers: Vec::new(),
            router_groups: None,
        };
        change(&mut mixture);
        (0..6).filter(|layer| mixture.is_in(*layer)).collect()
    }

    #[test]
    fn experts_are_in_the_layers_that_the_fields_say() {
        assert_eq!(layers(|_| ()), [0, 1, 2, 3, 4, 5]);
        assert_eq!(layers(|mixture| mixture.first_dense_layers = 3), [3, 4, 5]);
        assert_eq!(layers(|mixture| mixture.dense_layers = vec![1, 4]), [0, 2, 3, 5]);
        assert_eq!(layers(|mixture| mixture.layer_step = 2), [0, 2, 4]);
        assert_eq!(layers(|mixture| (mixture.layer_step, mixture.layer_offset) = (2, 1)), [1, 3, 5]);
        assert_eq!(layers(|mixture| (mixture.layer_step, mixture.first_dense_layers) = (3, 1)), [3]);
    }
}
