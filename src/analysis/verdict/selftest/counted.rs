//! A share that was counted, with its interval.

use commgauge_base::stats::proportion_interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Confidence of the intervals around measured shares.
pub(super) const CONFIDENCE: f64 = 0.95;

/// A share that was counted, with its interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Counted {
    /// How often it came about.
    pub count: u64,
    /// Of how many.
    pub of: u64,
    /// Lower bound of the true share; absent where nothing was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_bound: Option<f64>,
    /// Its upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper_bound: Option<f64>,
}

/// A count with its interval.
pub(super) fn counted(count: u64, of: u64) -> Counted {
    let interval = (of > 0).then(|| proportion_interval(count, of, CONFIDENCE));
    Counted { count, of, lower_bound: interval.map(|share| share.low), upper_bound: interval.map(|share| share.high) }
}
