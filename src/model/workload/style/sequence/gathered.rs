//! What a gather of sequence parallelism moves where Transformer Engine gathers in 8 bits (transformer_engine/pytorch/distributed.py,
//! module/linear.py; 2.20).
//!
//! Products take MXFP8 along one dimension alone, so that what both gradients need is gathered twice: the gradient of an output then moves
//! more than in 16 bits. With one scale for each tensor one gather serves both, and the largest element is found over all ranks first.

use crate::config::step::{GatherRecipe, ProductOverlap};
use crate::workload::style::product::product;
use crate::workload::when::Overlap;
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

pub(super) const SOURCE: &str =
    "Transformer Engine 2.20 pytorch/distributed.py gather_along_first_dim, pytorch/module/linear.py";
/// Elements that share a scale in MXFP8 (OCP Microscaling Formats 1.0).
const MXFP8_BLOCK: u64 = 32;
/// Scales of a row, and of a column, are padded to multiples of these (pytorch/tensor/mxfp8_tensor.py get_scale_shape); the padding of
/// rows is not gathered.
const SCALES_OF_A_ROW: u64 = 4;
const SCALES_OF_COLUMNS: u64 = 128;

/// Along which dimensions products take the tensor, and whether it has its scale already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    is_of_rows: bool,
    is_of_columns: bool,
    is_quantized_here: bool,
}

impl Usage {
    /// The input of a linear, forward.
    pub(super) const INPUT: Usage = Usage { is_of_rows: true, is_of_columns: false, is_quantized_here: true };
    /// The same for the gradient of its weights; it was stored in 8 bits.
    pub(super) const AGAIN: Usage = Usage { is_of_rows: false, is_of_columns: true, is_quantized_here: false };
    /// The gradient of an output, for the gradients of inputs and of weights.
    pub(super) const GRADIENT: Usage = Usage { is_of_rows: true, is_of_columns: true, is_quantized_here: true };
}

/// A tensor of all ranks' tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathered {
    pub recipe: GatherRecipe,
    pub tokens: u64,
    pub width: u64,
}

/// What a call of a gather carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carried {
    /// The largest element of all ranks, of which a scale follows.
    Largest,
    /// Scales of blocks.
    Scales,
    /// The elements.
    Data,
    /// The elements in blocks along columns, beside those along rows.
    DataAgain,
}

impl Carried {
    /// What hides it, where `usual` hides a gather.
    pub(super) fn hidden_by(self, usual: Overlap, pieces: ProductOverlap) -> Overlap {
        match (self, pieces) {
            (Carried::Largest, _) => Overlap::Exposed,
            // Data is sent by user buffers, its scales by a call of NCCL's before (fill_userbuffers_buffer_for_all_gather), and the second
            // gather of a gradient beside the product of the first (bulk_overlap_ag_with_external_gemm).
            (Carried::Scales, ProductOverlap::Pieces) => Overlap::Exposed,
            (Carried::DataAgain, ProductOverlap::Pieces) => Overlap::InputGradient,
            _ => usual,
        }
    }
}

/// One call of a gather.
pub(super) struct Part {
    pub carried: Carried,
    pub collective: Collective,
    pub element: ElementType,
    pub reduce_op: Option<ReduceOp>,
    pub bytes: u64,
    pub why: String,
}

impl Gathered {
    /// The calls of a gather in 8 bits.
    pub(super) fn parts(&self, usage: Usage) -> Result<Vec<Part>> {
        let Gathered { recipe, tokens, width } = *self;
        let gather = |carried, bytes, why| Part {
            carried,
            collective: Collective::AllGather,
            element: ElementType::Uint8,
            reduce_op: None,
            bytes,
            why,
        };
        let data = |carried, along: &str| -> Result<Part> {
            let bytes = product("activations in 8 bits", &[tokens, width])?;
            Ok(gather(carried, bytes, format!("b*(s/c)*h = {tokens}*{width} = {bytes} B in 8 bits{along}")))
        };
        if recipe == GatherRecipe::Fp8Current {
            let largest = Part {
                carried: Carried::Largest,
                collective: Collective::AllReduce,
                element: ElementType::Float32,
                reduce_op: Some(ReduceOp::Max),
                bytes: 4,
                why: "one float32 = 4 B, the largest element of all ranks, of which the scale follows".to_owned(),
            };
            let quantized = usage.is_quantized_here.then_some(largest);
            return Ok(quantized.into_iter().chain([data(Carried::Data, "")?]).collect());
        }
        let mut parts = Vec::new();
        if usage.is_of_rows {
            let of_a_row = width.div_ceil(MXFP8_BLOCK).next_multiple_of(SCALES_OF_A_ROW);
            let scales = product("scales", &[tokens, of_a_row])?;
            parts.push(gather(
                Carried::Scales,
                scales,
                format!("{tokens}*ceil(h/32) = {scales} B of scales along rows"),
            ));
            parts.push(data(Carried::Data, " along rows")?);
        }
        if usage.is_of_columns {
            let (rows, padded) = (tokens / MXFP8_BLOCK, width.next_multiple_of(SCALES_OF_COLUMNS));
            let scales = product("scales", &[rows, padded])?;
            parts.push(gather(Carried::Scales, scales, format!("{tokens}/32*h = {scales} B of scales along columns")));
            let carried = if usage.is_of_rows { Carried::DataAgain } else { Carried::Data };
            parts.push(data(carried, " along columns")?);
        }
        Ok(parts)
    }
}
