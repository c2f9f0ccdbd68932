//! Parameters, gradients and optimizer of a rank: bytes per parameter, and the number of ranks that share each.

use super::parts::{MemoryUse, Shape, bytes, casts_for_products, held_logit_bytes, is_ddp_of_pytorch, logit_bytes};
use crate::planner::Kernels;
use commgauge_base::units::Bytes;
use commgauge_model::config::LayerParts;
use commgauge_model::config::step::{
    DEEPSPEED_BUCKET_PARAMETERS, DataStyle, Framework, OuterSharding, Recompute, ScheduleKind, UnitRule,
};
use commgauge_model::layout::Axis;
use commgauge_model::workload::op::Pass;
use commgauge_model::workload::step::{RankParameters, TrainingStep};

/// Bytes of an fp32 number: the updated copy, each of Adam's two moments, and the copy of a 16-bit gradient.
const FULL_PRECISION_BYTES: u64 = 4;

/// Units held at once while layers are gathered ahead: the active one and the next.
const GATHERED_UNITS: u64 = 2;

/// The first four parts of the memory of a rank of a stage. Hosts hold moments; those of DeepSpeed all of the optimizer, and the sharded
/// gradients that they add up (runtime/zero/stage_1_and_2.py, stage3.py `offload_optimizer`).
pub(super) fn of(step: &TrainingStep, stage: u32) -> MemoryUse {
    let (all, data) = (with_hosts(step, stage), &step.training.data);
    let (whole, each) = (step.training.framework == Some(Framework::DeepSpeed), optimizer_bytes_per_parameter(step));
    let on_host = if whole { each } else { each.min(2 * FULL_PRECISION_BYTES) };
    let without = |all: Bytes, part: u64, of: u64| {
        let parts = 100 * of - data.offloaded_percent.min(100) * part;
        bytes(u128::from(all.0) * u128::from(parts) / u128::from(100 * of))
    };
    let takes_gradients = whole && matches!(data.style, DataStyle::Zero2 | DataStyle::Zero3);
    let optimizer = without(all.optimizer, on_host, each);
    MemoryUse { optimizer, gradients: without(all.gradients, u64::from(takes_gradients), 1), ..all }
}

/// The same with what hosts hold of the optimizer.
fn with_hosts(step: &TrainingStep, stage: u32) -> MemoryUse {
    let data = &step.training.data;
    let sharded = |parameters: RankParameters| {
        let kinds = [(parameters.dense, ParameterKind::Dense), (parameters.experts, ParameterKind::Experts)];
        kinds.map(|(parameters, kind)| (parameters, shards(step, kind)))
    };
    let (held, trained) = (sharded(step.rank_parameters(stage)), sharded(step.trained_parameters(stage)));
    // Each part is rounded up to equal shards.
    let whole = |parts: &[(u64, u64)], each: u64| {
        parts.iter().map(|(parameters, _)| u128::from(*parameters) * u128::from(each)).sum::<u128>()
    };
    let shared_by_groups = |parts: &[(u64, u64)], groups: u64, each: u64| {
        let share = |(parameters, ranks): &(u64, u64)| u128::from(parameters.div_ceil(*ranks * groups));
        parts.iter().map(|part| share(part) * u128::from(each)).sum::<u128>()
    };
    let of_parameter = parameter_bytes_per_parameter(step);
    let of_optimizer = optimizer_bytes_per_parameter(step);
    let gathers = matches!(data.style, DataStyle::Zero3 | DataStyle::Fsdp | DataStyle::Hsdp);
    let gradients = match whole_gradients(step, stage) {
        None => bytes(shared_by_groups(&trained, 1, gradient_bytes_per_parameter(step))),
        Some(at_once) => {
            let reduced =
                if reduces_into_other_memory(step) { shared_by_groups(&trained, 1, FULL_PRECISION_BYTES) } else { 0 };
            bytes(u128::from(at_once) * u128::from(gradient_bytes_per_parameter(step)) + reduced)
        }
    };
    MemoryUse {
        parameters: bytes(match gathers {
            true => shared_by_groups(&held, 1, of_parameter),
            false => whole(&held, of_parameter) + u128::from(wider_ends(step, stage)),
        }),
        gradients,
        optimizer: bytes(match groups_of_optimizer(step) {
            Some(groups) => shared_by_groups(&trained, groups, of_optimizer),
            None => whole(&trained, of_optimizer),
        }),
        buffers: bytes(reduction_buffer(step)),
        unsharded: bytes(match gathers && held.iter().any(|(_, ranks)| *ranks > 1) {
            true => unsharded(step, stage),
            false => copies_for_products(step, stage),
        }),
        ..MemoryUse::default()
    }
}

/// What embedding and head take more than linears in 8 bits: they stay in 16 (Megatron-LM core/fp8_utils.py).
fn wider_ends(step: &TrainingStep, stage: u32) -> u64 {
    let is_in_8_bits = parameter_bytes_per_parameter(step) == 1;
    if is_in_8_bits { step.rank_end_parameters(stage).total() } else { 0 }
}

/// The buffer in which ZeRO gathers gradients to reduce them (DeepSpeed runtime/zero/stage_1_and_2.py `setup_buckets`, stage3.py).
pub(super) fn reduction_buffer(step: &TrainingStep) -> u128 {
    let data = &step.training.data;
    let is_zero = matches!(data.style, DataStyle::Zero1 | DataStyle::Zero2 | DataStyle::Zero3);
    if step.training.framework != Some(Framework::DeepSpeed) || !is_zero {
        return 0;
    }
    let parameters = data.bucket_parameters.unwrap_or(DEEPSPEED_BUCKET_PARAMETERS);
    u128::from(parameters) * u128::from(data.gradient_element_type.size())
}

/// Whether a rank holds only its shard of the gradients; false if gradients of several micro-batches are accumulated whole.
pub(super) fn shares_gradients(step: &TrainingStep) -> bool {
    let data = &step.training.data;
    match data.style {
        DataStyle::Ddp | DataStyle::Zero1 => false,
        DataStyle::Zero2 | DataStyle::Zero3 => true,
        DataStyle::Fsdp | DataStyle::Hsdp => !step.adds_up_whole_gradients() || step.micro_batches == 1,
    }
}

/// PyTorch's FSDP shards parameters in full precision, and gathers copies in the type of computing: the shards are the copy that the
/// optimizer updates, and their gradients are as wide (torch/distributed/fsdp/_fully_shard/_fsdp_param.py). Megatron-FSDP and ZeRO-3 hold
/// shards in either type.
fn shares_full_precision(step: &TrainingStep) -> bool {
    matches!(step.training.data.style, DataStyle::Fsdp | DataStyle::Hsdp)
        && step.training.framework != Some(Framework::Megatron)
}

/// Whether gradients are held a second time, in the buckets in which they are reduced: PyTorch's DDP does so unless gradients are views of
/// buckets, which is off by default (torch/csrc/distributed/c10d/reducer.cpp `initialize_buckets`).
pub(super) fn holds_buckets(step: &TrainingStep) -> bool {
    is_ddp_of_pytorch(step) && shards(step, ParameterKind::Dense) > 1
}

/// Bytes that a rank holds per parameter of its shard, or of its layers.
pub(super) fn parameter_bytes_per_parameter(step: &TrainingStep) -> u64 {
    if is_ddp_of_pytorch(step) {
        return step.training.data.gradient_element_type.size();
    }
    let computed = step.training.data.parameter_element_type.size();
    if shares_full_precision(step) { computed.max(FULL_PRECISION_BYTES) } else { computed }
}

pub(super) fn gradient_bytes_per_parameter(step: &TrainingStep) -> u64 {
    let reduced = step.training.data.gradient_element_type.size();
    match shares_full_precision(step) && shares_gradients(step) {
        true => reduced.max(FULL_PRECISION_BYTES),
        false if holds_buckets(step) => 2 * reduced,
        false if accumulates_apart(step) => reduced + parameter_bytes_per_parameter(step),
        false => reduced,
    }
}

/// Whether 16-bit gradients are added up in fp32 elsewhere: DeepSpeed's `BF16_Optimizer`, which takes ZeRO-1 with gradients in fp32
/// (runtime/bf16_optimizer.py `fp32_groups_gradients_flat`).
pub(super) fn accumulates_apart(step: &TrainingStep) -> bool {
    let data = &step.training.data;
    step.training.framework == Some(Framework::DeepSpeed)
        && data.style == DataStyle::Zero1
        && data.parameter_element_type.size() < data.gradient_element_type.size()
}

/// Adam: two moments, and fp32 copies of 16-bit parameters (arXiv 1910.02054). PyTorch's own keeps moments in the type of the parameters,
/// and no copy.
pub(super) fn optimizer_bytes_per_parameter(step: &TrainingStep) -> u64 {
    if is_ddp_of_pytorch(step) {
        return 2 * parameter_bytes_per_parameter(step);
    }
    let copies = u64::from(parameter_bytes_per_parameter(step) < FULL_PRECISION_BYTES);
    FULL_PRECISION_BYTES * (2 + copies)
}

/// Bytes that the update of a rank's trained parameters reads and writes: the moments, and the parameters in full precision wherever they
/// are stored.
pub(in crate::planner) fn updated_bytes(step: &TrainingStep, stage: u32) -> u64 {
    let (used, trained) = (with_hosts(step, stage), u128::from(step.trained_parameters(stage).total()));
    let of_trained =
        || u128::from(used.parameters.0) * trained / u128::from(step.rank_parameters(stage).total().max(1));
    used.optimizer.0.saturating_add(if shares_full_precision(step) { bytes(of_trained()).0 } else { 0 })
}

/// Parameters whose whole gradients are held at once; `None` if a rank only holds its shard. The chunks of a stage go backward one after
/// another, and if all micro-batches are one round, the gradients of a chunk are reduced before the next begins.
fn whole_gradients(step: &TrainingStep, stage: u32) -> Option<u64> {
    if shares_gradients(step) {
        return None;
    }
    let trained = step.trained_parameters(stage).total();
    Some(if reduces_in_turn(step) { largest_chunk(step, stage).min(trained) } else { trained })
}

/// Whether the gradients of a chunk are reduced before the next chunk goes backward.
pub(super) fn reduces_in_turn(step: &TrainingStep) -> bool {
    let one_round = step.micro_batches <= u64::from(step.stages.count());
    let interleaved = step.training.pipeline.schedule == ScheduleKind::Interleaved;
    step.keeps_stages_whole() && interleaved && one_round
}

/// Parameters of the largest chunk of a stage.
fn largest_chunk(step: &TrainingStep, stage: u32) -> u64 {
    let stages = &step.stages;
    let of_chunk = |chunk: u32| -> u64 {
        let layers = stages.layers_of_chunk(stage, chunk);
        let ends = if chunk == 0 || chunk + 1 == stages.chunks() { step.rank_end_parameters(stage).total() } else { 0 };
        layers.iter().map(|layer| step.parameters_of_layer(*layer).total()).sum::<u64>() + ends
    };
    (0..stages.chunks()).map(of_chunk).max().unwrap_or(0)
}

/// Whether the shards of whole gradients take memory of their own: PyTorch's FSDP reduces into tensors of another stream
/// (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py `foreach_reduce`), and the allocator does not give memory of one stream to
/// another, including whole gradients released meanwhile.
pub(super) fn reduces_into_other_memory(step: &TrainingStep) -> bool {
    shares_full_precision(step) && shards(step, ParameterKind::Dense) > 1 && !shares_gradients(step)
}

/// Parameters by the groups that reduce their gradients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterKind {
    Dense,
    Experts,
}

/// Ranks that shard parameters: the groups that reduce their gradients.
pub(super) fn shards(step: &TrainingStep, kind: ParameterKind) -> u64 {
    let layout = &step.layout;
    let replicated = step.training.data.shards.replicas > 1;
    let axis = match kind {
        _ if replicated => Axis::DpShard,
        ParameterKind::Dense => Axis::DpCp,
        ParameterKind::Experts => Axis::Edp,
    };
    u64::from(layout.group_size(axis)).max(1)
}

/// Groups of ranks with equal shards that shard the optimizer state further; `None` if it is whole.
pub(super) fn groups_of_optimizer(step: &TrainingStep) -> Option<u64> {
    let data = &step.training.data;
    match (data.style, data.outer_sharding) {
        (DataStyle::Ddp, _) => None,
        (_, OuterSharding::NoShard) => Some(1),
        (_, OuterSharding::Optimizer) => Some(u64::from(data.shards.replicas)),
    }
}

/// Parameters that a rank keeps from the forward to the backward pass in addition to its shard.
fn secondary(step: &TrainingStep, stage: u32) -> u128 {
    let shards = step.training.data.shards.secondary;
    shards.map_or(0, |shards| u128::from(step.rank_parameters(stage).total().div_ceil(u64::from(shards))))
}

/// Weights in the type of products, from the forward to the backward pass: all but embeddings, including norms as they are few.
pub(super) fn copies_for_products(step: &TrainingStep, stage: u32) -> u128 {
    if !casts_for_products(step) {
        return 0;
    }
    let ends = step.rank_end_parameters(stage).total() - step.input_parameters(stage).total();
    let weights = step.rank_layer_parameters(stage).total() + ends;
    u128::from(weights) * u128::from(step.activation().size())
}

/// Parameters that ZeRO-3 does not release at the end of the forward pass, as the backward pass uses them again within this distance: as
/// far before the end as after it (DeepSpeed runtime/zero/partitioned_param_coordinator.py `release_sub_module`).
fn kept_for_reuse(step: &TrainingStep, stage: u32) -> u128 {
    let data = &step.training.data;
    if data.units.rule != UnitRule::Modules {
        return 0;
    }
    u128::from(step.rank_parameters(stage).total().min(data.units.modules.reuse_distance / 2))
}

/// Parameters and gradients that are temporarily unsharded: the root unit, the largest layer and the next one gathered ahead, and the
/// gradients of one layer as they are computed, in the type of the parameters (arXiv 2304.11277 section 3.2.1), and secondary shards.
/// Everything, if parameters stay gathered until the optimizer runs. PyTorch's FSDP scatters the gradients of the layer before meanwhile,
/// from a copy in the type in which they are reduced (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py foreach_reduce).
fn unsharded(step: &TrainingStep, stage: u32) -> u128 {
    let element = u128::from(step.training.data.parameter_element_type.size());
    let root = u128::from(step.rank_end_parameters(stage).total());
    let largest =
        step.stages.layers_stored(stage).map(|layer| step.parameters_of_layer(layer).total()).max().unwrap_or(0);
    let layers = step.stages.layers_stored(stage).count() as u64;
    let gathered = if step.reshards_after_forward() {
        let gathered_units = u128::from(largest) * u128::from(GATHERED_UNITS.min(layers));
        gathered_units.max(kept_for_reuse(step, stage))
    } else {
        let RankParameters { dense, experts } = step.rank_layer_parameters(stage);
        u128::from(dense) + u128::from(experts)
    };
    // Adapters are few against their layer.
    let with_gradients = if step.training.data.trained.lora_rank.is_some() { 0 } else { largest };
    let scattered = match shares_full_precision(step) {
        true => u128::from(step.training.data.gradient_element_type.size() * with_gradients),
        false => 0,
    };
    element * (root + gathered + u128::from(with_gradients) + secondary(step, stage)) + scattered
}

// Memory of a rank of a stage in addition to its state: bytes per sample of a micro-batch, times the samples and the micro-batches in
// flight. `parts` has the bytes of a layer.

/// Bytes that a sample of a micro-batch needs on a rank of a stage; stored parts scale with the number in flight.
#[derive(Clone, Copy, Debug)]
pub(in crate::planner) struct SampleBytes {
    /// For all layers of the stage.
    kept: u128,
    recomputation: u128,
    backward: u128,
    input: u128,
    output: u128,
    logits: u128,
    /// Logits held for every micro-batch of the step.
    held_logits: u128,
    boundary: u128,
    gathered: u128,
    /// Chunks of the stage.
    chunks: u128,
    messages: MessageBuffers,
    /// Whether logits of all micro-batches in flight are held at once, as in `GPipe`. In all other schedules the head's backward pass runs
    /// before the next micro-batch arrives.
    all_logits: bool,
}

/// Buffers for messages between stages.
#[derive(Clone, Copy, Debug)]
enum MessageBuffers {
    /// One stage.
    Nothing,
    /// One per neighbour.
    OfNeighbours,
    /// One per micro-batch and direction; each chunk in flight also keeps its output, while its input is counted as that of a layer
    /// (torch/distributed/pipelining/stage.py `args_recv_info`, `grad_recv_info`, `fwd_cache`).
    OfMicroBatches,
}

/// The micro-batches of a step.
#[derive(Clone, Copy, Debug)]
pub(in crate::planner) struct MicroBatches {
    pub samples: u64,
    /// Number of micro-batches of a replica.
    pub count: u64,
    /// Chunks of the stage in flight.
    pub chunks_in_flight: u64,
}

impl SampleBytes {
    /// For a rank of a stage.
    pub(super) fn of(step: &TrainingStep, stage: u32, kernels: Kernels) -> SampleBytes {
        let shape = Shape::of(step, kernels);
        let tensor = &step.training.tensor;
        let (mut kept, mut recomputation, mut backward) = (0, 0, 0);
        // Layers of a kind keep the same.
        let mut known: Vec<((LayerParts, Recompute), [u128; 3])> = Vec::new();
        let chunks = (0..step.stages.chunks()).map(|chunk| step.stages.layers_of_chunk(stage, chunk));
        let layers = chunks.flat_map(|all| all.iter().enumerate().map(move |(at, layer)| (at, *layer, all)));
        for (index, layer, layers) in layers.filter(|(_, layer, _)| step.trains(*layer)) {
            let repeated = step.layers_in_pass(Pass::Recompute, layers);
            let recompute = repeated.binary_search(&layer).map_or(Recompute::None, |_| tensor.recompute);
            let parts = (step.model.parts_of(layer), recompute);
            let [keeps, repeats, gradients] = match known.iter().find(|(other, _)| *other == parts) {
                Some((_, layer)) => *layer,
                None => {
                    let [keeps, repeats] = shape.of_layer(step, layer, recompute);
                    let layer = [keeps, repeats, shape.in_backward(step, layer)];
                    known.push((parts, layer));
                    layer
                }
            };
            // Layers that are repeated together keep the input of the first.
            let together = tensor.layers_together();
            kept += if index % together == 0 { keeps } else { 0 };
            recomputation = recomputation.max(repeats * together.min(layers.len()) as u128);
            backward = backward.max(gradients);
        }
        let messages = match (step.stages.count(), step.training.framework) {
            (1, _) => MessageBuffers::Nothing,
            (_, Some(Framework::Torchtitan)) => MessageBuffers::OfMicroBatches,
            _ => MessageBuffers::OfNeighbours,
        };
        let (has_input, has_output) = (step.stages.has_input(stage), step.stages.has_output(stage));
        SampleBytes {
            kept,
            recomputation,
            backward,
            input: if has_input { shape.input() } else { 0 },
            output: if has_output { shape.output() } else { 0 },
            logits: if has_output { shape.logits(logit_bytes(step, kernels)) } else { 0 },
            held_logits: if has_output { shape.logits(held_logit_bytes(step)) } else { 0 },
            boundary: shape.boundary(),
            gathered: shape.gathered(),
            chunks: u128::from(step.stages.chunks()),
            messages,
            all_logits: step.training.pipeline.schedule == ScheduleKind::GPipe,
        }
    }

    /// Bytes stored for this many micro-batches.
    pub(super) fn stored(&self, micro_batches: MicroBatches) -> MemoryUse {
        let MicroBatches { samples, count, chunks_in_flight } = micro_batches;
        let [samples, in_flight] = [samples, chunks_in_flight].map(u128::from);
        let of_samples = |each: u128| bytes(samples.saturating_mul(each));
        let messages = match self.messages {
            MessageBuffers::Nothing => 0,
            MessageBuffers::OfNeighbours => 2,
            MessageBuffers::OfMicroBatches => 2 * u128::from(count) * self.chunks,
        };
        let logits = if self.all_logits { in_flight } else { 1 };
        MemoryUse {
            activations: bytes(samples.saturating_mul(self.kept) * in_flight / self.chunks),
            recomputation: of_samples(self.recomputation),
            backward: of_samples(self.backward),
            ends: of_samples(self.input * in_flight.div_ceil(self.chunks) + self.output),
            logits: of_samples(self.logits * logits + self.held_logits * u128::from(count)),
            buffers: of_samples(messages * self.boundary + self.gathered),
            ..MemoryUse::default()
        }
    }

    /// The total.
    pub(in crate::planner) fn total(&self, micro_batches: MicroBatches) -> u64 {
        self.stored(micro_batches).total().0
    }
}
