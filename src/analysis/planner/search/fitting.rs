//! Which layouts fit into memory, and how far the others are from fitting.
//!
//! State (parameters, gradients, optimizer) depends on the ZeRO stage, activations on the micro-batch and on
//! recomputation, so each is computed once and every pair is a sum.

use super::choices::{Choices, PipelineCut};
use super::only::accepts;
use super::question::Question;
use super::space::{Shape, Space, divisors};
use super::trainings::Trainings;
use crate::planner::memory::MemoryChoices;
use commgauge_model::config::Training;
use commgauge_model::config::step::{Recompute, ScheduleKind};
use commgauge_model::layout::{Axis, Layout};
use commgauge_model::workload::step::{Stages, TrainingStep};
use commgauge_model::workload::when::LayerKind;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// The choices of recomputation, the one that computes least first.
const RECOMPUTE: [Recompute; 3] = [Recompute::None, Recompute::Selective, Recompute::Full];

/// A layout without its ZeRO stage and the order of its axes.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub shape: usize,
    pub schedule: ScheduleKind,
    pub virtual_stages: u32,
    pub micro_batch: u64,
    pub recompute: Recompute,
    /// Bytes of the fullest rank for each ZeRO stage that is to be priced.
    pub memory: [Option<u64>; 4],
}

impl Unit {
    /// Whether two are the same but for what is computed again.
    pub fn differs_in_recompute_only(&self, other: &Unit) -> bool {
        let all = |unit: &Unit| (unit.shape, unit.schedule, unit.virtual_stages, unit.micro_batch);
        all(self) == all(other)
    }

    /// How its layers are cut over so many stages.
    pub fn cut(&self, pp: u32) -> PipelineCut {
        PipelineCut { pp, schedule: self.schedule, virtual_stages: self.virtual_stages }
    }
}

/// The layout that misses the limit by least.
#[derive(Clone, Debug)]
pub(super) struct Nearest {
    pub shape: usize,
    pub choices: Choices,
    pub bytes: u64,
}

/// Whether layouts that need more memory than there is are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    MustSuffice,
    MayBeShort,
}

/// All layouts, and those that fit.
#[derive(Debug, Default)]
pub(super) struct Fitting {
    pub considered: u64,
    pub feasible: u64,
    pub units: Vec<Unit>,
    pub nearest: Option<Nearest>,
}

impl Fitting {
    /// All legal shapes that fit, and those that do not, if memory may be short.
    pub fn of(question: &Question, space: &Space, trainings: &Trainings, memory: Memory) -> Fitting {
        let differing = |(cut, stages): (&PipelineCut, &Stages)| (*cut, first_of_each_kind(question, *cut, stages));
        let differing: BTreeMap<PipelineCut, Vec<u32>> = space.stages.iter().map(differing).collect();
        let of_shape = |(index, shape): (usize, &Shape)| {
            let mut fitting = Fitting::default();
            for (cut, stages) in space.stages.iter().filter(|(cut, _)| cut.pp == shape.degrees.pp) {
                let differing = &differing[cut];
                Context { question, trainings, shape, index, cut: *cut, stages, differing, memory }.add(&mut fitting);
            }
            fitting
        };
        let of_shapes: Vec<Fitting> = space.shapes.par_iter().enumerate().map(of_shape).collect();
        of_shapes.into_iter().fold(Fitting::default(), Fitting::and)
    }

    /// Adds that of a later shape.
    fn and(mut self, later: Fitting) -> Fitting {
        self.considered = self.considered.saturating_add(later.considered);
        self.feasible = self.feasible.saturating_add(later.feasible);
        self.units.extend(later.units);
        let nearer = |nearest: &Nearest| self.nearest.as_ref().is_none_or(|known| nearest.bytes < known.bytes);
        if later.nearest.as_ref().is_some_and(nearer) {
            self.nearest = later.nearest;
        }
        self
    }
}

/// One shape with its stages.
struct Context<'a> {
    question: &'a Question<'a>,
    trainings: &'a Trainings,
    shape: &'a Shape,
    index: usize,
    cut: PipelineCut,
    stages: &'a Stages,
    /// The stages that differ in what they hold.
    differing: &'a [u32],
    memory: Memory,
}

impl<'a> Context<'a> {
    fn add(&self, fitting: &mut Fitting) {
        let degrees = &self.shape.degrees;
        let only = &self.question.only;
        let replica = self.question.global_batch / u64::from(degrees.dp);
        let sharing = u64::from(degrees.dp) * u64::from(degrees.cp);
        let mut all = self.question.bases.stages(sharing).filter(|zero| accepts(&only.zero_stage, zero)).peekable();
        let Some(training) = all.peek().and_then(|zero| self.trainings.get(self.choices(*zero, 1, Recompute::None)))
        else {
            return;
        };
        let mut step = self.question.step(self.shape, 0, training, self.stages);
        let zeros: Vec<u8> = all.filter(|zero| self.allows_zero(&mut step, *zero)).collect();
        let Some(lowest) = zeros.first().copied() else { return };
        let states: Vec<Vec<u64>> = zeros.iter().map(|zero| self.states(&mut step, *zero)).collect();
        let recomputes: Vec<Recompute> = RECOMPUTE.into_iter().filter(|what| accepts(&only.recompute, what)).collect();
        let mut full = false;
        for micro_batch in divisors(replica) {
            if !accepts(&only.micro_batch, &micro_batch) {
                continue;
            }
            let micro_batches = u32::try_from(replica / micro_batch).unwrap_or(u32::MAX);
            let PipelineCut { pp, schedule, virtual_stages } = self.cut;
            if pp > 1 && schedule.check_rules(pp, virtual_stages, micro_batches).is_err() {
                continue;
            }
            let count = (zeros.len() * recomputes.len()) as u64 * self.shape.orders_legal;
            fitting.considered = fitting.considered.saturating_add(count);
            // A larger micro-batch never needs less.
            if full {
                continue;
            }
            full = self.memory == Memory::MustSuffice;
            for recompute in &recomputes {
                let choices = self.choices(lowest, micro_batch, *recompute);
                let activation_bytes = self.activation_bytes(&mut step, choices);
                let mut unit = Unit {
                    shape: self.index,
                    schedule,
                    virtual_stages,
                    micro_batch,
                    recompute: *recompute,
                    memory: [None; 4],
                };
                for (zero, state) in zeros.iter().zip(&states) {
                    let total = state
                        .iter()
                        .zip(&activation_bytes)
                        .map(|(state, activation_bytes)| state.saturating_add(*activation_bytes))
                        .max();
                    let bytes = total.unwrap_or(0);
                    let fits = bytes <= self.question.gpu_memory.0;
                    if fits {
                        fitting.feasible = fitting.feasible.saturating_add(self.shape.orders_legal);
                        full = false;
                    }
                    if fits || self.memory == Memory::MayBeShort {
                        unit.memory[usize::from(*zero)] = Some(bytes);
                    }
                    if fitting.nearest.as_ref().is_none_or(|nearest| bytes < nearest.bytes) {
                        let choices = Choices { zero_stage: *zero, ..choices };
                        fitting.nearest = Some(Nearest { shape: self.index, choices, bytes });
                    }
                }
                if unit.memory.iter().any(Option::is_some) {
                    fitting.units.push(unit);
                }
            }
        }
    }

    /// Whether a ZeRO stage goes with the layout and the schedule. Leaves the step with the training of that stage, in its groups of
    /// shards.
    fn allows_zero(&self, step: &mut TrainingStep<'a>, zero_stage: u8) -> bool {
        self.set(step, self.choices(zero_stage, 1, Recompute::None)).is_some() && step.check_data_style().is_ok()
    }

    fn choices(&self, zero_stage: u8, micro_batch: u64, recompute: Recompute) -> Choices {
        Choices {
            zero_stage,
            schedule: self.cut.schedule,
            virtual_stages: self.cut.virtual_stages,
            micro_batch,
            recompute,
            sequence_parallel: self.question.sequence_parallel(&self.shape.degrees),
        }
    }

    /// Bytes of parameters, gradients and optimizer on each of the stages that differ.
    fn states(&self, step: &mut TrainingStep<'a>, zero_stage: u8) -> Vec<u64> {
        if self.set(step, self.choices(zero_stage, 1, Recompute::None)).is_none() {
            return Vec::new();
        }
        self.differing.iter().map(|stage| MemoryChoices::default().state_bytes(step, *stage)).collect()
    }

    /// Bytes of everything else on each of them: activations, logits and buffers.
    fn activation_bytes(&self, step: &mut TrainingStep<'a>, choices: Choices) -> Vec<u64> {
        if self.set(step, choices).is_none() {
            return Vec::new();
        }
        self.differing.iter().map(|stage| MemoryChoices::default().stored_bytes(step, *stage)).collect()
    }

    /// Gives the step these choices; nothing for those that are not there, or whose groups of shards the layout does not have.
    fn set(&self, step: &mut TrainingStep<'a>, choices: Choices) -> Option<()> {
        let training = self.trainings.get(choices)?;
        let replica = self.question.global_batch / u64::from(self.shape.degrees.dp);
        (step.training, step.micro_batches) = (training, replica / choices.micro_batch);
        let has_groups = training.data.replicas_of_shards > 1 || training.data.secondary_shards.is_some();
        if has_groups {
            step.layout = with_replicas(&self.shape.orders[0].layout, training)?;
        }
        Some(())
    }
}

/// In order of stages, equal stages once: a later one never has more micro-batches in flight.
fn first_of_each_kind(question: &Question, cut: PipelineCut, stages: &Stages) -> Vec<u32> {
    if !matches!(cut.schedule, ScheduleKind::OneForwardOneBackward | ScheduleKind::Interleaved) {
        return (0..stages.count()).collect();
    }
    let model = question.model;
    let shape = |stage: u32| {
        let of_kind =
            |kind: &LayerKind| stages.layers_stored(stage).filter(|layer| kind.has(model.parts_of(*layer))).count();
        let layers: Vec<usize> = LayerKind::of_equal_layers(model).iter().map(of_kind).collect();
        (layers, stages.has_input(stage), stages.has_output(stage))
    };
    let mut known = Vec::new();
    let mut first = Vec::new();
    for stage in 0..stages.count() {
        let shape = shape(stage);
        if !known.contains(&shape) {
            known.push(shape);
            first.push(stage);
        }
    }
    first
}

/// The layout with its groups of shards, if they divide the replicas.
fn with_replicas(layout: &Layout, training: &Training) -> Option<Layout> {
    let groups = training.data.groups_of_shards(layout.group_size(Axis::DpCp)).ok()?;
    layout.clone().with_replicas_of_shards(groups).ok()
}

impl<'q> Question<'q> {
    /// The step of a shape in one of its orders.
    pub(super) fn step<'a>(
        &'a self,
        shape: &Shape,
        order: usize,
        training: &'a Training,
        stages: &Stages,
    ) -> TrainingStep<'a> {
        let plain = &shape.orders[order].layout;
        let layout = with_replicas(plain, training).unwrap_or_else(|| plain.clone());
        let replica = self.global_batch / u64::from(shape.degrees.dp);
        TrainingStep::of_checked_parts(self.model, training, layout, stages.clone(), replica / training.micro_batch)
    }
}
