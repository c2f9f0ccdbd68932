//! Cuts the parameters of a rank into buckets, as filled by the backward pass: from the last tensor to the first.
//!
//! `zero` has the calls for each bucket.

use super::tensors::{Order, Part, Role, Shape, Tensor, is_in_eight_bits, of_chunk};
use crate::config::step::{BucketRule, DEEPSPEED_BUCKET_PARAMETERS, DataStyle, ParameterReturn};
use crate::workload::step::TrainingStep;
use commgauge_base::writing::grouped;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// PyTorch: size at which the first bucket closes, and every further one (torch/csrc/distributed/c10d/reducer.hpp).
const FIRST_BUCKET_BYTES: u64 = 1 << 20;

const BUCKET_BYTES: u64 = 25 << 20;

/// A rank's part of the parameters is a multiple of this (DeepSpeed runtime/zero/stage_1_and_2.py `nccl_start_alignment_factor`).
const DEEPSPEED_ALIGNMENT: u64 = 2;

/// The buckets of a part of the parameters of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Buckets {
    /// The parameters in them.
    pub share: Share,
    /// In the order in which the backward pass fills them, equal ones together, the last one separate.
    pub runs: Vec<Run>,
    /// For gathering parameters.
    pub gathered: Vec<Run>,
    pub parameters: u64,
    /// The rule, with its numbers.
    pub rule: String,
}

/// The buckets of a part: of all of it, or separately of what a layer-wise optimizer updates and of the rest. Megatron-LM has a buffer for
/// each type of parameters (core/distributed/param_and_grad_buffer.py group_params_for_buffers).
pub(super) fn of(step: &TrainingStep, stage: u32, part: &Part) -> Vec<Buckets> {
    let data = &step.training.data;
    let shares: &[Share] = match data.bucket_rule {
        BucketRule::LayerWise => &[Share::Whole, Share::Others],
        BucketRule::Megatron if data.parameter_element_type.moves_only() => &[Share::EightBits, Share::Wider],
        BucketRule::Megatron | BucketRule::PyTorch | BucketRule::DeepSpeed => &[Share::All],
    };
    shares.iter().map(|share| of_share(step, stage, part, *share)).collect()
}

fn of_share(step: &TrainingStep, stage: u32, part: &Part, share: Share) -> Buckets {
    let data = &step.training.data;
    // Whole tensors are sharded by their updating rank, not by their place in a bucket.
    let sharded = data.style != DataStyle::Ddp && data.parameter_return != ParameterReturn::GatherShares;
    let order = match data.bucket_rule {
        BucketRule::Megatron | BucketRule::LayerWise => Order::Megatron,
        // Only stage 2 reduces gradients as they are produced.
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

/// The tensors of a share in the order of their gradients, model chunk by model chunk.
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
    let of_chunk = |(tensors, limit): (Vec<Tensor>, Option<u64>)| bucketed(tensors.into_iter(), limit, part.ranks);
    chunks.into_iter().zip(limits).flat_map(of_chunk).collect()
}

/// The cuts of each model chunk of a layer-wise optimizer, in the order of `chunks`.
fn layered_limits(step: &TrainingStep, stage: u32) -> Vec<Option<u64>> {
    let data = &step.training.data;
    let limit = data.bucket_parameters.unwrap_or_else(|| megatron_parameters(step));
    let mut limits = vec![None; step.stages.chunks() as usize];
    if let (0, true, Some(first_of_model)) = (stage, data.overlap_gradients, limits.last_mut()) {
        *first_of_model = Some(limit);
    }
    limits
}

/// ZeRO closes a bucket before the tensor that would exceed the limit, in gradient order; without ZeRO the engine closes it after that
/// tensor, in model order.
fn deepspeed(chunks: &[Vec<Tensor>], limit: u64, style: DataStyle) -> (Vec<u64>, String) {
    let mut tensors: Vec<Tensor> = chunks.iter().flatten().copied().collect();
    if matches!(style, DataStyle::Ddp | DataStyle::Zero1) {
        // Stage 1 reduces at the end of the step, group by group in model order.
        tensors.reverse();
    }
    if style == DataStyle::Ddp {
        let cut = Cut { first: limit + 1, further: limit + 1, alignment: (1, 1) };
        let rule = format!("after the tensor that exceeds {limit} parameters, DeepSpeed runtime/engine.py");
        return (close(tensors.iter(), cut, SharedEmbedding::WithOthers), rule);
    }
    let mut buckets: Vec<u64> = Vec::new();
    let mut filled = 0;
    for Tensor { elements, .. } in tensors {
        if filled > 0 && filled + elements > limit {
            buckets.push(std::mem::take(&mut filled));
        }
        filled += elements;
    }
    buckets.extend((filled > 0).then_some(filled));
    let rule =
        format!("before the tensor that would exceed {limit} parameters, DeepSpeed runtime/zero/stage_1_and_2.py");
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
        _ => "one bucket for each model chunk, because earlier stages are still active when it is full".to_owned(),
    };
    (buckets, format!("{text}, Megatron-LM core/distributed/param_and_grad_buffer.py"))
}

fn megatron_parameters(step: &TrainingStep) -> u64 {
    (1_000_000 * u64::from(step.layout.degrees.dp)).max(40_000_000)
}

/// With matrices padded so that each is whole in the shard of a rank: chunks of one of the two shares, over this many ranks.
fn layered(step: &TrainingStep, stage: u32, share: Share, ranks: u64, chunks: &[Vec<Tensor>]) -> (Vec<u64>, String) {
    let limits = layered_limits(step, stage);
    let (alignment, embedding) = megatron_padding(Some(ranks));
    let mut buckets = Vec::new();
    for (tensors, limit) in chunks.iter().zip(&limits) {
        buckets.extend(match share {
            Share::Whole => self::buckets(tensors.iter().copied(), *limit, ranks),
            Share::All | Share::Others | Share::EightBits | Share::Wider => {
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

/// Alignment of a tensor's start and of a bucket's end, and the place of a shared embedding: sharded buckets are padded.
fn megatron_padding(shards: Option<u64>) -> ((u64, u64), SharedEmbedding) {
    match shards {
        Some(ranks) => ((TENSOR_ALIGNMENT, least_common_multiple(ranks, BUCKET_ALIGNMENT)), SharedEmbedding::Apart),
        None => ((1, 1), SharedEmbedding::WithOthers),
    }
}

// Megatron-FSDP's layout of tensors in the buffer of a bucket: no row of a tensor may cross shards, so a buffer is a multiple of the ranks
// and of a chunk that every row divides.
//
// Megatron-LM core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py `_get_parameter_groups` (step 3) and
// `build_data_parallel_buffer_index`.

/// Elements of the buffer of some tensors sharded over this many ranks.
pub(super) fn buffer(tensors: &[Tensor], ranks: u64) -> u64 {
    let mut tensors = tensors.to_vec();
    tensors.sort_by_key(|tensor| Reverse(tensor.row()));
    let chunk = chunk(&tensors);
    end(&tensors, chunk).next_multiple_of(chunk * ranks)
}

/// The chunk of the tensors, those with the longest rows first: the longest row, and a common multiple with rows that do not fit into it.
/// Tensors shorter than it count as fragments.
fn chunk(tensors: &[Tensor]) -> u64 {
    tensors.iter().fold(1, |chunk, tensor| {
        let fits = chunk.is_multiple_of(tensor.row()) && tensor.elements.is_multiple_of(chunk);
        if fits || tensor.elements < chunk { chunk } else { least_common_multiple(chunk, tensor.row()) }
    })
}

/// The end of the last tensor. The rest of a tensor's last chunk holds the rest of one other tensor, if one fits, and then fragments;
/// fragments without a place follow at the end.
fn end(tensors: &[Tensor], chunk: u64) -> u64 {
    let (mut fragments, mut whole): (Vec<u64>, Vec<u64>) =
        tensors.iter().map(|tensor| tensor.elements).partition(|elements| *elements < chunk);
    let mut end = 0;
    while !whole.is_empty() {
        let elements = whole.remove(0);
        let rest = elements % chunk;
        if rest == 0 {
            end += elements;
            continue;
        }
        end += elements.next_multiple_of(chunk);
        let mut space = chunk - rest;
        let fits = |other: &u64| !other.is_multiple_of(chunk) && other % chunk <= space;
        if let Some(place) = whole.iter().position(fits) {
            let other = whole.remove(place);
            space -= other % chunk;
            end += other / chunk * chunk;
        }
        fragments.retain(|fragment| {
            let stays = *fragment > space;
            space -= if stays { 0 } else { *fragment };
            stays
        });
    }
    end + fragments.iter().sum::<u64>()
}

// The buckets of Megatron-LM's layer-wise optimizer, as for Muon, which needs whole matrices: these are in separate buckets, each whole
// within the shard of one rank, and the rest is in buckets as in the distributed optimizer.
//
// Megatron-LM core/optimizer/layer_wise_optimizer.py `_compute_per_buffer_param_layout`, `is_managed_by_layer_wise_optimizer`. The
// assignment of matrices to shards costs padding: a bucket is as long as its fullest shard, times the ranks.

/// A bucket takes further matrices until it holds this fraction of the length that its largest one requires (`PADDING_FLOOR`).
const FILLED: f64 = 0.9;

/// Which tensors of a part share buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    All,
    /// Tensors that a layer-wise optimizer updates whole.
    Whole,
    /// Tensors that it leaves to the distributed optimizer.
    Others,
    /// Weights of linears that are stored in 8 bits.
    EightBits,
    /// Embedding, head, norms, biases and routers, which stay in the type of activations.
    Wider,
}

impl Share {
    pub fn has(self, tensor: &Tensor) -> bool {
        match self {
            Share::All => true,
            Share::Whole => is_whole(tensor),
            Share::Others => !is_whole(tensor),
            Share::EightBits | Share::Wider => is_in_eight_bits(tensor) == (self == Share::EightBits),
        }
    }

    /// Its name within a part, as a prefix of the part's name.
    pub fn words(self) -> &'static str {
        match self {
            Share::All => "",
            Share::Whole => "in matrices, each whole on one rank, of ",
            Share::Others => "in non-matrices, with embedding and head, of ",
            Share::EightBits => "in 8 bits of ",
            Share::Wider => "not in 8 bits, with embedding and head, of ",
        }
    }
}

/// Whether the layer-wise optimizer updates a tensor: matrices, without word embedding and head.
pub(super) fn is_whole(tensor: &Tensor) -> bool {
    matches!(tensor.shape, Shape::Matrix { .. }) && matches!(tensor.role, Role::Dense | Role::Expert)
}

/// Elements of each bucket, with padding.
pub(super) fn buckets(matrices: impl Iterator<Item = Tensor>, limit: Option<u64>, ranks: u64) -> Vec<u64> {
    bucketed(matrices, limit, ranks).into_iter().map(|bucket| padded(bucket, ranks)).collect()
}

/// The content of each bucket: matrices in gradient order, cut once they have `limit` elements.
pub(super) fn bucketed(matrices: impl Iterator<Item = Tensor>, limit: Option<u64>, ranks: u64) -> Vec<Vec<Tensor>> {
    let (mut buckets, mut open, mut filled, mut largest) = (Vec::new(), Vec::new(), 0, 0);
    for tensor in matrices {
        open.push(tensor);
        filled += tensor.elements;
        largest = tensor.elements.max(largest);
        let floor = ((ranks * largest) as f64 * FILLED) as u64;
        if limit.is_some_and(|limit| filled >= limit.max(floor)) {
            buckets.push(std::mem::take(&mut open));
            (filled, largest) = (0, 0);
        }
    }
    buckets.extend((!open.is_empty()).then_some(open));
    buckets
}

fn padded(bucket: Vec<Tensor>, ranks: u64) -> u64 {
    let mut fullest = 0;
    deal_out(bucket, ranks, |place| fullest = place.end.max(fullest));
    let alignment = least_common_multiple(TENSOR_ALIGNMENT, least_common_multiple(ranks, BUCKET_ALIGNMENT) / ranks);
    fullest.next_multiple_of(alignment) * ranks
}

/// The matrices of a bucket that the first rank updates.
pub(super) fn of_first_rank(bucket: Vec<Tensor>, ranks: u64) -> Vec<Tensor> {
    let mut own = Vec::new();
    deal_out(bucket, ranks, |place| own.extend((place.shard == 0).then_some(place.tensor)));
    own
}

/// A matrix's place in its bucket.
struct Dealt {
    tensor: Tensor,
    shard: u64,
    /// Its end in the shard.
    end: u64,
}

/// The largest matrix first, each to the first of the shards with the least.
fn deal_out(mut bucket: Vec<Tensor>, ranks: u64, mut to: impl FnMut(Dealt)) {
    bucket.sort_by_key(|tensor| Reverse(tensor.elements));
    let mut shards: BinaryHeap<Reverse<(u64, u64)>> = (0..ranks).map(|shard| Reverse((0, shard))).collect();
    for tensor in bucket {
        let Some(Reverse((least, shard))) = shards.pop() else { return };
        let end = least.next_multiple_of(TENSOR_ALIGNMENT) + tensor.elements;
        shards.push(Reverse((end, shard)));
        to(Dealt { tensor, shard, end });
    }
}

// Cuts a row of tensors into buckets, and groups equal buckets.

/// Megatron-LM: a tensor starts at a multiple of this many elements if buckets are sharded (param_and_grad_buffer.py).
pub(super) const TENSOR_ALIGNMENT: u64 = 64;

/// A bucket ends at a common multiple of this and the ranks.
pub(super) const BUCKET_ALIGNMENT: u64 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Elements of one bucket on the wire, padded if shards must be equal.
    pub elements: u64,
    /// Number of equal buckets.
    pub buckets: u64,
    /// Whether it is the bucket that closes at the end of the backward pass, and that the next forward pass needs first.
    pub last: bool,
}

/// The positions at which buckets close.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Elements after which the first bucket closes, at the next boundary between tensors.
    pub first: u64,
    /// The same for every further bucket.
    pub further: u64,
    /// Alignment of a tensor's start and of a bucket's end.
    pub alignment: (u64, u64),
}

/// Bucket of the gradients of an embedding that the first and the last stage share.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SharedEmbedding {
    /// Into a bucket with the tensors before and after it.
    WithOthers,
    /// In a separate bucket.
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

/// Cuts after exactly this many parameters, even within a tensor.
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
    let run = |elements: u64, buckets: usize, last| Run { elements, buckets: buckets as u64, last };
    let equal = grouped(before.iter().map(|elements| (*elements, ()))).into_iter();
    equal.map(|(elements, buckets)| run(elements, buckets.len(), false)).chain([run(*last, 1, true)]).collect()
}

/// The smallest number that both divide.
pub(super) fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x.max(1) * b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_never_cross_shards() {
        // A layer of Llama 3 8B: rows of 14336 and 4096, whose common multiple is 28672. The output projection leaves 4096 elements in its
        // last chunk, q, k and v 20480, and one norm fills it: 4096 + 20480 + 4096 = 28672. The other norm comes last.
        let norm = Tensor::vector(4096);
        let layer = [
            Tensor::matrix(4096 * 4096, 4096),
            norm,
            Tensor::matrix(6144 * 4096, 4096),
            norm,
            Tensor::matrix(28672 * 4096, 4096),
            Tensor::matrix(4096 * 14336, 14336),
        ];
        let parameters: u64 = layer.iter().map(|tensor| tensor.elements).sum();
        assert_eq!(parameters, 218_112_000);
        // 950.9 times 8 ranks of 28672.
        assert_eq!(buffer(&layer, 8), 951 * 8 * 28672);
        assert_eq!(buffer(&layer, 1), 7608 * 28672, "7607.1 chunks");
    }

    #[test]
    fn gaps_are_filled_by_the_rest_of_one_tensor_and_by_fragments() {
        let row = |rows: u64, row: u64| Tensor::matrix(rows * row, row);
        // Rows of 6 and 4: chunks of 12. 18 and 8: 18 leaves 6 of its second chunk; 8 is a fragment and does not fit.
        assert_eq!(chunk(&[row(3, 6), row(4, 4)]), 12);
        assert_eq!(end(&[row(3, 6), row(2, 4)], 12), 24 + 8);
        // 16 = 12 + 4 has its rest of 4 in the gap of 6, and a fragment of 2 the rest of that.
        assert_eq!(end(&[row(3, 6), row(4, 4), Tensor::vector(2)], 12), 24 + 12);
        assert_eq!(buffer(&[Tensor::vector(10)], 4), 12, "one dimension has rows of one element");
    }

    fn of(elements: impl IntoIterator<Item = u64>) -> Vec<Tensor> {
        elements.into_iter().map(|elements| Tensor::matrix(elements, 1)).collect()
    }

    #[test]
    fn a_bucket_is_as_long_as_its_fullest_shard_for_every_rank() {
        // Two shards: 1000 | 600 then 300 at 640: 940. The fullest ends at 1000, rounded up to 1024.
        assert_eq!(padded(of([300, 1000, 600]), 2), 2 * 1024);
        assert_eq!(padded(of([128]), 4), 4 * 128, "three shards are empty");
        assert_eq!(padded(of([128; 6]), 3), 3 * 256, "lcm(3, 128) / 3 = 128 elements");
    }

    #[test]
    fn the_first_rank_has_the_largest_matrix_of_a_bucket() {
        let elements = |own: Vec<Tensor>| own.into_iter().map(|tensor| tensor.elements).collect::<Vec<_>>();
        assert_eq!(elements(of_first_rank(of([300, 1000, 600]), 2)), [1000]);
        assert_eq!(elements(of_first_rank(of([128; 6]), 4)), [128, 128], "the fifth returns to it");
    }

    #[test]
    fn a_bucket_closes_at_its_limit_but_not_before_its_largest_matrix_is_matched() {
        assert_eq!(buckets(of([128; 8]).into_iter(), None, 2), [1024], "one");
        assert_eq!(buckets(of([128; 8]).into_iter(), Some(256), 2), [256; 4]);
        // 0.9 x 4 x 1000 = 3600 are asked for after the first, and 1000 + 26 x 100 have them: 1000 on one shard, 9 or 8 of 100 at
        // multiples of 128 on the others, which end at 8 x 128 + 100 = 1124, rounded up to 1152.
        let matrices = of(std::iter::once(1000).chain([100; 30]));
        assert_eq!(buckets(matrices.into_iter(), Some(256), 4), [4 * 1152, 4 * 128]);
    }
}
