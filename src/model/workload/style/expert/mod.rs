//! Expert parallelism: how tokens reach their experts and return, in every layer with experts.
//!
//! Shared experts are computed on the rank of the token and send nothing. The calls of dense layers around the experts
//! are part of other styles; data parallelism reduces the gradients of experts.

mod all_gather;
mod all_to_all;
mod balance;
mod by_node;
mod layer;

use crate::config::step::Dispatcher;
use crate::workload::Op;
use crate::workload::step::TrainingStep;
use crate::workload::style::deep_ep::Library;
use commgauge_base::error::Result;
use layer::ExpertLayer;

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let Some(layer) = ExpertLayer::of(step, stage) else { return Ok(Vec::new()) };
    let mut ops = match step.training.expert.dispatcher {
        Dispatcher::AllToAll => all_to_all::ops(&layer)?,
        Dispatcher::AllGather => all_gather::ops(&layer)?,
        Dispatcher::DeepEp => by_node::ops(&layer, Library::DeepEp)?,
        Dispatcher::HybridEp => by_node::ops(&layer, Library::HybridEp)?,
    };
    ops.extend(balance::ops(&layer)?);
    Ok(ops)
}

#[cfg(test)]
mod tests;
