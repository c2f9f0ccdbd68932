//! Parameters that every rank of a tensor-parallel group stores completely while each computes a part of their
//! gradient: which they are on a stage, and the one coalesced all_reduce of their gradients in a step.
//!
//! Megatron-LM marks them `sequence_parallel`: norms, the biases of row-parallel linears, routers, and with latent
//! attention the projections to the compressed width. Without sequence parallelism every rank has the whole gradient
//! of all of these except the norms of queries and keys, which see only the rank's own heads.

use crate::config::step::{TensorStyle, UnitRule};
use crate::config::{FeedForward, LinearAttention, Mixer, Model, QueryKeyNorm};
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::when::{End, LayerKind, Moment, Overlap, Pass, When};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;

/// The calls on tp for these gradients.
pub(super) fn ops(step: &TrainingStep, stage: u32, style: Style) -> Vec<Op> {
    match step.training.tensor.style {
        TensorStyle::DTensor if step.training.tensor.sequence_parallel => one_by_one(step, stage, style),
        _ => together(step, stage, style).into_iter().collect(),
    }
}

/// PyTorch's DTensor: the gradient of every norm alone, in every micro-batch.
fn one_by_one(step: &TrainingStep, stage: u32, style: Style) -> Vec<Op> {
    let (model, element) = (step.model, step.activation());
    let (norm, norms) = (model.norm_parameters(), model.norms_per_layer());
    let bytes = element.size() * norm;
    let op = |when, which: &str| Op {
        when,
        overlap: Overlap::Exposed,
        why: format!(
            "E*h = {} B*{norm} = {bytes} B: gradient of {which}, of which each rank has seen its part of the sequence (torch \
             distributed/fsdp/_fully_shard/_fsdp_param.py; arXiv 2205.05198 section 4.2.2)",
            element.size()
        ),
        ..Op::new(style, Axis::Tp, Collective::AllReduce, element, bytes)
    };
    let mut ops = vec![op(step.in_layers(stage, Pass::Backward, LayerKind::Any, norms), "each norm of a layer")];
    if step.stages.has_output(stage) {
        let when = When::MicroBatch { pass: Pass::Backward, end: End::Output, calls: 1, one_in: 1 };
        ops.push(op(when, "the last norm"));
    }
    ops
}

/// The all_reduce once in a step when all gradients are complete; `None` if there is nothing to reduce.
fn together(step: &TrainingStep, stage: u32, style: Style) -> Option<Op> {
    let (model, element, shards) = (step.model, element_of_sums(step), shards(step));
    let layers: Vec<u32> = step.stages.layers_stored(stage).collect();
    let (parameters, what) = if step.training.tensor.sequence_parallel {
        let norm = model.norm_parameters();
        // Layers that predict a further token have norms of both inputs, and one behind.
        let further = |layer: &u32| if *layer >= model.layers { 3 * norm } else { 0 };
        let in_layers: u64 = layers
            .iter()
            .map(|layer| model.layer_norm_parameters() + beside_norms(model, *layer) + further(layer))
            .sum();
        let behind = if step.stages.has_output(stage) { norm } else { 0 };
        let what = format!("{in_layers} in {} layers, {behind} behind the last: norms{}", layers.len(), beside(model));
        (in_layers + behind, what)
    } else {
        let of_each = query_key_norms(model);
        let attending = layers.iter().filter(|layer| model.parts_of(**layer).mixer == Some(Mixer::Attention)).count();
        (of_each * attending as u64, format!("{of_each} in each of {attending} layers: norms of queries and keys"))
    };
    let bytes = element.size() * parameters;
    (parameters > 0).then(|| Op {
        when: When::Step { moment: Moment::AfterBackward, calls: 1 },
        overlap: Overlap::Exposed,
        why: format!(
            "Eg*parameters = {} B*{parameters} = {bytes} B: gradients of what every rank of tp holds whole and computes in \
             part, {what}{shards} (Megatron-LM core/distributed/finalize_model_grads.py _allreduce_non_tensor_model_parallel_grads)",
            element.size()
        ),
        ..Op::new(style, Axis::Tp, Collective::AllReduce, element, bytes)
    })
}

/// Gradients are added up in the type in which they are reduced; those of Megatron-FSDP once they are of the type of the optimizer.
fn element_of_sums(step: &TrainingStep) -> ElementType {
    match step.training.data.units.rule {
        UnitRule::Buckets => ElementType::Float32,
        _ => step.training.data.gradient_element_type,
    }
}

/// Megatron-FSDP puts the norms of a unit behind its matrices (param_and_grad_buffer.py build_data_parallel_buffer_index).
fn shards(step: &TrainingStep) -> &'static str {
    match step.training.data.units.rule {
        UnitRule::Buckets => ", as the rank sees it whose shards have the norms; others have few of them or none",
        _ => "",
    }
}

/// Parameters of one layer, apart from its norms, that are marked `sequence_parallel`.
fn beside_norms(model: &Model, layer: u32) -> u64 {
    let (h, parts) = (model.hidden, model.parts_of(layer));
    let mixer = match parts.mixer {
        Some(Mixer::Attention) => beside_norms_of_attention(model),
        Some(Mixer::Linear) => model.attention.linear.as_ref().map_or(0, |linear| beside_norms_of_linear(linear, h)),
        None => 0,
    };
    let feed_forward = match (parts.feed_forward, &model.mixture) {
        (Some(FeedForward::Experts), Some(mixture)) => {
            model.router_parameters() + if mixture.shared_expert_gate { h } else { 0 }
        }
        (Some(_), _) if model.biases.feed_forward => h,
        _ => 0,
    };
    mixer + feed_forward
}

fn beside_norms_of_attention(model: &Model) -> u64 {
    let h = model.hidden;
    let attention = match &model.attention.latent {
        Some(latent) => {
            let queries = latent.query_rank.map_or(0, |rank| h * rank + rank);
            let indexer = model.indexer_parameters();
            queries + h * (latent.kv_rank + latent.rotary_dimension) + latent.kv_rank + indexer
        }
        None => query_key_norms(model),
    };
    attention + if model.biases.attention_output { h } else { 0 }
}

/// The norm behind the state, where all heads share it, and the bias of the output projection (Megatron-LM
/// core/ssm/gated_delta_net/common.py `out_norm`, `out_proj`). Without sequence parallelism no call has that norm's gradient.
fn beside_norms_of_linear(linear: &LinearAttention, h: u64) -> u64 {
    linear.replicated_norm_parameters() + if linear.projection_bias { h } else { 0 }
}

/// Names of the parameters apart from norms.
fn beside(model: &Model) -> String {
    [
        (model.biases.attention_output || model.biases.feed_forward, ", biases of row-parallel linears"),
        (model.attention.latent.is_some(), ", projections to the compressed width"),
        (model.mixture.is_some(), ", routers"),
    ]
    .into_iter()
    .filter_map(|(there, name)| there.then_some(name))
    .collect()
}

/// Norms over all heads are divided, as the heads are.
fn query_key_norms(model: &Model) -> u64 {
    match model.attention.query_key_norm {
        QueryKeyNorm::EachHead => 2 * model.attention.head_dimension,
        QueryKeyNorm::None | QueryKeyNorm::AllHeads => 0,
    }
}
