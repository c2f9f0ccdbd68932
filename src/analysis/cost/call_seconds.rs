//! The time of one call, from the samples of a case.

use commgauge_base::stats::median;
use commgauge_model::record::line::{CaseFacts, CaseLine};

/// Median over the valid samples of the time of a call (of one way for round trips).
pub fn seconds(facts: &CaseFacts, line: &CaseLine) -> Option<f64> {
    median(&line.seconds_per_transfer(facts)).filter(|seconds| *seconds > 0.0)
}
