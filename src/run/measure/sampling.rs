//! Samples in batches until process 0 decides to stop, and stores the samples.

use super::cadence::{Batch, Lead, isolated_batch};
use super::stop::{Decision, Progress, StopRule};
use super::{MeasureContext, streaming_batch};
use crate::backend::Call;
use crate::world::{World, gather_all};
use commgauge_base::error::Result;
use commgauge_base::host;
use commgauge_base::sample::{Cadence, ExclusionReason};
use commgauge_base::stats::{Histogram, median, sorted};
use commgauge_base::units::Seconds;
use commgauge_model::record::line::{ClockErrors, RankHistogram, Samples, StopReason};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// Maximum number of marks of a batch, all local ranks together: 8 MiB.
const MAX_MARKS: usize = 1 << 20;

/// The samples of a case so far.
pub(crate) struct Sampled {
    pub(crate) columns: Samples,
    pub(crate) valid: Vec<f64>,
    taken: u32,
    pub(crate) own_times: OwnTimes,
    pub(crate) stop: StopReason,
    /// Time from the first batch to the end of the last, on the clock of the budgets.
    pub(crate) took: Seconds,
    pub(crate) warnings: Vec<String>,
}

/// Takes samples until the stop rule ends it. `sample_seconds` is the expected time of a sample, if known; `own_times`
/// must be empty and are filled.
pub(crate) fn sample_until_enough(
    context: &MeasureContext,
    call: &mut dyn Call,
    cadence: Cadence,
    calls_per_sample: u32,
    sample_seconds: Option<f64>,
    own_times: OwnTimes,
    batch: &mut Batch,
) -> Result<Sampled> {
    let mut sampled = Sampled::none(own_times);
    let fixed = context.settings.iterations.map(|calls| calls / calls_per_sample);
    let mut rule = StopRule::new(context.settings, fixed, cadence);
    let mut lead = Lead::default();
    let mut elapsed_seconds = 0.0;
    // If the time of a sample is unknown, the first batch is one sample.
    let mut seconds_per_sample = sample_seconds.unwrap_or(f64::MAX);
    loop {
        let decision = decide_for_all(context, &mut rule, &sampled, elapsed_seconds, seconds_per_sample)?;
        let samples = match decision {
            Decision::Continue(samples) => samples,
            Decision::Stop(reason) => {
                sampled.stop = reason;
                break;
            }
        };
        let begin = Reading::now(call);
        match cadence {
            Cadence::Streaming => streaming_batch(context, call, samples, calls_per_sample, batch)?,
            Cadence::Isolated => isolated_batch(context, call, samples, &mut lead, batch)?,
        }
        let batch_seconds = begin.seconds_until(Reading::now(call));
        elapsed_seconds += batch_seconds;
        seconds_per_sample = batch_seconds / f64::from(samples);
        sampled.store(context, cadence, batch);
    }
    sampled.took = Seconds(elapsed_seconds);
    sampled.warn_of_invalid_samples(fixed);
    Ok(sampled)
}

/// Process 0 decides by its own numbers and broadcasts the decision.
fn decide_for_all(
    context: &MeasureContext,
    rule: &mut StopRule,
    sampled: &Sampled,
    elapsed_seconds: f64,
    seconds_per_sample: f64,
) -> Result<Decision> {
    const REASONS: [StopReason; 5] = [
        StopReason::Precision,
        StopReason::Budget,
        StopReason::MaximumSamples,
        StopReason::FixedCount,
        StopReason::Interrupted,
    ];
    let mut decision = [0, 0];
    if context.decides() {
        let (valid, taken) = (&sampled.valid, sampled.taken);
        let interrupted = context.is_interrupted();
        decision = match rule.decide(&Progress { valid, taken, elapsed_seconds, seconds_per_sample, interrupted }) {
            Decision::Continue(samples) => {
                // At most two marks per sample, plus one.
                let fitting = (MAX_MARKS / context.local_ranks.len().max(1) / 2).saturating_sub(1).max(1);
                [REASONS.len() as u64, u64::from(samples).min(fitting as u64)]
            }
            Decision::Stop(reason) => [REASONS.iter().position(|known| *known == reason).unwrap_or(0) as u64, 0],
        };
    }
    context.world.broadcast_u64(&mut decision)?;
    Ok(match REASONS.get(decision[0] as usize) {
        Some(reason) => Decision::Stop(*reason),
        None => Decision::Continue(decision[1] as u32),
    })
}

impl Sampled {
    pub(super) fn none(own_times: OwnTimes) -> Sampled {
        Sampled {
            columns: Samples::default(),
            valid: Vec::new(),
            taken: 0,
            own_times,
            stop: StopReason::FixedCount,
            took: Seconds(0.0),
            warnings: Vec::new(),
        }
    }

    /// Every process stores its ranks' own times; the samples, which are the same everywhere, are stored on process 0.
    pub(super) fn store(&mut self, context: &MeasureContext, cadence: Cadence, batch: &Batch) {
        self.own_times.record(batch);
        if !context.decides() {
            return;
        }
        self.valid.extend(batch.valid_times());
        if cadence == Cadence::Isolated {
            let (samples, errors) = (batch.samples.len() as u32, &batch.clock_errors_nanoseconds);
            let batches = &mut self.columns.clock_errors;
            if batches.is_empty() && !errors.is_empty() && self.taken > 0 {
                batches.push(ClockErrors::of_batch(self.taken, &[]));
            }
            if !batches.is_empty() || !errors.is_empty() {
                batches.push(ClockErrors::of_batch(samples, errors));
            }
        }
        for sample in &batch.samples {
            if let Some(exclusion) = sample.exclusion {
                self.columns.excluded.push((self.taken, exclusion));
            }
            self.columns.slowest_nanoseconds.push(sample.slowest_nanoseconds);
            self.columns.slowest_rank.push(sample.slowest_rank);
            if cadence == Cadence::Isolated {
                self.columns.arrival_spread_nanoseconds.push(sample.arrival_spread_nanoseconds);
                self.columns.transfer_nanoseconds.push(sample.transfer_nanoseconds);
                self.columns.last_rank.push(sample.last_rank);
            }
            self.taken += 1;
        }
    }

    fn warn_of_invalid_samples(&mut self, fixed: Option<u32>) {
        let count = |exclusion| self.columns.excluded.iter().filter(|(_, found)| *found == exclusion).count();
        let (missed, unmeasurable) =
            (count(ExclusionReason::MissedStart), count(ExclusionReason::BelowClockResolution));
        let taken = self.taken;
        if 2 * missed > taken as usize {
            self.warnings.push(format!(
                "{missed} of {taken} iterations began late on some rank and were excluded; the ranks may share cores"
            ));
        }
        if unmeasurable > 0 {
            self.warnings.push(format!(
                "{unmeasurable} of {taken} samples took no measurable time on some rank and were excluded"
            ));
        }
        if let Some(fixed) = fixed.filter(|fixed| self.valid.len() < *fixed as usize && taken >= *fixed) {
            self.warnings.push(format!("{} of the {fixed} requested samples are valid", self.valid.len()));
        }
    }
}

/// A reading of two clocks: the clock of the marks, on which budgets are defined, and the host's, since simulating a second may take longer
/// than one.
pub(super) struct Reading {
    marks: u64,
    host: u64,
}

impl Reading {
    pub(super) fn now(call: &dyn Call) -> Self {
        Reading { marks: call.now_nanoseconds(), host: host::now_nanoseconds() }
    }

    pub(super) fn seconds_until(&self, end: Reading) -> f64 {
        end.marks.saturating_sub(self.marks).max(end.host.saturating_sub(self.host)) as f64 * 1e-9
    }
}

// Sends data of ranks to process 0, and takes the middle of the values.

pub(super) fn median_of(values: impl Iterator<Item = u64>) -> u64 {
    median(&sorted(values.map(|value| value as f64))).map_or(0, |middle| middle.round() as u64)
}

/// Maximum number of histograms of a case in its record.
pub(crate) const MAX_HISTOGRAMS: u32 = 256;

/// Statistics of one rank's own times of a sample, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankTimes {
    pub rank: u32,
    /// Number of valid samples; 0 if the rank was idle.
    pub samples: u64,
    /// 10th percentile, with 10 samples or more.
    pub p10: Option<u64>,
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
        Ok(gather_all::<Vec<RankTimes>>(world, &mine)?.concat())
    }

    /// Gathers all ranks' histograms on process 0, in rank order, and where ranks share them the median of each rank that is alone in its
    /// process; empty elsewhere. Collective.
    ///
    /// Process 0 adds counts to the histograms of the blocks and encodes each of these once, so that its work for a rank is that of its
    /// samples.
    pub(crate) fn gather(self, world: &dyn World) -> Result<GatheredTimes> {
        let is_alone = self.local_ranks.len() == 1 && self.ranks_per_block > 1;
        let mut mine: Vec<u64> = Vec::new();
        for (block, histogram) in (u64::from(self.first_block)..).zip(&self.histograms) {
            let median = histogram.percentile(50.0).or_else(|| histogram.percentile(0.0)).filter(|_| is_alone);
            let counts: Vec<[u64; 2]> = histogram.counts().collect();
            mine.extend([u64::from(self.local_ranks.start), median.unwrap_or(0), block, counts.len() as u64]);
            mine.extend(counts.as_flattened());
        }
        let bytes: Vec<u8> = mine.into_iter().flat_map(u64::to_le_bytes).collect();
        let mut blocks: BTreeMap<u64, Histogram> = BTreeMap::new();
        let mut rank_medians = Vec::new();
        for bytes in world.gather(&bytes)? {
            let (words, _) = bytes.as_chunks::<8>();
            let mut numbers = words.iter().map(|word| u64::from_le_bytes(*word));
            while let Some(rank) = numbers.next() {
                let mut next = || numbers.next().unwrap_or(0);
                let (median, block, counts) = (next(), next(), next());
                let histogram = blocks.entry(block).or_default();
                (0..counts).for_each(|_| histogram.record_counted([next(), next()]));
                if median > 0 {
                    rank_medians.resize(self.world_size as usize, 0);
                    rank_medians[rank as usize] = median;
                }
            }
        }
        let whole = |(block, histogram): (u64, Histogram)| {
            let rank = block as u32 * self.ranks_per_block;
            let ranks = self.ranks_per_block.min(self.world_size - rank);
            Ok(RankHistogram { rank, ranks, hdr_v2_deflate_base64: histogram.encode()?.into() })
        };
        Ok(GatheredTimes { histograms: blocks.into_iter().map(whole).collect::<Result<_>>()?, rank_medians })
    }
}

/// The own times of all ranks, as a case line has them.
#[derive(Debug, Default)]
pub(crate) struct GatheredTimes {
    pub(crate) histograms: Vec<RankHistogram>,
    pub(crate) rank_medians: Vec<u64>,
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
                let gathered = own_times.gather(&SoloWorld).unwrap().histograms;
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
                let near = |median: &u64| (990..1_010).contains(median);
                assert_eq!(
                    gathered.rank_medians.iter().filter(|median| near(median)).count(),
                    if me == 0 { 3 } else { 0 }
                );
                let found: Vec<_> = gathered.histograms.iter().map(|h| (h.rank, h.ranks, count(h))).collect();
                assert_eq!(found, if me == 0 { vec![(0, 2, 10), (2, 2, 5)] } else { vec![] });
            });
        });
    }
}
