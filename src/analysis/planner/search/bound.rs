//! A step can be no faster than this: what its stages compute, what their layers wait for in the best place, and how long the
//! first stages take to fill the pipeline. Then the data parallelism of the first stage, in
//! every micro-batch and once in a step.
//!
//! Layers are requested once and added up to stages, so that a layout costs microseconds here and a millisecond in `price`.

use super::choices::{Choices, PipelineCut};
use super::composition::{Busy, Composition, PassSeconds};
use super::layers::{KnownLayers, LayerKey};
use super::question::Question;
use super::space::{Places, Shape, Space};
use super::trainings::Trainings;
use crate::planner::price::{ChunkWork, DataCallTimes, FirstStage, FirstStageTimes};
use commgauge_model::config::step::ScheduleKind;
use commgauge_model::workload::step::Stages;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Shape, schedule, virtual stages and ZeRO stage.
type OnceKey = (usize, ScheduleKind, u32, u8);
/// Shape, schedule, micro-batch, and index of the order in the shape.
type MessageKey = (usize, ScheduleKind, u64, usize);

/// Bounds, and what they are made of.
pub(super) struct Bounds {
    pub layers: KnownLayers,
    /// Calls of data parallelism, and messages.
    first_stages: HashMap<OnceKey, Option<FirstStage>>,
    /// How long the calls take, by the order of the axes too.
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
        let of = |(cut, stages): (&PipelineCut, &Stages)| (*cut, Composition::of(stages, &layers.kinds, cut.schedule));
        Bounds {
            compositions: space.stages.iter().map(of).collect(),
            layers,
            first_stages: HashMap::new(),
            calls: HashMap::new(),
            messages: HashMap::new(),
        }
    }

    /// Without any communication, if the work of its layers was asked for; none if that cannot be determined.
    pub fn computing(&self, question: &Question, shape: &Shape, choices: Choices) -> Option<f64> {
        let seconds = |work: &ChunkWork| {
            let compute = &work.compute;
            PassSeconds { forward: compute.forward.0, backward: compute.backward().0 }
        };
        let work = self.layers.work(LayerKey::of(shape, choices))?;
        let layers: Vec<PassSeconds> = work.iter().map(seconds).collect();
        let composition = self.compositions.get(&cut(shape, choices))?;
        let busy = composition.computing(&layers);
        Some(composition.least(&busy, micro_batches(question, shape, choices), &FirstStageTimes::default()))
    }

    /// With each group of its layers in the best placement that it has anywhere, if the waiting there was asked for; none if the rates
    /// refuse a call.
    pub fn nearest(&self, question: &Question, shape: &Shape, choices: Choices) -> Option<f64> {
        let loads = self.layers.nearest(LayerKey::of(shape, choices))?;
        let composition = self.compositions.get(&cut(shape, choices))?;
        let busy = composition.busy(loads);
        Some(composition.least(&busy, micro_batches(question, shape, choices), &FirstStageTimes::default()))
    }

    /// Busy time of the stages if the groups of their layers have this placement.
    pub fn busy(&mut self, question: &Question, shape: &Shape, places: &Places, choices: Choices) -> Option<Busy> {
        let composition = self.compositions.get(&cut(shape, choices))?;
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
        let composition = self.compositions.get(&cut(shape, choices));
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
        let (layout, rates, on_node) = (&shape.orders[order].layout, question.rates, question.ranks_per_node);
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

fn cut(shape: &Shape, choices: Choices) -> PipelineCut {
    PipelineCut { pp: shape.degrees.pp, schedule: choices.schedule, virtual_stages: choices.virtual_stages }
}
