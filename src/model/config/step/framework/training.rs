//! What the frameworks that train do by default.
//!
//! Versions and files as they were read and run: torch 2.15, transformers 5.23, DeepSpeed 0.19.8, Megatron-core 0.19.2; of
//! torchtitan the files of 0.2.2 were read, and its wrapping and plan run by torch 2.15.

use super::facts::{Default, EVERY_AXIS, Facts, Limit};

const UNITS: &[&str] = &["unit_rule"];
/// When what is sharded is gathered and reduced.
const PASSES: &[&str] = &[
    "reshard_after_forward",
    "reshard_after_backward",
    "gradient_accumulation",
    "replica_reduction",
    "prefetch_parameters",
    "secondary_shards",
];
const BUCKETS: &[&str] = &["bucket_rule", "bucket_parameters", "gradient_reduction"];
/// What only Megatron-LM's linears and pipelines have.
const MEGATRON_ONLY: &[&str] = &[
    "linears",
    "scatter_gather",
    "fused_cross_entropy",
    "prediction_layers",
    "balance_loss",
    "expert_bias_update",
    "muon_tp_mode",
    "batch_broadcast",
];
/// What only DeepSpeed's ZeRO-3 has.
const MODULES: &[&str] = &[
    "persistent_parameters",
    "prefetch_bucket",
    "live_parameters",
    "reuse_distance",
    "quantised_parameters",
    "quantised_gradients",
    "shard_buffers",
];
/// What no framework has any more: MiCS's gathers in two steps.
const TWO_STEPS: &[&str] = &["gather_inner"];
/// The same, and what Megatron-FSDP alone has.
const TWO_LEVELS: &[&str] = &["gather_inner", "outer_sharding"];
/// What only replicas with whole parameters have.
const WHOLE_REPLICAS: &[&str] = &["parameter_return", "broadcast_buffers"];
const DISPATCH: &[&str] = &[
    "dispatcher",
    "routing",
    "routing_seed",
    "capacity_factor",
    "dispatch_element_type",
    "router_element_type",
    "expert_inner",
];
const CONTEXT: &[&str] = &["context_style", "context_inner", "context_gradient_element_type"];
const PIPELINE: &[&str] = &["schedule", "virtual_stages", "stage_layers"];
const TENSOR: &[&str] =
    &["sequence_parallel", "overlap_tensor", "tensor_style", "vocabulary_style", "gather_recipe", "product_overlap"];

const FSDP_STYLES: Limit = Limit::new("data_style", &["fsdp", "hsdp"]);
const HSDP: &[&str] = &["hsdp"];
const ZERO1: &[&str] = &["zero1"];
const DDP_AND_ZERO1: &[&str] = &["ddp", "zero1"];
const FSDP_AND_HSDP: &[&str] = &["fsdp", "hsdp"];

/// FSDP2 gathers again for each micro-batch.
const RESHARDED: Default = Default::new(
    "reshard_after_backward",
    "true",
    "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py reshard_after_backward",
);
/// And adds up the gradients of replicas in each.
const REPLICAS_EACH_TIME: Default = Default::new(
    "replica_reduction",
    "micro_batch",
    "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py all_reduce_grads",
)
.only_with("data_style", HSDP);
/// The vocabulary is divided as it is.
const NO_PADDING: Default = Default::new("vocabulary_padding", "even", "no padding of its own");
/// The caller makes what there is.
const NO_SMALL_CALLS: Default = Default::new("small_calls", "none", "clipping and logging are the caller's");

pub(super) const MEGATRON: Facts = Facts {
    version: "core 0.19.2",
    axes: EVERY_AXIS,
    defaults: &[
        Default::new(
            "data_style",
            "ddp",
            "core/distributed/distributed_data_parallel_config.py use_distributed_optimizer",
        ),
        Default::new(
            "overlap_gradients",
            "false",
            "core/distributed/distributed_data_parallel_config.py overlap_grad_reduce",
        )
        .only_with("data_style", DDP_AND_ZERO1),
        Default::new("bucket_rule", "megatron", "core/distributed/distributed_data_parallel.py")
            .only_with("data_style", DDP_AND_ZERO1),
        Default::new(
            "gradient_element_type",
            "float32",
            "training/arguments.py accumulate_allreduce_grads_in_fp32, with --bf16",
        )
        .only_with("data_style", DDP_AND_ZERO1),
        Default::new(
            "unit_rule",
            "buckets",
            "core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py _get_parameter_groups",
        )
        .only_with("data_style", FSDP_AND_HSDP),
        Default::new(
            "gradient_element_type",
            "bfloat16",
            "core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py _resolve_group_grad_dtype, megatron_fsdp_grad_comm_dtype auto",
        )
        .only_with("data_style", FSDP_AND_HSDP),
        Default::new(
            "parameter_return",
            "each_optimizer",
            "core/optimizer/distrib_optimizer.py step_with_ready_grads, start_param_sync_for_bucket_group_subset",
        )
        .only_with("data_style", ZERO1),
        Default::new(
            "gradient_reduction",
            "all_reduce",
            "core/optimizer/layer_wise_optimizer.py, use_layer_wise_param_layout = False",
        )
        .only_with("parameter_return", &["gather_shares"]),
        Default::new("sequence_parallel", "false", "core/model_parallel_config.py sequence_parallel"),
        Default::new(
            "fused_cross_entropy",
            "false",
            "core/transformer/transformer_config.py cross_entropy_loss_fusion",
        ),
        Default::new("vocabulary_padding", "megatron", "training/arguments.py make_vocab_size_divisible_by"),
        Default::new("scatter_gather", "false", "core/pipeline_parallel/schedules.py get_tensor_shapes"),
        Default::new(
            "batch_broadcast",
            "fields_and_mask",
            "core/utils.py get_batch_on_this_tp_rank; training/arguments.py create_attention_mask_in_dataloader",
        ),
        Default::new("context_style", "ring", "core/transformer/transformer_config.py cp_comm_type"),
        Default::new("dispatcher", "all_gather", "core/transformer/transformer_config.py moe_token_dispatcher_type"),
        Default::new("router_element_type", "activations", "core/transformer/transformer_config.py moe_router_dtype"),
        Default::new(
            "small_calls",
            "norm,status,loss",
            "core/optimizer/clip_grads.py, training/training.py train_step; --bf16 scales no loss",
        ),
    ],
    limits: &[
        Limit::new("data_style", &["ddp", "zero1", "fsdp", "hsdp"]),
        Limit::new("unit_rule", &["buckets"]),
        Limit::new("tensor_style", &["megatron"]),
        Limit::new("vocabulary_style", &["parallel"]),
        Limit::new("gradient_reduction", &["reduce_scatter"]).unless("parameter_return", &["gather_shares"]),
        Limit::new("parameter_return", &["all_gather", "each_optimizer", "gather_shares"]),
    ],
    unused: &[TWO_STEPS, PASSES, MODULES, &["broadcast_buffers"]],
};

pub(super) const DEEPSPEED: Facts = Facts {
    version: "0.19.8",
    axes: EVERY_AXIS,
    defaults: &[
        Default::new("data_style", "ddp", "runtime/zero/config.py stage"),
        Default::new(
            "bucket_rule",
            "deepspeed",
            "runtime/zero/config.py reduce_bucket_size, runtime/engine.py buffered_allreduce_fallback",
        )
        .only_with("data_style", &["ddp", "zero1", "zero2"]),
        Default::new(
            "gradient_reduction",
            "all_reduce",
            "runtime/zero/stage_1_and_2.py average_tensor, use_multi_rank_bucket_allreduce",
        )
        .only_with("data_style", &["zero1", "zero2"]),
        Default::new("unit_rule", "modules", "runtime/zero/partitioned_param_coordinator.py fetch_sub_module")
            .only_with("data_style", &["zero3"]),
        Default::new("overlap_gradients", "false", "runtime/zero/config.py overlap_comm")
            .only_with("data_style", &["ddp", "zero1", "zero2"]),
        Default::new(
            "gradient_element_type",
            "bfloat16",
            "runtime/engine.py communication_data_type, with bf16 enabled",
        ),
        Default::new("parameter_element_type", "bfloat16", "runtime/zero/stage_1_and_2.py bit16_groups_flat"),
        NO_PADDING,
        Default::new("small_calls", "norm_double", "runtime/zero/stage3.py get_grad_norm_direct")
            .only_with("data_style", &["zero3"]),
        Default::new(
            "small_calls",
            "overflow_byte,norm",
            "runtime/zero/stage_1_and_2.py has_overflow, scaled_global_norm",
        ),
    ],
    limits: &[Limit::new("data_style", &["ddp", "zero1", "zero2", "zero3"]), Limit::new("unit_rule", &["modules"])],
    unused: &[
        TWO_LEVELS,
        WHOLE_REPLICAS,
        &[
            "prefetch_parameters",
            "reshard_after_forward",
            "reshard_after_backward",
            "gradient_accumulation",
            "replica_reduction",
            "replicas_of_shards",
        ],
        MEGATRON_ONLY,
    ],
};

pub(super) const FSDP1: Facts = Facts {
    version: "torch 2.15",
    axes: &["dp"],
    defaults: &[
        Default::new(
            "data_style",
            "fsdp",
            "torch/distributed/fsdp/fully_sharded_data_parallel.py sharding_strategy FULL_SHARD",
        ),
        Default::new("unit_rule", "root_kept", "torch/distributed/fsdp/_runtime_utils.py _post_forward_reshard"),
        Default::new(
            "reshard_after_backward",
            "true",
            "torch/distributed/fsdp/_runtime_utils.py _post_backward_reshard",
        ),
        Default::new("replica_reduction", "micro_batch", "torch/distributed/fsdp/_runtime_utils.py _reduce_grad")
            .only_with("data_style", HSDP),
        Default::new("gradient_element_type", "float32", "torch/distributed/fsdp/api.py MixedPrecision, none"),
        Default::new("parameter_element_type", "float32", "torch/distributed/fsdp/api.py MixedPrecision, none"),
        NO_PADDING,
        NO_SMALL_CALLS,
    ],
    limits: &[FSDP_STYLES],
    unused: &[
        TWO_LEVELS,
        BUCKETS,
        MODULES,
        WHOLE_REPLICAS,
        MEGATRON_ONLY,
        DISPATCH,
        CONTEXT,
        PIPELINE,
        TENSOR,
        &["secondary_shards"],
    ],
};

pub(super) const FSDP2: Facts = Facts {
    version: "torch 2.15",
    axes: &["tp", "cp", "pp", "dp"],
    defaults: &[
        Default::new("data_style", "fsdp", "torch/distributed/fsdp/_fully_shard/_fully_shard.py fully_shard"),
        Default::new(
            "unit_rule",
            "root_kept",
            "torch/distributed/fsdp/_fully_shard/_fsdp_state.py _lazy_init, auto_reshard_after_forward",
        ),
        RESHARDED,
        REPLICAS_EACH_TIME,
        Default::new(
            "gradient_element_type",
            "float32",
            "torch/distributed/fsdp/_fully_shard/_fsdp_api.py MixedPrecisionPolicy, none",
        ),
        Default::new(
            "parameter_element_type",
            "float32",
            "torch/distributed/fsdp/_fully_shard/_fsdp_api.py MixedPrecisionPolicy, none",
        ),
        Default::new("tensor_style", "dtensor", "torch/distributed/tensor/parallel/style.py"),
        Default::new(
            "context_style",
            "pytorch",
            "torch/distributed/tensor/experimental/_context_parallel/_attention.py rotate_method",
        ),
        NO_PADDING,
        NO_SMALL_CALLS,
    ],
    limits: &[FSDP_STYLES, Limit::new("tensor_style", &["dtensor"])],
    unused: &[TWO_LEVELS, BUCKETS, MODULES, WHOLE_REPLICAS, MEGATRON_ONLY, DISPATCH],
};

pub(super) const TORCHTITAN: Facts = Facts {
    version: "0.2.2",
    axes: EVERY_AXIS,
    defaults: &[
        Default::new("data_style", "fsdp", "torchtitan/config/job_config.py data_parallel_shard_degree"),
        Default::new("unit_rule", "ends_apart", "torchtitan/models/llama3/infra/parallelize.py apply_fsdp"),
        RESHARDED,
        Default::new(
            "gradient_accumulation",
            "whole_stages",
            "torchtitan/models/llama3/infra/parallelize.py reshard_after_forward; torch/distributed/pipelining/stage.py",
        ),
        REPLICAS_EACH_TIME,
        Default::new("gradient_element_type", "float32", "torchtitan/config/job_config.py mixed_precision_reduce"),
        Default::new("parameter_element_type", "bfloat16", "torchtitan/config/job_config.py mixed_precision_param"),
        Default::new("sequence_parallel", "true", "torchtitan/models/llama3/infra/parallelize.py apply_tp"),
        Default::new("tensor_style", "dtensor", "torchtitan/models/llama3/infra/parallelize.py apply_tp"),
        Default::new("context_style", "pytorch", "torchtitan/config/job_config.py context_parallel_rotate_method"),
        NO_PADDING,
        Default::new(
            "small_calls",
            "batch_tokens,norm",
            "torchtitan/train.py train_step, torchtitan/distributed/utils.py clip_grad_norm_; the loss is logged every log_freq = 10 steps",
        ),
    ],
    limits: &[FSDP_STYLES, Limit::new("tensor_style", &["dtensor"])],
    unused: &[TWO_LEVELS, BUCKETS, MODULES, WHOLE_REPLICAS, MEGATRON_ONLY],
};

pub(super) const HUGGING_FACE: Facts = Facts {
    version: "transformers 5.23",
    axes: &["tp", "cp", "dp"],
    defaults: &[
        Default::new("data_style", "ddp", "transformers/trainer.py, accelerate DistributedDataParallel"),
        Default::new("bucket_rule", "pytorch", "torch/nn/parallel/distributed.py bucket_cap_mb")
            .only_with("data_style", &["ddp"]),
        Default::new("broadcast_buffers", "rotary", "torch/nn/parallel/distributed.py broadcast_buffers")
            .only_with("data_style", &["ddp"]),
        Default::new("unit_rule", "ends_apart", "transformers/distributed/fsdp.py")
            .only_with("data_style", FSDP_AND_HSDP),
        Default::new("reshard_after_backward", "true", "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py")
            .only_with("data_style", FSDP_AND_HSDP),
        Default::new(
            "gradient_accumulation",
            "unsharded",
            "transformers/trainer.py sync_context, accelerate/accelerator.py no_sync",
        )
        .only_with("data_style", &["fsdp"]),
        Default::new("tensor_style", "dtensor", "transformers/models/llama/configuration_llama.py base_model_tp_plan"),
        Default::new(
            "vocabulary_style",
            "gathered",
            "transformers/models/llama/modeling_llama.py _tp_plan lm_head colwise_gather_output, distributed/mixin.py embed_tokens",
        ),
        NO_PADDING,
        Default::new("small_calls", "norm_tensors", "accelerate/accelerator.py clip_grad_norm_, of sharded gradients")
            .only_with("data_style", FSDP_AND_HSDP),
        Default::new("small_calls", "norm", "transformers/training_args.py max_grad_norm"),
    ],
    limits: &[Limit::new("data_style", &["ddp", "fsdp", "hsdp"]), Limit::new("tensor_style", &["dtensor"])],
    unused: &[
        TWO_LEVELS,
        &["sequence_parallel", "gradient_reduction", "parameter_return"],
        MODULES,
        MEGATRON_ONLY,
        DISPATCH,
        PIPELINE,
    ],
};

pub(super) const DDP: Facts = Facts {
    version: "torch 2.15",
    axes: &["dp"],
    defaults: &[
        Default::new("data_style", "ddp", "torch/nn/parallel/distributed.py DistributedDataParallel"),
        Default::new("bucket_rule", "pytorch", "torch/nn/parallel/distributed.py bucket_cap_mb"),
        Default::new(
            "gradient_element_type",
            "float32",
            "torch/nn/parallel/distributed.py, the type of the parameters",
        ),
        Default::new(
            "parameter_element_type",
            "float32",
            "torch/distributed/optim/zero_redundancy_optimizer.py, the type of the parameters",
        )
        .only_with("data_style", ZERO1),
        Default::new(
            "gradient_reduction",
            "all_reduce",
            "torch/nn/parallel/distributed.py, with ZeroRedundancyOptimizer",
        )
        .only_with("data_style", ZERO1),
        Default::new(
            "parameter_return",
            "broadcast",
            "torch/distributed/optim/zero_redundancy_optimizer.py _sync_params",
        )
        .only_with("data_style", ZERO1),
        Default::new("broadcast_buffers", "rotary", "torch/nn/parallel/distributed.py broadcast_buffers"),
        NO_PADDING,
        NO_SMALL_CALLS,
    ],
    limits: &[
        Limit::new("data_style", &["ddp", "zero1"]),
        Limit::new("parameter_return", &["broadcast", "broadcast_shares"]),
    ],
    unused: &[
        TWO_LEVELS,
        UNITS,
        PASSES,
        &["replicas_of_shards", "overlap_gradients"],
        MODULES,
        MEGATRON_ONLY,
        DISPATCH,
        CONTEXT,
        PIPELINE,
        TENSOR,
    ],
};
