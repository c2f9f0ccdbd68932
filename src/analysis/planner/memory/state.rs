//! Parameters, gradients and optimizer of a rank: bytes for each parameter, and over how many ranks each is shared out.

use super::parts::{MemoryUse, bytes};
use commgauge_model::config::step::{DataChoices, DataStyle};
use commgauge_model::layout::Axis;
use commgauge_model::workload::step::{RankParameters, TrainingStep};

/// Bytes of an fp32 number: the copy that is updated, each of Adam's two moments, and the copy of a 16-bit gradient.
const FULL_PRECISION_BYTES: u64 = 4;
/// Units whose parameters are there at once while layers are gathered ahead: the one at work and the next.
const GATHERED_UNITS: u64 = 2;

/// The first four parts of the memory of a rank of a stage.
pub(super) fn of(step: &TrainingStep, stage: u32, gradient_copy: bool) -> MemoryUse {
    let data = &step.training.data;
    let (parameters, style) = (step.rank_parameters(stage), data.style);
    let parts = [
        (parameters.dense, shards(step, ParameterKind::Dense)),
        (parameters.experts, shards(step, ParameterKind::Experts)),
    ];
    // Each part is rounded up to equal shards.
    let whole =
        |each: u64| parts.iter().map(|(parameters, _)| u128::from(*parameters) * u128::from(each)).sum::<u128>();
    let shared = |each: u64| {
        parts.iter().map(|(parameters, ranks)| u128::from(parameters.div_ceil(*ranks)) * u128::from(each)).sum::<u128>()
    };
    let share_if = |is_shared: bool, each: u64| bytes(if is_shared { shared(each) } else { whole(each) });
    let gathers = matches!(style, DataStyle::Zero3 | DataStyle::Fsdp | DataStyle::Hsdp);
    MemoryUse {
        parameters: share_if(gathers, data.parameter_element_type.size()),
        gradients: share_if(shares_gradients(step), data.gradient_element_type.size()),
        optimizer: share_if(style != DataStyle::Ddp, optimizer_bytes_per_parameter(data, gradient_copy)),
        unsharded: bytes(if gathers && parts.iter().any(|(_, ranks)| *ranks > 1) { unsharded(step, stage) } else { 0 }),
        ..MemoryUse::default()
    }
}

/// Whether a rank holds its shard of the gradients alone; not where those of several micro-batches are added up whole.
pub(super) fn shares_gradients(step: &TrainingStep) -> bool {
    let data = &step.training.data;
    match data.style {
        DataStyle::Ddp | DataStyle::Zero1 => false,
        DataStyle::Zero2 | DataStyle::Zero3 => true,
        DataStyle::Fsdp | DataStyle::Hsdp => !step.adds_up_whole_gradients() || step.micro_batches == 1,
    }
}

/// Adam: two moments, fp32 copies of 16-bit parameters and, if the optimizer stores one, of 16-bit gradients
/// (Megatron-LM docs/source/api-guide/dist_optimizer.md).
pub(super) fn optimizer_bytes_per_parameter(data: &DataChoices, gradient_copy: bool) -> u64 {
    let is_short = |bytes: u64| u64::from(bytes < FULL_PRECISION_BYTES);
    let copies = is_short(data.parameter_element_type.size())
        + u64::from(gradient_copy) * is_short(data.gradient_element_type.size());
    FULL_PRECISION_BYTES * (2 + copies)
}

/// Parameters by the groups that reduce their gradients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterKind {
    Dense,
    /// Those of experts.
    Experts,
}

/// Ranks that share out parameters: the groups that reduce their gradients.
pub(super) fn shards(step: &TrainingStep, kind: ParameterKind) -> u64 {
    let layout = &step.layout;
    let replicated = step.training.data.replicas_of_shards > 1;
    let axis = match kind {
        _ if replicated => Axis::DpShard,
        ParameterKind::Dense => Axis::DpCp,
        ParameterKind::Experts => Axis::Edp,
    };
    u64::from(layout.group_size(axis)).max(1)
}

/// Parameters that a rank keeps from the forward to the backward pass, beside its shard.
fn secondary(step: &TrainingStep, stage: u32) -> u128 {
    let shards = step.training.data.secondary_shards;
    shards.map_or(0, |shards| u128::from(step.rank_parameters(stage).total().div_ceil(u64::from(shards))))
}

/// Parameters and gradients that are temporarily unsharded: the root unit, the largest layer and the next one that is
/// gathered ahead, and the gradients of one layer before they are scattered, in the type of the parameters (arXiv
/// 2304.11277 section 3.2.1), and secondary shards. Everything, if parameters stay gathered until the optimizer runs.
fn unsharded(step: &TrainingStep, stage: u32) -> u128 {
    let element = u128::from(step.training.data.parameter_element_type.size());
    let root = u128::from(step.rank_end_parameters(stage).total());
    let largest =
        step.stages.layers_stored(stage).map(|layer| step.parameters_of_layer(layer).total()).max().unwrap_or(0);
    let layers = step.stages.layers_stored(stage).count() as u64;
    let gathered = if step.reshards_after_forward() {
        u128::from(largest) * u128::from(GATHERED_UNITS.min(layers))
    } else {
        let RankParameters { dense, experts } = step.rank_layer_parameters(stage);
        u128::from(dense) + u128::from(experts)
    };
    element * (root + gathered + u128::from(largest) + secondary(step, stage))
}
