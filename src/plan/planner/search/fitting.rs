//! Which layouts fit into memory, and how far the others are from it.
//!
//! State (parameters, gradients, optimizer) depends on the ZeRO stage, activations on the micro-batch and on
//! recomputation, so each is computed once and every pair is a sum.

use super::question::{Choices, PipelineCut, Planned, Question, accepts};
use super::space::{Shape, Space, Trainings, divisors};
use crate::planner::memory::{MemoryFit, MicroBatches, SampleBytes, chunks_in_flight};
use crate::planner::price::{PreparedStep, PricedOnce, StepPrice};
use commgauge_base::error::{Error, Result};
use commgauge_model::config::Training;
use commgauge_model::config::step::{GradientAccumulation, Recompute, ScheduleKind};
use commgauge_model::layout::Layout;
use commgauge_model::workload::op::LayerKind;
use commgauge_model::workload::step::{Stages, TrainingStep};
use rayon::prelude::*;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// The choices of recomputation, the cheapest first.
const RECOMPUTE: [Recompute; 3] = [Recompute::None, Recompute::Selective, Recompute::Full];

/// A layout without its ZeRO stage and the order of its axes.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub shape: usize,
    /// Its other choices, with the lowest ZeRO stage.
    pub choices: Choices,
    /// Bytes of the fullest rank for each ZeRO stage to price, and [`Unit::NOT_PRICED`] for the others: there are very many units.
    memory: [u64; 4],
}

impl Unit {
    const NOT_PRICED: u64 = u64::MAX;

    /// Bytes of the fullest rank with a ZeRO stage, if it is to be priced.
    pub fn memory(&self, zero_stage: u8) -> Option<u64> {
        self.memory.get(usize::from(zero_stage)).copied().filter(|bytes| *bytes != Unit::NOT_PRICED)
    }

    /// Whether two are equal except for recomputation.
    pub fn differs_in_recompute_only(&self, other: &Unit) -> bool {
        let all = |unit: &Unit| (unit.shape, Choices { recompute: Recompute::None, ..unit.choices });
        all(self) == all(other)
    }
}

/// The layout that misses the limit by least.
#[derive(Clone, Debug)]
pub(super) struct Nearest {
    pub shape: usize,
    pub choices: Choices,
    pub bytes: u64,
}

/// Whether layouts that exceed the memory are dropped.
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
    pub at_the_edge: u64,
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

    /// Adds the result of a later shape.
    fn and(mut self, later: Fitting) -> Fitting {
        self.considered = self.considered.saturating_add(later.considered);
        self.feasible = self.feasible.saturating_add(later.feasible);
        self.at_the_edge = self.at_the_edge.saturating_add(later.at_the_edge);
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
    /// The stages that differ in memory.
    differing: &'a [u32],
    memory: Memory,
}

impl<'a> Context<'a> {
    fn add(&self, fitting: &mut Fitting) {
        let Some(mut step) = self.first_step() else { return };
        let only = &self.question.only;
        let sharing = u64::from(self.shape.degrees.dp) * u64::from(self.shape.degrees.cp);
        let all = self.question.bases.stages(sharing).filter(|zero| accepts(&only.zero_stage, zero));
        let zeros: Vec<u8> = all.filter(|zero| self.allows_zero(&mut step, *zero)).collect();
        let Some(lowest) = zeros.first().copied() else { return };
        let states: Vec<Vec<u64>> = zeros.iter().map(|zero| self.states(&mut step, *zero, 1)).collect();
        let recomputes = RECOMPUTE.into_iter().filter(|what| accepts(&only.recompute, what));
        let samples: Vec<(Recompute, Vec<SampleBytes>)> =
            recomputes.map(|what| (what, self.sample_bytes(&mut step, lowest, what))).collect();
        let varies = zeros.iter().any(|zero| self.depends_on_micro_batches(*zero));
        let mut full = false;
        let replica = self.replica();
        for micro_batch in divisors(replica) {
            if !accepts(&only.micro_batch, &micro_batch) || !self.goes_with(replica / micro_batch) {
                continue;
            }
            let count = (zeros.len() * samples.len()) as u64 * self.shape.orders_legal;
            fitting.considered = fitting.considered.saturating_add(count);
            // A larger micro-batch never needs less, unless whole gradients are no longer accumulated.
            if full {
                continue;
            }
            let again = |step: &mut TrainingStep<'a>, zero: u8| self.states(step, zero, micro_batch);
            let states: Vec<Cow<[u64]>> = zeros
                .iter()
                .zip(&states)
                .map(|(zero, states)| match self.depends_on_micro_batches(*zero) {
                    true => Cow::Owned(again(&mut step, *zero)),
                    false => Cow::Borrowed(states.as_slice()),
                })
                .collect();
            let in_flight = self.in_flight(&mut step, lowest, micro_batch);
            let fits = samples.iter().map(|(recompute, samples)| {
                let stored: Vec<u64> =
                    samples.iter().zip(&in_flight).map(|(sample, in_flight)| sample.total(*in_flight)).collect();
                let choices = self.choices(lowest, micro_batch, *recompute);
                self.add_unit(
                    fitting,
                    choices,
                    zeros.iter().zip(&states).map(|(zero, state)| (*zero, &state[..])),
                    &stored,
                )
            });
            let any_fits = fits.fold(false, |any, fits| any | fits);
            full = self.memory == Memory::MustSuffice && !any_fits && !varies;
        }
    }

    /// Adds the layout of these choices with each ZeRO stage that fits, or may exceed the memory. Returns whether any fits.
    fn add_unit<'s>(
        &self,
        fitting: &mut Fitting,
        choices: Choices,
        states: impl Iterator<Item = (u8, &'s [u64])>,
        stored: &[u64],
    ) -> bool {
        let mut unit = Unit { shape: self.index, choices, memory: [Unit::NOT_PRICED; 4] };
        let mut any_fits = false;
        for (zero, state) in states {
            let of_stages = state.iter().zip(stored).map(|(state, stored)| state.saturating_add(*stored));
            let bytes = of_stages.max().unwrap_or(0);
            let fit = self.question.fit(bytes);
            let fits = fit != MemoryFit::DoesNotFit;
            let counted = |counted: bool| if counted { self.shape.orders_legal } else { 0 };
            fitting.feasible = fitting.feasible.saturating_add(counted(fits));
            fitting.at_the_edge = fitting.at_the_edge.saturating_add(counted(fit == MemoryFit::AtTheEdge));
            any_fits |= fits;
            if fits || self.memory == Memory::MayBeShort {
                unit.memory[usize::from(zero)] = bytes.min(Unit::NOT_PRICED - 1);
            }
            if fitting.nearest.as_ref().is_none_or(|nearest| bytes < nearest.bytes) {
                let choices = Choices { zero_stage: zero, ..choices };
                fitting.nearest = Some(Nearest { shape: self.index, choices, bytes });
            }
        }
        if unit.memory != [Unit::NOT_PRICED; 4] {
            fitting.units.push(unit);
        }
        any_fits
    }

    fn replica(&self) -> u64 {
        self.question.global_batch / u64::from(self.shape.degrees.dp)
    }

    /// Whether the schedule allows this many micro-batches.
    fn goes_with(&self, micro_batches: u64) -> bool {
        let PipelineCut { pp, schedule, virtual_stages } = self.cut;
        let micro_batches = u32::try_from(micro_batches).unwrap_or(u32::MAX);
        pp == 1 || schedule.check_rules(pp, virtual_stages, micro_batches).is_ok()
    }

    /// A step with the lowest accepted ZeRO stage.
    fn first_step(&self) -> Option<TrainingStep<'a>> {
        let sharing = u64::from(self.shape.degrees.dp) * u64::from(self.shape.degrees.cp);
        let accepted = |zero: &u8| accepts(&self.question.only.zero_stage, zero);
        let zero = self.question.bases.stages(sharing).find(accepted)?;
        let training = self.trainings.of_one_sample(self.choices(zero, 1, Recompute::None))?;
        Some(self.question.step(self.shape, 0, training, self.stages))
    }

    /// Whether a ZeRO stage is compatible with the layout and the schedule. Leaves the step with the training of that stage, in its groups
    /// of shards.
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
            exchange: self.question.bases.own_exchange(),
        }
    }

    /// Bytes of parameters, gradients and optimizer on each distinct stage.
    fn states(&self, step: &mut TrainingStep<'a>, zero_stage: u8, micro_batch: u64) -> Vec<u64> {
        if self.set(step, self.choices(zero_stage, micro_batch, Recompute::None)).is_none() {
            return Vec::new();
        }
        self.differing.iter().map(|stage| self.question.compute.kernels.state_bytes(step, *stage)).collect()
    }

    /// Whether these bytes depend on the number of micro-batches: whole gradients are accumulated over several.
    fn depends_on_micro_batches(&self, zero_stage: u8) -> bool {
        let training = self.question.bases.stage(zero_stage);
        training.is_some_and(|training| training.data.gradient_accumulation != GradientAccumulation::Sharded)
    }

    /// Additional need of each sample: activations, logits and buffers.
    fn sample_bytes(&self, step: &mut TrainingStep<'a>, zero_stage: u8, recompute: Recompute) -> Vec<SampleBytes> {
        if self.set(step, self.choices(zero_stage, 1, recompute)).is_none() {
            return Vec::new();
        }
        self.differing.iter().map(|stage| self.question.compute.kernels.sample_bytes(step, *stage)).collect()
    }

    /// The micro-batches in flight on each of them.
    fn in_flight(&self, step: &mut TrainingStep<'a>, zero_stage: u8, micro_batch: u64) -> Vec<MicroBatches> {
        if self.set(step, self.choices(zero_stage, micro_batch, Recompute::None)).is_none() {
            return Vec::new();
        }
        let of_stage = |stage: &u32| MicroBatches {
            samples: micro_batch,
            count: step.micro_batches,
            chunks_in_flight: chunks_in_flight(step, *stage),
        };
        self.differing.iter().map(of_stage).collect()
    }

    /// Gives the step these choices; `None` for choices that do not exist, or groups of shards that the layout lacks.
    fn set(&self, step: &mut TrainingStep<'a>, choices: Choices) -> Option<()> {
        let training = self.trainings.of_one_sample(choices)?;
        let replica = self.question.global_batch / u64::from(self.shape.degrees.dp);
        (step.training, step.micro_batches) = (training, replica / choices.micro_batch);
        if training.data.shards.are_divided() {
            step.layout = TrainingStep::divided(self.shape.orders[0].layout.clone(), training).ok()?;
        }
        Some(())
    }
}

/// In stage order, equal stages once: a later one never has more micro-batches in flight.
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

impl<'q> Question<'q> {
    /// A layout with the groups of a training; as it is where they do not divide it, and the memory of the step refuses it.
    pub(super) fn divided(&self, layout: &Layout, training: &Training) -> Layout {
        TrainingStep::divided(layout.clone(), training).unwrap_or_else(|_| layout.clone())
    }

    /// The step of a shape in one of its orders.
    pub(super) fn step<'a>(
        &'a self,
        shape: &Shape,
        order: usize,
        training: &'a Training,
        stages: &Stages,
    ) -> TrainingStep<'a> {
        let layout = self.divided(&shape.orders[order].layout, training);
        let replica = self.global_batch / u64::from(shape.degrees.dp);
        TrainingStep::of_checked_parts(self.model, training, layout, stages.clone(), replica / training.micro_batch)
    }
}

// Prices of candidate layouts, and their shared parts: the calls of a layout in all orders of its axes, and the price if every call takes
// equally long in two of them.

/// A layout apart from the order of its axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Candidate {
    pub unit: u32,
    pub zero_stage: u8,
    pub exchange: u8,
}

/// Everything priced.
#[derive(Default)]
pub(super) struct Prices {
    /// By candidate; or why it has no price in any order.
    prepared: HashMap<Candidate, Prepared>,
}

/// The shared data of a candidate's orders, or why none has a price.
type Prepared = std::result::Result<PricedOnce, String>;

impl Prices {
    /// The seconds of steps, or why there are none. All orders of the axes of a candidate share the preparation of the first, and
    /// candidates are priced on all processors. `with_step` calls its second argument with the step of its first.
    pub fn seconds<T: Copy + Send + Sync>(
        &mut self,
        question: &Question,
        all: Vec<T>,
        candidate: impl Fn(T) -> Candidate,
        with_step: impl Fn(
            &T,
            &mut dyn FnMut(&TrainingStep) -> std::result::Result<f64, String>,
        ) -> std::result::Result<f64, String>
        + Sync,
    ) -> Vec<(T, std::result::Result<f64, String>)> {
        let mut by_candidate: Vec<(Candidate, Option<Prepared>, Vec<T>)> = Vec::new();
        for one in all {
            let candidate = candidate(one);
            match by_candidate.iter_mut().find(|(known, ..)| *known == candidate) {
                Some((.., orders)) => orders.push(one),
                None => by_candidate.push((candidate, self.prepared.remove(&candidate), vec![one])),
            }
        }
        let price = |(candidate, mut prepared, orders): (Candidate, Option<Prepared>, Vec<T>)| {
            let mut price = |step: &TrainingStep| {
                let prepared = prepared.get_or_insert_with(|| {
                    PricedOnce::new(step, question.compute).map_err(|unpriced| unpriced.to_string())
                });
                let prepared = prepared.as_mut().map_err(|reason| reason.clone())?;
                let seconds = prepared.seconds(step, question.rates, question.ranks_per_node);
                seconds.map_err(|unpriced| unpriced.reason)
            };
            let seconds: Vec<_> = orders.into_iter().map(|order| (order, with_step(&order, &mut price))).collect();
            (candidate, prepared, seconds)
        };
        let priced: Vec<_> = by_candidate.into_par_iter().map(price).collect();
        let mut found = Vec::new();
        for (candidate, prepared, seconds) in priced {
            self.prepared.extend(prepared.map(|prepared| (candidate, prepared)));
            found.extend(seconds);
        }
        found
    }

    /// The whole price of a layout already priced in seconds.
    pub fn price(&self, question: &Question, candidate: Candidate, step: &TrainingStep) -> Option<StepPrice> {
        let prepared = self.prepared.get(&candidate)?.as_ref().ok()?;
        prepared.step.price(step, question.pricing()).ok()
    }
}

// Queued layouts, the one with the lowest bound first.

/// An entry of the queue, ordered by its lower bound in seconds; among equals the one nearer to a price first, then by enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiting {
    /// Positive floats are ordered by their bits.
    pub seconds_bits: u64,
    pub stage: Stage,
    pub unit: u32,
    /// The places of the shape, or its orders once distinguished.
    pub order: u32,
    pub zero_stage: u8,
    /// Its place among the exchanges of the question.
    pub exchange: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Priced,
    Counted,
    Waits,
    Divided,
    Computes,
}

impl Waiting {
    /// A unit without known bounds.
    pub fn to_compute(unit: u32) -> Waiting {
        Waiting { seconds_bits: 0, stage: Stage::Computes, unit, order: 0, zero_stage: 0, exchange: 0 }
    }

    pub fn candidate(self) -> Candidate {
        Candidate { unit: self.unit, zero_stage: self.zero_stage, exchange: self.exchange }
    }

    /// Whether both are one layout that takes equally long in either order of its axes.
    pub fn differs_in_order_only(self, other: Waiting) -> bool {
        (self.seconds_bits, self.candidate()) == (other.seconds_bits, other.candidate())
    }

    /// With a higher lower bound; never lower than before.
    pub fn at(self, seconds: f64, stage: Stage) -> Waiting {
        let known = if stage == Stage::Priced { 0 } else { self.seconds_bits };
        Waiting { seconds_bits: seconds.max(0.0).to_bits().max(known), stage, ..self }
    }
}

/// The queue: one per stage, so that layouts of one stage can be taken together.
pub(super) struct Queue([BinaryHeap<Reverse<Waiting>>; 5]);

impl Queue {
    /// Layouts that are all at the stage of the first.
    pub fn of(first: Vec<Waiting>) -> Queue {
        let mut queue = Queue(Default::default());
        if let Some(stage) = first.first().map(|first| first.stage) {
            queue.0[stage as usize] = first.into_iter().map(Reverse).collect();
        }
        queue
    }

    pub fn push(&mut self, waiting: Waiting) {
        self.0[waiting.stage as usize].push(Reverse(waiting));
    }

    /// The first of all.
    pub fn pop(&mut self) -> Option<Waiting> {
        let first = self.0.iter().filter_map(|queue| queue.peek()).max().map(|Reverse(first)| first.stage)?;
        self.0[first as usize].pop().map(|Reverse(first)| first)
    }

    /// One that left the queue, and the next ones of its stage, `most` in total.
    pub fn with_following(&mut self, next: Waiting, most: usize) -> Vec<Waiting> {
        let mut together = vec![next];
        let queue = &mut self.0[next.stage as usize];
        while together.len() < most
            && let Some(Reverse(following)) = queue.pop()
        {
            together.push(following);
        }
        together
    }
}

// The probability that one layout is faster than another.

/// Draws of both layouts.
const DRAWS: u32 = 100;

/// The share of draws in which the first layout is faster than each other: calls vary by the known error of similar predictions, and each
/// step by that of published steps; `None` if a call has no time.
///
/// # Errors
/// If a layout does not fit the question.
pub fn probabilities_faster(question: &Question, first: &Planned, others: &[&Planned]) -> Result<Vec<Option<f64>>> {
    let first = draws(question, first)?;
    let compared = |other: &&Planned| -> Result<Option<f64>> {
        let Some((first, other)) = first.as_ref().zip(draws(question, other)?) else { return Ok(None) };
        let sum: f64 = first.iter().zip(&other).map(|(a, b)| question.compute.error.probability_faster(*a, *b)).sum();
        Ok(Some(sum / first.len().max(1) as f64))
    };
    others.par_iter().map(compared).collect()
}

fn draws(question: &Question, planned: &Planned) -> Result<Option<Vec<f64>>> {
    question.with_step(planned, |step| {
        let prepared = PreparedStep::new(step).map_err(|unpriced| Error::usage(unpriced.to_string()))?;
        Ok(prepared.draws(step, question.pricing(), DRAWS))
    })
}
