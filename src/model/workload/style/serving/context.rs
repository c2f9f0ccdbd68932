//! Attention over tokens that several ranks share out: the context of a decode among ranks of tp, or a prompt among those of cp.
//!
//! In a decode (vLLM's decode context parallelism, model_executor/layers/attention, `cp_lse_ag_out_rs` in v1/attention/ops/common.py) each
//! rank of dcp gathers the queries of all, attends with them to its own tokens, and the outputs are added up with the weights that follow
//! from everybody's sums of exponentials. In a prefill (vLLM-Ascend attention/context_parallel) each rank of cp gathers the keys and values
//! of all tokens for its own queries, and the last stage gathers the hidden states.

use super::calls::{at_end, op};
use super::layers::{in_layers, keys_and_values, mixers_of};
use crate::config::Mixer;
use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::step::{Phase, ServingStep};
use crate::workload::style::product::product;
use crate::workload::when::{End, LayerKind};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

/// The calls inside the layers of a stage.
pub(super) fn ops(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let with_attention = mixers_of(step, stage).into_iter().filter(|(_, mixer)| *mixer == Mixer::Attention);
    let mut ops = Vec::new();
    for (kind, _) in with_attention {
        match step.phase {
            Phase::Decode if step.serving.decode_context > 1 => ops.extend(decode(step, stage, kind)?),
            Phase::Prefill if step.layout.degrees.cp > 1 => ops.push(prefill(step, stage, kind)?),
            Phase::Decode | Phase::Prefill => {}
        }
    }
    Ok(ops)
}

/// Queries to all, sums of exponentials to all, and outputs added up and parted again.
fn decode(step: &ServingStep, stage: u32, kind: LayerKind) -> Result<[Op; 3]> {
    let (model, dcp, t) = (step.model, u64::from(step.serving.decode_context), u64::from(step.layout.degrees.tp));
    let (tokens, heads) = (step.tokens_per_micro_batch(), model.heads / t * dcp);
    // Latent attention takes queries to where the latent keys are, and its outputs come from there.
    let (query, output) = match &model.latent_attention {
        Some(latent) => (latent.kv_rank + latent.rotary_dimension, latent.kv_rank),
        None => (model.head_dimension, model.head_dimension),
    };
    let activation = step.serving.activation_element_type;
    let call = |collective, element: ElementType, width: u64, formula: &str, what: &str| -> Result<Op> {
        let bytes = product(what, &[element.size(), tokens, heads, width])?;
        let why = format!(
            "{formula} = {} B*{tokens}*{heads}*{width} = {bytes} B: {what} (vLLM v1/attention/ops/common.py cp_lse_ag_out_rs)",
            element.size()
        );
        let when = in_layers(step, stage, kind, 1);
        Ok(Op { element, ..op(step, Axis::Dcp, collective, bytes, when, why) })
    };
    let (queries, outputs) = match model.latent_attention {
        Some(_) => ("E*N*(a/t*dcp)*(kv_lora_rank + rope)", "E*N*(a/t*dcp)*kv_lora_rank"),
        None => ("E*N*(a/t*dcp)*hd", "E*N*(a/t*dcp)*hd"),
    };
    Ok([
        call(Collective::AllGather, activation, query, queries, "queries of the ranks that share out a context")?,
        call(
            Collective::AllGather,
            ElementType::Float32,
            dcp,
            "4*N*(a/t*dcp)*dcp",
            "sums of exponentials of all of them",
        )?,
        call(Collective::ReduceScatter, activation, output, outputs, "outputs of attention, weighed and added up")?,
    ])
}

/// Keys and values of all tokens.
fn prefill(step: &ServingStep, stage: u32, kind: LayerKind) -> Result<Op> {
    let (bytes, formula) = keys_and_values(step, step.serving.activation_element_type, whole_prompts(step)?, "N")?;
    let why = format!("{formula}: keys and values of all tokens (vLLM-Ascend attention/context_parallel)");
    Ok(op(step, Axis::Cp, Collective::AllGather, bytes, in_layers(step, stage, kind, 1), why))
}

/// The hidden states of whole prompts, on the last stage, of which the last token's gives the next one.
pub(super) fn restored(step: &ServingStep, stage: u32) -> Result<Option<Op>> {
    if step.phase != Phase::Prefill || step.layout.degrees.cp == 1 || !step.stages.has_output(stage) {
        return Ok(None);
    }
    let (size, tokens, h) = (step.serving.activation_element_type.size(), whole_prompts(step)?, step.model.hidden);
    let bytes = product("hidden states", &[size, tokens, h])?;
    let why = format!(
        "E*N*h = {size} B*{tokens}*{h} = {bytes} B: hidden states of whole prompts (vLLM-Ascend worker/pcp_utils.py \
         restore_hidden_states)"
    );
    Ok(Some(op(step, Axis::Cp, Collective::AllGather, bytes, at_end(End::Output), why)))
}

/// Tokens of a micro-batch, of all ranks of cp.
fn whole_prompts(step: &ServingStep) -> Result<u64> {
    product("tokens of prompts", &[step.requests(), step.serving.prompt_tokens])
}
