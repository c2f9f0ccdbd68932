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
fn is_whole(tensor: &Tensor) -> bool {
    matches!(tensor.shape, Shape::Matrix { .. }) && matches!(tensor.role, Role::Dense | Role::Expert)
}

/// Elements of each bucket, with padding: matrices in the order in which their gradients come, cut once they have `limit` elements.
pub(super) fn buckets(matrices: impl Iterator<Item = u64>, limit: Option<u64>, ranks: u64) -> Vec<u64> {
    let (mut buckets, mut open, mut filled, mut largest) = (Vec::new(), Vec::new(), 0, 0);
    for elements in matrices {
        open.push(elements);
        filled += elements;
        largest = elements.max(largest);
        let floor = ((ranks * largest) as f64 * FILLED) as u64;
        if limit.is_some_and(|limit| filled >= limit.max(floor)) {
            buckets.push(padded(std::mem::take(&mut open), ranks));
            (filled, largest) = (0, 0);
        }
    }
    buckets.extend((!open.is_empty()).then(|| padded(open, ranks)));
    buckets
}

/// Elements of a bucket: the largest matrix first, each to the shard that has least.
fn padded(mut matrices: Vec<u64>, ranks: u64) -> u64 {
    matrices.sort_unstable_by_key(|elements| Reverse(*elements));
    let mut shards: BinaryHeap<Reverse<u64>> = (0..ranks).map(|_| Reverse(0)).collect();
    let mut fullest = 0;
    for elements in matrices {
        let Some(Reverse(least)) = shards.pop() else { break };
        let end = least.next_multiple_of(TENSOR_ALIGNMENT) + elements;
        fullest = fullest.max(end);
        shards.push(Reverse(end));
    }
    let alignment = least_common_multiple(TENSOR_ALIGNMENT, least_common_multiple(ranks, BUCKET_ALIGNMENT) / ranks);
    fullest.next_multiple_of(alignment) * ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_as_long_as_its_fullest_shard_for_every_rank() {
        // Two shards: 1000 | 600 then 300 at 640: 940. The fullest ends at 1000, rounded up to 1024.
        assert_eq!(padded(vec![300, 1000, 600], 2), 2 * 1024);
        assert_eq!(padded(vec![128], 4), 4 * 128, "three shards are empty");
        assert_eq!(padded(vec![128; 6], 3), 3 * 256, "lcm(3, 128) / 3 = 128 elements");
    }

    #[test]
    fn a_bucket_closes_at_its_limit_but_not_before_its_largest_matrix_is_matched() {
        assert_eq!(buckets([128; 8].into_iter(), None, 2), [1024], "one");
        assert_eq!(buckets([128; 8].into_iter(), Some(256), 2), [256; 4]);
        // 0.9 x 4 x 1000 = 3600 are asked for after the first, and 1000 + 26 x 100 have them: 1000 on one shard, 9 or 8 of 100 at
        // multiples of 128 on the others, which end at 8 x 128 + 100 = 1124, rounded up to 1152.
        let matrices = std::iter::once(1000).chain([100; 30]);
        assert_eq!(buckets(matrices, Some(256), 4), [4 * 1152, 4 * 128]);
    }
}
