//! Whether the choices of data parallelism are consistent with each other and with the layout.

use super::TrainingStep;
use crate::config::step::{
    BroadcastBuffers, BucketRule, DataStyle, GradientAccumulation, GradientReduction, ModuleChoices, MuonTensorMode,
    OuterSharding, ParameterReturn, ReplicaReduction, ShardBuffers, UnitRule, divisors_among,
};
use crate::layout::Axis;
use commgauge_base::error::Result;

impl TrainingStep<'_> {
    /// Checks that the choices of data parallelism are consistent with each other, with the layout and with the schedule.
    ///
    /// # Errors
    /// If a rule is violated, with valid values.
    pub fn check_data_style(&self) -> Result<()> {
        check_data(self)
    }
}

/// If a rule is violated, with valid values.
fn check_data(step: &TrainingStep) -> Result<()> {
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
    check_shards(step)?;
    let degrees = &step.layout.degrees;
    if replicas > 1 && step.model.mixture.is_some() && (degrees.ep > 1 || degrees.etp != degrees.tp) {
        return Err(data.shards.place.wrong(format!(
            "{replicas} replicas of shards with ep = {} and etp = {}: experts would need separate groups; accepted: ep = 1 \
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
            "schedule {schedule} stores every layer twice and passes each micro-batch through one of them, which data_style {style} does not support; accepted: data_style ddp or zero1, or schedule dualpipe-v"
        )));
    }
    Ok(())
}

/// Choices without effect in this style.
fn unused(step: &TrainingStep) -> Result<()> {
    use DataStyle::{Fsdp, Hsdp, Zero1, Zero2, Zero3};
    let data = &step.training.data;
    let refused = |key: &str, value: &str, accepted: &str| {
        let problem =
            format!("{key} = {value} has no effect with data_style {}; accepted: with {accepted}", data.style);
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
            "persistent_parameters, prefetch_bucket, live_parameters, reuse_distance and quantised_parameters have no effect with unit_rule {}; {accepted}",
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

// Whether the sharding of parameters, gradients and optimizer state is consistent with the model, the layout and the other choices.

/// If a rule is violated, with valid values.
pub(super) fn check_shards(step: &TrainingStep) -> Result<()> {
    secondary_shards(step)?;
    gathers_in_two_steps(step)?;
    quantised_gradients(step)?;
    gathered_shares(step)?;
    layer_wise(step)?;
    orthogonalised(step)?;
    bucket_units(step)
}

/// Whether secondary shards have parameters and groups.
fn secondary_shards(step: &TrainingStep) -> Result<()> {
    let (data, degrees) = (&step.training.data, &step.layout.degrees);
    let Some(shards) = data.shards.secondary else { return Ok(()) };
    let refused = |problem: String| Err(data.shards.place.wrong(format!("secondary_shards = {shards} {problem}")));
    if !matches!(data.style, DataStyle::Zero3 | DataStyle::Fsdp) {
        return refused(format!("with data_style {}; accepted: with zero3 and fsdp", data.style));
    }
    if !step.reshards_after_forward() {
        return refused(
            "where parameters stay whole after the forward pass; accepted: with reshard_after_forward = true"
                .to_owned(),
        );
    }
    if data.style == DataStyle::Zero3 && step.micro_batches > 1 {
        return refused(format!(
            "with data_style zero3 and {} micro-batches: DeepSpeed keeps secondary shards until the optimizer, and later forward passes gather from them as well (runtime/zero/stage3.py invalidate_secondary_tensor), which is not modelled; accepted: \
             1 micro-batch, or data_style fsdp",
            step.micro_batches
        ));
    }
    if step.model.mixture.is_some() && degrees.divides_experts() {
        return refused(format!(
            "with ep = {} and etp = {}: experts would need separate groups; accepted: ep = 1 and etp = tp = {}",
            degrees.ep, degrees.etp, degrees.tp
        ));
    }
    Ok(())
}

/// Whether there are parameters to gather unit by unit, and nodes of several ranks.
fn gathers_in_two_steps(step: &TrainingStep) -> Result<()> {
    let (data, degrees) = (&step.training.data, &step.layout.degrees);
    let Some(inner) = data.shards.gather_inner else { return Ok(()) };
    let refused = |problem: String| Err(data.shards.place.wrong(format!("gather_inner = {inner} {problem}")));
    if !matches!(data.style, DataStyle::Zero3 | DataStyle::Fsdp | DataStyle::Hsdp) {
        return refused(format!("has no effect with data_style {}; accepted: with zero3, fsdp and hsdp", data.style));
    }
    if matches!(data.units.rule, UnitRule::Modules | UnitRule::Buckets) || data.shards.secondary.is_some() {
        return refused(
            "with unit_rule modules or buckets, or with secondary_shards, which gather from all ranks or from those of a node; accepted: only unit_rule = layers, root_kept or ends_apart"
                .to_owned(),
        );
    }
    if step.model.mixture.is_some() && degrees.divides_experts() {
        return refused(format!(
            "with ep = {} and etp = {}: experts would need separate groups; accepted: ep = 1 and etp = tp = {}",
            degrees.ep, degrees.etp, degrees.tp
        ));
    }
    let ranks = step.layout.group_size(Axis::DpShard);
    if inner == 1 || inner == ranks {
        let accepted = divisors_among(2..ranks, ranks);
        return refused(format!(
            "does not divide the {ranks} ranks of a group of shards into two steps; accepted: {accepted}"
        ));
    }
    Ok(())
}

/// Whether gradients are those of modules, and their groups those of all ranks.
fn quantised_gradients(step: &TrainingStep) -> Result<()> {
    let (data, d) = (&step.training.data, &step.layout.degrees);
    let Some(node) = data.shards.quantised_gradients else { return Ok(()) };
    let refused = |problem: String| Err(data.shards.place.wrong(format!("quantised_gradients = {node} {problem}")));
    if data.units.rule != UnitRule::Modules {
        return refused(format!(
            "has no effect with unit_rule {}; accepted: with unit_rule = modules",
            data.units.rule
        ));
    }
    if d.tp * d.cp * d.pp > 1 {
        return refused(format!(
            "with tp = {}, cp = {} and pp = {}: DeepSpeed goes through the nodes of all ranks (utils/groups.py \
             _get_local_all_to_all_group); accepted: only dp",
            d.tp, d.cp, d.pp
        ));
    }
    if step.model.mixture.is_some() && d.divides_experts() {
        return refused(format!(
            "with ep = {} and etp = {}: DeepSpeed's ZeRO-3 has no groups of experts (runtime/engine.py has_moe_layers); accepted: ep = 1, \
             every rank with a part of each expert",
            d.ep, d.etp
        ));
    }
    Ok(())
}

/// Whether buckets of whole matrices are sharded.
fn layer_wise(step: &TrainingStep) -> Result<()> {
    let data = &step.training.data;
    if data.bucket_rule != BucketRule::LayerWise {
        return Ok(());
    }
    let refused = |problem: String| Err(step.training.place.wrong(format!("bucket_rule = layer_wise {problem}")));
    if data.style != DataStyle::Zero1 {
        return refused(format!("with data_style {}; accepted: with zero1", data.style));
    }
    if data.gradient_reduction != GradientReduction::ReduceScatter {
        return refused(format!(
            "with gradient_reduction {}; accepted: reduce_scatter, to the rank that has the whole matrix",
            data.gradient_reduction
        ));
    }
    if !matches!(data.parameter_return, ParameterReturn::AllGather | ParameterReturn::EachOptimizer) {
        return refused(format!(
            "with parameter_return {}; accepted: all_gather, each_optimizer",
            data.parameter_return
        ));
    }
    if step.model.biases.feed_forward && step.model.mixture.is_some() {
        return refused(format!(
            "with {}, whose experts have biases that no other optimizer updates (Megatron-LM core/optimizer/__init__.py \
             _get_megatron_emerging_optimizer); accepted: experts without biases, or parameter_return = gather_shares",
            step.model.name
        ));
    }
    no_instances(step, "bucket_rule = layer_wise")
}

/// Whether Muon has whole matrices, and tensor parallelism divides them.
fn orthogonalised(step: &TrainingStep) -> Result<()> {
    let (data, d, mode) = (&step.training.data, &step.layout.degrees, step.training.tensor.muon_tp_mode);
    if mode == MuonTensorMode::Blockwise {
        return Ok(());
    }
    let refused = |problem: String| Err(step.training.place.wrong(format!("muon_tp_mode = {mode} {problem}")));
    let whole = match data.style {
        DataStyle::Ddp => true,
        DataStyle::Zero1 => {
            data.bucket_rule == BucketRule::LayerWise || data.parameter_return == ParameterReturn::GatherShares
        }
        _ => false,
    };
    if !whole {
        return refused(format!(
            "with data_style {}, whose ranks have parts of matrices; accepted: ddp, or zero1 with bucket_rule = layer_wise or \
             parameter_return = gather_shares",
            data.style
        ));
    }
    if d.tp == 1 && d.etp == 1 {
        return refused("has no effect with tp = 1; accepted: tp above 1".to_owned());
    }
    let (heads, tp) = (step.model.attention.kv_heads, u64::from(d.tp));
    if tp > heads && step.model.attention.latent.is_none() {
        return refused(format!(
            "with tp = {tp} and {heads} key and value heads, which ranks replicate; accepted: tp up to {heads}"
        ));
    }
    Ok(())
}

/// A layer-wise optimizer has the whole group.
fn no_instances(step: &TrainingStep, what: &str) -> Result<()> {
    let data = &step.training.data;
    if data.shards.replicas == 1 {
        return Ok(());
    }
    Err(step.training.place.wrong(format!(
        "{what} with replicas_of_shards = {}: a layer-wise optimizer has no instances (Megatron-LM core/optimizer/layer_wise_optimizer.py); \
         accepted: 1",
        data.shards.replicas
    )))
}

/// Megatron-FSDP only wraps layers of the model itself.
fn bucket_units(step: &TrainingStep) -> Result<()> {
    let training = step.training;
    let outer = training.data.outer_sharding;
    if outer != OuterSharding::NoShard
        && (training.data.units.rule != UnitRule::Buckets || training.data.style != DataStyle::Hsdp)
    {
        return Err(training.place.wrong(format!(
            "outer_sharding = {outer} has no effect with data_style {} and unit_rule {}; accepted: with hsdp and buckets",
            training.data.style, training.data.units.rule
        )));
    }
    if training.data.units.rule != UnitRule::Buckets {
        return Ok(());
    }
    let refused = |problem: String| Err(training.place.wrong(format!("unit_rule = buckets {problem}")));
    if training.prediction_layers > 0 {
        return refused(format!(
            "with prediction_layers = {}, of which only a part is a layer; accepted: 0",
            training.prediction_layers
        ));
    }
    if training.data.parameter_element_type.moves_only() && step.model.attention.latent.is_some() {
        return refused(format!(
            "with parameter_element_type {} for {}, whose low-rank attention is not modelled in 8 bits; accepted: \
             bfloat16",
            training.data.parameter_element_type, step.model.name
        ));
    }
    if training.data.style == DataStyle::Zero3 {
        return refused("with data_style zero3; accepted: with fsdp and hsdp".to_owned());
    }
    if !training.data.units.reshard_after_forward || training.data.shards.secondary.is_some() {
        return refused(
            "without reshard_after_forward, or with secondary_shards: Megatron-FSDP gathers layers for each pass from all ranks \
             (core/distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py); accepted: only reshard_after_forward = true"
                .to_owned(),
        );
    }
    if step.adds_up_whole_gradients() {
        return refused(format!(
            "with gradient_accumulation {}; accepted: sharded, a reduction in every micro-batch",
            training.data.gradient_accumulation
        ));
    }
    Ok(())
}

/// Whether ranks that update whole tensors receive their gradients.
fn gathered_shares(step: &TrainingStep) -> Result<()> {
    let data = &step.training.data;
    if data.parameter_return != ParameterReturn::GatherShares || data.style != DataStyle::Zero1 {
        return Ok(());
    }
    let refused =
        |problem: String| Err(step.training.place.wrong(format!("parameter_return = gather_shares {problem}")));
    if data.gradient_reduction != GradientReduction::AllReduce {
        return refused(format!(
            "with gradient_reduction {}, which leaves a rank parts of tensors instead of those that it updates; accepted: \
             gradient_reduction = all_reduce",
            data.gradient_reduction
        ));
    }
    no_instances(step, "parameter_return = gather_shares")
}
