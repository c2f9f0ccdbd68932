//! DDP, ZeRO-1 and ZeRO-2: gradients in buckets, parameters whole on every rank during use.
//!
//! Sources: arXiv 2006.15704 (DDP), arXiv 1910.02054 (ZeRO), Megatron-LM core/distributed/param_and_grad_buffer.py,
//! DeepSpeed runtime/zero/stage_1_and_2.py.

use super::buckets::{Buckets, Run, Share};
use super::fsdp::wide_element;
use super::tensors::{Division, Order, Part, Shape, Tensor, of_part, parts};
use super::{buckets, tensors};
use crate::config::step::{
    BroadcastBuffers, BucketRule, DataStyle, GradientReduction, MuonTensorMode, ParameterReturn,
};
use crate::layout::Axis;
use crate::workload::op::{End, Moment, Overlap, Pass, When};
use crate::workload::step::TrainingStep;
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::geometry::Splits;
use std::collections::BTreeMap;

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Vec<Op> {
    let mut ops: Vec<Op> = of_buffers(step).into_iter().collect();
    for part in parts(step) {
        for buckets in buckets::of(step, stage, &part) {
            ops.extend(Bucketed { step, stage, part, buckets: &buckets }.ops());
        }
        if step.training.data.style == DataStyle::Zero1 {
            ops.extend(broadcasts_ops(step, stage, &part));
            ops.extend(op(step, stage, &part));
        }
    }
    ops
}

/// Content of a bucket: the symbol of its element size in formulas, and the type.
#[derive(Clone, Copy)]
struct Carried {
    symbol: &'static str,
    element: ElementType,
}

struct Bucketed<'a> {
    step: &'a TrainingStep<'a>,
    stage: u32,
    part: Part,
    buckets: &'a Buckets,
}

impl Bucketed<'_> {
    fn ops(&self) -> Vec<Op> {
        let data = &self.step.training.data;
        let separate = data.bucket_rule == BucketRule::DeepSpeed;
        let mut ops = Vec::new();
        for run in &self.buckets.runs {
            match data.style {
                // All gradients to all replicas.
                DataStyle::Ddp => ops.push(self.once(Collective::AllReduce, run, "arXiv 2006.15704 section 3.2")),
                DataStyle::Zero2 => ops.push(self.reduce_every_micro_batch(run)),
                _ => {
                    ops.push(self.reduce_once(run));
                    ops.extend(self.reduce_replicas(run));
                }
            }
            if !separate {
                ops.extend(self.gather(run));
            }
        }
        if separate {
            ops.extend(self.buckets.gathered.iter().filter_map(|run| self.gather(run)));
        }
        ops
    }

    /// ZeRO-1: each rank receives the gradients of its optimizer state.
    fn reduce_once(&self, run: &Run) -> Op {
        let source = match self.reduction() {
            Collective::AllReduce => {
                "all to every rank, which keeps its part, DeepSpeed runtime/zero/stage_1_and_2.py average_tensor; arXiv 1910.02054 section 5"
            }
            _ => "arXiv 1910.02054 section 5; Megatron-LM docs/source/api-guide/dist_optimizer.md",
        };
        self.once(self.reduction(), run, source)
    }

    /// Parameters that the optimizer updated in parts.
    fn gather(&self, run: &Run) -> Option<Op> {
        match self.step.training.data.style {
            DataStyle::Ddp => None,
            DataStyle::Zero2 => Some(self.gather_at_end(run)),
            _ => match self.step.training.data.parameter_return {
                ParameterReturn::AllGather | ParameterReturn::EachOptimizer => Some(self.gather_for_first_forward(run)),
                ParameterReturn::Broadcast | ParameterReturn::BroadcastShares | ParameterReturn::GatherShares => None,
            },
        }
    }

    /// Optimizer instances: the shards of all instances are summed (`num_distributed_optimizer_instances`).
    fn reduce_replicas(&self, run: &Run) -> Option<Op> {
        let shard = Run { elements: run.elements / self.part.ranks, ..*run };
        let source = "the shard, over the instances of the optimizer; Megatron-LM num_distributed_optimizer_instances";
        let op = Op { axis: Axis::DpReplicate, ..self.once(Collective::AllReduce, &shard, source) };
        (self.part.replicas > 1).then_some(op)
    }

    /// Gradients once per step: after the last backward pass, except the bucket that closes at its end.
    fn once(&self, collective: Collective, run: &Run, source: &str) -> Op {
        let (moment, overlap) = match run.last || !self.step.training.data.overlap_gradients {
            true => (Moment::AfterBackward, Overlap::Exposed),
            false => (Moment::LastBackward, Overlap::LastBackward),
        };
        self.op(collective, self.gradients(), run, When::Step { moment, calls: run.buckets }, overlap, source)
    }

    /// ZeRO-1: updated parameters, after the next step's first forward pass, except the bucket that it begins with.
    fn gather_for_first_forward(&self, run: &Run) -> Op {
        let (moment, overlap) = match (self.step.training.data.overlap_gradients, run.last) {
            (false, _) => (Moment::Optimizer, Overlap::Exposed),
            (true, true) => (Moment::FirstForward, Overlap::Exposed),
            (true, false) => (Moment::FirstForward, Overlap::FirstForward),
        };
        let source = match self.optimizers() {
            1 => "arXiv 1910.02054 section 5; Megatron-LM overlap_param_gather",
            _ => {
                "by each of two optimizers, that of dense parameters and that of experts; Megatron-LM core/optimizer/optimizer.py \
                 ChainedOptimizer, distrib_optimizer.py step_with_ready_grads"
            }
        };
        let when = When::Step { moment, calls: run.buckets * self.optimizers() };
        self.op(Collective::AllGather, self.parameters(), run, when, overlap, source)
    }

    /// How often parameters are gathered: without overlap each distributed optimizer of Megatron-LM gathers those of all, but together with
    /// a layer-wise one there is only one (core/optimizer/__init__.py _get_megatron_emerging_optimizer).
    fn optimizers(&self) -> u64 {
        let data = &self.step.training.data;
        let each = data.parameter_return == ParameterReturn::EachOptimizer && !data.overlap_gradients;
        let held = self.step.rank_parameters(self.stage);
        let apart = parts(self.step)
            .into_iter()
            .filter(|part| (part.dense && held.dense > 0) || (part.experts && held.experts > 0));
        if each && !matches!(self.buckets.share, Share::Whole | Share::Others) { apart.count() as u64 } else { 1 }
    }

    /// ZeRO-2 stores no whole gradients between micro-batches, so each is reduced at once.
    fn reduce_every_micro_batch(&self, run: &Run) -> Op {
        let exposed = run.last || !self.step.training.data.overlap_gradients;
        let overlap = if exposed { Overlap::Exposed } else { Overlap::Backward };
        let when = When::MicroBatch { pass: Pass::Backward, end: End::Whole, calls: run.buckets, one_in: 1 };
        let source = "in every micro-batch, DeepSpeed runtime/zero/stage_1_and_2.py partition_gradients";
        self.op(self.reduction(), self.gradients(), run, when, overlap, source)
    }

    /// The call that brings each rank the gradients of its part.
    fn reduction(&self) -> Collective {
        match self.step.training.data.gradient_reduction {
            GradientReduction::ReduceScatter => Collective::ReduceScatter,
            GradientReduction::AllReduce => Collective::AllReduce,
        }
    }

    /// ZeRO-2: updated parameters, after the optimizer.
    fn gather_at_end(&self, run: &Run) -> Op {
        let when = When::Step { moment: Moment::Optimizer, calls: run.buckets };
        let source = "once per step, DeepSpeed runtime/zero/stage_1_and_2.py step";
        self.op(Collective::AllGather, self.parameters(), run, when, Overlap::Exposed, source)
    }

    fn gradients(&self) -> Carried {
        Carried { symbol: "Eg", element: self.step.training.data.gradient_element_type }
    }

    fn parameters(&self) -> Carried {
        let data = &self.step.training.data;
        let is_wide = matches!(self.buckets.share, Share::Others | Share::Wider);
        let element = if is_wide { wide_element(self.step) } else { data.parameter_element_type };
        Carried { symbol: "Ep", element }
    }

    fn op(
        &self,
        collective: Collective,
        carried: Carried,
        run: &Run,
        when: When,
        overlap: Overlap,
        source: &str,
    ) -> Op {
        let Carried { symbol, element } = carried;
        let bytes = element.size() * run.elements;
        let which = if run.last { "the last bucket".to_owned() } else { format!("{} of the buckets", run.buckets) };
        let why = format!(
            "{symbol}*bucket = {} B*{} = {bytes} B: {which} of {} {}{}; cut: {} ({}; {source})",
            element.size(),
            run.elements,
            self.buckets.parameters,
            self.buckets.share.words(),
            self.part.name(),
            self.buckets.rule,
            self.step.rank_parameters_formula(self.stage),
        );
        Op { when, overlap, why, ..Op::new(Style::Data, self.part.axis, collective, element, bytes) }
    }
}

// PyTorch's broadcasts among replicas: tensors updated by one of them (`ZeroRedundancyOptimizer`), and buffers of the first
// (`DistributedDataParallel`).

/// Updated parameters from the ranks that updated them, if ZeRO-1 does not gather them.
pub(super) fn broadcasts_ops(step: &TrainingStep, stage: u32, part: &Part) -> Vec<Op> {
    let data = &step.training.data;
    let tensors = || of_part(step, stage, part, Order::PyTorch).into_iter().map(|tensor| tensor.elements).collect();
    let (sent, what) = match data.parameter_return {
        ParameterReturn::AllGather | ParameterReturn::EachOptimizer | ParameterReturn::GatherShares => {
            return Vec::new();
        }
        ParameterReturn::Broadcast => (tensors(), "a tensor"),
        ParameterReturn::BroadcastShares => (shares(tensors(), part.ranks), "all tensors of a rank"),
    };
    let mut equal: BTreeMap<u64, u64> = BTreeMap::new();
    sent.into_iter().filter(|elements| *elements > 0).for_each(|elements| *equal.entry(elements).or_default() += 1);
    let op = |(elements, calls): (u64, u64)| {
        let bytes = data.parameter_element_type.size() * elements;
        Op {
            when: When::Step { moment: Moment::Optimizer, calls },
            why: format!(
                "Ep*elements = {} B*{elements} = {bytes} B: {what}, from the rank that updated it, {calls} times in all, shown as if \
                 from the first (torch/distributed/optim/zero_redundancy_optimizer.py _sync_params; arXiv 1910.02054 section 5)",
                data.parameter_element_type.size(),
            ),
            ..Op::new(Style::Data, part.axis, Collective::Broadcast, data.parameter_element_type, bytes)
        }
    };
    equal.into_iter().map(op).collect()
}

/// Elements that each rank updates: the largest tensor goes first, to the rank with the least
/// (`ZeroRedundancyOptimizer._partition_parameters`).
fn shares(mut tensors: Vec<u64>, ranks: u64) -> Vec<u64> {
    tensors.sort_by_key(|elements| std::cmp::Reverse(*elements));
    let mut shares = vec![0; ranks as usize];
    for elements in tensors {
        if let Some(least) = shares.iter_mut().min() {
            *least += elements;
        }
    }
    shares
}

/// The buffers of the model, in one call before the first forward pass of a step.
pub(super) fn of_buffers(step: &TrainingStep) -> Option<Op> {
    let model = step.model;
    if step.training.data.broadcast_buffers == BroadcastBuffers::None || !model.family.rotary_positions {
        return None;
    }
    let width =
        model.attention.latent.as_ref().map_or(model.attention.head_dimension, |latent| latent.rotary_dimension);
    let element = ElementType::Float32;
    let elements = 2 * (width / 2);
    let bytes = element.size() * elements;
    let axis = if step.layout.degrees.cp > 1 { Axis::DpCp } else { Axis::Dp };
    Some(Op {
        when: When::Step { moment: Moment::FirstForward, calls: 1 },
        why: format!(
            "2*4 B*hd/2 = 2*4 B*{width}/2 = {bytes} B: current and original frequencies of rotary positions, from the first replica (torch/nn/parallel/distributed.py _sync_buffers, broadcast_buffers; transformers/modeling_rope_utils.py)"
        ),
        ..Op::new(Style::Data, axis, Collective::Broadcast, element, bytes)
    })
}

// Gathers of a layer-wise optimizer: each rank updates whole tensors, as Muon must, and all of them go to every rank in one uneven call.

/// Updated parameters of all ranks, where ZeRO-1 shards by tensors.
pub(super) fn op(step: &TrainingStep, stage: u32, part: &Part) -> Option<Op> {
    let data = &step.training.data;
    if data.parameter_return != ParameterReturn::GatherShares {
        return None;
    }
    let shares = elements(&dealt_out(of_part(step, stage, part, Order::Megatron), part.ranks));
    let elements: u64 = shares.iter().sum();
    let element = data.parameter_element_type;
    let bytes = element.size() * elements;
    let (least, most) = (shares.iter().min()?, shares.iter().max()?);
    let why = format!(
        "Ep*P = {} B*{elements} = {bytes} B: all tensors of {}, from the ranks that updated them, {least} to {most} elements each: \
         sorted by size and dealt in alternating direction (Megatron-LM core/optimizer/layer_wise_optimizer.py shard_params, \
         allgather_params; arXiv 1910.02054 section 5)",
        element.size(),
        part.name(),
    );
    let even = least == most;
    let (collective, splits) = match even {
        true => (Collective::AllGather, Splits::Equal),
        false => (Collective::AllGatherV, Splits::Given(shares)),
    };
    let when = When::Step { moment: Moment::Optimizer, calls: 1 };
    (elements > 0).then(|| Op { when, splits, why, ..Op::new(Style::Data, part.axis, collective, element, bytes) })
}

/// The tensors that the first rank updates.
pub(super) fn of_first_rank(step: &TrainingStep, stage: u32, part: &Part) -> Vec<Tensor> {
    dealt_out(of_part(step, stage, part, Order::Megatron), part.ranks).swap_remove(0)
}

/// The tensors that each rank updates: the smallest goes to the first rank, and the order reverses at the last one.
fn dealt_out(mut tensors: Vec<Tensor>, ranks: u64) -> Vec<Vec<Tensor>> {
    tensors.sort_by_key(|tensor| tensor.elements);
    let mut shares = vec![Vec::new(); ranks as usize];
    let turning = (0..shares.len()).chain((0..shares.len()).rev()).cycle();
    for (tensor, rank) in tensors.into_iter().zip(turning) {
        shares[rank].push(tensor);
    }
    shares
}

fn elements(shares: &[Vec<Tensor>]) -> Vec<u64> {
    shares.iter().map(|share| share.iter().map(|tensor| tensor.elements).sum()).collect()
}

// Muon's messages if tensor parallelism divides the matrices that it orthogonalises: it needs each of them whole, or the products of its
// parts.
//
// Megatron-LM core/optimizer/emerging_optimizers.py TensorParallelMuon; NVIDIA Emerging-Optimizers
// orthogonalized_optimizers/muon_utils.py newton_schulz_tp.

/// Steps of the Newton-Schulz iteration (`muon_num_ns_steps` of core/optimizer/optimizer_config.py).
const ITERATIONS: u64 = 5;

/// Type of gradients, norms and gathers.
const GRADIENT: ElementType = ElementType::Float32;

/// The products of the iteration (`muon_fp32_matmul_prec = "medium"`).
const PRODUCT: ElementType = ElementType::Bfloat16;

/// The calls of the first rank of each group that updates the same part of the parameters.
pub(super) fn orthogonalised_ops(step: &TrainingStep, stage: u32, part: &Part) -> Vec<Op> {
    let mode = step.training.tensor.muon_tp_mode;
    if mode == MuonTensorMode::Blockwise {
        return Vec::new();
    }
    let mut calls: BTreeMap<Call, u64> = BTreeMap::new();
    for tensor in updated(step, stage, part) {
        let axis = if tensor.is_expert() { Axis::Etp } else { Axis::Tp };
        let ranks = u64::from(step.layout.group_size(axis));
        for matrix in matrices(step, &tensor).into_iter().filter(|_| ranks > 1) {
            for (of, times) in matrix.calls(mode, ranks) {
                *calls.entry(Call { axis, of }).or_default() += times;
            }
        }
    }
    calls.into_iter().map(|(call, times)| call.op(times)).collect()
}

/// The tensors that the first rank updates by Muon.
fn updated(step: &TrainingStep, stage: u32, part: &Part) -> Vec<Tensor> {
    let data = &step.training.data;
    let of_rank = match (data.bucket_rule, data.parameter_return) {
        (BucketRule::LayerWise, _) => {
            let of_bucket = |bucket| buckets::of_first_rank(bucket, part.ranks);
            buckets::of_matrices(step, stage, part).into_iter().flat_map(of_bucket).collect()
        }
        (_, ParameterReturn::GatherShares) => of_first_rank(step, stage, part),
        _ => tensors::of_part(step, stage, part, Order::Megatron),
    };
    of_rank.into_iter().filter(buckets::is_whole).collect()
}

/// A rank's part of a matrix: its elements, and the width that is not divided.
struct DividedMatrix {
    elements: u64,
    width: u64,
}

/// The matrices of a tensor that are orthogonalised separately: queries, their gate, keys and values are (`muon_split_qkv`). Empty for an
/// undivided tensor.
fn matrices(step: &TrainingStep, tensor: &Tensor) -> Vec<DividedMatrix> {
    let (model, t) = (step.model, u64::from(step.layout.degrees.tp));
    let Shape::Matrix { row } = tensor.shape else { return Vec::new() };
    let of = |elements, width| DividedMatrix { elements, width };
    match tensor.division {
        Division::Whole | Division::Duplicated => Vec::new(),
        Division::Rows => vec![of(tensor.elements, row)],
        Division::Columns => vec![of(tensor.elements, tensor.elements / row.max(1))],
        Division::QueriesKeysValues => {
            let keys = model.kv_heads_per_rank(t) * model.attention.head_dimension * row;
            let queries = tensor.elements.saturating_sub(2 * keys);
            let parts = match model.attention.gate {
                true => vec![queries / 2, queries / 2, keys, keys],
                false => vec![queries, keys, keys],
            };
            parts.into_iter().map(|elements| of(elements, row)).collect()
        }
    }
}

impl DividedMatrix {
    /// Its messages with their number.
    fn calls(&self, mode: MuonTensorMode, ranks: u64) -> Vec<(Sent, u64)> {
        match mode {
            MuonTensorMode::Blockwise => Vec::new(),
            MuonTensorMode::Duplicated => vec![(Sent::Whole { elements: self.elements * ranks }, 1)],
            MuonTensorMode::Distributed => vec![(Sent::Norm, 1), (Sent::Product { width: self.width }, ITERATIONS)],
        }
    }
}

/// A call to count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    axis: Axis,
    of: Sent,
}

/// Content of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sent {
    /// The matrix, gathered.
    Whole { elements: u64 },
    /// The square of its norm, summed.
    Norm,
    /// The product of the matrix with itself along the divided dimension.
    Product { width: u64 },
}

impl Call {
    fn op(&self, times: u64) -> Op {
        let (collective, element, elements, formula, what) = match self.of {
            Sent::Whole { elements } => (
                Collective::AllGather,
                GRADIENT,
                elements,
                format!("4*elements = 4 B*{elements}"),
                "the gradient of a matrix, which every rank orthogonalises whole",
            ),
            Sent::Norm => (Collective::AllReduce, GRADIENT, 1, "4 B*1".to_owned(), "the square of a matrix's norm"),
            Sent::Product { width } => (
                Collective::AllReduce,
                PRODUCT,
                width * width,
                format!("2*w*w = 2 B*{width}*{width}"),
                "the product of a matrix with itself, in each of 5 iterations",
            ),
        };
        let bytes = element.size() * elements;
        Op {
            when: When::Step { moment: Moment::Optimizer, calls: times },
            why: format!(
                "{formula} = {bytes} B: {what}; of the matrices that the first rank of the replicas updates (Megatron-LM \
                 core/optimizer/emerging_optimizers.py TensorParallelMuon, muon_tp_mode)"
            ),
            ..Op::new(Style::Tensor, self.axis, collective, element, bytes)
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn tensors_are_dealt_out_there_and_back_as_in_the_example_of_its_source() {
        // 10 tensors of 4 ranks: [[p0, p7, p8], [p1, p6, p9], [p2, p5], [p3, p4]].
        let shares = |tensors: Vec<u64>| elements(&dealt_out(tensors.into_iter().map(Tensor::vector).collect(), 4));
        let tensors: Vec<u64> = (0..10).map(|tensor| 1 << tensor).collect();
        let of = |tensors: &[u64]| tensors.iter().map(|tensor| 1 << tensor).sum::<u64>();
        assert_eq!(shares(tensors), [of(&[0, 7, 8]), of(&[1, 6, 9]), of(&[2, 5]), of(&[3, 4])]);
        assert_eq!(shares(vec![5, 3]), [3, 5, 0, 0], "a rank without tensors takes part");
    }
}
