//! The replay of the best layout's step beside computing: how much slower the calls are that something hides.
//!
//! Few layers and few micro-batches of it, since what a call takes beside computing is a ratio.

use crate::cli::plan::{QuestionFlags, TrainingFlags};
use commgauge_analysis::planner::search::{Planned, Question};
use commgauge_base::error::{Error, Result};
use commgauge_model::config::Model;
use commgauge_model::config::step::{KeyForm, STEP_KEYS};
use commgauge_model::workload::step::TrainingStep;
use std::collections::BTreeSet;

/// Layers that are replayed, at least, where the model has them.
const LAYERS: u32 = 4;
/// Micro-batches that are replayed, for each stage of the pipeline: it fills, runs full and drains.
const MICRO_BATCHES_PER_STAGE: u64 = 4;
/// Most chunks of a stage that are replayed where the layers allow it: each has streams of its own for its messages, and a GPU has queues for
/// 32 streams.
const MOST_VIRTUAL_STAGES: u32 = 2;
/// Longest forward pass of a layer that is replayed: far longer than the calls beside it on a network, whereas the layers of ranks that compute
/// on the host may take a second each, and a replay of them an hour.
const LONGEST_FORWARD_SECONDS: f64 = 0.02;

/// The flags of `commgauge-step` that replay a layout.
///
/// # Errors
/// A layout that does not fit the question.
pub(super) fn flags(
    question: &Question,
    layout: &Planned,
    asked: &QuestionFlags,
    choices: &TrainingFlags,
) -> Result<Vec<String>> {
    let forward = question.with_step(layout, |step| Ok(forward_per_layer(question, step)))?;
    let mut flags = vec![
        format!("--model={}", asked.model),
        "--replay".to_owned(),
        format!("--forward-per-layer={}us", (forward * 1e6).round().max(1.0)),
        format!("--order={}", layout.order),
    ];
    let degrees = &layout.degrees;
    let degrees = [("tp", degrees.tp), ("cp", degrees.cp), ("dp", degrees.dp), ("pp", degrees.pp), ("ep", degrees.ep)]
        .into_iter()
        .chain([("etp", degrees.etp)]);
    flags.extend(degrees.map(|(axis, degree)| format!("--{axis}={degree}")));
    let fewer = layout.virtual_stages.min(MOST_VIRTUAL_STAGES);
    let layers = layers(question.model, layout.degrees.pp * fewer);
    let virtual_stages = if layers.is_some() { fewer } else { layout.virtual_stages };
    let mut keys = keys(question, layout, asked, virtual_stages)?;
    keys.extend(choices.given().filter(|(key, _)| !is_chosen(key)));
    match layers {
        Some(layers) => flags.push(format!("--layers={layers}")),
        None => keys.extend(layout.stage_layers.as_deref().map(|layers| ("stage_layers", list(layers)))),
    }
    for (key, value) in keys {
        flags.push(flag(key, &value)?);
    }
    Ok(flags)
}

/// Seconds of a forward pass of a micro-batch through a layer of the first stage, as it is replayed.
fn forward_per_layer(question: &Question, step: &TrainingStep) -> f64 {
    let layers = step.stages.layers_passed(0).count().max(1);
    (question.compute.stage(step, 0).forward_seconds() / layers as f64).min(LONGEST_FORWARD_SECONDS)
}

/// The choices of the planner as keys of `[training]`.
fn keys(
    question: &Question,
    layout: &Planned,
    asked: &QuestionFlags,
    virtual_stages: u32,
) -> Result<Vec<(&'static str, String)>> {
    let pp = layout.degrees.pp;
    let micro_batches = layout.micro_batches.min(MICRO_BATCHES_PER_STAGE * u64::from(pp));
    let (style, sequence_parallel) =
        question.with_step(layout, |step| Ok((step.training.data.style, step.training.tensor.sequence_parallel)))?;
    let mut keys = vec![
        ("sequence", asked.sequence.clone()),
        ("micro_batch", layout.micro_batch.to_string()),
        ("micro_batches", micro_batches.to_string()),
        ("recompute", layout.recompute.name().to_owned()),
        ("sequence_parallel", sequence_parallel.to_string()),
        ("data_style", style.name().to_owned()),
    ];
    if pp > 1 {
        keys.push(("schedule", layout.schedule.name().to_owned()));
        keys.push(("virtual_stages", virtual_stages.to_string()));
    }
    Ok(keys)
}

/// Keys that [`keys`] sets.
fn is_chosen(key: &str) -> bool {
    ["sequence_parallel", "data_style", "stage_layers"].contains(&key)
}

/// The fewest layers that hold one of each kind and can be shared out evenly to so many chunks; none where all are needed for that.
fn layers(model: &Model, chunks: u32) -> Option<u32> {
    let kinds_in = |layers: u32| (0..layers).map(|layer| model.parts_of(layer)).collect::<BTreeSet<_>>().len();
    let all = kinds_in(model.layers);
    let enough = (1..=model.layers).find(|layers| kinds_in(*layers) == all)?;
    Some(enough.max(LAYERS).next_multiple_of(chunks)).filter(|layers| *layers < model.layers)
}

fn list(layers: &[u32]) -> String {
    layers.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// A key of `[training]` as the flag that stands for it.
fn flag(key: &str, value: &str) -> Result<String> {
    let known = STEP_KEYS.iter().flat_map(|group| group.keys).find(|known| known.key == key);
    let known =
        known.ok_or_else(|| Error::usage(format!("{key} cannot be replayed; leave it out or give --no-overlap")))?;
    let value = match (known.form, value) {
        (KeyForm::Denial, "true") => "false",
        (KeyForm::Denial, "false") => "true",
        _ => value,
    };
    Ok(format!("{}={value}", known.flag))
}
