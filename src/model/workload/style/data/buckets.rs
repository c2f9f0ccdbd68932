//! Cuts the parameters of a rank into buckets, as the backward pass fills them: from the last tensor to the first.
//!
//! `zero` has the calls for each bucket.

use super::cut::{
    BUCKET_ALIGNMENT, Cut, Run, SharedEmbedding, TENSOR_ALIGNMENT, close, exactly, least_common_multiple, runs,
};
use super::layer_wise::{self, Share};
use super::parts::Part;
use super::tensor::{Order, Tensor};
use super::tensors::of_chunk;
use crate::config::step::{BucketRule, DEEPSPEED_BUCKET_PARAMETERS, DataStyle, ParameterReturn};
use crate::workload::step::TrainingStep;

/// PyTorch: bytes after which the first bucket closes, and every further one (torch/csrc/distributed/c10d/reducer.hpp).
const FIRST_BUCKET_BYTES: u64 = 1 << 20;
const BUCKET_BYTES: u64 = 25 << 20;

/// What a rank's part of the parameters is a multiple of (DeepSpeed runtime/zero/stage_1_and_2.py `nccl_start_alignment_factor`).
const DEEPSPEED_ALIGNMENT: u64 = 2;

/// The buckets of a part of the parameters of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Buckets {
    /// What they hold.
    pub share: Share,
    /// In the order in which the backward pass fills them, equal ones together, the last one separate.
    pub runs: Vec<Run>,
    /// The same for gathering parameters.
    pub gathered: Vec<Run>,
    /// Parameters in all of them.
    pub parameters: u64,
    /// The rule, with its numbers.
    pub rule: String,
}

/// The buckets of a part: of all of it, or of what a layer-wise optimizer updates and of the rest.
pub(super) fn of(step: &TrainingStep, stage: u32, part: &Part) -> Vec<Buckets> {
    match step.training.data.bucket_rule {
        BucketRule::LayerWise => {
            vec![of_share(step, stage, part, Share::Whole), of_share(step, stage, part, Share::Others)]
        }
        BucketRule::Megatron | BucketRule::PyTorch | BucketRule::DeepSpeed => {
            vec![of_share(step, stage, part, Share::All)]
        }
    }
}

fn of_share(step: &TrainingStep, stage: u32, part: &Part, share: Share) -> Buckets {
    let data = &step.training.data;
    // Whole tensors are sharded by whom updates them, not by where they lie in a bucket.
    let sharded = data.style != DataStyle::Ddp && data.parameter_return != ParameterReturn::GatherShares;
    let order = match data.bucket_rule {
        BucketRule::Megatron | BucketRule::LayerWise => Order::Megatron,
        // Only stage 2 reduces gradients as they come.
        BucketRule::DeepSpeed if data.style != DataStyle::Zero2 => Order::Definition,
        BucketRule::PyTorch | BucketRule::DeepSpeed => Order::PyTorch,
    };
    let chunks = chunks(step, stage, part, share, order);
    let parameters: u64 = chunks.iter().flatten().map(|tensor| tensor.elements).sum();
    let even = if sharded { part.ranks } else { 1 };
    let (buckets, rule) = match (data.bucket_parameters, data.bucket_rule) {
        (limit, BucketRule::DeepSpeed) => {
            let limit = limit.unwrap_or(DEEPSPEED_BUCKET_PARAMETERS);
            let (buckets, rule) = deepspeed(&chunks, limit, data.style);
            let elements = parameters.next_multiple_of(DEEPSPEED_ALIGNMENT * part.ranks);
            let gathered = vec![Run { elements, buckets: 1, last: true }];
            return Buckets { share, runs: runs(&buckets), gathered, parameters, rule };
        }
        (_, BucketRule::LayerWise) => layered(step, stage, share, part.ranks, &chunks),
        _ if !data.overlap_gradients => {
            let (alignment, embedding) = match data.bucket_rule {
                BucketRule::Megatron | BucketRule::LayerWise => megatron_padding(sharded.then_some(part.ranks)),
                BucketRule::PyTorch | BucketRule::DeepSpeed => ((1, even), SharedEmbedding::WithOthers),
            };
            let cut = Cut { first: u64::MAX, further: u64::MAX, alignment };
            (
                close(chunks.iter().flatten(), cut, embedding),
                "one bucket, because nothing overlaps (overlap_gradients = false)".to_owned(),
            )
        }
        (Some(bucket), _) => {
            let runs = exactly(parameters, bucket, even);
            return Buckets {
                share,
                gathered: runs.clone(),
                runs,
                parameters,
                rule: format!("after exactly bucket_parameters = {bucket}"),
            };
        }
        (None, BucketRule::PyTorch) => {
            let element = data.gradient_element_type.size();
            let cut =
                Cut { first: FIRST_BUCKET_BYTES / element, further: BUCKET_BYTES / element, alignment: (1, even) };
            let rule = "at 1 MiB, then at every 25 MiB, between tensors, PyTorch c10d/reducer.cpp";
            (close(chunks.iter().flatten(), cut, SharedEmbedding::WithOthers), rule.to_owned())
        }
        (None, BucketRule::Megatron) => megatron(step, stage, &chunks, if sharded { Some(part.ranks) } else { None }),
    };
    let runs = runs(&buckets);
    Buckets { share, gathered: runs.clone(), runs, parameters, rule }
}

/// The tensors of a share in the order in which their gradients come, model chunk by model chunk.
fn chunks(step: &TrainingStep, stage: u32, part: &Part, share: Share, order: Order) -> Vec<Vec<Tensor>> {
    let of_share = |chunk| {
        let tensors = of_chunk(step, stage, chunk, order).into_iter().rev();
        let of_part = tensors.filter(|tensor| if tensor.is_expert() { part.experts } else { part.dense });
        of_part.filter(|tensor| share.has(tensor)).collect()
    };
    (0..step.stages.chunks()).rev().map(of_share).collect()
}

/// The matrices of each bucket of a layer-wise optimizer.
pub(super) fn of_matrices(step: &TrainingStep, stage: u32, part: &Part) -> Vec<Vec<Tensor>> {
    let chunks = chunks(step, stage, part, Share::Whole, Order::Megatron);
    let limits = layered_limits(step, stage);
    let of_chunk =
        |(tensors, limit): (Vec<Tensor>, Option<u64>)| layer_wise::bucketed(tensors.into_iter(), limit, part.ranks);
    chunks.into_iter().zip(limits).flat_map(of_chunk).collect()
}

/// What cuts each model chunk of a layer-wise optimizer, in the order of `chunks`.
fn layered_limits(step: &TrainingStep, stage: u32) -> Vec<Option<u64>> {
    let data = &step.training.data;
    let limit = data.bucket_parameters.unwrap_or_else(|| megatron_parameters(step));
    let mut limits = vec![None; step.stages.chunks() as usize];
    if let (0, true, Some(first_of_model)) = (stage, data.overlap_gradients, limits.last_mut()) {
        *first_of_model = Some(limit);
    }
    limits
}

/// ZeRO closes a bucket before the tensor that would pass the limit, in the order in which gradients are there; without ZeRO
/// the engine closes it behind that tensor, in the order of the model.
fn deepspeed(chunks: &[Vec<Tensor>], limit: u64, style: DataStyle) -> (Vec<u64>, String) {
    let mut tensors: Vec<u64> = chunks.iter().flatten().map(|tensor| tensor.elements).collect();
    if style == DataStyle::Ddp {
        tensors.reverse();
        let mut buckets: Vec<u64> = Vec::new();
        let mut filled = 0;
        for elements in tensors {
            filled += elements;
            if filled > limit {
                buckets.push(std::mem::take(&mut filled));
            }
        }
        buckets.extend((filled > 0).then_some(filled));
        let rule = format!("behind the tensor that passes {limit} parameters, DeepSpeed runtime/engine.py");
        return (buckets, rule);
    }
    if style == DataStyle::Zero1 {
        // Stage 1 reduces at the end of the step, group by group in the order of the model.
        tensors.reverse();
    }
    let mut buckets: Vec<u64> = Vec::new();
    let mut filled = 0;
    for elements in tensors {
        if filled > 0 && filled + elements > limit {
            buckets.push(std::mem::take(&mut filled));
        }
        filled += elements;
    }
    buckets.extend((filled > 0).then_some(filled));
    let rule = format!("before the tensor that would pass {limit} parameters, DeepSpeed runtime/zero/stage_1_and_2.py");
    (buckets, rule)
}

/// `max(40e6, 1e6 d)` parameters, on the first stage and its first chunk only; every other chunk is one bucket
/// (Megatron-LM core/distributed/distributed_data_parallel.py, training/training.py).
fn megatron(step: &TrainingStep, stage: u32, chunks: &[Vec<Tensor>], shards: Option<u64>) -> (Vec<u64>, String) {
    let (d, rule) = (step.layout.degrees.dp, megatron_parameters(step));
    let (alignment, embedding) = megatron_padding(shards);
    let mut buckets = Vec::new();
    for (index, tensors) in chunks.iter().enumerate() {
        let cut_up = stage == 0 && index + 1 == chunks.len();
        let parameters = if cut_up { rule } else { u64::MAX };
        buckets.extend(close(tensors.iter(), Cut { first: parameters, further: parameters, alignment }, embedding));
    }
    let text = match stage {
        0 => format!("at max(40e6, 1e6*d) = {rule} parameters with d = {d}, between tensors"),
        _ => "one bucket for each model chunk, because the stages before are still at work when it is full".to_owned(),
    };
    (buckets, format!("{text}, Megatron-LM core/distributed/param_and_grad_buffer.py"))
}

fn megatron_parameters(step: &TrainingStep) -> u64 {
    (1_000_000 * u64::from(step.layout.degrees.dp)).max(40_000_000)
}

/// The same with matrices padded so that each is whole in the shard of a rank: chunks of one of the two shares, over so many ranks.
fn layered(step: &TrainingStep, stage: u32, share: Share, ranks: u64, chunks: &[Vec<Tensor>]) -> (Vec<u64>, String) {
    let limits = layered_limits(step, stage);
    let (alignment, embedding) = megatron_padding(Some(ranks));
    let mut buckets = Vec::new();
    for (tensors, limit) in chunks.iter().zip(&limits) {
        buckets.extend(match share {
            Share::Whole => layer_wise::buckets(tensors.iter().copied(), *limit, ranks),
            Share::All | Share::Others => {
                let parameters = limit.unwrap_or(u64::MAX);
                close(tensors.iter(), Cut { first: parameters, further: parameters, alignment }, embedding)
            }
        });
    }
    let cut = match limits.iter().flatten().next() {
        Some(limit) => format!("at {limit} parameters"),
        None => "one bucket for each model chunk".to_owned(),
    };
    (buckets, format!("{cut}, Megatron-LM core/optimizer/layer_wise_optimizer.py _compute_per_buffer_param_layout"))
}

/// Alignment of a tensor's start and of a bucket's end, and where a shared embedding goes: buckets that are sharded are padded.
fn megatron_padding(shards: Option<u64>) -> ((u64, u64), SharedEmbedding) {
    match shards {
        Some(ranks) => ((TENSOR_ALIGNMENT, least_common_multiple(ranks, BUCKET_ALIGNMENT)), SharedEmbedding::Apart),
        None => ((1, 1), SharedEmbedding::WithOthers),
    }
}
