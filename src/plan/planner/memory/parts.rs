//! What a rank holds at the worst moment of a step, part by part, and the choices on which that depends.

use crate::planner::Kernels;
use commgauge_base::units::Bytes;
use commgauge_model::config::step::{ContextStyle, DataStyle, Framework, Recompute, TensorStyle};
use commgauge_model::config::{
    Family, LatentAttention, LayerParts, LinearAttention, LinearRule, Mixer, Model, QueryKeyNorm,
};
use commgauge_model::workload::step::TrainingStep;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What one rank holds at the worst moment of a step, each part for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryUse {
    /// Parameters in the type that the model computes in, or the rank's shard of them.
    pub parameters: Bytes,
    /// Gradients, accumulated over the micro-batches, or the rank's shard of them.
    pub gradients: Bytes,
    /// Adam's moments, and the fp32 copies that 16-bit training needs, or the rank's shard of them.
    pub optimizer: Bytes,
    /// Parameters of other ranks that are gathered for the moment, and their gradients before they are scattered.
    pub unsharded: Bytes,
    /// What the layers keep of every micro-batch in flight for its backward pass.
    pub activations: Bytes,
    /// What one layer needs while it is computed again for the backward pass.
    pub recomputation: Bytes,
    /// Gradients of the activations inside one layer while its backward pass runs.
    #[serde(default)]
    pub backward: Bytes,
    /// What embedding, last norm and head keep beside the logits, on the stages that have them.
    pub ends: Bytes,
    /// Logits in fp32, on the stage with the head.
    pub logits: Bytes,
    /// Buffers for messages between stages and for gathered sequences.
    pub buffers: Bytes,
}

impl MemoryUse {
    /// Every part with its name, in the order in which they are listed.
    pub fn parts(&self) -> [(&'static str, Bytes); 10] {
        [
            ("parameters", self.parameters),
            ("gradients", self.gradients),
            ("optimizer", self.optimizer),
            ("unsharded", self.unsharded),
            ("activations", self.activations),
            ("recomputation", self.recomputation),
            ("backward", self.backward),
            ("ends", self.ends),
            ("logits", self.logits),
            ("buffers", self.buffers),
        ]
    }

    /// All parts together.
    pub fn total(&self) -> Bytes {
        Bytes(self.parts().iter().fold(0, |sum, (_, bytes)| sum.saturating_add(bytes.0)))
    }

    /// Memory in use during the whole step: parameters, gradients and optimizer.
    pub fn state(&self) -> Bytes {
        Bytes(
            [self.parameters, self.gradients, self.optimizer].iter().fold(0, |sum, bytes| sum.saturating_add(bytes.0)),
        )
    }
}

/// Choices that a step does not contain and that its memory depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryChoices {
    /// How a layer is split into kernels, which keep what each of them needs for its backward pass.
    pub kernels: Kernels,
    /// The optimizer stores an fp32 copy of 16-bit gradients, as in Megatron-LM; ZeRO (arXiv 1910.02054) counts none.
    pub optimizer_gradient_copy: bool,
}

impl MemoryChoices {
    /// Layers in such kernels, and the optimizer of ZeRO.
    pub fn with(kernels: Kernels) -> MemoryChoices {
        MemoryChoices { kernels, optimizer_gradient_copy: false }
    }
}

impl Default for MemoryChoices {
    fn default() -> Self {
        MemoryChoices::with(Kernels::FUSED)
    }
}

/// Bytes of a number in fp32, as logits, sums of exponentials and scores of routers are.
pub(super) const FULL_PRECISION_BYTES: u128 = 4;

/// Converts a count of bytes, saturating at 64 bits.
pub(super) fn bytes(count: u128) -> Bytes {
    Bytes(u64::try_from(count).unwrap_or(u64::MAX))
}

// Activations that a layer, the ends and the loss store of a sample for its backward pass, after arXiv 2205.05198
// ("Reducing Activation Recomputation in Large Transformer Models", sections 4 and 5), and the same counting for
// grouped heads, gated feed-forwards, latent and linear attention and experts.
//
// Symbols: n = b s/c tokens of a micro-batch on a rank, E bytes of an element, t ranks of tp. GPT: a layer stores
// sbh(10 + 24/t + 5as/(ht)) bytes, sbh/t(34 + 5as/h) with sequence parallelism.

/// Bytes of the identifier of a token.
const TOKEN_BYTES: u128 = 8;

/// Bytes of a logit. Megatron-LM's loss works in place on logits in fp32 (core/tensor_parallel/cross_entropy.py). PyTorch's holds at
/// once, in its backward pass, the logarithms of their softmax and two gradients in fp32; and the logits, and the same in fp32, where
/// the caller holds them. torchtitan drops them before (train.py); [`held_logit_bytes`] has what its pipelines hold. Of a divided vocabulary its backward pass holds four in fp32: the logarithms, the gradient of the loss, their
/// exponentials and the sum of these two (torch/distributed/tensor/parallel/loss.py).
pub(super) fn logit_bytes(step: &TrainingStep) -> u128 {
    let element = u128::from(step.activation().size());
    match step.training.framework {
        None | Some(Framework::Megatron) => FULL_PRECISION_BYTES,
        Some(Framework::Torchtitan) => {
            let in_full = if step.layout.degrees.tp > 1 { 4 } else { 3 };
            in_full * FULL_PRECISION_BYTES
        }
        Some(_) if element < FULL_PRECISION_BYTES => element + 3 * FULL_PRECISION_BYTES,
        Some(_) => 3 * FULL_PRECISION_BYTES,
    }
}

/// Bytes of a logit that is held to the end of the step, with those of all other micro-batches: PyTorch's pipelines collect what the last
/// stage gives, to return it in one piece (torch/distributed/pipelining/stage.py `output_chunks`).
pub(super) fn held_logit_bytes(step: &TrainingStep) -> u128 {
    let collects = step.training.framework == Some(Framework::Torchtitan) && step.stages.count() > 1;
    if collects { u128::from(step.activation().size()) } else { 0 }
}

/// The sizes of which everything is made.
pub(super) struct Shape<'a> {
    pub(super) model: &'a Model,
    /// Of one sample on a rank: s/c, and n is b times as many.
    pub(super) tokens: u128,
    /// Keys that a query sees: s for any c, since a ring brings the others.
    pub(super) sequence: u128,
    pub(super) element: u128,
    /// The same of the stream of residuals.
    pub(super) residual: u128,
    pub(super) hidden: u128,
    pub(super) t: u128,
    /// Divisor of everything that tp does not divide: t with sequence parallelism.
    pub(super) by_sequence: u128,
    /// Divisor of the inputs of linear layers, as they are kept: t where they are gathered again for the backward pass.
    pub(super) by_input: u128,
    /// Gradients of one input that are there at once: linear layers that are modules of their own give one each, to be added up.
    pub(super) input_gradients: u128,
    pub(super) dropout: bool,
    pub(super) kernels: Kernels,
    pub(super) elementwise: Elementwise,
}

impl<'a> Shape<'a> {
    pub(super) fn of(step: &TrainingStep<'a>, kernels: Kernels) -> Shape<'a> {
        let t = u128::from(step.layout.degrees.tp);
        let model = step.model;
        let by_sequence = if step.training.tensor.sequence_parallel { t } else { 1 };
        let joins_linears = matches!(step.training.framework, None | Some(Framework::Megatron));
        let (element, casts) = (u128::from(step.activation().size()), casts_for_products(step));
        Shape {
            model,
            tokens: u128::from(step.training.sequence) / u128::from(step.layout.degrees.cp),
            sequence: u128::from(step.training.sequence),
            element,
            residual: if casts { FULL_PRECISION_BYTES } else { element },
            hidden: u128::from(model.hidden),
            t,
            by_sequence,
            by_input: if step.training.tensor.style == TensorStyle::DTensor { 1 } else { by_sequence },
            input_gradients: if joins_linears { 1 } else { 2 },
            dropout: model.family == Family::Gpt2,
            kernels,
            elementwise: Elementwise::of(model, element, kernels, casts),
        }
    }

    /// The gathered input, where inputs of linear layers are gathered again (Megatron-LM core/utils.py GlobalMemoryBuffer).
    pub(super) fn gathered(&self) -> u128 {
        if self.by_input > 1 { self.boundary() * self.by_sequence } else { 0 }
    }

    /// What a layer keeps, and what it needs while it is computed again.
    pub(super) fn of_layer(&self, step: &TrainingStep, layer: u32, recompute: Recompute) -> [u128; 2] {
        let (linear, matrices) = (self.linear(step, layer), self.attention_matrices(layer));
        match recompute {
            Recompute::None => [linear + matrices, 0],
            Recompute::Selective if step.training.framework == Some(Framework::Torchtitan) => {
                [self.every_second_product(step, layer), linear + matrices]
            }
            Recompute::Selective => [linear, matrices],
            Recompute::Full => [self.boundary(), linear + matrices],
        }
    }

    /// Gradients that the backward pass of a layer holds for a moment: of its output, and in the block that has most the gradients of
    /// its inner activations and of its whole input, which is scattered only when it is complete. The gradient of what an activation
    /// function gives is gone by then.
    pub(super) fn in_backward(&self, step: &TrainingStep, layer: u32) -> u128 {
        let parts = self.model.parts_of(layer);
        let mixer = self.mixer(step, parts) + self.whole_sequence(step, parts);
        let inner = match parts.feed_forward {
            None => 0,
            Some(_) if self.model.has_experts_in(layer) => self.feed_forward(step, layer),
            Some(_) => {
                let widths = if self.model.family.gated() { 2 } else { 1 };
                widths * self.element * self.tokens * u128::from(self.model.feed_forward) / self.t
            }
        };
        self.boundary() + mixer.max(inner) + self.input_gradients * self.element * self.tokens * self.hidden
    }

    /// Keys and values of the whole sequence, where context parallelism gathers them; PyTorch's adds up gradients of queries, keys and values
    /// in full precision beside them (torch/distributed/tensor/experimental/_attention.py `_AllGatherRotater`,
    /// `_templated_ring_attention_backward`), and torchtitan copies keys and values for each head of queries before
    /// (torchtitan/models/llama/model.py `repeat_kv`).
    fn whole_sequence(&self, step: &TrainingStep, parts: LayerParts) -> u128 {
        let style = step.training.context.style;
        let gathers = matches!(style, ContextStyle::AllGather | ContextStyle::PyTorch);
        if step.layout.degrees.cp < 2 || !gathers || parts.mixer != Some(Mixer::Attention) {
            return 0;
        }
        let m = self.model;
        let (heads, head) = (u128::from(m.attention.heads) / self.t, u128::from(m.attention.head_dimension));
        let copied = m.attention.latent.is_some() || step.training.framework == Some(Framework::Torchtitan);
        let kv_heads = if copied { heads } else { (u128::from(m.attention.kv_heads) / self.t).max(1) };
        let values = m.attention.latent.as_ref().map_or(head, |latent| u128::from(latent.value_dimension));
        let keys_and_values = kv_heads * (head + values);
        let gradients = match style {
            ContextStyle::PyTorch => FULL_PRECISION_BYTES * (heads * head + keys_and_values),
            _ => 0,
        };
        self.element * keys_and_values * self.sequence + gradients * self.tokens
    }

    /// The input of a layer: E n h, 2sbh.
    pub(super) fn boundary(&self) -> u128 {
        self.residual * self.tokens * self.hidden / self.by_sequence
    }

    /// All but the matrices of tokens by tokens.
    fn linear(&self, step: &TrainingStep, layer: u32) -> u128 {
        let parts = self.model.parts_of(layer);
        let feed_forward = if parts.feed_forward.is_some() { self.feed_forward(step, layer) } else { 0 };
        self.around_blocks(parts) + self.mixer(step, parts) + feed_forward
    }

    /// What attention of either kind keeps.
    fn mixer(&self, step: &TrainingStep, parts: LayerParts) -> u128 {
        match (parts.mixer, &self.model.attention.linear) {
            (Some(Mixer::Linear), Some(linear)) => self.linear_attention(step, linear),
            (Some(_), _) => self.attention(),
            (None, _) => 0,
        }
    }

    /// Inputs of the norms and of the blocks, 8sbh for two, and masks of dropout behind the blocks, 2sbh.
    fn around_blocks(&self, parts: LayerParts) -> u128 {
        let numbers = self.tokens * self.hidden / self.by_sequence;
        let norms = self.elementwise.norm_inputs(self.model) * self.elementwise.norm_bytes * numbers;
        let masks = if self.dropout { u128::from(parts.count()) * numbers } else { 0 };
        norms + masks + self.elementwise.block_inputs(self.model, parts) * self.block_input()
    }

    /// Inputs of the last norm and of the head.
    pub(super) fn output(&self) -> u128 {
        self.elementwise.norm_bytes * self.tokens * self.hidden / self.by_sequence + self.block_input()
    }

    /// The input of linear layers as it is kept: E n h, by t where it is gathered again.
    pub(super) fn block_input(&self) -> u128 {
        self.element * self.tokens * self.hidden / self.by_input
    }

    /// torchtitan's selective checkpointing by operations (`_apply_op_sac`): the input, the output of attention with its sums, and every
    /// second matrix product, of those in a row for queries, keys, values, output, gate, up and down. Experts are counted whole.
    fn every_second_product(&self, step: &TrainingStep, layer: u32) -> u128 {
        let m = self.model;
        let is_plain =
            m.attention.latent.is_none() && m.attention.linear.is_none() && !m.attention.gate && m.family.gated();
        if !is_plain || m.has_experts_in(layer) {
            return self.linear(step, layer);
        }
        let heads = u128::from(m.attention.heads) / self.t;
        let head = u128::from(m.attention.head_dimension);
        let values = head * (u128::from(m.attention.kv_heads) / self.t).max(1);
        let (queries, gate) = (head * heads, u128::from(m.feed_forward) / self.t);
        let kept = queries + values + queries + gate + self.hidden / self.by_sequence;
        self.boundary() + self.tokens * (self.element * kept + FULL_PRECISION_BYTES * heads)
    }

    /// Input and output of the activation function, with a gate beside it: 16sbh/t in GPT.
    fn feed_forward(&self, step: &TrainingStep, layer: u32) -> u128 {
        let widths = self.elementwise.inner_numbers;
        match &self.model.mixture {
            Some(mixture) if self.model.has_experts_in(layer) => {
                let etp = u128::from(step.layout.degrees.etp);
                // Tokens of the rank, each as often as it has experts; what others send is as much, where routing is even.
                let chosen = self.tokens * u128::from(mixture.experts_per_token) / self.by_sequence;
                let router = self.elementwise.router_input_bytes * self.hidden
                    + FULL_PRECISION_BYTES * u128::from(mixture.experts);
                let router = router * self.tokens / self.by_sequence;
                // The tokens sent to the experts and their outputs before weighting.
                let moved = self.element * chosen * self.hidden * (etp + 1);
                let inner = widths * self.element * chosen * u128::from(mixture.expert_feed_forward);
                let shared = widths * self.element * self.tokens * u128::from(mixture.shared_feed_forward) / self.t;
                router + moved + inner + shared
            }
            _ => widths * self.element * self.tokens * u128::from(self.model.feed_forward) / self.t,
        }
    }

    /// Before the embedding the tokens, behind it the mask of its dropout.
    pub(super) fn input(&self) -> u128 {
        let mask = if self.dropout { self.tokens * self.hidden / self.by_sequence } else { 0 };
        TOKEN_BYTES * self.tokens + mask
    }

    /// sV/t for a sample, each of so many bytes.
    pub(super) fn logits(&self, bytes: u128) -> u128 {
        let words = u128::from(self.model.padded_vocabulary(u64::try_from(self.t).unwrap_or(1)));
        bytes * self.tokens * words / self.t
    }
}

// What attention of each kind keeps for its backward pass.

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

// What norms, gates and activation functions keep for the backward pass of each number that goes through them.
//
// One kernel keeps its input. A chain of PyTorch's keeps what each of them needs: Hugging Face transformers 5.23,
// models/llama/modeling_llama.py `LlamaRMSNorm` and `LlamaMLP`, activations.py `NewGELUActivation`.

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

// What PyTorch's data parallelism has in full precision.

/// PyTorch's DDP alone: parameters are of the type of the gradients that it reduces, whatever they are computed in.
pub(super) fn is_ddp_of_pytorch(step: &TrainingStep) -> bool {
    let of_pytorch = matches!(step.training.framework, Some(Framework::Ddp | Framework::HuggingFace));
    of_pytorch && matches!(step.training.data.style, DataStyle::Ddp | DataStyle::Zero1)
}

/// Whether products alone are computed in 16 bits, from copies of their weights and inputs, as within `torch.autocast`: the stream of
/// residuals stays in the type of the parameters.
pub(super) fn casts_for_products(step: &TrainingStep) -> bool {
    is_ddp_of_pytorch(step) && step.activation().size() < step.training.data.gradient_element_type.size()
}
