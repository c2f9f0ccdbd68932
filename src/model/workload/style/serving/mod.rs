//! The communications of a model that serves requests: one forward pass over the prompts of a batch, or over one
//! further token of every request.
//!
//! No size depends on the length of the context: a rank stores the keys and values of its own heads, and the states of its own
//! heads of linear attention; attention over them sends nothing, and where ranks share out a context, they exchange what each token gives. `forward` has the pass through a stage, `experts` the exchanges of
//! experts, `drafts` what is drafted ahead, `sampled` what the last stage tells the others, `quantised` sums of few bits, `context` what ranks that share out a context exchange, `kv_transfer` what leaves for replicas that
//! decode.

mod calls;
mod context;
#[cfg(test)]
mod context_tests;
mod deep_ep;
mod drafts;
#[cfg(test)]
mod drafts_tests;
mod experts;
mod forward;
mod joined;
mod kv_transfer;
#[cfg(test)]
mod kv_transfer_tests;
mod layers;
mod quantised;
mod sampled;
mod splits;
#[cfg(test)]
mod tests;

use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::step::ServingStep;
use crate::workload::when::{End, Pass, When};
use calls::{at_end, op, times_at_end};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use layers::activations;

/// The calls of one rank of a stage in a forward pass.
pub(super) fn ops(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let mut ops: Vec<Op> = agreement(step).into_iter().collect();
    ops.extend(forward::ops(step, stage)?);
    ops.extend(drafts::ops(step, stage)?);
    ops.extend(kv_transfer::ops(step, stage)?);
    if step.layout.degrees.pp > 1 {
        ops.extend(boundary(step, stage)?);
        ops.extend(sampled::ops(step)?);
    }
    Ok(ops)
}

/// Tokens, padded tokens, and two flags of every replica.
fn agreement(step: &ServingStep) -> Option<Op> {
    let (element, replicas) = (ElementType::Int32, u64::from(step.layout.degrees.dp));
    let bytes = 4 * element.size() * replicas;
    let why = format!(
        "4*4 B*d = 4*4 B*{replicas} = {bytes} B: tokens of each replica with and without padding, and how it runs them (vLLM \
         v1/worker/dp_utils.py _run_ar; over NCCL only without disable_nccl_for_dp_synchronization)"
    );
    step.serving
        .batch_agreement
        .then(|| Op { element, ..op(step, Axis::Dp, Collective::AllReduce, bytes, at_end(End::Whole), why) })
}

/// Messages to the next stage, and where each rank of tp sends its part only, what the receivers gather.
fn boundary(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let (whole, formula) = activations(step)?;
    let (t, tensors) = (u64::from(step.layout.degrees.tp), step.serving.boundary.tensors);
    // A tensor that tp does not divide is sent whole.
    let elements = whole / step.serving.activation_element_type.size();
    let cut = step.serving.boundary.scatter_gather && t > 1 && elements.is_multiple_of(t);
    let bytes = if cut { whole / t } else { whole };
    let sends = if stage + 1 < step.stages.count() { step.serving.micro_batches * tensors } else { 0 };
    let what = match (tensors, cut) {
        (1, false) => "activations to the next stage".to_owned(),
        (1, true) => format!("activations to the next stage, of which each of {t} ranks sends a part = {bytes} B"),
        (_, false) => "hidden state, and residual, to the next stage".to_owned(),
        (_, true) => format!(
            "hidden state, and residual, to the next stage, of which each of {t} ranks sends a part = {bytes} B"
        ),
    };
    let source = "vLLM distributed/parallel_state.py send_tensor_dict; arXiv 2104.04473 section 2.2";
    let why = format!("{formula}: {what}, {} micro-batches in a pass ({source})", step.serving.micro_batches);
    let when = When::Boundary { pass: Pass::Forward, sends_per_step: sends };
    let mut ops = vec![op(step, Axis::Pp, Collective::SendRecvChain, bytes, when, why)];
    if cut && stage > 0 {
        let what = "parts that the ranks of tp received, put together";
        let why = format!("{formula}: {what} (vLLM distributed/parallel_state.py recv_tensor_dict, all_gather_group)");
        ops.push(op(step, Axis::Tp, Collective::AllGather, whole, times_at_end(tensors, End::Whole), why));
    }
    Ok(ops)
}
