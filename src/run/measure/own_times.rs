//! Histograms of every rank's own time of a sample: one per rank in small worlds, one per block of ranks in large ones.

use super::batch::Batch;
use crate::world::World;
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::Histogram;
use commgauge_model::record::line::RankHistogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// Maximum number of histograms of a case in its record.
const MAX_HISTOGRAMS: u32 = 256;

/// Statistics of one rank's own times of a sample, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankTimes {
    /// World rank.
    pub rank: u32,
    /// Number of valid samples; 0 if the rank was idle.
    pub samples: u64,
    /// 10th percentile, with 10 samples or more.
    pub p10: Option<u64>,
    /// Median.
    pub median: Option<u64>,
    /// 90th percentile, with 10 samples or more.
    pub p90: Option<u64>,
}

/// The histograms that this process's ranks record into.
pub(crate) struct OwnTimes {
    local_ranks: Range<u32>,
    world_size: u32,
    ranks_per_block: u32,
    first_block: u32,
    histograms: Vec<Histogram>,
}

impl OwnTimes {
    /// Empty histograms.
    pub(crate) fn new(local_ranks: Range<u32>, world_size: u32) -> Self {
        OwnTimes::in_blocks(local_ranks, world_size, world_size.div_ceil(MAX_HISTOGRAMS).max(1))
    }

    /// Empty histograms, one for each rank, however large the world is.
    pub(crate) fn apart(local_ranks: Range<u32>, world_size: u32) -> Self {
        OwnTimes::in_blocks(local_ranks, world_size, 1)
    }

    fn in_blocks(local_ranks: Range<u32>, world_size: u32, ranks_per_block: u32) -> Self {
        let first_block = local_ranks.start / ranks_per_block;
        let blocks = local_ranks.end.div_ceil(ranks_per_block).saturating_sub(first_block);
        let histograms = (0..blocks).map(|_| Histogram::new()).collect();
        OwnTimes { local_ranks, world_size, ranks_per_block, first_block, histograms }
    }

    /// Records the valid samples of a batch: for each rank from its own begin to its own end.
    pub(crate) fn record(&mut self, batch: &Batch) {
        for (index, _) in batch.samples.iter().enumerate().filter(|(_, sample)| sample.exclusion.is_none()) {
            let (begins, ends) = batch.begin_and_end(index);
            let own_times = begins.iter().zip(ends).map(|(begin, end)| end.saturating_sub(*begin) as f64);
            for (rank, own) in self.local_ranks.clone().zip(batch.active_values(own_times)) {
                if own < 0.0 {
                    continue;
                }
                let block = (rank / self.ranks_per_block - self.first_block) as usize;
                self.histograms[block].record(own as u64);
            }
        }
    }

    /// Gathers the statistics of every rank's times on process 0, in rank order; empty elsewhere. Collective; the
    /// histograms must be from [`OwnTimes::apart`].
    pub(crate) fn gather_middles(self, world: &dyn World) -> Result<Vec<RankTimes>> {
        let middle = |(rank, histogram): (u32, &Histogram)| RankTimes {
            rank,
            samples: histogram.count(),
            p10: histogram.percentile(10.0).filter(|_| histogram.percentile(90.0).is_some()),
            median: histogram.percentile(50.0).or_else(|| histogram.percentile(0.0)),
            p90: histogram.percentile(90.0),
        };
        let mine: Vec<RankTimes> = (self.local_ranks.start..).zip(&self.histograms).map(middle).collect();
        let broken = |cause: serde_json::Error| Error::environment(format!("cannot pass on times: {cause}"));
        let mut all = Vec::new();
        for bytes in world.gather(&serde_json::to_vec(&mine).map_err(broken)?)? {
            all.extend(serde_json::from_slice::<Vec<RankTimes>>(&bytes).map_err(broken)?);
        }
        Ok(all)
    }

    /// Gathers all ranks' histograms on process 0, in rank order; empty elsewhere. Collective.
    pub(crate) fn gather(self, world: &dyn World) -> Result<Vec<RankHistogram>> {
        let mut mine: Vec<(u32, String)> = Vec::with_capacity(self.histograms.len());
        for (block, histogram) in (self.first_block..).zip(&self.histograms) {
            mine.push((block, histogram.encode()?));
        }
        let broken = |cause: serde_json::Error| Error::environment(format!("cannot pass on histograms: {cause}"));
        let mut blocks: BTreeMap<u32, String> = BTreeMap::new();
        for bytes in world.gather(&serde_json::to_vec(&mine).map_err(broken)?)? {
            for (block, encoded) in serde_json::from_slice::<Vec<(u32, String)>>(&bytes).map_err(broken)? {
                let merged = match blocks.remove(&block) {
                    None => encoded,
                    Some(other) => merge(&other, &encoded)?,
                };
                blocks.insert(block, merged);
            }
        }
        let whole = |(block, text): (u32, String)| {
            let rank = block * self.ranks_per_block;
            let ranks = self.ranks_per_block.min(self.world_size - rank);
            RankHistogram { rank, ranks, hdr_v2_deflate_base64: text.into() }
        };
        Ok(blocks.into_iter().map(whole).collect())
    }
}

fn merge(one: &str, other: &str) -> Result<String> {
    let mut histogram = Histogram::decode(one)?;
    histogram.merge(&Histogram::decode(other)?)?;
    histogram.encode()
}

#[cfg(test)]
mod tests {
    use super::super::fakes::{FakeCall, on_threads, with_context};
    use super::super::streaming_batch;
    use super::*;
    use crate::world::SoloWorld;

    fn count(histogram: &RankHistogram) -> u64 {
        Histogram::decode(&histogram.hdr_v2_deflate_base64).unwrap().count()
    }

    #[test]
    fn small_worlds_have_a_histogram_for_each_rank_and_large_ones_share() {
        for (world_size, histograms, ranks) in [(1, 1, 1), (256, 256, 1), (257, 129, 2), (16_384, 256, 64)] {
            with_context(&SoloWorld, 0..world_size, |context| {
                let mut call = FakeCall::alone(&SoloWorld, 0..world_size, |_, _| 1_000);
                let mut batch = Batch::default();
                streaming_batch(context, &mut call, 2, 1, &mut batch).unwrap();
                let mut own_times = OwnTimes::new(0..world_size, world_size);
                own_times.record(&batch);
                let gathered = own_times.gather(&SoloWorld).unwrap();
                assert_eq!(gathered.len(), histograms, "{world_size} ranks");
                assert_eq!(
                    (gathered[0].rank, gathered[0].ranks, count(&gathered[0])),
                    (0, ranks, 2 * u64::from(ranks))
                );
                assert_eq!(gathered.iter().map(|h| h.ranks).sum::<u32>(), world_size);
            });
        }
    }

    #[test]
    fn separate_ranks_have_their_own_medians_and_idle_ones_have_none() {
        on_threads(3, |world| {
            let me = world.process();
            with_context(world, me..me + 1, |context| {
                let mut call = FakeCall::alone(world, me..me + 1, |_, rank| 1_000 * (1 + u64::from(rank)));
                call.idle = vec![1];
                let mut batch = Batch::default();
                streaming_batch(context, &mut call, 12, 1, &mut batch).unwrap();
                let mut own_times = OwnTimes::apart(me..me + 1, 1000);
                own_times.record(&batch);
                let found = own_times.gather_middles(world).unwrap();
                if me != 0 {
                    return assert_eq!(found, []);
                }
                assert_eq!(found.iter().map(|times| times.rank).collect::<Vec<_>>(), [0, 1, 2]);
                assert_eq!((found[1].samples, found[1].median), (0, None));
                assert_eq!(found[2].samples, 12);
                let near = |value: Option<u64>| (2_990..3_010).contains(&value.unwrap());
                assert!(near(found[2].p10) && near(found[2].median) && near(found[2].p90), "{found:?}");
            });
        });
    }

    #[test]
    fn processes_that_share_a_block_are_merged_at_process_0() {
        on_threads(3, |world| {
            let me = world.process();
            with_context(world, me..me + 1, |context| {
                let mut call = FakeCall::alone(world, me..me + 1, |_, _| 1_000);
                let mut batch = Batch::default();
                streaming_batch(context, &mut call, 5, 1, &mut batch).unwrap();
                // As if in a world of 512, where two ranks share a histogram.
                let mut own_times = OwnTimes::new(me..me + 1, 512);
                own_times.record(&batch);
                let gathered = own_times.gather(world).unwrap();
                let found: Vec<_> = gathered.iter().map(|h| (h.rank, h.ranks, count(h))).collect();
                assert_eq!(found, if me == 0 { vec![(0, 2, 10), (2, 2, 5)] } else { vec![] });
            });
        });
    }
}
