//! The probability that one layout is faster than another.

use super::planned::Planned;
use super::question::Question;
use crate::planner::price::PreparedStep;
use commgauge_base::error::{Error, Result};

/// Draws of both layouts.
const DRAWS: u32 = 100;

/// The share of draws in which the first layout is the faster one: calls vary by the known error of predictions like them, and
/// each step by that of steps of published runs; none if a call has no time.
///
/// # Errors
/// A layout that does not fit the question.
pub fn probability_faster(question: &Question, first: &Planned, second: &Planned) -> Result<Option<f64>> {
    let (Some(first), Some(second)) = (draws(question, first)?, draws(question, second)?) else {
        return Ok(None);
    };
    let sum: f64 = first.iter().zip(&second).map(|(a, b)| question.compute.error.probability_faster(*a, *b)).sum();
    Ok(Some(sum / first.len().max(1) as f64))
}

fn draws(question: &Question, planned: &Planned) -> Result<Option<Vec<f64>>> {
    question.with_step(planned, |step| {
        let prepared = PreparedStep::new(step).map_err(|unpriced| Error::usage(unpriced.to_string()))?;
        Ok(prepared.draws(step, question.compute, question.rates, question.ranks_per_node, DRAWS))
    })
}
