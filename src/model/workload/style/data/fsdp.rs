//! ZeRO-3, FSDP and HSDP: parameters sharded, gathered unit by unit for every use. A unit is one layer, or the root with embedding, head
//! and last norm, or as set by `unit_rule`.
//!
//! Sources: arXiv 1910.02054 section 7.2 (ZeRO-3), 2306.10209 section 3.2 (secondary shards), 2304.11277 (FSDP; HSDP in section
//! 3.2.2), 2104.07857 section 4.1 (recomputation gathers once more).

use super::tensors::{
    Order, Part, Shape, Tensor, is_in_eight_bits, of_ends, of_layer_alone, or_adapters, parameters_of, parts,
};
use super::{buckets, tensors};
use crate::config::step::{DataStyle, OuterSharding, Recompute, ReplicaReduction, UnitRule};
use crate::layout::Axis;
use crate::workload::op::{End, LayerKind, Moment, Overlap, Pass, When};
use crate::workload::step::{RankParameters, TrainingStep};
use crate::workload::{Op, Style};
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Vec<Op> {
    let mut ops = Vec::new();
    for part in parts(step) {
        for unit in units(step, stage, &part) {
            let sharded = Sharded { step, stage, part, unit };
            ops.extend(sharded.gathers());
            if unit.trained > 0 {
                ops.push(sharded.scatter_gradients());
                ops.extend(sharded.reduce_replicas());
            }
            ops.extend(sharded.gather_replicas());
        }
        ops.extend(largest_elements(step, stage, &part));
    }
    ops
}

/// The largest element of each weight that Megatron-FSDP stores in 8 bits, from which the optimizer's ranks compute its single scale.
fn largest_elements(step: &TrainingStep, stage: u32, part: &Part) -> Option<Op> {
    let data = &step.training.data;
    if data.units.rule != UnitRule::Buckets || !data.parameter_element_type.moves_only() {
        return None;
    }
    let of_part = tensors::of_part(step, stage, part, Order::Megatron);
    let weights = of_part.iter().filter(|tensor| is_in_eight_bits(tensor)).count() as u64;
    let axis = match data.outer_sharding {
        OuterSharding::NoShard => part.axis,
        OuterSharding::Optimizer => Axis::DpCp,
    };
    let element = ElementType::Float32;
    let bytes = element.size() * weights;
    let op = Op {
        when: When::Step { moment: Moment::Optimizer, calls: 1 },
        reduce_op: Some(ReduceOp::Max),
        why: format!(
            "4*weights = 4 B*{weights} = {bytes} B: the largest element of each weight in 8 bits, for its scale, {} (arXiv 2304.11277 section \
             3.2.1; Megatron-LM core/distributed/fsdp/src/megatron_fsdp/mixed_precision.py fp8_quantize; {})",
            part.name(),
            step.rank_parameters_formula(stage),
        ),
        ..Op::new(Style::Data, axis, Collective::AllReduce, element, bytes)
    };
    (weights > 0).then_some(op)
}

struct Sharded<'a> {
    step: &'a TrainingStep<'a>,
    stage: u32,
    part: Part,
    unit: Unit,
}

impl Sharded<'_> {
    /// The all_gathers of a unit: for the forward pass, for the backward pass unless the parameters stayed gathered,
    /// and for a recomputation that needs them again.
    fn gathers(&self) -> Vec<Op> {
        let training = self.step.training;
        let once = !self.step.reshards_after_forward() && !self.step.reshards_after_backward();
        if once || matches!(self.unit.what, Wrapped::Kept { .. }) {
            let (moment, overlap) = match self.unit.what {
                Wrapped::Root | Wrapped::Input | Wrapped::Kept { end: End::Input }
                    if self.step.stages.has_input(self.stage) =>
                {
                    (Moment::FirstForward, Overlap::Exposed)
                }
                _ => (Moment::FirstForward, Overlap::FirstForward),
            };
            let when = When::Step { moment, calls: self.calls(Pass::Forward) };
            return vec![self.gather(when, overlap, "once per step, and kept until the optimizer")];
        }
        // FSDP recomputes within the unit while the backward pass has it gathered; ZeRO-3 releases it in between.
        let again = training.data.style == DataStyle::Zero3 && training.tensor.recompute == Recompute::Full;
        let in_pass = |pass, what: &str| {
            let op = self.gather(self.when(pass), self.overlap_of_gather(pass), what);
            self.part.in_pass(self.step, pass, op)
        };
        if !self.step.reshards_after_forward() || self.stays_gathered() {
            return vec![in_pass(Pass::Forward, "for the forward pass, and kept until the backward pass")];
        }
        let mut ops = vec![in_pass(Pass::Forward, "for the forward pass")];
        if self.unit.what == Wrapped::Input && training.data.trained.is_part() {
            return ops;
        }
        if again && self.is_layer() {
            ops.push(in_pass(Pass::Recompute, "for recomputation (arXiv 2104.07857 section 4.1)"));
        }
        ops.push(in_pass(Pass::Backward, "again for the backward pass"));
        ops
    }

    fn is_layer(&self) -> bool {
        matches!(self.unit.what, Wrapped::Layers { .. })
    }

    /// PyTorch's root, and torchtitan's last unit, whose backward pass follows at once.
    fn stays_gathered(&self) -> bool {
        match self.unit.what {
            Wrapped::Root => self.step.training.data.units.rule == UnitRule::RootKept,
            Wrapped::Output => true,
            Wrapped::Layers { .. } | Wrapped::Input | Wrapped::Kept { .. } => false,
        }
    }

    fn gather(&self, when: When, overlap: Overlap, what: &str) -> Op {
        let element = self.unit.element;
        let bytes = element.size() * self.unit.padded;
        let why = self.why("Ep", element.size(), bytes, &format!("gathered {what}"));
        let op = Op::new(Style::Data, self.part.axis, Collective::AllGather, element, bytes);
        Op { when, overlap, why, ..op }
    }

    /// Gradients to the rank that has the shard.
    fn scatter_gradients(&self) -> Op {
        let data = &self.step.training.data;
        let element = data.gradient_element_type;
        let bytes = element.size() * self.unit.trained;
        let at_input = matches!(self.unit.what, Wrapped::Root | Wrapped::Input | Wrapped::Kept { end: End::Input });
        let first_of_model = at_input && self.step.stages.has_input(self.stage);
        let exposed = first_of_model || !data.overlap_gradients;
        let ((when, overlap), what) = match self.step.adds_up_whole_gradients() {
            false => (
                (self.when_in_backward_end(), if exposed { Overlap::Exposed } else { Overlap::Backward }),
                "gradients in every micro-batch",
            ),
            true => (self.in_last_backward(exposed), "gradients of all micro-batches"),
        };
        let why = self.why("Eg", element.size(), bytes, what);
        let op = Op::new(Style::Data, self.part.axis, Collective::ReduceScatter, element, bytes);
        Op { when, overlap, why, ..op }
    }

    /// Once per step.
    fn in_last_backward(&self, exposed: bool) -> (When, Overlap) {
        let (moment, overlap) = match exposed {
            true => (Moment::AfterBackward, Overlap::Exposed),
            false => (Moment::LastBackward, Overlap::LastBackward),
        };
        (When::Step { moment, calls: self.calls(Pass::Backward) }, overlap)
    }

    /// HSDP: the shard's gradients over the groups with the same shard.
    fn reduce_replicas(&self) -> Option<Op> {
        let data = &self.step.training.data;
        let element = data.gradient_element_type;
        let bytes = element.size() * (self.unit.trained / self.part.ranks);
        let exposed = !self.is_layer() || !data.overlap_gradients;
        let what = format!("the shard of 1/{}, over {} groups of shards", self.part.ranks, self.part.replicas);
        let collective = match data.outer_sharding {
            OuterSharding::NoShard => Collective::AllReduce,
            OuterSharding::Optimizer => Collective::ReduceScatter,
        };
        let (when, overlap) = match data.replica_reduction {
            ReplicaReduction::MicroBatch if !self.step.adds_up_whole_gradients() => {
                (self.when_in_backward_end(), if exposed { Overlap::Exposed } else { Overlap::Backward })
            }
            _ => self.in_last_backward(exposed),
        };
        let op = Op {
            when,
            overlap,
            why: self.why("Eg", element.size(), bytes, &what),
            ..Op::new(Style::Data, Axis::DpReplicate, collective, element, bytes)
        };
        (self.part.replicas > 1).then_some(op)
    }

    /// Shards that the groups with equal ones updated in parts: for each gather of the first micro-batch (megatron_fsdp.py
    /// `outer_fsdp_group_param_gather`).
    fn gather_replicas(&self) -> Option<Op> {
        let (data, element) = (&self.step.training.data, self.unit.element);
        let bytes = element.size() * (self.unit.padded / self.part.ranks);
        let (passes, what) = if self.is_layer() { (2, "forward and backward") } else { (1, "forward") };
        let exposed = matches!(self.unit.what, Wrapped::Kept { end: End::Input }) || !data.units.prefetch;
        let what = format!("the updated shard of 1/{}, in the first {what} pass", self.part.ranks);
        let op = Op {
            when: When::Step { moment: Moment::FirstForward, calls: passes * self.calls(Pass::Forward) },
            overlap: if exposed { Overlap::Exposed } else { Overlap::FirstForward },
            why: self.why("Ep", element.size(), bytes, &what),
            ..Op::new(Style::Data, Axis::DpReplicate, Collective::AllGather, element, bytes)
        };
        (data.outer_sharding == OuterSharding::Optimizer).then_some(op)
    }

    /// The units of this kind that a pass goes through.
    fn calls(&self, pass: Pass) -> u64 {
        match self.unit.what {
            Wrapped::Layers { kind } => self.step.layers_of_kind(self.stage, pass, kind),
            Wrapped::Root | Wrapped::Input | Wrapped::Output | Wrapped::Kept { .. } => 1,
        }
    }

    /// Before its use in a pass. The root is used first if the stage has that end of the model.
    fn when(&self, pass: Pass) -> When {
        let (input, output) = (self.step.stages.has_input(self.stage), self.step.stages.has_output(self.stage));
        let end = match (self.unit.what, pass) {
            (Wrapped::Input, _) => End::Input,
            (Wrapped::Output, _) => End::Output,
            (Wrapped::Kept { end }, _) => end,
            (_, Pass::Forward | Pass::Recompute) if input => End::Input,
            (_, Pass::Backward | Pass::WeightGradient) if !output => End::Input,
            _ => End::Output,
        };
        match self.unit.what {
            Wrapped::Layers { kind } => self.step.in_layers(self.stage, pass, kind, 1),
            _ => When::MicroBatch { pass, end, calls: 1, one_in: 1 },
        }
    }

    /// After its last use in the backward pass.
    fn when_in_backward_end(&self) -> When {
        let at_output = matches!(self.unit.what, Wrapped::Output | Wrapped::Kept { end: End::Output });
        let at_input = self.step.stages.has_input(self.stage) && !at_output;
        let end = if at_input { End::Input } else { End::Output };
        match self.unit.what {
            Wrapped::Layers { .. } => self.when(Pass::Backward),
            _ => When::MicroBatch { pass: Pass::Backward, end, calls: 1, one_in: 1 },
        }
    }

    /// Units are prefetched; nothing overlaps with the first use of the root of the model.
    fn overlap_of_gather(&self, pass: Pass) -> Overlap {
        let stages = &self.step.stages;
        let first = match pass {
            Pass::Forward | Pass::Recompute => stages.has_input(self.stage),
            Pass::Backward | Pass::WeightGradient => stages.has_output(self.stage),
        };
        let waits = !self.is_layer() && first || !self.step.training.data.units.prefetch;
        if waits { Overlap::Exposed } else { Overlap::Prefetch }
    }

    fn why(&self, symbol: &str, element_bytes: u64, bytes: u64, what: &str) -> String {
        let unit = match self.unit.what {
            Wrapped::Layers { .. } => "unit of each layer".to_owned(),
            Wrapped::Root => "root unit".to_owned(),
            Wrapped::Input => "unit of the embedding".to_owned(),
            Wrapped::Output => "unit of last norm and head".to_owned(),
            Wrapped::Kept { .. } => "a bucket of parameters outside layers".to_owned(),
        };
        let data = &self.step.training.data;
        let source = match data.style {
            _ if data.units.rule == UnitRule::Buckets => {
                "arXiv 2304.11277 section 3.2.1; Megatron-LM core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py"
            }
            DataStyle::Zero3 => "arXiv 1910.02054 section 7.2; DeepSpeed runtime/zero/stage3.py",
            DataStyle::Hsdp => "arXiv 2304.11277 section 3.2.2",
            _ => "arXiv 2304.11277 section 3.2.1",
        };
        let Unit { parameters, padded, trained, .. } = self.unit;
        let padded = if symbol == "Eg" { trained } else { padded };
        let rounded = if padded > parameters { format!(" of {parameters} parameters") } else { String::new() };
        let (per, shards) = match element_bytes * padded / bytes {
            1 => (String::new(), String::new()),
            shards => ("/shards".to_owned(), format!("/{shards}")),
        };
        format!(
            "{symbol}*P_unit{per} = {element_bytes} B*{padded}{shards} = {bytes} B{rounded}: {what}; {unit}, {} ({}; {source})",
            self.part.name(),
            self.step.rank_parameters_formula(self.stage),
        )
    }
}

// The parameters gathered in one call if they are sharded: a unit of FSDP, ZeRO-3 or HSDP.

/// Parameters that are gathered in one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    pub what: Wrapped,
    pub parameters: u64,
    /// Rounded up so that shards are equal.
    pub padded: u64,
    /// Those of them that have gradients, or the adapters of the unit.
    pub trained: u64,
    /// Type in which they are gathered.
    pub element: ElementType,
}

/// Content of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrapped {
    /// Equal layers of a stage.
    Layers { kind: LayerKind },
    /// Everything else of a stage.
    Root,
    /// Only the embedding.
    Input,
    /// Only last norm and head.
    Output,
    /// A bucket of everything else, which stays gathered until the optimizer. `end` is the position of its last gradient.
    Kept { end: End },
}

/// The units of a part on a stage.
pub(super) fn units(step: &TrainingStep, stage: u32, part: &Part) -> Vec<Unit> {
    let of_part =
        |on_rank: RankParameters| u64::from(part.dense) * on_rank.dense + u64::from(part.experts) * on_rank.experts;
    let element = step.training.data.parameter_element_type;
    let evenly = |what, parameters: u64| {
        let padded = parameters.next_multiple_of(part.ranks);
        let trained = if step.training.data.trained.is_part() { 0 } else { padded };
        Unit { what, parameters, padded, trained, element }
    };
    let rule = step.training.data.units.rule;
    let layers = LayerKind::of_equal_layers(step.model).iter().filter_map(|kind| -> Option<Vec<Unit>> {
        let of_kind = step.stages.layers_passed(stage).filter(|layer| step.is_of_kind(*layer, *kind));
        let first = of_kind.min_by_key(|layer| (!step.trains(*layer), *layer))?;
        let what = Wrapped::Layers { kind: *kind };
        Some(match rule {
            UnitRule::Buckets => of_layer_in_buffers(step, what, of_layer_alone(step, first, Order::Megatron), part),
            _ => {
                let unit = evenly(what, of_part(step.parameters_of_layer(first)));
                let trained = match step.training.data.trained.is_part() && step.trains(first) {
                    true => or_adapters(step, of_layer_alone(step, first, Order::PyTorch)),
                    false => return Some(vec![unit]),
                };
                vec![Unit { trained: of_part(parameters_of(trained)).next_multiple_of(part.ranks), ..unit }]
            }
        })
    });
    let ends = match rule {
        UnitRule::Layers | UnitRule::RootKept | UnitRule::Modules => {
            vec![evenly(Wrapped::Root, of_part(step.rank_end_parameters(stage)))]
        }
        UnitRule::EndsApart => {
            let input = of_part(step.input_parameters(stage));
            let output = of_part(step.rank_end_parameters(stage)).saturating_sub(input);
            vec![evenly(Wrapped::Input, input), evenly(Wrapped::Output, output)]
        }
        UnitRule::Buckets => kept(step, stage, part),
    };
    layers.flatten().chain(ends).filter(|unit| unit.parameters > 0).collect()
}

/// The tensors of a layer in Megatron-FSDP's layout: 8-bit ones have a separate buffer.
fn of_layer_in_buffers(step: &TrainingStep, what: Wrapped, tensors: Vec<Tensor>, part: &Part) -> Vec<Unit> {
    let element = step.training.data.parameter_element_type;
    if !element.moves_only() {
        return vec![in_buffer(what, tensors, part, element)];
    }
    let (narrow, wide) = tensors.into_iter().partition(is_in_eight_bits);
    vec![in_buffer(what, narrow, part, element), in_buffer(what, wide, part, wide_element(step))]
}

/// The type of parameters that are not in 8 bits.
pub(super) fn wide_element(step: &TrainingStep) -> ElementType {
    let element = step.training.data.parameter_element_type;
    if element.moves_only() { step.training.activation_element_type } else { element }
}

/// The tensors of a part in one buffer.
fn in_buffer(what: Wrapped, mut tensors: Vec<Tensor>, part: &Part, element: ElementType) -> Unit {
    tensors.retain(|tensor| if tensor.is_expert() { part.experts } else { part.dense });
    let parameters = tensors.iter().map(|tensor| tensor.elements).sum();
    let padded = buckets::buffer(&tensors, part.owners);
    Unit { what, parameters, padded, trained: padded, element }
}

/// Parameters outside layers, cut after the tensor with which a bucket reaches `bucket_parameters`; an embedding shared by two stages has a
/// separate bucket. Every model chunk has separate buckets (Megatron-LM training/training.py, `resolve_ddp_bucket_size`: no limit without
/// `--overlap-grad-reduce`).
fn kept(step: &TrainingStep, stage: u32, part: &Part) -> Vec<Unit> {
    let limit = step.training.data.bucket_parameters.unwrap_or(u64::MAX);
    let [before, behind] = of_ends(step, stage);
    let of = |tensors: Vec<Tensor>, end: End| tensors.into_iter().map(move |tensor| (tensor, end)).collect::<Vec<_>>();
    let (before, behind) = (of(before, End::Input), of(behind, End::Output));
    let chunks = match step.stages.chunks() {
        1 => vec![[before, behind].concat()],
        _ => vec![before, behind],
    };
    let bucket = |tensors: Vec<(Tensor, End)>| {
        let end = tensors.first()?.1;
        let tensors = tensors.into_iter().map(|(tensor, _)| tensor).collect();
        Some(in_buffer(Wrapped::Kept { end }, tensors, part, wide_element(step)))
    };
    let mut units = Vec::new();
    for chunk in chunks {
        let (mut open, mut filled): (Vec<(Tensor, End)>, u64) = (Vec::new(), 0);
        for (tensor, end) in chunk {
            if tensor.is_shared() {
                units.extend(bucket(std::mem::take(&mut open)));
                units.extend(bucket(vec![(tensor, end)]));
                filled = 0;
                continue;
            }
            open.push((tensor, end));
            filled += tensor.elements;
            if filled >= limit {
                units.extend(bucket(std::mem::take(&mut open)));
                filled = 0;
            }
        }
        units.extend(bucket(open));
    }
    units
}

// ZeRO++ (arXiv 2306.10209): parameters gathered in 8 bits (qwZ, section 3.1), and gradients of matrices in 4 bits, first among the ranks
// of a node and then from node to node (qgZ, section 3.3).
//
// DeepSpeed's kernels give each block of numbers a 32-bit scale and no offset (csrc/quantization/pt_binding.cpp). The blocks are defined in
// runtime/zero/partition_parameters.py `CUDAQuantizer.quantize` and runtime/comm/coalesced_collectives.py `all_to_all_quant_reduce`.

/// DeepSpeed's target size of a block, in elements.
const TARGET_BLOCK: u64 = 8000;

/// A block is a multiple of this many elements.
const BLOCK_MULTIPLE: u64 = 8;

/// The two calls of a gather of `elements` parameters among `ranks`: 8-bit numbers, and the scales of their blocks.
///
/// # Errors
/// If no blocks divide a share, with valid values.
pub(super) fn gathers(op: &Op, elements: u64, ranks: u64) -> Result<[Op; 2], String> {
    let share = elements / ranks;
    let blocks = blocks(share).ok_or_else(|| {
        format!(
            "quantised_parameters: {share} parameters on each of {ranks} ranks are not a multiple of {BLOCK_MULTIPLE}, as DeepSpeed's blocks require (runtime/zero/partition_parameters.py CUDAQuantizer.quantize); accepted: other ranks, or persistent_parameters above the \
             size of that tensor"
        )
    })?;
    let scales = ElementType::Float32;
    let bytes = scales.size() * blocks * ranks;
    let of_blocks = format!(
        "4*blocks = {} B*{blocks}*{ranks} = {bytes} B: a scale for each {} of {elements} quantised parameters (DeepSpeed \
         runtime/zero/partition_parameters.py CUDAQuantizer.quantize; arXiv 2306.10209 section 3.1)",
        scales.size(),
        share / blocks,
    );
    let scales = Op::new(op.style, op.axis, op.collective, scales, bytes);
    Ok([op.clone(), Op { when: op.when, overlap: op.overlap, why: of_blocks, ..scales }])
}

/// Blocks of a rank's share: the minimum number in which none exceeds the target, each a multiple of 8 elements. `None` if the share is not
/// a multiple of 8.
fn blocks(share: u64) -> Option<u64> {
    if share == 0 || !share.is_multiple_of(BLOCK_MULTIPLE) {
        return None;
    }
    let eighths = share / BLOCK_MULTIPLE;
    smallest_divisor(eighths, share.div_ceil(TARGET_BLOCK))
}

/// The smallest divisor of a number that is not below a limit.
fn smallest_divisor(number: u64, limit: u64) -> Option<u64> {
    let small = (1..=number.isqrt()).filter(|divisor| number.is_multiple_of(*divisor));
    small.flat_map(|divisor| [divisor, number / divisor]).filter(|divisor| *divisor >= limit).min()
}

/// A call that reduces the gradient of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reduction {
    pub axis: Axis,
    pub collective: Collective,
    pub element: ElementType,
    pub bytes: u64,
    /// Formula with its numbers.
    pub formula: String,
    pub what: &'static str,
}

/// The ranks that reduce gradients: all, those of a node, and the type if they are not quantised.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReducingRanks {
    pub axis: Axis,
    pub ranks: u64,
    pub node: u64,
    pub element: ElementType,
}

/// The calls for the gradient of a tensor. Vectors, and tensors that two steps of all_to_all do not divide, are reduced unquantised, each
/// alone.
///
/// # Errors
/// If the scales of a matrix do not divide, with the reason: DeepSpeed fails in the second call.
pub(super) fn reductions(tensor: &Tensor, among: ReducingRanks) -> Result<Vec<Reduction>, String> {
    let ReducingRanks { ranks, node, .. } = among;
    // A scale for each index of the longer of the first two dimensions.
    let (longer, shape) = match tensor.shape {
        Shape::Vector => return Ok(vec![alone(tensor, among)]),
        _ if !tensor.elements.is_multiple_of(2 * ranks) => return Ok(vec![alone(tensor, among)]),
        Shape::Matrix { row } => {
            let rows = tensor.elements / row;
            (rows.max(row), format!("a matrix of {rows} x {row}"))
        }
        Shape::Stack { matrices, rows } => (matrices.max(rows), format!("{matrices} matrices of {rows} rows in one")),
    };
    let (nodes, blocks) = (ranks / node, longer.max(ranks));
    if !blocks.is_multiple_of(ranks) {
        return Err(format!(
            "quantised_gradients = {node}: the {blocks} scales of {shape} do not divide among {node} ranks of a node and then {nodes} \
             nodes (DeepSpeed runtime/comm/coalesced_collectives.py all_to_all_quant_reduce); accepted: ranks that divide {blocks}",
        ));
    }
    let call = |axis, element: ElementType, count: u64, formula: String, what| Reduction {
        axis,
        collective: Collective::AllToAll,
        element,
        bytes: element.size() * count,
        formula: format!("{formula} = {} B", element.size() * count),
        what,
    };
    let (elements, byte, float) = (tensor.elements, ElementType::Int8, ElementType::Float32);
    Ok(vec![
        call(
            Axis::DpShard,
            byte,
            elements / 2,
            format!("elements/2 = {elements}/2"),
            "4 bits of each number of a gradient, among the ranks of a node",
        ),
        call(Axis::DpShard, float, blocks, format!("4*blocks = 4 B*{blocks}"), "a scale for each block of it"),
        call(
            Axis::DpReplicate,
            byte,
            elements / 2 / node,
            format!("elements/2/{node} = {elements}/2/{node}"),
            "4 bits of each number of the node's sum, from node to node",
        ),
        call(
            Axis::DpReplicate,
            float,
            blocks / node,
            format!("4*blocks/{node} = 4 B*{blocks}/{node}"),
            "a scale for each block of the sum",
        ),
    ])
}

/// The one call for an unquantised gradient.
fn alone(tensor: &Tensor, among: ReducingRanks) -> Reduction {
    let ReducingRanks { axis, ranks, element, .. } = among;
    let elements = tensor.elements.next_multiple_of(ranks);
    let bytes = element.size() * elements;
    Reduction {
        axis,
        collective: Collective::ReduceScatter,
        element,
        bytes,
        formula: format!("Eg*elements = {} B*{elements} = {bytes} B", element.size()),
        what: "the gradient of a vector, or of a tensor that two steps do not divide, alone",
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn blocks_are_as_deepspeed_finds_them() {
        // By DeepSpeed's own loop: from ceil(n / 8000) up to the first that divides an eighth of n.
        for (share, expected) in [
            (8, Some(1)),
            (8000, Some(1)),
            (8008, Some(7)),                // 1001 = 7 * 11 * 13 eighths; 2 and more are asked for
            (16_777_216, Some(4096)),       // 2098 and more of 2^21
            (14336 * 4096 / 8, Some(1024)), // 918 and more of 7 * 2^17
            (12, None),
            (0, None),
        ] {
            assert_eq!(blocks(share), expected, "{share}");
        }
        // A prime number of eighths leaves one block for each.
        assert_eq!(blocks(8 * 1009), Some(1009));
    }

    #[test]
    fn a_matrix_goes_in_four_calls_and_anything_else_in_one() {
        let among = ReducingRanks { axis: Axis::Dp, ranks: 16, node: 8, element: ElementType::Bfloat16 };
        let short = |tensor: &Tensor| -> Vec<(Axis, Collective, ElementType, u64)> {
            let calls = reductions(tensor, among).unwrap();
            calls.into_iter().map(|call| (call.axis, call.collective, call.element, call.bytes)).collect()
        };
        use Collective::{AllToAll, ReduceScatter};
        // 14336 x 4096: half a byte for each of 58,720,256 numbers, 14336 scales; of both an eighth between nodes.
        let wide = [
            (Axis::DpShard, AllToAll, ElementType::Int8, 29_360_128),
            (Axis::DpShard, AllToAll, ElementType::Float32, 57_344),
            (Axis::DpReplicate, AllToAll, ElementType::Int8, 3_670_016),
            (Axis::DpReplicate, AllToAll, ElementType::Float32, 7_168),
        ];
        assert_eq!(short(&Tensor::matrix(14336 * 4096, 4096)), wide);
        assert_eq!(short(&Tensor::matrix(14336 * 4096, 14336)), wide, "the longer side has the blocks");
        assert_eq!(short(&Tensor::vector(4096)), [(Axis::Dp, ReduceScatter, ElementType::Bfloat16, 8192)]);
        // 8 experts of 64 x 48 in one: 8 x 64 x 48 numbers, and as many scales as an expert has rows.
        let experts = short(&Tensor::matrix(64 * 48, 48).stacked(8));
        assert_eq!(
            experts[..2],
            [
                (Axis::DpShard, AllToAll, ElementType::Int8, 8 * 64 * 48 / 2),
                (Axis::DpShard, AllToAll, ElementType::Float32, 4 * 64),
            ]
        );
        // Filters of 4 numbers for each of 160 channels: 160 scales.
        let filters = short(&Tensor::filters(160 * 4, 4));
        assert_eq!((filters[0].3, filters[1].3), (320, 640));
        let odd = Tensor::matrix(3 * 8, 8);
        assert_eq!(short(&odd), [(Axis::Dp, ReduceScatter, ElementType::Bfloat16, 64)], "24 numbers, padded to 32");
        let problem = reductions(&Tensor::matrix(40 * 40, 40), among).unwrap_err();
        assert!(problem.contains("the 40 scales of a matrix of 40 x 40 do not divide among 8 ranks"), "{problem}");
    }
}
