//! What a plan will cost, said before it runs.

use super::{Case, WorkPlan};
use crate::config::RunSettings;
use crate::units::{Bytes, Seconds};

/// Time beside sampling that a case takes in each replicate: buffers, checks, warm-up, agreement.
const SECONDS_BESIDE_SAMPLING: f64 = 0.05;
/// Cautious figures of host memory, for runs whose number of iterations is fixed.
const CAUTIOUS_BYTES_PER_SECOND: f64 = 0.5e9;
const CAUTIOUS_LATENCY_SECONDS: f64 = 50e-6;

impl WorkPlan {
    /// The largest size argument of any case.
    pub fn largest_bytes(&self) -> Bytes {
        self.cases.iter().map(|case| case.op.bytes_total).max().unwrap_or_default()
    }

    /// About how long the run takes at most: where the stop rule decides, every case spends its whole budget; where the
    /// number of iterations is fixed, it is a guess from cautious figures of host memory.
    pub fn estimated_seconds(&self, settings: &RunSettings) -> Seconds {
        let one = |case: &Case| {
            let sampling = match settings.fixed_iterations {
                Some(iterations) => f64::from(iterations) * cautious_seconds(case),
                None => settings.case_budget.0,
            };
            sampling + SECONDS_BESIDE_SAMPLING
        };
        let replicate: f64 = self.cases.iter().map(one).sum();
        Seconds(replicate * f64::from(settings.replicates))
    }
}

fn cautious_seconds(case: &Case) -> f64 {
    CAUTIOUS_LATENCY_SECONDS + case.op.bytes_total.0 as f64 / CAUTIOUS_BYTES_PER_SECOND
}
