//! Prices of candidate layouts, and what several of them share: the calls of a layout in all orders of its axes, and
//! the price if every call takes equally long in two of them.

use super::question::Question;
use crate::planner::price::{PricedOnce, Pricer, StepPrice, UntrustedCurves};
use commgauge_model::workload::step::TrainingStep;
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
    pricer: Pricer,
    /// By candidate; or why there is no price in any order.
    prepared: HashMap<Candidate, Result<PricedOnce, String>>,
}

impl Prices {
    /// The seconds of a step, or why there are none. All orders of the axes of a candidate share what was prepared for the first.
    pub fn seconds(&mut self, question: &Question, candidate: Candidate, step: &TrainingStep) -> Result<f64, String> {
        let prepared = self
            .prepared
            .entry(candidate)
            .or_insert_with(|| PricedOnce::new(step, question.compute).map_err(|unpriced| unpriced.to_string()));
        let prepared = prepared.as_mut().map_err(|reason| reason.clone())?;
        let untrusted = if question.allow_untrusted { UntrustedCurves::Allowed } else { UntrustedCurves::Refused };
        let seconds = self.pricer.step_seconds(prepared, step, question.rates, question.ranks_per_node, untrusted);
        seconds.map_err(|unpriced| unpriced.reason)
    }

    /// The whole price of what has been priced in seconds.
    pub fn price(&self, question: &Question, candidate: Candidate, step: &TrainingStep) -> Option<StepPrice> {
        let prepared = self.prepared.get(&candidate)?.as_ref().ok()?;
        self.pricer.price(&prepared.step, step, question.compute, question.rates, question.ranks_per_node).ok()
    }
}
