//! Alternative times of a step, given the known errors of predictions of its calls: one time for each draw.
//!
//! Calls that are read from the same curve have the same error factor, in all layouts, so that a draw of two layouts
//! is a fair comparison. Factors are lognormal. A call without an interval is exact.

use super::calls::{Answer, PreparedStep};
use super::{MessageWaits, StepInputs, parts};
use crate::planner::compute::Compute;
use crate::planner::rates::{RatedCall, Rates};
use crate::planner::step_error::deviation;
use commgauge_base::random::{normal, split_mix};
use commgauge_base::stats::Interval;
use commgauge_model::workload::step::TrainingStep;

impl PreparedStep {
    /// The step's seconds in this many draws; none if a call has no prediction.
    pub fn draws(
        &self,
        step: &TrainingStep,
        compute: &Compute,
        rates: &dyn Rates,
        ranks_per_node: u32,
        count: u32,
    ) -> Option<Vec<f64>> {
        let answers = self.query(step, rates, ranks_per_node).ok()?;
        let work = self.work(step, compute);
        let inputs = StepInputs { prepared: self, step, answers: &answers, work: &work };
        let drawn = |draw: u32| {
            let price = parts(&inputs, &|answer| seconds(answer, draw), MessageWaits::InBubble);
            price.ok().map(|price| price.step_seconds)
        };
        (0..count).map(drawn).collect()
    }
}

/// The time of a call in a draw.
fn seconds(answer: &Answer, draw: u32) -> f64 {
    if answer.low <= 0.0 || answer.low >= answer.high {
        return answer.seconds;
    }
    let spread = deviation(Interval { low: answer.low, high: answer.high });
    answer.seconds * (spread * deviate(curve(&answer.call), draw)).exp()
}

/// A number for the curve that a call is read from.
fn curve(call: &RatedCall) -> u64 {
    let place = &call.locality;
    let parts = [call.ranks, place.nodes_spanned, place.concurrent_groups_per_node, place.stride];
    parts.iter().fold(call.collective as u64, |sum, part| split_mix(sum ^ u64::from(*part), 0))
}

/// A standard normal number that depends on both alone.
fn deviate(curve: u64, draw: u32) -> f64 {
    let first = split_mix(curve ^ (u64::from(draw) << 32), 0);
    normal([first, split_mix(first, 0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_standard_normal_and_the_same_for_the_same_curve() {
        let all: Vec<f64> = (0..4000).map(|draw| deviate(7, draw)).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / all.len() as f64;
        assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.06, "{mean} {variance}");
        assert_eq!((deviate(7, 3), deviate(8, 3) == deviate(7, 3)), (all[3], false));
    }
}
