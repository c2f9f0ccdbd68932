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

/// The calls of one rank of a stage in an optimizer step. A style returns nothing if its choices need no calls.
pub(super) fn training_ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    type Ops = fn(&TrainingStep, u32) -> Result<Vec<Op>>;
    let styles: [Ops; 8] = [
        tensor::ops,
        sequence::ops,
        vocabulary::ops,
        context::ops,
        expert::ops,
        data::ops,
        pipeline::ops,
        control::ops,
    ];
    let mut all = Vec::new();
    for style in styles {
        all.extend(style(step, stage)?);
    }
    Ok(all)
}

/// Of these the calls in the passes of micro-batches that carry activations.
pub(super) fn activation_ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let mut all = Vec::new();
    let styles: [fn(&TrainingStep, u32) -> Result<Vec<Op>>; 5] =
        [tensor::ops, sequence::ops, vocabulary::ops, context::ops, expert::ops];
    for style in styles {
        all.extend(style(step, stage)?);
    }
    Ok(all)
}

/// The calls of one rank of a stage in a forward pass over requests.
pub(super) fn serving_ops(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    serving::ops(step, stage)
}
