//! ZeRO++ (arXiv 2306.10209): parameters gathered in 8 bits (qwZ, section 3.1), and gradients of matrices in 4 bits, first among the ranks
//! of a node and then from node to node (qgZ, section 3.3).
//!
//! DeepSpeed's kernels give each block of numbers a scale in 32 bits and no offset (csrc/quantization/pt_binding.cpp). What the blocks
//! are is in runtime/zero/partition_parameters.py `CUDAQuantizer.quantize` and runtime/comm/coalesced_collectives.py
//! `all_to_all_quant_reduce`.

use super::tensor::{Shape, Tensor};
use crate::layout::Axis;
use crate::workload::Op;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;

/// Elements of a block that DeepSpeed aims at.
const TARGET_BLOCK: u64 = 8000;
/// Elements that a block is a multiple of.
const BLOCK_MULTIPLE: u64 = 8;

/// The two calls of a gather of `elements` parameters among `ranks`: numbers of 8 bits, and the scales of their blocks.
///
/// # Errors
/// A share that no blocks divide, with what would do.
pub(super) fn gathers(op: &Op, elements: u64, ranks: u64) -> Result<[Op; 2], String> {
    let share = elements / ranks;
    let blocks = blocks(share).ok_or_else(|| {
        format!(
            "quantised_parameters: {share} parameters on each of {ranks} ranks are no multiple of {BLOCK_MULTIPLE}, which DeepSpeed's blocks \
             are (runtime/zero/partition_parameters.py CUDAQuantizer.quantize); accepted: other ranks, or persistent_parameters above the \
             size of that tensor"
        )
    })?;
    let scales = ElementType::Float32;
    let bytes = scales.size() * blocks * ranks;
    let of_blocks = format!(
        "4*blocks = {} B*{blocks}*{ranks} = {bytes} B: a scale for each {} of {elements} quantised parameters (DeepSpeed \
         runtime/zero/partition_parameters.py CUDAQuantizer.quantize; arXiv 2306.10209 section 3.1)",
        scales.size(),
        share / blocks,
    );
    let scales = Op::new(op.style, op.axis, op.collective, scales, bytes);
    Ok([op.clone(), Op { when: op.when, overlap: op.overlap, why: of_blocks, ..scales }])
}

/// Blocks of a rank's share: as few as make none longer than the target, each a multiple of 8 elements. `None` where the share is no multiple
/// of 8.
fn blocks(share: u64) -> Option<u64> {
    if share == 0 || !share.is_multiple_of(BLOCK_MULTIPLE) {
        return None;
    }
    let eighths = share / BLOCK_MULTIPLE;
    smallest_divisor(eighths, share.div_ceil(TARGET_BLOCK))
}

/// The smallest divisor of a number that is not below a limit.
fn smallest_divisor(number: u64, limit: u64) -> Option<u64> {
    let small = (1..=number.isqrt()).filter(|divisor| number.is_multiple_of(*divisor));
    small.flat_map(|divisor| [divisor, number / divisor]).filter(|divisor| *divisor >= limit).min()
}

/// A call that reduces the gradient of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reduction {
    pub axis: Axis,
    pub collective: Collective,
    pub element: ElementType,
    pub bytes: u64,
    /// Formula with its numbers.
    pub formula: String,
    pub what: &'static str,
}

/// Where gradients are reduced: all ranks, those of a node, and their type where they are not quantised.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReducingRanks {
    pub axis: Axis,
    pub ranks: u64,
    pub node: u64,
    pub element: ElementType,
}

/// The calls for the gradient of a tensor. Vectors, and what two steps of all_to_all do not divide, are reduced as they are, each alone.
///
/// # Errors
/// A matrix whose scales do not divide, with why: DeepSpeed ends with an error of the second call.
pub(super) fn reductions(tensor: &Tensor, among: ReducingRanks) -> Result<Vec<Reduction>, String> {
    let ReducingRanks { ranks, node, .. } = among;
    // A scale for each index of the longer of the first two dimensions.
    let (longer, shape) = match tensor.shape {
        Shape::Vector => return Ok(vec![alone(tensor, among)]),
        _ if !tensor.elements.is_multiple_of(2 * ranks) => return Ok(vec![alone(tensor, among)]),
        Shape::Matrix { row } => {
            let rows = tensor.elements / row;
            (rows.max(row), format!("a matrix of {rows} x {row}"))
        }
        Shape::Stack { matrices, rows } => (matrices.max(rows), format!("{matrices} matrices of {rows} rows in one")),
    };
    let (nodes, blocks) = (ranks / node, longer.max(ranks));
    if !blocks.is_multiple_of(ranks) {
        return Err(format!(
            "quantised_gradients = {node}: the {blocks} scales of {shape} do not divide among {node} ranks of a node and then {nodes} \
             nodes (DeepSpeed runtime/comm/coalesced_collectives.py all_to_all_quant_reduce); accepted: ranks that divide {blocks}",
        ));
    }
    let call = |axis, element: ElementType, count: u64, formula: String, what| Reduction {
        axis,
        collective: Collective::AllToAll,
        element,
        bytes: element.size() * count,
        formula: format!("{formula} = {} B", element.size() * count),
        what,
    };
    let (elements, byte, float) = (tensor.elements, ElementType::Int8, ElementType::Float32);
    Ok(vec![
        call(
            Axis::DpShard,
            byte,
            elements / 2,
            format!("elements/2 = {elements}/2"),
            "4 bits of each number of a gradient, among the ranks of a node",
        ),
        call(Axis::DpShard, float, blocks, format!("4*blocks = 4 B*{blocks}"), "a scale for each block of it"),
        call(
            Axis::DpReplicate,
            byte,
            elements / 2 / node,
            format!("elements/2/{node} = {elements}/2/{node}"),
            "4 bits of each number of the node's sum, from node to node",
        ),
        call(
            Axis::DpReplicate,
            float,
            blocks / node,
            format!("4*blocks/{node} = 4 B*{blocks}/{node}"),
            "a scale for each block of the sum",
        ),
    ])
}

/// The one call for a gradient that is not quantised.
fn alone(tensor: &Tensor, among: ReducingRanks) -> Reduction {
    let ReducingRanks { axis, ranks, element, .. } = among;
    let elements = tensor.elements.next_multiple_of(ranks);
    let bytes = element.size() * elements;
    Reduction {
        axis,
        collective: Collective::ReduceScatter,
        element,
        bytes,
        formula: format!("Eg*elements = {} B*{elements} = {bytes} B", element.size()),
        what: "the gradient of a vector, or of a tensor that two steps do not divide, alone",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_deepspeed_finds_them() {
        // By its own loop: from ceil(n / 8000) up to the first that divides an eighth of n.
        for (share, expected) in [
            (8, Some(1)),
            (8000, Some(1)),
            (8008, Some(7)),                // 1001 = 7 * 11 * 13 eighths; 2 and more are asked for
            (16_777_216, Some(4096)),       // 2098 and more of 2^21
            (14336 * 4096 / 8, Some(1024)), // 918 and more of 7 * 2^17
            (12, None),
            (0, None),
        ] {
            assert_eq!(blocks(share), expected, "{share}");
        }
        // A prime number of eighths leaves one block for each.
        assert_eq!(blocks(8 * 1009), Some(1009));
    }

    #[test]
    fn a_matrix_goes_in_four_calls_and_anything_else_in_one() {
        let among = ReducingRanks { axis: Axis::Dp, ranks: 16, node: 8, element: ElementType::Bfloat16 };
        let short = |tensor: &Tensor| -> Vec<(Axis, Collective, ElementType, u64)> {
            let calls = reductions(tensor, among).unwrap();
            calls.into_iter().map(|call| (call.axis, call.collective, call.element, call.bytes)).collect()
        };
        use Collective::{AllToAll, ReduceScatter};
        // 14336 x 4096: half a byte for each of 58,720,256 numbers, 14336 scales; of both an eighth from node to node.
        let wide = [
            (Axis::DpShard, AllToAll, ElementType::Int8, 29_360_128),
            (Axis::DpShard, AllToAll, ElementType::Float32, 57_344),
            (Axis::DpReplicate, AllToAll, ElementType::Int8, 3_670_016),
            (Axis::DpReplicate, AllToAll, ElementType::Float32, 7_168),
        ];
        assert_eq!(short(&Tensor::matrix(14336 * 4096, 4096)), wide);
        assert_eq!(short(&Tensor::matrix(14336 * 4096, 14336)), wide, "the longer side has the blocks");
        assert_eq!(short(&Tensor::vector(4096)), [(Axis::Dp, ReduceScatter, ElementType::Bfloat16, 8192)]);
        // 8 experts of 64 x 48 in one: 8 x 64 x 48 numbers, and as many scales as an expert has rows.
        let experts = short(&Tensor::matrix(64 * 48, 48).stacked(8));
        assert_eq!(
            experts[..2],
            [
                (Axis::DpShard, AllToAll, ElementType::Int8, 8 * 64 * 48 / 2),
                (Axis::DpShard, AllToAll, ElementType::Float32, 4 * 64),
            ]
        );
        // Filters of 4 numbers for each of 160 channels: 160 scales.
        let filters = short(&Tensor::filters(160 * 4, 4));
        assert_eq!((filters[0].3, filters[1].3), (320, 640));
        let odd = Tensor::matrix(3 * 8, 8);
        assert_eq!(short(&odd), [(Axis::Dp, ReduceScatter, ElementType::Bfloat16, 64)], "24 numbers, padded to 32");
        let problem = reductions(&Tensor::matrix(40 * 40, 40), among).unwrap_err();
        assert!(problem.contains("the 40 scales of a matrix of 40 x 40 do not divide among 8 ranks"), "{problem}");
    }
}
