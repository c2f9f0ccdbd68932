//! The supported architectures. What no field of config.json states of them is in `facts`.

use super::facts::{Facts, facts};

/// Architectures whose config.json is understood, by `model_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it all")]
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
}

impl Family {
    /// Every family, in the order in which they are listed to users.
    pub const ALL: [Family; 27] = [
        Family::Llama,
        Family::Llama4,
        Family::Mistral,
        Family::Mixtral,
        Family::Qwen2,
        Family::Qwen2Moe,
        Family::Qwen25Vl,
        Family::Qwen3,
        Family::Qwen3Moe,
        Family::Qwen3Vl,
        Family::Qwen3VlMoe,
        Family::DeepseekV2,
        Family::DeepseekV3,
        Family::DeepseekV32,
        Family::KimiK2,
        Family::Glm4Moe,
        Family::MinimaxM2,
        Family::Gpt2,
        Family::GptNeox,
        Family::GptOss,
        Family::Phi3,
        Family::Phimoe,
        Family::Gemma3,
        Family::Olmo3,
        Family::SeedOss,
        Family::Granite,
        Family::Cohere2,
    ];

    /// What config.json does not state.
    pub(super) fn facts(self) -> Facts {
        facts(self)
    }

    /// The `model_type` of config.json; the text part of a multimodal model has `_text` behind it.
    pub fn model_type(self) -> &'static str {
        self.facts().model_type
    }

    /// Three feed-forward matrices (gate, up, down) instead of two. A property of the architecture: `hidden_act` only names
    /// the function, and a gpt2 with `silu` still has two matrices.
    pub fn gated(self) -> bool {
        self.facts().gated
    }

    /// Positions as a learned table, as GPT-2 and GPT-3 have them.
    pub fn has_learned_positions(self) -> bool {
        self.facts().learned_positions
    }

    /// Qwen's files state a window even if it is not in use, and have a rule of their own for which layers have it.
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
