//! Mean time of a call on each rank, as other tools print it. Verdicts are not based on it.

use commgauge_base::stats::Histogram;
use commgauge_base::units::Seconds;
use commgauge_model::record::line::{CaseFacts, CaseLine, RankHistogram};
use std::collections::BTreeMap;

/// The ranks' own times of one replicate.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicateTimes {
    /// Messages one way, or calls, in a sample.
    transfers_per_sample: f64,
    histograms: Vec<RankHistogram>,
}

impl ReplicateTimes {
    /// The times of a line.
    pub(super) fn of(facts: &CaseFacts, line: &CaseLine) -> ReplicateTimes {
        let transfers_per_sample = f64::from(line.calls_per_sample.max(1)) * f64::from(facts.transfers_per_call.max(1));
        ReplicateTimes { transfers_per_sample, histograms: line.histograms.clone() }
    }
}

/// Statistics over the ranks of each rank's mean time of a call (of one way for round trips), from its own start to its
/// own end. In a large world, ranks that share a histogram count with their common mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankMeans {
    /// Shortest mean of a rank.
    pub least: Seconds,
    /// The mean over all ranks.
    pub mean: Seconds,
    /// Longest mean of a rank.
    pub most: Seconds,
}

/// Sum over the replicates for the ranks of a histogram.
#[derive(Default)]
struct Sum {
    ranks: f64,
    seconds: f64,
    samples: f64,
}

impl RankMeans {
    /// The statistics; `None` where the record has no times of single ranks, as in imported records.
    pub(super) fn of(replicates: &[ReplicateTimes]) -> Option<RankMeans> {
        let mut sums: BTreeMap<u32, Sum> = BTreeMap::new();
        for replicate in replicates {
            for of_ranks in &replicate.histograms {
                let histogram = Histogram::decode(&of_ranks.hdr_v2_deflate_base64).ok()?;
                let samples = histogram.count() as f64;
                let sum = sums.entry(of_ranks.rank).or_default();
                sum.ranks = f64::from(of_ranks.ranks);
                sum.seconds += histogram.mean_nanoseconds() * 1e-9 * samples / replicate.transfers_per_sample;
                sum.samples += samples;
            }
        }
        let sums = sums.into_values().filter(|sum| sum.samples > 0.0);
        let means: Vec<(f64, f64)> = sums.map(|sum| (sum.ranks, sum.seconds / sum.samples)).collect();
        let ranks: f64 = means.iter().map(|(ranks, _)| ranks).sum();
        let seconds = || means.iter().map(|(_, seconds)| *seconds);
        Some(RankMeans {
            least: Seconds(seconds().reduce(f64::min)?),
            mean: Seconds(means.iter().map(|(ranks, seconds)| ranks * seconds).sum::<f64>() / ranks),
            most: Seconds(seconds().reduce(f64::max)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(transfers_per_sample: f64, of_ranks: &[(u32, u32, &[u64])]) -> ReplicateTimes {
        let histogram = |(rank, ranks, values): &(u32, u32, &[u64])| {
            let mut histogram = Histogram::new();
            values.iter().for_each(|value| histogram.record(*value));
            let hdr_v2_deflate_base64 = histogram.encode().unwrap().into();
            RankHistogram { rank: *rank, ranks: *ranks, hdr_v2_deflate_base64 }
        };
        ReplicateTimes { transfers_per_sample, histograms: of_ranks.iter().map(histogram).collect() }
    }

    #[test]
    fn means_are_of_each_rank_over_all_its_samples() {
        for (replicates, expected) in [
            (vec![times(1.0, &[(0, 1, &[1000, 1000]), (1, 1, &[1000, 3000])])], Some([1.0, 1.5, 2.0])),
            // A round trip, and an idle rank.
            (vec![times(2.0, &[(0, 1, &[1000]), (1, 1, &[1200]), (2, 1, &[])])], Some([0.5, 0.55, 0.6])),
            // A replicate with more samples counts more.
            (vec![times(1.0, &[(0, 1, &[1000])]), times(1.0, &[(0, 1, &[2000, 2000, 2000])])], Some([1.75; 3])),
            // Ranks that share a histogram count as many.
            (vec![times(1.0, &[(0, 3, &[1000, 1000, 1000]), (3, 1, &[2000])])], Some([1.0, 1.25, 2.0])),
            (vec![times(1.0, &[])], None),
            (vec![], None),
        ] {
            let found =
                RankMeans::of(&replicates).map(|means| [means.least, means.mean, means.most].map(|s| s.0 * 1e6));
            let near = |a: f64, b: f64| (a - b).abs() <= 2e-3 * b;
            let same = match (found, expected) {
                (Some(found), Some(expected)) => found.iter().zip(expected).all(|(a, b)| near(*a, b)),
                (found, expected) => found == expected,
            };
            assert!(same, "{found:?} instead of {expected:?}");
        }
    }
}
