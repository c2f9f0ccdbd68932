//! Keys of data parallelism.

use super::step_key::{StepKey, TRAINING};

/// Of data parallelism.
pub(super) const DATA: &[StepKey] = &[
    StepKey::text(
        "data_style",
        "--data-style",
        "STYLE",
        TRAINING,
        "What is shared out: ddp, zero1, zero2, zero3, fsdp, hsdp",
    ),
    StepKey::text(
        "gradient_element_type",
        "--grad-type",
        "TYPE",
        TRAINING,
        "Type of gradients on the wire: fp32 (default), bf16, fp16",
    ),
    StepKey::text(
        "parameter_element_type",
        "--param-type",
        "TYPE",
        TRAINING,
        "Type of gathered parameters: bf16 (default), fp16, fp32, fp8_e4m3",
    ),
    StepKey::text(
        "bucket_rule",
        "--bucket-rule",
        "RULE",
        TRAINING,
        "How gradients are cut: megatron (default), pytorch, deepspeed, layer_wise (zero1; matrices whole on a rank)",
    ),
    StepKey::text(
        "bucket_parameters",
        "--bucket-parameters",
        "N",
        TRAINING,
        "Parameters in a bucket, instead of a rule",
    ),
    StepKey::denial(
        "overlap_gradients",
        "--no-overlap-gradients",
        TRAINING,
        "Reduce gradients in one go after the last backward pass",
    ),
    StepKey::denial(
        "reshard_after_forward",
        "--no-reshard-after-forward",
        TRAINING,
        "FSDP keeps parameters between forward and backward",
    ),
    StepKey::truth(
        "reshard_after_backward",
        "--reshard-after-backward",
        TRAINING,
        "What FSDP kept after forward is released after the backward pass of every micro-batch, and gathered for the \
             next",
    ),
    StepKey::text(
        "unit_rule",
        "--unit-rule",
        "RULE",
        TRAINING,
        "What is gathered together (zero3, fsdp, hsdp): layers (default), root_kept, ends_apart, modules (zero3), \
             buckets (fsdp, hsdp)",
    ),
    StepKey::text(
        "gradient_accumulation",
        "--gradient-accumulation",
        "HOW",
        TRAINING,
        "How gradients of micro-batches are added up (fsdp, hsdp): sharded (default), a reduction in each; unsharded, \
             one at the end; whole_stages, one at the end where there are stages",
    ),
    StepKey::text(
        "gradient_reduction",
        "--gradient-reduction",
        "HOW",
        TRAINING,
        "How zero1 and zero2 reduce gradients: reduce_scatter (default), all_reduce",
    ),
    StepKey::text(
        "replica_reduction",
        "--replica-reduction",
        "WHEN",
        TRAINING,
        "How often groups of shards add up their gradients (hsdp): step (default), micro_batch",
    ),
    StepKey::text(
        "outer_sharding",
        "--outer-sharding",
        "WHAT",
        TRAINING,
        "What groups of shards that hold the same share out (hsdp, unit rule buckets): no_shard (default), optim",
    ),
    StepKey::text(
        "persistent_parameters",
        "--persistent-parameters",
        "N",
        TRAINING,
        "Tensors of fewer parameters stay on every rank (unit rule modules) [default: 100000]",
    ),
    StepKey::text(
        "prefetch_bucket",
        "--prefetch-bucket",
        "N",
        TRAINING,
        "Parameters gathered ahead at each module (unit rule modules) [default: 50000000]",
    ),
    StepKey::text(
        "live_parameters",
        "--live-parameters",
        "N",
        TRAINING,
        "No parameters are gathered ahead where so many are there (unit rule modules) [default: 1000000000]",
    ),
    StepKey::text(
        "reuse_distance",
        "--reuse-distance",
        "N",
        TRAINING,
        "Parameters used again within so many are not released (unit rule modules) [default: 1000000000]",
    ),
    StepKey::truth(
        "quantised_parameters",
        "--quantised-parameters",
        TRAINING,
        "Parameters are gathered in 8 bits, with a scale for each block (unit rule modules; ZeRO++'s qwZ)",
    ),
    StepKey::text(
        "quantised_gradients",
        "--quantised-gradients",
        "RANKS",
        TRAINING,
        "Ranks of a node, among which gradients go in 4 bits before they go from node to node (unit rule modules; \
             ZeRO++'s qgZ)",
    ),
    StepKey::text(
        "shard_buffers",
        "--shard-buffers",
        "FORM",
        TRAINING,
        "How calls get the parts of the ranks (unit rule modules): flat (default), one buffer; listed, a tensor for each \
             rank, which the host copies one by one, as DeepSpeed did in 2021",
    ),
    StepKey::text(
        "parameter_return",
        "--parameter-return",
        "HOW",
        TRAINING,
        "How updated parameters reach every rank (zero1): all_gather (default), each_optimizer, broadcast, \
             broadcast_shares, gather_shares",
    ),
    StepKey::text(
        "broadcast_buffers",
        "--broadcast-buffers",
        "WHAT",
        TRAINING,
        "Buffers that the first replica gives to the others before a step: none (default), rotary",
    ),
    StepKey::denial(
        "prefetch_parameters",
        "--no-prefetch-parameters",
        TRAINING,
        "Parameters are gathered when they are needed, not while the unit before computes (zero3, fsdp, hsdp)",
    ),
    StepKey::text(
        "secondary_shards",
        "--secondary-shards",
        "N",
        TRAINING,
        "Ranks that share out the parameters between forward and backward pass, such as those of a node (zero3, fsdp)",
    ),
    StepKey::text(
        "gather_inner",
        "--gather-inner",
        "RANKS",
        TRAINING,
        "Ranks of a node, where parameters are gathered in two steps: between nodes, then within each (zero3, fsdp, hsdp; \
             MiCS)",
    ),
    StepKey::text(
        "replicas_of_shards",
        "--replicas-of-shards",
        "N",
        TRAINING,
        "Groups of shards that hold the same (HSDP, or distributed-optimizer instances)",
    ),
];
