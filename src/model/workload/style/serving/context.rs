//! Attention over tokens that several ranks share out: the context of a decode among ranks of tp, or a prompt among those of cp.
//!
//! In a decode (vLLM's decode context parallelism, model_executor/layers/attention, `cp_lse_ag_out_rs` in v1/attention/ops/dcp.py) each
//! rank of dcp gathers the queries of all, attends with them to its own tokens, and the outputs are added up with the weights that follow
//! from everybody's sums of exponentials; or both go to the ranks that have the heads (`dcp_a2a_lse_reduce`, there). SGLang does it in calls of other sizes (sglang/srt/layers/dcp/comm.py). In a prefill (vLLM-Ascend attention/context_parallel) each rank of cp gathers the keys and values
//! of all tokens for its own queries, and the last stage gathers the hidden states.

use super::calls::{at_end, op};
use super::layers::{in_layers, keys_and_values, mixers_of};
use crate::config::Mixer;
use crate::config::step::DecodeContextExchange;
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
            Phase::Decode if step.serving.decode_context.ranks > 1 => ops.extend(decode(step, stage, kind)?),
            Phase::Prefill if step.layout.degrees.cp > 1 => ops.push(prefill(step, stage, kind)?),
            Phase::Decode | Phase::Prefill => {}
        }
    }
    Ok(ops)
}

/// Queries to all; then sums of exponentials to all, and outputs added up and parted again, or both to the ranks of their heads.
fn decode(step: &ServingStep, stage: u32, kind: LayerKind) -> Result<Vec<Op>> {
    let (model, dcp, t) = (step.model, u64::from(step.serving.decode_context.ranks), u64::from(step.layout.degrees.tp));
    let (tokens, heads) = (step.tokens_per_micro_batch(), model.attention.heads / t * dcp);
    // Latent attention takes queries to where the latent keys are, and its outputs come from there.
    let (query, output) = match &model.attention.latent {
        Some(latent) => (latent.kv_rank + latent.rotary_dimension, latent.kv_rank),
        None => (model.attention.head_dimension, model.attention.head_dimension),
    };
    let activation = step.serving.activation_element_type;
    let exchange = step.serving.decode_context.exchange;
    let source = match exchange {
        DecodeContextExchange::ReduceScatter => "vLLM v1/attention/ops/dcp.py cp_lse_ag_out_rs",
        DecodeContextExchange::AllToAll => "arXiv 2507.07120; vLLM before 0.33 dcp_alltoall.py dcp_a2a_lse_reduce",
        DecodeContextExchange::Packed => "vLLM v1/attention/ops/dcp.py dcp_a2a_lse_reduce; SGLang layers/dcp/comm.py",
        DecodeContextExchange::HeadSums => "SGLang layers/dcp/comm.py cp_lse_ag_out_rs_mla, cp_lse_ag_out_rs_mha",
    };
    let call = |collective, element: ElementType, width: u64, formula: &str, what: &str| -> Result<Op> {
        let bytes = product(what, &[element.size(), tokens, heads, width])?;
        let why = format!("{formula} = {} B*{tokens}*{heads}*{width} = {bytes} B: {what} ({source})", element.size());
        let when = in_layers(step, stage, kind, 1);
        Ok(Op { element, ..op(step, Axis::Dcp, collective, bytes, when, why) })
    };
    let (queries, outputs) = match model.attention.latent {
        Some(_) => ("E*N*(a/t*dcp)*(kv_lora_rank + rope)", "E*N*(a/t*dcp)*kv_lora_rank"),
        None => ("E*N*(a/t*dcp)*hd", "E*N*(a/t*dcp)*hd"),
    };
    let queries =
        call(Collective::AllGather, activation, query, queries, "queries of the ranks that share out a context")?;
    let sums =
        |collective, width, formula: &str, what: &str| call(collective, ElementType::Float32, width, formula, what);
    let gathered = || sums(Collective::AllGather, dcp, "4*N*(a/t*dcp)*dcp", "sums of exponentials of all of them");
    let whole =
        |collective, element| call(collective, element, output, outputs, "outputs of attention, weighed and added up");
    let apart = "outputs of attention over a part of the context, to the ranks of their heads";
    Ok(match (exchange, &model.attention.latent) {
        (DecodeContextExchange::ReduceScatter, _) => {
            vec![queries, gathered()?, whole(Collective::ReduceScatter, activation)?]
        }
        (DecodeContextExchange::HeadSums, Some(_)) => {
            vec![queries, gathered()?, whole(Collective::ReduceScatter, ElementType::Float32)?]
        }
        (DecodeContextExchange::HeadSums, None) => {
            vec![queries, gathered()?, whole(Collective::AllReduce, activation)?]
        }
        (DecodeContextExchange::AllToAll, _) => vec![
            queries,
            call(Collective::AllToAll, activation, output, outputs, apart)?,
            sums(Collective::AllToAll, 1, "4*N*(a/t*dcp)", "their sums of exponentials, to the same ranks")?,
        ],
        (DecodeContextExchange::Packed, _) => {
            // A sum of 4 bytes takes the place of as many numbers as that is.
            let with_sum = output + ElementType::Float32.size().div_ceil(activation.size());
            let formula = match model.attention.latent {
                Some(_) => "E*N*(a/t*dcp)*(kv_lora_rank + 4/E)",
                None => "E*N*(a/t*dcp)*(hd + 4/E)",
            };
            let what = "outputs of attention over a part of the context, each with its sum of exponentials, to the ranks of their heads";
            vec![queries, call(Collective::AllToAll, activation, with_sum, formula, what)?]
        }
    })
}

/// Keys and values of all tokens.
fn prefill(step: &ServingStep, stage: u32, kind: LayerKind) -> Result<Op> {
    let (element, t) = (step.serving.activation_element_type, u64::from(step.layout.degrees.tp));
    let (bytes, formula) = keys_and_values(step.model, t, element, whole_prompts(step)?, "N")?;
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
