//! Prices of candidate layouts, and what several of them share: the calls of a layout in all orders of its axes, and
//! the price if every call takes equally long in two of them.

use super::{Search, Waiting};
use crate::planner::price::{PricedOnce, Pricer, StepPrice};
use std::collections::HashMap;

/// Everything that was priced.
#[derive(Default)]
pub(super) struct Prices {
    pricer: Pricer,
    /// By unit and ZeRO stage; or why there is no price in any order.
    prepared: HashMap<(u32, u8), Result<PricedOnce, String>>,
}

impl Prices {
    /// The seconds of a step, or why there are none.
    pub fn seconds(&mut self, search: &Search, next: Waiting) -> Result<f64, String> {
        let step = search.step(next).ok_or("a micro-batch that divides no batch")?;
        let question = search.question;
        let prepared = self
            .prepared
            .entry((next.unit, next.zero_stage))
            .or_insert_with(|| PricedOnce::new(&step, question.compute).map_err(|unpriced| unpriced.to_string()));
        let prepared = prepared.as_mut().map_err(|reason| reason.clone())?;
        let rates = (question.rates, question.ranks_per_node);
        self.pricer.step_seconds(prepared, &step, rates, !question.allow_untrusted).map_err(|unpriced| unpriced.reason)
    }

    /// The whole price of what has been priced in seconds.
    pub fn price(&self, search: &Search, next: Waiting) -> Option<StepPrice> {
        let prepared = self.prepared.get(&(next.unit, next.zero_stage))?.as_ref().ok()?;
        let (step, question) = (search.step(next)?, search.question);
        self.pricer.price(&prepared.step, &step, question.compute, question.rates, question.ranks_per_node).ok()
    }
}
