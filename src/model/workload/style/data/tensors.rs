//! The parameters of a rank, tensor by tensor in model order: buckets close only between tensors.
//!
//! Order and fusion follow Megatron-LM (core/models/gpt/gpt_model.py, core/transformer/attention.py and moe/, with Transformer Engine's
//! layers, whose norms come first), or of Hugging Face transformers as PyTorch's DDP sees them. `step::rank_parameters` counts the
//! parameters; a test compares the two.

use crate::config::step::{LoraModule, OuterSharding};
use crate::config::{FeedForward, LatentAttention, LinearRule, Mixer, Model};
use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::op::Pass;
use crate::workload::step::{RankParameters, TrainingStep};
use LoraModule::{Fc1, Fc2, Proj, Qkv};

/// More local experts than this are treated as one grouped weight, as in grouped matrix products.
const MOST_EXPERT_TENSORS: u64 = 4096;

/// The tensors of one model chunk of a stage.
pub(super) fn of_chunk(step: &TrainingStep, stage: u32, chunk: u32, order: Order) -> Vec<Tensor> {
    let layers = step.stages.layers_of_chunk(stage, chunk);
    let trained = layers.iter().filter(|layer| step.trains(**layer));
    let (behind, within): (Vec<u32>, Vec<u32>) = trained.partition(|layer| **layer >= step.model.layers);
    let mut list = Vec::new();
    let is_whole = !step.training.data.trained.is_part();
    let [has_input, has_output] = step.stages.ends_of_chunk(stage, chunk).map(|has| has && is_whole);
    if has_input {
        list.extend(input(step, stage));
    } else if is_whole && !behind.is_empty() && !step.model.embedding.tied {
        list.push(words(step, stage, step.word_embedding_parameters()));
    }
    within.into_iter().for_each(|layer| of_layer(step, layer, order, &mut list));
    if has_output {
        list.extend(norm(step.model));
    }
    behind.into_iter().for_each(|layer| of_prediction_layer(step, layer, order, &mut list));
    if has_output {
        list.push(words(step, stage, step.head_parameters(stage)));
    }
    or_adapters(step, list)
}

/// Some tensors, or the adapters on them, which are trained in their place.
pub(super) fn or_adapters(step: &TrainingStep, mut list: Vec<Tensor>) -> Vec<Tensor> {
    let (trained, d) = (&step.training.data.trained, &step.layout.degrees);
    if let Some(rank) = trained.lora_rank {
        let ranks = |tensor: &Tensor| u64::from(if tensor.is_expert() { d.etp } else { d.tp });
        list.retain(|tensor| tensor.linear.is_some_and(|linear| trained.adapts(linear)));
        list = list.iter().flat_map(|tensor| tensor.adapters(rank, ranks(tensor))).collect();
    }
    list.retain(|tensor| tensor.elements > 0);
    list
}

/// The elements of tensors, those of experts apart.
pub(super) fn parameters_of(tensors: impl IntoIterator<Item = Tensor>) -> RankParameters {
    tensors.into_iter().fold(RankParameters::default(), |mut sum, tensor| {
        *(if tensor.is_expert() { &mut sum.experts } else { &mut sum.dense }) += tensor.elements;
        sum
    })
}

/// The tensors of a part of the parameters of a stage.
pub(super) fn of_part(step: &TrainingStep, stage: u32, part: &Part, order: Order) -> Vec<Tensor> {
    let chunks = (0..step.stages.chunks()).flat_map(|chunk| of_chunk(step, stage, chunk, order));
    chunks.filter(|tensor| if tensor.is_expert() { part.experts } else { part.dense }).collect()
}

/// The tensors before the first layer, and after the last one, on a stage that has them.
pub(super) fn of_ends(step: &TrainingStep, stage: u32) -> [Vec<Tensor>; 2] {
    let before = if step.stages.has_input(stage) { input(step, stage) } else { Vec::new() };
    let mut behind = Vec::new();
    if step.stages.has_output(stage) {
        behind.extend(norm(step.model));
        behind.push(words(step, stage, step.head_parameters(stage)));
    }
    [before, behind].map(|list| list.into_iter().filter(|tensor| tensor.elements > 0).collect())
}

pub(super) fn of_layer_alone(step: &TrainingStep, layer: u32, order: Order) -> Vec<Tensor> {
    let mut list = Vec::new();
    of_layer(step, layer, order, &mut list);
    list.retain(|tensor| tensor.elements > 0);
    list
}

fn input(step: &TrainingStep, stage: u32) -> Vec<Tensor> {
    let positions = Tensor::matrix(step.position_embedding_parameters(), step.model.hidden);
    vec![words(step, stage, step.word_embedding_parameters()), positions]
}

/// Word embedding or head, which two stages may share.
fn words(step: &TrainingStep, stage: u32, elements: u64) -> Tensor {
    let apart = step.model.embedding.tied && !(step.stages.has_input(stage) && step.stages.has_output(stage));
    let role = if apart { Role::SharedWords } else { Role::Words };
    Tensor::matrix(elements, step.model.hidden).in_role(role)
}

/// A layer that predicts a further token: norms of its two inputs, their projection, a layer, and a norm (Megatron-LM
/// core/transformer/multi_token_prediction.py MultiTokenPredictionLayer).
fn of_prediction_layer(step: &TrainingStep, layer: u32, order: Order, list: &mut Vec<Tensor>) {
    (0..2).for_each(|_| list.extend(norm(step.model)));
    let projection = Tensor::matrix(step.prediction_projection_parameters(), 2 * step.model.hidden);
    list.push(Tensor { division: Division::Rows, ..projection });
    of_layer(step, layer, order, list);
    list.extend(norm(step.model));
}

/// A weight, and in some families a bias.
fn norm(model: &Model) -> Vec<Tensor> {
    vec![Tensor::vector(model.hidden); (model.norm_parameters() / model.hidden) as usize]
}

fn of_layer(step: &TrainingStep, layer: u32, order: Order, list: &mut Vec<Tensor>) {
    let (model, t) = (step.model, u64::from(step.layout.degrees.tp));
    let parts = model.parts_of(layer);
    let norms_last = order == Order::Definition && model.family.gated;
    let first_norm = if norms_last { Vec::new() } else { norm(model) };
    match parts.mixer {
        Some(Mixer::Attention) => of_attention(model, t, order, first_norm, list),
        Some(Mixer::Linear) => of_linear_attention(model, t, order, first_norm, list),
        None => list.extend(first_norm),
    }
    let norms_between = if norms_last { 0 } else { model.norms_per_layer().saturating_sub(1) };
    (0..norms_between).for_each(|_| list.extend(norm(model)));
    match (parts.feed_forward, &model.mixture) {
        (Some(FeedForward::Experts), Some(mixture)) => {
            let router = model.hidden * mixture.experts;
            let bias = model.router_parameters().saturating_sub(router);
            list.extend([Tensor::matrix(router, model.hidden), Tensor::vector(bias)]);
            of_experts(step, mixture.expert_feed_forward, order, list);
            let (width, whole) = (mixture.shared_feed_forward, model.shared_expert_parameters(t));
            list.extend(feed_forward(model, width, t, whole, order));
        }
        (Some(_), _) => {
            let whole = model.dense_feed_forward_parameters(t);
            list.extend(feed_forward(model, model.feed_forward, t, whole, order));
        }
        (None, _) => {}
    }
    if norms_last {
        (0..model.norms_per_layer()).for_each(|_| list.extend(norm(model)));
    }
}

/// The tensors of a feed-forward of `whole` parameters on the rank: first projection or projections, bias, second, bias, and other parts,
/// such as the gate of shared experts.
fn feed_forward(model: &Model, width: u64, t: u64, whole: u64, order: Order) -> Vec<Tensor> {
    let h = model.hidden;
    if width == 0 {
        return vec![Tensor::vector(whole)];
    }
    let inputs = if model.family.gated { 2 } else { 1 };
    let (first, first_bias) = (inputs * h * width / t, inputs * width / t);
    let (first_bias, second_bias) = if model.biases.feed_forward { (first_bias, h) } else { (0, 0) };
    let second = (h * width / t).min(whole.saturating_sub(first + first_bias + second_bias));
    let others = whole.saturating_sub(first + first_bias + second + second_bias);
    let input = |weight: u64, bias: u64| [Tensor::matrix(weight, h).linear(Fc1, Division::Rows), Tensor::vector(bias)];
    let mut list = match order {
        Order::PyTorch | Order::Definition if inputs == 2 => {
            let halves = [(first / 2, first_bias / 2), (first - first / 2, first_bias - first_bias / 2)];
            halves.into_iter().flat_map(|(weight, bias)| input(weight, bias)).collect()
        }
        _ => input(first, first_bias).to_vec(),
    };
    let output = Tensor::matrix(second, (width / t).max(1)).linear(Fc2, Division::Columns);
    list.extend([output, Tensor::vector(second_bias), Tensor::matrix(others, h)]);
    list
}

/// Routed experts. Megatron-LM has all first projections, then all second ones; transformers has one tensor per layer for each, with gate
/// and up projection fused (`MixtralExperts` and similar).
fn of_experts(step: &TrainingStep, width: u64, order: Order, list: &mut Vec<Tensor>) {
    let (model, etp, experts) = (step.model, u64::from(step.layout.degrees.etp), step.experts_per_rank());
    let one = feed_forward(model, width, etp, model.one_expert_parameters(etp), Order::Megatron);
    let stacked = order != Order::Megatron || experts > MOST_EXPERT_TENSORS;
    for tensor in one.into_iter().map(|tensor| tensor.in_role(Role::Expert)) {
        match stacked {
            true => list.push(tensor.stacked(experts)),
            false => list.extend(std::iter::repeat_n(tensor, experts as usize)),
        }
    }
}

// The tensors of attention and of linear attention, in the framework's order.
//
// Megatron-LM core/transformer/attention.py, multi_latent_attention.py, core/ssm/; transformers' modules of the same names.

/// Attention, and the norm before it unless it follows the layer.
pub(super) fn of_attention(model: &Model, t: u64, order: Order, first_norm: Vec<Tensor>, list: &mut Vec<Tensor>) {
    let output = output_projection(model, t);
    let mut tensors = if order == Order::Megatron { output.to_vec() } else { Vec::new() };
    let whole = model.attention_parameters(t) + elements(&first_norm);
    tensors.extend(first_norm);
    tensors.extend(inputs_of_attention(model, t, order));
    if order != Order::Megatron {
        tensors.extend(output);
    }
    // Sinks and other additions of a family are the last tensors.
    tensors.push(Tensor::vector(whole.saturating_sub(elements(&tensors))));
    list.extend(tensors);
}

fn elements(tensors: &[Tensor]) -> u64 {
    tensors.iter().map(|tensor| tensor.elements).sum()
}

/// Linear attention: per-head numbers precede the modules (Megatron-LM core/ssm/gated_delta_net/common.py, mamba_mixer.py; transformers,
/// `Qwen3NextGatedDeltaNet`, `NemotronHMamba2Mixer`). Megatron-LM projects everything at once, before the convolution; in transformers the
/// convolution comes first, and with the delta rule the per-head numbers have a separate projection.
pub(super) fn of_linear_attention(
    model: &Model,
    t: u64,
    order: Order,
    first_norm: Vec<Tensor>,
    list: &mut Vec<Tensor>,
) {
    let parts = model.linear_attention_parameters(t);
    let apart = match (&model.attention.linear, order) {
        (Some(linear), Order::PyTorch | Order::Definition) if linear.rule == LinearRule::GatedDelta => {
            model.hidden * (linear.input_width(t) - linear.convolution_width(t) - linear.value_width(t))
        }
        _ => 0,
    };
    let h = model.hidden;
    let [weight, bias] = parts.input;
    let rows = |elements: u64| Tensor::matrix(elements, h).linear(Qkv, Division::Rows);
    let gate = match order {
        Order::PyTorch | Order::Definition if model.family.transformers.linear_inputs_apart => {
            h * model.attention.linear.as_ref().map_or(0, |linear| linear.value_width(t))
        }
        _ => 0,
    };
    // With separate projections, what each head forgets and replaces has one each.
    let of_each_head = if gate > 0 { [apart / 2; 2] } else { [apart, 0] };
    let [first, second] = of_each_head.map(rows);
    let input = [rows(weight - apart - gate), rows(gate), first, second, Tensor::vector(bias)];
    let tokens = model.attention.linear.as_ref().map_or(1, |linear| linear.convolution_tokens);
    let convolution = [Tensor::filters(parts.convolution[0], tokens), Tensor::vector(parts.convolution[1])];
    let of_heads = parts.of_heads.map(Tensor::vector);
    let [weight, bias] = parts.output;
    let output = Tensor::matrix(weight, (weight / h).max(1)).linear(Proj, Division::Columns);
    let output = [Tensor::vector(parts.norm), output, Tensor::vector(bias)];
    match order {
        Order::Megatron => {
            list.extend(of_heads);
            list.extend(first_norm);
            list.extend(input);
            list.extend(convolution);
        }
        Order::PyTorch | Order::Definition => {
            list.extend(first_norm);
            list.extend(of_heads);
            list.extend(convolution);
            // `Qwen3_5GatedDeltaNet` has norm and output projection in front.
            let [first, second]: [&[Tensor]; 2] = if gate > 0 { [&output, &input] } else { [&input, &output] };
            list.extend_from_slice(first);
            list.extend_from_slice(second);
            return;
        }
    }
    list.extend(output);
}

/// Weight and bias of the attention's output projection.
fn output_projection(model: &Model, t: u64) -> [Tensor; 2] {
    let value = model.attention.latent.as_ref().map_or(model.attention.head_dimension, |latent| latent.value_dimension);
    let (width, bias) =
        (model.attention.heads / t * value, if model.biases.attention_output { model.hidden } else { 0 });
    [Tensor::matrix(width * model.hidden, width).linear(Proj, Division::Columns), Tensor::vector(bias)]
}

fn inputs_of_attention(model: &Model, t: u64, order: Order) -> Vec<Tensor> {
    if let Some(latent) = &model.attention.latent {
        return inputs_of_latent_attention(model, latent, t);
    }
    let queries = model.projected_queries(t);
    let keys = model.kv_heads_per_rank(t) * model.attention.head_dimension;
    let (widths, division) = match order {
        // GPT-2 has one module for all three (transformers, `GPT2Attention.c_attn`).
        _ if order == Order::Megatron || model.family.transformers.as_gpt2 => {
            (vec![queries + 2 * keys], Division::QueriesKeysValues)
        }
        _ => (vec![queries, keys, keys], Division::Rows),
    };
    let projection = |width: u64| {
        let bias = if model.biases.query_key_value { width } else { 0 };
        [Tensor::matrix(width * model.hidden, model.hidden).linear(Qkv, division), Tensor::vector(bias)]
    };
    let mut list: Vec<Tensor> = widths.into_iter().flat_map(projection).collect();
    list.extend(model.query_key_norm_parameters(t).map(Tensor::vector));
    list.retain(|tensor| tensor.elements > 0);
    list
}

fn inputs_of_latent_attention(model: &Model, latent: &LatentAttention, t: u64) -> Vec<Tensor> {
    let (h, heads) = (model.hidden, model.attention.heads / t);
    let bias = |width: u64| Tensor::vector(if model.biases.query_key_value { width } else { 0 });
    let queries = match latent.query_rank {
        Some(rank) => vec![
            Tensor::matrix(h * rank, h).linear(Qkv, Division::Duplicated),
            bias(rank),
            Tensor::vector(rank),
            Tensor::matrix(rank * heads * model.attention.head_dimension, rank).linear(Qkv, Division::Rows),
        ],
        None => vec![Tensor::matrix(h * heads * model.attention.head_dimension, h).linear(Qkv, Division::Rows)],
    };
    let compressed = latent.kv_rank + latent.rotary_dimension;
    let expanded = latent.kv_rank * heads * (latent.plain_dimension + latent.value_dimension);
    let keys_and_values = [
        Tensor::matrix(h * compressed, h).linear(Qkv, Division::Duplicated),
        bias(compressed),
        Tensor::vector(latent.kv_rank),
        Tensor::matrix(expanded, latent.kv_rank).linear(Qkv, Division::Rows),
    ];
    queries.into_iter().chain(keys_and_values).collect()
}

// The parts of a model whose gradients different groups reduce.

/// Parameters whose gradients the same groups reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The groups that reduce, or that the parameters are sharded over.
    pub(super) axis: Axis,
    pub(super) ranks: u64,
    /// Ranks that shard the updated parameters: these, or those of all groups with the same shards.
    pub(super) owners: u64,
    /// Number of groups with the same shards, if there are several.
    pub(super) replicas: u64,
    /// Whether it contains dense parameters, and whether it contains those of experts.
    pub(super) dense: bool,
    pub(super) experts: bool,
}

/// The parts of a model: everything dense over dp (with cp: over both, because every rank of cp has the same parameters and gradients of
/// other tokens), and experts over the ranks with the same ones (Megatron-LM core/parallel_state.py). Undivided experts are part of the
/// rest.
pub(super) fn parts(step: &TrainingStep) -> Vec<Part> {
    let layout = &step.layout;
    let ranks = |axis: Axis| u64::from(layout.group_size(axis));
    let replicas = u64::from(step.training.data.shards.replicas);
    let mixture = step.model.mixture.is_some();
    if replicas > 1 {
        let ranks = ranks(Axis::DpShard);
        let owners = match step.training.data.outer_sharding {
            OuterSharding::NoShard => ranks,
            OuterSharding::Optimizer => ranks * replicas,
        };
        return vec![Part { axis: Axis::DpShard, ranks, owners, replicas, dense: true, experts: mixture }];
    }
    let axis = if layout.degrees.cp > 1 { Axis::DpCp } else { Axis::Dp };
    let of = |axis| {
        let ranks = ranks(axis);
        Part { axis, ranks, owners: ranks, replicas: 1, dense: true, experts: false }
    };
    let dense = of(axis);
    // Megatron-LM core/tensor_parallel/layers.py: parameters of experts are separate (`allreduce` is false) if their ranks are.
    if mixture && !layout.degrees.divides_experts() {
        return vec![Part { experts: true, ..dense }];
    }
    let experts = Part { dense: false, experts: true, ..of(Axis::Edp) };
    std::iter::once(dense).chain(mixture.then_some(experts)).collect()
}

impl Part {
    /// A gather of parameters as done in a pass: for the backward one from secondary shards, if any.
    pub(super) fn in_pass(&self, step: &TrainingStep, pass: Pass, op: Op) -> Op {
        match (step.training.data.shards.secondary, pass) {
            (Some(shards), Pass::Backward | Pass::Recompute) => Op {
                axis: Axis::DpShard,
                why: format!("{}; from {shards} secondary shards (arXiv 2306.10209 section 3.2)", op.why),
                ..op
            },
            _ => op,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match (self.dense, self.experts) {
            (true, true) => "dense and expert parameters",
            (true, false) => "dense parameters",
            _ => "expert parameters",
        }
    }
}

// A tensor of parameters: its elements on a rank, its shape and its role; and the framework that defines the order of several.

/// The framework whose order of parameters is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Queries, keys and values fused, gate and up projection fused.
    Megatron,
    /// Separate tensors by module, in gradient order.
    PyTorch,
    /// Separate tensors by module, in definition order: norms of gated families follow their layer (Hugging Face).
    Definition,
}

/// One parameter tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tensor {
    /// Its elements on the rank.
    pub elements: u64,
    /// How they are arranged.
    pub shape: Shape,
    /// Its role.
    pub role: Role,
    /// How tensor parallelism divides it.
    pub division: Division,
    /// The linear of a block whose weight it is.
    pub linear: Option<LoraModule>,
}

/// The dimensions of a tensor. A row has one index of the first dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One dimension: norms, biases, per-head numbers.
    Vector,
    /// Two, with this many elements per row: the width of the product.
    Matrix { row: u64 },
    /// Three: matrices with this many rows each, as the experts of a layer, or the filters of a convolution, with one row each.
    Stack { matrices: u64, rows: u64 },
}

/// The dimension of a matrix that the ranks of tp (of etp, in an expert) divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Division {
    /// None: every rank has all of it.
    Whole,
    /// None, though it is a linear, as down projections to a low rank are.
    Duplicated,
    /// The first: a column-parallel linear.
    Rows,
    /// The first, with queries, keys and values fused.
    QueriesKeysValues,
    /// The second: a row-parallel linear.
    Columns,
}

/// The role of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Part of what every rank of a replica has or shards.
    Dense,
    /// Part of a routed expert.
    Expert,
    /// Word embedding or head.
    Words,
    /// Word embedding or head with equal values on two stages, so that both are sharded equally in a separate bucket.
    SharedWords,
}

/// Whether Transformer Engine can store a tensor in 8 bits: weights of linears, not norms, biases and routers.
pub(super) fn is_in_eight_bits(tensor: &Tensor) -> bool {
    tensor.division != Division::Whole
}

impl Tensor {
    /// A dense vector.
    pub fn vector(elements: u64) -> Tensor {
        Tensor::of(elements, Shape::Vector)
    }

    /// A dense matrix with this many elements per row.
    pub fn matrix(elements: u64, row: u64) -> Tensor {
        Tensor::of(elements, Shape::Matrix { row })
    }

    /// Dense filters with this many elements each.
    pub fn filters(elements: u64, of_each: u64) -> Tensor {
        Tensor::of(elements, Shape::Stack { matrices: elements / of_each.max(1), rows: 1 })
    }

    fn of(elements: u64, shape: Shape) -> Tensor {
        Tensor { elements, shape, role: Role::Dense, division: Division::Whole, linear: None }
    }

    /// The weight of a linear, divided over the ranks of tp.
    pub fn linear(self, linear: LoraModule, division: Division) -> Tensor {
        Tensor { linear: Some(linear), division, ..self }
    }

    /// This tensor of this many experts, fused.
    pub fn stacked(self, experts: u64) -> Tensor {
        let shape = match self.shape {
            Shape::Vector => Shape::Matrix { row: self.elements },
            Shape::Matrix { row } => Shape::Stack { matrices: experts, rows: self.elements / row.max(1) },
            Shape::Stack { matrices, rows } => Shape::Stack { matrices: experts * matrices, rows },
        };
        Tensor { elements: experts * self.elements, shape, ..self }
    }

    /// In another role.
    pub fn in_role(self, role: Role) -> Tensor {
        Tensor { role, ..self }
    }

    /// The two matrices of this rank between the input and the output of a linear, of which ranks of tp have a part each (NVIDIA
    /// Megatron-Bridge peft/utils.py ParallelLinearAdapter); none for what is no linear.
    pub fn adapters(&self, rank: u64, ranks: u64) -> Vec<Tensor> {
        let (matrices, row) = match self.shape {
            Shape::Stack { matrices, rows } => (matrices, self.elements / (matrices * rows).max(1)),
            Shape::Matrix { row } => (1, row),
            Shape::Vector => return Vec::new(),
        };
        let [of_input, of_output] = match self.division {
            Division::Whole => return Vec::new(),
            Division::Duplicated => [1, 1],
            Division::Rows | Division::QueriesKeysValues => [ranks, 1],
            Division::Columns => [1, ranks],
        };
        let sizes = [(matrices * row / of_input, row), (self.elements / row.max(1) / of_output, rank)];
        sizes.map(|(width, row)| Tensor::matrix(rank * width, row).in_role(self.role)).to_vec()
    }

    pub fn is_expert(&self) -> bool {
        self.role == Role::Expert
    }

    /// Whether it is an embedding or a head that two stages share.
    pub fn is_shared(&self) -> bool {
        self.role == Role::SharedWords
    }

    /// Elements of a row; 1 in a vector.
    pub fn row(&self) -> u64 {
        match self.shape {
            Shape::Vector => 1,
            Shape::Matrix { row } => row,
            Shape::Stack { matrices, .. } => self.elements / matrices.max(1),
        }
    }
}
