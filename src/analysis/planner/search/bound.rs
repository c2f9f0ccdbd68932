//! A step can be no faster than this: what its stages compute, what their layers wait for in the best place, and how long the
//! first stages take to fill the pipeline. Then what the first stage waits for once in a step.
//!
//! Layers are requested once and added up to stages, so that a layout costs microseconds here and a millisecond in `price`.

use super::choices::{Choices, PipelineCut};
use super::composition::{Busy, Composition, PassSeconds, of_each_kind};
use super::question::Question;
use super::space::{IN_LAYERS, Places, Shape};
use super::trainings::Trainings;
use crate::planner::price::{FirstStage, FirstStageTimes, LayerLoads, Loads, Once};
use commgauge_model::config::Training;
use commgauge_model::config::step::{PipelineChoices, ScheduleKind};
use commgauge_model::layout::{DEFAULT_ORDER, Degrees, Layout};
use commgauge_model::workload::step::{Stages, TrainingStep};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The parameters on which the loads of a layer depend.
type Key = ([u32; 4], u64, commgauge_model::config::step::Recompute);

/// Shape, schedule, virtual stages and ZeRO stage.
type OnceKey = (usize, ScheduleKind, u32, u8);
/// Shape, schedule, micro-batch, and index of the order in the shape.
type MessageKey = (usize, ScheduleKind, u64, usize);

/// Bounds, and the loads of layers that they are made of.
#[derive(Default)]
pub(super) struct Bounds {
    /// Computing alone.
    computing: HashMap<Key, Option<Vec<PassSeconds>>>,
    layers: HashMap<Key, Option<LayerLoads>>,
    /// The waiting of layers, by the placement of their groups.
    waiting: HashMap<(Key, usize), Option<Vec<Loads>>>,
    /// Calls that occur once, and messages.
    first_stages: HashMap<OnceKey, Option<FirstStage>>,
    /// How long the calls take, by the order of the axes too.
    once: HashMap<(OnceKey, usize), Option<Once>>,
    messages: HashMap<MessageKey, Option<f64>>,
    compositions: HashMap<PipelineCut, Composition>,
    /// Which kind each layer is of.
    kinds: Vec<usize>,
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
    /// For the layers of a model.
    pub fn new(question: &Question) -> Bounds {
        let model = question.model;
        let last = model.layers.saturating_sub(1);
        let mut known = Vec::new();
        let mut kind = |layer: u32| {
            let shape = (layer == 0, layer == last, model.parts_of(layer), model.has_sliding_window_in(layer));
            known.iter().position(|other| *other == shape).unwrap_or_else(|| {
                known.push(shape);
                known.len() - 1
            })
        };
        Bounds { kinds: (0..model.layers).map(&mut kind).collect(), ..Bounds::default() }
    }

    /// Without any communication; none if that cannot be determined.
    pub fn computing(&mut self, question: &Question, shape: &Shape, choices: Choices, stages: &Stages) -> Option<f64> {
        let key = key(shape, choices);
        if let Entry::Vacant(place) = self.computing.entry(key) {
            let loads = Layers::of(question, shape, choices).map(|layers| layers.computing(question, &self.kinds));
            place.insert(loads);
        }
        let composition = composition(&mut self.compositions, &self.kinds, shape, choices, stages);
        let busy = composition.computing(self.computing.get(&key)?.as_ref()?);
        Some(composition.least(&busy, micro_batches(question, shape, choices), &FirstStageTimes::default()))
    }

    /// Busy time of the stages if the groups of their layers have this placement, including waiting; none if the rates
    /// refuse a call.
    pub fn busy(
        &mut self,
        question: &Question,
        shape: &Shape,
        places: &Places,
        choices: Choices,
        stages: &Stages,
    ) -> Option<Busy> {
        let key = key(shape, choices);
        let full = (key, places.name);
        if !self.waiting.contains_key(&full) {
            if let Entry::Vacant(place) = self.layers.entry(key) {
                let loads = Layers::of(question, shape, choices).and_then(|layers| layers.loads(question));
                place.insert(loads);
            }
            let place = |axis| {
                let index = IN_LAYERS.iter().position(|known| *known == axis)?;
                Some(places.localities[index].clone())
            };
            let layers = self.layers.get(&key).and_then(Option::as_ref);
            let of_each = of_each_kind(&self.kinds);
            let loads = layers.and_then(|layers| layers.at(&of_each, &place, question.rates).ok());
            self.waiting.insert(full, loads);
        }
        let composition = composition(&mut self.compositions, &self.kinds, shape, choices, stages);
        Some(composition.busy(self.waiting.get(&full)?.as_ref()?))
    }

    /// Lower bound of a step of stages with this busy time, plus the calls of the first stage once in a step and a
    /// message.
    pub fn least(
        &self,
        question: &Question,
        shape: &Shape,
        choices: Choices,
        busy: &Busy,
        first: &FirstStageTimes,
    ) -> f64 {
        let composition = self.compositions.get(&cut(shape, choices));
        composition.map_or(0.0, |known| known.least(busy, micro_batches(question, shape, choices), first))
    }

    /// The calls of the first stage that occur once in a step, and a message.
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
            let first = trainings.get(choices).and_then(|training| {
                let step = question.step(shape, order, training, stages);
                FirstStage::of(&step).ok()
            });
            place.insert(first);
        }
        let first = self.first_stages.get(&key)?.as_ref()?;
        let (layout, rates, on_node) = (&shape.orders[order].layout, question.rates, question.ranks_per_node);
        let once =
            self.once.entry((key, order)).or_insert_with(|| first.once(layout, question.compute, rates, on_node));
        let message = self.messages.entry((index, schedule, micro_batch, order));
        let message = message.or_insert_with(|| first.message(layout, rates, on_node, micro_batch));
        Some(FirstStageTimes { once: (*once)?, message_seconds: (*message)? })
    }
}

fn key(shape: &Shape, choices: Choices) -> Key {
    let d = &shape.degrees;
    ([d.tp, d.cp, d.ep, d.etp], choices.micro_batch, choices.recompute)
}

fn micro_batches(question: &Question, shape: &Shape, choices: Choices) -> f64 {
    (question.global_batch / u64::from(shape.degrees.dp) / choices.micro_batch) as f64
}

fn cut(shape: &Shape, choices: Choices) -> PipelineCut {
    PipelineCut { pp: shape.degrees.pp, schedule: choices.schedule, virtual_stages: choices.virtual_stages }
}

fn composition<'a>(
    known: &'a mut HashMap<PipelineCut, Composition>,
    kinds: &[usize],
    shape: &Shape,
    choices: Choices,
    stages: &Stages,
) -> &'a Composition {
    known.entry(cut(shape, choices)).or_insert_with(|| Composition::of(stages, kinds, choices.schedule))
}

/// A model in which every layer is a separate stage, divided according to a shape.
struct Layers {
    training: Training,
    layout: Layout,
    stages: Stages,
}

impl Layers {
    fn of(question: &Question, shape: &Shape, choices: Choices) -> Option<Layers> {
        let d = &shape.degrees;
        let carved = u64::from(d.ep) * u64::from(d.etp);
        let stage = u64::from(d.tp) * u64::from(d.cp);
        let dp = (1..=carved).find(|dp| (stage * dp).is_multiple_of(carved)).and_then(|dp| u32::try_from(dp).ok())?;
        // The pipeline is in no group that is requested, so that its degree may stay 1.
        let layout = Layout::new(Degrees { dp, pp: 1, ..*d }, &DEFAULT_ORDER).ok()?;
        let mut training = question.training(Choices {
            zero_stage: 0,
            schedule: ScheduleKind::OneForwardOneBackward,
            virtual_stages: 1,
            ..choices
        });
        // Between layers of a stage there are no messages whose parts would be gathered.
        training.pipeline.scatter_gather = false;
        let pipeline = PipelineChoices {
            schedule: ScheduleKind::OneForwardOneBackward,
            virtual_stages: 1,
            stage_layers: None,
            ..question.bases.first.pipeline.clone()
        };
        let layers = question.model.layers;
        let stages = Stages::share_out(layers, layers, &pipeline).ok()?;
        Some(Layers { training, layout, stages })
    }

    fn computing(&self, question: &Question, kinds: &[usize]) -> Vec<PassSeconds> {
        let step =
            TrainingStep::of_checked_parts(question.model, &self.training, self.layout.clone(), self.stages.clone(), 1);
        let of = |layer: usize| {
            let compute = question.compute.chunk(&step, layer as u32, 0);
            PassSeconds { forward: compute.forward.0, backward: compute.backward().0 }
        };
        of_each_kind(kinds).into_iter().map(of).collect()
    }

    fn loads(&self, question: &Question) -> Option<LayerLoads> {
        let step =
            TrainingStep::of_checked_parts(question.model, &self.training, self.layout.clone(), self.stages.clone(), 1);
        LayerLoads::of(&step, question.compute).ok()
    }
}
