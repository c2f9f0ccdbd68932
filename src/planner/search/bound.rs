//! A step can be no faster than this: what its stages compute, what their layers wait for in the best place, and how long the
//! first stages take to fill the pipeline. Messages, gradients and parameters are left out, which only makes it smaller.
//!
//! Layers are asked for once and added up to stages, so that a layout costs microseconds here and a millisecond in `price`.

use super::question::Question;
use super::space::{Choices, IN_LAYERS, Shape};
use crate::config::Training;
use crate::config::step::{PipelineChoices, ScheduleKind};
use crate::layout::{DEFAULT_ORDER, Degrees, Layout, Locality};
use crate::planner::price::{ChunkPasses, LayerLoads, Loads};
use crate::workload::step::{Stages, TrainingStep};
use std::collections::HashMap;

/// What the loads of a layer depend on.
type Key = ([u32; 3], u64, crate::config::step::Recompute);

/// Bounds, and the loads of layers that they are made of.
#[derive(Default)]
pub(super) struct Bounds {
    /// Computing alone.
    computing: HashMap<Key, Option<Vec<Loads>>>,
    layers: HashMap<Key, Option<LayerLoads>>,
    waiting: HashMap<(Key, [Locality; 5]), Option<Vec<Loads>>>,
    /// For pp and virtual stages, kinds of stages and which stage is of which.
    stages: HashMap<(u32, u32), Composition>,
    /// Which kind each layer is of, and a layer of each.
    kinds: Vec<usize>,
}

/// Stages by the layers of their chunks.
#[derive(Clone, Debug, Default)]
struct Composition {
    /// For each kind of stage and each chunk how many layers of each kind.
    kinds: Vec<Vec<Vec<(usize, f64)>>>,
    kind_of_stage: Vec<usize>,
}

impl Bounds {
    /// For the layers of a model.
    pub fn new(question: &Question) -> Bounds {
        let model = question.model;
        let last = model.layers.saturating_sub(1);
        let mut known = Vec::new();
        let mut kind = |layer: u32| {
            let shape = (layer == 0, layer == last, model.has_experts_in(layer), model.has_sliding_window_in(layer));
            known.iter().position(|other| *other == shape).unwrap_or_else(|| {
                known.push(shape);
                known.len() - 1
            })
        };
        Bounds { kinds: (0..model.layers).map(&mut kind).collect(), ..Bounds::default() }
    }

    /// Without any communication; nothing where that cannot be told.
    pub fn computing(&mut self, question: &Question, shape: &Shape, choices: Choices, stages: &Stages) -> Option<f64> {
        let key = key(shape, choices);
        if !self.computing.contains_key(&key) {
            let loads = Layers::of(question, shape, choices).map(|layers| layers.computing(question, &self.kinds));
            self.computing.insert(key, loads);
        }
        let micro_batches = micro_batches(question, shape, choices);
        let composition = composition(&mut self.stages, &self.kinds, shape, choices, stages);
        let loads = self.computing.get(&key)?.as_ref()?;
        Some(bound(loads, composition, micro_batches))
    }

    /// With what the layers wait for in this order of the axes; nothing where the rates refuse.
    pub fn waiting(
        &mut self,
        question: &Question,
        (shape, order): (&Shape, usize),
        choices: Choices,
        stages: &Stages,
    ) -> Option<f64> {
        let key = key(shape, choices);
        let places = &shape.orders[order].places;
        let full = (key, places.clone());
        if !self.waiting.contains_key(&full) {
            if !self.layers.contains_key(&key) {
                let loads = Layers::of(question, shape, choices).and_then(|layers| layers.loads(question));
                self.layers.insert(key, loads);
            }
            let place = |axis| {
                let index = IN_LAYERS.iter().position(|known| *known == axis)?;
                Some(places[index].clone())
            };
            let layers = self.layers.get(&key).and_then(Option::as_ref);
            let of_each = representatives(&self.kinds);
            let loads = layers.and_then(|layers| layers.at(&of_each, &place, question.rates).ok());
            self.waiting.insert(full.clone(), loads);
        }
        let micro_batches = micro_batches(question, shape, choices);
        let composition = composition(&mut self.stages, &self.kinds, shape, choices, stages);
        let loads = self.waiting.get(&full)?.as_ref()?;
        Some(bound(loads, composition, micro_batches))
    }
}

fn key(shape: &Shape, choices: Choices) -> Key {
    let d = &shape.degrees;
    ([d.tp, d.cp, d.ep], choices.micro_batch, choices.recompute)
}

fn micro_batches(question: &Question, shape: &Shape, choices: Choices) -> f64 {
    (question.global_batch / u64::from(shape.degrees.dp) / choices.micro_batch) as f64
}

/// The first layer of each kind.
fn representatives(kinds: &[usize]) -> Vec<usize> {
    let count = kinds.iter().max().map_or(0, |most| most + 1);
    (0..count).filter_map(|kind| kinds.iter().position(|other| *other == kind)).collect()
}

fn composition<'a>(
    known: &'a mut HashMap<(u32, u32), Composition>,
    kinds: &[usize],
    shape: &Shape,
    choices: Choices,
    stages: &Stages,
) -> &'a Composition {
    known.entry((shape.degrees.pp, choices.virtual_stages)).or_insert_with(|| {
        let mut composition = Composition::default();
        for stage in 0..stages.count() {
            let chunks: Vec<Vec<(usize, f64)>> = (0..stages.chunks())
                .map(|chunk| {
                    let mut counts: Vec<(usize, f64)> = Vec::new();
                    for layer in stages.layers_of_chunk(stage, chunk) {
                        let kind = kinds[*layer as usize];
                        match counts.iter_mut().find(|(other, _)| *other == kind) {
                            Some((_, count)) => *count += 1.0,
                            None => counts.push((kind, 1.0)),
                        }
                    }
                    counts
                })
                .collect();
            let kind = composition.kinds.iter().position(|other| *other == chunks).unwrap_or_else(|| {
                composition.kinds.push(chunks);
                composition.kinds.len() - 1
            });
            composition.kind_of_stage.push(kind);
        }
        composition
    })
}

/// A stage begins when the first micro-batch has come through the first chunks of those before it, and the step ends when its
/// last gradient has gone back through them.
fn bound(loads: &[Loads], composition: &Composition, micro_batches: f64) -> f64 {
    let kinds: Vec<Vec<ChunkPasses>> = composition
        .kinds
        .iter()
        .map(|chunks| {
            let sum = |counts: &Vec<(usize, f64)>| {
                let mut sum = Loads::default();
                counts.iter().for_each(|(kind, count)| sum.plus(&loads[*kind], *count));
                sum.passes()
            };
            chunks.iter().map(sum).collect()
        })
        .collect();
    let (mut way, mut longest) = (0.0, 0.0f64);
    for kind in &composition.kind_of_stage {
        let chunks = &kinds[*kind];
        let busy: f64 = chunks.iter().map(|chunk| chunk.forward + chunk.backward).sum();
        longest = longest.max(way + micro_batches * busy);
        way += chunks.first().map_or(0.0, |chunk| chunk.forward + chunk.backward);
    }
    longest * (1.0 - 1e-9)
}

/// A model of which every layer is a stage of its own, divided as a shape divides it.
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
        // The pipeline is in no group that is asked for, so that its degree may stay 1.
        let layout = Layout::new(Degrees { dp, pp: 1, ..*d }, &DEFAULT_ORDER).ok()?;
        let training = question.training(Choices { zero_stage: 0, virtual_stages: 1, ..choices });
        let pipeline = PipelineChoices {
            schedule: ScheduleKind::OneForwardOneBackward,
            virtual_stages: 1,
            stage_layers: None,
            ..question.base.pipeline.clone()
        };
        let layers = question.model.layers;
        let stages = Stages::share_out(layers, layers, &pipeline).ok()?;
        Some(Layers { training, layout, stages })
    }

    fn computing(&self, question: &Question, kinds: &[usize]) -> Vec<Loads> {
        let step =
            TrainingStep::of_checked_parts(question.model, &self.training, self.layout.clone(), self.stages.clone(), 1);
        let of = |layer: usize| {
            let compute = question.compute.chunk(&step, layer as u32, 0);
            Loads::of(compute, 0.0, std::iter::empty())
        };
        representatives(kinds).into_iter().map(of).collect()
    }

    fn loads(&self, question: &Question) -> Option<LayerLoads> {
        let step =
            TrainingStep::of_checked_parts(question.model, &self.training, self.layout.clone(), self.stages.clone(), 1);
        LayerLoads::of(&step, question.compute).ok()
    }
}
