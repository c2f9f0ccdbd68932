//! The communications of a model that serves requests: one forward pass over the prompts of a batch, or over one
//! further token of every request.
//!
//! Nothing here depends on the length of the context: a rank stores the keys and values of its own heads, and the states of its own
//! heads of linear attention; attention over them sends nothing. The exchanges of experts are in `experts`.

mod calls;
mod deep_ep;
mod drafts;
#[cfg(test)]
mod drafts_tests;
mod experts;
mod joined;
mod layers;
mod sampled;
mod splits;
#[cfg(test)]
mod tests;

use super::product::product;
use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::step::{Phase, ServingStep};
use crate::workload::when::{End, LayerKind, Pass, When};
use calls::{at_end, op};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use layers::{activations, in_layers, predicted_from};

/// The calls of one rank of a stage in a forward pass.
pub(super) fn ops(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let mut ops: Vec<Op> = agreement(step).into_iter().collect();
    ops.extend(pass(step, stage)?);
    ops.extend(drafts::ops(step, stage)?);
    if step.layout.degrees.pp > 1 {
        ops.extend(boundary(step, stage)?);
        ops.extend(sampled::ops(step)?);
    }
    Ok(ops)
}

/// The calls inside a stage in one forward pass of a model.
fn pass(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    if step.joins_replicas() { joined::ops(step, stage) } else { of_replica(step, stage) }
}

/// The calls on tp and ep where each replica has the whole model.
fn of_replica(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let mut ops = Vec::new();
    if step.layout.degrees.tp > 1 {
        if step.stages.has_input(stage) {
            ops.push(embedding(step)?);
        }
        ops.extend(layers(step, stage)?);
    }
    if step.layout.degrees.ep > 1 && !step.experts_are_reduced_on_tp() {
        ops.extend(experts::ops(step, stage)?);
    }
    if step.layout.degrees.tp > 1 && step.stages.has_output(stage) {
        ops.push(logits(step)?);
    }
    Ok(ops)
}

/// Tokens, padded tokens, and two flags of every replica.
fn agreement(step: &ServingStep) -> Option<Op> {
    let (element, replicas) = (ElementType::Int32, u64::from(step.layout.degrees.dp));
    let bytes = 4 * element.size() * replicas;
    let why = format!(
        "4*4 B*d = 4*4 B*{replicas} = {bytes} B: tokens of each replica with and without padding, and how it runs them (vLLM \
         v1/worker/dp_utils.py _run_ar; over NCCL only without disable_nccl_for_dp_synchronization)"
    );
    step.serving
        .batch_agreement
        .then(|| Op { element, ..op(step, Axis::Dp, Collective::AllReduce, bytes, at_end(End::Whole), why) })
}

fn embedding(step: &ServingStep) -> Result<Op> {
    let (bytes, formula) = activations(step)?;
    let why = format!(
        "{formula}: vocabulary-parallel embedding (vLLM model_executor/layers/vocab_parallel_embedding.py; Megatron-LM \
         core/tensor_parallel/layers.py)"
    );
    Ok(op(step, Axis::Tp, Collective::AllReduce, bytes, at_end(End::Input), why))
}

/// The outputs of the row-parallel linears; experts that tp divides are reduced with the shared ones, as a dense
/// feed-forward is. Linear attention ends with a row-parallel linear as attention does (vLLM
/// model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py, mamba_mixer2.py, `out_proj`).
fn layers(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let (bytes, formula) = activations(step)?;
    let cache = match step.phase {
        Phase::Prefill => String::new(),
        Phase::Decode => format!(
            "; the same for a context of {} tokens as for any other: keys and values{} stay where their heads are",
            step.serving.context_tokens,
            if step.model.linear_attention.is_some() { ", and states of linear attention," } else { "" }
        ),
    };
    let source = "arXiv 1909.08053 section 3; vLLM model_executor/layers/linear.py RowParallelLinear";
    let call = |kind, calls, what: &str| {
        let why = format!("{formula}: {what}{cache} ({source})");
        op(step, Axis::Tp, Collective::AllReduce, bytes, in_layers(step, stage, kind, calls), why)
    };
    let (both, mixer) = match step.model.linear_attention {
        None => ("outputs of attention and feed-forward", "output of attention"),
        Some(_) => {
            ("outputs of attention, linear attention and feed-forward", "output of attention or linear attention")
        }
    };
    if step.experts_are_reduced_on_tp() {
        return Ok(vec![call(LayerKind::Any, step.model.blocks_per_layer(), both)]);
    }
    Ok(vec![
        call(LayerKind::Any, 1, mixer),
        call(LayerKind::Dense, 1, "output of the feed-forward of layers without experts"),
    ])
}

/// Only the last token of a request is sampled from, so that a prefill gathers no more than a decode.
fn logits(step: &ServingStep) -> Result<Op> {
    let (element, t) = (step.serving.activation_element_type.size(), u64::from(step.layout.degrees.tp));
    let (from, padded) = (predicted_from(step)?, step.padded_vocabulary());
    let bytes = product("logits", &[element, from.rows, padded])?;
    let why = format!(
        "E*{}*V = {element} B*{}*{padded} = {bytes} B, of which each of {t} ranks has one part: logits of the {}, vocabulary padded \
         from {} (vLLM model_executor/layers/logits_processor.py)",
        from.symbol, from.numbers, from.which, step.model.vocabulary
    );
    Ok(op(step, Axis::Tp, Collective::AllGather, bytes, at_end(End::Output), why))
}

/// Messages to the next stage, and where each rank of tp sends its part only, what the receivers gather.
fn boundary(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let (whole, formula) = activations(step)?;
    let (t, tensors) = (u64::from(step.layout.degrees.tp), step.serving.boundary_tensors);
    // A tensor that tp does not divide is sent whole.
    let elements = whole / step.serving.activation_element_type.size();
    let cut = step.serving.scatter_gather && t > 1 && elements.is_multiple_of(t);
    let bytes = if cut { whole / t } else { whole };
    let sends = if stage + 1 < step.stages.count() { step.serving.micro_batches * tensors } else { 0 };
    let what = match (tensors, cut) {
        (1, false) => "activations to the next stage".to_owned(),
        (1, true) => format!("activations to the next stage, of which each of {t} ranks sends a part = {bytes} B"),
        (_, false) => "hidden state, and residual, to the next stage".to_owned(),
        (_, true) => format!(
            "hidden state, and residual, to the next stage, of which each of {t} ranks sends a part = {bytes} B"
        ),
    };
    let source = "vLLM distributed/parallel_state.py send_tensor_dict; arXiv 2104.04473 section 2.2";
    let why = format!("{formula}: {what}, {} micro-batches in a pass ({source})", step.serving.micro_batches);
    let when = When::Boundary { pass: Pass::Forward, sends_per_step: sends };
    let mut ops = vec![op(step, Axis::Pp, Collective::SendRecvChain, bytes, when, why)];
    if cut && stage > 0 {
        let what = "parts that the ranks of tp received, put together";
        let why = format!("{formula}: {what} (vLLM distributed/parallel_state.py recv_tensor_dict, all_gather_group)");
        let when = When::MicroBatch { pass: Pass::Forward, end: End::Whole, calls: tensors, one_in: 1 };
        ops.push(op(step, Axis::Tp, Collective::AllGather, whole, when, why));
    }
    Ok(ops)
}
