//! Expert parallelism: how tokens reach their experts and come back, in every layer that has experts.
//!
//! Shared experts are computed where the tokens are and send nothing. What the styles of dense layers do around the experts is
//! theirs; gradients of experts are reduced by data parallelism.

mod all_gather;
mod all_to_all;
mod layer;

use crate::config::step::Dispatcher;
use crate::error::Result;
use crate::workload::Op;
use crate::workload::step::TrainingStep;
use layer::ExpertLayer;

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let Some(layer) = ExpertLayer::of(step, stage) else { return Ok(Vec::new()) };
    match step.training.expert.dispatcher {
        Dispatcher::AllToAll => all_to_all::ops(&layer),
        Dispatcher::AllGather => all_gather::ops(&layer),
    }
}

#[cfg(test)]
mod tests;
