//! Activations that a layer, the ends and the loss store of a sample for its backward pass, after arXiv 2205.05198
//! ("Reducing Activation Recomputation in Large Transformer Models", sections 4 and 5), and the same counting for
//! grouped heads, gated feed-forwards, latent and linear attention and experts.
//!
//! Symbols: n = b s/c tokens of a micro-batch on a rank, E bytes of an element, t ranks of tp. GPT: a layer stores
//! sbh(10 + 24/t + 5as/(ht)) bytes, sbh/t(34 + 5as/h) with sequence parallelism.

use commgauge_model::config::step::{ContextStyle, Framework, Recompute, TensorStyle};
use commgauge_model::config::{Family, LatentAttention, LayerParts, LinearAttention, LinearRule, Mixer, Model};
use commgauge_model::workload::step::TrainingStep;

/// Bytes of a logit, of a sum of exponentials, and of a router's score.
const FULL_PRECISION_BYTES: u128 = 4;
/// Bytes of the identifier of a token.
const TOKEN_BYTES: u128 = 8;

pub(super) fn framework(step: &TrainingStep) -> Option<Framework> {
    step.training.framework.as_ref().map(|choices| choices.framework)
}

/// Bytes of a logit. Megatron-LM's loss works in place on logits in fp32 (core/tensor_parallel/cross_entropy.py). PyTorch's holds at
/// once, in its backward pass, the logarithms of their softmax and two gradients in fp32; and the logits, and the same in fp32, where
/// the caller holds them. torchtitan drops them before (train.py); [`held_logit_bytes`] has what its pipelines hold. Of a divided vocabulary its backward pass holds four in fp32: the logarithms, the gradient of the loss, their
/// exponentials and the sum of these two (torch/distributed/tensor/parallel/loss.py).
pub(super) fn logit_bytes(step: &TrainingStep) -> u128 {
    let element = u128::from(step.activation().size());
    match framework(step) {
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
    let collects = framework(step) == Some(Framework::Torchtitan) && step.stages.count() > 1;
    if collects { u128::from(step.activation().size()) } else { 0 }
}

/// The sizes of which everything is made.
pub(super) struct Shape<'a> {
    model: &'a Model,
    /// Of one sample on a rank: s/c, and n is b times as many.
    tokens: u128,
    /// Keys that a query sees: s for any c, since a ring brings the others.
    sequence: u128,
    element: u128,
    /// h.
    hidden: u128,
    /// t.
    t: u128,
    /// Divisor of everything that tp does not divide: t with sequence parallelism.
    by_sequence: u128,
    /// Divisor of the inputs of linear layers, as they are kept: t where they are gathered again for the backward pass.
    by_input: u128,
    /// Gradients of one input that are there at once: linear layers that are modules of their own give one each, to be added up.
    input_gradients: u128,
    dropout: bool,
    fused_attention: bool,
}

impl<'a> Shape<'a> {
    pub(super) fn of(step: &TrainingStep<'a>, fused_attention: bool) -> Shape<'a> {
        let t = u128::from(step.layout.degrees.tp);
        let model = step.model;
        let by_sequence = if step.training.tensor.sequence_parallel { t } else { 1 };
        let joins_linears = matches!(framework(step), None | Some(Framework::Megatron));
        Shape {
            model,
            tokens: u128::from(step.training.sequence) / u128::from(step.layout.degrees.cp),
            sequence: u128::from(step.training.sequence),
            element: u128::from(step.activation().size()),
            hidden: u128::from(model.hidden),
            t,
            by_sequence,
            by_input: if step.training.tensor.style == TensorStyle::DTensor { 1 } else { by_sequence },
            input_gradients: if joins_linears { 1 } else { 2 },
            dropout: model.family == Family::Gpt2,
            fused_attention,
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
            Recompute::Selective if framework(step) == Some(Framework::Torchtitan) => {
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
        let copied = m.attention.latent.is_some() || framework(step) == Some(Framework::Torchtitan);
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
        self.element * self.tokens * self.hidden / self.by_sequence
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
        let mask = if self.dropout { 1 } else { 0 };
        let norm = (self.element + mask) * self.tokens * self.hidden / self.by_sequence;
        u128::from(parts.count()) * (norm + self.block_input())
    }

    /// The input of linear layers as it is kept: E n h, by t where it is gathered again.
    pub(super) fn block_input(&self) -> u128 {
        self.element * self.tokens * self.hidden / self.by_input
    }

    /// Queries, keys, values and the input of the output projection: 8sbh/t in GPT.
    fn attention(&self) -> u128 {
        let m = self.model;
        let heads = u128::from(m.attention.heads) / self.t;
        let head = u128::from(m.attention.head_dimension);
        // Sums of exponentials of the fused kernel (arXiv 2205.14135, algorithm 2).
        let sums = if self.fused_attention { FULL_PRECISION_BYTES * heads } else { 0 };
        let width = match &m.attention.latent {
            Some(latent) => heads * 2 * (head + u128::from(latent.value_dimension)),
            None => 2 * head * (heads + (u128::from(m.attention.kv_heads) / self.t).max(1)),
        };
        let compressed = m.attention.latent.as_ref().map_or(0, compressed_width) / self.by_sequence;
        // The gate, and what attention gave before it.
        let gate = if m.attention.gate { 2 * head * heads } else { 0 };
        self.tokens * (self.element * (width + gate + compressed) + sums)
    }

    /// Linear attention, with neither keys and values of a sequence nor matrices of tokens by tokens beyond a chunk.
    fn linear_attention(&self, step: &TrainingStep, linear: &LinearAttention) -> u128 {
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
    fn attention_matrices(&self, layer: u32) -> u128 {
        if self.fused_attention || self.model.parts_of(layer).mixer != Some(Mixer::Attention) {
            return 0;
        }
        let each = if self.dropout { 2 * self.element + 1 } else { self.element };
        each * u128::from(self.model.attention.heads) / self.t * self.tokens * self.sequence
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
        let widths = if self.model.family.gated() { 3 } else { 2 };
        match &self.model.mixture {
            Some(mixture) if self.model.has_experts_in(layer) => {
                let etp = u128::from(step.layout.degrees.etp);
                // Tokens of the rank, each as often as it has experts; what others send is as much, where routing is even.
                let chosen = self.tokens * u128::from(mixture.experts_per_token) / self.by_sequence;
                let router = FULL_PRECISION_BYTES * u128::from(mixture.experts) * self.tokens / self.by_sequence;
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

/// Latent attention: the compressed queries, keys and values before and behind their norms, and the rotated part of the keys.
fn compressed_width(latent: &LatentAttention) -> u128 {
    let ranks = latent.query_rank.unwrap_or(0) + latent.kv_rank;
    u128::from(2 * ranks + latent.rotary_dimension)
}
