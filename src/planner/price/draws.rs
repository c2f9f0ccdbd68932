//! What a step could take as well, given how far predictions of calls were off where that could be told: one time for each draw.
//!
//! Calls that are read from the same curve are off by the same factor, in one layout and in another, so that a draw of two
//! layouts compares like with like. Factors are lognormal, an interval being 1.96 standard deviations to either side.

use super::calls::{Answer, PreparedStep};
use super::{Asked, Pricer};
use crate::planner::compute::Compute;
use crate::planner::rates::{RatedCall, Rates};
use crate::workload::step::TrainingStep;

/// Standard deviations from the middle to an end of a 95 % interval.
const DEVIATIONS_TO_END: f64 = 1.96;

impl Pricer {
    /// The step's seconds in so many draws; nothing where a call has no interval or no answer.
    pub fn draws(
        &self,
        prepared: &PreparedStep,
        step: &TrainingStep,
        compute: &Compute,
        (rates, ranks_per_node): (&dyn Rates, u32),
        count: u32,
    ) -> Option<Vec<f64>> {
        let answers = prepared.ask(step, rates, ranks_per_node).ok().filter(super::calls::Answers::has_intervals)?;
        let work = prepared.work(step, compute);
        let asked = Asked { prepared, step, answers: &answers, work: &work };
        let drawn =
            |draw: u32| self.parts(&asked, &|answer| seconds(answer, draw)).ok().map(|price| price.step_seconds);
        (0..count).map(drawn).collect()
    }
}

/// The time of a call in a draw.
fn seconds(answer: &Answer, draw: u32) -> f64 {
    if answer.low <= 0.0 {
        return answer.seconds;
    }
    let deviation = (answer.high / answer.low).ln() / (2.0 * DEVIATIONS_TO_END);
    answer.seconds * (deviation * normal(curve(&answer.call), draw)).exp()
}

/// A number for the curve that a call is read from.
fn curve(call: &RatedCall) -> u64 {
    let place = &call.locality;
    let parts = [call.ranks, place.nodes_spanned, place.concurrent_groups_per_node, place.stride];
    parts.iter().fold(call.collective as u64, |sum, part| mixed(sum ^ u64::from(*part)))
}

/// A standard normal number that depends on both alone (Box and Muller).
fn normal(curve: u64, draw: u32) -> f64 {
    let first = mixed(curve ^ (u64::from(draw) << 32));
    let uniform = |bits: u64| ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    (-2.0 * uniform(first).ln()).sqrt() * (std::f64::consts::TAU * uniform(mixed(first))).cos()
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
fn mixed(seed: u64) -> u64 {
    let a = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let b = (a ^ (a >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let c = (b ^ (b >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    c ^ (c >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_standard_normal_and_the_same_for_the_same_curve() {
        let all: Vec<f64> = (0..4000).map(|draw| normal(7, draw)).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / all.len() as f64;
        assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.06, "{mean} {variance}");
        assert_eq!((normal(7, 3), normal(8, 3) == normal(7, 3)), (all[3], false));
    }
}
