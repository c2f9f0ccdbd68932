//! Choices of tensor parallelism that come with narrow types, with products in pieces, with optimizers of whole matrices, and with how
//! ranks get their batch.

use super::choices::choice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

choice! {
    /// In which form activations and their gradients are gathered for the linears of sequence parallelism (Transformer Engine).
    GatherRecipe, "gather recipe" {
        /// As they are.
        Plain = "plain",
        /// In 8 bits with one scale for each tensor, found from its largest element (`Float8CurrentScaling`).
        Fp8Current = "fp8_current",
        /// In 8 bits with a scale of 8 bits for each 32 elements (`MXFP8BlockScaling`).
        Mxfp8 = "mxfp8",
    }
}

choice! {
    /// What hides the calls of sequence parallelism that a product waits for, or that wait for one.
    ProductOverlap, "product overlap" {
        /// Nothing.
        None = "none",
        /// The product itself, which works on the pieces that are there (`--tp-comm-overlap` of Megatron-LM, async TP of PyTorch).
        Pieces = "pieces",
    }
}

choice! {
    /// What Muon orthogonalises where tensor parallelism divides a matrix (Megatron-LM's `muon_tp_mode`).
    MuonTensorMode, "mode of Muon" {
        /// Each rank its part: nothing is sent.
        Blockwise = "blockwise",
        /// Each rank the whole matrix, which is gathered.
        Duplicated = "duplicated",
        /// All ranks together: products of the parts are added up in each iteration.
        Distributed = "distributed",
    }
}

choice! {
    /// What of each micro-batch the first rank of tp, which reads it, broadcasts to the others.
    BatchBroadcast, "batch broadcast" {
        /// Nothing: every rank reads it.
        None = "none",
        /// Tokens, labels, loss mask and positions (Megatron-LM with `--no-create-attention-mask-in-dataloader`).
        Fields = "fields",
        /// The mask of attention too, a byte for each two positions (Megatron-LM by itself).
        FieldsAndMask = "fields_and_mask",
    }
}
