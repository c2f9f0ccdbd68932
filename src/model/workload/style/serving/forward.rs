//! One forward pass of a model over a batch, inside a stage: embedding, layers, experts, logits.

use super::attention::{self, activations, at_end, in_layers, op, predicted_from, times_at_end};
use crate::config::step::{Drafter, SampledTokens, ServingDispatcher};
use crate::config::{Blocks, Mixture, Model};
use crate::layout::Axis;
use crate::workload::op::{End, LayerKind, When};
use crate::workload::step::{PassTokens, Phase, ServingStep, Stages};
use crate::workload::style::deep_ep::{Direction, ELEMENTS_PER_SCALE, Library, Load, NodeExchange};
use crate::workload::style::product::product;
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::geometry::Splits;
use commgauge_base::units::Bytes;

/// The calls inside a stage in one forward pass of a model.
pub(super) fn ops(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    if step.joins_replicas() { attention::joined_ops(step, stage) } else { of_replica(step, stage) }
}

/// The calls on tp and ep if each replica has the whole model.
fn of_replica(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let mut ops = attention::context_ops(step, stage)?;
    if step.layout.degrees.tp > 1 {
        if step.stages.has_input(stage) {
            ops.extend(reduced(step, embedding(step)?)?);
        }
        for call in layers(step, stage)? {
            ops.extend(reduced(step, call)?);
        }
    }
    if step.layout.degrees.ep > 1 && !step.experts_are_reduced_on_tp() {
        ops.extend(experts_ops(step, stage)?);
    }
    ops.extend(attention::restored(step, stage)?);
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

/// The outputs of the row-parallel linears; experts divided by tp are reduced with the shared ones, like a dense feed-forward. Linear
/// attention ends with a row-parallel linear like attention (vLLM model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py, mamba_mixer2.py,
/// `out_proj`).
fn layers(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let (bytes, formula) = activations(step)?;
    let cache = match step.phase {
        Phase::Prefill => String::new(),
        Phase::Decode => format!(
            "; the same for a context of {} tokens as for any other: keys and values{} stay with their heads",
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
    let mixers: &[LayerKind] = match step.model.blocks {
        Blocks::Pairs => &[LayerKind::Any],
        Blocks::Single { .. } => &[LayerKind::AttentionAlone, LayerKind::LinearAlone],
    };
    let feed_forward = call(LayerKind::Dense, 1, "output of the feed-forward of layers without experts");
    Ok(mixers.iter().map(|kind| call(*kind, 1, mixer)).chain([feed_forward]).collect())
}

/// Only the last token of a request is sampled, so a prefill gathers no more than a decode.
fn logits(step: &ServingStep) -> Result<Op> {
    let (element, t) = (step.serving.activation_element_type.size(), u64::from(step.layout.degrees.tp));
    let (from, padded) = (predicted_from(step)?, step.padded_vocabulary());
    let bytes = product("logits", &[element, from.rows, padded])?;
    let why = format!(
        "E*{}*V = {element} B*{}*{padded} = {bytes} B, with one part on each of {t} ranks: logits of the {}, vocabulary padded \
         from {} (vLLM model_executor/layers/logits_processor.py)",
        from.symbol, from.numbers, from.which, step.model.embedding.vocabulary
    );
    Ok(op(step, Axis::Tp, Collective::AllGather, bytes, at_end(End::Output), why))
}

// Speculative decoding: the last stage drafts tokens, which the model verifies in its next pass.
//
// A layer drafts from the hidden states of all tokens of the model's own pass, and then from one token at a time (vLLM
// v1/worker/gpu/spec_decode/autoregressive/speculator.py `propose`). It is divided like the model's layers, with the embedding before it
// and the vocabulary after it, and predicts one token of each request per pass. It follows a prefill too.

/// The calls of one rank of a stage: only on the last one.
pub(super) fn drafts_ops(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
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

/// A model with only the layer that drafts.
fn layer_of(drafter: Drafter, model: &Model) -> Option<Model> {
    // The layer has attention, even if others have linear attention (vLLM model_executor/models/qwen3_next_mtp.py).
    let mut layer = Model { layers: 1, blocks: Blocks::Pairs, ..model.clone() };
    layer.attention.linear = None;
    match drafter {
        Drafter::Ngram => return None,
        Drafter::Eagle => layer.mixture = None,
        // The file counts prediction layers after the others, where all have experts if any has.
        Drafter::Mtp => layer.mixture = layer.mixture.map(Mixture::in_every_layer),
    }
    Some(layer)
}

/// The calls of this many passes through the layer in each micro-batch.
fn calls(step: &ServingStep, model: &Model, tokens: PassTokens, passes: u64) -> Result<Vec<Op>> {
    let mut layout = step.layout.clone();
    layout.degrees.pp = 1;
    let drafting = ServingStep { model, layout, stages: Stages::single_layer(), tokens, ..step.clone() };
    let ops = ops(&drafting, 0)?;
    Ok(ops.into_iter().map(|op| after_output(op, passes)).collect())
}

/// A call of the layer after the model's last one.
fn after_output(op: Op, passes: u64) -> Op {
    let calls = match op.when {
        When::Layer { calls_per_layer, layers, .. } => calls_per_layer * layers,
        When::MicroBatch { calls, .. } => calls,
        _ => 1,
    };
    Op { when: times_at_end(calls * passes, End::Output), why: format!("drafting: {}", op.why), ..op }
}

// Distribution of the tokens sampled by the last stage to the other stages.

pub(super) fn sampled_ops(step: &ServingStep) -> Result<Vec<Op>> {
    match step.serving.boundary.sampled {
        SampledTokens::Broadcast => broadcasts(step),
        SampledTokens::Ring => ring(step),
    }
}

/// The first stage needs the tokens for the next pass and the numbers of sampled and rejected tokens per request; with drafts, also the
/// next drafts.
fn broadcasts(step: &ServingStep) -> Result<Vec<Op>> {
    let (requests, drafted) = (step.requests(), step.serving.drafts.tokens);
    let from = predicted_from(step)?;
    let (r, numbers) = (from.symbol, &from.numbers);
    let call = |element: ElementType, factors: &[u64], formula: &str, what: &str| -> Result<Op> {
        let bytes = product(what, factors)?;
        let why =
            format!("{formula} = {bytes} B: {what} from the last stage to all others (vLLM v1/worker/gpu/pp_utils.py)");
        let root = step.layout.degrees.pp - 1;
        Ok(Op { root, element, ..op(step, Axis::Pp, Collective::Broadcast, bytes, at_end(End::Whole), why) })
    };
    let formula = format!("8 B*{r} = 8 B*{numbers}");
    let counts = format!("4 B*2*r = 4 B*2*{requests} requests");
    let mut ops = vec![
        call(ElementType::Int64, &[8, from.rows], &formula, "sampled tokens")?,
        call(ElementType::Int32, &[4, 2, requests], &counts, "numbers of tokens sampled and rejected")?,
    ];
    if drafted > 0 {
        let formula = format!("8 B*r*K = 8 B*{requests} requests*{drafted}");
        ops.push(call(ElementType::Int64, &[8, requests, drafted], &formula, "drafted tokens")?);
    }
    Ok(ops)
}

/// The last stage sends the tokens to the first, and each stage those of the previous micro-batch to the next, around to the last. Ranks of
/// tp send a part each, as for activations, if their number divides that of the requests. Drafts are refused.
fn ring(step: &ServingStep) -> Result<Vec<Op>> {
    let (element, requests, t) = (ElementType::Int32, step.requests(), u64::from(step.layout.degrees.tp));
    let whole = product("sampled tokens", &[element.size(), requests])?;
    let cut = step.serving.boundary.scatter_gather && t > 1 && requests.is_multiple_of(t);
    let (bytes, part) = match cut {
        true => (whole / t, format!(", of which each of {t} ranks sends a part = {} B", whole / t)),
        false => (whole, String::new()),
    };
    let formula = format!("4 B*r = 4 B*{requests} requests = {whole} B");
    let source = "SGLang managers/scheduler_pp_mixin.py _pp_send_output_to_next_stage";
    let call = |axis: Axis, collective: Collective, bytes: u64, what: String| {
        let why = format!("{formula}: {what} ({source})");
        Op { element, ..op(step, axis, collective, bytes, at_end(End::Whole), why) }
    };
    let what = format!("sampled tokens to the next stage, around to the last{part}");
    let mut ops = vec![call(Axis::Pp, Collective::SendRecv, bytes, what)];
    if cut {
        let what = "parts of sampled tokens received by the ranks of tp, gathered".to_owned();
        ops.push(call(Axis::Tp, Collective::AllGather, whole, what));
    }
    Ok(ops)
}

// Exchanges of experts in serving: every rank of ep has whole experts, and tokens choose evenly.
//
// Ranks of tp have the same tokens. Each sends its share of them to their experts, or to all ranks, and the results are
// gathered.

/// The calls of one rank of a stage in a forward pass.
pub(super) fn experts_ops(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let Some(mixture) = &step.model.mixture else { return Ok(Vec::new()) };
    let mut ops = match step.serving.expert.dispatcher {
        ServingDispatcher::AllGather => all_gather(step, stage, mixture)?,
        ServingDispatcher::DeepEp => by_node(step, stage, mixture)?,
        ServingDispatcher::DeepEpLowLatency => low_latency(step, stage, mixture)?,
        _ => all_to_all(step, stage, mixture)?,
    };
    if step.layout.degrees.tp > 1 && !step.experts_take_whole_tokens() {
        ops.push(gathered(step, stage)?);
    }
    Ok(ops)
}

/// Every rank gathers all tokens with their choices, and the sums over the experts of all ranks are scattered. If ranks of tp give all of
/// their tokens, ranks of one place in each replica do so among each other.
fn all_gather(step: &ServingStep, stage: u32, mixture: &Mixture) -> Result<Vec<Op>> {
    let d = &step.layout.degrees;
    let (tokens, h, k) = (step.tokens_per_micro_batch(), step.model.hidden, mixture.experts_per_token);
    let gathering = match step.experts_take_whole_tokens() {
        true => Gathering {
            axis: Axis::Dp,
            ranks: d.dp.into(),
            each: tokens,
            of: "N*d",
            which: format!(
                "N = {tokens} tokens, whole (expert_tokens; vLLM's file of the model in model_executor/models has no is_sequence_parallel)"
            ),
        },
        false => {
            let each = tokens.div_ceil(d.tp.into());
            let which = format!("n = ceil({tokens} tokens/t {})", d.tp);
            Gathering { axis: Axis::Ep, ranks: d.ep.into(), each, of: "n*e", which }
        }
    };
    let Gathering { axis, ranks, each, of, which } = &gathering;
    let element = step.serving.activation_element_type;
    let source = "vLLM distributed/device_communicators/all2all.py AgRsAll2AllManager";
    let call = |collective, element: ElementType, width: u64, name: &str, what: &str| -> Result<Op> {
        let bytes = product(what, &[element.size(), *each, *ranks, width])?;
        let size = element.size();
        Ok(Op {
            when: in_layers(step, stage, LayerKind::Experts, 1),
            why: format!(
                "{size} B*{of}*{name} = {size} B*{each}*{ranks}*{width} = {bytes} B with {which}: {what} ({source})"
            ),
            ..Op::new(Style::Serving, *axis, collective, element, bytes)
        })
    };
    use Collective::{AllGather, ReduceScatter};
    Ok(vec![
        call(AllGather, element, h, "h", "tokens of all ranks")?,
        call(AllGather, ElementType::Float32, k, "K", "weights of their choices")?,
        call(AllGather, ElementType::Int32, k, "K", "experts of their choices")?,
        call(ReduceScatter, element, h, "h", "sums over the experts of all ranks")?,
    ])
}

/// The data that each rank gathers from all of them.
struct Gathering {
    axis: Axis,
    ranks: u64,
    /// Tokens given by each.
    each: u64,
    /// All tokens, in symbols, and the tokens of one rank.
    of: &'static str,
    which: String,
}

/// Tokens are sent to the ranks of their experts and back.
fn all_to_all(step: &ServingStep, stage: u32, mixture: &Mixture) -> Result<Vec<Op>> {
    let (t, e) = (u64::from(step.layout.degrees.tp), u64::from(step.layout.degrees.ep));
    let (tokens, h, k) = (step.tokens_per_micro_batch(), step.model.hidden, mixture.experts_per_token);
    let share = tokens.div_ceil(t);
    let sent = product("tokens sent to experts", &[share, k])?;
    let element = step.serving.activation_element_type;
    let source = "Megatron-LM core/transformer/moe/token_dispatcher.py MoEAlltoAllTokenDispatcher";
    let call = |collective, element: ElementType, bytes, splits, why: String| Op {
        when: in_layers(step, stage, LayerKind::Experts, 1),
        splits,
        why: format!("{why} ({source})"),
        ..Op::new(Style::Serving, Axis::Ep, collective, element, bytes)
    };
    let counts = product("tokens of every expert", &[8, mixture.experts, e])?;
    let hidden = product("tokens sent to experts", &[element.size(), sent, h])?;
    let chosen = format!("N*K = ceil({tokens} tokens/t {t})*{k}");
    let moved = format!("E*N*K*h = {} B*{sent}*{h} = {hidden} B with {chosen}", element.size());
    let spread = || splits(sent, e);
    Ok(vec![
        call(
            Collective::AllGather,
            ElementType::Int64,
            counts,
            Splits::Equal,
            format!("8 B*experts*e = 8 B*{}*{e} = {counts} B: number of tokens of each expert", mixture.experts),
        ),
        call(Collective::AllToAllV, element, hidden, spread(), format!("{moved}: tokens to their experts")),
        call(
            Collective::AllToAllV,
            ElementType::Float32,
            4 * sent,
            spread(),
            format!("4 B*N*K = {} B with {chosen}: weights of the choices", 4 * sent),
        ),
        call(Collective::AllToAllV, element, hidden, spread(), format!("{moved}: results back to their tokens")),
    ])
}

/// Every rank of tp receives the results of all.
fn gathered(step: &ServingStep, stage: u32) -> Result<Op> {
    let (t, element) = (u64::from(step.layout.degrees.tp), step.serving.activation_element_type);
    let (_, formula) = activations(step)?;
    let share = step.tokens_per_micro_batch().div_ceil(t);
    let bytes = product("results of experts", &[element.size(), share, t, step.model.hidden])?;
    Ok(Op {
        when: in_layers(step, stage, LayerKind::Experts, 1),
        why: format!(
            "{formula}, {share} tokens from each of {t} ranks = {bytes} B: results of the experts, after each rank sent its share (vLLM model_executor/models/deepseek_v2.py, is_sequence_parallel)"
        ),
        ..Op::new(Style::Serving, Axis::Tp, Collective::AllGather, element, bytes)
    })
}

// Exchanges of experts by DeepEP in serving: through nodes, for throughput, or straight to each expert, for low latency
// (csrc/kernels/legacy/internode_ll.cu).

/// Precedes each token that goes straight to an expert: its source, and reserved bytes (`sizeof(int4)`).
const HEADER_BYTES: u64 = 16;

/// Every token once to each node with one of its experts.
pub(super) fn by_node(step: &ServingStep, stage: u32, mixture: &Mixture) -> Result<Vec<Op>> {
    let share = share_of_tp(step);
    let exchange = NodeExchange::new(Library::DeepEp, mixture, &step.layout, share, step.model.hidden);
    let (dispatched, activation) = (step.serving.expert.dispatch_element_type, step.serving.activation_element_type);
    let calls = [
        exchange.counts()?,
        exchange.hops(Direction::ToExperts, dispatched, Load::TokenWithChoices)?,
        exchange.hops(Direction::Back, activation, Load::Token)?,
    ];
    let op = |call: crate::workload::style::deep_ep::NodeCall| Op {
        when: in_layers(step, stage, LayerKind::Experts, 1),
        why: format!("{} (DeepEP deep_ep/buffers/legacy.py dispatch, combine)", call.why),
        ..Op::new(Style::Serving, call.axis, call.collective, call.element, call.bytes)
    };
    Ok(calls.into_iter().flatten().map(op).collect())
}

/// Every token straight to each of its experts and back.
pub(super) fn low_latency(step: &ServingStep, stage: u32, mixture: &Mixture) -> Result<Vec<Op>> {
    let (e, h, k) = (u64::from(step.layout.degrees.ep), step.model.hidden, mixture.experts_per_token);
    let (tokens, share) = (step.tokens_per_micro_batch(), share_of_tp(step));
    let sent = product("tokens sent to experts", &[share, k])?;
    let dispatched = step.serving.expert.dispatch_element_type;
    let scales = if dispatched.moves_only() { 4 * h.div_ceil(ELEMENTS_PER_SCALE) } else { 0 };
    let (there, back) = (HEADER_BYTES + h * dispatched.size() + scales, 2 * h);
    let op = |collective, element: ElementType, bytes, splits, why: String| Op {
        when: in_layers(step, stage, LayerKind::Experts, 1),
        splits,
        why,
        ..Op::new(Style::Serving, Axis::Ep, collective, element, bytes)
    };
    let chosen = format!("N*K = ceil({tokens} tokens/t {})*{k}", step.layout.degrees.tp);
    let messages = |bytes| product("tokens sent to experts", &[sent, bytes]);
    let (bytes_there, bytes_back) = (messages(there)?, messages(back)?);
    let scales = if scales > 0 { format!(" + {scales} B of scales") } else { String::new() };
    let experts = mixture.experts;
    let tokens = format!(
        "{chosen} messages of {HEADER_BYTES} + h*E = {h}*{}{scales} = {there} B = {bytes_there} B: a token straight to each of its \
         experts (DeepEP internode_ll.cu, num_bytes_per_msg)",
        dispatched.size()
    );
    let counts = format!(
        "4 B*experts = 4*{experts} = {} B: number of tokens that follow for each expert (DeepEP internode_ll.cu, rdma_recv_count)",
        4 * experts
    );
    let results = format!(
        "{chosen} messages of 2 B*h = 2*{h} = {back} B = {bytes_back} B: results in bfloat16 (DeepEP internode_ll.cu, combine)"
    );
    Ok(vec![
        op(Collective::AllToAllV, ElementType::Uint8, bytes_there, splits(sent, e), tokens),
        op(Collective::AllToAll, ElementType::Int32, 4 * experts, Splits::Equal, counts),
        op(Collective::AllToAllV, ElementType::Uint8, bytes_back, splits(sent, e), results),
    ])
}

/// Tokens that a rank sends: its share of those that all ranks of tp have.
fn share_of_tp(step: &ServingStep) -> u64 {
    step.tokens_per_micro_batch().div_ceil(u64::from(step.layout.degrees.tp))
}

// An all_reduce of few bits: each rank quantises its part for every other one and sends it, sums the received parts, and sends the
// quantised sum to all (vLLM csrc/quickreduce/quick_reduce_impl.cuh, `AllReduceTwoshot` and its codecs; arXiv 2306.10209 section 3.3).
// Blocks of 32 numbers have one scale of two bytes. The kernels write straight to the other ranks' memory; as calls they are an all_to_all
// and an all_gather.

/// Numbers with one scale.
const BLOCK: u64 = 32;

const SCALE_BYTES: u64 = 2;

/// The call unchanged, or its replacement for sums of few bits.
pub(super) fn reduced(step: &ServingStep, call: Op) -> Result<Vec<Op>> {
    let Some(bits) = step.serving.reduction_bits else { return Ok(vec![call]) };
    let t = u64::from(step.layout.degrees.tp);
    let blocks = (call.bytes_total.0 / call.element.size()).div_ceil(BLOCK).div_ceil(t);
    let block = BLOCK * u64::from(bits) / 8 + SCALE_BYTES;
    let bytes = product("quantised sums", &[t, blocks, block])?;
    let formula = format!(
        "t*blocks*(32*{bits}/8 + 2) = {t}*{blocks}*{block} = {bytes} B, blocks of 32 numbers of each rank's part"
    );
    let source = "vLLM csrc/quickreduce/quick_reduce_impl.cuh AllReduceTwoshot";
    let of = |collective, what: &str| Op {
        collective,
        element: ElementType::Uint8,
        reduce_op: None,
        bytes_total: Bytes(bytes),
        why: format!("{formula}: {what} in {bits} bits ({source}); replaces {}", call.why),
        ..call.clone()
    };
    Ok(vec![of(Collective::AllToAll, "parts to sum"), of(Collective::AllGather, "sums")])
}

// The division of tokens over the ranks that have the experts.

/// As even as whole tokens allow: the first ranks receive one more.
pub(super) fn splits(sent: u64, ranks: u64) -> Splits {
    if sent.is_multiple_of(ranks) {
        return Splits::Equal;
    }
    Splits::Given((0..ranks).map(|rank| sent / ranks + u64::from(rank < sent % ranks)).collect())
}
