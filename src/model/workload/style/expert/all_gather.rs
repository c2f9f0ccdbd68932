//! The all-gather dispatcher: every rank gathers all tokens, selects those of its experts, and results are
//! reduce-scattered.
//!
//! Megatron-LM core/transformer/moe/token_dispatcher.py, `MoEAllGatherTokenDispatcher`. Bytes do not depend on the
//! routing. The routing map is a byte for each token and expert; results are reduced in the type of the probabilities
//! (`router_element_type`).

use super::layer::{Call, ExpertLayer, Factor};
use crate::workload::Op;
use crate::workload::when::Pass;
use Collective::{AllGather, ReduceScatter};
use ElementType::Uint8;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

pub(super) fn ops(layer: &ExpertLayer) -> Result<Vec<Op>> {
    let (activation, axis) = (layer.step.activation(), layer.axis_of_all());
    let router = layer.step.training.expert.router_element_type;
    let tokens =
        [Factor("N", layer.tokens), Factor("e", layer.ep), Factor("etp", layer.etp), Factor("h", layer.hidden)];
    let choices = [
        Factor("N", layer.tokens),
        Factor("e", layer.ep),
        Factor("etp", layer.etp),
        Factor("experts", layer.mixture.experts),
    ];
    let mut ops = Vec::new();
    for pass in layer.forward_passes() {
        let op = |collective, element, what, factors: &[_]| {
            layer.op(Call { pass, axis, collective, element, what }, factors)
        };
        ops.push(op(AllGather, Uint8, "which token goes to which expert (token_dispatcher.py)", &choices)?);
        ops.push(op(AllGather, router, "probabilities of all experts (token_dispatcher.py)", &choices)?);
        ops.push(op(AllGather, activation, "tokens of all ranks (token_dispatcher.py, token_permutation)", &tokens)?);
        let what = "sum over the experts of all ranks, in the type of the probabilities (token_dispatcher.py, token_unpermutation)";
        ops.push(op(ReduceScatter, router, what, &tokens)?);
    }
    let op = |collective, element, what, factors: &[_]| {
        layer.op(Call { pass: Pass::Backward, axis, collective, element, what }, factors)
    };
    ops.push(op(AllGather, router, "backward of the sum over the experts", &tokens)?);
    ops.push(op(ReduceScatter, activation, "backward of the gather of tokens", &tokens)?);
    ops.push(op(ReduceScatter, router, "backward of the gather of probabilities", &choices)?);
    Ok(ops)
}
