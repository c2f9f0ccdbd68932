//! Prices of candidate layouts, and what several of them share: the calls of a layout in all orders of its axes, and
//! the price if every call takes equally long in two of them.

use super::question::Question;
use crate::planner::price::{PricedOnce, StepPrice};
use commgauge_model::workload::step::TrainingStep;
use rayon::prelude::*;
use std::collections::HashMap;

/// A layout apart from the order of its axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Candidate {
    pub unit: u32,
    pub zero_stage: u8,
}

/// Everything that was priced.
#[derive(Default)]
pub(super) struct Prices {
    /// By candidate; or why there is no price in any order.
    prepared: HashMap<Candidate, Prepared>,
}

/// What the orders of a candidate share, or why none has a price.
type Prepared = Result<PricedOnce, String>;

impl Prices {
    /// The seconds of steps, or why there are none. All orders of the axes of a candidate share what was prepared for the first, and
    /// candidates are priced on all processors. `with_step` calls its second argument with the step of its first.
    pub fn seconds<T: Copy + Send + Sync>(
        &mut self,
        question: &Question,
        all: Vec<T>,
        candidate: impl Fn(T) -> Candidate,
        with_step: impl Fn(&T, &mut dyn FnMut(&TrainingStep) -> Result<f64, String>) -> Result<f64, String> + Sync,
    ) -> Vec<(T, Result<f64, String>)> {
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

    /// The whole price of what has been priced in seconds.
    pub fn price(&self, question: &Question, candidate: Candidate, step: &TrainingStep) -> Option<StepPrice> {
        let prepared = self.prepared.get(&candidate)?.as_ref().ok()?;
        prepared.step.price(step, question.compute, question.rates, question.ranks_per_node).ok()
    }
}
