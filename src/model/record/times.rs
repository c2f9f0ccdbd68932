//! What the replicates of a copy or of a matrix product come to together.

use super::Record;
use super::work_lines::{CopyLine, CopyShape, Outcome, ProductShape};
use commgauge_base::collective::Collective;
use commgauge_base::stats::{Interval, median, median_interval, sorted};
use commgauge_base::units::{Rate, Seconds};
use std::collections::HashSet;

/// The times of what each rank does by itself, over all replicates.
#[derive(Clone, Debug, PartialEq)]
pub struct MergedTimes {
    /// The most severe outcome of a replicate: wrong, else failed or skipped, else measured, and verified where all are.
    pub outcome: Outcome,
    /// Ascending times in seconds of each replicate that was measured; none at all where one was wrong.
    pub seconds_of_replicate: Vec<Vec<f64>>,
}

impl MergedTimes {
    /// Merges replicates: the outcome of each, and of each of its samples the slowest rank's time.
    pub(super) fn of<'a>(replicates: impl Iterator<Item = (&'a Outcome, &'a [u64])> + Clone) -> MergedTimes {
        let outcome = most_severe(replicates.clone().map(|(outcome, _)| outcome));
        let is_wrong = outcome.is_wrong();
        let measured = replicates.filter(|(outcome, _)| !is_wrong && is_measured(outcome));
        let ascending = measured.map(|(_, times)| sorted(times.iter().map(|time| *time as f64 * 1e-9)));
        MergedTimes { outcome, seconds_of_replicate: ascending.filter(|times| !times.is_empty()).collect() }
    }

    /// Why a replicate has no time; `None` if all were measured.
    pub fn problem(&self) -> Option<&Outcome> {
        Some(&self.outcome).filter(|outcome| !is_measured(outcome))
    }

    /// The median of each replicate.
    pub fn medians(&self) -> Vec<Seconds> {
        self.seconds_of_replicate.iter().filter_map(|times| median(times)).map(Seconds).collect()
    }

    pub fn median(&self) -> Option<Seconds> {
        median(&sorted(self.medians().into_iter().map(|seconds| seconds.0))).map(Seconds)
    }

    /// Hull of the replicates' own 95 % intervals of the median; none where a replicate has fewer than 6 samples.
    pub fn interval(&self) -> Option<Interval<Seconds>> {
        let intervals = self.seconds_of_replicate.iter().map(|times| median_interval(times, 0.95));
        let intervals: Vec<Interval> = intervals.collect::<Option<_>>()?;
        let low = intervals.iter().map(|interval| interval.low).reduce(f64::min)?;
        let high = intervals.iter().map(|interval| interval.high).reduce(f64::max)?;
        Some(Interval { low: Seconds(low), high: Seconds(high) })
    }

    /// Samples over all replicates.
    pub fn samples(&self) -> u64 {
        self.seconds_of_replicate.iter().map(|times| times.len() as u64).sum()
    }
}

pub(super) fn is_measured(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Measured { .. })
}

fn most_severe<'a>(outcomes: impl Iterator<Item = &'a Outcome> + Clone) -> Outcome {
    let first = |wanted: fn(&Outcome) -> bool| outcomes.clone().find(|outcome| wanted(outcome)).cloned();
    let wrong = first(Outcome::is_wrong);
    let verified = outcomes.clone().all(|outcome| *outcome == Outcome::Measured { verified: true });
    wrong.or_else(|| first(|outcome| !is_measured(outcome))).unwrap_or(Outcome::Measured { verified })
}

// The copies of a record, over all replicates.

/// A copy over all replicates.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyTime {
    pub copy: CopyShape,
    /// Its outcome, and the times of the slowest rank.
    pub times: MergedTimes,
    /// For each rank, the median over the replicates of its own medians.
    pub seconds_of_rank: Vec<Seconds>,
}

impl CopyTime {
    /// Bytes per second in each direction for a copy of this many seconds.
    pub fn rate(&self, seconds: Seconds) -> Rate {
        Rate(self.copy.bytes.0 as f64 / seconds.0)
    }

    /// The rank with the longest time, and the one with the shortest, each with its rate.
    pub fn extremes(&self) -> Option<[(u32, Rate); 2]> {
        let ranks = || (0u32..).zip(&self.seconds_of_rank).filter(|(_, seconds)| seconds.0 > 0.0);
        let slowest = ranks().max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
        let fastest = ranks().min_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
        Some([slowest, fastest].map(|(rank, seconds)| (rank, self.rate(*seconds))))
    }
}

impl Record {
    /// Every copy of the record, in the order of first appearance.
    pub fn copy_times(&self) -> Vec<CopyTime> {
        let mut known = HashSet::new();
        let copies = self.copies.iter().map(|line| line.copy).filter(|copy| known.insert(*copy));
        copies.map(|copy| self.copy_time(copy)).collect()
    }

    fn copy_time(&self, copy: CopyShape) -> CopyTime {
        let lines = || self.copies.iter().filter(|line| line.copy == copy);
        let times = MergedTimes::of(lines().map(|line| (&line.outcome, line.slowest_nanoseconds.as_slice())));
        let has_times = |line: &&CopyLine| !times.seconds_of_replicate.is_empty() && is_measured(&line.outcome);
        let measured: Vec<&CopyLine> = lines().filter(has_times).collect();
        let ranks = measured.iter().map(|line| line.median_nanoseconds.len()).min().unwrap_or(0);
        let seconds = |line: &&CopyLine, rank: usize| line.median_nanoseconds[rank] as f64 * 1e-9;
        let of_rank = |rank: usize| median(&sorted(measured.iter().map(|line| seconds(line, rank))));
        let seconds_of_rank = (0..ranks).filter_map(of_rank).map(Seconds).collect();
        CopyTime { copy, times, seconds_of_rank }
    }
}

impl Record {
    /// The highest rate of messages one way between two ranks: that of large ones, in the best replicate.
    pub fn message_rate(&self, ranks: [u32; 2]) -> Option<Rate> {
        let rates = self.cases.iter().filter_map(|line| {
            let facts = self.plan.cases.get(line.case as usize)?;
            let pairs = line.pairs.as_deref().filter(|_| facts.collective == Collective::PingPong)?;
            let mut ends = pairs.rank_a.iter().zip(&pairs.rank_b);
            let index = ends.position(|(a, b)| ranks == [*a, *b] || ranks == [*b, *a])?;
            let messages = f64::from(line.calls_per_sample) * f64::from(facts.transfers_per_call);
            Some(facts.bytes_total.0 as f64 * messages / (*pairs.median_nanoseconds.get(index)? as f64 * 1e-9))
        });
        rates.reduce(f64::max).map(Rate)
    }
}

// Times of matrix products, merged over the replicates of each.

/// A product over all replicates.
#[derive(Clone, Debug, PartialEq)]
pub struct ProductTime {
    pub product: ProductShape,
    /// Library that computed it.
    pub library: String,
    /// Ranks of a host that computed at the same time.
    pub ranks_per_host: u32,
    /// Its outcome, and the times of the slowest rank.
    pub times: MergedTimes,
}

impl ProductTime {
    /// Floating-point operations per second of one rank.
    pub fn flops_per_second(&self) -> Option<f64> {
        self.times.median().filter(|seconds| seconds.0 > 0.0).map(|seconds| self.product.flops() / seconds.0)
    }
}

impl Record {
    /// Every product of the record, in the order of first appearance.
    pub fn product_times(&self) -> Vec<ProductTime> {
        let mut known = HashSet::new();
        let products = self.products.iter().map(|line| &line.product).filter(|product| known.insert(*product));
        products.filter_map(|product| self.product_time(product.clone())).collect()
    }

    fn product_time(&self, product: ProductShape) -> Option<ProductTime> {
        let lines = || self.products.iter().filter(|line| line.product == product);
        let times = MergedTimes::of(lines().map(|line| (&line.outcome, line.slowest_nanoseconds.as_slice())));
        let first = lines().next()?;
        let (library, ranks_per_host) = (first.library.clone(), first.ranks_per_host);
        Some(ProductTime { product, library, ranks_per_host, times })
    }
}

#[cfg(test)]
mod copy_times_tests {

    use super::super::work_lines::Outcome;
    use super::*;
    use crate::config::{CopyKind, HostMemory};
    use commgauge_base::units::Bytes;

    /// Three replicates of a copy of a gigabyte on two ranks.
    fn record(change: impl Fn(&mut CopyLine)) -> Record {
        let mut record = crate::record::testing::sample();
        for replicate in 0..3 {
            let copy = CopyShape {
                kind: CopyKind::HostToDevice,
                host_memory: Some(HostMemory::Pinned),
                peer_distance: None,
                bytes: Bytes(1_000_000_000),
                alone: true,
            };
            let mut line = CopyLine {
                copy,
                replicate,
                outcome: Outcome::Measured { verified: true },
                copies_per_sample: 1,
                slowest_nanoseconds: vec![20_000_000 + u64::from(replicate) * 1_000_000; 5],
                slowest_rank: vec![1; 5],
                median_nanoseconds: vec![10_000_000, 20_000_000 + u64::from(replicate) * 1_000_000],
            };
            change(&mut line);
            record.copies.push(line);
        }
        record
    }

    #[test]
    fn the_rate_is_that_of_the_median_over_the_replicates_and_the_slowest_rank_is_named() {
        let times = record(|_| {}).copy_times();
        let [time] = times.as_slice() else { panic!("{times:?}") };
        assert_eq!((time.times.medians().len(), time.times.samples()), (3, 15));
        // A gigabyte in 21 ms; rank 0 needs 10 ms.
        assert!((time.times.median().unwrap().0 - 0.021).abs() < 1e-12);
        let [(slowest, low), (fastest, high)] = time.extremes().unwrap();
        assert_eq!((slowest, fastest), (1, 0));
        assert!((low.0 - 1e9 / 0.021).abs() < 1.0 && (high.0 - 1e11).abs() < 1.0);
    }

    #[test]
    fn a_wrong_copy_has_no_time() {
        let wrong = Outcome::corrupt("after", 1, 7, ["3", "4"], 1);
        let times = record(|line| {
            if line.replicate == 1 {
                line.outcome = wrong.clone()
            }
        })
        .copy_times();
        let CopyTime { times: merged, .. } = &times[0];
        assert_eq!((merged.median(), times[0].extremes(), merged.problem()), (None, None, Some(&wrong)));
    }
}

#[cfg(test)]
mod product_times_tests {

    use super::super::work_lines::Outcome;
    use super::*;
    use crate::record::work_lines::ProductLine;
    use commgauge_base::element::ElementType;
    use commgauge_base::stats::Interval;

    fn record(change: impl Fn(u32, &mut ProductLine)) -> Record {
        let mut record = crate::record::testing::sample();
        for replicate in 0..3 {
            let product = ProductShape {
                m: 1000,
                n: 500,
                k: 2000,
                element_type: ElementType::Float32,
                uses: vec!["qkv".to_owned()],
            };
            let mut line = ProductLine {
                product,
                replicate,
                library: "test".to_owned(),
                ranks_per_host: 4,
                threads_per_rank: 1,
                outcome: Outcome::Measured { verified: true },
                warm_up_products: 2,
                slowest_nanoseconds: vec![10_000_000 + u64::from(replicate) * 1_000_000; 8],
                slowest_rank: vec![0; 8],
            };
            change(replicate, &mut line);
            record.products.push(line);
        }
        record
    }

    #[test]
    fn the_rate_is_that_of_the_median_over_the_replicates() {
        let times = record(|_, _| {}).product_times();
        let [time] = times.as_slice() else { panic!("{times:?}") };
        assert_eq!((time.times.medians().len(), time.times.samples()), (3, 24));
        assert!((time.times.median().unwrap().0 - 0.011).abs() < 1e-12);
        // 2 x 1000 x 500 x 2000 = 2e9 operations in 11 ms.
        assert!((time.flops_per_second().unwrap() - 2e9 / 0.011).abs() < 1.0);
        let Interval { low, high } = time.times.interval().unwrap();
        assert!((low.0 - 0.010).abs() < 1e-9 && (high.0 - 0.012).abs() < 1e-9);
    }

    #[test]
    fn a_wrong_product_has_no_time_and_a_failed_replicate_is_reported() {
        let wrong = Outcome::corrupt("after", 1, 7, ["3", "4"], 1);
        let corrupt = record(|replicate, line| {
            if replicate == 1 {
                line.outcome = wrong.clone();
            }
        });
        let time = &corrupt.product_times()[0];
        assert_eq!((time.times.median(), time.times.problem()), (None, Some(&wrong)));
        let failed = record(|replicate, line| {
            if replicate == 1 {
                line.outcome = Outcome::Failed { reason: "no memory".to_owned() };
            }
        });
        let time = &failed.product_times()[0];
        assert_eq!(time.times.medians().len(), 2);
        assert!(matches!(time.times.outcome, Outcome::Failed { .. }));
    }
}
