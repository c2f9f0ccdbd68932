//! Pipeline parallelism: what crosses the boundaries between neighbouring stages.
//!
//! How often follows from the schedule (`workload::schedule`, through `Messages`); how much does not depend on it.

use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::when::{End, Overlap, Pass, When};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let messages = step.messages[stage as usize];
    let mut ops = Vec::new();
    for (pass, all, exposed) in [
        (Pass::Forward, messages.forward, messages.forward_exposed),
        (Pass::Backward, messages.backward, messages.backward_exposed),
    ] {
        ops.push(boundary(step, pass, exposed, Overlap::Exposed));
        ops.push(boundary(step, pass, all - exposed, Overlap::SteadyState));
    }
    if step.training.pipeline.scatter_gather && !step.training.tensor.sequence_parallel {
        ops.extend([gather(step, stage, Pass::Forward), gather(step, stage, Pass::Backward)]);
    }
    ops.retain(|op| op.when.count_per_step(step.micro_batches) != Some(0));
    Ok(ops)
}

fn boundary(step: &TrainingStep, pass: Pass, sends_per_step: u64, overlap: Overlap) -> Op {
    let choices = &step.training.pipeline;
    let (whole, formula) = step.activation_bytes();
    let t = u64::from(step.layout.degrees.tp);
    let (bytes, formula) = match step.training.tensor.sequence_parallel || choices.scatter_gather {
        true if t > 1 => (whole / t, format!("{formula}, /t = {t}: {} B", whole / t)),
        _ => (whole, formula),
    };
    let (what, phase) = match (pass, overlap) {
        (Pass::Forward, Overlap::Exposed) => ("activations to the next stage", "while the pipeline fills"),
        (Pass::Forward, _) => ("activations to the next stage", "in the steady state"),
        (_, Overlap::Exposed) => ("gradients to the stage before", "while the pipeline drains"),
        _ => ("gradients to the stage before", "in the steady state"),
    };
    // The last stage's first chunk is followed by the first stage's second.
    let wraps = choices.schedule.goes_round();
    let collective = if wraps { Collective::SendRecv } else { Collective::SendRecvChain };
    Op {
        when: When::Boundary { pass, sends_per_step },
        overlap,
        why: format!(
            "{formula}: {what} {phase}, {} with m = {} micro-batches: {sends_per_step} of a step (arXiv 2104.04473 section \
             2.2; Megatron-LM core/pipeline_parallel/schedules.py, get_tensor_shapes)",
            choices.schedule, step.micro_batches
        ),
        ..Op::new(Style::Pipeline, Axis::Pp, collective, step.activation(), bytes)
    }
}

/// Gathers within the tensor-parallel group a message that was received in parts.
fn gather(step: &TrainingStep, stage: u32, pass: Pass) -> Op {
    let (bytes, formula) = step.activation_bytes();
    let stages = step.stages.count();
    let of = |stage: u32| step.messages.get(stage as usize).copied().unwrap_or_default();
    // The receives of a stage are the sends of its neighbours: with chunks the ring closes.
    let wraps = step.training.pipeline.schedule.goes_round();
    let received = match pass {
        Pass::Forward if stage > 0 => of(stage - 1).forward,
        Pass::Forward if wraps => of(stages - 1).forward,
        Pass::Backward if stage + 1 < stages => of(stage + 1).backward,
        Pass::Backward if wraps => of(0).backward,
        _ => 0,
    };
    Op {
        when: When::MicroBatch { pass, end: End::Whole, calls: received / step.micro_batches, one_in: 1 },
        why: format!(
            "{formula}: the parts that the ranks of tp received, put together (scatter/gather, arXiv 2104.04473 section 4.1)"
        ),
        ..Op::new(Style::Pipeline, Axis::Tp, Collective::AllGather, step.activation(), bytes)
    }
}
