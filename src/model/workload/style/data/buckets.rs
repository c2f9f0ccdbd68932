//! Cuts the parameters of a rank into buckets, as the backward pass fills them: from the last tensor to the first.
//!
//! `zero` has the calls for each bucket.

use super::parts::Part;
use super::tensors::{Order, Tensor, of_chunk};
use crate::config::step::{BucketRule, DataStyle, ParameterReturn};
use crate::workload::step::TrainingStep;

/// Megatron-LM: a tensor starts at a multiple of this many elements where buckets are sharded (param_and_grad_buffer.py).
const TENSOR_ALIGNMENT: u64 = 64;
/// And a bucket ends at a common multiple of this and the ranks.
const BUCKET_ALIGNMENT: u64 = 128;
/// PyTorch: bytes after which the first bucket closes, and every further one (torch/csrc/distributed/c10d/reducer.hpp).
const FIRST_BUCKET_BYTES: u64 = 1 << 20;
const BUCKET_BYTES: u64 = 25 << 20;

/// DeepSpeed: parameters that a bucket holds at most, and what a rank's part of the parameters is a multiple of
/// (runtime/zero/config.py `reduce_bucket_size`, runtime/zero/stage_1_and_2.py `nccl_start_alignment_factor`).
const DEEPSPEED_PARAMETERS: u64 = 500_000_000;
const DEEPSPEED_ALIGNMENT: u64 = 2;

/// Equal buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Elements of one bucket on the wire, padded where shards must be equal.
    pub elements: u64,
    /// Number of equal buckets.
    pub buckets: u64,
    /// Whether it is the bucket that closes when the backward pass ends, and that the next forward pass needs first.
    pub last: bool,
}

/// The buckets of a part of the parameters of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Buckets {
    /// In the order in which the backward pass fills them, equal ones together, the last one separate.
    pub runs: Vec<Run>,
    /// The same for gathering parameters.
    pub gathered: Vec<Run>,
    /// Parameters in all of them.
    pub parameters: u64,
    /// The rule, with its numbers.
    pub rule: String,
}

/// Where buckets close.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Elements after which the first bucket closes, at the next boundary between tensors.
    first: u64,
    /// The same for every further bucket.
    further: u64,
    /// Alignment of a tensor's start and of a bucket's end.
    alignment: (u64, u64),
}

/// The buckets of a part.
pub(super) fn of(step: &TrainingStep, stage: u32, part: &Part) -> Buckets {
    let data = &step.training.data;
    // Whole tensors are sharded by whom updates them, not by where they lie in a bucket.
    let sharded = data.style != DataStyle::Ddp && data.parameter_return != ParameterReturn::GatherShares;
    let order = match data.bucket_rule {
        BucketRule::Megatron => Order::Megatron,
        // Only stage 2 reduces gradients as they come.
        BucketRule::DeepSpeed if data.style != DataStyle::Zero2 => Order::Definition,
        BucketRule::PyTorch | BucketRule::DeepSpeed => Order::PyTorch,
    };
    let chunks: Vec<Vec<Tensor>> = (0..step.stages.chunks())
        .rev()
        .map(|chunk| {
            let tensors = of_chunk(step, stage, chunk, order).into_iter().rev();
            tensors.filter(|tensor| if tensor.expert { part.experts } else { part.dense }).collect()
        })
        .collect();
    let parameters: u64 = chunks.iter().flatten().map(|tensor| tensor.elements).sum();
    let even = if sharded { part.ranks } else { 1 };
    let (buckets, rule) = match (data.bucket_parameters, data.bucket_rule) {
        (limit, BucketRule::DeepSpeed) => {
            let limit = limit.unwrap_or(DEEPSPEED_PARAMETERS);
            let (buckets, rule) = deepspeed(&chunks, limit, data.style);
            let elements = parameters.next_multiple_of(DEEPSPEED_ALIGNMENT * part.ranks);
            let gathered = vec![Run { elements, buckets: 1, last: true }];
            return Buckets { runs: runs(&buckets), gathered, parameters, rule };
        }
        _ if !data.overlap_gradients => {
            let (alignment, embedding) = match data.bucket_rule {
                BucketRule::Megatron => megatron_padding(sharded.then_some(part.ranks)),
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
    Buckets { gathered: runs.clone(), runs, parameters, rule }
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
    let d = u64::from(step.layout.degrees.dp);
    let rule = (1_000_000 * d).max(40_000_000);
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

/// Alignment of a tensor's start and of a bucket's end, and where a shared embedding goes: buckets that are sharded are padded.
fn megatron_padding(shards: Option<u64>) -> ((u64, u64), SharedEmbedding) {
    match shards {
        Some(ranks) => ((TENSOR_ALIGNMENT, least_common_multiple(ranks, BUCKET_ALIGNMENT)), SharedEmbedding::Apart),
        None => ((1, 1), SharedEmbedding::WithOthers),
    }
}

/// Where the gradients of an embedding go that the first and the last stage share.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SharedEmbedding {
    /// Into a bucket with the tensors before and after it.
    WithOthers,
    /// Into a bucket of its own.
    Apart,
}

/// Elements of each bucket, with padding.
fn close<'a>(tensors: impl Iterator<Item = &'a Tensor>, cut: Cut, embedding: SharedEmbedding) -> Vec<u64> {
    let (tensor_alignment, bucket_alignment) = cut.alignment;
    let mut buckets: Vec<u64> = Vec::new();
    let mut filled = 0u64;
    for tensor in tensors {
        let alone = embedding == SharedEmbedding::Apart && tensor.shared_embedding;
        if alone && filled > 0 {
            buckets.push(filled.next_multiple_of(bucket_alignment));
            filled = 0;
        }
        filled = filled.next_multiple_of(tensor_alignment) + tensor.elements;
        if alone || filled >= if buckets.is_empty() { cut.first } else { cut.further } {
            buckets.push(filled.next_multiple_of(bucket_alignment));
            filled = 0;
        }
    }
    buckets.extend((filled > 0).then(|| filled.next_multiple_of(bucket_alignment)));
    buckets
}

/// Cuts after exactly this many parameters, wherever that is in a tensor.
fn exactly(parameters: u64, bucket: u64, even: u64) -> Vec<Run> {
    let rest = match parameters % bucket {
        0 => bucket.min(parameters),
        rest => rest,
    };
    let run = |parameters: u64, buckets, last| Run { elements: parameters.next_multiple_of(even), buckets, last };
    let whole = run(bucket, parameters.saturating_sub(rest) / bucket, false);
    [whole, run(rest, 1, true)].into_iter().filter(|run| run.buckets * run.elements > 0).collect()
}

/// Groups equal buckets, in the order of first appearance.
fn runs(buckets: &[u64]) -> Vec<Run> {
    let Some((last, before)) = buckets.split_last() else { return Vec::new() };
    let mut runs: Vec<Run> = Vec::new();
    for elements in before {
        match runs.iter_mut().find(|run| run.elements == *elements) {
            Some(run) => run.buckets += 1,
            None => runs.push(Run { elements: *elements, buckets: 1, last: false }),
        }
    }
    runs.push(Run { elements: *last, buckets: 1, last: true });
    runs
}

fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x.max(1) * b
}
