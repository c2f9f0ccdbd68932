//! What Muon sends where tensor parallelism divides the matrices that it orthogonalises: it needs each of them whole, or the products of its
//! parts.
//!
//! Megatron-LM core/optimizer/emerging_optimizers.py TensorParallelMuon; NVIDIA Emerging-Optimizers
//! orthogonalized_optimizers/muon_utils.py newton_schulz_tp.

use super::parts::Part;
use super::tensor::{Division, Order, Shape, Tensor};
use super::{buckets, gathered_shares, layer_wise, tensors};
use crate::config::step::{BucketRule, MuonTensorMode, ParameterReturn};
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::when::{Moment, Overlap, When};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use std::collections::BTreeMap;

/// Steps of the Newton-Schulz iteration (`muon_num_ns_steps` of core/optimizer/optimizer_config.py).
const ITERATIONS: u64 = 5;
/// Gradients, of which norms and gathers are.
const GRADIENT: ElementType = ElementType::Float32;
/// The products of the iteration (`muon_fp32_matmul_prec = "medium"`).
const PRODUCT: ElementType = ElementType::Bfloat16;

/// The calls of the first rank of each group that updates the same part of the parameters.
pub(super) fn ops(step: &TrainingStep, stage: u32, part: &Part) -> Vec<Op> {
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
            let of_bucket = |bucket| layer_wise::of_first_rank(bucket, part.ranks);
            buckets::of_matrices(step, stage, part).into_iter().flat_map(of_bucket).collect()
        }
        (_, ParameterReturn::GatherShares) => gathered_shares::of_first_rank(step, stage, part),
        _ => tensors::of_part(step, stage, part, Order::Megatron),
    };
    of_rank.into_iter().filter(layer_wise::is_whole).collect()
}

/// A rank's part of a matrix: its elements, and the width that is not divided.
struct DividedMatrix {
    elements: u64,
    width: u64,
}

/// The matrices of a tensor that are orthogonalised apart: queries, their gate, keys and values are (`muon_split_qkv`). None of one that is not divided.
fn matrices(step: &TrainingStep, tensor: &Tensor) -> Vec<DividedMatrix> {
    let (model, t) = (step.model, u64::from(step.layout.degrees.tp));
    let Shape::Matrix { row } = tensor.shape else { return Vec::new() };
    let of = |elements, width| DividedMatrix { elements, width };
    match tensor.division {
        Division::Whole => Vec::new(),
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
    /// What is sent for it, and how often.
    fn calls(&self, mode: MuonTensorMode, ranks: u64) -> Vec<(Sent, u64)> {
        match mode {
            MuonTensorMode::Blockwise => Vec::new(),
            MuonTensorMode::Duplicated => vec![(Sent::Whole { elements: self.elements * ranks }, 1)],
            MuonTensorMode::Distributed => vec![(Sent::Norm, 1), (Sent::Product { width: self.width }, ITERATIONS)],
        }
    }
}

/// A call, to be counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    axis: Axis,
    of: Sent,
}

/// What a call carries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sent {
    /// The matrix, gathered.
    Whole { elements: u64 },
    /// The square of its norm, added up.
    Norm,
    /// The product of the matrix with itself along what is divided.
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
            overlap: Overlap::Exposed,
            why: format!(
                "{formula} = {bytes} B: {what}; of the matrices that the first rank of the replicas updates (Megatron-LM \
                 core/optimizer/emerging_optimizers.py TensorParallelMuon, muon_tp_mode)"
            ),
            ..Op::new(Style::Tensor, self.axis, collective, element, bytes)
        }
    }
}
