//! Which layout is fastest: all legal ones are counted, those that do not fit into memory refused, and of the others the best
//! found without pricing them all.
//!
//! The search is best-first: a layout waits in the queue with a time that it cannot beat, first of computing alone, then with
//! what its layers wait for, at last with its price. What comes out with a price is faster than everything that is still
//! waiting, so the answer is the same as if every layout had been priced; a test holds that.

mod bound;
mod certainty;
mod fitting;
mod question;
mod space;
#[cfg(test)]
mod tests;
mod trainings;

pub use certainty::probability_faster;
pub use question::{Only, Question};

use crate::config::step::Recompute;
use crate::layout::Degrees;
use crate::planner::price::{PreparedStep, Pricer, StepPrice, Unpriced};
use crate::units::Bytes;
use bound::Bounds;
use fitting::{Fitting, Unit};
use space::{Choices, Space};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use trainings::Trainings;

/// A layout, completely.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Its degrees.
    pub degrees: Degrees,
    /// Chunks on each rank.
    pub virtual_stages: u32,
    /// 0 to 3; 3 is FSDP.
    pub zero_stage: u8,
    /// Samples of a micro-batch.
    pub micro_batch: u64,
    /// Micro-batches of a replica in a step.
    pub micro_batches: u64,
    /// What is computed again.
    pub recompute: Recompute,
    /// Axes, the fastest varying first, such as `tp-cp-ep-dp-pp`.
    pub order: String,
    /// Orders of the axes in which every group lies just so, this one included.
    pub orders_alike: u64,
    /// What the fullest GPU holds.
    pub memory: Bytes,
    /// Whether that is within the limit.
    pub fits: bool,
}

/// A layout and what its step takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Priced {
    /// The layout.
    pub layout: Planned,
    /// Its price.
    pub price: StepPrice,
}

/// What a search found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Legal layouts.
    pub considered: u64,
    /// Those that fit into memory.
    pub feasible: u64,
    /// Layouts that were priced one by one, rather than passed over because they could not be better.
    pub priced: u64,
    /// Degrees that break a rule, by rule.
    pub illegal: Vec<(&'static str, u64)>,
    /// Why layouts that came up have no price, and how many.
    pub unpriced: Vec<(String, u64)>,
    /// The best, best first; at most as many as were wanted.
    pub best: Vec<Priced>,
    /// The layout that needs least memory.
    pub nearest: Option<Planned>,
}

/// The best layouts.
pub fn search(question: &Question) -> Found {
    let space = Space::of(question);
    let trainings = Trainings::of(question, &space);
    let mut fitting = Fitting::of(question, &space, &trainings, false);
    if fitting.units.is_empty() && question.only.is_anything() {
        // A layout that is asked for by name gets its price whether it fits or not.
        fitting = Fitting { ..Fitting::of(question, &space, &trainings, true) };
    }
    let mut found = Found {
        considered: fitting.considered,
        feasible: fitting.feasible,
        illegal: space.illegal.iter().map(|(rule, count)| (*rule, *count)).collect(),
        ..Found::default()
    };
    let search = Search { question, space: &space, trainings: &trainings, units: &fitting.units };
    found.nearest = fitting
        .nearest
        .as_ref()
        .map(|nearest| search.planned(&space.shapes[nearest.shape], 0, nearest.choices, nearest.bytes));
    search.best_first(&mut found);
    found
}

struct Search<'a> {
    question: &'a Question<'a>,
    space: &'a Space,
    trainings: &'a Trainings,
    units: &'a [Unit],
}

/// What waits in the queue, by the seconds that it cannot beat; of equals the one nearer to a price first, then in the order of
/// enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    /// Positive numbers are in the order of their bits.
    seconds_bits: u64,
    stage: Stage,
    unit: usize,
    order: usize,
    zero_stage: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Priced,
    Waits,
    Computes,
}

impl Search<'_> {
    fn best_first(&self, found: &mut Found) {
        let mut bounds = Bounds::new(self.question);
        let mut prices: HashMap<(usize, usize, usize), Priced> = HashMap::new();
        let mut prepared: HashMap<(usize, usize), Result<PreparedStep, Unpriced>> = HashMap::new();
        let mut unpriced: BTreeMap<String, u64> = BTreeMap::new();
        let pricer = Pricer::default();
        let mut queue: BinaryHeap<Reverse<Waiting>> = BinaryHeap::new();
        for (index, unit) in self.units.iter().enumerate() {
            let (shape, choices) = (&self.space.shapes[unit.shape], self.choices(unit, 0));
            let stages = &self.space.stages[&(shape.degrees.pp, unit.virtual_stages)];
            let seconds = bounds.computing(self.question, shape, choices, stages).unwrap_or(0.0);
            queue.push(waiting(seconds, Stage::Computes, index, 0, 0));
        }
        while let Some(Reverse(next)) = queue.pop() {
            let unit = &self.units[next.unit];
            let shape = &self.space.shapes[unit.shape];
            let zeros = (0..4).filter(|zero| unit.memory[*zero].is_some());
            match next.stage {
                Stage::Computes => {
                    let stages = &self.space.stages[&(shape.degrees.pp, unit.virtual_stages)];
                    for order in 0..shape.orders.len() {
                        let choices = self.choices(unit, 0);
                        let own = f64::from_bits(next.seconds_bits);
                        let seconds = bounds.waiting(self.question, (shape, order), choices, stages).unwrap_or(own);
                        for zero in zeros.clone() {
                            queue.push(waiting(seconds.max(own), Stage::Waits, next.unit, order, zero));
                        }
                    }
                }
                Stage::Waits => {
                    let key = (next.unit, next.zero_stage);
                    match self.price(next, &pricer, prepared.entry(key)) {
                        Ok(price) => {
                            found.priced += 1;
                            let seconds = price.price.step_seconds;
                            prices.insert((next.unit, next.order, next.zero_stage), price);
                            queue.push(waiting(seconds, Stage::Priced, next.unit, next.order, next.zero_stage));
                        }
                        Err(reason) => *unpriced.entry(reason).or_default() += shape.orders[next.order].alike,
                    }
                }
                Stage::Priced => {
                    found.best.extend(prices.remove(&(next.unit, next.order, next.zero_stage)));
                    if found.best.len() >= self.question.wanted.max(1) {
                        break;
                    }
                }
            }
        }
        found.unpriced = unpriced.into_iter().collect();
        found.unpriced.sort_by_key(|(_, count)| Reverse(*count));
    }

    fn price(
        &self,
        next: Waiting,
        pricer: &Pricer,
        prepared: std::collections::hash_map::Entry<(usize, usize), Result<PreparedStep, Unpriced>>,
    ) -> Result<Priced, String> {
        let unit = &self.units[next.unit];
        let shape = &self.space.shapes[unit.shape];
        let choices = self.choices(unit, next.zero_stage as u8);
        let stages = &self.space.stages[&(shape.degrees.pp, unit.virtual_stages)];
        let training = self.trainings.get(choices).ok_or("a micro-batch that divides no batch")?;
        let step = self.question.step(shape, next.order, training, stages);
        let prepared = prepared.or_insert_with(|| PreparedStep::new(&step));
        let prepared = prepared.as_ref().map_err(ToString::to_string)?;
        let question = self.question;
        let price = pricer
            .price(prepared, &step, question.compute, question.rates, question.ranks_per_node)
            .map_err(|unpriced| unpriced.reason)?;
        if let Some(ground) = price.untrusted.first().filter(|_| !question.allow_untrusted) {
            return Err(format!("not to be trusted, its held-out error is over 10 %: {ground}"));
        }
        let memory = unit.memory[next.zero_stage].unwrap_or(0);
        Ok(Priced { layout: self.planned(shape, next.order, choices, memory), price })
    }

    fn choices(&self, unit: &Unit, zero_stage: u8) -> Choices {
        Choices {
            zero_stage,
            virtual_stages: unit.virtual_stages,
            micro_batch: unit.micro_batch,
            recompute: unit.recompute,
            sequence_parallel: self.question.sequence_parallel(&self.space.shapes[unit.shape].degrees),
        }
    }

    fn planned(&self, shape: &space::Shape, order: usize, choices: Choices, bytes: u64) -> Planned {
        let order = &shape.orders[order];
        let replica = self.question.global_batch / u64::from(shape.degrees.dp);
        Planned {
            degrees: shape.degrees,
            virtual_stages: choices.virtual_stages,
            zero_stage: choices.zero_stage,
            micro_batch: choices.micro_batch,
            micro_batches: replica / choices.micro_batch.max(1),
            recompute: choices.recompute,
            order: order.layout.order_name(),
            orders_alike: order.alike,
            memory: Bytes(bytes),
            fits: bytes <= self.question.gpu_memory.0,
        }
    }
}

fn waiting(seconds: f64, stage: Stage, unit: usize, order: usize, zero_stage: usize) -> Reverse<Waiting> {
    Reverse(Waiting { seconds_bits: seconds.max(0.0).to_bits(), stage, unit, order, zero_stage })
}
