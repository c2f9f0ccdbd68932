//! Where a row of tensors is cut into buckets, and equal buckets together.

use super::tensor::Tensor;

/// Megatron-LM: a tensor starts at a multiple of this many elements where buckets are sharded (param_and_grad_buffer.py).
pub(super) const TENSOR_ALIGNMENT: u64 = 64;
/// And a bucket ends at a common multiple of this and the ranks.
pub(super) const BUCKET_ALIGNMENT: u64 = 128;

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

/// Where buckets close.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Elements after which the first bucket closes, at the next boundary between tensors.
    pub first: u64,
    /// The same for every further bucket.
    pub further: u64,
    /// Alignment of a tensor's start and of a bucket's end.
    pub alignment: (u64, u64),
}

/// Where the gradients of an embedding go that the first and the last stage share.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SharedEmbedding {
    /// Into a bucket with the tensors before and after it.
    WithOthers,
    /// Into a bucket of its own.
    Apart,
}

/// Elements of each bucket, with padding.
pub(super) fn close<'a>(tensors: impl Iterator<Item = &'a Tensor>, cut: Cut, embedding: SharedEmbedding) -> Vec<u64> {
    let (tensor_alignment, bucket_alignment) = cut.alignment;
    let mut buckets: Vec<u64> = Vec::new();
    let mut filled = 0u64;
    for tensor in tensors {
        let alone = embedding == SharedEmbedding::Apart && tensor.is_shared();
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
pub(super) fn exactly(parameters: u64, bucket: u64, even: u64) -> Vec<Run> {
    let rest = match parameters % bucket {
        0 => bucket.min(parameters),
        rest => rest,
    };
    let run = |parameters: u64, buckets, last| Run { elements: parameters.next_multiple_of(even), buckets, last };
    let whole = run(bucket, parameters.saturating_sub(rest) / bucket, false);
    [whole, run(rest, 1, true)].into_iter().filter(|run| run.buckets * run.elements > 0).collect()
}

/// Groups equal buckets, in the order of first appearance.
pub(super) fn runs(buckets: &[u64]) -> Vec<Run> {
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

/// The smallest number that both divide.
pub(super) fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x.max(1) * b
}
