//! What is true of an architecture and stated by no field of config.json, or only where it differs from the class's default.
//!
//! Sources: the configuration and modelling classes of Hugging Face transformers, one folder for each `model_type`; Kimi-K2's are
//! DeepSeek-V3's. A new family is a row here and a member of `Family`.

use super::LinearRule;
use schemars::JsonSchema;
use serde::Serialize;

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueryKeyNorm {
    /// No norms.
    None,
    /// As wide as a head, the same for all heads.
    EachHead,
    /// As wide as all heads together.
    AllHeads,
}

/// The properties of a family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub model_type: &'static str,
    /// Default of an absent `tie_word_embeddings`.
    pub ties_embeddings: bool,
    pub feed_forward: FeedForwardFacts,
    pub learned_positions: bool,
    /// Queries and keys are rotated by their position.
    pub rotary_positions: bool,
    pub norms: NormFacts,
    pub query_key_norm: QueryKeyNorm,
    /// A gate as wide as the queries weighs what attention gives.
    pub attention_gate: bool,
    /// The rule of linear attention, in families whose layers have it in place of attention.
    pub linear_attention: Option<LinearRule>,
    /// Each layer is either a mixer of tokens or a feed-forward.
    pub single_blocks: bool,
    /// A learned number for each query head that takes attention away from all tokens.
    pub attention_sinks: bool,
    pub experts: Option<ExpertFacts>,
    /// Width of a head where the file leaves it out and it does not follow from the hidden width.
    pub head_dimension: Option<u64>,
    pub attention_bias: AttentionBias,
    /// One norm feeds attention and feed-forward, which are added together, whether a field says so or not.
    pub parallel_residual: bool,
    /// Every how many layers attend to everything, where the file has a window and no `layer_types`.
    pub full_attention_step: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FeedForwardFacts {
    /// Three matrices instead of two.
    pub gated: bool,
    /// An inner width that is null or absent is four times the hidden width (`n_inner`).
    pub widens_four_times: bool,
    /// A bias on every projection, those of experts and the router too.
    pub bias: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NormFacts {
    /// A weight and a bias, where most have a weight only.
    pub bias: bool,
    /// How many are as wide as the residual stream in each layer.
    pub per_layer: u64,
}

/// Biases of attention if the file does not state them.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttentionBias {
    /// On queries, keys and values.
    pub query_key_value: bool,
    /// On the output.
    pub output: bool,
    /// Whether a bias requested by the file applies to the output projection too.
    pub output_follows: bool,
    /// Why; where nothing is said it is the default of the class.
    pub why: Option<&'static str>,
}

/// Experts of a family.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpertFacts {
    /// The file's one inner width is that of the experts.
    pub of_feed_forward_width: bool,
    /// Default of an absent number of shared experts; `None` where the field is needed or there are none.
    pub shared: Option<u64>,
    /// Default of an absent number of dense layers at the front.
    pub first_dense: u64,
    /// A gate that weighs what the shared expert gives.
    pub shared_gate: bool,
}

const NO_BIAS: AttentionBias = AttentionBias { query_key_value: false, output: false, output_follows: true, why: None };
const ALL_BIASED: AttentionBias = AttentionBias { query_key_value: true, output: true, ..NO_BIAS };
const GATED: FeedForwardFacts = FeedForwardFacts { gated: true, widens_four_times: false, bias: false };
const TWO_NORMS: NormFacts = NormFacts { bias: false, per_layer: 2 };
const EXPERTS: ExpertFacts =
    ExpertFacts { of_feed_forward_width: false, shared: None, first_dense: 0, shared_gate: false };
const EXPERTS_ALONE: Option<ExpertFacts> = Some(ExpertFacts { of_feed_forward_width: true, ..EXPERTS });

const LLAMA: Facts = Facts {
    model_type: "llama",
    ties_embeddings: false,
    feed_forward: GATED,
    learned_positions: false,
    rotary_positions: true,
    norms: TWO_NORMS,
    query_key_norm: QueryKeyNorm::None,
    attention_gate: false,
    linear_attention: None,
    single_blocks: false,
    attention_sinks: false,
    experts: None,
    head_dimension: None,
    parallel_residual: false,
    attention_bias: NO_BIAS,
    full_attention_step: None,
};

const QWEN2: Facts = Facts {
    model_type: "qwen2",
    attention_bias: AttentionBias {
        query_key_value: true,
        output: false,
        output_follows: false,
        why: Some("qwen2 has biases on queries, keys and values, none on the output"),
    },
    ..LLAMA
};

const QWEN3: Facts =
    Facts { model_type: "qwen3", query_key_norm: QueryKeyNorm::EachHead, head_dimension: Some(128), ..LLAMA };

const DEEPSEEK_V3: Facts = Facts {
    model_type: "deepseek_v3",
    experts: Some(ExpertFacts { shared: Some(1), first_dense: 3, ..EXPERTS }),
    ..LLAMA
};

const fn facts(family: Family) -> Facts {
    match family {
        Family::Llama => LLAMA,
        Family::Llama4 => Facts {
            model_type: "llama4",
            head_dimension: Some(128),
            experts: EXPERTS_ALONE,
            full_attention_step: Some(4),
            ..LLAMA
        },
        Family::Mistral => Facts {
            model_type: "mistral",
            attention_bias: AttentionBias {
                why: Some("mistral has none; its files have no field for them"),
                ..NO_BIAS
            },
            ..LLAMA
        },
        Family::Mixtral => Facts {
            model_type: "mixtral",
            experts: EXPERTS_ALONE,
            attention_bias: AttentionBias {
                why: Some("mixtral has none; its files have no field for them"),
                ..NO_BIAS
            },
            ..LLAMA
        },
        Family::Qwen2 => QWEN2,
        Family::Qwen25Vl => Facts { model_type: "qwen2_5_vl", ..QWEN2 },
        Family::Qwen2Moe => Facts {
            model_type: "qwen2_moe",
            experts: Some(ExpertFacts { shared_gate: true, ..EXPERTS }),
            attention_bias: AttentionBias {
                why: Some("the default of qwen2_moe; none on the output"),
                ..QWEN2.attention_bias
            },
            ..LLAMA
        },
        Family::Qwen3 => QWEN3,
        Family::Qwen3Vl => Facts { model_type: "qwen3_vl", ..QWEN3 },
        Family::Qwen3Moe => Facts { model_type: "qwen3_moe", experts: Some(EXPERTS), head_dimension: None, ..QWEN3 },
        Family::Qwen3VlMoe => {
            Facts { model_type: "qwen3_vl_moe", experts: Some(EXPERTS), head_dimension: None, ..QWEN3 }
        }
        Family::Qwen3Next => Facts {
            model_type: "qwen3_next",
            attention_gate: true,
            linear_attention: Some(LinearRule::GatedDelta),
            experts: Some(ExpertFacts { shared_gate: true, ..EXPERTS }),
            head_dimension: Some(256),
            ..QWEN3
        },
        Family::DeepseekV2 => {
            Facts { model_type: "deepseek_v2", experts: Some(ExpertFacts { shared: Some(2), ..EXPERTS }), ..LLAMA }
        }
        Family::DeepseekV3 => DEEPSEEK_V3,
        Family::DeepseekV32 => Facts { model_type: "deepseek_v32", ..DEEPSEEK_V3 },
        Family::KimiK2 => Facts { model_type: "kimi_k2", ..DEEPSEEK_V3 },
        Family::Glm4Moe => Facts {
            model_type: "glm4_moe",
            experts: Some(ExpertFacts { shared: Some(1), first_dense: 1, ..EXPERTS }),
            attention_bias: AttentionBias { output_follows: false, ..NO_BIAS },
            ..LLAMA
        },
        Family::MinimaxM2 => Facts {
            model_type: "minimax_m2",
            query_key_norm: QueryKeyNorm::AllHeads,
            head_dimension: Some(128),
            experts: EXPERTS_ALONE,
            attention_bias: AttentionBias {
                why: Some("minimax_m2 has none; its files have no field for them"),
                ..NO_BIAS
            },
            ..LLAMA
        },
        Family::Gpt2 => Facts {
            model_type: "gpt2",
            ties_embeddings: true,
            feed_forward: FeedForwardFacts { gated: false, widens_four_times: true, bias: true },
            learned_positions: true,
            rotary_positions: false,
            norms: NormFacts { bias: true, ..TWO_NORMS },
            attention_bias: AttentionBias {
                why: Some("gpt2 has biases everywhere; its files have no field for them"),
                ..ALL_BIASED
            },
            ..LLAMA
        },
        Family::GptNeox => Facts {
            model_type: "gpt_neox",
            feed_forward: FeedForwardFacts { gated: false, bias: true, ..GATED },
            norms: NormFacts { bias: true, ..TWO_NORMS },
            attention_bias: AttentionBias { why: Some("the default of gpt_neox; on the output too"), ..ALL_BIASED },
            ..LLAMA
        },
        Family::GptOss => Facts {
            model_type: "gpt_oss",
            attention_sinks: true,
            experts: EXPERTS_ALONE,
            head_dimension: Some(64),
            feed_forward: FeedForwardFacts { bias: true, ..GATED },
            attention_bias: AttentionBias { why: Some("the default of gpt_oss; on the output too"), ..ALL_BIASED },
            full_attention_step: Some(2),
            ..LLAMA
        },
        Family::Phi3 => Facts {
            model_type: "phi3",
            attention_bias: AttentionBias { why: Some("phi3 has none; its files have no field for them"), ..NO_BIAS },
            ..LLAMA
        },
        Family::Phimoe => Facts {
            model_type: "phimoe",
            norms: NormFacts { bias: true, ..TWO_NORMS },
            experts: EXPERTS_ALONE,
            ..LLAMA
        },
        Family::Gemma3 => Facts {
            model_type: "gemma3",
            ties_embeddings: true,
            norms: NormFacts { per_layer: 4, ..TWO_NORMS },
            query_key_norm: QueryKeyNorm::EachHead,
            head_dimension: Some(256),
            full_attention_step: Some(6),
            ..LLAMA
        },
        Family::Olmo3 => {
            Facts { model_type: "olmo3", query_key_norm: QueryKeyNorm::AllHeads, full_attention_step: Some(4), ..LLAMA }
        }
        Family::SeedOss => Facts {
            model_type: "seed_oss",
            head_dimension: Some(128),
            attention_bias: AttentionBias {
                query_key_value: true,
                output_follows: false,
                why: Some("the default of seed_oss; none on the output"),
                ..NO_BIAS
            },
            ..LLAMA
        },
        Family::Granite => Facts { model_type: "granite", ..LLAMA },
        Family::Cohere2 => Facts {
            model_type: "cohere2",
            ties_embeddings: true,
            norms: NormFacts { per_layer: 1, ..TWO_NORMS },
            parallel_residual: true,
            full_attention_step: Some(4),
            ..LLAMA
        },
        Family::NemotronH => Facts {
            model_type: "nemotron_h",
            feed_forward: FeedForwardFacts { gated: false, ..GATED },
            rotary_positions: false,
            norms: NormFacts { per_layer: 1, ..TWO_NORMS },
            linear_attention: Some(LinearRule::StateSpace),
            single_blocks: true,
            head_dimension: Some(128),
            attention_bias: AttentionBias { why: Some("nemotron_h has none, whatever its files say"), ..NO_BIAS },
            ..LLAMA
        },
    }
}

/// The facts of every family, by its place among them.
static FACTS: [Facts; Family::ALL.len()] = {
    let mut all = [LLAMA; Family::ALL.len()];
    let mut at = 0;
    while at < all.len() {
        all[Family::ALL[at] as usize] = facts(Family::ALL[at]);
        at += 1;
    }
    all
};

impl Family {
    /// What config.json does not state.
    pub(super) fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }

    /// The `model_type` of config.json; the text part of a multimodal model has `_text` behind it.
    pub fn model_type(self) -> &'static str {
        self.facts().model_type
    }

    /// Three feed-forward matrices (gate, up, down) instead of two. A property of the architecture: `hidden_act` only names
    /// the function, and a gpt2 with `silu` still has two matrices.
    pub fn gated(self) -> bool {
        self.facts().feed_forward.gated
    }

    /// Positions as a learned table, as GPT-2 and GPT-3 have them.
    pub fn has_learned_positions(self) -> bool {
        self.facts().learned_positions
    }

    /// Queries and keys are rotated by their position.
    pub fn has_rotary_positions(self) -> bool {
        self.facts().rotary_positions
    }

    /// Qwen's files state a window even if it is not in use, and have a separate rule for the layers that have it.
    pub(super) fn is_qwen(self) -> bool {
        matches!(
            self,
            Family::Qwen2
                | Family::Qwen2Moe
                | Family::Qwen25Vl
                | Family::Qwen3
                | Family::Qwen3Moe
                | Family::Qwen3Vl
                | Family::Qwen3VlMoe
        )
    }

    /// Multi-head latent attention (arXiv 2405.04434).
    pub(super) fn has_latent_attention(self) -> bool {
        matches!(self, Family::DeepseekV2 | Family::DeepseekV3 | Family::DeepseekV32 | Family::KimiK2)
    }
}

/// Architectures whose config.json is understood, by `model_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray)]
pub enum Family {
    Llama,
    Llama4,
    Mistral,
    Mixtral,
    Qwen2,
    Qwen2Moe,
    Qwen25Vl,
    Qwen3,
    Qwen3Moe,
    Qwen3Vl,
    Qwen3VlMoe,
    Qwen3Next,
    DeepseekV2,
    DeepseekV3,
    DeepseekV32,
    KimiK2,
    Glm4Moe,
    MinimaxM2,
    Gpt2,
    GptNeox,
    GptOss,
    Phi3,
    Phimoe,
    Gemma3,
    Olmo3,
    SeedOss,
    Granite,
    Cohere2,
    NemotronH,
}

impl Family {
    /// Whether vLLM's file of the model lets each rank of tp give a part of its tokens to experts of other replicas
    /// (`is_sequence_parallel` below model_executor/models); without it each gives all of them.
    pub fn parts_tokens_in_vllm(self) -> bool {
        !matches!(self, Family::Mixtral | Family::Glm4Moe | Family::MinimaxM2 | Family::Phimoe)
    }

    /// Every family, in the order in which they are listed to users.
    pub const ALL: [Family; 29] = *<Family as strum::VariantArray>::VARIANTS.as_array().expect("all of them");
}
