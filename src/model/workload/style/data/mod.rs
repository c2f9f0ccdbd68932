//! Data parallelism: the gradients and parameters that the replicas of a stage exchange in an optimizer step.
//!
//! `tensors` lists the parameters of a rank, `buckets` cuts them, `zero` has the styles that work on buckets (DDP,
//! ZeRO-1, ZeRO-2), `fsdp` those that gather parameters for every use (ZeRO-3, FSDP, HSDP).

mod buckets;
mod fsdp;
mod tensors;
#[cfg(test)]
mod tests;
mod zero;

use crate::config::step::DataStyle;
use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::step::TrainingStep;
use commgauge_base::error::Result;

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    Ok(match step.training.data.style {
        DataStyle::Ddp | DataStyle::Zero1 | DataStyle::Zero2 => zero::ops(step, stage),
        DataStyle::Zero3 | DataStyle::Fsdp | DataStyle::Hsdp => fsdp::ops(step, stage),
    })
}

/// Parameters whose gradients the same groups reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// The groups that reduce, or that the parameters are sharded over.
    axis: Axis,
    /// Ranks in each.
    ranks: u64,
    /// Number of groups with the same shards, if there are several.
    replicas: u64,
    /// Whether dense parameters are among them, and whether those of experts are.
    dense: bool,
    experts: bool,
}

/// The parts of a model: everything dense over dp (with cp: over both, because every rank of cp has the same
/// parameters and gradients of other tokens), and experts over the ranks with the same ones (Megatron-LM
/// core/parallel_state.py). With replicated shards there is no expert parallelism, and experts are part of the rest.
fn parts(step: &TrainingStep) -> Vec<Part> {
    let layout = &step.layout;
    let ranks = |axis: Axis| u64::from(layout.group_size(axis));
    let replicas = ranks(Axis::DpReplicate);
    let mixture = step.model.mixture.is_some();
    if replicas > 1 {
        let ranks = ranks(Axis::DpShard);
        return vec![Part { axis: Axis::DpShard, ranks, replicas, dense: true, experts: mixture }];
    }
    let axis = if layout.degrees.cp > 1 { Axis::DpCp } else { Axis::Dp };
    let dense = Part { axis, ranks: ranks(axis), replicas: 1, dense: true, experts: false };
    let experts = Part { axis: Axis::Edp, ranks: ranks(Axis::Edp), replicas: 1, dense: false, experts: true };
    std::iter::once(dense).chain(mixture.then_some(experts)).collect()
}

impl Part {
    /// Name of the part.
    fn name(&self) -> &'static str {
        match (self.dense, self.experts) {
            (true, true) => "dense and expert parameters",
            (true, false) => "dense parameters",
            _ => "expert parameters",
        }
    }
}
