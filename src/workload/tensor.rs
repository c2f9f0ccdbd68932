//! Tensor parallelism without sequence parallelism: the all_reduces of Megatron-LM's operators f and g, of the
//! vocabulary-parallel embedding and of the loss.

use super::op::{Op, Style};
use super::training_step::TrainingStep;
use crate::collective::{Collective, ReduceOp};
use crate::element::ElementType;
use crate::geometry::Splits;
use crate::layout::Axis;
use crate::units::Bytes;

/// The calls of the groups of tp in one optimizer step.
pub(super) fn ops(step: &TrainingStep) -> Vec<Op> {
    vec![linears_and_embedding(step), cross_entropy(step, ReduceOp::Max), cross_entropy(step, ReduceOp::Sum)]
}

/// All calls of one size are one op: the four of each layer, and those of the embedding and the output projection.
fn linears_and_embedding(step: &TrainingStep) -> Op {
    let (bytes, formula) = step.activation_bytes();
    let (m, layers, p) = (step.micro_batches, u64::from(step.model.layers), u64::from(step.degrees.pp));
    // With one stage the first rank is the last as well, and does both; with more, either does one of them.
    let (ends, where_) = match p {
        1 => (2, "embedding forward 1 and output projection backward 1"),
        _ => (1, "embedding forward 1 on the first stage (output projection backward 1 on the last)"),
    };
    let count = m * (4 * layers / p + ends);
    let why = format!(
        "{}: {formula}; m*(4*L/p + {ends}) = {m}*(4*{layers}/{p} + {ends}) = {count} calls: per layer and micro-batch \
         row-parallel linears forward 2 and column-parallel linears backward 2; {where_} \
         (arXiv 1909.08053 section 3; Megatron-LM core/tensor_parallel/mappings.py, layers.py)",
        step.layout
    );
    all_reduce(step.activation_element_type(), ReduceOp::Sum, bytes, count, why)
}

/// The loss over a divided vocabulary: one maximum and two sums of a 32-bit float for each token.
fn cross_entropy(step: &TrainingStep, reduce_op: ReduceOp) -> Op {
    let (b, s, c) = (step.training.micro_batch, step.training.sequence, u64::from(step.degrees.cp));
    let m = step.micro_batches;
    let (calls, what) = match reduce_op {
        ReduceOp::Max => (1, "the largest logit"),
        _ => (2, "the predicted logit and the sum of exponentials"),
    };
    let bytes = 4 * b * (s / c);
    let count = calls * m;
    let why = format!(
        "{}: 4*b*(s/c) = 4 B*{b}*({s}/{c}) = {bytes} B; {calls}*m = {calls}*{m} = {count} calls: {what} of the \
         vocabulary-parallel cross entropy, forward, on the last stage \
         (Megatron-LM core/tensor_parallel/cross_entropy.py)",
        step.layout
    );
    all_reduce(ElementType::Float32, reduce_op, Bytes(bytes), count, why)
}

fn all_reduce(element: ElementType, reduce_op: ReduceOp, bytes_total: Bytes, count: u64, why: String) -> Op {
    Op {
        style: Style::Tensor,
        axis: Axis::Tp,
        collective: Collective::AllReduce,
        element,
        reduce_op: Some(reduce_op),
        root: 0,
        bytes_total,
        splits: Splits::Equal,
        count_per_step: Some(count),
        why,
    }
}
