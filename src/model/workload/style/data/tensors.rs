//! The parameters of a rank, tensor by tensor in the order of the model: buckets close between tensors only.
//!
//! Order and fusion are those of Megatron-LM (core/models/gpt/gpt_model.py, core/transformer/attention.py and moe/,
//! with Transformer Engine's layers, whose norms come first), or of Hugging Face transformers as PyTorch's DDP sees
//! them. `step::rank_parameters` counts the parameters; a test compares the two.

use super::parts::Part;
use crate::config::{Family, FeedForward, LatentAttention, LinearRule, Mixer, Model};
use crate::workload::step::TrainingStep;

/// More local experts than this are treated as one grouped weight, as in grouped matrix products.
const MOST_EXPERT_TENSORS: u64 = 4096;

/// One parameter tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tensor {
    /// Its elements on the rank.
    pub elements: u64,
    /// Whether it is part of a routed expert.
    pub expert: bool,
    /// Word embedding and head share their values across stages, so that both are sharded equally in a separate
    /// bucket.
    pub shared_embedding: bool,
}

/// The framework whose order of parameters is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Queries, keys and values in one tensor, gate and up projection in one.
    Megatron,
    /// Each for itself where the modules are, as their gradients come.
    PyTorch,
    /// Each for itself where the modules are, as modules define them: norms of gated families behind their layer (Hugging Face).
    Definition,
}

/// The tensors of one model chunk of a stage.
pub(super) fn of_chunk(step: &TrainingStep, stage: u32, chunk: u32, order: Order) -> Vec<Tensor> {
    let layers = step.stages.layers_of_chunk(stage, chunk);
    let (behind, within): (Vec<u32>, Vec<u32>) = layers.iter().partition(|layer| **layer >= step.model.layers);
    let mut list = Vec::new();
    if layers.contains(&0) {
        list.extend(input(step, stage));
    } else if !behind.is_empty() && !step.model.tied_embeddings {
        list.push(words(step, stage, step.word_embedding_parameters()));
    }
    within.into_iter().for_each(|layer| of_layer(step, layer, order, &mut list));
    let has_output = layers.contains(&step.model.layers.saturating_sub(1));
    if has_output {
        list.extend(norm(step.model));
    }
    behind.into_iter().for_each(|layer| of_prediction_layer(step, layer, order, &mut list));
    if has_output {
        list.push(words(step, stage, step.head_parameters(stage)));
    }
    list.retain(|tensor| tensor.elements > 0);
    list
}

/// The elements of each tensor of a part of the parameters of a stage.
pub(super) fn tensors_of_part(step: &TrainingStep, stage: u32, part: &Part, order: Order) -> Vec<u64> {
    let chunks = (0..step.stages.chunks()).flat_map(|chunk| of_chunk(step, stage, chunk, order));
    let of_part = chunks.filter(|tensor| if tensor.expert { part.experts } else { part.dense });
    of_part.map(|tensor| tensor.elements).collect()
}

/// The tensors before the first layer, and behind the last one, on a stage that has them.
pub(super) fn of_ends(step: &TrainingStep, stage: u32) -> [Vec<Tensor>; 2] {
    let before = if step.stages.has_input(stage) { input(step, stage) } else { Vec::new() };
    let mut behind = Vec::new();
    if step.stages.has_output(stage) {
        behind.extend(norm(step.model));
        behind.push(words(step, stage, step.head_parameters(stage)));
    }
    [before, behind].map(|list| list.into_iter().filter(|tensor| tensor.elements > 0).collect())
}

/// The tensors of one layer.
pub(super) fn of_layer_alone(step: &TrainingStep, layer: u32, order: Order) -> Vec<Tensor> {
    let mut list = Vec::new();
    of_layer(step, layer, order, &mut list);
    list.retain(|tensor| tensor.elements > 0);
    list
}

fn input(step: &TrainingStep, stage: u32) -> Vec<Tensor> {
    vec![words(step, stage, step.word_embedding_parameters()), dense(step.position_embedding_parameters())]
}

/// Word embedding or head, which two stages may share.
fn words(step: &TrainingStep, stage: u32, elements: u64) -> Tensor {
    let apart = step.model.tied_embeddings && !(step.stages.has_input(stage) && step.stages.has_output(stage));
    Tensor { elements, expert: false, shared_embedding: apart }
}

/// A layer that predicts a further token: norms of its two inputs, their projection, a layer, and a norm (Megatron-LM
/// core/transformer/multi_token_prediction.py MultiTokenPredictionLayer).
fn of_prediction_layer(step: &TrainingStep, layer: u32, order: Order, list: &mut Vec<Tensor>) {
    (0..2).for_each(|_| list.extend(norm(step.model)));
    list.push(dense(step.prediction_projection_parameters()));
    of_layer(step, layer, order, list);
    list.extend(norm(step.model));
}

fn dense(elements: u64) -> Tensor {
    Tensor { elements, expert: false, shared_embedding: false }
}

/// A weight, and in some families a bias as wide.
fn norm(model: &Model) -> Vec<Tensor> {
    vec![dense(model.hidden); (model.norm_parameters() / model.hidden) as usize]
}

fn of_layer(step: &TrainingStep, layer: u32, order: Order, list: &mut Vec<Tensor>) {
    let (model, t) = (step.model, u64::from(step.layout.degrees.tp));
    let parts = model.parts_of(layer);
    let norms_last = order == Order::Definition && model.family.gated();
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
            list.extend([dense(router), dense(model.router_parameters().saturating_sub(router))]);
            of_experts(step, mixture.expert_feed_forward, order, list);
            let (width, whole) = (mixture.shared_feed_forward, model.shared_expert_parameters(t));
            list.extend(feed_forward(model, width, t, whole, order).into_iter().map(dense));
        }
        (Some(_), _) => {
            let whole = model.dense_feed_forward_parameters(t);
            list.extend(feed_forward(model, model.feed_forward, t, whole, order).into_iter().map(dense));
        }
        (None, _) => {}
    }
    if norms_last {
        (0..model.norms_per_layer()).for_each(|_| list.extend(norm(model)));
    }
}

/// Attention, and the norm in front of it where that does not stand behind the layer.
fn of_attention(model: &Model, t: u64, order: Order, first_norm: Vec<Tensor>, list: &mut Vec<Tensor>) {
    let output = output_projection(model, t).map(dense);
    let mut tensors = if order == Order::Megatron { output.to_vec() } else { Vec::new() };
    let whole = model.attention_parameters(t) + first_norm.iter().map(|tensor| tensor.elements).sum::<u64>();
    tensors.extend(first_norm);
    tensors.extend(inputs_of_attention(model, t, order).into_iter().map(dense));
    if order != Order::Megatron {
        tensors.extend(output);
    }
    // Sinks and other additions of a family are the last tensors.
    let counted: u64 = tensors.iter().map(|tensor| tensor.elements).sum();
    tensors.push(dense(whole.saturating_sub(counted)));
    list.extend(tensors);
}

/// Linear attention: numbers of each head stand before the modules (Megatron-LM core/ssm/gated_delta_net/common.py, mamba_mixer.py;
/// transformers, `Qwen3NextGatedDeltaNet`, `NemotronHMamba2Mixer`). Megatron-LM projects to everything at once, in front of the
/// convolution; in transformers the convolution comes first, and with the delta rule the numbers of each head have a projection of
/// their own.
fn of_linear_attention(model: &Model, t: u64, order: Order, first_norm: Vec<Tensor>, list: &mut Vec<Tensor>) {
    let parts = model.linear_attention_parameters(t);
    let apart = match (&model.linear_attention, order) {
        (Some(linear), Order::PyTorch | Order::Definition) if linear.rule == LinearRule::GatedDelta => {
            model.hidden * (linear.input_width(t) - linear.convolution_width(t) - linear.value_width(t))
        }
        _ => 0,
    };
    let [weight, bias] = parts.input;
    let input = [weight - apart, apart, bias];
    let convolution = parts.convolution;
    let (of_heads, rest) = (parts.of_heads.map(dense), [parts.norm, parts.output[0], parts.output[1]].map(dense));
    match order {
        Order::Megatron => {
            list.extend(of_heads);
            list.extend(first_norm);
            list.extend(input.map(dense));
            list.extend(convolution.map(dense));
        }
        Order::PyTorch | Order::Definition => {
            list.extend(first_norm);
            list.extend(of_heads);
            list.extend(convolution.map(dense));
            list.extend(input.map(dense));
        }
    }
    list.extend(rest);
}

/// Weight and bias of the attention's output projection.
fn output_projection(model: &Model, t: u64) -> [u64; 2] {
    let value = model.latent_attention.as_ref().map_or(model.head_dimension, |latent| latent.value_dimension);
    let bias = if model.attention_output_bias { model.hidden } else { 0 };
    [model.heads / t * value * model.hidden, bias]
}

fn inputs_of_attention(model: &Model, t: u64, order: Order) -> Vec<u64> {
    if let Some(latent) = &model.latent_attention {
        return inputs_of_latent_attention(model, latent, t);
    }
    let queries = model.projected_queries(t);
    let keys = model.kv_heads_per_rank(t) * model.head_dimension;
    let bias = |width: u64| if model.query_key_value_bias { width } else { 0 };
    let widths = match (order, model.family) {
        // GPT-2 has one module for all three (transformers, `GPT2Attention.c_attn`).
        (Order::Megatron, _) | (_, Family::Gpt2) => vec![queries + 2 * keys],
        (Order::PyTorch | Order::Definition, _) => vec![queries, keys, keys],
    };
    let mut list: Vec<u64> = widths.iter().flat_map(|width| [width * model.hidden, bias(*width)]).collect();
    list.extend(model.query_key_norm_parameters(t).into_iter().filter(|width| *width > 0));
    list
}

fn inputs_of_latent_attention(model: &Model, latent: &LatentAttention, t: u64) -> Vec<u64> {
    let (h, heads) = (model.hidden, model.heads / t);
    let bias = |width: u64| if model.query_key_value_bias { width } else { 0 };
    let queries = match latent.query_rank {
        Some(rank) => vec![h * rank, bias(rank), rank, rank * heads * model.head_dimension],
        None => vec![h * heads * model.head_dimension],
    };
    let compressed = latent.kv_rank + latent.rotary_dimension;
    let expanded = latent.kv_rank * heads * (latent.plain_dimension + latent.value_dimension);
    queries.into_iter().chain([h * compressed, bias(compressed), latent.kv_rank, expanded]).collect()
}

/// The tensors of a feed-forward of `whole` parameters on the rank: first projection or projections, bias, second, bias.
fn feed_forward(model: &Model, width: u64, t: u64, whole: u64, order: Order) -> Vec<u64> {
    if width == 0 {
        return vec![whole];
    }
    let inputs = if model.family.gated() { 2 } else { 1 };
    let (first, first_bias) = (inputs * model.hidden * width / t, inputs * width / t);
    let (first_bias, second_bias) = if model.feed_forward_bias { (first_bias, model.hidden) } else { (0, 0) };
    let second = (model.hidden * width / t).min(whole.saturating_sub(first + first_bias + second_bias));
    let others = whole.saturating_sub(first + first_bias + second + second_bias);
    let mut list = match order {
        Order::PyTorch | Order::Definition if inputs == 2 => {
            vec![first / 2, first_bias / 2, first - first / 2, first_bias - first_bias / 2]
        }
        _ => vec![first, first_bias],
    };
    list.extend([second, second_bias, others]);
    list
}

/// Routed experts: all first projections, then all second ones where they are grouped; else expert by expert.
fn of_experts(step: &TrainingStep, width: u64, order: Order, list: &mut Vec<Tensor>) {
    let (model, etp, experts) = (step.model, u64::from(step.layout.degrees.etp), step.experts_per_rank());
    let one = feed_forward(model, width, etp, model.one_expert_parameters(etp), order);
    let expert = |elements: &u64| Tensor { elements: *elements, expert: true, shared_embedding: false };
    if experts > MOST_EXPERT_TENSORS {
        list.extend(one.iter().map(|elements| expert(&(elements * experts))));
        return;
    }
    match order {
        Order::Megatron => {
            for tensor in &one {
                list.extend(std::iter::repeat_n(expert(tensor), experts as usize));
            }
        }
        Order::PyTorch | Order::Definition => (0..experts).for_each(|_| list.extend(one.iter().map(expert))),
    }
}
