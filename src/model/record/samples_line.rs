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
    /// By how much times may be off on the clocks of the hosts, of isolated starts on devices, whose own clocks are compared anew for each
    /// batch of samples; batch by batch. Empty where marks are readings of the host's clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clock_errors: Vec<ClockErrors>,
}

/// By how much the times of each rank may be off in a batch of samples, all of them alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockErrors {
    /// Samples of the batch.
    pub samples: u32,
    /// Consecutive ranks for each number: 1 in small worlds; in large ones the worst of each block of ranks is kept.
    pub ranks: u32,
    /// By rank, or block of ranks.
    pub nanoseconds: Vec<u64>,
}

/// Most numbers of a batch.
const MOST_NUMBERS: usize = 256;

impl ClockErrors {
    /// Those of a batch, by rank.
    pub fn of_batch(samples: u32, by_rank: &[u64]) -> ClockErrors {
        let ranks = by_rank.len().div_ceil(MOST_NUMBERS).max(1);
        let worst = |block: &[u64]| block.iter().copied().max().unwrap_or(0);
        ClockErrors { samples, ranks: ranks as u32, nanoseconds: by_rank.chunks(ranks).map(worst).collect() }
    }

    /// By how much the arrival of a rank after the first one may be off, whichever that was.
    fn of_arrival(&self, rank: u32) -> u64 {
        let block = rank.checked_div(self.ranks).unwrap_or(0) as usize;
        let own = self.nanoseconds.get(block).copied().unwrap_or(0);
        // In its own block there may be another rank.
        let is_other = |index: &usize| *index != block || self.ranks > 1;
        let others = self.nanoseconds.iter().enumerate().filter(|(index, _)| is_other(index));
        own + others.map(|(_, error)| *error).max().unwrap_or(0)
    }
}

impl Samples {
    /// Indices of those that count.
    pub fn valid(&self) -> impl Iterator<Item = usize> + '_ {
        let mut excluded: Vec<usize> = self.excluded.iter().map(|(index, _)| *index as usize).collect();
        excluded.sort_unstable();
        (0..self.slowest_nanoseconds.len()).filter(move |index| excluded.binary_search(index).is_err())
    }

    /// By how much the arrival spread of a sample may be off by the clocks of devices.
    pub fn arrival_error_nanoseconds(&self, sample: usize) -> u64 {
        let mut end = 0;
        let batch = self.clock_errors.iter().find(|batch| {
            end += batch.samples as usize;
            sample < end
        });
        let last = self.last_rank.get(sample).copied().unwrap_or(0);
        batch.map_or(0, |batch| batch.of_arrival(last))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_as_uncertain_as_its_own_rank_and_the_worst_other_one_in_its_batch() {
        let batch = |samples, by_rank: &[u64]| ClockErrors::of_batch(samples, by_rank);
        let samples = Samples {
            last_rank: vec![0, 1, 2, 2],
            clock_errors: vec![batch(2, &[100, 2_000, 300]), batch(2, &[100, 200, 300])],
            ..Samples::default()
        };
        let errors = [0, 1, 2, 3, 4].map(|sample| samples.arrival_error_nanoseconds(sample));
        assert_eq!(errors, [2_100, 2_300, 500, 500, 0]);
        assert_eq!(Samples { clock_errors: Vec::new(), ..samples }.arrival_error_nanoseconds(0), 0);
    }

    #[test]
    fn of_many_ranks_the_worst_of_each_block_is_kept() {
        let by_rank: Vec<u64> = (0..1000).collect();
        let errors = ClockErrors::of_batch(5, &by_rank);
        assert_eq!((errors.ranks, errors.nanoseconds.len(), errors.nanoseconds[0]), (4, 250, 3));
        assert_eq!(errors.of_arrival(0), 3 + 999);
        assert_eq!(errors.of_arrival(999), 999 + 999, "another rank of its block may be the first");
    }
}
