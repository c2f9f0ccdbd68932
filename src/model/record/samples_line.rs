//! The samples of a case line, and the distribution of every rank's own times.

use commgauge_base::sample::ExclusionReason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Samples of a case, column by column; every list has the same length. Times are of the whole sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Samples {
    /// The slowest rank's time.
    pub slowest_nanoseconds: Vec<u64>,
    /// World rank of the slowest.
    pub slowest_rank: Vec<u32>,
    /// First to last arrival at the call; empty when streaming.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrival_spread_nanoseconds: Vec<u64>,
    /// Last arrival to latest end; empty when streaming.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfer_nanoseconds: Vec<u64>,
    /// World rank that arrived last; empty when streaming.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_rank: Vec<u32>,
    /// Samples that do not count: index and reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "doubtful")]
    pub excluded: Vec<(u32, ExclusionReason)>,
    /// By how much the times of a rank may be off on the clock of its host, in whole batches of samples: the largest of all ranks and
    /// batches of isolated starts on devices, whose own clocks are compared anew for each batch. 0 where marks are readings of the host's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub clock_error_nanoseconds: u64,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// A mergeable histogram of own times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankHistogram {
    /// First world rank it covers.
    pub rank: u32,
    /// Ranks it covers: 1 in small worlds, a block of consecutive ranks in large ones.
    pub ranks: u32,
    /// HdrHistogram V2 with deflate, base64, of nanoseconds per sample.
    // Shared, as what is shown of a record refers to it.
    pub hdr_v2_deflate_base64: Arc<str>,
}
