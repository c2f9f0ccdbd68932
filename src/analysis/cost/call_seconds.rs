//! The time of one call, from the samples of a case.

use commgauge_base::stats::{median, sorted};
use commgauge_model::record::line::{CaseFacts, CaseLine, Outcome};
use std::collections::BTreeSet;

/// Median over the valid samples of the time of a call (of one way for round trips).
pub fn seconds(facts: &CaseFacts, line: &CaseLine) -> Option<f64> {
    if !matches!(line.outcome, Outcome::Measured { .. }) {
        return None;
    }
    let excluded: BTreeSet<u32> = line.samples.excluded.iter().map(|(index, _)| *index).collect();
    let counted = (0u32..).zip(&line.samples.slowest_nanoseconds).filter(|(index, _)| !excluded.contains(index));
    let nanoseconds = median(&sorted(counted.map(|(_, nanoseconds)| *nanoseconds as f64)))?;
    let calls = f64::from(line.calls_per_sample) * f64::from(facts.transfers_per_call);
    (nanoseconds > 0.0).then(|| nanoseconds * 1e-9 / calls)
}
