//! Reads what one training step is: its batch, and the choices of every style that change the bytes on the wire.

use super::choices::{
    BalanceLoss, BatchBroadcast, BroadcastBuffers, BucketRule, ContextStyle, DataStyle, Dispatcher, GatherRecipe,
    GradientAccumulation, GradientReduction, Linears, MuonTensorMode, OuterSharding, ParameterReturn, ProductOverlap,
    Recompute, ReplicaReduction, Routing, ScheduleKind, ShardBuffers, SmallCall, TensorStyle, UnitRule,
    VocabularyPadding, VocabularyStyle,
};
use super::framework::{Framework, FrameworkChoices, Work};
use super::serving::{parse_float, parse_reducible_float, parsed_or, truth_or};
use super::{Serving, framework};
use crate::config::Model;
use crate::config::document::{Item, Place, Table};
use crate::config::suite_sweep::parse_placement;
use commgauge_base::collective::Placement;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use std::sync::Arc;

/// Largest sequence, batch or count that a file may name.
const LARGEST: u64 = u32::MAX as u64;

/// More layers that predict further tokens are refused.
const MOST_PREDICTION_LAYERS: u64 = 64;

/// One optimizer step.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// Place of the table.
    pub place: Place,
    /// Place of the sequence length.
    pub sequence_place: Place,
    /// Tokens of one sample.
    pub sequence: u64,
    /// Samples of one micro-batch.
    pub micro_batch: u64,
    /// How many samples a step has.
    pub batch: Batch,
    /// Type of activations on the wire.
    pub activation_element_type: ElementType,
    /// Placements of the model's collectives, if they support them.
    pub placements: Vec<Placement>,
    /// The framework whose defaults hold, and what it decided.
    pub framework: Option<FrameworkChoices>,
    /// Choices of tensor and sequence parallelism.
    pub tensor: TensorChoices,
    /// Choices of embedding, output projection and loss.
    pub vocabulary: VocabularyChoices,
    /// Choices of data parallelism.
    pub data: DataChoices,
    /// Choices of pipeline parallelism.
    pub pipeline: PipelineChoices,
    /// Choices of context parallelism.
    pub context: ContextChoices,
    /// Choices of expert parallelism.
    pub expert: ExpertChoices,
    /// Layers behind the last one that predict a further token each (DeepSeek-V3's multi-token prediction, arXiv 2412.19437
    /// section 2.2).
    pub prediction_layers: u32,
    /// Small calls around the optimizer.
    pub small_calls: Vec<SmallCall>,
}

/// How many samples a step has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Batch {
    /// Over all replicas, with its place.
    Global(u64, Place),
    /// Micro-batches of one replica, for any number of ranks.
    MicroBatches(u64),
}

/// Choices of tensor and sequence parallelism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorChoices {
    /// Megatron-LM's sequence parallelism: all_reduce becomes reduce_scatter and all_gather.
    pub sequence_parallel: bool,
    /// What is recomputed in the backward pass.
    pub recompute: Recompute,
    /// How linear layers are divided.
    pub linears: Linears,
    /// One all_reduce for both sums of the loss.
    pub fused_cross_entropy: bool,
    /// Calls of the backward pass overlap with the gradient products of their layer.
    pub overlap_calls: bool,
    /// Who divides the linears.
    pub style: TensorStyle,
    /// In which form the inputs and output gradients of linears are gathered.
    pub gather_recipe: GatherRecipe,
    /// What hides the calls that a product waits for, or that wait for one.
    pub product_overlap: ProductOverlap,
    /// What Muon orthogonalises where tensor parallelism divides a matrix.
    pub muon_tp_mode: MuonTensorMode,
    /// What of each micro-batch the ranks get from the first of them.
    pub batch_broadcast: BatchBroadcast,
}

/// Choices of embedding, output projection and loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VocabularyChoices {
    /// What is divided by vocabulary.
    pub style: VocabularyStyle,
    /// What the vocabulary is padded to.
    pub padding: VocabularyPadding,
}

/// Choices of pipeline parallelism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineChoices {
    /// The schedule.
    pub schedule: ScheduleKind,
    /// Model chunks on each rank; 1 where the schedule has none or decides itself.
    pub virtual_stages: u32,
    /// Place of the schedule or its chunks.
    pub place: Place,
    /// Layers of each stage, if they are not divided evenly.
    pub stage_layers: Option<Vec<u32>>,
    /// Each rank of a tensor-parallel group sends its part only and the receivers gather (arXiv 2104.04473 section 4.1).
    pub scatter_gather: bool,
}

/// Choices of context parallelism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextChoices {
    /// How keys and values are exchanged.
    pub style: ContextStyle,
    /// Ranks of the inner all_to_all of the hybrid form.
    pub inner: u32,
    /// Type of the gradients of keys and values on the ring.
    pub gradient_element_type: ElementType,
    /// Place of the style.
    pub place: Place,
}

/// Choices of expert parallelism.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertChoices {
    /// How tokens reach their experts.
    pub dispatcher: Dispatcher,
    /// How tokens choose.
    pub routing: Routing,
    /// Seed of random choices.
    pub routing_seed: u64,
    /// Maximum of the tokens of an expert, as a multiple of the mean; further ones are dropped.
    pub capacity_factor: Option<f64>,
    /// Type of tokens on their way to the experts.
    pub dispatch_element_type: ElementType,
    /// Type of the probabilities of choices, and of sums over the parts of an expert.
    pub router_element_type: ElementType,
    /// Over which tokens the counts of a loss that balances experts are added up.
    pub balance_loss: BalanceLoss,
    /// A bias that balances experts is updated after each step.
    pub bias_update: bool,
    /// Ranks of ep on a node, where tokens go by way of nodes; absent where nothing says it.
    pub inner: Option<u32>,
    /// Place of the choices.
    pub place: Place,
}

/// Ranks of a node among `ep` ranks: as given, or those of a usual host (8 GPUs, which DeepEP's kernels between nodes are built for).
pub fn ranks_of_ep_on_a_node(given: Option<u32>, ep: u32) -> u32 {
    const USUAL: u32 = 8;
    given.unwrap_or(ep.min(USUAL))
}

impl Training {
    /// The framework whose defaults it has, if one is named.
    pub fn named_framework(&self) -> Option<Framework> {
        self.framework.as_ref().map(|choices| choices.framework)
    }

    /// Reads the `[training]` table, or the equivalent flags.
    pub fn read(mut table: Table) -> Result<Training> {
        let place = table.place.clone();
        let framework = framework::apply(&mut table, Work::Training)?;
        let sequence = table.require("sequence", "tokens of one sample, such as 4096")?;
        let micro_batch = table.take("micro_batch").map(|item| item.whole(1..=LARGEST)).transpose()?.unwrap_or(1);
        let batch = read_batch(&mut table)?;
        let activation_element_type =
            parsed_or(&mut table, "activation_element_type", ElementType::Bfloat16, parse_reducible_float)?;
        let placements = match table.take("placements") {
            Some(item) => item.items()?.iter().map(|item| item.parsed(parse_placement)).collect::<Result<_>>()?,
            None => vec![Placement::InPlace],
        };
        let small_calls = match table.take("small_calls") {
            Some(item) if item.is_text("none") => Vec::new(),
            Some(item) => item.items()?.iter().map(|item| item.parsed(str::parse)).collect::<Result<_>>()?,
            None => SmallCall::DEFAULT.to_vec(),
        };
        let training = Training {
            framework,
            small_calls,
            sequence: sequence.whole(1..=LARGEST)?,
            sequence_place: sequence.place,
            micro_batch,
            batch,
            activation_element_type,
            placements,
            tensor: read_tensor(&mut table)?,
            vocabulary: VocabularyChoices {
                style: parsed_or(&mut table, "vocabulary_style", VocabularyStyle::Parallel, str::parse)?,
                padding: parsed_or(&mut table, "vocabulary_padding", VocabularyPadding::Megatron, str::parse)?,
            },
            data: read_data(&mut table)?,
            pipeline: read_pipeline(&mut table)?,
            context: read_context(&mut table, activation_element_type)?,
            expert: read_expert(&mut table, activation_element_type)?,
            prediction_layers: table
                .take("prediction_layers")
                .map(|item| item.whole(0..=MOST_PREDICTION_LAYERS))
                .transpose()?
                .unwrap_or(0) as u32,
            place,
        };
        table.finish()?;
        Ok(training)
    }
}

fn read_batch(table: &mut Table) -> Result<Batch> {
    match (table.take("global_batch"), table.take("micro_batches")) {
        (Some(item), None) => Ok(Batch::Global(item.whole(1..=LARGEST)?, item.place.clone())),
        (None, Some(item)) => Ok(Batch::MicroBatches(item.whole(1..=LARGEST)?)),
        (Some(_), Some(item)) => Err(item.wrong("cannot be combined with `global_batch`; give one of the two")),
        (None, None) => {
            let accepted = "accepted: `global_batch`, samples over all replicas, or `micro_batches` of a replica";
            Err(table.place.wrong(format!("the size of a step is missing; {accepted}")))
        }
    }
}

fn read_tensor(table: &mut Table) -> Result<TensorChoices> {
    Ok(TensorChoices {
        sequence_parallel: truth_or(table, "sequence_parallel", false)?,
        recompute: parsed_or(table, "recompute", Recompute::None, str::parse)?,
        linears: parsed_or(table, "linears", Linears::Pair, str::parse)?,
        fused_cross_entropy: truth_or(table, "fused_cross_entropy", false)?,
        overlap_calls: truth_or(table, "overlap_tensor", true)?,
        style: parsed_or(table, "tensor_style", TensorStyle::Megatron, str::parse)?,
        gather_recipe: parsed_or(table, "gather_recipe", GatherRecipe::Plain, str::parse)?,
        product_overlap: parsed_or(table, "product_overlap", ProductOverlap::None, str::parse)?,
        muon_tp_mode: parsed_or(table, "muon_tp_mode", MuonTensorMode::Blockwise, str::parse)?,
        batch_broadcast: parsed_or(table, "batch_broadcast", BatchBroadcast::None, str::parse)?,
    })
}

fn read_pipeline(table: &mut Table) -> Result<PipelineChoices> {
    let (schedule, chunks) = (table.take("schedule"), table.take("virtual_stages"));
    let stage_layers = match table.take("stage_layers") {
        Some(item) => Some(item.items()?.iter().map(Item::count).collect::<Result<_>>()?),
        None => None,
    };
    let virtual_stages = chunks.as_ref().map(|item| item.count_within(1..=1024)).transpose()?.unwrap_or(1);
    // Chunks make a schedule interleaved; saying so twice is not needed.
    let default = if virtual_stages > 1 { ScheduleKind::Interleaved } else { ScheduleKind::OneForwardOneBackward };
    let place = chunks.as_ref().or(schedule.as_ref()).map_or_else(|| table.place.clone(), |item| item.place.clone());
    Ok(PipelineChoices {
        schedule: schedule.map(|item| item.parsed(str::parse)).transpose()?.unwrap_or(default),
        virtual_stages,
        place,
        stage_layers,
        scatter_gather: truth_or(table, "scatter_gather", false)?,
    })
}

fn read_context(table: &mut Table, activations: ElementType) -> Result<ContextChoices> {
    let written = table.take("context_style");
    let place = written.as_ref().map_or_else(|| table.place.clone(), |item| item.place.clone());
    let style = written.map(|item| item.parsed(str::parse)).transpose()?.unwrap_or(ContextStyle::Ring);
    // torch/distributed/tensor/experimental/_context_parallel/_attention.py adds up gradients in float32.
    let gradients = if style == ContextStyle::PyTorch { ElementType::Float32 } else { activations };
    Ok(ContextChoices {
        place,
        style,
        inner: table.take("context_inner").map(|item| item.count()).transpose()?.unwrap_or(1),
        gradient_element_type: parsed_or(table, "context_gradient_element_type", gradients, parse_reducible_float)?,
    })
}

fn read_expert(table: &mut Table, activations: ElementType) -> Result<ExpertChoices> {
    let routing = table.take("routing");
    Ok(ExpertChoices {
        place: routing.as_ref().map_or_else(|| table.place.clone(), |item| item.place.clone()),
        dispatcher: parsed_or(table, "dispatcher", Dispatcher::AllToAll, str::parse)?,
        routing: routing.map(|item| item.parsed(str::parse)).transpose()?.unwrap_or(Routing::Uniform),
        routing_seed: table.take("routing_seed").map(|item| item.whole(0..=LARGEST)).transpose()?.unwrap_or(1),
        capacity_factor: table.take("capacity_factor").map(|item| item.fraction(0.0, 1e6)).transpose()?,
        dispatch_element_type: parsed_or(table, "dispatch_element_type", activations, parse_float)?,
        router_element_type: match table.take("router_element_type") {
            Some(item) if item.is_text("activations") => activations,
            Some(item) => item.parsed(parse_reducible_float)?,
            None => ElementType::Float32,
        },
        balance_loss: parsed_or(table, "balance_loss", BalanceLoss::None, str::parse)?,
        bias_update: truth_or(table, "expert_bias_update", false)?,
        inner: table.take("expert_inner").map(|item| item.count()).transpose()?,
    })
}

// Reads the choices of data parallelism of a training step.

/// Parameters of a bucket of gradients of DeepSpeed (runtime/zero/config.py `reduce_bucket_size`).
pub const DEEPSPEED_BUCKET_PARAMETERS: u64 = 500_000_000;

/// Most parameters that a number of them may name.
const MOST_PARAMETERS: u64 = 1 << 40;

/// Choices of data parallelism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataChoices {
    /// What is sharded.
    pub style: DataStyle,
    /// Type of gradients on the wire.
    pub gradient_element_type: ElementType,
    /// Type of parameters on the wire.
    pub parameter_element_type: ElementType,
    /// How gradients are cut.
    pub bucket_rule: BucketRule,
    /// Parameters in one bucket, where the rule is not to decide.
    pub bucket_parameters: Option<u64>,
    /// Gradients are reduced during the last backward pass.
    pub overlap_gradients: bool,
    /// What is gathered together and for how long (ZeRO-3, FSDP, HSDP).
    pub units: UnitChoices,
    /// How gradients of micro-batches are added up (FSDP, HSDP).
    pub gradient_accumulation: GradientAccumulation,
    /// How gradients are reduced (ZeRO-1, ZeRO-2).
    pub gradient_reduction: GradientReduction,
    /// How often groups of shards add up their gradients (HSDP).
    pub replica_reduction: ReplicaReduction,
    /// What these groups shard further (HSDP, unit rule `buckets`).
    pub outer_sharding: OuterSharding,
    /// How updated parameters reach every rank (ZeRO-1).
    pub parameter_return: ParameterReturn,
    /// Buffers that the first replica gives to the others.
    pub broadcast_buffers: BroadcastBuffers,
    /// The groups of ranks over which data is sharded.
    pub shards: ShardGroups,
}

/// What is gathered together, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitChoices {
    /// What is gathered together.
    pub rule: UnitRule,
    /// Parameters are released after the forward pass and gathered again for the backward pass (FSDP).
    pub reshard_after_forward: bool,
    /// Parameters that stayed gathered after the forward pass are released after the backward pass of each micro-batch (FSDP).
    pub reshard_after_backward: bool,
    /// Parameters of a unit are gathered while the unit before computes.
    pub prefetch: bool,
    /// What DeepSpeed's ZeRO-3 gathers when (unit rule `modules`).
    pub modules: ModuleChoices,
    /// How its calls get the parts of the ranks.
    pub shard_buffers: ShardBuffers,
}

/// The groups of ranks over which data is sharded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardGroups {
    /// Number of groups of shards with equal content (HSDP, or distributed-optimizer instances); 1 without
    /// replication.
    pub replicas: u32,
    /// Ranks that shard the parameters between the forward and the backward pass, if fewer than otherwise, such as the ranks of a node
    /// (ZeRO++'s hpZ, arXiv 2306.10209 section 3.2; FSDP2's `reshard_after_forward` with a number).
    pub secondary: Option<u32>,
    /// Ranks of a node, among which parameters are gathered in a second step, behind the first between nodes; absent where one call
    /// gathers them (MiCS, arXiv 2205.00119 section 3.3).
    pub gather_inner: Option<u32>,
    /// Ranks of a node, among which gradients go in 4 bits before they go from node to node; absent where they are reduced as they are
    /// (ZeRO++'s qgZ, arXiv 2306.10209 section 3.3).
    pub quantised_gradients: Option<u32>,
    /// Place of the replicas, of the secondary shards, or of the ranks of a node.
    pub place: Place,
}

impl ShardGroups {
    /// The groups of dp_shard among this many ranks of dp x cp each: those with equal shards, those that shard what the forward pass leaves
    /// to the backward one, or the nodes of quantised gradients.
    ///
    /// # Errors
    /// Secondary shards or ranks of a node that do not divide these ranks, with valid values, and both if they differ.
    pub fn groups(&self, ranks: u32) -> std::result::Result<u32, String> {
        let (key, of_group) = match (self.secondary, self.quantised_gradients) {
            (None, None) => return Ok(self.replicas),
            (Some(shards), Some(node)) if shards != node => {
                return Err(format!(
                    "secondary_shards = {shards} and quantised_gradients = {node}: both are the ranks of a node; accepted: the same number"
                ));
            }
            (Some(shards), _) => ("secondary_shards", shards),
            (None, Some(node)) => ("quantised_gradients", node),
        };
        if (2..ranks).contains(&of_group) && ranks.is_multiple_of(of_group) {
            return Ok(ranks / of_group);
        }
        let accepted = divisors_among(2..ranks, ranks);
        Err(format!("{key} = {of_group} does not divide the {ranks} ranks of dp x cp; accepted: {accepted}"))
    }
}

/// The candidates that divide a number, for readers: `2, 4`, or `none`.
pub fn divisors_among(candidates: impl Iterator<Item = u32>, number: u32) -> String {
    let divisors: Vec<String> =
        candidates.filter(|candidate| number.is_multiple_of(*candidate)).map(|divisor| divisor.to_string()).collect();
    if divisors.is_empty() { "none".to_owned() } else { divisors.join(", ") }
}

/// What DeepSpeed's ZeRO-3 gathers when, in parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleChoices {
    /// Tensors of fewer stay on every rank (`stage3_param_persistence_threshold`).
    pub persistent_parameters: u64,
    /// Prefetched parameters per module (`stage3_prefetch_bucket_size`).
    pub prefetch_bucket: u64,
    /// No prefetch while this many are gathered (`stage3_max_live_parameters`).
    pub live_parameters: u64,
    /// Parameters used again within this many are not released (`stage3_max_reuse_distance`).
    pub reuse_distance: u64,
    /// Parameters are gathered in 8 bits, with a scale of 32 for each block (`zero_quantized_weights`: ZeRO++'s qwZ, arXiv 2306.10209
    /// section 3.1).
    pub quantised: bool,
}

pub(super) fn read_data(table: &mut Table) -> Result<DataChoices> {
    Ok(DataChoices {
        style: parsed_or(table, "data_style", DataStyle::Ddp, str::parse)?,
        gradient_element_type: parsed_or(table, "gradient_element_type", ElementType::Float32, parse_reducible_float)?,
        parameter_element_type: parsed_or(table, "parameter_element_type", ElementType::Bfloat16, parse_float)?,
        bucket_rule: parsed_or(table, "bucket_rule", BucketRule::Megatron, str::parse)?,
        bucket_parameters: table.take("bucket_parameters").map(|item| item.whole(1..=MOST_PARAMETERS)).transpose()?,
        overlap_gradients: truth_or(table, "overlap_gradients", true)?,
        units: read_units(table)?,
        gradient_accumulation: parsed_or(table, "gradient_accumulation", GradientAccumulation::Sharded, str::parse)?,
        gradient_reduction: parsed_or(table, "gradient_reduction", GradientReduction::ReduceScatter, str::parse)?,
        replica_reduction: parsed_or(table, "replica_reduction", ReplicaReduction::Step, str::parse)?,
        outer_sharding: parsed_or(table, "outer_sharding", OuterSharding::NoShard, str::parse)?,
        parameter_return: parsed_or(table, "parameter_return", ParameterReturn::AllGather, str::parse)?,
        broadcast_buffers: parsed_or(table, "broadcast_buffers", BroadcastBuffers::None, str::parse)?,
        shards: read_shards(table)?,
    })
}

fn read_units(table: &mut Table) -> Result<UnitChoices> {
    Ok(UnitChoices {
        rule: parsed_or(table, "unit_rule", UnitRule::Layers, str::parse)?,
        reshard_after_forward: truth_or(table, "reshard_after_forward", true)?,
        reshard_after_backward: truth_or(table, "reshard_after_backward", false)?,
        prefetch: truth_or(table, "prefetch_parameters", true)?,
        modules: read_modules(table)?,
        shard_buffers: parsed_or(table, "shard_buffers", ShardBuffers::Flat, str::parse)?,
    })
}

fn read_shards(table: &mut Table) -> Result<ShardGroups> {
    let (replicas, secondary) = (table.take("replicas_of_shards"), table.take("secondary_shards"));
    let (gather_inner, quantised_gradients) = (table.take("gather_inner"), table.take("quantised_gradients"));
    Ok(ShardGroups {
        replicas: replicas.as_ref().map(Item::count).transpose()?.unwrap_or(1),
        secondary: secondary.as_ref().map(Item::count).transpose()?,
        gather_inner: gather_inner.as_ref().map(Item::count).transpose()?,
        quantised_gradients: quantised_gradients.as_ref().map(Item::count).transpose()?,
        place: replicas
            .or(secondary)
            .or(gather_inner)
            .or(quantised_gradients)
            .map_or_else(|| table.place.clone(), |item| item.place),
    })
}

impl Default for ModuleChoices {
    /// Those of DeepSpeed's runtime/zero/config.py.
    fn default() -> ModuleChoices {
        ModuleChoices {
            persistent_parameters: 100_000,
            prefetch_bucket: 50_000_000,
            live_parameters: 1_000_000_000,
            reuse_distance: 1_000_000_000,
            quantised: false,
        }
    }
}

fn read_modules(table: &mut Table) -> Result<ModuleChoices> {
    let default = ModuleChoices::default();
    let quantised = truth_or(table, "quantised_parameters", default.quantised)?;
    let mut parameters = |key, default| -> Result<u64> {
        Ok(table.take(key).map(|item| item.whole(0..=MOST_PARAMETERS)).transpose()?.unwrap_or(default))
    };
    Ok(ModuleChoices {
        persistent_parameters: parameters("persistent_parameters", default.persistent_parameters)?,
        prefetch_bucket: parameters("prefetch_bucket", default.prefetch_bucket)?,
        live_parameters: parameters("live_parameters", default.live_parameters)?,
        reuse_distance: parameters("reuse_distance", default.reuse_distance)?,
        quantised,
    })
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
        let order = match table.take("order") {
            Some(item) => item.parsed(parse_order)?,
            None => DEFAULT_ORDER.to_vec(),
        };
        let styles = match table.take("styles") {
            Some(item) => item.items()?.iter().map(|item| item.parsed(parse_style)).collect::<Result<_>>()?,
            None => STYLES.to_vec(),
        };
        let ranks = match table.take("ranks") {
            Some(item) => {
                Some(item.items()?.iter().map(|item| item.count_within(0..=u32::MAX)).collect::<Result<Vec<_>>>()?)
            }
            None => None,
        };
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
