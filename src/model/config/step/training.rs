//! Reads what one training step is: its batch, and the choices of every style that change the bytes on the wire.

use super::choices::{ContextStyle, Dispatcher, Linears, Recompute, Routing, ScheduleKind};
use super::data::{DataChoices, read_data};
use super::framework::{self, Framework, FrameworkChoices, Work};
use super::framework_choices::{BalanceLoss, SmallCall, TensorStyle, VocabularyPadding, VocabularyStyle};
use super::reading::{parse_float, parse_reducible_float, parsed_or, truth_or};
use super::tensor_choices::{BatchBroadcast, GatherRecipe, MuonTensorMode, ProductOverlap};
use crate::config::document::{Item, Place, Table};
use crate::config::suite_sweep::parse_placement;
use commgauge_base::collective::Placement;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

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
    /// Calls of the backward pass run beside the gradient products of their layer.
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
