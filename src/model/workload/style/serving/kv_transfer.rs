//! Keys and values on their way from the replicas that prefill to those that decode.
//!
//! Each rank sends what it stores of a prompt to the rank of the same place in a replica that decodes: its heads of keys and values, or what
//! low-rank attention keeps in their place, which is whole on every rank (vLLM
//! distributed/kv_transfer/kv_connector/v1/p2p/p2p_nccl_connector.py `save_kv_layer` (before 0.33), one tensor of all tokens for each request and layer;
//! nixl/base_worker.py reads the blocks of a request from all layers behind its pass; model_executor/models/deepseek_v2.py
//! `DeepseekV32IndexerCache`).

use super::calls::{op, times_at_end};
use super::layers::{in_layers, keys_and_values, layers_of, mixers_of};
use crate::config::Mixer;
use crate::config::step::{Drafter, KvTransfer};
use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::step::{Phase, ServingStep};
use crate::workload::style::product::product;
use crate::workload::when::{End, Overlap, When};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};

/// What a rank sends of one request and layer to a rank that decodes, in one tensor.
struct Stored {
    element: ElementType,
    bytes: u64,
    formula: String,
}

/// The calls of one rank of a stage: none but in a prefill whose requests are decoded elsewhere.
pub(super) fn ops(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    match (step.serving.kv.transfer, step.phase) {
        (Some(KvTransfer::Layer), Phase::Prefill) => by_layer(step, stage),
        (Some(KvTransfer::Request), Phase::Prefill) => by_request(step, stage),
        (None, _) | (_, Phase::Decode) => Ok(Vec::new()),
    }
}

/// One message for each request and tensor as a layer is done.
fn by_layer(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let (messages, mut ops) = (messages(step)?, Vec::new());
    for (kind, mixer) in mixers_of(step, stage) {
        for stored in stored(step, mixer)? {
            let why = format!("{}: of each request and layer, sent to {} ({SOURCE})", stored.formula, receivers(step));
            let when = in_layers(step, stage, kind, messages);
            ops.push(Op { overlap: Overlap::NextLayers, ..message(step, stored.element, stored.bytes, when, why) });
        }
    }
    if drafts(step, stage) {
        for stored in stored(step, Mixer::Attention)? {
            let why = format!("{}: of each request and the layer that drafts ({SOURCE})", stored.formula);
            ops.push(message(step, stored.element, stored.bytes, times_at_end(messages, End::Output), why));
        }
    }
    Ok(ops)
}

/// One message for each request, behind the pass.
fn by_request(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
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
            bytes = bytes.checked_add(more).ok_or_else(|| Error::usage(format!("{what}: more than 64 bits count")))?;
            parts.push(format!("{layers} layers*({})", stored.formula));
            // Tensors of several types leave as bytes.
            element = if stored.element == element { element } else { ElementType::Uint8 };
        }
    }
    if bytes == 0 {
        return Ok(Vec::new());
    }
    let sum = if parts.len() > 1 { format!(" = {bytes} B in all") } else { format!(" = {bytes} B") };
    let why = format!("{}{sum}: of each request, read by {} ({SOURCE})", parts.join(" + "), receivers(step));
    Ok(vec![message(step, element, bytes, times_at_end(messages(step)?, End::Whole), why)])
}

/// Ranks that decode for each that prefills, each of which gets a part of its heads, or all of what every rank keeps whole: as many as the degree
/// of tp is larger there (vLLM distributed/kv_transfer/kv_connector/utils.py `get_target_remote_ranks`).
fn receivers_of_a_rank(step: &ServingStep) -> u64 {
    let decoding = step.serving.kv.decode_tp.unwrap_or(step.layout.degrees.tp);
    u64::from((decoding / step.layout.degrees.tp).max(1))
}

/// Messages of a rank for one tensor of the requests of a micro-batch.
fn messages(step: &ServingStep) -> Result<u64> {
    product("messages", &[step.requests(), receivers_of_a_rank(step)])
}

/// To whom they go, in words.
fn receivers(step: &ServingStep) -> String {
    match receivers_of_a_rank(step) {
        1 => "the rank that decodes it".to_owned(),
        several => format!("{several} ranks that decode it, shown as if to the one of the same place"),
    }
}

const SOURCE: &str = "vLLM distributed/kv_transfer/kv_connector/v1";

fn message(step: &ServingStep, element: ElementType, bytes: u64, when: When, why: String) -> Op {
    Op { element, ..op(step, Axis::PrefillDecode, Collective::SendRecvChain, bytes, when, why) }
}

/// The drafting layer stores keys and values as the others do.
fn drafts(step: &ServingStep, stage: u32) -> bool {
    matches!(step.serving.drafts.drafter, Some(Drafter::Eagle | Drafter::Mtp)) && step.stages.has_output(stage)
}

/// What a rank stores of the prompt of one request in one layer.
fn stored(step: &ServingStep, mixer: Mixer) -> Result<Vec<Stored>> {
    let (model, element) = (step.model, step.serving.kv.element_type);
    let (tokens, size) = (step.serving.prompt_tokens, element.size());
    // Of two degrees the larger one says how small the parts are.
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
        // A key in 8 bits, and a scale in 32 for every 128 of its numbers.
        let bytes = product("keys of the indexer", &[tokens, width + 4 * width.div_ceil(128)])?;
        let formula = format!("S*({width} + 4*{}) = {bytes} B of the indexer's keys", width.div_ceil(128));
        stored.push(Stored { element: ElementType::Uint8, bytes, formula });
    }
    Ok(stored)
}
