//! The supported architectures, and their properties that no field of config.json states.
//!
//! Sources: the configuration and modelling classes of Hugging Face transformers, one folder for each `model_type`.

/// Architectures whose config.json is understood, by `model_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Family {
    Llama,
    Mistral,
    Mixtral,
    Qwen2,
    Qwen2Moe,
    Qwen3,
    Qwen3Moe,
    DeepseekV3,
    Gpt2,
    GptNeox,
    GptOss,
}

/// Biases of a family's attention if the file does not state them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AttentionBias {
    /// On queries, keys and values.
    pub query_key_value: bool,
    /// On the output.
    pub output: bool,
    /// Why.
    pub why: &'static str,
}

impl Family {
    /// Every family, in the order in which they are listed to users.
    pub const ALL: [Family; 11] = [
        Family::Llama,
        Family::Mistral,
        Family::Mixtral,
        Family::Qwen2,
        Family::Qwen2Moe,
        Family::Qwen3,
        Family::Qwen3Moe,
        Family::DeepseekV3,
        Family::Gpt2,
        Family::GptNeox,
        Family::GptOss,
    ];

    /// The `model_type` of config.json.
    pub fn model_type(self) -> &'static str {
        match self {
            Family::Llama => "llama",
            Family::Mistral => "mistral",
            Family::Mixtral => "mixtral",
            Family::Qwen2 => "qwen2",
            Family::Qwen2Moe => "qwen2_moe",
            Family::Qwen3 => "qwen3",
            Family::Qwen3Moe => "qwen3_moe",
            Family::DeepseekV3 => "deepseek_v3",
            Family::Gpt2 => "gpt2",
            Family::GptNeox => "gpt_neox",
            Family::GptOss => "gpt_oss",
        }
    }

    /// Default of an absent `tie_word_embeddings`, from the family's configuration class.
    pub fn ties_embeddings_by_default(self) -> bool {
        self == Family::Gpt2
    }

    /// Three feed-forward matrices (gate, up, down) instead of two. A property of the architecture: `hidden_act` only names
    /// the function, and a gpt2 with `silu` still has two matrices.
    pub fn gated(self) -> bool {
        !matches!(self, Family::Gpt2 | Family::GptNeox)
    }

    /// Positions as a learned table, as GPT-2 and GPT-3 have them.
    pub fn has_learned_positions(self) -> bool {
        self == Family::Gpt2
    }

    /// Layer norms, of a weight and a bias, where later families have a weight only.
    pub fn has_norm_bias(self) -> bool {
        matches!(self, Family::Gpt2 | Family::GptNeox)
    }

    /// A norm on queries and keys, as wide as a head.
    pub fn has_query_key_norm(self) -> bool {
        matches!(self, Family::Qwen3 | Family::Qwen3Moe)
    }

    /// A learned number for each query head that takes attention away from all tokens (attention sink).
    pub fn has_attention_sinks(self) -> bool {
        self == Family::GptOss
    }

    /// Experts instead of dense feed-forward layers.
    pub fn has_experts(self) -> bool {
        matches!(self, Family::Mixtral | Family::Qwen2Moe | Family::Qwen3Moe | Family::DeepseekV3 | Family::GptOss)
    }

    /// An inner width that is null or absent is four times the hidden width: GPT-2's own rule (`n_inner`).
    pub(super) fn widens_four_times(self) -> bool {
        self == Family::Gpt2
    }

    /// Width of a head where the file leaves it out, in families in which it does not follow from the hidden width.
    pub(super) fn fixed_head_dimension(self) -> Option<u64> {
        match self {
            Family::Qwen3 => Some(128),
            Family::GptOss => Some(64),
            _ => None,
        }
    }

    /// A bias on every feed-forward projection, those of experts and the router too.
    pub(super) fn has_feed_forward_bias(self) -> bool {
        matches!(self, Family::Gpt2 | Family::GptNeox | Family::GptOss)
    }

    pub(super) fn attention_bias(self) -> AttentionBias {
        let (query_key_value, output, why) = match self {
            Family::Gpt2 => (true, true, "gpt2 has biases everywhere; its files have no field for them"),
            Family::Qwen2 => (true, false, "qwen2 has biases on queries, keys and values, none on the output"),
            Family::Qwen2Moe => (true, false, "the default of qwen2_moe; none on the output"),
            Family::Mistral => (false, false, "mistral has none; its files have no field for them"),
            Family::Mixtral => (false, false, "mixtral has none; its files have no field for them"),
            Family::GptNeox => (true, true, "the default of gpt_neox; on the output too"),
            Family::GptOss => (true, true, "the default of gpt_oss; on the output too"),
            Family::Llama => (false, false, "the default of llama"),
            Family::Qwen3 => (false, false, "the default of qwen3"),
            Family::Qwen3Moe => (false, false, "the default of qwen3_moe"),
            Family::DeepseekV3 => (false, false, "the default of deepseek_v3"),
        };
        AttentionBias { query_key_value, output, why }
    }

    /// Whether a bias requested by the file applies to the output projection too.
    pub(super) fn output_follows_attention_bias(self) -> bool {
        !matches!(self, Family::Qwen2 | Family::Qwen2Moe)
    }
}
