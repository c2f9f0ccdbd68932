//! What norms, gates and activation functions keep for the backward pass of each number that goes through them.
//!
//! One kernel keeps its input. A chain of PyTorch's keeps what each of them needs: Hugging Face transformers 5.23,
//! models/llama/modeling_llama.py `LlamaRMSNorm` and `LlamaMLP`, activations.py `NewGELUActivation`.

use super::parts::FULL_PRECISION_BYTES;
use crate::planner::kernels::Kernels;
use commgauge_model::config::{Family, LayerParts, Model, QueryKeyNorm};

/// What is kept of a number, and how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elementwise {
    /// Bytes that a norm in front of or behind a block keeps of each number of its input.
    pub norm_bytes: u128,
    /// Bytes that a norm within attention keeps, of queries, of keys, or of what they are made of.
    pub inner_norm_bytes: u128,
    /// Numbers that a feed-forward keeps for each of its inner width.
    pub inner_numbers: u128,
    /// Bytes that a router keeps of each number of its input, beside that input.
    pub router_input_bytes: u128,
    /// Whether norms that read the same keep it once.
    shares_input: bool,
    /// Whether each product copies its input.
    copies_inputs: bool,
}

impl Elementwise {
    /// Of a model whose activations have so many bytes. `casts`: products alone are computed in that type, the rest in fp32.
    pub fn of(model: &Model, element: u128, kernels: Kernels, casts: bool) -> Elementwise {
        let norm_is_fused = kernels.has_one_for_norms_of(model);
        let norm_bytes = |element: u128| match model.family {
            _ if norm_is_fused => element,
            // What is without its mean twice, and the normalised input (`CohereLayerNorm`), in fp32.
            Family::Cohere2 => 3 * FULL_PRECISION_BYTES,
            // The input and the normalised input, which is multiplied by the weight, in fp32 (`Gemma3RMSNorm`, `Olmo3RMSNorm`).
            Family::Gemma3 | Family::Olmo3 => 2 * FULL_PRECISION_BYTES,
            // The latter in the type of the activations.
            _ => FULL_PRECISION_BYTES + element,
        };
        let inner_numbers = match (model.family.gated(), kernels.has_one_for_activations_of(model)) {
            // Input of the activation function, the other input of the product, and the product.
            (true, true) => 3,
            // And what the activation function gave.
            (true, false) => 4,
            // Input and output.
            (false, true) => 2,
            // Input, half of it, the hyperbolic tangent, one more than that, and their product.
            (false, false) => 5,
        };
        let copies_input = !kernels.fused_elementwise && routes_in_full(model.family) && element < FULL_PRECISION_BYTES;
        Elementwise {
            norm_bytes: norm_bytes(if casts { FULL_PRECISION_BYTES } else { element }),
            inner_norm_bytes: norm_bytes(element),
            inner_numbers,
            router_input_bytes: if copies_input { FULL_PRECISION_BYTES } else { 0 },
            shares_input: norm_is_fused,
            copies_inputs: casts && !kernels.fused_elementwise,
        }
    }

    /// How many inputs of norms a layer keeps.
    pub fn norm_inputs(&self, model: &Model) -> u128 {
        let all = u128::from(model.norms_per_layer());
        if model.parallel_residual && self.shares_input { all.min(1) } else { all }
    }

    /// How many inputs of blocks a layer keeps: blocks behind one norm have one, unless each product copies it.
    pub fn block_inputs(&self, model: &Model, parts: LayerParts) -> u128 {
        if self.copies_inputs {
            let joined = joins_products(model.family);
            let of_attention = if joined { 1 } else { 3 };
            let of_feed_forward = if joined || !model.family.gated() { 1 } else { 2 };
            return u128::from(parts.mixer.is_some()) * of_attention
                + u128::from(parts.feed_forward.is_some()) * of_feed_forward;
        }
        let shared = model.parallel_residual && model.norms_per_layer() == 1;
        if shared { 1 } else { u128::from(parts.count()) }
    }

    /// Bytes that the norms of queries and keys keep of each number of these.
    pub fn query_key_bytes(&self, model: &Model) -> u128 {
        if model.attention.query_key_norm == QueryKeyNorm::None { 0 } else { self.inner_norm_bytes }
    }
}

/// Whether one product gives queries, keys and values, and one both sides of a gate (transformers, of each family).
fn joins_products(family: Family) -> bool {
    matches!(family, Family::Gpt2 | Family::GptNeox | Family::Phi3)
}

/// Whether routers copy their input to fp32 (`DeepseekV3TopkRouter`, `Glm4MoeTopkRouter`).
fn routes_in_full(family: Family) -> bool {
    matches!(family, Family::DeepseekV2 | Family::DeepseekV3 | Family::DeepseekV32 | Family::KimiK2 | Family::Glm4Moe)
}
