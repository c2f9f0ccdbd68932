//! The tensors of attention and of linear attention, in the order of a framework.
//!
//! Megatron-LM core/transformer/attention.py, multi_latent_attention.py, core/ssm/; transformers' modules of the same names.

use super::tensor::{Division, Order, Tensor};
use crate::config::{Family, LatentAttention, LinearRule, Model};

/// Attention, and the norm in front of it where that does not stand behind the layer.
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

/// Linear attention: numbers of each head stand before the modules (Megatron-LM core/ssm/gated_delta_net/common.py, mamba_mixer.py;
/// transformers, `Qwen3NextGatedDeltaNet`, `NemotronHMamba2Mixer`). Megatron-LM projects to everything at once, in front of the
/// convolution; in transformers the convolution comes first, and with the delta rule the numbers of each head have a projection of
/// their own.
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
    let rows = |elements: u64| Tensor::matrix(elements, h).divided(Division::Rows);
    let input = [rows(weight - apart), rows(apart), Tensor::vector(bias)];
    let tokens = model.attention.linear.as_ref().map_or(1, |linear| linear.convolution_tokens);
    let convolution = [Tensor::filters(parts.convolution[0], tokens), Tensor::vector(parts.convolution[1])];
    let of_heads = parts.of_heads.map(Tensor::vector);
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
            list.extend(input);
        }
    }
    let [weight, bias] = parts.output;
    let output = Tensor::matrix(weight, (weight / h).max(1)).divided(Division::Columns);
    list.extend([Tensor::vector(parts.norm), output, Tensor::vector(bias)]);
}

/// Weight and bias of the attention's output projection.
fn output_projection(model: &Model, t: u64) -> [Tensor; 2] {
    let value = model.attention.latent.as_ref().map_or(model.attention.head_dimension, |latent| latent.value_dimension);
    let (width, bias) =
        (model.attention.heads / t * value, if model.biases.attention_output { model.hidden } else { 0 });
    [Tensor::matrix(width * model.hidden, width).divided(Division::Columns), Tensor::vector(bias)]
}

fn inputs_of_attention(model: &Model, t: u64, order: Order) -> Vec<Tensor> {
    if let Some(latent) = &model.attention.latent {
        return inputs_of_latent_attention(model, latent, t);
    }
    let queries = model.projected_queries(t);
    let keys = model.kv_heads_per_rank(t) * model.attention.head_dimension;
    let (widths, division) = match (order, model.family) {
        // GPT-2 has one module for all three (transformers, `GPT2Attention.c_attn`).
        (Order::Megatron, _) | (_, Family::Gpt2) => (vec![queries + 2 * keys], Division::QueriesKeysValues),
        (Order::PyTorch | Order::Definition, _) => (vec![queries, keys, keys], Division::Rows),
    };
    let projection = |width: u64| {
        let bias = if model.biases.query_key_value { width } else { 0 };
        [Tensor::matrix(width * model.hidden, model.hidden).divided(division), Tensor::vector(bias)]
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
            Tensor::matrix(h * rank, h),
            bias(rank),
            Tensor::vector(rank),
            Tensor::matrix(rank * heads * model.attention.head_dimension, rank).divided(Division::Rows),
        ],
        None => vec![Tensor::matrix(h * heads * model.attention.head_dimension, h).divided(Division::Rows)],
    };
    let compressed = latent.kv_rank + latent.rotary_dimension;
    let expanded = latent.kv_rank * heads * (latent.plain_dimension + latent.value_dimension);
    let keys_and_values = [
        Tensor::matrix(h * compressed, h),
        bias(compressed),
        Tensor::vector(latent.kv_rank),
        Tensor::matrix(expanded, latent.kv_rank).divided(Division::Rows),
    ];
    queries.into_iter().chain(keys_and_values).collect()
}
