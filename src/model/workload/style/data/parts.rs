//! The parts of a model whose gradients different groups reduce.

use crate::config::step::OuterSharding;
use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::step::TrainingStep;
use crate::workload::when::Pass;

/// Parameters whose gradients the same groups reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The groups that reduce, or that the parameters are sharded over.
    pub(super) axis: Axis,
    /// Ranks in each.
    pub(super) ranks: u64,
    /// Ranks that share out what is updated: these, or those of all groups with the same shards.
    pub(super) owners: u64,
    /// Number of groups with the same shards, if there are several.
    pub(super) replicas: u64,
    /// Whether dense parameters are among them, and whether those of experts are.
    pub(super) dense: bool,
    pub(super) experts: bool,
}

/// The parts of a model: everything dense over dp (with cp: over both, because every rank of cp has the same
/// parameters and gradients of other tokens), and experts over the ranks with the same ones (Megatron-LM
/// core/parallel_state.py). Where expert parallelism does not divide them, experts are part of the rest.
pub(super) fn parts(step: &TrainingStep) -> Vec<Part> {
    let layout = &step.layout;
    let ranks = |axis: Axis| u64::from(layout.group_size(axis));
    let replicas = u64::from(step.training.data.shards.replicas);
    let mixture = step.model.mixture.is_some();
    if replicas > 1 {
        let ranks = ranks(Axis::DpShard);
        let owners = match step.training.data.outer_sharding {
            OuterSharding::NoShard => ranks,
            OuterSharding::Optimizer => ranks * replicas,
        };
        return vec![Part { axis: Axis::DpShard, ranks, owners, replicas, dense: true, experts: mixture }];
    }
    let axis = if layout.degrees.cp > 1 { Axis::DpCp } else { Axis::Dp };
    let of = |axis| {
        let ranks = ranks(axis);
        Part { axis, ranks, owners: ranks, replicas: 1, dense: true, experts: false }
    };
    let dense = of(axis);
    // Megatron-LM core/tensor_parallel/layers.py: parameters of experts are apart (`allreduce` is false) where their ranks are.
    if mixture && !layout.degrees.divides_experts() {
        return vec![Part { experts: true, ..dense }];
    }
    let experts = Part { dense: false, experts: true, ..of(Axis::Edp) };
    std::iter::once(dense).chain(mixture.then_some(experts)).collect()
}

impl Part {
    /// A gather of parameters as it is in a pass: for the backward one from secondary shards, where there are any.
    pub(super) fn in_pass(&self, step: &TrainingStep, pass: Pass, op: Op) -> Op {
        match (step.training.data.shards.secondary, pass) {
            (Some(shards), Pass::Backward | Pass::Recompute) => Op {
                axis: Axis::DpShard,
                why: format!("{}; from {shards} secondary shards (arXiv 2306.10209 section 3.2)", op.why),
                ..op
            },
            _ => op,
        }
    }

    /// Name of the part.
    pub(super) fn name(&self) -> &'static str {
        match (self.dense, self.experts) {
            (true, true) => "dense and expert parameters",
            (true, false) => "dense parameters",
            _ => "expert parameters",
        }
    }
}
