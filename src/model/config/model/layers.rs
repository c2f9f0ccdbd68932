//! What a layer can consist of: what mixes its tokens, and which feed-forward it has. Which layer has what is in `layer_parts`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// Mixers and feed-forwards of the layer: each is added to the residual stream, after its own norm or a shared one.
    pub fn count(self) -> u64 {
        u64::from(self.mixer.is_some()) + u64::from(self.feed_forward.is_some())
    }
}

// Layers that keep a state of fixed size in place of keys and values: gated DeltaNet and Mamba-2, their parameters and states.
//
// Both are linear attention (arXiv 2405.21060 section 5: Mamba-2's C, B and X are queries, keys and values): of G heads of queries and of
// keys, each d_k wide, and H heads of values, each d_v wide, H a multiple of G. Gated DeltaNet: arXiv 2412.06464; transformers,
// `models/qwen3_next`, `Qwen3NextGatedDeltaNet`. Mamba-2: arXiv 2405.21060; transformers, `models/nemotron_h`, `NemotronHMamba2Mixer`.
//
// Tensor parallelism divides them by heads (Megatron-LM core/ssm/gated_delta_net/common.py, core/ssm/mamba_mixer.py; vLLM
// model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py, mamba_mixer2.py): input projection, convolution and numbers of each head are
// column-parallel, the output projection is row-parallel.

/// How the state follows from token to token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinearRule {
    /// The state forgets, and what it has under a key is replaced (arXiv 2412.06464).
    GatedDelta,
    /// The state forgets, and values are added (Mamba-2, arXiv 2405.21060).
    StateSpace,
}

impl LinearRule {
    /// The field of config.json that states the heads of keys.
    pub fn key_heads_field(self) -> &'static str {
        match self {
            LinearRule::GatedDelta => "linear_num_key_heads",
            LinearRule::StateSpace => "n_groups",
        }
    }

    /// The field of config.json that states the heads of values.
    pub fn value_heads_field(self) -> &'static str {
        match self {
            LinearRule::GatedDelta => "linear_num_value_heads",
            LinearRule::StateSpace => "mamba_num_heads",
        }
    }

    /// The name of the mixer.
    pub fn name(self) -> &'static str {
        match self {
            LinearRule::GatedDelta => "gated DeltaNet",
            LinearRule::StateSpace => "Mamba-2",
        }
    }
}

/// Linear attention, and which layers have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LinearAttention {
    /// How the state follows from token to token.
    pub rule: LinearRule,
    /// Heads of queries, and as many of keys; the groups of Mamba-2.
    pub key_heads: u64,
    /// Width of a head of queries or keys; the state of Mamba-2.
    pub key_dimension: u64,
    /// Heads of values, each with its own state.
    pub value_heads: u64,
    /// Width of a head of values.
    pub value_dimension: u64,
    /// Tokens that the convolution in front of queries, keys and values spans.
    pub convolution_tokens: u64,
    /// Bias on the convolution.
    pub convolution_bias: bool,
    /// Bias on the projections.
    pub projection_bias: bool,
    /// Tokens of a chunk: within a chunk all are compared with all, between chunks the state is passed on.
    pub chunk_tokens: u64,
    /// The layers that have it, counted from 0, in order.
    pub layers: Vec<u32>,
}

/// The parameters of one layer's linear attention on a rank, part by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinearAttentionParameters {
    /// Weight and bias of the projection to queries, keys, values, their gates, and the numbers of each head.
    pub input: [u64; 2],
    /// Weight and bias of the convolution, one filter for each channel.
    pub convolution: [u64; 2],
    /// Numbers learned for each head of values, one tensor each.
    pub of_heads: [u64; 3],
    /// The norm in front of the output projection.
    pub norm: u64,
    /// Weight and bias of the output projection.
    pub output: [u64; 2],
}

impl LinearAttentionParameters {
    /// All together.
    pub fn total(&self) -> u64 {
        let pairs = [self.input, self.convolution, self.output];
        pairs.iter().flatten().chain(&self.of_heads).sum::<u64>() + self.norm
    }
}

impl LinearAttention {
    /// Width of all heads of queries, or of keys, on one of `tensor_parallel` ranks: G d_k / t.
    pub fn key_width(&self, tensor_parallel: u64) -> u64 {
        self.key_heads / tensor_parallel * self.key_dimension
    }

    /// Width of all heads of values on one of `tensor_parallel` ranks: H d_v / t.
    pub fn value_width(&self, tensor_parallel: u64) -> u64 {
        self.value_heads / tensor_parallel * self.value_dimension
    }

    /// Channels of the convolution: queries, keys and values.
    pub fn convolution_width(&self, tensor_parallel: u64) -> u64 {
        2 * self.key_width(tensor_parallel) + self.value_width(tensor_parallel)
    }

    /// Output of the input projection: what the convolution takes, a gate as wide as the values, and for each head of values how much
    /// it forgets, with the delta rule also how much it replaces.
    pub fn input_width(&self, tensor_parallel: u64) -> u64 {
        let of_each_head = match self.rule {
            LinearRule::GatedDelta => 2,
            LinearRule::StateSpace => 1,
        };
        let of_heads = of_each_head * (self.value_heads / tensor_parallel);
        self.convolution_width(tensor_parallel) + self.value_width(tensor_parallel) + of_heads
    }

    /// Numbers that one request's state has on one of `tensor_parallel` ranks, however long its context: H d_k d_v / t, and the inputs
    /// of the last tokens that the convolution still needs (vLLM model_executor/layers/mamba/mamba_utils.py
    /// `MambaStateShapeCalculator`).
    pub fn state_elements(&self, tensor_parallel: u64) -> u64 {
        let convolved = (self.convolution_tokens - 1) * self.convolution_width(tensor_parallel);
        self.value_width(tensor_parallel) * self.key_dimension + convolved
    }

    /// The parameters of one layer on one of `tensor_parallel` ranks, in a model of this hidden width.
    pub fn parameters(&self, hidden: u64, tensor_parallel: u64) -> LinearAttentionParameters {
        let t = tensor_parallel;
        let (input, channels, heads) = (self.input_width(t), self.convolution_width(t), self.value_heads / t);
        let bias = |there: bool, width: u64| if there { width } else { 0 };
        // A bias of time steps and a rate of forgetting; Mamba-2 also adds the values as they are, weighed by head (D).
        let skipped = match self.rule {
            LinearRule::GatedDelta => 0,
            LinearRule::StateSpace => heads,
        };
        LinearAttentionParameters {
            input: [hidden * input, bias(self.projection_bias, input)],
            convolution: [channels * self.convolution_tokens, bias(self.convolution_bias, channels)],
            of_heads: [heads, heads, skipped],
            norm: self.norm_parameters(t),
            output: [self.value_width(t) * hidden, bias(self.projection_bias, hidden)],
        }
    }

    /// The norm in front of the output projection: as wide as a head and the same for all, or over the values of all heads.
    fn norm_parameters(&self, tensor_parallel: u64) -> u64 {
        match self.rule {
            LinearRule::GatedDelta => self.value_dimension,
            LinearRule::StateSpace => self.value_width(tensor_parallel),
        }
    }

    /// Of the norm in front of the output projection, what every rank of tp holds whole.
    pub fn replicated_norm_parameters(&self) -> u64 {
        match self.rule {
            LinearRule::GatedDelta => self.value_dimension,
            LinearRule::StateSpace => 0,
        }
    }
}

// Mixture of experts: its shape, and which layers have it. Reading the fields is in `parameters`.

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
    /// Width in which the routed experts work, between two projections, where it is not that of the residual stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latent_width: Option<u64>,
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
            latent_width: None,
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
