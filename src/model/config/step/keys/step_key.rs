//! A key of a step, as data.

use crate::config::step::Work;

/// A key of a step.
#[derive(Debug, PartialEq, Eq)]
pub struct StepKey {
    /// Its name in a table.
    pub key: &'static str,
    /// Its flag, with dashes.
    pub flag: &'static str,
    /// Another name of the flag.
    pub alias: Option<&'static str>,
    /// What the flag takes.
    pub form: KeyForm,
    /// The work whose table has it.
    pub takes: &'static [Work],
    /// What it means, its values and its default, in one line.
    pub meaning: &'static str,
    /// What it needs to have an effect, if its group as a whole does not need it.
    pub(super) needs: Option<Needs>,
    /// Whether the short help has its flag.
    pub is_common: bool,
}

/// What a layout or a model must have for a key to change anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// Several ranks of tp.
    TensorParallelism,
    /// Several stages.
    PipelineParallelism,
    /// Several ranks of cp.
    ContextParallelism,
    /// A model with experts.
    Experts,
}

/// What the flag of a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// A value, named so in help.
    Value(&'static str),
    /// True or false; true without a value.
    Truth,
    /// The same, and the flag says the opposite of the key.
    Denial,
}

pub(super) const TRAINING: &[Work] = &[Work::Training];

pub(super) const SERVING: &[Work] = &[Work::Serving];

pub(super) const BOTH: &[Work] = &[Work::Training, Work::Serving];

impl StepKey {
    pub(super) const fn text(
        key: &'static str,
        flag: &'static str,
        value: &'static str,
        takes: &'static [Work],
        meaning: &'static str,
    ) -> StepKey {
        StepKey { key, flag, alias: None, form: KeyForm::Value(value), takes, meaning, needs: None, is_common: false }
    }

    pub(super) const fn truth(
        key: &'static str,
        flag: &'static str,
        takes: &'static [Work],
        meaning: &'static str,
    ) -> StepKey {
        StepKey { key, flag, alias: None, form: KeyForm::Truth, takes, meaning, needs: None, is_common: false }
    }

    pub(super) const fn denial(
        key: &'static str,
        flag: &'static str,
        takes: &'static [Work],
        meaning: &'static str,
    ) -> StepKey {
        StepKey { key, flag, alias: None, form: KeyForm::Denial, takes, meaning, needs: None, is_common: false }
    }

    pub(super) const fn alias(self, alias: &'static str) -> StepKey {
        StepKey { alias: Some(alias), ..self }
    }

    pub(super) const fn common(self) -> StepKey {
        StepKey { is_common: true, ..self }
    }

    pub(super) const fn needs(self, needs: Needs) -> StepKey {
        StepKey { needs: Some(needs), ..self }
    }
}

// Keys of data parallelism.

/// Of data parallelism.
pub(super) const DATA: &[StepKey] = &[
    StepKey::text(
        "data_style",
        "--data-style",
        "STYLE",
        TRAINING,
        "What is sharded: ddp, zero1, zero2, zero3, fsdp, hsdp",
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
        "What groups with equal shards shard further (hsdp, unit rule buckets): no_shard (default), optim",
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
        "No prefetch while this many parameters are gathered (unit rule modules) [default: 1000000000]",
    ),
    StepKey::text(
        "reuse_distance",
        "--reuse-distance",
        "N",
        TRAINING,
        "Parameters used again within this many are not released (unit rule modules) [default: 1000000000]",
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
        "Ranks that shard the parameters between forward and backward pass, such as those of a node (zero3, fsdp)",
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

// Keys of the axes that divide a model: tensor, pipeline, context and expert parallelism.

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
        "Calls of the backward pass wait for the gradient products of their layer instead of overlapping with them",
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
