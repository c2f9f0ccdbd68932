//! Exchanges of experts by DeepEP while a model serves: by way of nodes, for throughput, or straight to each expert, for low latency
//! (csrc/kernels/legacy/internode_ll.cu).

use super::layers::in_layers;
use super::splits::splits;
use crate::config::Mixture;
use crate::layout::Axis;
use crate::workload::step::ServingStep;
use crate::workload::style::deep_ep::{Direction, ELEMENTS_PER_SCALE, Library, Load, NodeExchange};
use crate::workload::style::product::product;
use crate::workload::when::{LayerKind, Overlap};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::geometry::Splits;

/// In front of each token that goes straight to an expert: where it comes from, and what is reserved (`sizeof(int4)`).
const HEADER_BYTES: u64 = 16;

/// Every token once to each node with an expert of it.
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
        overlap: Overlap::Exposed,
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
        overlap: Overlap::Exposed,
        splits,
        why,
        ..Op::new(Style::Serving, Axis::Ep, collective, element, bytes)
    };
    let chosen = format!("N*K = ceil({tokens} tokens/t {})*{k}", step.layout.degrees.tp);
    let messages = |bytes| product("tokens sent to experts", &[sent, bytes]);
    let (bytes_there, bytes_back) = (messages(there)?, messages(back)?);
    let scales = if scales > 0 { format!(" + {scales} B of scales") } else { String::new() };
    Ok(vec![
        op(
            Collective::AllToAllV,
            ElementType::Uint8,
            bytes_there,
            splits(sent, e),
            format!(
                "{chosen} messages of {HEADER_BYTES} + h*E = {h}*{}{scales} = {there} B = {bytes_there} B: a token straight to each of its \
                 experts (DeepEP internode_ll.cu, num_bytes_per_msg)",
                dispatched.size()
            ),
        ),
        op(
            Collective::AllToAll,
            ElementType::Int32,
            4 * mixture.experts,
            Splits::Equal,
            format!(
                "4 B*experts = 4*{} = {} B: how many tokens follow for each expert (DeepEP internode_ll.cu, rdma_recv_count)",
                mixture.experts,
                4 * mixture.experts
            ),
        ),
        op(
            Collective::AllToAllV,
            ElementType::Uint8,
            bytes_back,
            splits(sent, e),
            format!(
                "{chosen} messages of 2 B*h = 2*{h} = {back} B = {bytes_back} B: results in bfloat16 (DeepEP internode_ll.cu, combine)"
            ),
        ),
    ])
}

/// Tokens that a rank sends: its share of those that the ranks of tp all have.
fn share_of_tp(step: &ServingStep) -> u64 {
    step.tokens_per_micro_batch().div_ceil(u64::from(step.layout.degrees.tp))
}
