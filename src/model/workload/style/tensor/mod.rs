//! Tensor parallelism without sequence parallelism: the all_reduces of Megatron-LM's operators f and g in every layer.
//!
//! Attention is divided by heads and the feed-forward by its inner width, so that a column-parallel linear feeds a
//! row-parallel one and nothing is gathered between them. Standalone linears are in `alone`. Layers with experts
//! require sequence parallelism (see `sequence`); their routed experts are in `expert`.

mod alone;
#[cfg(test)]
mod tests;

use super::recompute::repeats_forward;
use super::replicated;
use crate::config::step::{Linears, TensorStyle};
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::when::{LayerKind, Overlap, Pass};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;

/// Source of the operators.
const SOURCE: &str = "arXiv 1909.08053 section 3; Megatron-LM core/tensor_parallel/mappings.py, layers.py";

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    if step.training.tensor.sequence_parallel || step.layout.degrees.tp == 1 {
        return Ok(Vec::new());
    }
    let mut ops = match step.training.tensor.linears {
        Linears::Pair => pair(step, stage),
        Linears::Column => alone::column(step, stage)?,
        Linears::Row => alone::row(step, stage)?,
    };
    ops.extend(replicated::ops(step, stage, Style::Tensor));
    Ok(ops)
}

/// g reduces the outputs of the row-parallel linears on the way forward, f the input gradients of the column-parallel ones
/// on the way back.
fn pair(step: &TrainingStep, stage: u32) -> Vec<Op> {
    let (bytes, formula) = step.activation_bytes();
    let op = |pass, calls, overlap, what: &str| Op {
        when: step.in_layers(stage, pass, LayerKind::Any, calls),
        overlap,
        why: format!("{formula}: {what} ({SOURCE})"),
        ..Op::new(Style::Tensor, Axis::Tp, Collective::AllReduce, step.activation(), bytes)
    };
    // Attention and feed-forward that read the same input are added up before they are reduced (GPT-NeoX gpt_j_residual).
    let (reductions, outputs) = match step.model.parallel_residual {
        true => {
            (1, "sum of the outputs of the row-parallel linears (EleutherAI/gpt-neox megatron/model/transformer.py)")
        }
        false => (2, "outputs of the row-parallel linears (attention projection, fc2)"),
    };
    let mut ops = vec![op(Pass::Forward, reductions, Overlap::Exposed, &format!("{outputs}, forward"))];
    if repeats_forward(step) {
        let again = format!("{outputs}, forward again for the backward pass (full recomputation, arXiv 2205.05198)");
        ops.push(op(Pass::Recompute, reductions, Overlap::Exposed, &again));
    }
    let (gradients, calls) = input_gradients(step);
    ops.push(op(Pass::Backward, calls, Overlap::WeightGradient, gradients));
    ops
}

/// Which linears reduce their input gradients, and how many they are in a layer.
fn input_gradients(step: &TrainingStep) -> (&'static str, u64) {
    match step.training.tensor.style {
        TensorStyle::Megatron => {
            ("input gradients of the column-parallel linears (QKV, fc1), backward, beside the weight gradients", 2)
        }
        TensorStyle::DTensor => {
            let feed_forward = if step.model.family.gated() { 2 } else { 1 };
            let which = "input gradients of the column-parallel linears, each alone (q, k, v, gate, up), backward (torch \
                         distributed/tensor/parallel/style.py ColwiseParallel)";
            (which, 3 + feed_forward)
        }
    }
}
