//! Keys of the axes that divide a model: tensor, pipeline, context and expert parallelism.

use super::step_key::{BOTH, Needs, StepKey, TRAINING};

/// Of tensor parallelism.
pub(super) const TENSOR: &[StepKey] = &[
    StepKey::truth("sequence_parallel", "--sequence-parallel", TRAINING, "Megatron-LM's sequence parallelism"),
    StepKey::text(
        "recompute",
        "--recompute",
        "WHAT",
        TRAINING,
        "What the backward pass computes again: none, selective, full",
    )
    .needs(Needs::Nothing),
    StepKey::text(
        "linears",
        "--linears",
        "HOW",
        TRAINING,
        "How linear layers are divided: pair (column then row), column, row",
    ),
    StepKey::truth(
        "fused_cross_entropy",
        "--fused-cross-entropy",
        TRAINING,
        "One all_reduce for both sums of the loss",
    ),
    StepKey::denial(
        "overlap_tensor",
        "--no-overlap-tensor",
        TRAINING,
        "Calls of the backward pass wait for the gradient products of their layer, instead of running beside them",
    ),
    StepKey::text(
        "tensor_style",
        "--tensor-style",
        "STYLE",
        TRAINING,
        "Who divides the linears: megatron (default; q, k and v are one), dtensor (each alone; with sequence \
             parallelism inputs are stored whole)",
    ),
    StepKey::text(
        "gather_recipe",
        "--gather-recipe",
        "RECIPE",
        TRAINING,
        "How inputs and output gradients of linears are gathered (sequence parallelism): plain (default), \
             fp8_current, mxfp8",
    ),
    StepKey::text(
        "product_overlap",
        "--product-overlap",
        "WHAT",
        TRAINING,
        "What hides the calls that products wait for, or that wait for them (sequence parallelism): none (default), \
             pieces",
    ),
    StepKey::text(
        "muon_tp_mode",
        "--muon-tp-mode",
        "MODE",
        TRAINING,
        "What Muon orthogonalises of a divided matrix (ddp, or zero1 of whole matrices): blockwise (default, each rank its \
             part), duplicated, distributed",
    ),
    StepKey::text(
        "batch_broadcast",
        "--batch-broadcast",
        "WHAT",
        TRAINING,
        "What of each micro-batch the first rank of tp broadcasts to the others: none (default), fields, fields_and_mask",
    ),
    StepKey::text(
        "vocabulary_style",
        "--vocabulary-style",
        "STYLE",
        TRAINING,
        "How embedding and output projection are divided: parallel (default), gathered (the logits are)",
    ),
    StepKey::text(
        "vocabulary_padding",
        "--vocabulary-padding",
        "RULE",
        BOTH,
        "What the vocabulary is padded to: megatron (default, 128 x tp), vllm (64), even",
    )
    .needs(Needs::Nothing),
];

/// Of pipeline parallelism.
pub(super) const PIPELINE: &[StepKey] = &[
    StepKey::text(
        "schedule",
        "--schedule",
        "SCHEDULE",
        TRAINING,
        "naive, gpipe, 1f1b (default), interleaved, zb-h1, zb-1p, zb-2p, zb-v, v-half, v-min, dualpipe, dualpipe-v, \
             interleaved-zb",
    ),
    StepKey::text(
        "virtual_stages",
        "--virtual-stages",
        "N",
        TRAINING,
        "Model chunks on each rank (interleaved, interleaved-zb)",
    ),
    StepKey::text(
        "stage_layers",
        "--stage-layers",
        "LIST",
        TRAINING,
        "Layers of each stage (or chunk), a list with commas",
    ),
    StepKey::truth(
        "scatter_gather",
        "--scatter-gather",
        BOTH,
        "Each rank of tp sends its part only, and the receivers gather; also to serve",
    ),
];

/// Of context parallelism.
pub(super) const CONTEXT: &[StepKey] = &[
    StepKey::text(
        "context_style",
        "--context-style",
        "STYLE",
        TRAINING,
        "How keys and values travel: ring (default), all_gather, all_to_all, hybrid, pytorch",
    ),
    StepKey::text(
        "context_inner",
        "--context-inner",
        "N",
        TRAINING,
        "Ranks of the inner all_to_all of the hybrid form",
    ),
    StepKey::text(
        "context_gradient_element_type",
        "--context-grad-type",
        "TYPE",
        TRAINING,
        "Type of the gradients of keys and values [default: that of activations]",
    ),
];

/// Of expert parallelism.
pub(super) const EXPERT: &[StepKey] = &[
    StepKey::text(
        "dispatcher",
        "--dispatcher",
        "HOW",
        BOTH,
        "How tokens reach their experts: all_to_all (default), all_gather, deepep, hybrid_ep; to serve all_to_all, \
             all_gather, all_reduce, deepep, deepep_low_latency",
    ),
    StepKey::text(
        "routing",
        "--routing",
        "HOW",
        TRAINING,
        "How tokens choose experts: uniform (default), random, zipf:EXPONENT, hot:SHARE",
    ),
    StepKey::text("routing_seed", "--routing-seed", "N", TRAINING, "Seed of random choices"),
    StepKey::text(
        "capacity_factor",
        "--capacity-factor",
        "FACTOR",
        TRAINING,
        "Most tokens that an expert takes, as a multiple of the mean",
    ),
    StepKey::text(
        "dispatch_element_type",
        "--dispatch-type",
        "TYPE",
        BOTH,
        "Type of tokens on their way to the experts, such as fp8_e4m3 [default: that of activations]",
    ),
    StepKey::text(
        "expert_inner",
        "--expert-inner",
        "RANKS",
        BOTH,
        "Ranks of ep on a node, or in a domain of NVLink (deepep, hybrid_ep) [default: 8, or ep where that is less]",
    ),
    StepKey::text(
        "router_element_type",
        "--router-type",
        "TYPE",
        TRAINING,
        "Type of the probabilities of choices, and of sums over the parts of an expert: fp32 (default), bf16, fp16, \
             activations",
    ),
    StepKey::text(
        "balance_loss",
        "--balance-loss",
        "TOKENS",
        TRAINING,
        "Over which tokens the counts of a loss that balances experts are added up: none (default), micro_batch (tp \
             and cp), global",
    ),
    StepKey::truth(
        "expert_bias_update",
        "--expert-bias-update",
        TRAINING,
        "A bias that balances experts is updated after each step",
    ),
];
