//! The supported architectures. What no field of config.json states of them is in `facts`.

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
