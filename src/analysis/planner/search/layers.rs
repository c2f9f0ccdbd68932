//! What the layers of a model compute and wait for, each by itself, by how a shape divides them. Asked for once, for many layouts at a time.
//!
//! `composition` adds them up to stages.

use super::choices::Choices;
use super::composition::of_each_kind;
use super::question::Question;
use super::space::{IN_LAYERS, Places, Shape};
use crate::planner::price::{ChunkWork, LISTED_SAMPLES, LayerLoads, Loads, work_of_layers};
use commgauge_model::config::Training;
use commgauge_model::config::step::{PipelineChoices, Recompute, ScheduleKind};
use commgauge_model::layout::{Axis, DEFAULT_ORDER, Degrees, Layout, Locality};
use commgauge_model::workload::step::{Stages, TrainingStep};
use rayon::prelude::*;
use std::collections::HashMap;
use std::hash::Hash;

/// Degrees within a stage: tp, cp, ep and etp.
type Division = [u32; 4];

/// On what the loads of a layer depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LayerKey {
    division: Division,
    micro_batch: u64,
    recompute: Recompute,
}

impl LayerKey {
    /// That of a shape with these choices.
    pub fn of(shape: &Shape, choices: Choices) -> LayerKey {
        LayerKey { division: division(shape), micro_batch: choices.micro_batch, recompute: choices.recompute }
    }
}

/// All that was asked for so far.
#[derive(Default)]
pub(super) struct KnownLayers {
    /// Which kind each layer is of.
    pub kinds: Vec<usize>,
    /// Every placement of the groups of layers, by the axes of [`IN_LAYERS`].
    places: HashMap<Division, [Vec<Locality>; 5]>,
    models: HashMap<Division, Option<LayersAsStages>>,
    /// Computing of each kind of layer.
    work: HashMap<LayerKey, Option<Vec<ChunkWork>>>,
    /// Their calls, for micro-batches of any size.
    calls: HashMap<(Division, Recompute), Option<LayerLoads>>,
    /// Computing and waiting with each axis in its best place.
    nearest: HashMap<LayerKey, Option<Vec<Loads>>>,
    /// The same by the placement of the groups.
    placed: HashMap<(LayerKey, usize), Option<Vec<Loads>>>,
}

impl KnownLayers {
    /// Nothing yet, of the layers of a model, divided as these shapes.
    pub fn new(question: &Question, shapes: &[Shape]) -> KnownLayers {
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
        let mut layers = KnownLayers { kinds: (0..model.layers).map(&mut kind).collect(), ..KnownLayers::default() };
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

    /// Asks what layers compute, all at a time.
    pub fn ask_work(&mut self, question: &Question, keys: impl Iterator<Item = LayerKey> + Clone) {
        let divisions = missing(&self.models, keys.clone().map(|key| key.division));
        self.models.extend(each(divisions, |division| LayersAsStages::of(question, *division)));
        let keys = missing(&self.work, keys);
        let work = each(keys, |key| {
            let layers = self.models.get(&key.division)?.as_ref()?;
            let training = layers.training(key.micro_batch, key.recompute);
            let step = layers.step(question, &training);
            Some(work_of_layers(&step, &of_each_kind(&self.kinds), question.compute))
        });
        self.work.extend(work);
    }

    /// Asks what layers wait for in the best places, all at a time.
    pub fn ask_nearest(&mut self, question: &Question, keys: impl Iterator<Item = LayerKey> + Clone) {
        self.ask_work(question, keys.clone());
        let calls = missing(&self.calls, keys.clone().map(|key| (key.division, key.recompute)));
        let of_calls = |(division, recompute): &(Division, Recompute)| {
            self.models.get(division)?.as_ref().and_then(|layers| layers.calls(question, *recompute))
        };
        let calls = each(calls, of_calls);
        self.calls.extend(calls);
        let nearest = each(missing(&self.nearest, keys), |key| {
            let places = self.places.get(&key.division)?;
            self.loads(question, key, &places.each_ref().map(Vec::as_slice))
        });
        self.nearest.extend(nearest);
    }

    /// Computing of a layer of each kind, if it was asked for; nothing where that cannot be known.
    pub fn work(&self, key: LayerKey) -> Option<&[ChunkWork]> {
        self.work.get(&key)?.as_deref()
    }

    /// Load of a layer of each kind with each axis in the best place that it has anywhere, if it was asked for; nothing if the rates refuse
    /// a call.
    pub fn nearest(&self, key: LayerKey) -> Option<&[Loads]> {
        self.nearest.get(&key)?.as_deref()
    }

    /// The same in these places.
    pub fn placed(&mut self, question: &Question, key: LayerKey, places: &Places) -> Option<&[Loads]> {
        let full = (key, places.name);
        if !self.placed.contains_key(&full) {
            self.ask_nearest(question, std::iter::once(key));
            let loads = self.loads(question, &key, &places.localities.each_ref().map(std::slice::from_ref));
            self.placed.insert(full, loads);
        }
        self.placed.get(&full)?.as_deref()
    }

    fn loads(&self, question: &Question, key: &LayerKey, places: &[&[Locality]; 5]) -> Option<Vec<Loads>> {
        let work = self.work.get(key)?.as_ref()?;
        let calls = self.calls.get(&(key.division, key.recompute))?.as_ref()?;
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

/// Those that are not known, each once.
fn missing<K: Copy + Ord + Hash, V>(known: &HashMap<K, V>, keys: impl Iterator<Item = K>) -> Vec<K> {
    let mut missing: Vec<K> = keys.filter(|key| !known.contains_key(key)).collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// Each with its value, on all processors where they are many.
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
        let carved = u64::from(ep) * u64::from(etp);
        let stage = u64::from(tp) * u64::from(cp);
        let dp = (1..=carved).find(|dp| (stage * dp).is_multiple_of(carved)).and_then(|dp| u32::try_from(dp).ok())?;
        // The pipeline is in no group that is requested, so that its degree may stay 1.
        let degrees = Degrees { tp, cp, ep, etp, dp, pp: 1 };
        let layout = Layout::new(degrees, &DEFAULT_ORDER).ok()?;
        let mut training = question.training(Choices {
            zero_stage: 0,
            schedule: ScheduleKind::OneForwardOneBackward,
            virtual_stages: 1,
            micro_batch: 1,
            recompute: Recompute::None,
            sequence_parallel: question.sequence_parallel(&degrees),
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
        Some(LayersAsStages { training, layout, stages })
    }

    fn training(&self, micro_batch: u64, recompute: Recompute) -> Training {
        let mut training = Training { micro_batch, ..self.training.clone() };
        training.tensor.recompute = recompute;
        training
    }

    fn step<'a>(&self, question: &Question<'a>, training: &'a Training) -> TrainingStep<'a> {
        let (layout, stages) = (self.layout.clone(), self.stages.clone());
        TrainingStep::of_checked_parts(question.model, training, layout, stages, 1)
    }

    /// The calls of such layers, for micro-batches of any size.
    fn calls(&self, question: &Question, recompute: Recompute) -> Option<LayerLoads> {
        let trainings = LISTED_SAMPLES.map(|micro_batch| self.training(micro_batch, recompute));
        LayerLoads::of(&trainings.each_ref().map(|training| self.step(question, training))).ok()
    }
}
