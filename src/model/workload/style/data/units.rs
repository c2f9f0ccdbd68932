//! What is gathered in one call where parameters are sharded: a unit of FSDP, ZeRO-3 or HSDP.

use super::bucket_layout;
use super::parts::Part;
use super::tensor::{Division, Order, Tensor};
use super::tensors::{of_ends, of_layer_alone};
use crate::config::step::UnitRule;
use crate::workload::step::{RankParameters, TrainingStep};
use crate::workload::when::{End, LayerKind};
use commgauge_base::element::ElementType;

/// Parameters that are gathered in one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    pub what: Wrapped,
    /// Parameters of one.
    pub parameters: u64,
    /// The same, rounded up so that shards are equal.
    pub padded: u64,
    /// Type in which they are gathered.
    pub element: ElementType,
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
    let element = step.training.data.parameter_element_type;
    let evenly = |what, parameters: u64| {
        vec![Unit { what, parameters, padded: parameters.next_multiple_of(part.ranks), element }]
    };
    let rule = step.training.data.units.rule;
    let layers = LayerKind::of_equal_layers(step.model).iter().filter_map(|kind| -> Option<Vec<Unit>> {
        let first = step.stages.layers_passed(stage).find(|layer| step.is_of_kind(*layer, *kind))?;
        let what = Wrapped::Layers { kind: *kind, number: step.layers_passed(stage, *kind) };
        Some(match rule {
            UnitRule::Buckets => of_layer_in_buffers(step, what, of_layer_alone(step, first, Order::Megatron), part),
            _ => evenly(what, of_part(step.parameters_of_layer(first))),
        })
    });
    let ends = match rule {
        UnitRule::Layers | UnitRule::RootKept | UnitRule::Modules => {
            evenly(Wrapped::Root, of_part(step.rank_end_parameters(stage)))
        }
        UnitRule::EndsApart => {
            let input = of_part(step.input_parameters(stage));
            let output = of_part(step.rank_end_parameters(stage)).saturating_sub(input);
            [evenly(Wrapped::Input, input), evenly(Wrapped::Output, output)].concat()
        }
        UnitRule::Buckets => kept(step, stage, part),
    };
    layers.flatten().chain(ends).filter(|unit| unit.parameters > 0).collect()
}

/// The tensors of a layer as Megatron-FSDP lays them out: those in 8 bits have a buffer of their own.
fn of_layer_in_buffers(step: &TrainingStep, what: Wrapped, tensors: Vec<Tensor>, part: &Part) -> Vec<Unit> {
    let element = step.training.data.parameter_element_type;
    if !element.moves_only() {
        return vec![in_buffer(what, tensors, part, element)];
    }
    let (narrow, wide) = tensors.into_iter().partition(is_in_eight_bits);
    vec![in_buffer(what, narrow, part, element), in_buffer(what, wide, part, wide_element(step))]
}

/// Whether Transformer Engine can have a tensor in 8 bits: weights of linears, not norms, biases and routers.
pub(super) fn is_in_eight_bits(tensor: &Tensor) -> bool {
    tensor.division != Division::Whole
}

/// The type of parameters that are not in 8 bits.
fn wide_element(step: &TrainingStep) -> ElementType {
    let element = step.training.data.parameter_element_type;
    if element.moves_only() { step.training.activation_element_type } else { element }
}

/// The tensors of a part in one buffer.
fn in_buffer(what: Wrapped, mut tensors: Vec<Tensor>, part: &Part, element: ElementType) -> Unit {
    tensors.retain(|tensor| if tensor.is_expert() { part.experts } else { part.dense });
    let parameters = tensors.iter().map(|tensor| tensor.elements).sum();
    Unit { what, parameters, padded: bucket_layout::buffer(&tensors, part.owners), element }
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
