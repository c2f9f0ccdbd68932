//! How Megatron-FSDP lays tensors into the buffer of a bucket: no row of a tensor may cross shards, so a buffer is a multiple of the ranks
//! and of a chunk that every row divides.
//!
//! Megatron-LM core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py `_get_parameter_groups` (step 3) and
//! `build_data_parallel_buffer_index`.

use super::cut::least_common_multiple;
use super::tensor::Tensor;
use std::cmp::Reverse;

/// Elements of the buffer of some tensors that so many ranks share out.
pub(super) fn buffer(tensors: &[Tensor], ranks: u64) -> u64 {
    let mut tensors = tensors.to_vec();
    tensors.sort_by_key(|tensor| Reverse(tensor.row()));
    let chunk = chunk(&tensors);
    end(&tensors, chunk).next_multiple_of(chunk * ranks)
}

/// The chunk of tensors, those with the longest rows first: the longest row, and a common multiple with those that do not fit into it.
/// Tensors that are shorter than it count as fragments.
fn chunk(tensors: &[Tensor]) -> u64 {
    tensors.iter().fold(1, |chunk, tensor| {
        let fits = chunk.is_multiple_of(tensor.row()) && tensor.elements.is_multiple_of(chunk);
        if fits || tensor.elements < chunk { chunk } else { least_common_multiple(chunk, tensor.row()) }
    })
}

/// The end of the last tensor. What a tensor leaves of its last chunk takes the rest of one other tensor, if there is one that fits, and then
/// fragments; those that found no place come behind.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_never_cross_shards() {
        // A layer of Llama 3 8B: rows of 14336 and 4096, whose common multiple is 28672. Of the output projection 4096 elements stay in its
        // last chunk, of q, k and v 20480, and one norm fills it: 4096 + 20480 + 4096 = 28672. The other norm comes last.
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
}
