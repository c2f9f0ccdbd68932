//! Whether a layout fits the layers of hybrid models: heads of linear attention, and the calls that no list here has.

use super::divisibility::must_divide;
use super::{ServingStep, TrainingStep};
use crate::config::step::{Linears, TensorStyle};
use crate::config::{Blocks, Model, Place};
use crate::layout::Degrees;

/// Checks of the axes. Heads of keys and of values are both divided (Megatron-LM core/transformer/transformer_config.py,
/// `linear_num_key_heads` and `linear_num_value_heads`; core/ssm/mamba_mixer.py, `nheads` and `ngroups`).
pub(super) fn axes(model: &Model, degrees: &Degrees) -> Result<(), String> {
    let Some(linear) = model.linear_attention_in_use() else { return Ok(()) };
    let t = u64::from(degrees.tp);
    for (what, field, heads) in [
        ("key heads of linear attention", linear.rule.key_heads_field(), linear.key_heads),
        ("value heads of linear attention", linear.rule.value_heads_field(), linear.value_heads),
    ] {
        if !heads.is_multiple_of(t) {
            return Err(must_divide("tp", t, heads, what, field, &model.name));
        }
    }
    if degrees.cp > 1 {
        return Err(format!(
            "layers of {} have linear attention ({}), whose state follows the sequence from token to token; with cp = {} it crosses the \
             ranks, which frameworks do in different ways and no list here has; accepted: cp = 1",
            model.name,
            linear.rule.name(),
            degrees.cp
        ));
    }
    Ok(())
}

/// Checks of how the linears of a model with linear attention are divided in training.
pub(super) fn training<'a>(step: &TrainingStep<'a>) -> Result<(), (&'a Place, String)> {
    let (training, t) = (step.training, step.layout.degrees.tp);
    let Some(linear) = step.model.linear_attention_in_use().filter(|_| t > 1) else { return Ok(()) };
    let (written, accepted) = match (training.tensor.style, training.tensor.linears) {
        (TensorStyle::Megatron, Linears::Pair) => return Ok(()),
        // transformers/models/qwen3_next/configuration_qwen3_next.py base_model_tp_plan gathers what the projections give.
        (style @ TensorStyle::DTensor, _) => (format!("tensor_style = {style}"), "tensor_style = megatron"),
        (_, linears) => (format!("linears = {linears}"), "linears = pair"),
    };
    let problem = format!(
        "{written} with tp = {t}: how that divides the linear attention ({}) of {} no list here has; accepted: {accepted}, or tp = 1",
        linear.rule.name(),
        step.model.name
    );
    Err((&training.place, problem))
}

/// Checks of data-parallel attention, whose replicas join between the two blocks of a layer.
pub(super) fn joined(step: &ServingStep) -> Result<(), String> {
    match step.model.blocks {
        Blocks::Single { .. } if step.joins_replicas() => Err(format!(
            "feed_forward_ranks = stage joins the replicas between the mixer of a layer and its feed-forward, and each layer of {} has one of \
             the two; accepted: feed_forward_ranks = replica",
            step.model.name
        )),
        _ => Ok(()),
    }
}
