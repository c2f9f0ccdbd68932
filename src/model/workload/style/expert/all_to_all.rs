//! The all-to-all dispatcher: tokens are sent to the ranks of their experts, and the outputs of the experts are sent
//! back.
//!
//! Megatron-LM core/transformer/moe/token_dispatcher.py, `MoEAlltoAllTokenDispatcher`. It exchanges among the ranks of
//! ep; if experts are divided as well, their ranks gather what each received, and reduce the outputs in the type of
//! the probabilities (`router_element_type`; float32 is `--moe-router-dtype fp32`, which its documentation recommends). Every
//! call of the forward pass has its mirror image in the backward pass, except the counts, which are stored.

use super::layer::{Call, ExpertLayer, Factor, Way};
use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::when::Pass;
use ElementType::{Float32, Int64};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

/// Elements that share a scale where tokens travel in 8 bits (arXiv 2412.19437 section 3.3.2).
const ELEMENTS_PER_SCALE: u64 = 128;

/// Data sent with each copy of a token: its elements, the scales of 8-bit ones, and the probability of its expert.
struct Parts {
    dispatched: ElementType,
    router: ElementType,
    scales: Option<u64>,
}

pub(super) fn ops(layer: &ExpertLayer) -> Result<Vec<Op>> {
    let dispatched = layer.step.training.expert.dispatch_element_type;
    let router = layer.step.training.expert.router_element_type;
    let scales = dispatched.moves_only().then(|| layer.hidden.div_ceil(ELEMENTS_PER_SCALE));
    let parts = Parts { dispatched, router, scales };
    let mut ops = Vec::new();
    for pass in layer.forward_passes() {
        ops.extend(forward(layer, &parts, pass)?);
    }
    ops.extend(backward(layer, &parts)?);
    Ok(ops)
}

fn forward(layer: &ExpertLayer, parts: &Parts, pass: Pass) -> Result<Vec<Op>> {
    let call = |element, what| Call { pass, axis: Axis::Ep, collective: Collective::AllToAllV, element, what };
    let counts = Call {
        pass,
        axis: layer.axis_of_all(),
        collective: Collective::AllGather,
        element: Int64,
        what: "how many tokens each rank has for each expert; the host must have the counts before it can issue the exchange, so \
               all wait for it (Megatron-LM core/transformer/moe/token_dispatcher.py, preprocess)",
    };
    let experts = layer.mixture.experts;
    let mut ops =
        vec![layer.op(counts, &[Factor("etp", layer.etp), Factor("e", layer.ep), Factor("experts", experts)])?];
    let dispatch = call(
        parts.dispatched,
        "dispatch, tokens to their experts (Megatron-LM core/transformer/moe/token_dispatcher.py, dispatch_all_to_all)",
    );
    ops.push(layer.exchange(dispatch, Factor("h", layer.hidden), Way::ToExperts)?);
    if let Some(scales) = parts.scales {
        ops.push(layer.exchange(call(Float32, SCALES), Factor("h/128", scales), Way::ToExperts)?);
    }
    let probabilities = call(
        parts.router,
        "dispatch of the probabilities (Megatron-LM core/transformer/moe/token_dispatcher.py, dispatch_all_to_all)",
    );
    ops.push(layer.exchange(probabilities, Factor("1", 1), Way::ToExperts)?);
    if layer.etp > 1 {
        ops.extend(forward_within_experts(layer, parts, pass)?);
    }
    let combine = call(
        layer.step.activation(),
        "combine, results to where the tokens came from, never in 8 bits (Megatron-LM core/transformer/moe/token_dispatcher.py, \
         combine_all_to_all; arXiv 2412.19437 section 3.3.3)",
    );
    ops.push(layer.exchange(combine, Factor("h", layer.hidden), Way::Back)?);
    Ok(ops)
}

const SCALES: &str = "one scale for each 128 elements in 8 bits, beside the tokens (arXiv 2412.19437 section 3.3.2)";

fn forward_within_experts(layer: &ExpertLayer, parts: &Parts, pass: Pass) -> Result<Vec<Op>> {
    let gather = |element, what| Call { pass, axis: Axis::Etp, collective: Collective::AllGather, element, what };
    let received = layer.received_copies();
    let of = |name, elements| [Factor("etp", layer.etp), Factor("received", received), Factor(name, elements)];
    let tokens = gather(
        parts.dispatched,
        "each part of an expert gets the tokens of all (token_dispatcher.py, dispatch_postprocess)",
    );
    let mut ops = vec![layer.op(tokens, &of("h", layer.hidden))?];
    if let Some(scales) = parts.scales {
        ops.push(layer.op(gather(Float32, SCALES), &of("h/128", scales))?);
    }
    let what = "their probabilities (token_dispatcher.py, dispatch_postprocess)";
    ops.push(layer.op(gather(parts.router, what), &of("1", 1))?);
    let reduce = Call {
        pass,
        axis: Axis::Etp,
        collective: Collective::ReduceScatter,
        element: parts.router,
        what: "sum over the parts of an expert, in the type of the probabilities (token_dispatcher.py, combine_preprocess)",
    };
    ops.push(layer.op(reduce, &of("h", layer.hidden))?);
    Ok(ops)
}

fn backward(layer: &ExpertLayer, parts: &Parts) -> Result<Vec<Op>> {
    let pass = Pass::Backward;
    let call = |element, what| Call { pass, axis: Axis::Ep, collective: Collective::AllToAllV, element, what };
    let combine = call(
        parts.dispatched,
        "combine backward, gradients of the results to the experts, in the type of dispatch (arXiv 2412.19437 section 3.3.3)",
    );
    let mut ops = vec![layer.exchange(combine, Factor("h", layer.hidden), Way::ToExperts)?];
    if let Some(scales) = parts.scales {
        ops.push(layer.exchange(call(Float32, SCALES), Factor("h/128", scales), Way::ToExperts)?);
    }
    if layer.etp > 1 {
        ops.extend(backward_within_experts(layer, parts.router)?);
    }
    let dispatch = call(
        layer.step.activation(),
        "dispatch backward, gradients of the tokens to where they came from, never in 8 bits (arXiv 2412.19437 section 3.3.3)",
    );
    ops.push(layer.exchange(dispatch, Factor("h", layer.hidden), Way::Back)?);
    let probabilities =
        call(parts.router, "gradients of the probabilities to where they came from (token_dispatcher.py)");
    ops.push(layer.exchange(probabilities, Factor("1", 1), Way::Back)?);
    Ok(ops)
}

fn backward_within_experts(layer: &ExpertLayer, router: ElementType) -> Result<Vec<Op>> {
    let call = |collective, element, what| Call { pass: Pass::Backward, axis: Axis::Etp, collective, element, what };
    let received = layer.received_copies();
    let of = |name, elements| [Factor("etp", layer.etp), Factor("received", received), Factor(name, elements)];
    use Collective::{AllGather, ReduceScatter};
    let gradients = call(AllGather, router, "backward of the sum over the parts of an expert");
    let tokens = call(ReduceScatter, layer.step.activation(), "backward of the gather of tokens");
    let probabilities = call(ReduceScatter, router, "backward of the gather of probabilities");
    Ok(vec![
        layer.op(gradients, &of("h", layer.hidden))?,
        layer.op(tokens, &of("h", layer.hidden))?,
        layer.op(probabilities, &of("1", 1))?,
    ])
}
