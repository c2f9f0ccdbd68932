//! The copies of a record, over all replicates.

use super::Record;
use super::copy_line::{CopyFacts, CopyLine};
use super::merged_times::{MergedTimes, is_measured};
use commgauge_base::stats::{median, sorted};
use commgauge_base::units::{Rate, Seconds};

/// A copy over all replicates.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyTime {
    /// The copy.
    pub copy: CopyFacts,
    /// What came of it, and the times of the slowest rank.
    pub times: MergedTimes,
    /// Of each rank, the median over the replicates of its own medians.
    pub seconds_of_rank: Vec<Seconds>,
}

impl CopyTime {
    /// Bytes per second in each direction that a copy of so many seconds has.
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
        let mut copies: Vec<CopyFacts> = Vec::new();
        for line in &self.copies {
            if !copies.contains(&line.copy) {
                copies.push(line.copy);
            }
        }
        copies.into_iter().map(|copy| self.copy_time(copy)).collect()
    }

    fn copy_time(&self, copy: CopyFacts) -> CopyTime {
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

#[cfg(test)]
mod tests {
    use super::super::outcome::Outcome;
    use super::*;
    use crate::config::{CopyKind, HostMemory};
    use commgauge_base::units::Bytes;

    /// Three replicates of a copy of a gigabyte on two ranks.
    fn record(change: impl Fn(&mut CopyLine)) -> Record {
        let lines = include_str!("../../../tests/data/sample-record.jsonl").lines();
        let mut record = Record::from_lines(lines.map(|line| serde_json::from_str(line).unwrap())).unwrap();
        for replicate in 0..3 {
            let copy = CopyFacts {
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
        let wrong = Outcome::Corrupt {
            when: "after".into(),
            rank: 1,
            element: 7,
            expected: "3".into(),
            got: "4".into(),
            count: 1,
            call: None,
        };
        let times = record(|line| {
            if line.replicate == 1 {
                line.outcome = wrong.clone()
            }
        })
        .copy_times();
        let CopyTime { times: merged, .. } = &times[0];
        assert_eq!((merged.median(), times[0].extremes(), merged.trouble()), (None, None, Some(&wrong)));
    }
}
