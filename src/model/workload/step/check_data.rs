//! Whether the choices of data parallelism are consistent with each other and with the layout.

use super::TrainingStep;
use crate::config::step::{BucketRule, DataStyle, MuonTensorMode, ParameterReturn, UnitRule, divisors_among};
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
    let (training, data, degrees) = (step.training, &step.training.data, &step.layout.degrees);
    let (style, replicas) = (data.style, data.shards.replicas);
    if style == DataStyle::Hsdp && replicas < 2 {
        let ranks = step.layout.group_size(Axis::DpCp);
        let accepted = divisors_among(2..=ranks, ranks);
        return Err(training.at("replicas_of_shards").wrong(format!(
            "data_style hsdp replicates its shards, but replicas_of_shards is {replicas}; accepted: {accepted} (the divisors \
             of dp x cp = {ranks}), or data_style fsdp"
        )));
    }
    secondary_shards(step)?;
    quantised_gradients(step)?;
    if data.bucket_rule == BucketRule::LayerWise && step.model.biases.feed_forward && step.model.mixture.is_some() {
        return Err(training.at("bucket_rule").wrong(format!(
            "bucket_rule = layer_wise with {}, whose experts have biases that no other optimizer updates (Megatron-LM \
             core/optimizer/__init__.py _get_megatron_emerging_optimizer); accepted: experts without biases, or parameter_return = \
             gather_shares",
            step.model.name
        )));
    }
    orthogonalised(step)?;
    bucket_units(step)?;
    if replicas > 1 && step.model.mixture.is_some() && degrees.divides_experts() {
        return Err(training
            .at("replicas_of_shards")
            .wrong(format!("replicas_of_shards = {replicas} {}, or replicas_of_shards = 1", groups_of_experts(step))));
    }
    let every_micro_batch = !matches!(style, DataStyle::Ddp | DataStyle::Zero1);
    if step.stages.mirrored() && every_micro_batch {
        let schedule = training.pipeline.schedule;
        return Err(training.at("schedule").wrong(format!(
            "schedule {schedule} stores every layer twice and passes each micro-batch through one of them, which data_style {style} \
             does not support; accepted: data_style ddp or zero1, or schedule dualpipe-v"
        )));
    }
    Ok(())
}

/// Why divided experts do not fit parts of the groups of ranks.
fn groups_of_experts(step: &TrainingStep) -> String {
    let degrees = &step.layout.degrees;
    format!(
        "with ep = {} and etp = {}: experts would need separate groups; accepted: ep = 1 and etp = tp = {}",
        degrees.ep, degrees.etp, degrees.tp
    )
}

/// Whether secondary shards have parameters and groups.
fn secondary_shards(step: &TrainingStep) -> Result<()> {
    let data = &step.training.data;
    let Some(shards) = data.shards.secondary else { return Ok(()) };
    let refused = |problem: &str| {
        Err(step.training.at("secondary_shards").wrong(format!("secondary_shards = {shards} {problem}")))
    };
    if !step.reshards_after_forward() {
        return refused(
            "where parameters stay whole after the forward pass; accepted: with reshard_after_forward = true",
        );
    }
    if data.style == DataStyle::Zero3 && step.micro_batches > 1 {
        return refused(&format!(
            "with data_style zero3 and {} micro-batches: DeepSpeed keeps secondary shards until the optimizer, and later forward passes \
             gather from them as well (runtime/zero/stage3.py invalidate_secondary_tensor), which is not modelled; accepted: \
             1 micro-batch, or data_style fsdp",
            step.micro_batches
        ));
    }
    if step.model.mixture.is_some() && step.layout.degrees.divides_experts() {
        return refused(&groups_of_experts(step));
    }
    Ok(())
}

/// Whether gradients are those of modules, and their groups those of all ranks.
fn quantised_gradients(step: &TrainingStep) -> Result<()> {
    let d = &step.layout.degrees;
    let Some(node) = step.training.data.shards.quantised_gradients else { return Ok(()) };
    let place = step.training.at("quantised_gradients");
    let refused = |problem: String| Err(place.wrong(format!("quantised_gradients = {node} {problem}")));
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

/// Whether Muon has whole matrices, and tensor parallelism divides them.
fn orthogonalised(step: &TrainingStep) -> Result<()> {
    let (data, d, mode) = (&step.training.data, &step.layout.degrees, step.training.tensor.muon_tp_mode);
    if mode == MuonTensorMode::Blockwise {
        return Ok(());
    }
    let refused =
        |problem: String| Err(step.training.at("muon_tp_mode").wrong(format!("muon_tp_mode = {mode} {problem}")));
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

/// Megatron-FSDP only wraps layers of the model itself.
fn bucket_units(step: &TrainingStep) -> Result<()> {
    let (training, data) = (step.training, &step.training.data);
    if data.units.rule != UnitRule::Buckets {
        return Ok(());
    }
    let refused = |problem: String| Err(training.at("unit_rule").wrong(format!("unit_rule = buckets {problem}")));
    if data.parameter_element_type.moves_only() && step.model.attention.latent.is_some() {
        return refused(format!(
            "with parameter_element_type {} for {}, whose low-rank attention is not modelled in 8 bits; accepted: \
             bfloat16",
            data.parameter_element_type, step.model.name
        ));
    }
    if step.adds_up_whole_gradients() {
        return refused(format!(
            "with gradient_accumulation {}; accepted: sharded, a reduction in every micro-batch",
            data.gradient_accumulation
        ));
    }
    Ok(())
}
