//! The probability that one layout is faster than another.

use super::planned::Planned;
use super::question::Question;
use crate::planner::price::{PreparedStep, Pricer};
use commgauge_base::error::{Error, Result};

/// Draws of both layouts.
const DRAWS: u32 = 100;

/// The share of draws in which the first layout is the faster one, each call varying by the known error of predictions
/// like it; none if that is unknown.
///
/// # Errors
/// A layout that does not fit the question.
pub fn probability_faster(question: &Question, first: &Planned, second: &Planned) -> Result<Option<f64>> {
    let pricer = Pricer::default();
    let (Some(first), Some(second)) = (draws(question, &pricer, first)?, draws(question, &pricer, second)?) else {
        return Ok(None);
    };
    let share = |a: f64, b: f64| match a.total_cmp(&b) {
        std::cmp::Ordering::Less => 1.0,
        std::cmp::Ordering::Equal => 0.5,
        std::cmp::Ordering::Greater => 0.0,
    };
    let sum: f64 = first.iter().zip(&second).map(|(a, b)| share(*a, *b)).sum();
    Ok(Some(sum / first.len().max(1) as f64))
}

fn draws(question: &Question, pricer: &Pricer, planned: &Planned) -> Result<Option<Vec<f64>>> {
    question.with_step(planned, |step| {
        let prepared = PreparedStep::new(step).map_err(|unpriced| Error::usage(unpriced.to_string()))?;
        let rates = (question.rates, question.ranks_per_node);
        Ok(pricer.draws(&prepared, step, question.compute, rates, DRAWS))
    })
}
