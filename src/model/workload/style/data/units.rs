//! What is gathered in one call where parameters are sharded: a unit of FSDP, ZeRO-3 or HSDP.

use super::bucket_layout;
use super::parts::Part;
use super::tensor::{Order, Tensor};
use super::tensors::{of_ends, of_layer_alone};
use crate::config::step::UnitRule;
use crate::workload::step::{RankParameters, TrainingStep};
use crate::workload::when::{End, LayerKind};

/// Parameters that are gathered in one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    pub what: Wrapped,
    /// Parameters of one.
    pub parameters: u64,
    /// The same, rounded up so that shards are equal.
    pub padded: u64,
}

/// What a unit wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrapped {
    /// Equal layers of a stage.
    Layers { kind: LayerKind, number: u64 },
    /// Everything else of a stage.
    Root,
    /// The embedding alone.
    Input,
    /// Last norm and head alone.
    Output,
    /// A bucket of everything else, which stays gathered until the optimizer. `end` is where its last gradient comes.
    Kept { end: End },
}

/// The units of a part on a stage.
pub(super) fn units(step: &TrainingStep, stage: u32, part: &Part) -> Vec<Unit> {
    let of_part =
        |on_rank: RankParameters| u64::from(part.dense) * on_rank.dense + u64::from(part.experts) * on_rank.experts;
    let evenly = |what, parameters: u64| Unit { what, parameters, padded: parameters.next_multiple_of(part.ranks) };
    let rule = step.training.data.unit_rule;
    let layers = LayerKind::of_equal_layers(step.model).iter().filter_map(|kind| {
        let first = step.stages.layers_passed(stage).find(|layer| step.is_of_kind(*layer, *kind))?;
        let what = Wrapped::Layers { kind: *kind, number: step.layers_passed(stage, *kind) };
        Some(match rule {
            UnitRule::Buckets => in_buffer(what, of_layer_alone(step, first, Order::Megatron), part),
            _ => evenly(what, of_part(step.parameters_of_layer(first))),
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
    layers.chain(ends).filter(|unit| unit.parameters > 0).collect()
}

/// The tensors of a part as Megatron-FSDP lays them out.
fn in_buffer(what: Wrapped, mut tensors: Vec<Tensor>, part: &Part) -> Unit {
    tensors.retain(|tensor| if tensor.is_expert() { part.experts } else { part.dense });
    let parameters = tensors.iter().map(|tensor| tensor.elements).sum();
    Unit { what, parameters, padded: bucket_layout::buffer(&tensors, part.ranks) }
}

/// What is no layer, cut behind the tensor with which a bucket has `bucket_parameters`; an embedding that two stages share has a bucket of its
/// own. Every model chunk has buckets of its own (Megatron-LM training/training.py, `resolve_ddp_bucket_size`: no limit without
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
    let mut units = Vec::new();
    for chunk in chunks {
        let (mut open, mut filled): (Vec<(Tensor, End)>, u64) = (Vec::new(), 0);
        for (tensor, end) in chunk {
            if tensor.is_shared() {
                units.extend(bucket(std::mem::take(&mut open), part));
                units.extend(bucket(vec![(tensor, end)], part));
                filled = 0;
                continue;
            }
            open.push((tensor, end));
            filled += tensor.elements;
            if filled >= limit {
                units.extend(bucket(std::mem::take(&mut open), part));
                filled = 0;
            }
        }
        units.extend(bucket(open, part));
    }
    units
}

fn bucket(tensors: Vec<(Tensor, End)>, part: &Part) -> Option<Unit> {
    let end = tensors.first()?.1;
    Some(in_buffer(Wrapped::Kept { end }, tensors.into_iter().map(|(tensor, _)| tensor).collect(), part))
}
