//! The load that each layer adds to its stage, for any micro-batch: the calls are listed once, and their bytes grow with its samples.

use super::calls::{Answer, PreparedStep, StageKind};
use super::passes::{ChunkWork, Hides, StageWork, copies_seconds};
use super::passes::{Loads, count_in_chunk};
use super::unpriced::Unpriced;
use crate::planner::compute::Compute;
use crate::planner::rates::{RatedCall, Rates};
use commgauge_base::units::Bytes;
use commgauge_model::layout::{Axis, Layout, Locality};
use commgauge_model::workload::Op;
use commgauge_model::workload::op::Pass;
use commgauge_model::workload::step::TrainingStep;

/// The samples of the micro-batches for which calls are listed: two to determine the growth, one more to check that it is linear.
pub(in crate::planner) const LISTED_SAMPLES: [u64; 3] = [1, 2, 7];

/// A step in which every layer is a separate stage.
#[derive(Clone, Debug)]
pub(in crate::planner) struct LayerLoads {
    kind_of_layer: Vec<usize>,
    kinds: Vec<LayerKind>,
    /// Layout that determines which axes have calls: never more than in a layout with a pipeline and replicas.
    layout: Layout,
}

/// Layers with equal calls: the calls in every micro-batch.
type LayerKind = Vec<LayerCall>;

/// Computing of some layers in a micro-batch. `LayerLoads` adds their calls.
pub(in crate::planner) fn work_of_layers(step: &TrainingStep, layers: &[usize], compute: &Compute) -> Vec<ChunkWork> {
    // Attention can only hide a ring of context parallelism.
    let hides = if step.layout.degrees.cp > 1 { Hides::Calls } else { Hides::Nothing };
    layers.iter().map(|layer| StageWork::of(step, *layer as u32, compute, hides).of_chunk(0)).collect()
}

/// A call of a layer in every micro-batch.
#[derive(Clone, Debug)]
struct LayerCall {
    /// For a micro-batch of one sample.
    op: Op,
    /// Bytes per further sample.
    more_bytes: u64,
    pass: Pass,
    count: f64,
    /// Ranks of a group.
    ranks: u32,
}

impl LayerLoads {
    /// The loads of such steps, which are equal except for their micro-batches of [`LISTED_SAMPLES`].
    ///
    /// # Errors
    /// If counts exceed 64 bits, or calls do not grow linearly.
    pub fn of(steps: &[TrainingStep; 3]) -> Result<LayerLoads, Unpriced> {
        let [one, two, more] = steps.each_ref().map(PreparedStep::of_activations);
        let (one, others) = (one?, [two?, more?]);
        let [step, ..] = steps;
        let mut kinds = Vec::with_capacity(one.kinds.len());
        for (index, kind) in one.kinds.iter().enumerate() {
            let StageKind { stage, ops } = kind;
            let of_others =
                others.each_ref().map(|other| other.kinds.get(index).map_or(&[] as &[Op], |kind| &kind.ops));
            let more_bytes = bytes_of_samples(ops, of_others).ok_or_else(uneven)?;
            let call = |(op, more_bytes): (&Op, u64)| {
                let (pass, count) = count_in_chunk(step, *stage, 0, &op.when)?;
                Some(LayerCall { op: op.clone(), more_bytes, pass, count, ranks: step.layout.group_size(op.axis) })
            };
            let calls = ops.iter().zip(more_bytes).filter_map(call).collect();
            kinds.push(calls);
        }
        Ok(LayerLoads { kind_of_layer: one.kind_of_stage, kinds, layout: step.layout.clone() })
    }

    /// The loads of some layers with this computing in micro-batches of this many samples; calls of axes without a place are skipped. Of
    /// several places of an axis the fastest counts for each call.
    ///
    /// # Errors
    /// The first call without an answer in any place.
    pub fn at<'p>(
        &self,
        layers: &[usize],
        work: &[ChunkWork],
        samples: u64,
        places: &dyn Fn(Axis) -> &'p [Locality],
        rates: &dyn Rates,
    ) -> Result<Vec<Loads>, Unpriced> {
        let mut loads = Vec::with_capacity(layers.len());
        for (layer, work) in layers.iter().zip(work) {
            let calls = &self.kinds[self.kind_of_layer[*layer]];
            let mut timed = Vec::with_capacity(calls.len());
            for LayerCall { op, more_bytes, pass, count, ranks } in calls {
                let further = samples.saturating_sub(1);
                let bytes_total = Bytes(op.bytes_total.0.saturating_add(more_bytes.saturating_mul(further)));
                let places = places(op.axis);
                let Some(first) = places.first() else { continue };
                // The size is the same in all places, and takes long to count for routed experts.
                let sized = RatedCall::of(&Op { bytes_total, ..op.clone() }, *ranks, first);
                let seconds_at = |locality: &Locality| {
                    let call = RatedCall { locality: locality.clone(), ..sized };
                    Ok(Answer::of(op, call, rates, &self.layout)?.seconds)
                };
                let Some(seconds) = least(places.iter().map(seconds_at)) else { continue };
                timed.push((op, *pass, count * (seconds? + copies_seconds(op))));
            }
            loads.push(Loads::of(*work, timed.into_iter()));
        }
        Ok(loads)
    }
}

/// The minimum of the numbers, or an error if there is none.
fn least(all: impl Iterator<Item = Result<f64, Unpriced>>) -> Option<Result<f64, Unpriced>> {
    all.reduce(|least, next| match (least, next) {
        (Ok(least), Ok(next)) => Ok(least.min(next)),
        (Ok(known), Err(_)) | (Err(_), Ok(known)) => Ok(known),
        (Err(first), Err(_)) => Err(first),
    })
}

/// The bytes by which each call grows per sample; an error if calls differ in more, or do not grow linearly.
fn bytes_of_samples(ops: &[Op], others: [&[Op]; 2]) -> Option<Vec<u64>> {
    let [_, two, more] = LISTED_SAMPLES;
    let [of_two, of_more] = others;
    if [of_two, of_more].iter().any(|others| others.len() != ops.len()) {
        return None;
    }
    let grows = |((op, at_two), at_more): ((&Op, &Op), &Op)| {
        let each = at_two.bytes_total.0.checked_sub(op.bytes_total.0)? / (two - 1);
        let with = |samples: u64| Op { bytes_total: Bytes(op.bytes_total.0 + each * (samples - 1)), ..op.clone() };
        (with(two) == *at_two && with(more) == *at_more).then_some(each)
    };
    ops.iter().zip(of_two).zip(of_more).map(grows).collect()
}

fn uneven() -> Unpriced {
    let reason = "their bytes do not grow linearly with the micro-batch".to_owned();
    Unpriced { call: "the calls of a layer".to_owned(), reason }
}
