//! Tensor parallelism without sequence parallelism: the all_reduces of Megatron-LM's operators f and g in every layer.

use crate::collective::Collective;
use crate::error::Result;
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::when::{LayerKind, Overlap, Pass};
use crate::workload::{Op, Style};

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    if step.training.tensor.sequence_parallel {
        return Ok(Vec::new());
    }
    let (bytes, formula) = step.activation_bytes();
    let op = |pass, overlap, what: &str| Op {
        when: step.in_layers(stage, pass, LayerKind::Any, 2),
        overlap,
        why: format!(
            "{formula}: {what} (arXiv 1909.08053 section 3; Megatron-LM core/tensor_parallel/mappings.py, layers.py)"
        ),
        ..Op::new(Style::Tensor, Axis::Tp, Collective::AllReduce, step.activation(), bytes)
    };
    Ok(vec![
        op(Pass::Forward, Overlap::Exposed, "output of the row-parallel linears, forward"),
        op(Pass::Backward, Overlap::WeightGradient, "input gradient of the column-parallel linears, backward"),
    ])
}
