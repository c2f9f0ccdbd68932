//! Dispatchers that send a token once to each node with an expert of it: DeepEP and HybridEP, as Megatron-LM calls them
//! (core/transformer/moe/fused_a2a.py). The exchanges of the backward pass repeat those of the forward pass with the sides changed,
//! on what the forward pass has found out about where tokens go.

use super::layer::ExpertLayer;
use crate::workload::Op;
use crate::workload::style::deep_ep::Direction::{Back, ToExperts};
use crate::workload::style::deep_ep::Load::{Token, TokenWithChoices, TokenWithWeights};
use crate::workload::style::deep_ep::{Library, NodeCall, NodeExchange};
use crate::workload::when::Pass;
use commgauge_base::error::Result;

pub(super) fn ops(layer: &ExpertLayer, library: Library) -> Result<Vec<Op>> {
    let exchange = NodeExchange::new(library, layer.mixture, &layer.step.layout, layer.tokens, layer.hidden);
    let (dispatched, activation) = (layer.step.training.expert.dispatch_element_type, layer.step.activation());
    let mut ops = Vec::new();
    let mut add = |pass, calls: Vec<NodeCall>, what: &str| {
        ops.extend(calls.into_iter().map(|call| layer.node_op(pass, call, what)));
    };
    for pass in layer.forward_passes() {
        add(pass, exchange.counts()?, "(Megatron-LM core/transformer/moe/fused_a2a.py)");
        let what = "dispatch, tokens to their experts (fused_a2a.py FusedDispatch.forward)";
        add(pass, exchange.hops(ToExperts, dispatched, TokenWithChoices)?, what);
        let what = "combine, sums over the experts of a rank and then of a node to where the tokens came from, never in 8 bits \
                    (fused_a2a.py FusedCombine.forward)";
        add(pass, exchange.hops(Back, activation, Token)?, what);
    }
    let pass = Pass::Backward;
    let what = "combine backward, gradients of the results to the experts (fused_a2a.py FusedCombine.backward)";
    add(pass, exchange.hops(ToExperts, dispatched, Token)?, what);
    let what = "dispatch backward, gradients of tokens and weights to where they came from (fused_a2a.py FusedDispatch.backward)";
    add(pass, exchange.hops(Back, activation, TokenWithWeights)?, what);
    Ok(ops)
}
