//! Memory of a rank at the peak of a step, part by part, and the choices on which it depends.

use crate::planner::Kernels;
use commgauge_base::units::Bytes;
use commgauge_model::config::step::RecomputeModule::*;
use commgauge_model::config::step::{ContextStyle, DataStyle, Framework, LoraModule, Recompute, TensorStyle};
use commgauge_model::config::{LatentAttention, LayerParts, LinearAttention, LinearRule, Mixer, Model, QueryKeyNorm};
use commgauge_model::workload::step::TrainingStep;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Memory of one rank at the peak of a step, part by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryUse {
    /// Parameters in the type of computing, or the rank's shard.
    pub parameters: Bytes,
    /// Gradients, accumulated over the micro-batches, or the rank's shard.
    pub gradients: Bytes,
    /// Adam's moments, and the fp32 copies that 16-bit training needs, or the rank's shard.
    pub optimizer: Bytes,
    /// Temporarily gathered parameters of other ranks, and their gradients before they are scattered.
    pub unsharded: Bytes,
    /// Activations stored by the layers for the backward pass of every micro-batch in flight.
    pub activations: Bytes,
    /// Activations of one layer while it is recomputed for the backward pass.
    pub recomputation: Bytes,
    /// Gradients of the activations inside one layer while its backward pass runs.
    #[serde(default)]
    pub backward: Bytes,
    /// Activations stored by embedding, last norm and head besides the logits, on their stages.
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
        sum(self.parts().map(|(_, bytes)| bytes))
    }

    /// Memory in use during the whole step: parameters, gradients and optimizer.
    pub fn state(&self) -> Bytes {
        sum([self.parameters, self.gradients, self.optimizer])
    }
}

fn sum(parts: impl IntoIterator<Item = Bytes>) -> Bytes {
    Bytes(parts.into_iter().fold(0, |sum, bytes| sum.saturating_add(bytes.0)))
}

/// Bytes of an fp32 number: logits, sums of exponentials and router scores.
pub(super) const FULL_PRECISION_BYTES: u128 = 4;

/// Converts a count of bytes, saturating at 64 bits.
pub(super) fn bytes(count: u128) -> Bytes {
    Bytes(u64::try_from(count).unwrap_or(u64::MAX))
}

// Activations that a layer, the ends and the loss store per sample for the backward pass, after arXiv 2205.05198 ("Reducing Activation
// Recomputation in Large Transformer Models", sections 4 and 5), and the same counting for grouped heads, gated feed-forwards, latent and
// linear attention and experts.
//
// Symbols: n = b s/c tokens of a micro-batch on a rank, E bytes of an element, t ranks of tp. GPT: a layer stores
// sbh(10 + 24/t + 5as/(ht)) bytes, sbh/t(34 + 5as/h) with sequence parallelism.

/// Bytes of a token id.
const TOKEN_BYTES: u128 = 8;

/// Bytes of a logit. Megatron-LM's loss works in place on logits in fp32 (core/tensor_parallel/cross_entropy.py). PyTorch's holds at once,
/// in its backward pass, the logarithms of their softmax and two gradients in fp32; plus the logits, and an fp32 copy of them, if the
/// caller holds them. torchtitan drops them before (train.py); [`held_logit_bytes`] counts those of its pipelines. With a divided
/// vocabulary its backward pass holds four in fp32: the logarithms, the gradient of the loss, their exponentials and the sum of these two
/// (torch/distributed/tensor/parallel/loss.py). Compiled, it holds the logits and their gradient (torchtitan/components/loss.py).
pub(super) fn logit_bytes(step: &TrainingStep, kernels: Kernels) -> u128 {
    let element = u128::from(step.activation().size());
    match step.training.framework {
        None | Some(Framework::Megatron) => FULL_PRECISION_BYTES,
        Some(Framework::Torchtitan) if step.layout.degrees.tp > 1 => 4 * FULL_PRECISION_BYTES,
        Some(Framework::Torchtitan) if kernels.fused_elementwise => 2 * element,
        Some(Framework::Torchtitan) => 3 * FULL_PRECISION_BYTES,
        Some(_) if element < FULL_PRECISION_BYTES => element + 3 * FULL_PRECISION_BYTES,
        Some(_) => 3 * FULL_PRECISION_BYTES,
    }
}

/// Bytes of a logit held to the end of the step, for all micro-batches: PyTorch's pipelines collect the outputs of the last stage to return
/// them in one piece (torch/distributed/pipelining/stage.py `output_chunks`).
pub(super) fn held_logit_bytes(step: &TrainingStep) -> u128 {
    let collects = step.training.framework == Some(Framework::Torchtitan) && step.stages.count() > 1;
    if collects { u128::from(step.activation().size()) } else { 0 }
}

/// The dimensions from which all sizes follow.
pub(super) struct Shape<'a> {
    pub(super) model: &'a Model,
    /// Tokens of one sample on a rank: s/c; n is b times as many.
    pub(super) tokens: u128,
    /// Keys that a query sees: s for any c, since a ring passes the others.
    pub(super) sequence: u128,
    pub(super) element: u128,
    /// Bytes of an element of the residual stream.
    pub(super) residual: u128,
    pub(super) hidden: u128,
    pub(super) t: u128,
    /// Divisor of everything that tp does not divide: t with sequence parallelism.
    pub(super) by_sequence: u128,
    /// Divisor of the stored inputs of linear layers: t if they are gathered again for the backward pass.
    pub(super) by_input: u128,
    /// Gradients of one input held at once: separate linear modules each produce one, which are then summed.
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
            dropout: model.family.transformers.as_gpt2,
            kernels,
            elementwise: Elementwise::of(step, element, kernels, casts),
        }
    }

    /// The gathered input, if inputs of linear layers are gathered again (Megatron-LM core/utils.py GlobalMemoryBuffer).
    pub(super) fn gathered(&self) -> u128 {
        if self.by_input > 1 { self.boundary() * self.by_sequence } else { 0 }
    }

    /// Activations that a layer stores, and those needed while it is recomputed.
    pub(super) fn of_layer(&self, step: &TrainingStep, layer: u32, recompute: Recompute) -> [u128; 2] {
        let (linear, matrices) = (self.linear(step, layer), self.attention_matrices(layer));
        match recompute {
            Recompute::None => [linear + matrices, 0],
            Recompute::Selective if step.training.framework == Some(Framework::Torchtitan) => {
                [self.every_second_product(step, layer), linear + matrices]
            }
            Recompute::Selective => {
                let repeated = self.repeated(step, layer);
                [linear + matrices - repeated, repeated]
            }
            Recompute::Full => [self.boundary(), linear + matrices],
        }
    }

    /// What selective recomputation drops of a layer's activations, and has again in its backward pass.
    fn repeated(&self, step: &TrainingStep, layer: u32) -> u128 {
        let when = |module, bytes: u128| if step.training.tensor.repeats(module) { bytes } else { 0 };
        let (m, parts) = (self.model, self.model.parts_of(layer));
        let has_experts = m.has_experts_in(layer);
        let of_latent = |latent: &LatentAttention| {
            let width = m.attention.heads * (2 * m.attention.head_dimension + latent.value_dimension);
            self.element * self.tokens * u128::from(width) / self.t
        };
        let latent = m.attention.latent.as_ref().filter(|_| parts.mixer == Some(Mixer::Attention));
        let of_feed_forward = match &m.mixture {
            _ if parts.feed_forward.is_none() => 0,
            Some(mixture) if has_experts && !step.training.tensor.repeats(Experts) => {
                let chosen = self.tokens * u128::from(mixture.experts_per_token) / self.by_sequence;
                let shared = self.elementwise.inner_numbers * self.tokens / self.t;
                when(ExpertActivation, self.element * chosen * u128::from(mixture.expert_feed_forward))
                    + when(SharedExperts, self.element * shared * u128::from(mixture.shared_feed_forward))
            }
            _ => when(if has_experts { Experts } else { FeedForward }, self.feed_forward(step, layer)),
        };
        when(CoreAttention, self.attention_matrices(layer))
            + when(Norms, self.elementwise.block_inputs(m, parts) * self.block_input())
            + when(LatentUp, latent.map_or(0, of_latent))
            + of_feed_forward
    }

    /// Gradients held temporarily by the backward pass of a layer: of its output, and in the largest block the gradients of its inner
    /// activations and of its whole input, which is scattered only when complete. The gradient of an activation function's output is freed
    /// by then.
    pub(super) fn in_backward(&self, step: &TrainingStep, layer: u32) -> u128 {
        let parts = self.model.parts_of(layer);
        let mixer = self.mixer(step, parts) + self.whole_sequence(step, parts);
        let inner = match parts.feed_forward {
            None => 0,
            Some(_) if self.model.has_experts_in(layer) => self.feed_forward(step, layer),
            Some(_) => {
                let widths = if self.model.family.gated { 2 } else { 1 };
                widths * self.element * self.tokens * u128::from(self.model.feed_forward) / self.t
            }
        };
        self.boundary() + mixer.max(inner) + self.input_gradients * self.element * self.tokens * self.hidden
    }

    /// Keys and values of the whole sequence, if context parallelism gathers them; PyTorch also accumulates gradients of queries, keys and
    /// values in full precision (torch/distributed/tensor/experimental/_attention.py `_AllGatherRotater`,
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

    /// Everything except the token-by-token matrices.
    fn linear(&self, step: &TrainingStep, layer: u32) -> u128 {
        let parts = self.model.parts_of(layer);
        let feed_forward = if parts.feed_forward.is_some() { self.feed_forward(step, layer) } else { 0 };
        self.around_blocks(parts) + self.mixer(step, parts) + feed_forward
    }

    /// Activations stored by attention of either kind.
    fn mixer(&self, step: &TrainingStep, parts: LayerParts) -> u128 {
        match (parts.mixer, &self.model.attention.linear) {
            (Some(Mixer::Linear), Some(linear)) => self.linear_attention(step, linear),
            (Some(_), _) => self.attention(),
            (None, _) => 0,
        }
    }

    /// Inputs of the norms and of the blocks, 8sbh for two, and dropout masks after the blocks, 2sbh.
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

    /// The stored input of linear layers: E n h, divided by t if it is gathered again.
    pub(super) fn block_input(&self) -> u128 {
        self.element * self.tokens * self.hidden / self.by_input
    }

    /// torchtitan's selective checkpointing by operations (`_apply_op_sac`): the input, the output of attention with its sums, and every
    /// second matrix product in the sequence queries, keys, values, output, gate, up and down. Experts are counted whole.
    fn every_second_product(&self, step: &TrainingStep, layer: u32) -> u128 {
        let m = self.model;
        let is_plain =
            m.attention.latent.is_none() && m.attention.linear.is_none() && !m.attention.gate && m.family.gated;
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

    /// Input and output of the activation function, plus a gate if any: 16sbh/t in GPT.
    fn feed_forward(&self, step: &TrainingStep, layer: u32) -> u128 {
        let widths = self.elementwise.inner_numbers;
        match &self.model.mixture {
            Some(mixture) if self.model.has_experts_in(layer) => {
                let etp = u128::from(step.layout.degrees.etp);
                // Tokens of the rank, once per expert; with even routing it receives as many.
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

    /// The tokens before the embedding, and its dropout mask after it.
    pub(super) fn input(&self) -> u128 {
        let mask = if self.dropout { self.tokens * self.hidden / self.by_sequence } else { 0 };
        TOKEN_BYTES * self.tokens + mask
    }

    /// sV/t per sample, with this many bytes each.
    pub(super) fn logits(&self, bytes: u128) -> u128 {
        let words = u128::from(self.model.padded_vocabulary(u64::try_from(self.t).unwrap_or(1)));
        bytes * self.tokens * words / self.t
    }
}

// Activations that each kind of attention stores for its backward pass.

impl Shape<'_> {
    /// Queries, keys, values and the input of the output projection: 8sbh/t in GPT.
    pub(super) fn attention(&self) -> u128 {
        let m = self.model;
        let heads = u128::from(m.attention.heads) / self.t;
        let head = u128::from(m.attention.head_dimension);
        let kv_heads = (u128::from(m.attention.kv_heads) / self.t).max(1);
        // Sums of exponentials of the fused kernel (arXiv 2205.14135, algorithm 2).
        let sums = if self.kernels.fuses_attention() { FULL_PRECISION_BYTES * heads } else { 0 };
        let width = match &m.attention.latent {
            Some(latent) => heads * latent_numbers_of_a_head(latent, head, self.kernels),
            None => head * self.heads_kept(heads, kv_heads),
        };
        let normed = match &m.attention.latent {
            Some(latent) => self.compressed_bytes(latent) / self.by_sequence,
            None => self.elementwise.query_key_bytes(m) * head * (heads + kv_heads),
        };
        // The gate, and the output of attention before it.
        let gate = if m.attention.gate { 2 * head * heads } else { 0 };
        self.tokens * (self.element * (width + gate) + normed + sums)
    }

    /// Heads of queries, keys and values, and of the output. With separate kernels (transformers, `eager_attention_forward`), keys and
    /// values are copied for each head of queries. If one product computes all three, values are a view of it, which keeps the queries and
    /// keys before rotation alive; if only a part of each head is rotated, the fused kernel's result has an order that the next product
    /// copies.
    fn heads_kept(&self, heads: u128, kv_heads: u128) -> u128 {
        if self.kernels.fused_elementwise {
            return 2 * (heads + kv_heads);
        }
        let is_fused = self.kernels.fuses_attention();
        let copies = !is_fused && kv_heads < heads;
        let in_transformers = self.model.family.transformers;
        let joined = in_transformers.joins_products && !in_transformers.as_gpt2 && !copies;
        let rotates_a_part = in_transformers.rotates_a_part;
        let before_rotation = if joined { heads + kv_heads } else { 0 };
        let result = if rotates_a_part && is_fused { 2 * heads } else { heads };
        let given = if copies { 2 * heads } else { 2 * kv_heads };
        heads + given + before_rotation + result
    }

    /// For latent attention: the compressed queries, keys and values before and after their norms, and the rotated part of the keys.
    fn compressed_bytes(&self, latent: &LatentAttention) -> u128 {
        let ranks = latent.query_rank.unwrap_or(0) + latent.kv_rank;
        u128::from(ranks) * (self.elementwise.inner_norm_bytes + self.element)
            + self.element * u128::from(latent.rotary_dimension)
    }

    /// Linear attention, without keys and values of the sequence or token-by-token matrices beyond a chunk.
    pub(super) fn linear_attention(&self, step: &TrainingStep, linear: &LinearAttention) -> u128 {
        let t = u64::try_from(self.t).unwrap_or(1);
        let [keys, values, input] = [linear.key_width(t), linear.value_width(t), linear.input_width(t)].map(u128::from);
        let heads = u128::from(linear.value_heads) / self.t;
        match linear.rule {
            // The output of the projection, the values after the scan, after the gate and after the norm; the rest is recomputed
            // (state-spaces/mamba ops/triton/ssd_combined.py MambaSplitConv1dScanCombinedFn; Megatron-LM core/ssm/mamba_mixer.py).
            LinearRule::StateSpace => self.tokens * self.element * (input + 3 * values),
            // The output of the projection; queries and keys after their norms, plain and copied for each head of values, and the values;
            // the solved equations of each chunk; the values after the rule, after the norm and after the gate. Decays are in full
            // precision (fla ops/gated_delta_rule/chunk.py; Megatron-LM core/ssm/gated_delta_net/gdn.py).
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
        if self.kernels.fuses_attention() || self.model.parts_of(layer).mixer != Some(Mixer::Attention) {
            return 0;
        }
        let each = match (self.dropout, self.kernels.fused_elementwise) {
            // Softmax in the type of the residuals.
            (true, _) => self.residual + self.element + 1,
            (false, true) => self.element,
            // Softmax in fp32, and its copy in the type of the product (transformers `eager_attention_forward`).
            (false, false) if self.element < FULL_PRECISION_BYTES => self.element + FULL_PRECISION_BYTES,
            (false, false) => self.element,
        };
        each * u128::from(self.model.attention.heads) / self.t * self.tokens * self.sequence
    }
}

/// Queries, keys, values and result of a head of latent attention. With separate kernels, values are a view of the product's output, which
/// also keeps the plain part of the keys alive.
fn latent_numbers_of_a_head(latent: &LatentAttention, head: u128, kernels: Kernels) -> u128 {
    let plain = if kernels.fused_elementwise { 0 } else { u128::from(latent.plain_dimension) };
    2 * (head + u128::from(latent.value_dimension)) + plain
}

// Bytes that norms, gates and activation functions store for the backward pass per number of their input.
//
// A fused kernel stores its input. A chain of PyTorch kernels stores what each of them needs: Hugging Face transformers 5.23,
// models/llama/modeling_llama.py `LlamaRMSNorm` and `LlamaMLP`, activations.py `NewGELUActivation`.

/// Stored bytes per number, by operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elementwise {
    /// Bytes that a norm before or after a block stores per number of its input.
    pub norm_bytes: u128,
    /// Bytes that a norm within attention stores, for queries, keys, or their compressed forms.
    pub inner_norm_bytes: u128,
    /// Numbers that a feed-forward stores per inner width.
    pub inner_numbers: u128,
    /// Bytes that a router stores per number of its input, in addition to that input.
    pub router_input_bytes: u128,
    /// Whether norms with the same input store it once.
    shares_input: bool,
    /// Whether each product copies its input.
    copies_inputs: bool,
    /// Whether weights or adapters need the input of a mixer, and of a feed-forward.
    keeps_inputs: [bool; 2],
}

impl Elementwise {
    /// For a step whose activations have this many bytes. `casts`: only products use that type, the rest fp32.
    pub fn of(step: &TrainingStep, element: u128, kernels: Kernels, casts: bool) -> Elementwise {
        let (model, trained) = (step.model, &step.training.data.trained);
        let norm_is_fused = kernels.has_one_for_norms_of(model);
        let norm_bytes = |element: u128| match model.family.transformers.norm_inputs_in_full {
            _ if norm_is_fused => element,
            // The input minus its mean twice, and the normalised input (`CohereLayerNorm`); the input and the normalised input, which is
            // multiplied by the weight (`Gemma3RMSNorm`, `Olmo3RMSNorm`).
            Some(inputs) => u128::from(inputs) * FULL_PRECISION_BYTES,
            // The latter in the type of the activations.
            None => FULL_PRECISION_BYTES + element,
        };
        let inner_numbers = match (model.family.gated, kernels.has_one_for_activations_of(model)) {
            // Input of the activation function, the other input of the product, and the product.
            (true, true) => 3,
            // And the output of the activation function.
            (true, false) => 4,
            // Input and output.
            (false, true) => 2,
            // Input, half of it, the hyperbolic tangent, one more than that, and their product.
            (false, false) => 5,
        };
        let copies_input =
            !kernels.fused_elementwise && model.family.transformers.routes_in_full && element < FULL_PRECISION_BYTES;
        Elementwise {
            norm_bytes: norm_bytes(if casts { FULL_PRECISION_BYTES } else { element }),
            inner_norm_bytes: norm_bytes(element),
            // The last of them is the input of a linear.
            inner_numbers: inner_numbers - u128::from(!trained.adapts(LoraModule::Fc2)),
            router_input_bytes: if copies_input { FULL_PRECISION_BYTES } else { 0 },
            shares_input: norm_is_fused,
            copies_inputs: casts && !kernels.fused_elementwise,
            keeps_inputs: [LoraModule::Qkv, LoraModule::Fc1].map(|linear| trained.adapts(linear)),
        }
    }

    /// Number of norm inputs that a layer stores.
    pub fn norm_inputs(&self, model: &Model) -> u128 {
        let all = u128::from(model.norms_per_layer());
        if model.parallel_residual && self.shares_input { all.min(1) } else { all }
    }

    /// Number of block inputs that a layer stores: blocks after one norm share one, unless each product copies it.
    pub fn block_inputs(&self, model: &Model, parts: LayerParts) -> u128 {
        let has = [parts.mixer.is_some(), parts.feed_forward.is_some()];
        let [mixer, feed_forward] = [0, 1].map(|part| u128::from(has[part] && self.keeps_inputs[part]));
        if self.copies_inputs {
            let joined = model.family.transformers.joins_products;
            let of_attention = if joined { 1 } else { 3 };
            let of_feed_forward = if joined || !model.family.gated { 1 } else { 2 };
            return mixer * of_attention + feed_forward * of_feed_forward;
        }
        let shared = model.parallel_residual && model.norms_per_layer() == 1;
        if shared { mixer.max(feed_forward) } else { mixer + feed_forward }
    }

    /// Bytes that the norms of queries and keys store per number.
    pub fn query_key_bytes(&self, model: &Model) -> u128 {
        if model.attention.query_key_norm == QueryKeyNorm::None { 0 } else { self.inner_norm_bytes }
    }
}

// What PyTorch's data parallelism keeps in full precision.

/// Only PyTorch's DDP: parameters have the type of the reduced gradients, whatever the type of computing.
pub(super) fn is_ddp_of_pytorch(step: &TrainingStep) -> bool {
    let of_pytorch = matches!(step.training.framework, Some(Framework::Ddp | Framework::HuggingFace));
    of_pytorch && matches!(step.training.data.style, DataStyle::Ddp | DataStyle::Zero1)
}

/// Whether only products use 16 bits, from copies of their weights and inputs, as with `torch.autocast`: the residual stream keeps the type
/// of the parameters.
pub(super) fn casts_for_products(step: &TrainingStep) -> bool {
    is_ddp_of_pytorch(step) && step.activation().size() < step.training.data.gradient_element_type.size()
}
