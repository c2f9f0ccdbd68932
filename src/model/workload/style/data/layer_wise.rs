//! The buckets of Megatron-LM's layer-wise optimizer, as for Muon, which needs whole matrices: those lie in buckets of their own, each whole
//! within the shard of one rank, and the rest in buckets as the distributed optimizer has them.
//!
//! Megatron-LM core/optimizer/layer_wise_optimizer.py `_compute_per_buffer_param_layout`, `is_managed_by_layer_wise_optimizer`. Which matrix
//! goes to which shard costs padding: a bucket is as long as its fullest shard, times the ranks.

use super::cut::{BUCKET_ALIGNMENT, TENSOR_ALIGNMENT, least_common_multiple};
use super::tensor::{Role, Shape, Tensor};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A bucket takes further matrices until it has this part of what its largest one makes it long (`PADDING_FLOOR`).
const FILLED: f64 = 0.9;

/// Which tensors of a part lie in the same buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// All.
    All,
    /// Those that a layer-wise optimizer updates whole.
    Whole,
    /// Those that it leaves to the distributed optimizer.
    Others,
}

impl Share {
    /// Whether it has a tensor.
    pub fn has(self, tensor: &Tensor) -> bool {
        match self {
            Share::All => true,
            Share::Whole => is_whole(tensor),
            Share::Others => !is_whole(tensor),
        }
    }

    /// What it is of a part, in words that stand before the part's name.
    pub fn words(self) -> &'static str {
        match self {
            Share::All => "",
            Share::Whole => "in matrices, each whole on one rank, of ",
            Share::Others => "in what is no matrix, with embedding and head, of ",
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

/// What lies in each bucket: matrices in the order in which their gradients come, cut once they have `limit` elements.
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

/// Elements of a bucket.
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

/// Where a matrix lies in its bucket.
struct Dealt {
    tensor: Tensor,
    shard: u64,
    /// Where it ends in the shard.
    end: u64,
}

/// The largest matrix first, each to the first shard of those that have least.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(elements(of_first_rank(of([128; 6]), 4)), [128, 128], "the fifth comes round to it");
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
