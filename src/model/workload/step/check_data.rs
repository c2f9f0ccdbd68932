//! Whether the choices of data parallelism are consistent with each other and with the layout.

use super::{TrainingStep, check_shards};
use crate::config::step::{
    BroadcastBuffers, DataStyle, GradientAccumulation, GradientReduction, ModuleChoices, ParameterReturn,
    ReplicaReduction, ShardBuffers, UnitRule, divisors_among,
};
use crate::layout::Axis;
use commgauge_base::error::Result;

impl TrainingStep<'_> {
    /// Checks that the choices of data parallelism go with each other, with the layout and with the schedule.
    ///
    /// # Errors
    /// The first violated rule, with what would satisfy it.
    pub fn check_data_style(&self) -> Result<()> {
        check(self)
    }
}

/// The first violated rule, with what would satisfy it.
fn check(step: &TrainingStep) -> Result<()> {
    let data = &step.training.data;
    let (style, replicas) = (data.style, data.shards.replicas);
    match style {
        DataStyle::Hsdp if replicas < 2 => {
            let ranks = step.layout.group_size(Axis::DpCp);
            let accepted = divisors_among(2..=ranks, ranks);
            return Err(data.shards.place.wrong(format!(
                "data_style hsdp replicates its shards, but replicas_of_shards is {replicas}; accepted: {accepted} (the divisors \
                 of dp x cp = {ranks}), or data_style fsdp"
            )));
        }
        DataStyle::Ddp | DataStyle::Zero2 | DataStyle::Zero3 | DataStyle::Fsdp if replicas > 1 => {
            return Err(data.shards.place.wrong(format!(
                "{replicas} replicas of shards with data_style {style}; accepted: 1, or data_style zero1 or hsdp"
            )));
        }
        _ => {}
    }
    check_shards::check(step)?;
    let degrees = &step.layout.degrees;
    if replicas > 1 && step.model.mixture.is_some() && (degrees.ep > 1 || degrees.etp != degrees.tp) {
        return Err(data.shards.place.wrong(format!(
            "{replicas} replicas of shards beside ep = {} and etp = {}: experts would need groups of their own; accepted: ep = 1 \
             and etp = tp = {}, or replicas_of_shards = 1",
            degrees.ep, degrees.etp, degrees.tp
        )));
    }
    if !data.units.reshard_after_forward && !matches!(style, DataStyle::Fsdp | DataStyle::Hsdp) {
        let problem = format!("reshard_after_forward = false with data_style {style}; accepted: with fsdp and hsdp");
        return Err(step.training.place.wrong(problem));
    }
    unused(step)?;
    let every_micro_batch = !matches!(style, DataStyle::Ddp | DataStyle::Zero1);
    if step.stages.mirrored() && every_micro_batch {
        let schedule = step.training.pipeline.schedule;
        return Err(step.training.pipeline.place.wrong(format!(
            "schedule {schedule} holds every layer twice and passes each micro-batch through one of them, which data_style {style} \
             is not offered for; accepted: data_style ddp or zero1, or schedule dualpipe-v"
        )));
    }
    Ok(())
}

/// Choices that change nothing with this style.
fn unused(step: &TrainingStep) -> Result<()> {
    use DataStyle::{Fsdp, Hsdp, Zero1, Zero2, Zero3};
    let data = &step.training.data;
    let refused = |key: &str, value: &str, accepted: &str| {
        let problem =
            format!("{key} = {value} changes nothing with data_style {}; accepted: with {accepted}", data.style);
        Err(step.training.place.wrong(problem))
    };
    if data.units.rule != UnitRule::Layers && !matches!(data.style, Zero3 | Fsdp | Hsdp) {
        return refused("unit_rule", data.units.rule.name(), "zero3, fsdp and hsdp");
    }
    if data.gradient_accumulation != GradientAccumulation::Sharded && !matches!(data.style, Fsdp | Hsdp) {
        return refused("gradient_accumulation", data.gradient_accumulation.name(), "fsdp and hsdp");
    }
    if data.gradient_reduction != GradientReduction::ReduceScatter && !matches!(data.style, Zero1 | Zero2) {
        return refused("gradient_reduction", data.gradient_reduction.name(), "zero1 and zero2");
    }
    if data.units.rule == UnitRule::Modules && data.style != Zero3 {
        return refused("unit_rule", data.units.rule.name(), "zero3");
    }
    if data.parameter_return != ParameterReturn::AllGather && data.style != Zero1 {
        return refused("parameter_return", data.parameter_return.name(), "zero1");
    }
    if data.broadcast_buffers != BroadcastBuffers::None && matches!(data.style, Zero2 | Zero3 | Fsdp | Hsdp) {
        return refused("broadcast_buffers", data.broadcast_buffers.name(), "ddp and zero1");
    }
    if data.units.modules != ModuleChoices::default() && data.units.rule != UnitRule::Modules {
        let accepted = "accepted: with unit_rule = modules";
        return Err(step.training.place.wrong(format!(
            "persistent_parameters, prefetch_bucket, live_parameters, reuse_distance and quantised_parameters change nothing with \
             unit_rule {}; {accepted}",
            data.units.rule
        )));
    }
    if data.units.shard_buffers != ShardBuffers::Flat && data.units.rule != UnitRule::Modules {
        return refused("shard_buffers", data.units.shard_buffers.name(), "zero3 and unit_rule = modules");
    }
    if data.replica_reduction != ReplicaReduction::Step && data.style != Hsdp {
        return refused("replica_reduction", data.replica_reduction.name(), "hsdp");
    }
    Ok(())
}
