//! What attention of each kind keeps for its backward pass.

use super::activations::Shape;
use super::parts::FULL_PRECISION_BYTES;
use crate::planner::kernels::Kernels;
use commgauge_model::config::{Family, LatentAttention, LinearAttention, LinearRule, Mixer};
use commgauge_model::workload::step::TrainingStep;

impl Shape<'_> {
    /// Queries, keys, values and the input of the output projection: 8sbh/t in GPT.
    pub(super) fn attention(&self) -> u128 {
        let m = self.model;
        let heads = u128::from(m.attention.heads) / self.t;
        let head = u128::from(m.attention.head_dimension);
        let kv_heads = (u128::from(m.attention.kv_heads) / self.t).max(1);
        // Sums of exponentials of the fused kernel (arXiv 2205.14135, algorithm 2).
        let sums = if self.kernels.fused_attention { FULL_PRECISION_BYTES * heads } else { 0 };
        let width = match &m.attention.latent {
            Some(latent) => heads * latent_numbers_of_a_head(latent, head, self.kernels),
            None => head * self.heads_kept(heads, kv_heads),
        };
        let normed = match &m.attention.latent {
            Some(latent) => self.compressed_bytes(latent) / self.by_sequence,
            None => self.elementwise.query_key_bytes(m) * head * (heads + kv_heads),
        };
        // The gate, and what attention gave before it.
        let gate = if m.attention.gate { 2 * head * heads } else { 0 };
        self.tokens * (self.element * (width + gate) + normed + sums)
    }

    /// Heads of queries, keys and values, and of what attention gives. Kernel after kernel (transformers, `eager_attention_forward`), keys
    /// and values are copied for each head of queries. Where one product gives all three, values are a part of it, which keeps the queries
    /// and keys of before their rotation; and where a part of each head is rotated, the fused kernel gives its result in an order
    /// that the next product copies.
    fn heads_kept(&self, heads: u128, kv_heads: u128) -> u128 {
        if self.kernels.fused_elementwise {
            return 2 * (heads + kv_heads);
        }
        let is_fused = self.kernels.fused_attention;
        let copies = !is_fused && kv_heads < heads;
        let family = self.model.family;
        let joined = matches!(family, Family::GptNeox | Family::Phi3) && !copies;
        let rotates_a_part = matches!(family, Family::GptNeox | Family::Phi3 | Family::Glm4Moe);
        let before_rotation = if joined { heads + kv_heads } else { 0 };
        let result = if rotates_a_part && is_fused { 2 * heads } else { heads };
        let given = if copies { 2 * heads } else { 2 * kv_heads };
        heads + given + before_rotation + result
    }

    /// Of latent attention: the compressed queries, keys and values before and behind their norms, and the rotated part of the keys.
    fn compressed_bytes(&self, latent: &LatentAttention) -> u128 {
        let ranks = latent.query_rank.unwrap_or(0) + latent.kv_rank;
        u128::from(ranks) * (self.elementwise.inner_norm_bytes + self.element)
            + self.element * u128::from(latent.rotary_dimension)
    }

    /// Linear attention, with neither keys and values of a sequence nor matrices of tokens by tokens beyond a chunk.
    pub(super) fn linear_attention(&self, step: &TrainingStep, linear: &LinearAttention) -> u128 {
        let t = u64::try_from(self.t).unwrap_or(1);
        let [keys, values, input] = [linear.key_width(t), linear.value_width(t), linear.input_width(t)].map(u128::from);
        let heads = u128::from(linear.value_heads) / self.t;
        match linear.rule {
            // The output of the projection, the values behind the scan, behind the gate and behind the norm; the rest is computed again
            // (state-spaces/mamba ops/triton/ssd_combined.py MambaSplitConv1dScanCombinedFn; Megatron-LM core/ssm/mamba_mixer.py).
            LinearRule::StateSpace => self.tokens * self.element * (input + 3 * values),
            // The output of the projection; queries and keys behind their norms, as they are and copied for each head of values, and
            // the values; the solved equations of each chunk; the values behind the rule, behind the norm and behind the gate. Decays are
            // in full precision (fla ops/gated_delta_rule/chunk.py; Megatron-LM core/ssm/gated_delta_net/gdn.py).
            LinearRule::GatedDelta => {
                let copies = 2 * heads * u128::from(linear.key_dimension);
                let chunk = u128::from(linear.chunk_tokens.min(step.training.sequence));
                let width = input + 2 * keys + copies + values + chunk * heads + 3 * values;
                self.tokens * (self.element * width + FULL_PRECISION_BYTES * heads)
            }
        }
    }

    /// Softmax, the mask of its dropout and the output of dropout: 5as²b/t in GPT, softmax alone without dropout.
    pub(super) fn attention_matrices(&self, layer: u32) -> u128 {
        if self.kernels.fused_attention || self.model.parts_of(layer).mixer != Some(Mixer::Attention) {
            return 0;
        }
        let each = match (self.dropout, self.kernels.fused_elementwise) {
            // Softmax in the type of the residuals.
            (true, _) => self.residual + self.element + 1,
            (false, true) => self.element,
            // Softmax in fp32, and what it gives as the product takes it (transformers `eager_attention_forward`).
            (false, false) if self.element < FULL_PRECISION_BYTES => self.element + FULL_PRECISION_BYTES,
            (false, false) => self.element,
        };
        each * u128::from(self.model.attention.heads) / self.t * self.tokens * self.sequence
    }
}

/// Queries, keys, values and result of a head of latent attention. Kernel after kernel, values are a part of what the product gives,
/// which keeps the plain part of the keys besides.
fn latent_numbers_of_a_head(latent: &LatentAttention, head: u128, kernels: Kernels) -> u128 {
    let plain = if kernels.fused_elementwise { 0 } else { u128::from(latent.plain_dimension) };
    2 * (head + u128::from(latent.value_dimension)) + plain
}
