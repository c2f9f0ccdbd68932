//! Speculative decoding: the last stage drafts tokens, which the model verifies in its next pass.
//!
//! A layer drafts from the hidden states of all tokens of the model's own pass, and then from one token at a time (vLLM
//! v1/worker/gpu/spec_decode/autoregressive/speculator.py `propose`). It is divided as the model's layers are, has the embedding before
//! it and the vocabulary behind it, and predicts one token of each request in a pass. It follows a prefill too.

use super::calls::times_at_end;
use crate::config::step::Drafter;
use crate::config::{Blocks, Mixture, Model};
use crate::workload::Op;
use crate::workload::step::{PassTokens, ServingStep, Stages};
use crate::workload::when::{End, When};
use commgauge_base::error::Result;

/// The calls of one rank of a stage: none but on the last one.
pub(super) fn ops(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let (Some(drafter), true) = (step.serving.drafts.drafter, step.stages.has_output(stage)) else {
        return Ok(Vec::new());
    };
    let Some(model) = layer_of(drafter, step.model) else { return Ok(Vec::new()) };
    let first = PassTokens { worked_on: step.tokens.worked_on, predicted_from: 1 };
    let mut ops = calls(step, &model, first, 1)?;
    let others = step.serving.drafts.tokens - 1;
    if others > 0 {
        ops.extend(calls(step, &model, PassTokens::ONE, others)?);
    }
    Ok(ops)
}

/// A model of the one layer that drafts.
fn layer_of(drafter: Drafter, model: &Model) -> Option<Model> {
    // The layer has attention, also where others have linear attention (vLLM model_executor/models/qwen3_next_mtp.py).
    let mut layer = Model { layers: 1, blocks: Blocks::Pairs, ..model.clone() };
    layer.attention.linear = None;
    match drafter {
        Drafter::Ngram => return None,
        Drafter::Eagle => layer.mixture = None,
        // The file counts prediction layers behind the others, where all have experts if any has.
        Drafter::Mtp => layer.mixture = layer.mixture.map(Mixture::in_every_layer),
    }
    Some(layer)
}

/// The calls of so many passes through the layer in each micro-batch.
fn calls(step: &ServingStep, model: &Model, tokens: PassTokens, passes: u64) -> Result<Vec<Op>> {
    let mut layout = step.layout.clone();
    layout.degrees.pp = 1;
    let drafting = ServingStep { model, layout, stages: Stages::single_layer(), tokens, ..step.clone() };
    let ops = super::forward::ops(&drafting, 0)?;
    Ok(ops.into_iter().map(|op| after_output(op, passes)).collect())
}

/// A call of the layer among those after the model's last one.
fn after_output(op: Op, passes: u64) -> Op {
    let calls = match op.when {
        When::Layer { calls_per_layer, layers, .. } => calls_per_layer * layers,
        When::MicroBatch { calls, .. } => calls,
        _ => 1,
    };
    Op { when: times_at_end(calls * passes, End::Output), why: format!("drafting: {}", op.why), ..op }
}
