//! The calls of a step, stage by stage, and the predicted time of each. Stages of the same kind are queried once.

use super::passes::{
    ChunkWork, Hides, Loads, Once, Passes, StageWork, Timed, Unpriced, copies_seconds, count_in_chunk,
};
use crate::planner::compute::{Compute, StageCompute};
use crate::planner::rates::{RatedCall, Rates};
use commgauge_base::units::{Bytes, Seconds};
use commgauge_cost::cost::{Coefficient, Status};
use commgauge_model::config::step::{ScheduleKind, UnitRule};
use commgauge_model::layout::{Axis, Layout, Locality};
use commgauge_model::workload::op::{LayerKind, Overlap, Pass, When};
use commgauge_model::workload::step::TrainingStep;
use commgauge_model::workload::{Op, Style};

/// The calls of every stage of a step. They depend on the model, the training and the degrees, not on the order of the axes.
#[derive(Clone, Debug)]
pub struct PreparedStep {
    /// The kind of each stage.
    pub(super) kind_of_stage: Vec<usize>,
    pub(super) kinds: Vec<StageKind>,
    /// A message of activations, and one of gradients.
    messages: [Option<Op>; 2],
}

/// Stages with equal layers and equal calls.
#[derive(Clone, Debug)]
pub(super) struct StageKind {
    pub stage: u32,
    pub ops: Vec<Op>,
}

impl StageKind {
    /// Whether attention hides a call.
    pub fn hides(&self) -> Hides {
        if self.ops.iter().any(|op| op.overlap == Overlap::Attention) { Hides::Calls } else { Hides::Nothing }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub call: RatedCall,
    pub seconds: f64,
    /// Ends of the interval; equal to `seconds` without one.
    pub low: f64,
    pub high: f64,
    untrusted: bool,
}

/// Predicted times of the calls of each kind of stage, in the order of its ops, and of both messages.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    kinds: Vec<Vec<Answer>>,
    messages: [Option<Answer>; 2],
}

impl PreparedStep {
    /// Prepares a step.
    ///
    /// # Errors
    /// If counts exceed 64 bits.
    pub fn new(step: &TrainingStep) -> Result<PreparedStep, Unpriced> {
        PreparedStep::with(step, &|stage| step.ops_of_stage(stage))
    }

    /// Prepares a step of which only the calls that carry activations count.
    ///
    /// # Errors
    /// If counts exceed 64 bits.
    pub(super) fn of_activations(step: &TrainingStep) -> Result<PreparedStep, Unpriced> {
        PreparedStep::with(step, &|stage| step.activation_ops_of_stage(stage))
    }

    fn with(
        step: &TrainingStep,
        ops_of_stage: &dyn Fn(u32) -> commgauge_base::error::Result<Vec<Op>>,
    ) -> Result<PreparedStep, Unpriced> {
        let mut known: Vec<(Vec<usize>, usize)> = Vec::new();
        let mut prepared = PreparedStep { kind_of_stage: Vec::new(), kinds: Vec::new(), messages: [None, None] };
        for stage in 0..step.stages.count() {
            let shape = shape_of(step, stage);
            let kind = match known.iter().find(|(other, _)| *other == shape) {
                Some((_, kind)) => *kind,
                None => {
                    let ops = ops_of_stage(stage).map_err(|error| Unpriced {
                        call: format!("the calls of stage {stage}"),
                        reason: error.to_string(),
                    })?;
                    prepared.add(stage, ops);
                    known.push((shape, prepared.kinds.len() - 1));
                    prepared.kinds.len() - 1
                }
            };
            prepared.kind_of_stage.push(kind);
        }
        Ok(prepared)
    }

    fn add(&mut self, stage: u32, ops: Vec<Op>) {
        let (between, mut own): (Vec<Op>, Vec<Op>) =
            without_reasons(ops).partition(|op| matches!(op.when, When::Boundary { .. }));
        own.shrink_to_fit();
        for op in between {
            let forward = matches!(op.when, When::Boundary { pass: Pass::Forward, .. });
            let known = &mut self.messages[usize::from(!forward)];
            // Of messages in the steady state and while the pipeline fills, the former dominate.
            if known.as_ref().is_none_or(|known| known.overlap.is_exposed()) {
                *known = Some(op);
            }
        }
        self.kinds.push(StageKind { stage, ops: own });
    }

    /// Queries the time of every call.
    pub(super) fn query(
        &self,
        step: &TrainingStep,
        rates: &dyn Rates,
        ranks_per_node: u32,
    ) -> Result<Answers, Unpriced> {
        let layout = &step.layout;
        let mut places = Places::default();
        let mut query = |op: &Op| Answer::of(op, places.call(op, layout, ranks_per_node), rates, layout);
        let mut kinds = Vec::with_capacity(self.kinds.len());
        for kind in &self.kinds {
            kinds.push(kind.ops.iter().map(&mut query).collect::<Result<Vec<_>, _>>()?);
        }
        let mut messages = [None, None];
        for (message, op) in messages.iter_mut().zip(&self.messages) {
            *message = op.as_ref().map(&mut query).transpose()?;
        }
        // A schedule that starts backward passes before all forward passes are done has messages of both directions on a link at once.
        let turns = !matches!(step.training.pipeline.schedule, ScheduleKind::Naive | ScheduleKind::GPipe);
        for answer in messages.iter_mut().flatten().filter(|_| turns) {
            if let Some(slower) = rates.both_ways(&answer.call.locality) {
                answer.slow_down(&slower);
            }
        }
        Ok(Answers { kinds, messages })
    }

    /// Computing of stages of every kind.
    pub(super) fn work(&self, step: &TrainingStep, compute: &Compute) -> Vec<StageWork> {
        self.kinds.iter().map(|kind| StageWork::of(step, kind.stage, compute, kind.hides())).collect()
    }

    /// The passes of every kind of stage.
    pub(super) fn passes(
        &self,
        step: &TrainingStep,
        answers: &Answers,
        work: &[StageWork],
        seconds: &dyn Fn(&Answer) -> f64,
    ) -> Vec<Passes> {
        let each = self.kinds.iter().zip(&answers.kinds).zip(work);
        each.map(|((kind, answers), work)| {
            let timed = kind.ops.iter().zip(answers);
            let calls: Vec<Timed> =
                timed.map(|(op, answer)| Timed { op, seconds: seconds(answer) + copies_seconds(op) }).collect();
            Passes::of(step, kind.stage, &calls, work)
        })
        .collect()
    }

    /// Share of the busiest stage's computing spent waiting for the host.
    pub(super) fn host_share(&self, step: &TrainingStep, compute: &Compute, work: &[StageWork], all: f64) -> f64 {
        if compute.seconds_per_kernel.0 <= 0.0 {
            return 0.0;
        }
        let free = Compute { seconds_per_kernel: Seconds(0.0), ..compute.clone() };
        let of = |stage: &StageCompute| stage.forward_seconds() + stage.backward_seconds();
        let m = step.micro_batches as f64;
        let nearest = self.kinds.iter().zip(work).min_by(|a, b| {
            let distance = |work: &StageWork| (m * of(&work.compute) - all).abs();
            distance(a.1).total_cmp(&distance(b.1))
        });
        let host = nearest.map_or(0.0, |(kind, _)| (all - m * of(&free.stage(step, kind.stage))).clamp(0.0, all));
        // A smaller difference is rounding.
        if host > 1e-9 * all { host } else { 0.0 }
    }
}

/// The size and the placement of the groups of each axis that has calls.
#[derive(Default)]
struct Places(Vec<(Axis, u32, Locality)>);

impl Places {
    fn call(&mut self, op: &Op, layout: &Layout, ranks_per_node: u32) -> RatedCall {
        let index = self.0.iter().position(|(axis, ..)| *axis == op.axis).unwrap_or_else(|| {
            self.0.push((op.axis, layout.group_size(op.axis), layout.locality(op.axis, ranks_per_node)));
            self.0.len() - 1
        });
        let (_, ranks, locality) = &self.0[index];
        RatedCall::of(op, *ranks, locality)
    }
}

/// The calls of data parallelism of the first stage, its optimizer, and a message. The calls and the optimizer depend on neither the
/// micro-batch nor recomputation, and the message grows with the samples of the micro-batch.
#[derive(Clone, Debug)]
pub(in crate::planner) struct FirstStage {
    /// Once per step.
    ops: Vec<Op>,
    /// In every micro-batch, with their number per pass.
    repeated: Vec<(Op, f64)>,
    message: Option<Op>,
    samples: u64,
    pub optimizer_seconds: f64,
}

/// Duration of the calls of a [`FirstStage`].
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::planner) struct FirstStageTimes {
    pub calls: DataCallTimes,
    pub message_seconds: f64,
    pub optimizer_seconds: f64,
}

/// Duration of the calls of data parallelism.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::planner) struct DataCallTimes {
    /// Once per step.
    pub once: Once,
    /// Exposed seconds of the calls of a micro-batch, all passes together.
    pub exposed_seconds: f64,
    /// Seconds of calls hidden by whole passes, one after another: no pass is shorter than its calls.
    pub overlapped_seconds: f64,
}

impl FirstStage {
    /// The first stage of a step.
    ///
    /// # Errors
    /// If counts exceed 64 bits.
    pub fn of(step: &TrainingStep, compute: &Compute) -> commgauge_base::error::Result<FirstStage> {
        let mut ops: Vec<Op> = without_reasons(step.ops_of_stage(0)?).collect();
        let is_message = |op: &&Op| matches!(op.when, When::Boundary { pass: Pass::Forward, .. });
        let message = ops.iter().rfind(is_message).cloned();
        let repeated = ops.iter().filter_map(|op| Some((op.clone(), repeated(step, op)?))).collect();
        ops.retain(|op| matches!(op.when, When::Step { .. }));
        ops.shrink_to_fit();
        let optimizer_seconds = compute.optimizer(step, 0).0;
        Ok(FirstStage { ops, repeated, message, samples: step.training.micro_batch, optimizer_seconds })
    }

    /// The calls in a layout; `None` if the rates refuse one.
    pub fn calls(
        &self,
        layout: &Layout,
        compute: &Compute,
        rates: &dyn Rates,
        ranks_per_node: u32,
    ) -> Option<DataCallTimes> {
        let mut places = Places::default();
        let mut seconds = |op: &Op| -> Option<f64> {
            let answer = Answer::of(op, places.call(op, layout, ranks_per_node), rates, layout).ok()?;
            Some(answer.seconds + copies_seconds(op))
        };
        let mut timed = Vec::with_capacity(self.ops.len());
        for op in &self.ops {
            timed.push(Timed { op, seconds: seconds(op)? });
        }
        let (mut exposed_seconds, mut overlapped_seconds) = (0.0, 0.0);
        for (op, count) in &self.repeated {
            let sum = if op.overlap.is_exposed() { &mut exposed_seconds } else { &mut overlapped_seconds };
            *sum += count * seconds(op)?;
        }
        let once = Once::of(timed.into_iter(), compute.lost_beside_calls);
        Some(DataCallTimes { once, exposed_seconds, overlapped_seconds })
    }

    /// Seconds of a message with this many samples, 0 without a pipeline; `None` if the rates refuse it.
    pub fn message(&self, layout: &Layout, rates: &dyn Rates, ranks_per_node: u32, samples: u64) -> Option<f64> {
        let Some(message) = &self.message else { return Some(0.0) };
        let message = Op { bytes_total: Bytes(message.bytes_total.0 / self.samples * samples), ..message.clone() };
        let locality = layout.locality(message.axis, ranks_per_node);
        let call = RatedCall::of(&message, layout.group_size(message.axis), &locality);
        Some(Answer::of(&message, call, rates, layout).ok()?.seconds)
    }
}

/// Number of a data-parallel call per micro-batch on the first stage, whatever the recomputation; `None` if the passes hide it in parts, or
/// the number depends on more (DeepSpeed's gathers by modules).
fn repeated(step: &TrainingStep, op: &Op) -> Option<f64> {
    let in_parts = matches!(op.overlap, Overlap::WeightGradient | Overlap::InputGradient | Overlap::Attention);
    if op.style != Style::Data || in_parts || step.training.data.units.rule == UnitRule::Modules {
        return None;
    }
    let in_chunks = (0..step.stages.chunks()).filter_map(|chunk| count_in_chunk(step, 0, chunk, &op.when));
    let count: f64 = in_chunks.filter(|(pass, _)| *pass != Pass::Recompute).map(|(_, count)| count).sum();
    (count > 0.0).then_some(count)
}

/// The calls without the sentences on the origin of their bytes: a search has very many calls and never shows these.
fn without_reasons(ops: Vec<Op>) -> impl Iterator<Item = Op> {
    ops.into_iter().map(|op| Op { why: String::new(), ..op })
}

/// Key that distinguishes stages: their layers by kind, chunk by chunk, the ends of the model, and whether it is the first stage, whose
/// gradients have different buckets.
fn shape_of(step: &TrainingStep, stage: u32) -> Vec<usize> {
    let mut shape = vec![usize::from(stage == 0)];
    for chunk in 0..step.stages.chunks() {
        let layers = step.stages.layers_of_chunk(stage, chunk);
        let of_kind = |kind: &LayerKind| layers.iter().filter(|layer| step.is_of_kind(**layer, *kind)).count();
        let windows = layers.iter().filter(|layer| step.model.has_sliding_window_in(**layer)).count();
        shape.extend([layers.len(), windows]);
        shape.extend(step.stages.ends_of_chunk(stage, chunk).map(usize::from));
        shape.extend(LayerKind::of_equal_layers(step.model).iter().map(of_kind));
        let repeated = step.layers_in_pass(Pass::Recompute, layers).iter();
        shape.push(step.layers_in_pass(Pass::Backward, layers).len());
        shape.push(repeated.filter(|layer| step.model.has_experts_in(**layer)).count());
    }
    shape
}

impl Answer {
    /// `layout` determines which axes have calls.
    pub fn of(op: &Op, call: RatedCall, rates: &dyn Rates, layout: &Layout) -> Result<Answer, Unpriced> {
        let prediction = rates.price(&call);
        let unpriced = |reason: String| Unpriced {
            call: format!("{} of {} on {} of {} ranks", op.collective, op.bytes_total, op.axis, call.ranks),
            reason,
        };
        let Some(Seconds(seconds)) = prediction.seconds.filter(|_| prediction.status != Status::Refused) else {
            return Err(unpriced(prediction.reason.unwrap_or_else(|| "no answer".to_owned())));
        };
        if !(seconds.is_finite() && seconds >= 0.0) {
            return Err(unpriced(format!("the answer is {seconds} s, which is not a time")));
        }
        let interval = prediction.low.zip(prediction.high).filter(|(low, high)| low.0 <= seconds && seconds <= high.0);
        let (low, high) = interval.map_or((seconds, seconds), |(low, high)| (low.0, high.0));
        let slower = match rates.hidden() {
            Some(hidden) if !op.overlap.is_exposed() => {
                hidden.slower(op.axis, op.collective, &|axis| axis != Axis::Pair && layout.group_size(axis) > 1)
            }
            _ => 1.0,
        };
        let [seconds, low, high] = [seconds, low, high].map(|alone| alone * slower);
        // Published rates have no interval and are not calibrated; an untrusted curve has one.
        let untrusted = prediction.untrusted && interval.is_some();
        Ok(Answer { call, seconds, low, high, untrusted })
    }

    /// Multiplies the time by a slowdown of at least 1, since concurrent calls speed nothing up.
    fn slow_down(&mut self, slower: &Coefficient) {
        let of = |end: Option<f64>| end.unwrap_or(slower.value).max(1.0);
        self.seconds *= of(None);
        self.low *= of(slower.low).min(of(None));
        self.high *= of(slower.high).max(of(None));
    }
}

impl Answers {
    /// Seconds of a message forward and of one backward; both have the same bytes, so one can replace the other.
    pub fn messages(&self, seconds: &dyn Fn(&Answer) -> f64) -> [f64; 2] {
        let [forward, backward] = [0, 1].map(|which: usize| self.messages[which].as_ref().map(seconds));
        [forward.or(backward).unwrap_or(0.0), backward.or(forward).unwrap_or(0.0)]
    }

    /// The answers, in the order of the calls.
    pub fn all(&self) -> impl Iterator<Item = &Answer> {
        self.kinds.iter().flatten().chain(self.messages.iter().flatten())
    }

    /// Calls from untrusted curves, each basis once.
    pub fn untrusted(&self, rates: &dyn Rates) -> Vec<String> {
        let mut grounds: Vec<String> = Vec::new();
        for answer in self.all().filter(|answer| answer.untrusted) {
            let ground = rates.ground(&answer.call);
            if !grounds.contains(&ground) {
                grounds.push(ground);
            }
        }
        grounds
    }
}

// The load that each layer adds to its stage, for any micro-batch: the calls are listed once, and their bytes grow with its samples.

/// The samples of the micro-batches for which calls are listed: two to determine the growth, one more to check that it is linear.
pub(in crate::planner) const LISTED_SAMPLES: [u64; 3] = [1, 2, 7];

/// See [`bytes_of_samples`].
const ROUNDED: f64 = 1e-3;

/// A step in which every layer is a separate stage.
#[derive(Clone, Debug)]
pub(in crate::planner) struct LayerLoads {
    kind_of_layer: Vec<usize>,
    kinds: Vec<LayerCalls>,
    /// Layout that determines which axes have calls: never more than in a layout with a pipeline and replicas.
    layout: Layout,
}

/// Layers with equal calls: the calls in every micro-batch.
type LayerCalls = Vec<LayerCall>;

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
            let bytes = bytes_of_samples(ops, of_others).ok_or_else(|| Unpriced {
                call: "the calls of a layer".to_owned(),
                reason: "their bytes do not grow linearly with the micro-batch".to_owned(),
            })?;
            let call = |(op, [bytes, more_bytes]): (&Op, [u64; 2])| {
                let (pass, count) = count_in_chunk(step, *stage, 0, &op.when)?;
                let op = Op { bytes_total: Bytes(bytes), ..op.clone() };
                Some(LayerCall { ranks: step.layout.group_size(op.axis), op, more_bytes, pass, count })
            };
            let calls = ops.iter().zip(bytes).filter_map(call).collect();
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

/// The minimum of the numbers; an error where no number is given.
fn least(all: impl Iterator<Item = Result<f64, Unpriced>>) -> Option<Result<f64, Unpriced>> {
    all.reduce(|least, next| match (least, next) {
        (Ok(least), Ok(next)) => Ok(least.min(next)),
        (Ok(known), Err(_)) | (Err(_), Ok(known)) => Ok(known),
        (Err(first), Err(_)) => Err(first),
    })
}

/// The bytes of each call of one sample, and those by which it grows per further sample; none if calls differ in more, or do not grow
/// linearly. Expected bytes are whole, and may differ from a line by less than [`ROUNDED`]: then a line below them.
fn bytes_of_samples(ops: &[Op], others: [&[Op]; 2]) -> Option<Vec<[u64; 2]>> {
    let [_, two, more] = LISTED_SAMPLES;
    let [of_two, of_more] = others;
    if [of_two, of_more].iter().any(|others| others.len() != ops.len()) {
        return None;
    }
    let grows = |((op, at_two), at_more): ((&Op, &Op), &Op)| {
        let one = op.bytes_total.0;
        let each = at_more.bytes_total.0.checked_sub(one)? / (more - 1);
        let apart = [(two, at_two), (more, at_more)].map(|(samples, other)| {
            let is_same = Op { bytes_total: other.bytes_total, ..op.clone() } == *other;
            is_same.then_some((one + each * (samples - 1)).abs_diff(other.bytes_total.0))
        });
        let [Some(at_two), Some(at_more)] = apart else { return None };
        match at_two.max(at_more) {
            0 => Some([one, each]),
            apart => (apart as f64 <= ROUNDED * one as f64)
                .then(|| [one, each].map(|bytes| (bytes as f64 * (1.0 - ROUNDED)) as u64)),
        }
    };
    ops.iter().zip(of_two).zip(of_more).map(grows).collect()
}
