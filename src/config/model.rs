//! A language model's shape, as its own config.json says it.
//!
//! Reading the file is in `model_reader`, counting parameters in `model_parameters`.

use crate::element::ElementType;

/// The shape of a decoder-only transformer, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Name of the preset or of the file's folder.
    pub name: String,
    /// Which architecture the fields describe.
    pub family: Family,
    /// Transformer layers, as used; see `overrides` where the file says otherwise.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Inner width of a dense feed-forward layer.
    pub feed_forward: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Width of one query or key head (with latent attention: without and with rotation together).
    pub head_dimension: u64,
    /// Entries of the vocabulary, not padded.
    pub vocabulary: u64,
    /// Longest sequence that the file allows.
    pub maximum_positions: u64,
    /// Whether the output projection shares the word embedding.
    pub tied_embeddings: bool,
    /// Bias on the query, key and value projections.
    pub query_key_value_bias: bool,
    /// Bias on the attention's output projection.
    pub attention_output_bias: bool,
    /// Bias on the feed-forward projections.
    pub feed_forward_bias: bool,
    /// Type that the weights were published in, where the file says it.
    pub element: Option<ElementType>,
    /// Experts, where the feed-forward layers have them.
    pub mixture: Option<Mixture>,
    /// Low-rank attention, where the model has it.
    pub latent_attention: Option<LatentAttention>,
    /// What a suite changed, such as `num_hidden_layers 2 of 32`; part of the name that is shown.
    pub overrides: Vec<String>,
}

/// Architectures whose config.json is understood, by `model_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Family {
    Llama,
    Mistral,
    Mixtral,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    DeepseekV3,
    Gpt2,
}

/// Mixture of experts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mixture {
    /// Routed experts of a layer.
    pub experts: u64,
    /// Experts that each token goes to.
    pub experts_per_token: u64,
    /// Inner width of one routed expert.
    pub expert_feed_forward: u64,
    /// Experts that every token goes to, of the same inner width.
    pub shared_experts: u64,
    /// Layers at the front that have a dense feed-forward instead.
    pub first_dense_layers: u32,
    /// Every how many layers there are experts, 1 being every layer.
    pub layer_step: u32,
    /// Further layers that have a dense feed-forward.
    pub dense_layers: Vec<u32>,
    /// Groups that the router chooses among, and how many it keeps.
    pub router_groups: Option<(u64, u64)>,
}

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatentAttention {
    /// Rank of the query's compression; `None` where queries are not compressed.
    pub query_rank: Option<u64>,
    /// Rank of the compression of keys and values.
    pub kv_rank: u64,
    /// Width of a head's part without rotation.
    pub plain_dimension: u64,
    /// Width of a head's rotated part.
    pub rotary_dimension: u64,
    /// Width of a value head.
    pub value_dimension: u64,
}

impl Family {
    /// Every family, in the order in which they are listed to users.
    pub const ALL: [Family; 8] = [
        Family::Llama,
        Family::Mistral,
        Family::Mixtral,
        Family::Qwen2,
        Family::Qwen3,
        Family::Qwen3Moe,
        Family::DeepseekV3,
        Family::Gpt2,
    ];

    /// The `model_type` of config.json.
    pub fn model_type(self) -> &'static str {
        match self {
            Family::Llama => "llama",
            Family::Mistral => "mistral",
            Family::Mixtral => "mixtral",
            Family::Qwen2 => "qwen2",
            Family::Qwen3 => "qwen3",
            Family::Qwen3Moe => "qwen3_moe",
            Family::DeepseekV3 => "deepseek_v3",
            Family::Gpt2 => "gpt2",
        }
    }

    /// What an absent `tie_word_embeddings` means: the default of the family's own configuration class.
    pub fn ties_embeddings_by_default(self) -> bool {
        self == Family::Gpt2
    }

    /// Three feed-forward matrices (gate, up, down) instead of two. A property of the architecture: config.json only
    /// names the activation (`silu` in all gated families here).
    pub fn gated(self) -> bool {
        self != Family::Gpt2
    }

    /// Layer norms with a bias, and positions as a learned table, as GPT-2 and GPT-3 have them.
    pub fn has_learned_positions(self) -> bool {
        self == Family::Gpt2
    }

    /// A norm on queries and keys, as wide as a head.
    pub fn has_query_key_norm(self) -> bool {
        matches!(self, Family::Qwen3 | Family::Qwen3Moe)
    }

    /// Experts instead of dense feed-forward layers.
    pub fn has_experts(self) -> bool {
        matches!(self, Family::Mixtral | Family::Qwen3Moe | Family::DeepseekV3)
    }
}

impl Model {
    /// The name with everything that a suite changed: `llama-3-8b (num_hidden_layers 2 of 32)`.
    pub fn shown_name(&self) -> String {
        match self.overrides.as_slice() {
            [] => self.name.clone(),
            overrides => format!("{} ({})", self.name, overrides.join(", ")),
        }
    }

    /// Uses only the first `layers` layers, and says so in the name.
    ///
    /// # Errors
    /// What would be accepted, where the model has fewer.
    pub fn keep_layers(&mut self, layers: u32) -> Result<(), String> {
        if layers > self.layers {
            return Err(format!("found {layers}; accepted: 1 to {}, the layers of {}", self.layers, self.name));
        }
        if layers < self.layers {
            self.overrides.push(format!("num_hidden_layers {layers} of {}", self.layers));
            self.layers = layers;
        }
        Ok(())
    }

    /// Whether a layer, counted from 0, has experts.
    pub fn has_experts_in(&self, layer: u32) -> bool {
        self.mixture.as_ref().is_some_and(|mixture| {
            layer >= mixture.first_dense_layers
                && (layer + 1).is_multiple_of(mixture.layer_step)
                && !mixture.dense_layers.contains(&layer)
        })
    }
}
