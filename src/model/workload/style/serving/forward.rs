//! One forward pass of a model over a batch, inside a stage: embedding, layers, experts, logits.

use super::calls::{at_end, op};
use super::context;
use super::experts;
use super::joined;
use super::layers::{activations, in_layers, predicted_from};
use super::quantised;
use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::step::{Phase, ServingStep};
use crate::workload::style::product::product;
use crate::workload::when::{End, LayerKind};
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;

/// The calls inside a stage in one forward pass of a model.
pub(super) fn ops(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    if step.joins_replicas() { joined::ops(step, stage) } else { of_replica(step, stage) }
}

/// The calls on tp and ep where each replica has the whole model.
fn of_replica(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let mut ops = context::ops(step, stage)?;
    if step.layout.degrees.tp > 1 {
        if step.stages.has_input(stage) {
            ops.extend(quantised::reduced(step, embedding(step)?)?);
        }
        for call in layers(step, stage)? {
            ops.extend(quantised::reduced(step, call)?);
        }
    }
    if step.layout.degrees.ep > 1 && !step.experts_are_reduced_on_tp() {
        ops.extend(experts::ops(step, stage)?);
    }
    ops.extend(context::restored(step, stage)?);
    if step.layout.degrees.tp > 1 && step.stages.has_output(stage) {
        ops.push(logits(step)?);
    }
    Ok(ops)
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
            if step.model.attention.linear.is_some() { ", and states of linear attention," } else { "" }
        ),
    };
    let source = "arXiv 1909.08053 section 3; vLLM model_executor/layers/linear.py RowParallelLinear";
    let call = |kind, calls, what: &str| {
        let why = format!("{formula}: {what}{cache} ({source})");
        op(step, Axis::Tp, Collective::AllReduce, bytes, in_layers(step, stage, kind, calls), why)
    };
    let (both, mixer) = match step.model.attention.linear {
        None => ("outputs of attention and feed-forward", "output of attention"),
        Some(_) => {
            ("outputs of attention, linear attention and feed-forward", "output of attention or linear attention")
        }
    };
    if step.experts_are_reduced_on_tp() || step.experts_take_whole_tokens() {
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
        from.symbol, from.numbers, from.which, step.model.embedding.vocabulary
    );
    Ok(op(step, Axis::Tp, Collective::AllGather, bytes, at_end(End::Output), why))
}
