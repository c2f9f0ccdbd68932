//! Activations that a layer, the ends and the loss store of a sample for its backward pass, after arXiv 2205.05198
//! ("Reducing Activation Recomputation in Large Transformer Models", sections 4 and 5), and the same counting for
//! grouped heads, gated feed-forwards, latent and linear attention and experts.
//!
//! Symbols: n = b s/c tokens of a micro-batch on a rank, E bytes of an element, t ranks of tp. GPT: a layer stores
//! sbh(10 + 24/t + 5as/(ht)) bytes, sbh/t(34 + 5as/h) with sequence parallelism.

use super::elementwise::Elementwise;
use super::parts::FULL_PRECISION_BYTES;
use super::precision::casts_for_products;
use crate::planner::kernels::Kernels;
use commgauge_model::config::step::{ContextStyle, Framework, Recompute, TensorStyle};
use commgauge_model::config::{Family, LayerParts, Mixer, Model};
use commgauge_model::workload::step::TrainingStep;

/// Bytes of the identifier of a token.
const TOKEN_BYTES: u128 = 8;

/// Bytes of a logit. Megatron-LM's loss works in place on logits in fp32 (core/tensor_parallel/cross_entropy.py). PyTorch's holds at
/// once, in its backward pass, the logarithms of their softmax and two gradients in fp32; and the logits, and the same in fp32, where
/// the caller holds them. torchtitan drops them before (train.py); [`held_logit_bytes`] has what its pipelines hold. Of a divided vocabulary its backward pass holds four in fp32: the logarithms, the gradient of the loss, their
/// exponentials and the sum of these two (torch/distributed/tensor/parallel/loss.py).
pub(super) fn logit_bytes(step: &TrainingStep) -> u128 {
    let element = u128::from(step.activation().size());
    match step.training.named_framework() {
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
    let collects = step.training.named_framework() == Some(Framework::Torchtitan) && step.stages.count() > 1;
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
    /// h.
    pub(super) hidden: u128,
    /// t.
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
        let joins_linears = matches!(step.training.named_framework(), None | Some(Framework::Megatron));
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
            Recompute::Selective if step.training.named_framework() == Some(Framework::Torchtitan) => {
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
        let copied = m.attention.latent.is_some() || step.training.named_framework() == Some(Framework::Torchtitan);
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
