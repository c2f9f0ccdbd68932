//! What PyTorch's replicas broadcast: tensors that one of them updated (`ZeroRedundancyOptimizer`), and buffers of the first
//! (`DistributedDataParallel`).

use super::parts::Part;
use super::tensor::Order;
use super::tensors::of_part;
use crate::config::step::{BroadcastBuffers, ParameterReturn};
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::when::{Moment, Overlap, When};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use std::collections::BTreeMap;

/// Updated parameters from the ranks that updated them, where ZeRO-1 does not gather them.
pub(super) fn ops(step: &TrainingStep, stage: u32, part: &Part) -> Vec<Op> {
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
            overlap: Overlap::Exposed,
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

/// Elements that each rank updates: the largest tensor goes first, to the rank that has least
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
    if step.training.data.broadcast_buffers == BroadcastBuffers::None || !model.family.has_rotary_positions() {
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
        overlap: Overlap::Exposed,
        why: format!(
            "2*4 B*hd/2 = 2*4 B*{width}/2 = {bytes} B: frequencies of rotary positions, as they are and as they began, from the first \
             replica (torch/nn/parallel/distributed.py _sync_buffers, broadcast_buffers; transformers/modeling_rope_utils.py)"
        ),
        ..Op::new(Style::Data, axis, Collective::Broadcast, element, bytes)
    })
}
