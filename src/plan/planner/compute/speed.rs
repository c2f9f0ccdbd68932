//! The computing speed of a rank, and the duration of its passes and its optimizer.

use crate::planner::Kernels;
use crate::planner::step_error::StepError;
use LoraModule::{Fc1, Fc2, Proj, Qkv};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Rate, Seconds};
use commgauge_base::writing::ascending;
use commgauge_model::config::step::RecomputeModule::*;
use commgauge_model::config::step::{LoraModule, Recompute};
use commgauge_model::config::{LinearAttention, LinearRule, Mixer};
use commgauge_model::workload::attention_linears;
use commgauge_model::workload::step::TrainingStep;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Computing speed of one GPU (or host rank).
#[derive(Clone, Debug, PartialEq)]
pub struct Compute {
    /// Peak of dense matrix products in the type of the activations, floating-point operations per second.
    pub peak_flops_per_second: f64,
    /// As `peak`, for the linear layers of blocks if they are computed in 8 or 4 bits.
    pub peak_of_linears: Option<f64>,
    /// Share of the peak that products reach.
    pub efficiency: Efficiency,
    /// Rate of kernels that only move data, reading and writing together.
    pub memory_rate: Rate,
    /// Host time of one kernel: a pass is never faster than its kernels can be started.
    pub seconds_per_kernel: Seconds,
    /// How a layer is split into kernels.
    pub kernels: Kernels,
    /// Share of its speed that computing loses while a call overlaps with it.
    pub lost_beside_calls: f64,
    /// The error of steps predicted with all this.
    pub error: StepError,
}

impl Compute {
    /// The peak that a product could reach.
    pub(super) fn peak_of(&self, product: &Product) -> f64 {
        self.peak_of_linears.filter(|_| product.linear.is_some()).unwrap_or(self.peak_flops_per_second)
    }
}

/// The passes of one micro-batch through one chunk of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChunkCompute {
    /// Forward.
    pub forward: Seconds,
    /// Recomputation for the backward pass.
    pub recompute: Seconds,
    /// Gradients of inputs, and of everything except linear layers.
    pub input_gradient: Seconds,
    /// Gradients of weights.
    pub weight_gradient: Seconds,
}

impl ChunkCompute {
    /// The whole backward pass, recomputation included.
    pub fn backward(&self) -> Seconds {
        Seconds(self.recompute.0 + self.input_gradient.0 + self.weight_gradient.0)
    }

    pub(super) fn and(self, other: ChunkCompute) -> ChunkCompute {
        ChunkCompute {
            forward: Seconds(self.forward.0 + other.forward.0),
            recompute: Seconds(self.recompute.0 + other.recompute.0),
            input_gradient: Seconds(self.input_gradient.0 + other.input_gradient.0),
            weight_gradient: Seconds(self.weight_gradient.0 + other.weight_gradient.0),
        }
    }
}

/// The computing of a rank of a stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageCompute {
    /// The passes of a micro-batch, chunk by chunk of the stage.
    pub chunks: Vec<ChunkCompute>,
    /// The optimizer's update of the rank's parameters, once per step.
    pub optimizer: Seconds,
}

impl StageCompute {
    /// All chunks of the stage together.
    pub fn passes(&self) -> ChunkCompute {
        self.chunks.iter().copied().fold(ChunkCompute::default(), ChunkCompute::and)
    }

    /// Forward of all chunks, seconds for one micro-batch.
    pub fn forward_seconds(&self) -> f64 {
        self.passes().forward.0
    }

    /// Backward of all chunks, recomputation included, seconds for one micro-batch.
    pub fn backward_seconds(&self) -> f64 {
        self.passes().backward().0
    }
}

// The work of a rank in a layer and at the ends of the model: matrix products, bytes that other kernels move, and kernels.
//
// Symbols: n = b s/c tokens of a micro-batch on a rank, h, f, t as everywhere. A product of m x k by k x n has 2mnk operations; the
// backward pass has two such products for each linear layer (arXiv 2104.04473, appendix).

/// Forward pass of a micro-batch through a part of the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    pub products: Vec<Product>,
    /// Bytes that kernels without products read and write, outside attention.
    pub moved_bytes: f64,
    /// As above for the token-by-token matrices.
    pub moved_bytes_in_attention: f64,
    /// Number of kernels.
    pub kernels: f64,
    /// Recomputation for the backward pass.
    pub recompute: Option<Recompute>,
    /// Of the bytes and kernels those that selective recomputation repeats.
    pub repeated: [f64; 2],
}

/// Memory traffic of a backward pass relative to a forward pass: it reads the input and the gradient, and writes a
/// gradient.
const BACKWARD_MOVES: f64 = 1.5;

/// Kernels of a mixer or a feed-forward other than products, forward, with the norm before it.
const KERNELS_OF_BLOCK: f64 = 17.0;

/// Kernels that choose experts and bring tokens into their order and back: the scores, their largest and the map of them, the
/// permutations, and splitting and joining by expert (Megatron-LM core/transformer/moe/moe_utils.py).
const KERNELS_OF_ROUTING: f64 = 40.0;

/// Kernels of each expert of a rank: its two products, and in 8 bits the casts of their inputs in both orientations (TransformerEngine
/// pytorch/module/grouped_linear.py).
const KERNELS_OF_EXPERT: f64 = 5.0;

impl Work {
    /// The seconds of the passes.
    pub(super) fn seconds(&self, compute: &Compute) -> ChunkCompute {
        let moved = |bytes: f64| bytes / compute.memory_rate.0;
        let of = |wanted: &dyn Fn(&Product) -> bool| -> f64 {
            let products = self.products.iter().filter(|product| wanted(product));
            let slower =
                |product: &Product| if product.in_attention { compute.kernels.attention_slowdown() } else { 1.0 };
            products.map(|one| compute.efficiency.seconds(one, compute.peak_of(one)) * slower(one)).sum()
        };
        let host = if compute.kernels.in_graphs { 0.0 } else { compute.seconds_per_kernel.0 };
        let floor = |passes: f64| passes * self.kernels * host;
        let all = moved(self.moved_bytes + self.moved_bytes_in_attention);
        let forward = (of(&|_| true) + all).max(floor(1.0));
        let recompute = match self.recompute {
            None | Some(Recompute::None) => 0.0,
            Some(Recompute::Full) => forward,
            Some(Recompute::Selective) => {
                let [bytes, kernels] = self.repeated;
                (of(&|product| product.is_repeated) + moved(bytes)).max(kernels * host)
            }
        };
        // Without weights both sides are inputs, each with a gradient.
        let input = of(&|_| true) + of(&|product| product.weights == Weights::None) + BACKWARD_MOVES * all;
        ChunkCompute {
            forward: Seconds(forward),
            recompute: Seconds(recompute),
            input_gradient: Seconds(input.max(floor(1.0))),
            weight_gradient: Seconds(of(&|product| product.weights == Weights::Trained).max(floor(0.5))),
        }
    }

    /// With LoRA weights are frozen, and linears of a block have two products of their adapters, whose results are added to their own.
    fn train_adapters(&mut self, step: &TrainingStep) {
        let trained = &step.training.data.trained;
        let Some(rank) = trained.lora_rank else { return };
        let element = step.activation().size() as f64;
        let adapted = |product: &&Product| product.linear.is_some_and(|linear| trained.adapts(linear));
        let linears: Vec<Product> = self.products.iter().filter(adapted).copied().collect();
        let with_weights = self.products.iter_mut().filter(|product| product.weights == Weights::Trained);
        with_weights.for_each(|product| product.weights = Weights::Frozen);
        for Product { m, n, k, count, .. } in linears {
            self.moved_bytes += 3.0 * element * (m * n) as f64 * count;
            self.products.extend([(rank, k), (n, rank)].map(|(n, k)| Product { count, ..Product::linear(m, n, k) }));
        }
    }
}

/// Bytes that a norm moves per number of its input as separate kernels (Hugging Face transformers 5.17, models/llama/modeling_llama.py
/// `LlamaRMSNorm`): to fp32, square, mean, product with the root, back, times the weight. `element` is the bytes of a number.
fn bytes_of_unfused_norm(element: f64) -> f64 {
    let full = 4.0;
    (element + full) + 2.0 * full + full + 2.0 * full + (full + element) + 2.0 * element
}

/// For a rotation of queries and keys, in numbers (same file, `apply_rotary_pos_emb`): times the cosine; half of them negated, and both
/// halves joined; times the sine; the sum.
const NUMBERS_OF_UNFUSED_ROTATION: f64 = 2.0 + (1.0 + 2.0) + 2.0 + 3.0;

/// For a gate (same file, `LlamaMLP`): the activation, and the product with it.
const NUMBERS_OF_UNFUSED_GATE: f64 = 2.0 + 3.0;

/// For GELU operation by operation (activations.py `NewGELUActivation`): the cube, times a number, plus the input, times a number, the
/// tangent, plus one, half of the input, and the product.
const NUMBERS_OF_UNFUSED_GELU: f64 = 2.0 + 2.0 + 3.0 + 2.0 + 2.0 + 2.0 + 2.0 + 3.0;

/// Fused, a norm reads and writes once, and a gate reads both and writes once.
const NUMBERS_OF_NORM: f64 = 2.0;

const NUMBERS_OF_GATE: f64 = 3.0;

const NUMBERS_OF_ACTIVATION: f64 = 2.0;

pub(super) fn of_layer(step: &TrainingStep, layer: u32, compute: &Compute) -> Work {
    let (model, t, n) = (step.model, u64::from(step.layout.degrees.tp), step.tokens_per_micro_batch());
    let parts = model.parts_of(layer);
    let mut work = match (parts.mixer, &model.attention.linear) {
        (Some(Mixer::Linear), Some(linear)) => {
            let LinearWork { products, moved_bytes } = of(step, linear);
            Work { products, moved_bytes, ..Work::default() }
        }
        (Some(_), _) => of_attention(step, layer, compute),
        (None, _) => Work::default(),
    };
    let element = step.activation().size() as f64;
    let dropout = model.family.transformers.as_gpt2;
    let split = if step.training.tensor.sequence_parallel { t } else { 1 } as f64;
    let (tokens, h, blocks) = (n as f64, model.hidden as f64, parts.count() as f64);
    // Before each block a norm reads and writes; the residual addition after it reads two and writes one, with a dropout mask.
    let norm_is_fused = compute.kernels.has_one_for_norms_of(model);
    let norm = if norm_is_fused { NUMBERS_OF_NORM * element } else { bytes_of_unfused_norm(element) };
    let around = tokens * h / split * blocks * (norm + 3.0 * element + f64::from(u8::from(dropout)));
    let of = |module| f64::from(u8::from(step.training.tensor.repeats(module)));
    let mut repeated =
        of(CoreAttention) * work.moved_bytes_in_attention + of(Norms) * tokens * h / split * blocks * norm;
    if parts.feed_forward.is_some() {
        feed_forward(step, layer, t, n, &mut work.products);
        let numbers = match (model.family.gated, compute.kernels.has_one_for_activations_of(model)) {
            (true, true) => NUMBERS_OF_GATE,
            (true, false) => NUMBERS_OF_UNFUSED_GATE,
            (false, true) => NUMBERS_OF_ACTIVATION,
            (false, false) => NUMBERS_OF_UNFUSED_GELU,
        };
        let [routed, shared] = inner_widths(step, layer).map(|width| width * tokens * element * numbers);
        work.moved_bytes += routed + shared;
        repeated += match model.has_experts_in(layer) {
            false => shared * of(FeedForward),
            true => routed * of(ExpertActivation) + shared * of(SharedExperts) + permuted_bytes(step, n) * of(Experts),
        };
    }
    if model.has_experts_in(layer) {
        work.moved_bytes += permuted_bytes(step, n);
        let kernels = KERNELS_OF_ROUTING + KERNELS_OF_EXPERT * step.experts_per_rank() as f64;
        work.kernels += kernels;
        work.repeated[1] = of(Experts) * kernels;
    }
    work.moved_bytes += around;
    work.repeated[0] = repeated;
    work.train_adapters(step);
    work.kernels += blocks * KERNELS_OF_BLOCK + work.products.len() as f64;
    work.recompute = Some(step.training.tensor.recompute);
    work
}

fn of_attention(step: &TrainingStep, layer: u32, compute: &Compute) -> Work {
    let fused_attention = compute.kernels.fuses_attention();
    let (model, t, n) = (step.model, u64::from(step.layout.degrees.tp), step.tokens_per_micro_batch());
    let element = step.activation().size() as f64;
    let linears = attention_linears(model, t, n).into_iter();
    let repeats = |module| step.training.tensor.repeats(module);
    let linear = |(name, m, n, k): (&str, u64, u64, u64)| Product {
        is_repeated: name.ends_with(" up") && repeats(LatentUp),
        ..Product::of_block(if name == "attention output" { Proj } else { Qkv }, m, n, k)
    };
    let mut products: Vec<Product> = linears.map(linear).collect();
    let keys = match &model.attention.sliding_window {
        Some(window) if model.has_sliding_window_in(layer) => window.tokens.min(step.training.sequence),
        _ => step.training.sequence,
    };
    let head = model.attention.head_dimension;
    let value = model.attention.latent.as_ref().map_or(head, |latent| latent.value_dimension);
    // A fused kernel skips what the causal mask hides, about half.
    let heads =
        (model.attention.heads / t * step.training.micro_batch) as f64 * if fused_attention { 0.5 } else { 1.0 };
    let rows = step.training.sequence / u64::from(step.layout.degrees.cp);
    let attention = |n, k| Product {
        count: heads,
        weights: Weights::None,
        in_attention: true,
        is_repeated: repeats(CoreAttention),
        ..Product::linear(rows, n, k)
    };
    products.extend([attention(keys, head), attention(value, keys)]);
    let scores = (model.attention.heads / t) as f64 * n as f64 * keys as f64;
    let each = if model.family.transformers.as_gpt2 { 4.0 * element + 1.0 } else { 2.0 * element };
    // A gate reads the output of attention and itself, and writes their product.
    let gated =
        if model.attention.gate { 3.0 * element * n as f64 * (model.attention.heads / t * head) as f64 } else { 0.0 };
    let rotated = if compute.kernels.fused_elementwise || model.family.transformers.as_gpt2 {
        0.0
    } else {
        let width = (model.attention.heads / t + model.kv_heads_per_rank(t)) * head;
        NUMBERS_OF_UNFUSED_ROTATION * element * n as f64 * width as f64
    };
    Work {
        products,
        moved_bytes: gated + rotated,
        moved_bytes_in_attention: if fused_attention { 0.0 } else { scores * each },
        ..Work::default()
    }
}

/// The embedding: a row of the table for each token.
pub(super) fn of_input(step: &TrainingStep) -> Work {
    let bytes = step.tokens_per_micro_batch() * step.model.hidden * step.activation().size();
    Work { moved_bytes: 3.0 * bytes as f64, kernels: 4.0, ..Work::default() }
}

/// The last norm, the head and the loss: logits in fp32, read and written a few times.
pub(super) fn of_output(step: &TrainingStep) -> Work {
    let (t, n) = (u64::from(step.layout.degrees.tp), step.tokens_per_micro_batch());
    let words = step.model.padded_vocabulary(t) / t;
    let logits = n as f64 * words as f64;
    let weights = if step.training.data.trained.is_part() { Weights::Frozen } else { Weights::Trained };
    Work {
        products: vec![Product { weights, ..Product::linear(n, words, step.model.hidden) }],
        moved_bytes: logits * 4.0 * 4.0,
        kernels: 10.0,
        ..Work::default()
    }
}

fn feed_forward(step: &TrainingStep, layer: u32, t: u64, n: u64, products: &mut Vec<Product>) {
    let model = step.model;
    let h = model.hidden;
    let first = if model.family.gated { 2 } else { 1 };
    let repeats = |module| step.training.tensor.repeats(module);
    let mut both = |rows: u64, width: u64, count: f64, is_repeated: bool| {
        for (linear, n, k) in [(Fc1, first * width, h), (Fc2, h, width)] {
            products.push(Product { count, is_repeated, ..Product::of_block(linear, rows, n, k) });
        }
    };
    match &model.mixture {
        Some(mixture) if model.has_experts_in(layer) => {
            let etp = u64::from(step.layout.degrees.etp);
            // With even routing: the tokens that the rank's experts receive from all ranks that share them.
            let chosen = n * mixture.experts_per_token * etp / t;
            let local = step.experts_per_rank().max(1);
            let all = repeats(Experts);
            both(chosen.div_ceil(local), mixture.expert_feed_forward / etp, local as f64, all);
            if mixture.shared_feed_forward > 0 {
                both(n, mixture.shared_feed_forward / t, 1.0, repeats(SharedExperts));
            }
            products.push(Product { is_repeated: all, ..Product::linear(n, mixture.experts, h) });
        }
        _ => both(n, model.feed_forward / t, 1.0, repeats(FeedForward)),
    }
}

/// Bytes read and written to sort tokens by expert and back, with even routing (Megatron-LM core/transformer/moe: moe_utils.py `permute`,
/// `unpermute` and `sort_chunks_by_idxs`, token_dispatcher.py). A token is copied once per expert before it is sent; received tokens are
/// grouped by expert if a rank has several, and ungrouped afterwards; returned tokens are read once more and summed.
fn permuted_bytes(step: &TrainingStep, n: u64) -> f64 {
    let Some(mixture) = &step.model.mixture else { return 0.0 };
    let (t, etp) = (u64::from(step.layout.degrees.tp), u64::from(step.layout.degrees.etp));
    let sent = (n * mixture.experts_per_token) as f64 / t as f64;
    let sorted = if step.experts_per_rank() > 1 { sent * etp as f64 } else { 0.0 };
    let copies = 2.0 * sent + 2.0 * (2.0 * sorted) + sent + n as f64 / t as f64;
    copies * (step.model.hidden * step.activation().size()) as f64
}

/// Inner width that a token passes on a rank, of routed experts, and of shared ones or a dense feed-forward.
fn inner_widths(step: &TrainingStep, layer: u32) -> [f64; 2] {
    let (model, t) = (step.model, f64::from(step.layout.degrees.tp));
    let widths = match &model.mixture {
        Some(mixture) if model.has_experts_in(layer) => {
            [mixture.experts_per_token * mixture.expert_feed_forward, mixture.shared_feed_forward]
        }
        _ => [0, model.feed_forward],
    };
    widths.map(|width| width as f64 / t)
}

// The work of a rank for the linear attention of a layer: its projections, and chunk by chunk the products of its rule.
//
// Within a chunk of C tokens all are compared with all; chunks pass on a state of d_k x d_v. Symbols as in `config::LinearAttention`. The
// delta rule also solves C equations per chunk and head, C^3/3 operations, which are not counted.

/// Forward pass of a micro-batch through linear attention.
pub(super) struct LinearWork {
    pub products: Vec<Product>,
    /// Bytes that kernels without products read and write.
    pub moved_bytes: f64,
}

/// The forward pass of a micro-batch.
pub(super) fn of(step: &TrainingStep, linear: &LinearAttention) -> LinearWork {
    let (h, t, n) = (step.model.hidden, u64::from(step.layout.degrees.tp), step.tokens_per_micro_batch());
    let chunk = linear.chunk_tokens.min(step.training.sequence);
    let chunks = (step.training.micro_batch * step.training.sequence.div_ceil(chunk)) as f64;
    let mut products =
        vec![Product::of_block(Qkv, n, linear.input_width(t), h), Product::of_block(Proj, n, h, linear.value_width(t))];
    products.extend(of_rule(linear, t, chunk, chunks));
    let (element, tokens) = (step.activation().size() as f64, n as f64);
    let values = linear.value_width(t) as f64;
    // The convolution reads and writes; each chunk writes the state that the next one reads; the norm after it reads its input and the
    // gate, and writes.
    let convolution = 2.0 * tokens * linear.convolution_width(t) as f64;
    let states = 2.0 * chunks * values * linear.key_dimension as f64;
    LinearWork { products, moved_bytes: element * (convolution + states + 3.0 * tokens * values) }
}

/// The products of all chunks of all heads.
fn of_rule(linear: &LinearAttention, t: u64, chunk: u64, chunks: f64) -> Vec<Product> {
    let LinearAttention { key_heads, key_dimension: d_k, value_heads, value_dimension: d_v, .. } = *linear;
    let (of_keys, of_values) = (chunks * (key_heads / t) as f64, chunks * (value_heads / t) as f64);
    let product = |m, n, k, count| Product { count, weights: Weights::None, ..Product::linear(m, n, k) };
    match linear.rule {
        // arXiv 2405.21060 section 6: queries with keys, which the heads of a group share; the result with values; the state of a chunk;
        // queries with the previous state.
        LinearRule::StateSpace => vec![
            product(chunk, chunk, d_k, of_keys),
            product(chunk, d_v, chunk, of_values),
            product(d_k, d_v, chunk, of_values),
            product(chunk, d_v, d_k, of_values),
        ],
        // arXiv 2412.06464 section 3.3 and 2406.06484 section 3.2: keys with keys, and queries with keys; the solved equations with keys,
        // and with values; keys, and queries, with the previous state; queries with keys, with the new values; the state.
        LinearRule::GatedDelta => vec![
            product(chunk, chunk, d_k, 2.0 * of_values),
            product(chunk, d_k, chunk, of_values),
            product(chunk, d_v, chunk, 2.0 * of_values),
            product(chunk, d_v, d_k, 2.0 * of_values),
            product(d_k, d_v, chunk, of_values),
        ],
    }
}

// Share of its peak that a GPU reaches in a matrix product: from a saturating formula, or from measured products.

/// Source of the speed of products.
#[derive(Clone, Debug, PartialEq)]
pub enum Efficiency {
    /// Larger products reach more.
    Saturating(Saturation),
    /// Products measured on one machine.
    Measured(MeasuredProducts),
}

/// A share of the peak that grows with the product: best x m/(m + M) x n/(n + N) x k/(k + K), with one half size for all three.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Saturation {
    /// Share that the largest products reach.
    pub best: f64,
    /// The width at which a product reaches half of that if the other two widths are unbounded.
    pub half_width: f64,
}

/// A matrix product of m x k by k x n, measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredProduct {
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// Terms of each sum.
    pub k: u64,
    /// Type of the elements.
    pub element: ElementType,
    /// Time of one product.
    pub seconds: f64,
}

/// Products of one element type, at least one, all with a time.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredProducts(Vec<MeasuredProduct>);

impl MeasuredProducts {
    /// The products of an element type.
    ///
    /// # Errors
    /// If none has that type (lists the available types), or a product lacks a size or a time.
    pub fn new(products: &[MeasuredProduct], element: ElementType) -> Result<MeasuredProducts> {
        if let Some(wrong) = products.iter().find(|product| product.flops_per_second().is_none()) {
            let MeasuredProduct { m, n, k, seconds, .. } = wrong;
            return Err(Error::usage(format!(
                "the matrix product {m} x {n} x {k} took {seconds} s; accepted: sizes from 1 on and a time above 0"
            )));
        }
        let own: Vec<_> = products.iter().copied().filter(|product| product.element == element).collect();
        if own.is_empty() {
            let types: Vec<&str> = ascending(products.iter().map(|product| product.element.name()));
            let found = if types.is_empty() { "none at all".to_owned() } else { format!("of {}", types.join(", ")) };
            return Err(Error::usage(format!(
                "no matrix product of {element} was measured, {found}; measure them in the type of the activations, or give the reached share of the peak"
            )));
        }
        Ok(MeasuredProducts(own))
    }

    /// The same shape at another level: the largest product reaches this share of the peak.
    pub fn at_level(&self, form: Saturation, peak_flops_per_second: f64) -> MeasuredProducts {
        let flops = |known: &&MeasuredProduct| known.m as f64 * known.n as f64 * known.k as f64;
        let largest = self.0.iter().max_by(|a, b| flops(a).total_cmp(&flops(b)));
        let factor = largest.map_or(1.0, |known| {
            let product = Product::linear(known.m, known.n, known.k);
            known.seconds * peak_flops_per_second * form.share(&product) / product.flops()
        });
        self.times(factor)
    }

    fn times(&self, factor: f64) -> MeasuredProducts {
        let faster = |known: &MeasuredProduct| MeasuredProduct { seconds: known.seconds / factor, ..*known };
        MeasuredProducts(self.0.iter().map(faster).collect())
    }

    pub fn products(&self) -> &[MeasuredProduct] {
        &self.0
    }
}

impl MeasuredProduct {
    /// Floating-point operations per second: 2 m n k over the time. `None` for an invalid time.
    pub fn flops_per_second(&self) -> Option<f64> {
        let flops = 2.0 * self.m as f64 * self.n as f64 * self.k as f64;
        (self.seconds > 0.0 && self.seconds.is_finite() && flops > 0.0).then(|| flops / self.seconds)
    }
}

impl Efficiency {
    /// Every product `factor` times as fast.
    pub fn times(&self, factor: f64) -> Efficiency {
        match self {
            Efficiency::Saturating(form) => Efficiency::Saturating(Saturation { best: factor * form.best, ..*form }),
            Efficiency::Measured(measured) => Efficiency::Measured(measured.times(factor)),
        }
    }

    pub(super) fn seconds(&self, product: &Product, peak_flops_per_second: f64) -> f64 {
        let flops = product.flops();
        match self {
            Efficiency::Saturating(form) => flops / (peak_flops_per_second * form.share(product)),
            Efficiency::Measured(measured) => flops / flops_per_second_at(measured.products(), product),
        }
    }
}

impl Saturation {
    fn share(&self, product: &Product) -> f64 {
        let of = |width: u64| width as f64 / (width as f64 + self.half_width);
        self.best * of(product.m) * of(product.n) * of(product.k)
    }
}

/// The speed for a product's shape: as measured if the same product was measured; else the mean of the logarithms of the speeds, each
/// weighted by the inverse fourth power of its distance in octaves of m, n and k, so that neighbours dominate. It stays within the measured
/// range.
fn flops_per_second_at(measured: &[MeasuredProduct], product: &Product) -> f64 {
    let (mut weights, mut sum) = (0.0, 0.0);
    for known in measured {
        let Some(speed) = known.flops_per_second() else { continue };
        let octaves = |a: u64, b: u64| (a.max(1) as f64 / b.max(1) as f64).log2().powi(2);
        let distance = octaves(known.m, product.m) + octaves(known.n, product.n) + octaves(known.k, product.k);
        if distance == 0.0 {
            return speed;
        }
        let weight = distance.powi(-2);
        weights += weight;
        sum += weight * speed.ln();
    }
    (sum / weights).exp()
}

// A matrix product as a rank computes it.

/// Matrix products of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// Terms of each sum.
    pub k: u64,
    pub count: f64,
    /// Whether one operand is weights, whose gradient is a separate product.
    pub weights: Weights,
    /// Whether it is part of the core attention.
    pub in_attention: bool,
    /// Whether selective recomputation repeats it.
    pub is_repeated: bool,
    /// The linear layer of a block that it is: training in 8 or 4 bits computes those so.
    pub linear: Option<LoraModule>,
}

/// The weights of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// Both operands are activations.
    None,
    Trained,
    /// Without a gradient.
    Frozen,
}

impl Product {
    pub(super) fn linear(m: u64, n: u64, k: u64) -> Product {
        let (weights, in_attention, is_repeated) = (Weights::Trained, false, false);
        Product { m, n, k, count: 1.0, weights, in_attention, is_repeated, linear: None }
    }

    /// A linear layer of a block.
    pub(super) fn of_block(linear: LoraModule, m: u64, n: u64, k: u64) -> Product {
        Product { linear: Some(linear), ..Product::linear(m, n, k) }
    }

    /// Floating-point operations of all of them.
    pub fn flops(&self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64 * self.count
    }
}
