//! What a layer-wise optimizer gathers: each rank updates whole tensors, as Muon must, and all of them go to every rank in one
//! uneven call.

use super::parts::Part;
use super::tensor::{Order, Tensor};
use super::tensors::of_part;
use crate::config::step::ParameterReturn;
use crate::workload::step::TrainingStep;
use crate::workload::when::{Moment, Overlap, When};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::geometry::Splits;

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
         sorted by size and dealt out there and back (Megatron-LM core/optimizer/layer_wise_optimizer.py shard_params, \
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
    (elements > 0).then(|| Op {
        when,
        overlap: Overlap::Exposed,
        splits,
        why,
        ..Op::new(Style::Data, part.axis, collective, element, bytes)
    })
}

/// The tensors that the first rank updates.
pub(super) fn of_first_rank(step: &TrainingStep, stage: u32, part: &Part) -> Vec<Tensor> {
    dealt_out(of_part(step, stage, part, Order::Megatron), part.ranks).swap_remove(0)
}

/// The tensors that each rank updates: the smallest goes to the first rank, and at the last one the order turns round.
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
