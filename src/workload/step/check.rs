//! Whether a layout fits a model: the rules, each broken one said with the numbers and the nearest that keep it.

use super::{ServingStep, TrainingStep, experts};
use crate::config::{Model, Place};
use crate::error::Result;
use crate::layout::Degrees;

/// A model of more parameters, or a micro-batch of more bytes, could pass 64 bits somewhere.
const MOST_ACTIVATION_BYTES: u128 = 1 << 56;

/// What must hold for a training step.
pub(super) fn training(step: &TrainingStep, place: &Place) -> Result<()> {
    heads_and_experts(step.model, &step.layout.degrees).map_err(|problem| place.wrong(problem))?;
    let (training, degrees) = (step.training, &step.layout.degrees);
    experts::choices(step)?;
    widest(step.model, u128::from(training.micro_batch) * u128::from(training.sequence))
        .map_err(|problem| training.sequence_place.wrong(problem))?;
    let (s, c) = (training.sequence, u64::from(degrees.cp));
    if !s.is_multiple_of(c) {
        return Err(training.sequence_place.wrong(format!("cp = {c} does not divide a sequence of {s}")));
    }
    let t = u64::from(degrees.tp);
    if training.tensor.sequence_parallel && !(s / c).is_multiple_of(t) {
        return Err(training.sequence_place.wrong(format!(
            "sequence parallelism divides {s} / cp {c} = {} tokens by tp = {t}, which does not come out even",
            s / c
        )));
    }
    Ok(())
}

/// What must hold for a model that serves.
pub(super) fn serving(step: &ServingStep, place: &Place) -> Result<()> {
    heads_and_experts(step.model, &step.layout.degrees).map_err(|problem| place.wrong(problem))?;
    widest(step.model, u128::from(step.serving.batch) * u128::from(step.serving.prompt_tokens))
        .map_err(|problem| step.serving.place.wrong(problem))
}

fn widest(model: &Model, tokens: u128) -> std::result::Result<(), String> {
    match tokens * u128::from(model.hidden) {
        0..MOST_ACTIVATION_BYTES => Ok(()),
        _ => Err("micro_batch x sequence x hidden is more than any buffer can hold".to_owned()),
    }
}

fn heads_and_experts(model: &Model, degrees: &Degrees) -> std::result::Result<(), String> {
    let (t, k) = (u64::from(degrees.tp), model.kv_heads);
    for (what, field, number) in
        [("query heads", "num_attention_heads", model.heads), ("inner width", "intermediate_size", model.feed_forward)]
    {
        if !number.is_multiple_of(t) {
            return Err(must_divide("tp", t, number, what, field, &model.name));
        }
    }
    if !k.is_multiple_of(t) && !t.is_multiple_of(k) {
        return Err(format!(
            "tp = {t} neither divides the {k} key and value heads of {} (num_key_value_heads) nor is a multiple of them",
            model.name
        ));
    }
    experts::shape(model, degrees)
}

/// The sentence for a degree that does not divide, with the nearest that do.
pub fn must_divide(axis: &str, degree: u64, number: u64, what: &str, field: &str, model: &str) -> String {
    let divides = |degree: &u64| number.is_multiple_of(*degree);
    let below = (1..degree.min(number)).rev().find(divides);
    let above = (degree + 1..=number).find(divides);
    let nearest: Vec<_> = below.into_iter().chain(above).map(|degree| degree.to_string()).collect();
    format!(
        "{axis} = {degree} does not divide the {number} {what} of {model} ({field}); nearest that do: {}",
        nearest.join(", ")
    )
}
