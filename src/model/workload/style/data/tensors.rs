//! The parameters of a rank, tensor by tensor in the order of the model: buckets close between tensors only.
//!
//! Order and fusion are those of Megatron-LM (core/models/gpt/gpt_model.py, core/transformer/attention.py and moe/,
//! with Transformer Engine's layers, whose norms come first), or of Hugging Face transformers as PyTorch's DDP sees
//! them. `step::rank_parameters` counts the parameters; a test compares the two.

use super::mixers::{of_attention, of_linear_attention};
use super::parts::Part;
use super::tensor::{Division, Order, Role, Tensor};
use crate::config::{FeedForward, Mixer, Model};
use crate::workload::step::TrainingStep;

/// More local experts than this are treated as one grouped weight, as in grouped matrix products.
const MOST_EXPERT_TENSORS: u64 = 4096;

/// The tensors of one model chunk of a stage.
pub(super) fn of_chunk(step: &TrainingStep, stage: u32, chunk: u32, order: Order) -> Vec<Tensor> {
    let layers = step.stages.layers_of_chunk(stage, chunk);
    let (behind, within): (Vec<u32>, Vec<u32>) = layers.iter().partition(|layer| **layer >= step.model.layers);
    let mut list = Vec::new();
    if layers.contains(&0) {
        list.extend(input(step, stage));
    } else if !behind.is_empty() && !step.model.embedding.tied {
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

/// The tensors of a part of the parameters of a stage.
pub(super) fn of_part(step: &TrainingStep, stage: u32, part: &Part, order: Order) -> Vec<Tensor> {
    let chunks = (0..step.stages.chunks()).flat_map(|chunk| of_chunk(step, stage, chunk, order));
    chunks.filter(|tensor| if tensor.is_expert() { part.experts } else { part.dense }).collect()
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
    list.push(projection.divided(Division::Rows));
    of_layer(step, layer, order, list);
    list.extend(norm(step.model));
}

/// A weight, and in some families a bias as wide.
fn norm(model: &Model) -> Vec<Tensor> {
    vec![Tensor::vector(model.hidden); (model.norm_parameters() / model.hidden) as usize]
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

/// The tensors of a feed-forward of `whole` parameters on the rank: first projection or projections, bias, second, bias, and what else
/// belongs to it, such as the gate of shared experts.
fn feed_forward(model: &Model, width: u64, t: u64, whole: u64, order: Order) -> Vec<Tensor> {
    let h = model.hidden;
    if width == 0 {
        return vec![Tensor::vector(whole)];
    }
    let inputs = if model.family.gated() { 2 } else { 1 };
    let (first, first_bias) = (inputs * h * width / t, inputs * width / t);
    let (first_bias, second_bias) = if model.biases.feed_forward { (first_bias, h) } else { (0, 0) };
    let second = (h * width / t).min(whole.saturating_sub(first + first_bias + second_bias));
    let others = whole.saturating_sub(first + first_bias + second + second_bias);
    let input = |weight: u64, bias: u64| [Tensor::matrix(weight, h).divided(Division::Rows), Tensor::vector(bias)];
    let mut list = match order {
        Order::PyTorch | Order::Definition if inputs == 2 => {
            let halves = [(first / 2, first_bias / 2), (first - first / 2, first_bias - first_bias / 2)];
            halves.into_iter().flat_map(|(weight, bias)| input(weight, bias)).collect()
        }
        _ => input(first, first_bias).to_vec(),
    };
    let output = Tensor::matrix(second, (width / t).max(1)).divided(Division::Columns);
    list.extend([output, Tensor::vector(second_bias), Tensor::matrix(others, h)]);
    list
}

/// Routed experts. Megatron-LM has all first projections, then all second ones; transformers has those of a layer in one tensor each, with
/// gate and up projection in one (`MixtralExperts` and the like).
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
