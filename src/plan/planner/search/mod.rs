//! The fastest layout: all legal ones are counted, those that do not fit into memory refused, and the best of the
//! others found without pricing them all.
//!
//! The search is best-first: a layout is queued with a lower bound of its time, first from computing alone, then with the waiting of its
//! layers in the best places, then in their own places, finally with its price. A layout that leaves the queue with a price is faster than
//! everything still queued, so the answer is the same as if every layout had been priced; a test checks that.

mod bound;
mod fitting;
mod question;
mod space;

#[cfg(test)]
mod tests;

pub use fitting::probabilities_faster;
pub use question::{Bases, CHOSEN_KEYS, Exchange, Only, Planned, Priced, Question, Results};

use crate::planner::memory::MemoryFit;
use crate::planner::price::FirstStageTimes;
use crate::planner::rates::Scaled;
use bound::{Bounds, LayerKey, OrderedShape};
use commgauge_base::units::Bytes;
use commgauge_model::config::Training;
use commgauge_model::config::step::ScheduleKind;
use commgauge_model::layout::Degrees;
use commgauge_model::workload::step::{Stages, TrainingStep};
use fitting::{Fitting, Memory, Prices, Queue, Stage, Unit, Waiting};
use question::{Choices, ZERO_STAGES, accepts};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use space::{Space, Trainings};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

/// Result of a search.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub considered: u64,
    /// Layouts that fit into memory, or are at its edge.
    pub feasible: u64,
    /// Those of them at the edge of the memory.
    pub at_the_edge: u64,
    /// Layouts priced individually, instead of skipped because they could not be better.
    pub priced: u64,
    /// Degrees that break a rule, by rule.
    pub illegal: Vec<(&'static str, u64)>,
    /// Reasons why layouts have no price, and how many.
    pub unpriced: Vec<(String, u64)>,
    /// The best layouts, best first; at most the requested number.
    pub best: Vec<Priced>,
    /// The layout that needs the least memory.
    pub nearest: Option<Planned>,
    /// The first reason for which a layout is illegal, in words, if none is legal.
    pub refused: Option<String>,
}

impl Found {
    /// Adds the results of another search.
    pub fn add(&mut self, other: Found) {
        self.considered = self.considered.saturating_add(other.considered);
        self.feasible = self.feasible.saturating_add(other.feasible);
        self.at_the_edge = self.at_the_edge.saturating_add(other.at_the_edge);
        self.priced += other.priced;
        self.unpriced.extend(other.unpriced);
        self.best.extend(other.best);
        self.nearest = self.nearest.take().or(other.nearest);
    }
}

/// The best layouts.
pub fn search(question: &Question) -> Found {
    let space = Space::of(question);
    let trainings = Trainings::of(question, &space);
    let mut fitting = Fitting::of(question, &space, &trainings, Memory::MustSuffice);
    if fitting.units.is_empty() && question.only.is_anything() {
        // A layout requested by name is priced whether or not it fits.
        fitting = Fitting::of(question, &space, &trainings, Memory::MayBeShort);
    }
    let mut found = Found {
        considered: fitting.considered,
        feasible: fitting.feasible,
        at_the_edge: fitting.at_the_edge,
        illegal: space.illegal.iter().map(|(rule, count)| (*rule, *count)).collect(),
        ..Found::default()
    };
    if found.considered == 0 {
        found.refused = space.refused.clone().or_else(|| refused(question, &space));
    }
    let search = Search { question, space: &space, trainings: &trainings, units: &fitting.units };
    found.nearest = fitting
        .nearest
        .as_ref()
        .map(|nearest| search.planned(&space.shapes[nearest.shape], 0, nearest.choices, nearest.bytes));
    search.best_first(&mut found);
    found
}

/// Steps whose times differ by less than this share cannot be told apart, however they are measured.
pub const ALIKE: f64 = 0.01;

/// Layouts of a family that are compared, at most.
const VARIANTS: usize = 24;

/// The best families of layouts, each as the plainest of its layouts among those that cannot be told apart from its fastest one. The
/// families follow in the order of their times, except that the plainest of those alike comes first. The fastest layout that surely fits is
/// always one of them, if need be beyond the wanted number.
pub fn families(question: &Question) -> Found {
    let mut found = search(&Question { results: Results::Families, ..question.clone() });
    found.best = found.best.par_iter().map(|fastest| plainest(question, fastest)).collect();
    // Of a family whose fastest layout is at the edge of the memory, the one that surely fits may come to the same plainest layout.
    let mut shown = HashSet::new();
    found.best.retain(|best| shown.insert(best.layout.name()));
    let Some(fastest) = found.best.first().map(|best| best.price.step_seconds) else { return found };
    let count = found.best.iter().take_while(|best| best.price.step_seconds <= fastest * (1.0 + ALIKE)).count();
    let first = (0..count).min_by_key(|index| found.best[*index].layout.plainness()).unwrap_or(0);
    found.best[..=first].rotate_right(1);
    found.best[1..].sort_by(|a, b| a.price.step_seconds.total_cmp(&b.price.step_seconds));
    found
}

/// The plainest layout among those of a family that cannot be told apart from its fastest one, with the others as variants.
fn plainest(question: &Question, fastest: &Priced) -> Priced {
    let Only { virtual_stages, schedule, micro_batch, .. } = question.only.clone();
    let only = Only { virtual_stages, schedule, micro_batch, ..fastest.layout.only() };
    let results = Results::LayoutsWithin(fastest.price.step_seconds * (1.0 + ALIKE));
    let mut alike = search(&Question { only, results, wanted: VARIANTS, ..question.clone() }).best;
    let plainest = (0..alike.len()).min_by_key(|index| alike[*index].layout.plainness());
    let mut plainest = plainest.map_or_else(|| fastest.clone(), |index| alike.remove(index));
    plainest.layout.variants = alike.iter().map(|other| other.layout.name()).collect();
    plainest
}

/// Why the first shape has no step.
fn refused(question: &Question, space: &Space) -> Option<String> {
    let order = space.shapes.first()?.orders.first()?;
    let stages = ZERO_STAGES.into_iter().filter(|stage| accepts(&question.only.zero_stage, stage));
    let refused = |stage: u8| {
        let training = question.bases.stage(stage)?;
        let divided = TrainingStep::divided(order.layout.clone(), training);
        let step = divided.and_then(|layout| {
            TrainingStep::without_messages(question.model, training, layout, training.places.table()).map(|_| ())
        });
        step.err().map(|error| error.to_string())
    };
    stages.filter_map(refused).next()
}

struct Search<'a> {
    question: &'a Question<'a>,
    space: &'a Space,
    trainings: &'a Trainings,
    units: &'a [Unit],
}

/// Layouts whose waiting in the best places is computed together, and layouts priced together, on all processors. The last of them may be
/// unnecessary.
const COMPUTED_AT_ONCE: usize = 512;

/// See [`COMPUTED_AT_ONCE`].
const PRICED_AT_ONCE: usize = 16;

impl Search<'_> {
    fn best_first(&self, found: &mut Found) {
        let mut bounds = Bounds::new(self.question, self.space);
        let mut prices = Prices::default();
        let mut unpriced: BTreeMap<String, u64> = BTreeMap::new();
        let mut queue = Queue::of(self.computing(&mut bounds));
        let mut wanted = self.question.wanted.max(1);
        let mut results: Vec<Waiting> = Vec::new();
        let mut families = HashSet::new();
        let mut has_sure = self.question.results != Results::Families || found.feasible == found.at_the_edge;
        let longest = match self.question.results {
            Results::LayoutsWithin(seconds) => seconds.to_bits(),
            Results::Layouts | Results::Families => u64::MAX,
        };
        while let Some(next) = queue.pop() {
            // Not earlier: other orders of the last one may take equally long.
            let all_found = results.len() >= wanted
                && results.last().is_some_and(|last| {
                    next.seconds_bits > last.seconds_bits || self.question.results == Results::Families
                });
            if all_found && has_sure || next.seconds_bits > longest {
                break;
            }
            let is_known = next.stage <= Stage::Counted && families.contains(&self.family(next));
            if (all_found || is_known) && (has_sure || !self.may_fit(next)) {
                continue;
            }
            match next.stage {
                Stage::Computes => {
                    let together = queue.with_following(next, COMPUTED_AT_ONCE);
                    self.add_divided(&together, &mut bounds, &mut queue);
                    self.add_with_more_recomputed(&together, &mut bounds, &mut queue);
                }
                Stage::Divided => self.add_waits(next, &mut bounds, &mut queue),
                Stage::Waits => self.add_counted(next, &mut bounds, &mut queue),
                Stage::Counted => {
                    let together = queue.with_following(next, PRICED_AT_ONCE);
                    for (next, seconds) in self.seconds(&mut prices, together) {
                        match seconds {
                            Ok(seconds) => {
                                found.priced += 1;
                                queue.push(next.at(seconds, Stage::Priced));
                            }
                            Err(reason) => {
                                *unpriced.entry(reason).or_default() +=
                                    self.shape(next).orders[next.order as usize].same_placement
                            }
                        }
                    }
                }
                Stage::Priced => match results.iter().rposition(|results| results.differs_in_order_only(next)) {
                    Some(place) => found.best[place].layout.orders_alike += self.layout(next).orders_alike,
                    None if results.len() >= wanted && has_sure => {}
                    None => {
                        let Some(training) = self.training(next) else { continue };
                        let step = self.step(next, &training);
                        let Some(price) = prices.price(self.question, next.candidate(), &step) else { continue };
                        let layout = self.layout(next);
                        has_sure |= layout.fit == MemoryFit::Fits;
                        wanted += usize::from(is_known);
                        found.best.push(Priced { layout, price });
                        results.push(next);
                        if self.question.results == Results::Families {
                            families.insert(self.family(next));
                        }
                    }
                },
            }
        }
        found.unpriced = unpriced.into_iter().collect();
        found.unpriced.sort_by_key(|(_, count)| Reverse(*count));
    }

    /// All units by their computing; of layouts that differ only in recomputation the cheapest.
    fn computing(&self, bounds: &mut Bounds) -> Vec<Waiting> {
        let is_first =
            |index: &u32| index.checked_sub(1).is_none_or(|before| self.with_more_recomputed(before).is_none());
        let firsts: Vec<u32> = (0..self.units.len() as u32).filter(is_first).collect();
        self.at_least_computing(firsts.into_iter().map(Waiting::to_compute).collect(), bounds)
    }

    /// Units with their minimum computing.
    fn at_least_computing(&self, mut units: Vec<Waiting>, bounds: &mut Bounds) -> Vec<Waiting> {
        bounds.layers.ask_work(self.question, units.iter().map(|next| self.layer_key(*next)));
        let known = &*bounds;
        units.par_iter_mut().for_each(|next| {
            let choices = self.units[next.unit as usize].choices;
            let seconds = known.computing(self.question, self.shape(*next), choices);
            *next = next.at(seconds.unwrap_or(0.0), Stage::Computes);
        });
        units
    }

    /// The unit that differs only in recomputing more.
    fn with_more_recomputed(&self, index: u32) -> Option<u32> {
        let (unit, next) = (&self.units[index as usize], self.units.get(index as usize + 1)?);
        unit.differs_in_recompute_only(next).then_some(index + 1)
    }

    /// Queues them once the layouts with less recomputation have left the queue: they are not faster.
    fn add_with_more_recomputed(&self, together: &[Waiting], bounds: &mut Bounds, queue: &mut Queue) {
        let more = |next: &Waiting| {
            let unit = self.with_more_recomputed(next.unit)?;
            Some(Waiting { seconds_bits: next.seconds_bits, ..Waiting::to_compute(unit) })
        };
        let more = together.iter().filter_map(more).collect();
        self.at_least_computing(more, bounds).into_iter().for_each(|next| queue.push(next));
    }

    /// Queues layouts whose computing is known, with the waiting of their layers in the best places and with the best exchange.
    fn add_divided(&self, together: &[Waiting], bounds: &mut Bounds, queue: &mut Queue) {
        let keys = together.iter().flat_map(|next| self.with_exchanges(*next)).map(|next| self.layer_key(next));
        bounds.layers.ask_nearest(self.question, keys.collect::<Vec<_>>().into_iter());
        let known = &*bounds;
        let divided = |next: &Waiting| {
            let mut exchanges = self.with_exchanges(*next).peekable();
            exchanges.peek()?;
            let seconds = |next| known.nearest(self.question, self.shape(next), self.choices(next));
            let least = exchanges.filter_map(seconds).min_by(f64::total_cmp);
            Some(next.at(least.unwrap_or(0.0), Stage::Divided))
        };
        let divided: Vec<Waiting> = together.par_iter().filter_map(divided).collect();
        divided.into_iter().for_each(|next| queue.push(next));
    }

    /// Queues a layout without known places, once per placement of the groups of its layers, with the exchange that is fastest there:
    /// nothing outside of the layers depends on it.
    fn add_waits(&self, next: Waiting, bounds: &mut Bounds, queue: &mut Queue) {
        let shape = self.shape(next);
        for (places, index) in shape.places.iter().zip(0..) {
            let mut seconds = |next: Waiting| {
                let busy = bounds.busy(self.question, shape, places, self.choices(next))?;
                let nothing_once = FirstStageTimes::default();
                Some(bounds.least(self.question, shape, self.choices(next), &busy, &nothing_once))
            };
            let waits = |next: Waiting| Some(Waiting { order: index, ..next }.at(seconds(next)?, Stage::Waits));
            let fastest = self.with_exchanges(next).filter_map(waits).min();
            queue.push(fastest.unwrap_or(Waiting { order: index, stage: Stage::Waits, ..next }));
        }
    }

    /// The same layout with each exchange to choose among.
    fn with_exchanges(&self, next: Waiting) -> impl Iterator<Item = Waiting> {
        let exchanges = self.question.exchanges_of(&self.shape(next).degrees, self.choices(next));
        exchanges.map(move |exchange| Waiting { exchange, ..next })
    }

    /// Queues a layout whose layers' waiting is known, by its orders and ZeRO stages.
    fn add_counted(&self, next: Waiting, bounds: &mut Bounds, queue: &mut Queue) {
        let (unit, shape) = (&self.units[next.unit as usize], self.shape(next));
        let (places, stages) = (&shape.places[next.order as usize], self.stages(next));
        let busy = bounds.busy(self.question, shape, places, self.choices(next));
        for zero_stage in ZERO_STAGES.into_iter().filter(|zero| unit.memory(*zero).is_some()) {
            let choices = self.choices(Waiting { zero_stage, ..next });
            for order in places.orders.iter().copied() {
                let ordered = OrderedShape { index: unit.shape, shape, order };
                let first = bounds.first_stage(self.question, ordered, choices, stages, self.trainings);
                let first = first.unwrap_or_default();
                let seconds = busy.as_ref().map(|busy| bounds.least(self.question, shape, choices, busy, &first));
                let counted = Waiting { order: order as u32, zero_stage, ..next };
                queue.push(counted.at(seconds.unwrap_or(0.0), Stage::Counted));
            }
        }
    }

    /// Whether a layout surely fits, or may with one of its ZeRO stages. Those that recompute more wait behind it until it is computed.
    fn may_fit(&self, next: Waiting) -> bool {
        let unit = &self.units[next.unit as usize];
        let fits = |zero: u8| unit.memory(zero).is_some_and(|parts| self.question.fit(parts) == MemoryFit::Fits);
        match next.stage {
            Stage::Computes => true,
            Stage::Divided | Stage::Waits => ZERO_STAGES.into_iter().any(fits),
            Stage::Counted | Stage::Priced => fits(next.zero_stage),
        }
    }

    fn shape(&self, next: Waiting) -> &space::Shape {
        &self.space.shapes[self.units[next.unit as usize].shape]
    }

    /// Degrees, schedule of one chunk on each rank, and whether parameters are sharded.
    fn family(&self, next: Waiting) -> (Degrees, ScheduleKind, bool) {
        let schedule = match self.units[next.unit as usize].choices.schedule {
            ScheduleKind::Interleaved => ScheduleKind::OneForwardOneBackward,
            other => other,
        };
        (self.shape(next).degrees, schedule, next.zero_stage == 3)
    }

    fn stages(&self, next: Waiting) -> &Stages {
        &self.space.stages[&self.units[next.unit as usize].choices.cut(self.shape(next).degrees.pp)]
    }

    fn layout(&self, next: Waiting) -> Planned {
        let memory = self.units[next.unit as usize].memory(next.zero_stage).unwrap_or(0);
        self.planned(self.shape(next), next.order as usize, self.choices(next), memory)
    }

    /// The prices of consecutive layouts, or why they have none.
    fn seconds(&self, prices: &mut Prices, together: Vec<Waiting>) -> Vec<(Waiting, Result<f64, String>)> {
        prices.seconds(self.question, together, Waiting::candidate, |next, price| {
            let training = self.training(*next).ok_or("a ZeRO stage that does not exist")?;
            price(&self.step(*next, &training))
        })
    }

    fn layer_key(&self, next: Waiting) -> LayerKey {
        LayerKey::of(self.shape(next), self.choices(next))
    }

    fn training(&self, next: Waiting) -> Option<Training> {
        self.trainings.get(self.choices(next))
    }

    fn step<'s>(&'s self, next: Waiting, training: &'s Training) -> TrainingStep<'s> {
        self.question.step(self.shape(next), next.order as usize, training, self.stages(next))
    }

    fn choices(&self, next: Waiting) -> Choices {
        let exchange = self.question.bases.exchanges[usize::from(next.exchange)];
        Choices { zero_stage: next.zero_stage, exchange, ..self.units[next.unit as usize].choices }
    }

    fn planned(&self, shape: &space::Shape, order: usize, choices: Choices, bytes: u64) -> Planned {
        let order = &shape.orders[order];
        let replica = self.question.global_batch / u64::from(shape.degrees.dp);
        let pipeline = self.question.pipeline(choices.cut(shape.degrees.pp));
        let memory = self.question.need(bytes);
        Planned {
            degrees: shape.degrees,
            schedule: choices.schedule,
            stage_layers: pipeline.stage_layers,
            virtual_stages: choices.virtual_stages,
            zero_stage: choices.zero_stage,
            micro_batch: choices.micro_batch,
            micro_batches: replica / choices.micro_batch.max(1),
            recompute: choices.recompute,
            exchange: (shape.degrees.ep > 1).then_some(choices.exchange),
            order: order.layout.order_name(),
            orders_alike: order.same_placement,
            memory,
            fit: memory.fit(self.question.gpu_memory),
            variants: Vec::new(),
        }
    }
}

// Further results: the fastest layouts for decreasing memory, and the choices of other machines.

/// Each layout of a Pareto list needs at most this share of the memory of the one before.
const LESS_MEMORY: f64 = 0.95;

/// The fastest layout, the fastest that needs less memory, and so on; at most the requested number.
pub fn pareto(question: &Question) -> Found {
    let mut smaller = Question { wanted: 1, ..question.clone() };
    let mut found = search(&smaller);
    while let Some(last) = found.best.last().filter(|last| last.layout.may_run()) {
        smaller.gpu_memory = Bytes((LESS_MEMORY * last.layout.memory.low.0 as f64) as u64);
        if found.best.len() >= question.wanted {
            break;
        }
        match search(&smaller).best.pop().filter(|next| next.layout.may_run()) {
            Some(mut next) => {
                next.layout.fit = next.layout.memory.fit(question.gpu_memory);
                found.best.push(next);
            }
            None => break,
        }
    }
    found
}

/// Drops every layout that another one beats, or equals, in time, memory and GPUs alike; ordered by time.
pub fn not_beaten(mut all: Vec<Priced>) -> Vec<Priced> {
    all.sort_by(|a, b| a.price.step_seconds.total_cmp(&b.price.step_seconds));
    let mut kept: Vec<Priced> = Vec::new();
    for one in all {
        let beaten = kept.iter().any(|other| {
            other.layout.memory.middle <= one.layout.memory.middle
                && other.layout.degrees.world() <= one.layout.degrees.world()
        });
        if !beaten {
            kept.push(one);
        }
    }
    kept
}

/// A machine that differs in one property, and its choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIf {
    /// The difference.
    pub change: String,
    /// The layout that is then the fastest, in the syntax of `--only`; absent if none fits.
    pub layout: Option<String>,
    /// Its step.
    pub step_seconds: Option<f64>,
    /// The step of the current choice on that machine; absent if it does not fit.
    pub todays_step_seconds: Option<f64>,
    /// Whether the current choice is as fast.
    pub same_choice: bool,
}

struct Change {
    name: &'static str,
    within: f64,
    between: f64,
    memory: f64,
}

const CHANGES: [Change; 6] = [
    Change { name: "links within a node half as fast", within: 2.0, between: 1.0, memory: 1.0 },
    Change { name: "links within a node twice as fast", within: 0.5, between: 1.0, memory: 1.0 },
    Change { name: "links between nodes half as fast", within: 1.0, between: 2.0, memory: 1.0 },
    Change { name: "links between nodes twice as fast", within: 1.0, between: 0.5, memory: 1.0 },
    Change { name: "three quarters of the memory", within: 1.0, between: 1.0, memory: 0.75 },
    Change { name: "half as much memory again", within: 1.0, between: 1.0, memory: 1.5 },
];

/// The choices of other machines; `best` is the current choice.
pub fn what_if(question: &Question, best: &Priced) -> Vec<WhatIf> {
    let of = |change: &Change| {
        let rates = Scaled { rates: question.rates, within: change.within, between: change.between };
        let memory = Bytes((change.memory * question.gpu_memory.0 as f64) as u64);
        let other = Question { rates: &rates, gpu_memory: memory, wanted: 1, ..question.clone() };
        let then = families(&other).best.into_iter().next().filter(|then| then.layout.may_run());
        let today = Question { only: best.layout.only(), ..other.clone() };
        let today = search(&today).best.pop().filter(|today| today.layout.may_run());
        let today = today.map(|today| today.price.step_seconds);
        let step_seconds = then.as_ref().map(|then| then.price.step_seconds);
        WhatIf {
            change: change.name.to_owned(),
            layout: then.map(|then| then.layout.name()),
            step_seconds,
            todays_step_seconds: today,
            same_choice: step_seconds.zip(today).is_some_and(|(then, today)| today <= then),
        }
    };
    CHANGES.iter().map(of).collect()
}
