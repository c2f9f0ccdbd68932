//! Data-parallel attention: each replica attends over its own requests, and the ranks of all replicas of a stage divide the rest among
//! them. Behind attention the replicas' tokens come together; behind the feed-forward each takes its own again.
//!
//! SGLang layers/dp_attention.py, layer_boundary/ops.py. The embedding is whole on every rank, and sends nothing. Experts are divided
//! or shared out among the same ranks: their sum is that of the feed-forward.

use super::calls::{at_end, op};
use super::layers::{activations, in_layers, predicted_from};
use crate::config::step::TokenExchange;
use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::step::ServingStep;
use crate::workload::style::product::product;
use crate::workload::when::{End, LayerKind};
use Collective::{AllGather, AllReduce, ReduceScatter};
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;

/// Where the calls are made.
const SOURCE: &str = "SGLang layers/dp_attention.py _dp_gather, dp_reduce_scatter_tensor";

/// The calls of one rank of a stage in a forward pass.
pub(super) fn ops(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let (own, formula) = activations(step)?;
    let d = u64::from(step.layout.degrees.dp);
    let all = product("tokens of all replicas", &[own, d])?;
    let call = |axis, collective, bytes, what: &str| {
        let times = if bytes == own { String::new() } else { format!(", d = {d} replicas: {bytes} B") };
        let why = format!("{formula}{times}: {what} ({SOURCE})");
        op(step, axis, collective, bytes, in_layers(step, stage, LayerKind::Any, 1), why)
    };
    let mut ops = match step.serving.expert.token_exchange {
        // Calls on tp are dropped where it is 1.
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
            call(Axis::TpCpDp, AllReduce, all, "sums of the feed-forward, of which each replica takes its tokens"),
        ],
    };
    if step.stages.has_output(stage) {
        ops.extend(logits(step, d)?);
    }
    Ok(ops)
}

/// The last token of every request of all replicas, and its logits from the ranks that have a part of the vocabulary each.
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
