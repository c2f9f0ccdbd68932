//! The communications of each parallel style, one file for each. A new style is its file and one line here.

mod context;
mod control;
mod data;
mod deep_ep;
mod expert;
#[cfg(test)]
mod hybrid_tests;
mod pipeline;
mod product;
mod recompute;
mod replicated;
mod sequence;
mod serving;
mod tensor;
#[cfg(test)]
mod testing;
mod vocabulary;

use super::Op;
use super::step::{ServingStep, TrainingStep};
use commgauge_base::error::Result;

/// The calls of a style of one rank of a stage. A style returns nothing if its choices need no calls.
type Ops = fn(&TrainingStep, u32) -> Result<Vec<Op>>;

/// Styles whose calls carry activations in the passes of micro-batches.
const OF_ACTIVATIONS: [Ops; 5] = [tensor::ops, sequence::ops, vocabulary::ops, context::ops, expert::ops];

/// The others of a training step.
const OF_A_STEP: [Ops; 3] = [data::ops, pipeline::ops, control::ops];

fn of_styles<'a>(styles: impl IntoIterator<Item = &'a Ops>, step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let mut all = Vec::new();
    for style in styles {
        all.extend(style(step, stage)?);
    }
    Ok(all)
}

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn training_ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    of_styles(OF_ACTIVATIONS.iter().chain(&OF_A_STEP), step, stage)
}

/// Of these the calls in the passes of micro-batches that carry activations.
pub(super) fn activation_ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    of_styles(&OF_ACTIVATIONS, step, stage)
}

/// The calls of one rank of a stage in a forward pass over requests.
pub(super) fn serving_ops(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    serving::ops(step, stage)
}
