//! Data parallelism: the gradients and parameters that the replicas of a stage exchange in an optimizer step.
//!
//! `tensors` lists the parameters of a rank, `buckets` cuts them, `zero` has the styles that work on buckets (DDP,
//! ZeRO-1, ZeRO-2), `layer_wise` those of whole matrices, `fsdp` those that gather parameters for every use (ZeRO-3, FSDP, HSDP) in its
//! `units`, which Megatron-FSDP fills by a `bucket_layout`, `modules` ZeRO-3 as DeepSpeed runs it,
//! by what its `coordinator` gathers at each module, `quantised` what ZeRO++ makes of that, `orthogonalised` what Muon sends between the
//! parts of a matrix.

mod broadcasts;
mod bucket_layout;
mod buckets;
mod coordinator;
mod cut;
#[cfg(test)]
mod framework_tests;
mod fsdp;
mod gathered_shares;
mod layer_wise;
#[cfg(test)]
mod levels_tests;
#[cfg(test)]
mod matrices_tests;
mod mixers;
mod modules;
mod orthogonalised;
mod parts;
mod quantised;
#[cfg(test)]
mod shards_tests;
mod tensor;
mod tensors;
#[cfg(test)]
mod tests;
mod traced;
mod units;
mod zero;

use crate::config::step::{DataStyle, UnitRule};
use crate::workload::Op;
use crate::workload::step::TrainingStep;
use commgauge_base::error::Result;

/// How many tensors of parameters a rank of a stage has, as transformers' modules define them.
pub(super) fn tensors_of_stage(step: &TrainingStep, stage: u32) -> u64 {
    let of_chunk = |chunk| tensors::of_chunk(step, stage, chunk, tensor::Order::Definition).len() as u64;
    (0..step.stages.chunks()).map(of_chunk).sum()
}

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let mut ops = match step.training.data.style {
        DataStyle::Zero3 if step.training.data.units.rule == UnitRule::Modules => modules::ops(step, stage)?,
        DataStyle::Ddp | DataStyle::Zero1 | DataStyle::Zero2 => zero::ops(step, stage),
        DataStyle::Zero3 | DataStyle::Fsdp | DataStyle::Hsdp => fsdp::ops(step, stage),
    };
    for part in parts::parts(step) {
        ops.extend(orthogonalised::ops(step, stage, &part));
    }
    Ok(ops)
}
