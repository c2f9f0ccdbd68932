//! A batch of samples: the marks of this process, reduced to the samples that all ranks agree on. The buffers are kept from batch to batch.

use crate::backend::{Call, Marks};
use crate::sample::{ExclusionReason, Sample};
use crate::world::Located;

/// The samples of one batch, the same on every process, and the marks they came from.
#[derive(Debug, Default)]
pub struct Batch {
    /// The marks of this process's ranks.
    pub(crate) marks: Marks,
    /// From the marks at which one sample begins to those at which the next does: 1 where consecutive samples share a mark.
    pub(crate) marks_per_sample: usize,
    /// Of each local rank, whether it stands aside; empty where none does.
    pub(crate) aside: Vec<bool>,
    /// Room for the reduction over processes.
    pub(crate) located: Vec<Located>,
    /// The samples.
    pub samples: Vec<Sample>,
}

impl Batch {
    /// Marks of every local rank at the beginning and at the end of a sample.
    pub(crate) fn begin_and_end(&self, sample: usize) -> (&[u64], &[u64]) {
        let ranks = self.marks.local_ranks;
        let begin = sample * self.marks_per_sample * ranks;
        (&self.marks.nanoseconds[begin..begin + ranks], &self.marks.nanoseconds[begin + ranks..begin + 2 * ranks])
    }

    /// Takes the marks of a call, and who of its ranks stood aside.
    pub(crate) fn read(&mut self, call: &dyn Call, marks_per_sample: usize) {
        call.read_marks(&mut self.marks);
        self.marks_per_sample = marks_per_sample;
        self.aside.clear();
        self.aside.extend((0..self.marks.local_ranks).map(|rank| call.is_idle_rank(rank)));
    }

    /// Values of the local ranks, of which those that stand aside have none and are never the largest.
    pub(crate) fn at_work<'a>(&'a self, values: impl Iterator<Item = f64> + 'a) -> impl Iterator<Item = f64> + 'a {
        let aside = self.aside.iter().copied().chain(std::iter::repeat(false));
        values.zip(aside).map(|(value, aside)| if aside { f64::NEG_INFINITY } else { value })
    }

    /// The slowest times of the samples that count.
    pub(crate) fn valid_times(&self) -> impl Iterator<Item = f64> {
        self.samples.iter().filter(|sample| sample.exclusion.is_none()).map(|sample| sample.slowest_nanoseconds as f64)
    }
}

/// Marks how unreliable a sample is in the reduction; the graver reason is the larger number.
pub(crate) const NO_DOUBT: f64 = 0.0;
pub(crate) const BELOW_RESOLUTION: f64 = 1.0;
pub(crate) const MISSED_START: f64 = 2.0;

/// The reason behind such a number.
pub(crate) fn doubt_of(mark: f64) -> Option<ExclusionReason> {
    match mark {
        m if m >= MISSED_START => Some(ExclusionReason::MissedStart),
        m if m >= BELOW_RESOLUTION => Some(ExclusionReason::BelowClockResolution),
        _ => None,
    }
}

/// The largest of a process's ranks, the lowest rank on a tie.
pub(crate) fn largest(first_rank: u32, values: impl Iterator<Item = f64>) -> Located {
    let mut found = Located { value: f64::NEG_INFINITY, rank: first_rank as i32 };
    for (rank, value) in (first_rank as i32..).zip(values) {
        if value > found.value {
            found = Located { value, rank };
        }
    }
    found
}
