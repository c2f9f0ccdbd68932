//! The part of a case line with the times of every pair of a round, where the groups are pairs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The pairs of a case and their own times, column by column; every list has the same length. A pair's time is that of its slower
/// rank, to three significant digits. Times are of the whole sample, of which unreliable ones do not count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairTimes {
    /// World rank of the first of each pair.
    pub rank_a: Vec<u32>,
    /// World rank of the second.
    pub rank_b: Vec<u32>,
    /// Samples of the pair that count; 0 where the numbers are withheld.
    pub samples: Vec<u64>,
    /// 10th percentile; 0, which no message takes, with fewer than 10 samples.
    pub p10_nanoseconds: Vec<u64>,
    /// Median; 0 without samples.
    pub median_nanoseconds: Vec<u64>,
    /// 90th percentile; 0 with fewer than 10 samples.
    pub p90_nanoseconds: Vec<u64>,
}
