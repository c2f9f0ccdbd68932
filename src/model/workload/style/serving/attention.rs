//! Attention over tokens that several ranks shard: the context of a decode among ranks of tp, or a prompt among those of cp.
//!
//! In a decode (vLLM's decode context parallelism, model_executor/layers/attention, `cp_lse_ag_out_rs` in v1/attention/ops/dcp.py) each
//! rank of dcp gathers the queries of all, attends with them to its own tokens, and the outputs are summed with weights from all sums of
//! exponentials; or both go to the ranks that have the heads (`dcp_a2a_lse_reduce`, same file). SGLang uses calls of other sizes
//! (sglang/srt/layers/dcp/comm.py). In a prefill (vLLM-Ascend attention/context_parallel) each rank of cp gathers the keys and values of
//! all tokens for its own queries, and the last stage gathers the hidden states.

use crate::config::step::{DecodeContextExchange, Drafter, TokenExchange};
use crate::config::{Mixer, Model};
use crate::layout::Axis;
use crate::workload::op::{End, LayerKind, Pass, When};
use crate::workload::step::{Phase, ServingStep};
use crate::workload::style::product::product;
use crate::workload::{Op, Style};
use Collective::{AllGather, AllReduce, ReduceScatter};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};

/// The calls inside the layers of a stage.
pub(super) fn context_ops(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
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

/// Queries to all; then sums of exponentials to all, and outputs reduced and scattered, or both to the ranks of their heads.
fn decode(step: &ServingStep, stage: u32, kind: LayerKind) -> Result<Vec<Op>> {
    let (model, dcp, t) = (step.model, u64::from(step.serving.decode_context.ranks), u64::from(step.layout.degrees.tp));
    let (tokens, heads) = (step.tokens_per_micro_batch(), model.attention.heads / t * dcp);
    // Latent attention sends queries to the ranks of the latent keys, which return its outputs.
    let (query, output) = match &model.attention.latent {
        Some(latent) => (latent.kv_rank + latent.rotary_dimension, latent.kv_rank),
        None => (model.attention.head_dimension, model.attention.head_dimension),
    };
    let activation = step.serving.activation_element_type;
    let exchange = step.serving.decode_context.exchange;
    let source = match exchange {
        DecodeContextExchange::ReduceScatter => "vLLM v1/attention/ops/dcp.py cp_lse_ag_out_rs",
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
    let queries = call(Collective::AllGather, activation, query, queries, "queries of the ranks that shard a context")?;
    let gathered = || {
        let (formula, what) = ("4*N*(a/t*dcp)*dcp", "sums of exponentials of all of them");
        call(Collective::AllGather, ElementType::Float32, dcp, formula, what)
    };
    let whole =
        |collective, element| call(collective, element, output, outputs, "outputs of attention, weighted and summed");
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
        (DecodeContextExchange::Packed, _) => {
            // A sum of 4 bytes replaces as many numbers as fit into it.
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

/// The hidden states of whole prompts, on the last stage; the last token's gives the next one.
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

/// Tokens of a micro-batch on all ranks of cp.
fn whole_prompts(step: &ServingStep) -> Result<u64> {
    product("tokens of prompts", &[step.requests(), step.serving.prompt_tokens])
}

// Data-parallel attention: each replica attends over its own requests, and the ranks of all replicas of a stage divide the rest. After
// attention the replicas' tokens are joined; after the feed-forward each replica keeps its own.
//
// SGLang layers/dp_attention.py, layer_boundary/ops.py. The embedding is whole on every rank, and sends nothing. Experts are divided or
// distributed over the same ranks: their sum is that of the feed-forward.

/// Source of the calls.
const JOINED_SOURCE: &str = "SGLang layers/dp_attention.py _dp_gather, dp_reduce_scatter_tensor";

/// The calls of one rank of a stage in a forward pass.
pub(super) fn joined_ops(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let (own, formula) = activations(step)?;
    let d = u64::from(step.layout.degrees.dp);
    let all = product("tokens of all replicas", &[own, d])?;
    let call = |axis, collective, bytes, what: &str| {
        let times = if bytes == own { String::new() } else { format!(", d = {d} replicas: {bytes} B") };
        let why = format!("{formula}{times}: {what} ({JOINED_SOURCE})");
        op(step, axis, collective, bytes, in_layers(step, stage, LayerKind::Any, 1), why)
    };
    let mut ops = match step.serving.expert.token_exchange {
        // Calls on tp are dropped if tp is 1.
        TokenExchange::AllGather => vec![
            call(Axis::Tp, ReduceScatter, own, "sum of attention's parts, each rank its tokens"),
            call(Axis::TpCpDp, AllGather, all, "tokens of all replicas, for the feed-forward"),
            call(Axis::TpCpDp, ReduceScatter, all, "sums of the feed-forward, each rank its tokens"),
            call(Axis::Tp, AllGather, own, "the replica's tokens from its ranks"),
        ],
        TokenExchange::AllReduce => vec![
            call(
                Axis::TpCpDp,
                AllReduce,
                all,
                "tokens of all replicas with the sum of attention's parts, for the feed-forward",
            ),
            call(Axis::TpCpDp, AllReduce, all, "sums of the feed-forward, from which each replica keeps its tokens"),
        ],
    };
    if step.stages.has_output(stage) {
        ops.extend(logits(step, d)?);
    }
    Ok(ops)
}

/// The last token of every request of all replicas, and its logits from the ranks that each have a part of the vocabulary.
fn logits(step: &ServingStep, d: u64) -> Result<[Op; 2]> {
    let element = step.serving.activation_element_type.size();
    let (from, h, padded) = (predicted_from(step)?, step.model.hidden, step.padded_vocabulary());
    let hidden = product("last tokens", &[element, from.rows, d, h])?;
    let words = product("logits", &[element, from.rows, d, padded])?;
    let (symbol, numbers, which) = (from.symbol, from.numbers, from.which);
    let source = "SGLang layers/logits_processor.py dp_gather_replicate, without enable_dp_lm_head";
    let hidden_why =
        format!("E*{symbol}*d*h = {element} B*{numbers}*{d}*{h} = {hidden} B: {which} of all replicas ({source})");
    let words_why = format!(
        "E*{symbol}*d*V = {element} B*{numbers}*{d}*{padded} = {words} B: their logits, vocabulary padded from {} ({source})",
        step.model.embedding.vocabulary
    );
    Ok([
        op(step, Axis::TpCpDp, AllReduce, hidden, at_end(End::Output), hidden_why),
        op(step, Axis::TpCpDp, AllGather, words, at_end(End::Output), words_why),
    ])
}

// Keys and values sent from the replicas that prefill to those that decode.
//
// Each rank sends what it stores of a prompt to the rank with the same place in a replica that decodes: its heads of keys and values, or
// the latent ones of low-rank attention, which are whole on every rank (vLLM distributed/kv_transfer/kv_connector/v1/nixl/base_worker.py
// reads the blocks of a request from all layers after its pass, as SGLang srt/disaggregation/prefill.py `send_kv_chunk` and TensorRT-LLM
// batch_manager/cacheTransceiver.cpp do; vLLM model_executor/models/deepseek_v2.py `DeepseekV32IndexerCache`).

/// The data of one request and layer that a rank sends to a decoding rank, in one tensor.
struct Stored {
    element: ElementType,
    bytes: u64,
    formula: String,
}

/// The calls of one rank of a stage, in a prefill whose requests are decoded elsewhere: one message per request, after the pass.
pub(super) fn kv_transfer_ops(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    if !step.serving.kv.transfer || step.phase == Phase::Decode {
        return Ok(Vec::new());
    }
    let mut of_layers: Vec<(u64, Mixer)> =
        mixers_of(step, stage).into_iter().map(|(kind, mixer)| (layers_of(step, stage, kind), mixer)).collect();
    if drafts(step, stage) {
        of_layers.push((1, Mixer::Attention));
    }
    let (mut parts, mut bytes, mut element) = (Vec::new(), 0u64, step.serving.kv.element_type);
    for (layers, mixer) in of_layers {
        for stored in stored(step, mixer)? {
            let what = "keys and values of a request";
            let more = product(what, &[layers, stored.bytes])?;
            bytes = bytes.checked_add(more).ok_or_else(|| Error::usage(format!("{what}: does not fit 64 bits")))?;
            parts.push(format!("{layers} layers*({})", stored.formula));
            // Tensors of several types are sent as bytes.
            element = if stored.element == element { element } else { ElementType::Uint8 };
        }
    }
    if bytes == 0 {
        return Ok(Vec::new());
    }
    let sum = if parts.len() > 1 { format!(" = {bytes} B in total") } else { format!(" = {bytes} B") };
    let why =
        format!("{}{sum}: of each request, read by {} ({KV_TRANSFER_SOURCE})", parts.join(" + "), receivers(step));
    Ok(vec![message(step, element, bytes, times_at_end(messages(step)?, End::Whole), why)])
}

/// Decoding ranks per prefilling rank, each of which gets a part of its heads, or everything that is whole on every rank: as many as the
/// degree of tp is larger there (vLLM distributed/kv_transfer/kv_connector/utils.py `get_target_remote_ranks`).
fn receivers_of_a_rank(step: &ServingStep) -> u64 {
    let decoding = step.serving.kv.decode_tp.unwrap_or(step.layout.degrees.tp);
    u64::from((decoding / step.layout.degrees.tp).max(1))
}

/// Messages of a rank for one tensor of the requests of a micro-batch.
fn messages(step: &ServingStep) -> Result<u64> {
    product("messages", &[step.requests(), receivers_of_a_rank(step)])
}

/// The receivers, in words.
fn receivers(step: &ServingStep) -> String {
    match receivers_of_a_rank(step) {
        1 => "the rank that decodes it".to_owned(),
        several => format!("{several} ranks that decode it, shown as if to the one with the same place"),
    }
}

const KV_TRANSFER_SOURCE: &str = "vLLM distributed/kv_transfer/kv_connector/v1";

fn message(step: &ServingStep, element: ElementType, bytes: u64, when: When, why: String) -> Op {
    Op { element, ..op(step, Axis::PrefillDecode, Collective::SendRecvChain, bytes, when, why) }
}

/// The drafting layer stores keys and values like the others.
fn drafts(step: &ServingStep, stage: u32) -> bool {
    matches!(step.serving.drafts.drafter, Some(Drafter::Eagle | Drafter::Mtp)) && step.stages.has_output(stage)
}

/// Data that a rank stores per request and layer for the prompt.
fn stored(step: &ServingStep, mixer: Mixer) -> Result<Vec<Stored>> {
    let (model, element) = (step.model, step.serving.kv.element_type);
    let (tokens, size) = (step.serving.prompt_tokens, element.size());
    // The larger of the two degrees determines the size of the parts.
    let t = u64::from(step.layout.degrees.tp.max(step.serving.kv.decode_tp.unwrap_or(1)));
    if let (Mixer::Linear, Some(linear)) = (mixer, &model.attention.linear) {
        let state = linear.state_elements(t);
        let bytes = product("state of a request", &[size, state])?;
        return Ok(vec![Stored { element, bytes, formula: format!("state {size} B*{state} = {bytes} B") }]);
    }
    let (bytes, formula) = keys_and_values(model, t, element, tokens, "S")?;
    let mut stored = vec![Stored { element, bytes, formula }];
    if let Some(indexer) = &model.attention.indexer {
        let width = indexer.head_dimension;
        // An 8-bit key, and a 32-bit scale per 128 of its numbers.
        let bytes = product("keys of the indexer", &[tokens, width + 4 * width.div_ceil(128)])?;
        let formula = format!("S*({width} + 4*{}) = {bytes} B of the indexer's keys", width.div_ceil(128));
        stored.push(Stored { element: ElementType::Uint8, bytes, formula });
    }
    Ok(stored)
}

// A call of a serving step, and the position of those at the ends of the model.

/// A call with the activations' type, exposed.
pub(super) fn op(step: &ServingStep, axis: Axis, collective: Collective, bytes: u64, when: When, why: String) -> Op {
    Op { when, why, ..Op::new(Style::Serving, axis, collective, step.serving.activation_element_type, bytes) }
}

/// Once in the forward pass of a micro-batch, at an end of the model.
pub(super) fn at_end(end: End) -> When {
    times_at_end(1, end)
}

/// This many times in the forward pass of a micro-batch, at an end of the model.
pub(super) fn times_at_end(calls: u64, end: End) -> When {
    When::MicroBatch { pass: Pass::Forward, end, calls, one_in: 1 }
}

// Calls and sizes of the layers of a stage in a forward pass over requests.

/// Calls in every layer of a kind of a stage, in one forward pass of every micro-batch.
pub(super) fn in_layers(step: &ServingStep, stage: u32, kind: LayerKind, calls_per_layer: u64) -> When {
    When::Layer { pass: Pass::Forward, kind, calls_per_layer, layers: layers_of(step, stage, kind) }
}

pub(super) fn layers_of(step: &ServingStep, stage: u32, kind: LayerKind) -> u64 {
    step.stages.layers_passed(stage).filter(|layer| kind.has(step.model.parts_of(*layer))).count() as u64
}

/// Kinds of layers of a stage that mix tokens, and their mixer.
pub(super) fn mixers_of(step: &ServingStep, stage: u32) -> Vec<(LayerKind, Mixer)> {
    let kinds = match &step.model.attention.linear {
        None => &[LayerKind::Any],
        Some(_) => LayerKind::of_equal_layers(step.model),
    };
    let of_stage = || step.stages.layers_passed(stage).map(|layer| step.model.parts_of(layer));
    let mixer = |kind: &LayerKind| Some((*kind, of_stage().find(|parts| kind.has(*parts))?.mixer?));
    kinds.iter().filter_map(mixer).collect()
}

/// Bytes of the activations of a micro-batch, E tokens h, and the formula with its numbers.
pub(super) fn activations(step: &ServingStep) -> Result<(u64, String)> {
    let (element, tokens, h) =
        (step.serving.activation_element_type.size(), step.tokens_per_micro_batch(), step.model.hidden);
    let bytes = product("activations", &[element, tokens, h])?;
    Ok((bytes, format!("E*tokens*h = {element} B*{}*{h} = {bytes} B", tokens_formula(step))))
}

/// Bytes that a rank stores for `symbol` tokens in a layer with attention, and the formula with its numbers: its heads of keys and values
/// if `t` ranks divide them, or the latent ones of low-rank attention, whole on every rank.
pub(super) fn keys_and_values(
    model: &Model,
    t: u64,
    element: ElementType,
    tokens: u64,
    symbol: &str,
) -> Result<(u64, String)> {
    let size = element.size();
    if let Some(latent) = &model.attention.latent {
        let (rank, rotary) = (latent.kv_rank, latent.rotary_dimension);
        let bytes = product("latent keys and values", &[size, tokens, rank + rotary])?;
        let formula = format!("E*{symbol}*(kv_lora_rank + rope) = {size} B*{tokens}*({rank} + {rotary}) = {bytes} B");
        return Ok((bytes, formula));
    }
    let (heads, width) = (model.kv_heads_per_rank(t), model.attention.head_dimension);
    let bytes = product("keys and values", &[2, size, tokens, heads, width])?;
    Ok((bytes, format!("2*E*{symbol}*max(1, k/t)*hd = 2*{size} B*{tokens}*{heads}*{width} = {bytes} B")))
}

/// Formula of the tokens of a micro-batch, with numbers.
fn tokens_formula(step: &ServingStep) -> String {
    match step.tokens.worked_on {
        1 => format!("({} requests*1 token)", step.requests()),
        tokens => format!("({} requests*{tokens} tokens)", step.requests()),
    }
}

/// The tokens of a micro-batch whose successor is predicted: r, or r (1 + K) with K drafts.
///
/// # Errors
/// If they are more than any machine has.
pub(super) fn predicted_from(step: &ServingStep) -> Result<PredictedFrom> {
    let (requests, each) = (step.requests(), step.tokens.predicted_from);
    let rows = product("tokens to predict from", &[requests, each])?;
    Ok(match each {
        1 => PredictedFrom {
            rows,
            symbol: "r",
            numbers: format!("{requests} requests"),
            which: "last token of every request",
        },
        _ => PredictedFrom {
            rows,
            symbol: "r*(1+K)",
            numbers: format!("({requests} requests*{each} tokens)"),
            which: "last and drafted tokens of every request",
        },
    })
}

/// Tokens whose successor is predicted, in numbers and words.
pub(super) struct PredictedFrom {
    pub rows: u64,
    pub symbol: &'static str,
    pub numbers: String,
    pub which: &'static str,
}
