//! What one training step is: its batch, and the choices of every style that change the bytes on the wire.

use super::Serving;
use super::choices::*;
use super::framework::{Framework, FrameworkChoices, Work};
use super::keys::{
    Accepted, Group, KeyPart, KeyValue, Keys, LARGEST, MOVED, Needs, Places, SUMMED_OR_SAME, StepKey, Value, With,
    check_conditions, group, key, keys, with,
};
use crate::config::Model;
use crate::config::document::{Item, Place, Table};
use commgauge_base::collective::Placement;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use std::sync::Arc;

const STEP: Group = group(Work::Training, "Step", Needs::Nothing);
const TENSOR: Group = group(Work::Training, "Tensor parallelism", Needs::TensorParallelism);
const DATA: Group = group(Work::Training, "Data parallelism", Needs::Nothing);
const PIPELINE: Group = group(Work::Training, "Pipeline parallelism", Needs::PipelineParallelism);
const CONTEXT: Group = group(Work::Training, "Context parallelism", Needs::ContextParallelism);
const EXPERT: Group = group(Work::Training, "Expert parallelism", Needs::Experts);

/// Parameters of a bucket of gradients of DeepSpeed (runtime/zero/config.py `reduce_bucket_size`).
pub const DEEPSPEED_BUCKET_PARAMETERS: u64 = 500_000_000;

/// Most parameters that a number of them may name.
const MOST_PARAMETERS: u64 = 1 << 40;

/// Values of `data_style` with sharded parameters.
const SHARDED: &[&str] = &["zero3", "fsdp", "hsdp"];
const FSDP_OR_HSDP: &[&str] = &["fsdp", "hsdp"];
const MODULES: &[With] = &[with("unit_rule", &["modules"])];
const PART_OF_MODEL: &[With] = &[
    with("unit_rule", &["layers", "root_kept", "ends_apart"]),
    with("bucket_rule", &["megatron", "pytorch", "deepspeed"]),
];

keys! {
    /// One optimizer step.
    Training in STEP;
    /// Tokens of one sample
    sequence: u64 = key("sequence").required("tokens of one sample, such as 4096").alias("seq").common(),
    /// Samples of a micro-batch
    micro_batch: u64 = key("micro_batch").or("1"),
    /// Samples of a step over all replicas
    global_batch: Option<u64> = key("global_batch").or_else("see micro_batches"),
    /// Micro-batches of a replica in a step
    micro_batches: Option<u64> = key("micro_batches").or_else("see global_batch").common(),
    /// Type of activations on the wire
    activation_element_type: ElementType = key("activation_element_type").or("bfloat16").flag("--activation-type"),
    /// Placements of the model's collectives, where they have both
    placements: Vec<Placement> = key("placements").or("in-place").without_flag(),
    /// Framework whose defaults hold for all other keys
    framework: Option<Framework> = key("framework").takes(Accepted::Frameworks(Work::Training)),
    /// Layers behind the last one that predict a further token each (arXiv 2412.19437 section 2.2)
    prediction_layers: u32 = key("prediction_layers").within(0, 64).or("0"),
    /// Small calls around the optimizer
    small_calls: Vec<SmallCall> = key("small_calls")
        .takes(Accepted::ListOrNone(SmallCall::NAMES)).or("tokens,overflow,norm,status,loss"),
    + /// What the framework decided.
    framework_choices: Option<FrameworkChoices>,
    + /// Choices of tensor and sequence parallelism.
    tensor: TensorChoices,
    + /// Choices of embedding, output projection and loss.
    vocabulary: VocabularyChoices,
    + /// Choices of data parallelism.
    data: DataChoices,
    + /// Choices of pipeline parallelism.
    pipeline: PipelineChoices,
    + /// Choices of context parallelism.
    context: ContextChoices,
    + /// Choices of expert parallelism.
    expert: ExpertChoices,
    + /// Where the keys were written.
    places: Places,
}

keys! {
    /// Choices of tensor and sequence parallelism.
    TensorChoices in TENSOR;
    /// Megatron-LM's sequence parallelism. all_reduce becomes reduce_scatter and all_gather
    sequence_parallel: bool = key("sequence_parallel").or("false"),
    /// What the backward pass computes again
    recompute: Recompute = key("recompute").or("none").always(),
    /// What selective recomputation repeats; it makes recomputation selective
    recompute_modules: Option<Vec<RecomputeModule>> = key("recompute_modules")
        .takes(Accepted::List(RecomputeModule::NAMES)).or_else("core_attn").always(),
    /// Layers that full recomputation repeats at a time, or at all in each chunk; it makes recomputation full
    recompute_layers: Option<u32> = key("recompute_layers").or_else("each alone, and all").always(),
    /// What recompute_layers counts. uniform: layers repeated together; block: the first of each chunk, which alone are repeated
    recompute_method: RecomputeMethod = key("recompute_method").or("uniform").only(&[with("recompute_layers", &[])]).always(),
    /// How linear layers are divided. pair: column, then row
    linears: Linears = key("linears").or("pair").only(&[
        with("sequence_parallel", &["false"]),
    ]),
    /// One all_reduce for both sums of the loss
    fused_cross_entropy: bool = key("fused_cross_entropy").or("false"),
    /// Calls of the backward pass overlap the gradient products of their layer
    overlap_calls: bool = key("overlap_tensor").or("true")
        .denied("Calls of the backward pass wait for the gradient products of their layer"),
    /// Who divides the linears. megatron joins q, k and v; dtensor divides each alone, and stores inputs whole with sequence parallelism
    style: TensorStyle = key("tensor_style").or("megatron"),
    /// Form in which inputs and output gradients of linears are gathered (Transformer Engine)
    gather_recipe: GatherRecipe = key("gather_recipe").or("plain").only(&[
        with("sequence_parallel", &["true"]), with("tensor_style", &["megatron"]),
    ]),
    /// What hides the calls that products wait for, or that wait for products
    product_overlap: ProductOverlap = key("product_overlap").or("none").only(&[with("sequence_parallel", &["true"])]),
    /// What Muon orthogonalises of a divided matrix. blockwise: each rank its part
    muon_tp_mode: MuonTensorMode = key("muon_tp_mode").or("blockwise").only(&[with("data_style", &["ddp", "zero1"])]),
    /// What of each micro-batch the first rank of tp broadcasts to the others
    batch_broadcast: BatchBroadcast = key("batch_broadcast").or("none"),
}

keys! {
    /// Choices of embedding, output projection and loss.
    VocabularyChoices in TENSOR;
    /// How embedding and output projection are divided. gathered: the logits are gathered
    style: VocabularyStyle = key("vocabulary_style").or("parallel"),
    /// What the vocabulary is padded to. megatron: a multiple of 128 x tp; vllm: of 64; even: of tp
    padding: VocabularyPadding = key("vocabulary_padding").or("megatron").always(),
}

keys! {
    /// Choices of data parallelism.
    DataChoices in DATA;
    /// What is sharded. ddp: nothing; zero1: the optimizer; zero2: gradients too; zero3, fsdp and hsdp: parameters too
    style: DataStyle = key("data_style").or("ddp"),
    /// Type of gradients on the wire
    gradient_element_type: ElementType = key("gradient_element_type").or("float32").flag("--grad-type"),
    /// Type of gathered parameters
    parameter_element_type: ElementType = key("parameter_element_type").takes(MOVED).or("bfloat16").flag("--param-type"),
    /// How gradients are cut into buckets. megatron: max(40e6, 1e6 dp) parameters; pytorch: 25 MiB; deepspeed: 500e6 parameters;
    /// layer_wise: as megatron, with each matrix whole on one rank
    bucket_rule: BucketRule = key("bucket_rule").or("megatron").only(&[
        with("data_style", &["zero1"]).of("layer_wise"),
        with("gradient_reduction", &["reduce_scatter"]).of("layer_wise"),
        with("parameter_return", &["all_gather", "each_optimizer"]).of("layer_wise"),
        with("replicas_of_shards", &["1"]).of("layer_wise"),
    ]),
    /// Parameters in a bucket
    bucket_parameters: Option<u64> = key("bucket_parameters").within(1, MOST_PARAMETERS).or_else("as bucket_rule has it"),
    /// Gradients are reduced during the last backward pass
    overlap_gradients: bool = key("overlap_gradients").or("true")
        .denied("Reduce gradients in one go after the last backward pass"),
    /// How gradients of micro-batches add up. sharded: reduced in each; unsharded: one reduction at the end; whole_stages: the latter
    /// where there are stages
    gradient_accumulation: GradientAccumulation = key("gradient_accumulation").or("sharded").only(&[
        with("data_style", FSDP_OR_HSDP),
    ]),
    /// How sharded gradients are reduced
    gradient_reduction: GradientReduction = key("gradient_reduction").or("reduce_scatter").only(&[
        with("data_style", &["zero1", "zero2"]),
    ]),
    /// How often groups of shards add up their gradients
    replica_reduction: ReplicaReduction = key("replica_reduction").or("step").only(&[with("data_style", &["hsdp"])]),
    /// What groups that hold the same shards shard among each other
    outer_sharding: OuterSharding = key("outer_sharding").or("no_shard").only(&[
        with("data_style", &["hsdp"]), with("unit_rule", &["buckets"]),
    ]),
    /// How updated parameters reach every rank
    parameter_return: ParameterReturn = key("parameter_return").or("all_gather").only(&[
        with("data_style", &["zero1"]),
        with("gradient_reduction", &["all_reduce"]).of("gather_shares"),
        with("replicas_of_shards", &["1"]).of("gather_shares"),
    ]),
    /// Buffers that the first replica sends to the others before a step
    broadcast_buffers: BroadcastBuffers = key("broadcast_buffers").or("none").only(&[
        with("data_style", &["ddp", "zero1"]),
    ]),
    /// Percent of the optimizer that hosts hold and update
    offloaded_percent: u64 = key("optimizer_offload").within(0, 100).or("0"),
    + /// What is gathered together, and for how long.
    units: UnitChoices,
    + /// The groups of ranks that share what is sharded.
    shards: ShardGroups,
    + /// What is trained.
    trained: TrainedChoices,
}

keys! {
    /// What is trained, where not all of the model is.
    TrainedChoices in DATA;
    /// Rank of the adapters on linears of a layer, which alone are trained (LoRA, arXiv 2106.09685)
    lora_rank: Option<u64> = key("lora_rank").only(PART_OF_MODEL),
    /// Linears that have adapters. qkv: those before attention; proj: that behind it; fc1, fc2: those of feed-forwards
    lora_modules: Option<Vec<LoraModule>> = key("lora_modules")
        .takes(Accepted::List(LoraModule::NAMES)).or_else("all").only(&[with("lora_rank", &[])]),
    /// The last layers, which alone are trained. All before them, embedding, last norm and head are frozen
    trainable_layers: Option<u32> = key("trainable_layers").or_else("the whole model").only(PART_OF_MODEL),
}

keys! {
    /// What is gathered together, and for how long.
    UnitChoices in DATA;
    /// What is gathered together
    rule: UnitRule = key("unit_rule").or("layers").only(&[
        with("data_style", &["zero3"]).of("modules"),
        with("data_style", FSDP_OR_HSDP).of("buckets"),
        with("reshard_after_forward", &["true"]).of("buckets"),
        with("secondary_shards", &["none"]).of("buckets"),
        with("prediction_layers", &["0"]).of("buckets"),
        with("data_style", SHARDED),
    ]),
    /// Parameters are released after the forward pass and gathered again for the backward pass
    reshard_after_forward: bool = key("reshard_after_forward").or("true")
        .denied("FSDP keeps parameters between forward and backward").only(&[with("data_style", FSDP_OR_HSDP)]),
    /// What stayed gathered after the forward pass is released after the backward pass of each micro-batch, and gathered for the next
    reshard_after_backward: bool = key("reshard_after_backward").or("false"),
    /// Parameters of a unit are gathered while the unit before computes
    prefetch: bool = key("prefetch_parameters").or("true")
        .denied("Parameters are gathered when they are needed, not while the unit before computes"),
    /// How calls get the parts of the ranks. listed: the host copies a tensor for each rank, as in arXiv 2104.04473 table 2
    shard_buffers: ShardBuffers = key("shard_buffers").or("flat").only(MODULES),
    + /// What DeepSpeed's ZeRO-3 gathers when.
    modules: ModuleChoices,
}

keys! {
    /// What DeepSpeed's ZeRO-3 gathers when, in parameters; the defaults are those of runtime/zero/config.py.
    #[derive(Copy)]
    ModuleChoices in DATA;
    /// Tensors of fewer parameters stay on every rank (`stage3_param_persistence_threshold`)
    persistent_parameters: u64 = key("persistent_parameters").within(0, MOST_PARAMETERS).or("100000").only(MODULES),
    /// Parameters gathered ahead at each module (`stage3_prefetch_bucket_size`)
    prefetch_bucket: u64 = key("prefetch_bucket").within(0, MOST_PARAMETERS).or("50000000").only(MODULES),
    /// No parameters are gathered ahead where this many are there (`stage3_max_live_parameters`)
    live_parameters: u64 = key("live_parameters").within(0, MOST_PARAMETERS).or("1000000000").only(MODULES),
    /// Parameters used again within this many are not released (`stage3_max_reuse_distance`)
    reuse_distance: u64 = key("reuse_distance").within(0, MOST_PARAMETERS).or("1000000000").only(MODULES),
    /// Parameters are gathered in 8 bits, with a scale of 32 for each block (ZeRO++'s qwZ, arXiv 2306.10209 section 3.1)
    quantised: bool = key("quantised_parameters").or("false").only(MODULES),
}

keys! {
    /// The groups of ranks that share what is sharded.
    ShardGroups in DATA;
    /// Groups that hold the same shards (HSDP, or distributed-optimizer instances)
    replicas: u32 = key("replicas_of_shards").or("1").only(&[with("data_style", &["zero1", "hsdp"])]),
    /// Ranks that share the parameters between forward and backward pass, such as those of a node (ZeRO++'s hpZ, arXiv 2306.10209 section 3.2)
    secondary: Option<u32> = key("secondary_shards").only(&[
        with("data_style", &["zero3", "fsdp"]), with("reshard_after_forward", &["true"]),
    ]),
    /// Ranks of a node, among which gradients go in 4 bits before they go between nodes (ZeRO++'s qgZ, arXiv 2306.10209 section 3.3)
    quantised_gradients: Option<u32> = key("quantised_gradients").only(MODULES),
}

keys! {
    /// Choices of pipeline parallelism.
    PipelineChoices in PIPELINE;
    /// Order of the passes of the stages
    schedule: ScheduleKind = key("schedule").or("1f1b"),
    /// Model chunks on each rank. More than 1 makes the schedule interleaved
    virtual_stages: u32 = key("virtual_stages").within(1, 1024).or("1"),
    /// Layers of each stage or chunk; 0 for the embedding or the head alone
    stage_layers: Option<Vec<u32>> = key("stage_layers").takes(Accepted::Text("a list of numbers")).or_else("divided evenly"),
    /// Each rank of tp sends its part only, and the receivers gather (arXiv 2104.04473 section 4.1)
    scatter_gather: bool = key("scatter_gather").or("false"),
}

keys! {
    /// Choices of context parallelism.
    ContextChoices in CONTEXT;
    /// How keys and values travel
    style: ContextStyle = key("context_style").or("ring"),
    /// Ranks of the inner all_to_all
    inner: u32 = key("context_inner").or("1").only(&[with("context_style", &["hybrid"])]),
    /// Type of the gradients of keys and values. With context_style = pytorch the default is float32
    gradient_element_type: ElementType = key("context_gradient_element_type")
        .or_that_of("activation_element_type").flag("--context-grad-type"),
}

keys! {
    /// Choices of expert parallelism.
    ExpertChoices in EXPERT;
    /// How tokens reach their experts
    dispatcher: Dispatcher = key("dispatcher").or("all_to_all"),
    /// How tokens choose experts
    routing: Routing = key("routing").or("uniform").only(&[with("dispatcher", &["all_to_all"])]),
    /// Seed of random choices
    routing_seed: u64 = key("routing_seed").within(0, LARGEST).or("1"),
    /// Most tokens that an expert takes, as a multiple of the mean
    capacity_factor: Option<f64> = key("capacity_factor").only(&[with("dispatcher", &["all_to_all"])]),
    /// Type of tokens on their way to the experts
    dispatch_element_type: ElementType = key("dispatch_element_type").takes(MOVED)
        .or_that_of("activation_element_type").flag("--dispatch-type")
        .only(&[with("dispatcher", &["all_to_all", "deepep", "hybrid_ep"])]),
    /// Ranks of ep on a node, or in a domain of NVLink
    inner: Option<u32> = key("expert_inner").or_else("8, or ep where that is less").only(&[
        with("dispatcher", &["deepep", "hybrid_ep"]),
    ]),
    /// Exchanges overlap with the computing of another micro-batch (Megatron-LM `--overlap-moe-expert-parallel-comm`)
    overlap_exchange: bool = key("overlap_exchange").or("false"),
    /// Type of the probabilities of choices, and of sums over the parts of an expert
    router_element_type: ElementType = key("router_element_type").takes(SUMMED_OR_SAME).or("float32").flag("--router-type"),
    /// Tokens over which the counts of a loss that balances experts add up. micro_batch: over tp and cp
    balance_loss: BalanceLoss = key("balance_loss").or("none"),
    /// A bias that balances experts is updated after each step
    bias_update: bool = key("expert_bias_update").or("false"),
}

/// Ranks of a node among `ep` ranks: as given, or those of a usual host (8 GPUs, which DeepEP's kernels between nodes are built for).
pub fn ranks_of_ep_on_a_node(given: Option<u32>, ep: u32) -> u32 {
    const USUAL: u32 = 8;
    given.unwrap_or(ep.min(USUAL))
}

impl Training {
    /// Reads the `[training]` table, or the equivalent flags.
    pub fn read(table: Table) -> Result<Training> {
        let mut keys = Keys::of::<Training>(table, Work::Training)?;
        // Chunks make a schedule interleaved; saying so twice is not needed.
        keys.default_where("schedule", "interleaved", |table| {
            table.peek("virtual_stages").is_some_and(|item| item.is_whole() && item.whole(2..=u64::MAX).is_ok())
        });
        // So do parts of layers, or some layers, say which recomputation is meant.
        let repeats = [("recompute_modules", Recompute::Selective), ("recompute_layers", Recompute::Full)];
        for (key, recompute) in repeats {
            keys.default_where("recompute", recompute.name(), |table| table.peek(key).is_some());
        }
        // torch/distributed/tensor/experimental/_context_parallel/_attention.py adds up gradients in float32.
        keys.default_where("context_gradient_element_type", "float32", |table| {
            table.peek("context_style").is_some_and(|item| item.is_text("pytorch"))
        });
        let training = Training::take(&mut keys)?;
        let tensor = &training.tensor;
        let given = [tensor.recompute_modules.is_some(), tensor.recompute_layers.is_some()];
        let needing =
            repeats.into_iter().zip(given).filter(|((_, needed), given)| *given && *needed != tensor.recompute);
        if let Some(((key, needed), _)) = needing.into_iter().next() {
            let problem = format!("{key} needs recompute = {needed}; found recompute = {}", tensor.recompute);
            return Err(training.at(key).wrong(problem));
        }
        match (training.global_batch, training.micro_batches) {
            (Some(_), None) | (None, Some(_)) => Ok(training),
            (Some(_), Some(_)) => {
                Err(training.at("micro_batches").wrong("cannot be combined with `global_batch`; give one of the two"))
            }
            (None, None) => {
                let accepted = "accepted: `global_batch`, samples over all replicas, or `micro_batches` of a replica";
                Err(training.places.table().wrong(format!("the size of a step is missing; {accepted}")))
            }
        }
    }

    /// Where a key was written; the table where it was left out.
    pub fn at(&self, key: &str) -> &Place {
        self.places.at(key)
    }

    /// Where the schedule or its chunks were written.
    pub fn schedule_place(&self) -> &Place {
        self.at(if self.pipeline.virtual_stages > 1 { "virtual_stages" } else { "schedule" })
    }

    /// Refuses values that need others than are there, but keys about what the layout or the model does not have.
    ///
    /// # Errors
    /// The first, with what it needs.
    pub fn check_conditions(&self, has: impl Fn(Needs) -> bool) -> Result<()> {
        check_conditions(self, &self.places, self.framework_choices.as_ref(), has)
    }
}

impl TensorChoices {
    /// Whether selective recomputation repeats a part of a layer.
    pub fn repeats(&self, module: RecomputeModule) -> bool {
        use RecomputeModule::{CoreAttention, ExpertActivation, Experts, SharedExperts};
        let modules = self.recompute_modules.as_deref().unwrap_or(&[CoreAttention]);
        let in_experts = matches!(module, ExpertActivation | SharedExperts) && modules.contains(&Experts);
        self.recompute == Recompute::Selective && (modules.contains(&module) || in_experts)
    }

    /// Of this many layers of a chunk, the number of those that full recomputation repeats: the first.
    pub fn layers_repeated(&self, layers: usize) -> usize {
        match (self.recompute, self.recompute_method, self.recompute_layers) {
            (Recompute::Full, RecomputeMethod::Block, Some(some)) => layers.min(some as usize),
            (Recompute::Full, ..) => layers,
            _ => 0,
        }
    }

    /// Layers that full recomputation repeats together, from the input of the first.
    pub fn layers_together(&self) -> usize {
        match (self.recompute, self.recompute_method) {
            (Recompute::Full, RecomputeMethod::Uniform) => self.recompute_layers.unwrap_or(1) as usize,
            _ => 1,
        }
    }
}

impl TrainedChoices {
    /// Whether embedding, last norm, head and some weights of layers are frozen.
    pub fn is_part(&self) -> bool {
        self.lora_rank.is_some() || self.trainable_layers.is_some()
    }

    /// Whether one of this many layers has trained parameters.
    pub fn trains(&self, layer: u32, layers: u32) -> bool {
        self.trainable_layers.is_none_or(|last| layer.saturating_add(last) >= layers)
    }

    /// Whether a linear has adapters, or would have them.
    pub fn adapts(&self, linear: LoraModule) -> bool {
        self.lora_modules.as_ref().is_none_or(|modules| modules.contains(&linear))
    }
}

impl ShardGroups {
    /// Whether the groups of dp x cp are divided.
    pub fn are_divided(&self) -> bool {
        self.replicas > 1 || self.secondary.is_some() || self.quantised_gradients.is_some()
    }

    /// The groups of dp_shard in each of this many ranks of dp x cp: those with equal shards, those that shard what the forward pass
    /// leaves to the backward one, or the nodes of quantised gradients.
    ///
    /// # Errors
    /// Secondary shards or ranks of a node that do not divide these ranks, with what would, and both where they differ.
    pub fn groups(&self, ranks: u32) -> std::result::Result<u32, (&'static str, String)> {
        let (key, of_group) = match (self.secondary, self.quantised_gradients) {
            (None, None) => return Ok(self.replicas),
            (Some(shards), Some(node)) if shards != node => {
                let problem = format!(
                    "secondary_shards = {shards} and quantised_gradients = {node}: both are the ranks of a node; accepted: the same number"
                );
                return Err(("secondary_shards", problem));
            }
            (Some(shards), _) => ("secondary_shards", shards),
            (None, Some(node)) => ("quantised_gradients", node),
        };
        if (2..ranks).contains(&of_group) && ranks.is_multiple_of(of_group) {
            return Ok(ranks / of_group);
        }
        let accepted = divisors_among(2..ranks, ranks);
        Err((key, format!("{key} = {of_group} does not divide the {ranks} ranks of dp x cp; accepted: {accepted}")))
    }
}

/// The candidates that divide a number, for readers: `2, 4`, or `none`.
pub fn divisors_among(candidates: impl Iterator<Item = u32>, number: u32) -> String {
    let divisors: Vec<String> =
        candidates.filter(|candidate| number.is_multiple_of(*candidate)).map(|divisor| divisor.to_string()).collect();
    if divisors.is_empty() { "none".to_owned() } else { divisors.join(", ") }
}

// Reads a suite's `[[layout]]` tables: the degrees by which a model is divided, as written.

/// Axis order of Megatron-LM, the leftmost varying fastest over consecutive ranks.
const DEFAULT_ORDER: [&str; 5] = ["tp", "cp", "ep", "dp", "pp"];

/// The styles whose ops a layout may be measured for.
pub const STYLES: [&str; 9] =
    ["tensor", "sequence", "vocabulary", "data", "pipeline", "context", "expert", "control", "serving"];

/// The largest degree; more ranks than any machine has.
const LARGEST_DEGREE: u32 = MOST_RANKS;

/// The most ranks that a layout may have.
pub const MOST_RANKS: u32 = 1 << 20;

/// Degrees of parallelism, as written.
#[derive(Clone, Debug, PartialEq)]
pub struct LayoutTable {
    /// Place of the table.
    pub place: Place,
    /// Tensor parallel.
    pub tp: u32,
    /// Context parallel.
    pub cp: u32,
    /// Data parallel; `None` if it follows from the number of ranks.
    pub dp: Option<u32>,
    /// Pipeline parallel.
    pub pp: u32,
    /// Expert parallel.
    pub ep: u32,
    /// Tensor parallel inside experts; `None` for that of the dense layers.
    pub etp: Option<u32>,
    /// Copies of each shard (HSDP), which divide the groups of dp x cp; `None` where they are not divided.
    pub replicas_of_shards: Option<u32>,
    /// Names of the axes, the fastest varying first, each once.
    pub order: Vec<&'static str>,
    /// The rank at each position of the grid, where ranks are placed by hand.
    pub ranks: Option<Vec<u32>>,
    /// Names of the styles whose ops are measured in this layout.
    pub styles: Vec<&'static str>,
    /// The work that is divided; `None` if only groups are needed.
    pub work: Option<Arc<ModelWork>>,
}

/// A model and what is done with it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelWork {
    /// The model.
    pub model: Model,
    /// The training step, if the model is trained.
    pub training: Option<Training>,
    /// The requests, if the model serves.
    pub serving: Option<Serving>,
}

impl LayoutTable {
    /// Reads a `[[layout]]` table, or the equivalent flags. The suite adds the work.
    pub fn read(mut table: Table) -> Result<LayoutTable> {
        let mut degree = |key| table.take(key).map(|item| item.count_within(1..=LARGEST_DEGREE)).transpose();
        let (tp, cp) = (degree("tp")?.unwrap_or(1), degree("cp")?.unwrap_or(1));
        let (dp, pp) = (degree("dp")?, degree("pp")?.unwrap_or(1));
        let (ep, etp) = (degree("ep")?.unwrap_or(1), degree("etp")?);
        let replicas_of_shards = degree("replicas_of_shards")?;
        let order = table.take("order").map_or(Ok(DEFAULT_ORDER.to_vec()), |item| item.parsed(parse_order))?;
        let styles = table.take("styles").map_or(Ok(STYLES.to_vec()), |item| item.each_parsed(parse_style))?;
        let rank = |item: &Item| item.count_within(0..=u32::MAX);
        let ranks = table.take("ranks").map(|item| item.each(rank)).transpose()?;
        let place = table.place.clone();
        table.finish()?;
        Ok(LayoutTable { place, tp, cp, dp, pp, ep, etp, replicas_of_shards, order, ranks, styles, work: None })
    }
}

fn parse_style(text: &str) -> std::result::Result<&'static str, String> {
    let found = STYLES.into_iter().find(|style| *style == text);
    found.ok_or_else(|| format!("found style `{text}`; accepted: {}", STYLES.join(", ")))
}

/// Reads `tp-cp-ep-dp-pp`. Axes may be left out; they are checked once the degrees are known.
pub fn parse_order(text: &str) -> std::result::Result<Vec<&'static str>, String> {
    let accepted = "accepted: the axes from the fastest varying on, such as tp-cp-ep-dp-pp";
    let mut order = Vec::new();
    for word in text.split('-') {
        let axis = DEFAULT_ORDER.into_iter().find(|axis| *axis == word);
        let axis = axis.ok_or_else(|| format!("found `{word}` in `{text}`; {accepted}"))?;
        if order.contains(&axis) {
            return Err(format!("`{text}` names {axis} twice; {accepted}"));
        }
        order.push(axis);
    }
    // Axes that are left out have degree 1 and may be anywhere in the order; otherwise the layout refuses them.
    Ok(order)
}
