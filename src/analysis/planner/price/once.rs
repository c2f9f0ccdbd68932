//! Only the seconds of a step, in a fraction of the time of a whole price, for pricing thousands of orders of axes.
//!
//! The calls and the computing of a step do not depend on the order of its axes, and if all calls take equally long in
//! two orders the steps do. So each is computed once.

use super::calls::{Answers, PreparedStep};
use super::unpriced::Unpriced;
use super::work::StageWork;
use super::{MessageWaits, StepInputs, parts};
use crate::planner::compute::Compute;
use crate::planner::rates::Rates;
use commgauge_model::workload::step::TrainingStep;

/// A step in all orders of its axes.
#[derive(Clone, Debug)]
pub(in crate::planner) struct PricedOnce {
    /// Its calls.
    pub step: PreparedStep,
    work: Vec<StageWork>,
    /// The seconds of all calls, and of the step.
    known: Vec<(Vec<u64>, f64)>,
}

impl PricedOnce {
    /// A step in any order of its axes.
    ///
    /// # Errors
    /// Counts that pass 64 bits.
    pub fn new(step: &TrainingStep, compute: &Compute) -> Result<PricedOnce, Unpriced> {
        let prepared = PreparedStep::new(step)?;
        let work = prepared.work(step, compute);
        Ok(PricedOnce { step: prepared, work, known: Vec::new() })
    }

    /// The seconds of the step in its order of the axes.
    ///
    /// # Errors
    /// As [`super::price`].
    pub fn seconds(&mut self, step: &TrainingStep, rates: &dyn Rates, ranks_per_node: u32) -> Result<f64, Unpriced> {
        let answers = self.step.query(step, rates, ranks_per_node)?;
        let calls = seconds_of_calls(&answers);
        if let Some((_, seconds)) = self.known.iter().find(|(known, _)| *known == calls) {
            return Ok(*seconds);
        }
        let inputs = StepInputs { prepared: &self.step, step, answers: &answers, work: &self.work };
        let seconds = parts(&inputs, &|answer| answer.seconds, MessageWaits::InBubble)?.step_seconds;
        self.known.push((calls, seconds));
        Ok(seconds)
    }
}

fn seconds_of_calls(answers: &Answers) -> Vec<u64> {
    answers.all().map(|answer| answer.seconds.to_bits()).collect()
}
