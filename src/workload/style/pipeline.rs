//! Pipeline parallelism: what crosses the boundary between neighbouring stages.

use crate::collective::Collective;
use crate::error::Result;
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::when::{Overlap, Pass, When};
use crate::workload::{Op, Style};

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let (bytes, formula) = step.activation_bytes();
    let m = step.micro_batches;
    let op = |pass, sends_per_step, what: &str| Op {
        when: When::Boundary { pass, sends_per_step },
        overlap: Overlap::SteadyState,
        why: format!(
            "{formula}: {what}, m = {m} (arXiv 2104.04473 section 2.2; Megatron-LM core/pipeline_parallel/schedules.py)"
        ),
        ..Op::new(Style::Pipeline, Axis::Pp, Collective::SendRecvChain, step.activation(), bytes)
    };
    let last = step.stages.count() - 1;
    Ok(vec![
        op(Pass::Forward, if stage < last { m } else { 0 }, "activations to the next stage"),
        op(Pass::Backward, if stage > 0 { m } else { 0 }, "gradients to the stage before"),
    ])
}
