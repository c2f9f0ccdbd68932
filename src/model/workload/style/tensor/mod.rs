//! Tensor parallelism without sequence parallelism: the all_reduces of Megatron-LM's operators f and g in every layer.
//!
//! Attention is divided by heads and the feed-forward by its inner width, so that a column-parallel linear feeds a
//! row-parallel one and nothing is gathered between them. Linear attention is divided by heads in the same way. Standalone linears are in `alone`. Layers with experts
//! require sequence parallelism (see `sequence`); their routed experts are in `expert`.

mod alone;
#[cfg(test)]
mod tests;

use super::recompute::repeats_forward;
use super::replicated;
use crate::config::Model;
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
        true => (
            1,
            "sum of the outputs of the row-parallel linears (EleutherAI/gpt-neox megatron/model/transformer.py)"
                .to_owned(),
        ),
        false => {
            let which = format!("outputs of the row-parallel linears ({})", outputs_of_blocks(step.model));
            (step.model.blocks_per_layer(), which)
        }
    };
    let mut ops = vec![op(Pass::Forward, reductions, Overlap::Exposed, &format!("{outputs}, forward"))];
    if repeats_forward(step) {
        let again = format!("{outputs}, forward again for the backward pass (full recomputation, arXiv 2205.05198)");
        ops.push(op(Pass::Recompute, reductions, Overlap::Exposed, &again));
    }
    let (gradients, calls) = input_gradients(step);
    ops.push(op(Pass::Backward, calls, Overlap::WeightGradient, &gradients));
    ops
}

/// Which linears reduce their input gradients, and how many they are in a layer.
fn input_gradients(step: &TrainingStep) -> (String, u64) {
    match step.training.tensor.style {
        TensorStyle::Megatron => {
            let which = inputs_of_blocks(step.model);
            let gradients = format!(
                "input gradients of the column-parallel linears ({which}), backward, beside the weight gradients"
            );
            (gradients, step.model.blocks_per_layer())
        }
        TensorStyle::DTensor => {
            let feed_forward = if step.model.family.gated() { 2 } else { 1 };
            let which = "input gradients of the column-parallel linears, each alone (q, k, v, gate, up), backward (torch \
                         distributed/tensor/parallel/style.py ColwiseParallel)";
            (which.to_owned(), 3 + feed_forward)
        }
    }
}

/// The row-parallel linears that end the blocks of a model. Linear attention ends with one as attention does (Megatron-LM
/// core/ssm/gated_delta_net/common.py, core/ssm/mamba_mixer.py, `out_proj`).
fn outputs_of_blocks(model: &Model) -> &'static str {
    match model.attention.linear {
        None => "attention projection, fc2",
        Some(_) => "projections of attention and linear attention, fc2",
    }
}

/// The column-parallel linears that begin them (in the same files, `in_proj`).
fn inputs_of_blocks(model: &Model) -> &'static str {
    match model.attention.linear {
        None => "QKV, fc1",
        Some(_) => "QKV of attention, in_proj of linear attention, fc1",
    }
}
