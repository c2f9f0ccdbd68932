//! Lower bound of a step: the computing of its stages, the waiting of their layers in the best place, and the time of the first stages to
//! fill the pipeline; plus the data parallelism of the first stage, in every micro-batch and once per step.
//!
//! Layers are requested once and added up to stages, so that a layout costs microseconds here and a millisecond in `price`.

use super::question::{Choices, Exchange, PipelineCut, Question, least_dp};
use super::space::{IN_LAYERS, Places, Shape, Space, Trainings};
use crate::planner::price::{
    ChunkPasses, ChunkWork, DataCallTimes, FirstStage, FirstStageTimes, LISTED_SAMPLES, LayerLoads, Loads,
    work_of_layers,
};
use commgauge_base::writing::ascending;
use commgauge_model::config::Training;
use commgauge_model::config::step::{PipelineChoices, Recompute, RecomputeMethod, ScheduleKind};
use commgauge_model::layout::{Axis, DEFAULT_ORDER, Degrees, Layout, Locality};
use commgauge_model::workload::step::{Stages, TrainingStep};
use rayon::prelude::*;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

/// Shape, schedule, virtual stages and ZeRO stage.
type OnceKey = (usize, ScheduleKind, u32, u8);

/// Shape, schedule, micro-batch, and index of the order in the shape.
type MessageKey = (usize, ScheduleKind, u64, usize);

/// Bounds and their components.
pub(super) struct Bounds {
    pub layers: KnownLayers,
    /// Calls of data parallelism, and messages.
    first_stages: HashMap<OnceKey, Option<FirstStage>>,
    /// The times of these calls, also by the order of the axes.
    calls: HashMap<(OnceKey, usize), Option<DataCallTimes>>,
    messages: HashMap<MessageKey, Option<f64>>,
    compositions: HashMap<PipelineCut, Composition>,
}

/// One order of the axes of a shape.
#[derive(Clone, Copy)]
pub(super) struct OrderedShape<'a> {
    /// Index of the shape in its space.
    pub index: usize,
    pub shape: &'a Shape,
    /// Index of the order in its shape.
    pub order: usize,
}

impl Bounds {
    /// For a model that is divided in the ways of a space.
    pub fn new(question: &Question, space: &Space) -> Bounds {
        let layers = KnownLayers::new(question, &space.shapes);
        let of = |(cut, stages): (&PipelineCut, &Stages)| (*cut, Composition::of(stages, &layers, cut.schedule));
        Bounds {
            compositions: space.stages.iter().map(of).collect(),
            layers,
            first_stages: HashMap::new(),
            calls: HashMap::new(),
            messages: HashMap::new(),
        }
    }

    /// Without any communication, if the work of its layers was requested; `None` if unknown.
    pub fn computing(&self, question: &Question, shape: &Shape, choices: Choices) -> Option<f64> {
        let seconds = |work: &ChunkWork| {
            let compute = &work.compute;
            PassSeconds { forward: compute.forward.0, backward: compute.backward().0 }
        };
        let work = self.layers.work(LayerKey::of(shape, choices))?;
        let layers: Vec<PassSeconds> = work.iter().map(seconds).collect();
        let composition = self.compositions.get(&choices.cut(shape.degrees.pp))?;
        let busy = composition.computing(&layers);
        Some(composition.least(&busy, micro_batches(question, shape, choices), &FirstStageTimes::default()))
    }

    /// With each group of its layers in its best placement, if the waiting there was requested; `None` if the rates refuse a call.
    pub fn nearest(&self, question: &Question, shape: &Shape, choices: Choices) -> Option<f64> {
        let loads = self.layers.nearest(LayerKey::of(shape, choices))?;
        let composition = self.compositions.get(&choices.cut(shape.degrees.pp))?;
        let busy = composition.busy(loads);
        Some(composition.least(&busy, micro_batches(question, shape, choices), &FirstStageTimes::default()))
    }

    /// Busy time of the stages if the groups of their layers have this placement.
    pub fn busy(&mut self, question: &Question, shape: &Shape, places: &Places, choices: Choices) -> Option<Busy> {
        let composition = self.compositions.get(&choices.cut(shape.degrees.pp))?;
        Some(composition.busy(self.layers.placed(question, LayerKey::of(shape, choices), places)?))
    }

    /// Lower bound of a step of stages with this busy time, with the calls of data parallelism of the first stage, its optimizer and a
    /// message.
    pub fn least(
        &self,
        question: &Question,
        shape: &Shape,
        choices: Choices,
        busy: &Busy,
        first: &FirstStageTimes,
    ) -> f64 {
        let composition = self.compositions.get(&choices.cut(shape.degrees.pp));
        composition.map_or(0.0, |known| known.least(busy, micro_batches(question, shape, choices), first))
    }

    /// The calls of data parallelism of the first stage, its optimizer, and a message.
    pub fn first_stage(
        &mut self,
        question: &Question,
        ordered: OrderedShape,
        choices: Choices,
        stages: &Stages,
        trainings: &Trainings,
    ) -> Option<FirstStageTimes> {
        let OrderedShape { index, shape, order } = ordered;
        let Choices { schedule, virtual_stages, zero_stage, micro_batch, .. } = choices;
        let key = (index, schedule, virtual_stages, zero_stage);
        if let Entry::Vacant(place) = self.first_stages.entry(key) {
            let first = trainings.of_one_sample(choices).and_then(|training| {
                let step = question.step(shape, order, training, stages);
                FirstStage::of(&step, question.compute).ok()
            });
            place.insert(first);
        }
        let first = self.first_stages.get(&key)?.as_ref()?;
        let layout = &question.divided(&shape.orders[order].layout, trainings.of_one_sample(choices)?);
        let (rates, on_node) = (question.rates, question.ranks_per_node);
        let calls =
            self.calls.entry((key, order)).or_insert_with(|| first.calls(layout, question.compute, rates, on_node));
        let message = self.messages.entry((index, schedule, micro_batch, order));
        let message = message.or_insert_with(|| first.message(layout, rates, on_node, micro_batch));
        let optimizer_seconds = first.optimizer_seconds;
        Some(FirstStageTimes { calls: (*calls)?, message_seconds: (*message)?, optimizer_seconds })
    }
}

fn micro_batches(question: &Question, shape: &Shape, choices: Choices) -> f64 {
    (question.global_batch / u64::from(shape.degrees.dp) / choices.micro_batch) as f64
}

// The computing and waiting of a model's layers, separately, by how a shape divides them. Requested once, for many layouts at a time.
//
// `composition` adds them up to stages.

/// Degrees within a stage: tp, cp, ep and etp.
type Division = [u32; 4];

/// The factors of a layer's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LayerKey {
    division: Division,
    micro_batch: u64,
    recompute: Recompute,
    exchange: Exchange,
}

impl LayerKey {
    pub fn of(shape: &Shape, choices: Choices) -> LayerKey {
        let Choices { micro_batch, recompute, exchange, .. } = choices;
        LayerKey { division: division(shape), micro_batch, recompute, exchange }
    }
}

/// Everything requested so far.
#[derive(Default)]
pub(super) struct KnownLayers {
    /// The kind of each layer.
    pub kinds: Vec<usize>,
    /// That of the first and of the last layer where the embedding or the head is a chunk of its own: that of a like layer between them.
    pub without_end: [Option<usize>; 2],
    /// Every placement of the groups of layers, by the axes of [`IN_LAYERS`].
    places: HashMap<Division, [Vec<Locality>; IN_LAYERS.len()]>,
    models: HashMap<Division, Option<LayersAsStages>>,
    /// Computing of each kind of layer.
    work: HashMap<LayerKey, Option<Vec<ChunkWork>>>,
    /// Their calls, for micro-batches of any size.
    calls: HashMap<(Division, Recompute, Exchange), Option<LayerLoads>>,
    /// Computing and waiting with each axis in its best place.
    nearest: HashMap<LayerKey, Option<Vec<Loads>>>,
    /// By the placement of the groups.
    placed: HashMap<(LayerKey, usize), Option<Vec<Loads>>>,
}

impl KnownLayers {
    /// Empty, for the layers of a model divided as in these shapes.
    pub fn new(question: &Question, shapes: &[Shape]) -> KnownLayers {
        let model = question.model;
        let last = model.layers.saturating_sub(1);
        let mut known = Vec::new();
        let trained = &question.bases.first.data.trained;
        let kind_of = |layer: u32| {
            (model.parts_of(layer), model.has_sliding_window_in(layer), trained.trains(layer, model.layers))
        };
        let mut kind = |layer: u32| {
            let shape = (layer == 0, layer == last, kind_of(layer));
            known.iter().position(|other| *other == shape).unwrap_or_else(|| {
                known.push(shape);
                known.len() - 1
            })
        };
        let kinds: Vec<usize> = (0..model.layers).map(&mut kind).collect();
        let without_end = [0, last].map(|layer| {
            let shape = (false, false, kind_of(layer));
            known.iter().position(|other| *other == shape)
        });
        let mut layers = KnownLayers { kinds, without_end, ..KnownLayers::default() };
        for shape in shapes {
            let known = layers.places.entry(division(shape)).or_default();
            for places in &shape.places {
                for (locality, known) in places.localities.iter().zip(known.iter_mut()) {
                    if !known.contains(locality) {
                        known.push(locality.clone());
                    }
                }
            }
        }
        layers
    }

    /// Requests the computing of layers, all at a time.
    pub fn ask_work(&mut self, question: &Question, keys: impl Iterator<Item = LayerKey> + Clone) {
        let divisions = missing(&self.models, keys.clone().map(|key| key.division));
        self.models.extend(each(divisions, |division| LayersAsStages::of(question, *division)));
        let keys = missing(&self.work, keys);
        let work = each(keys, |key| {
            let layers = self.models.get(&key.division)?.as_ref()?;
            let training = layers.training(key.micro_batch, key.recompute, key.exchange);
            let step = layers.step(question, &training);
            Some(work_of_layers(&step, &of_each_kind(&self.kinds), question.compute))
        });
        self.work.extend(work);
    }

    /// Requests the waiting of layers in the best places, all at a time.
    pub fn ask_nearest(&mut self, question: &Question, keys: impl Iterator<Item = LayerKey> + Clone) {
        self.ask_work(question, keys.clone());
        let calls = missing(&self.calls, keys.clone().map(|key| (key.division, key.recompute, key.exchange)));
        let of_calls = |(division, recompute, exchange): &(Division, Recompute, Exchange)| {
            self.models.get(division)?.as_ref().and_then(|layers| layers.calls(question, *recompute, *exchange))
        };
        let calls = each(calls, of_calls);
        self.calls.extend(calls);
        let nearest = each(missing(&self.nearest, keys), |key| {
            let places = self.places.get(&key.division)?;
            self.loads(question, key, &places.each_ref().map(Vec::as_slice))
        });
        self.nearest.extend(nearest);
    }

    /// Computing of a layer of each kind, if requested; `None` if it cannot be known.
    pub fn work(&self, key: LayerKey) -> Option<&[ChunkWork]> {
        self.work.get(&key)?.as_deref()
    }

    /// Load of a layer of each kind with each axis in its best place, if requested; `None` if the rates refuse a call.
    pub fn nearest(&self, key: LayerKey) -> Option<&[Loads]> {
        self.nearest.get(&key)?.as_deref()
    }

    pub fn placed(&mut self, question: &Question, key: LayerKey, places: &Places) -> Option<&[Loads]> {
        let full = (key, places.name);
        if !self.placed.contains_key(&full) {
            self.ask_nearest(question, std::iter::once(key));
            let loads = self.loads(question, &key, &places.localities.each_ref().map(std::slice::from_ref));
            self.placed.insert(full, loads);
        }
        self.placed.get(&full)?.as_deref()
    }

    fn loads(
        &self,
        question: &Question,
        key: &LayerKey,
        places: &[&[Locality]; IN_LAYERS.len()],
    ) -> Option<Vec<Loads>> {
        let work = self.work.get(key)?.as_ref()?;
        let calls = self.calls.get(&(key.division, key.recompute, key.exchange))?.as_ref()?;
        let of_axis = |axis: Axis| {
            let index = IN_LAYERS.iter().position(|known| *known == axis);
            index.map_or(&[] as &[Locality], |index| places[index])
        };
        calls.at(&of_each_kind(&self.kinds), work, key.micro_batch, &of_axis, question.rates).ok()
    }
}

fn division(shape: &Shape) -> Division {
    let d = &shape.degrees;
    [d.tp, d.cp, d.ep, d.etp]
}

/// The unknown ones, without duplicates.
fn missing<K: Copy + Ord + Hash, V>(known: &HashMap<K, V>, keys: impl Iterator<Item = K>) -> Vec<K> {
    ascending(keys.filter(|key| !known.contains_key(key)))
}

/// Each with its value, on all processors if there are many.
fn each<K: Copy + Send + Sync, V: Send>(keys: Vec<K>, of: impl Fn(&K) -> V + Sync) -> Vec<(K, V)> {
    match keys.len() {
        0 => Vec::new(),
        1 => keys.iter().map(|key| (*key, of(key))).collect(),
        _ => keys.par_iter().map(|key| (*key, of(key))).collect(),
    }
}

/// A model in which every layer is a separate stage.
struct LayersAsStages {
    training: Training,
    layout: Layout,
    stages: Stages,
}

impl LayersAsStages {
    fn of(question: &Question, division: Division) -> Option<LayersAsStages> {
        let [tp, cp, ep, etp] = division;
        // No requested group contains the pipeline, so its degree may stay 1.
        let degrees = Degrees { tp, cp, ep, etp, dp: 1, pp: 1 };
        let degrees = Degrees { dp: least_dp(&degrees)?, ..degrees };
        let layout = Layout::new(degrees, &DEFAULT_ORDER).ok()?;
        let mut training = question.training(question.first_choices(&degrees));
        let layout = TrainingStep::divided_within_stage(layout, &question.bases.groups).ok()?;
        // Layers within a stage exchange no messages whose parts would be gathered.
        training.pipeline.scatter_gather = false;
        let pipeline = PipelineChoices {
            schedule: ScheduleKind::OneForwardOneBackward,
            virtual_stages: 1,
            stage_layers: None,
            ..question.bases.first.pipeline.clone()
        };
        let layers = question.model.layers;
        let stages = Stages::divide(layers, layers, &pipeline).ok()?;
        Some(LayersAsStages { training, layout, stages })
    }

    fn training(&self, micro_batch: u64, recompute: Recompute, exchange: Exchange) -> Training {
        let mut training = Training { micro_batch, ..self.training.clone() };
        // Where only some layers are repeated, none is in the bound.
        let some = self.training.tensor.recompute_method == RecomputeMethod::Block;
        training.tensor.recompute = if some && recompute == Recompute::Full { Recompute::None } else { recompute };
        exchange.set(&mut training);
        training
    }

    fn step<'a>(&self, question: &Question<'a>, training: &'a Training) -> TrainingStep<'a> {
        let (layout, stages) = (self.layout.clone(), self.stages.clone());
        // Exchanges overlap only with another micro-batch: no fewer hide more.
        let micro_batches = if training.expert.overlap_exchange { 2 } else { 1 };
        TrainingStep::of_checked_parts(question.model, training, layout, stages, micro_batches)
    }

    /// The calls of such layers, for micro-batches of any size.
    fn calls(&self, question: &Question, recompute: Recompute, exchange: Exchange) -> Option<LayerLoads> {
        let trainings = LISTED_SAMPLES.map(|micro_batch| self.training(micro_batch, recompute, exchange));
        LayerLoads::of(&trainings.each_ref().map(|training| self.step(question, training))).ok()
    }
}

// The layers of each stage, and a lower bound of the step time of such stages.
//
// Chunks with the same layers are added up once, and neighbouring stages of a kind are processed together. `bound`
// computes the load of a layer.

/// Deduction for rounding errors, as a share.
const ROUNDING: f64 = 1e-9;

/// Stages by the layers of their chunks.
#[derive(Clone, Debug, Default)]
pub(super) struct Composition {
    /// Distinct chunks: the number of layers of each kind.
    chunks: Vec<Vec<Counted>>,
    /// Distinct stages.
    kinds: Vec<Kind>,
    /// Runs of neighbouring stages of a kind: index and length.
    runs: Vec<Counted>,
    /// Whether stages wait for earlier stages, forward and back again.
    fills: Fills,
    /// Share of its chunks that a micro-batch passes on a stage: half if they are stored twice.
    passed: f64,
}

/// Known time before a stage begins and after it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Fills {
    /// The passes of the first chunks of the earlier stages, in both directions: 1F1B, interleaved, `GPipe` and one stage at a time.
    #[default]
    InOrder,
    /// Not enough for a bound: weight gradients run while others wait, and micro-batches begin at both ends.
    Otherwise,
}

/// An item with its count.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counted {
    /// Index in the list of distinct items.
    index: usize,
    count: f64,
}

/// A kind of stage.
#[derive(Clone, Debug, Default, PartialEq)]
struct Kind {
    /// Number of each distinct chunk.
    chunks: Vec<Counted>,
    /// Index of the first chunk.
    first: Option<usize>,
}

/// A pass forward and one backward, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PassSeconds {
    pub forward: f64,
    pub backward: f64,
}

/// Busy time of stages in a micro-batch, in seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Busy {
    /// By kind of stage, forward and backward.
    kinds: Vec<KindSeconds>,
    /// Forward through all chunks of the first stage.
    first_forward: f64,
    /// Backward through all chunks of the first stage.
    first_backward: f64,
}

/// Busy time of a kind of stage in a micro-batch.
#[derive(Clone, Copy, Debug)]
struct KindSeconds {
    first_chunk: f64,
    all_chunks: f64,
}

impl Composition {
    /// The composition of stages with layers of these kinds.
    pub fn of(stages: &Stages, layers: &KnownLayers, schedule: ScheduleKind) -> Composition {
        let (kinds, [first_alone, last_alone]) = (&layers.kinds, layers.without_end);
        let in_order = matches!(
            schedule,
            ScheduleKind::OneForwardOneBackward | ScheduleKind::Interleaved | ScheduleKind::GPipe | ScheduleKind::Naive
        );
        let mut composition = Composition {
            fills: if in_order { Fills::InOrder } else { Fills::Otherwise },
            passed: if stages.mirrored { 0.5 } else { 1.0 },
            ..Composition::default()
        };
        for stage in 0..stages.count() {
            let mut chunks: Vec<Counted> = Vec::new();
            let mut first = None;
            for chunk in 0..stages.chunks() {
                let mut layers: Vec<Counted> = Vec::new();
                let [has_input, has_output] = stages.ends_of_chunk(stage, chunk);
                // Left out of the bound are layers that predict further tokens.
                let kind = |layer: &u32| match *layer as usize {
                    0 if !has_input => first_alone,
                    layer if layer + 1 == kinds.len() && !has_output => last_alone,
                    layer => kinds.get(layer).copied(),
                };
                let known = stages.layers_of_chunk(stage, chunk).iter().filter_map(kind);
                known.for_each(|kind| count(&mut layers, kind));
                let chunk = index_of(&mut composition.chunks, layers);
                first = first.or(Some(chunk));
                count(&mut chunks, chunk);
            }
            let kind = index_of(&mut composition.kinds, Kind { chunks, first });
            match composition.runs.last_mut() {
                Some(last) if last.index == kind => last.count += 1.0,
                _ => composition.runs.push(Counted { index: kind, count: 1.0 }),
            }
        }
        composition
    }

    /// Busy time of the stages if each kind of layer adds this load.
    pub fn busy(&self, loads: &[Loads]) -> Busy {
        self.busy_in(|layers| {
            let mut sum = Loads::default();
            layers.iter().for_each(|layer| sum.plus(&loads[layer.index], layer.count));
            let ChunkPasses { forward, backward, .. } = sum.passes();
            PassSeconds { forward, backward }
        })
    }

    /// Busy time of the stages if each kind of layer computes this long, and waits for nothing.
    pub fn computing(&self, layers: &[PassSeconds]) -> Busy {
        self.busy_in(|counted| {
            let sum = |of: &dyn Fn(&PassSeconds) -> f64| -> f64 {
                counted.iter().map(|layer| of(&layers[layer.index]) * layer.count).sum()
            };
            PassSeconds { forward: sum(&|layer| layer.forward), backward: sum(&|layer| layer.backward) }
        })
    }

    /// Busy time of the stages if chunks with these layers are busy this long.
    fn busy_in(&self, chunk: impl Fn(&[Counted]) -> PassSeconds) -> Busy {
        let chunks: Vec<PassSeconds> = self.chunks.iter().map(|layers| chunk(layers)).collect();
        let all = |counted: &[Counted], of: &dyn Fn(&PassSeconds) -> f64| -> f64 {
            counted.iter().map(|chunk| of(&chunks[chunk.index]) * chunk.count).sum()
        };
        let both = |chunk: &PassSeconds| chunk.forward + chunk.backward;
        let kind = |kind: &Kind| KindSeconds {
            first_chunk: kind.first.map_or(0.0, |first| both(&chunks[first])),
            all_chunks: self.passed * all(&kind.chunks, &both),
        };
        let first = self.runs.first().map_or(&[] as &[_], |run| &self.kinds[run.index].chunks);
        Busy {
            kinds: self.kinds.iter().map(kind).collect(),
            first_forward: all(first, &|chunk| chunk.forward),
            first_backward: all(first, &|chunk| chunk.backward),
        }
    }

    /// A stage begins when the first micro-batch has passed the first chunks of the stages before it, and the step
    /// ends when its last gradient has passed them in reverse.
    pub fn least(&self, busy: &Busy, micro_batches: f64, first: &FirstStageTimes) -> f64 {
        let (mut way, mut longest) = (0.0, 0.0f64);
        for Counted { index, count: stages } in &self.runs {
            let kind = busy.kinds[*index];
            let step = match self.fills {
                Fills::InOrder => kind.first_chunk + 2.0 * first.message_seconds,
                Fills::Otherwise => 0.0,
            };
            // Of equally busy neighbours the last one finishes last.
            longest = longest.max(way + (stages - 1.0) * step + micro_batches * kind.all_chunks);
            way += stages * step;
        }
        // No pass of the first stage is shorter than its calls that overlap with it.
        let own = busy.first_forward + busy.first_backward + first.calls.exposed_seconds;
        longest = longest.max(micro_batches * self.passed * own.max(first.calls.overlapped_seconds));
        // The first stage begins first and ends last, so only its own first and last pass hide these.
        let once = &first.calls.once;
        let (before, after) = (once.before(busy.first_forward), once.after(busy.first_backward));
        let after = match self.fills {
            Fills::InOrder => after.total(),
            Fills::Otherwise => 0.0,
        };
        let waits = before.total() + after + once.last.total();
        // The optimizer runs at the end, on the slowest stage at least as long as on the first.
        (longest + waits + first.optimizer_seconds) * (1.0 - ROUNDING)
    }
}

/// The first layer of each kind.
pub(super) fn of_each_kind(kinds: &[usize]) -> Vec<usize> {
    let count = kinds.iter().max().map_or(0, |most| most + 1);
    (0..count).filter_map(|kind| kinds.iter().position(|other| *other == kind)).collect()
}

fn count(counts: &mut Vec<Counted>, index: usize) {
    match counts.iter_mut().find(|other| other.index == index) {
        Some(known) => known.count += 1.0,
        None => counts.push(Counted { index, count: 1.0 }),
    }
}

fn index_of<T: PartialEq>(known: &mut Vec<T>, one: T) -> usize {
    known.iter().position(|other| *other == one).unwrap_or_else(|| {
        known.push(one);
        known.len() - 1
    })
}
