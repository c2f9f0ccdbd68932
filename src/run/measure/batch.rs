//! A batch of samples: the marks of this process, reduced to the samples that all ranks agree on. The buffers are
//! reused from batch to batch.

use crate::backend::{Call, Marks};
use crate::world::Located;
use commgauge_base::sample::{ExclusionReason, Sample};

/// Samples of one batch, the same on every process, and the marks from which they were computed.
#[derive(Debug, Default)]
pub struct Batch {
    /// The marks of this process's ranks.
    pub(crate) marks: Marks,
    /// Distance between the first marks of consecutive samples: 1 if they share a mark.
    pub(crate) marks_per_sample: usize,
    /// Whether each local rank is idle; empty if none is.
    pub(crate) idle: Vec<bool>,
    /// Buffer for the reduction over processes.
    pub(crate) located: Vec<Located>,
    /// By how much all times of each rank may be off on the clock of its host, on process 0; empty where none may. Of isolated batches.
    pub(crate) clock_errors_nanoseconds: Vec<u64>,
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

    /// Reads the marks of a call, and which of its ranks were idle.
    pub(crate) fn read(&mut self, call: &dyn Call, marks_per_sample: usize) {
        call.read_marks(&mut self.marks);
        self.marks_per_sample = marks_per_sample;
        self.idle.clear();
        self.idle.extend((0..self.marks.local_ranks).map(|rank| call.is_idle_rank(rank)));
    }

    /// Takes readings of the host's clock, at the beginning and the end of each sample, for the marks of the one rank of this process.
    pub(crate) fn take_readings(&mut self, call: &dyn Call, readings: Vec<u64>) {
        self.marks = Marks { local_ranks: 1, nanoseconds: readings };
        self.marks_per_sample = 2;
        self.idle.clear();
        self.idle.push(call.is_idle_rank(0));
    }

    /// Values of the active local ranks; idle ranks have none and never count as the largest.
    pub(crate) fn active_values<'a>(
        &'a self,
        values: impl Iterator<Item = f64> + 'a,
    ) -> impl Iterator<Item = f64> + 'a {
        let idle = self.idle.iter().copied().chain(std::iter::repeat(false));
        values.zip(idle).map(|(value, idle)| if idle { f64::NEG_INFINITY } else { value })
    }

    /// The slowest times of the valid samples.
    pub(crate) fn valid_times(&self) -> impl Iterator<Item = f64> {
        self.samples.iter().filter(|sample| sample.exclusion.is_none()).map(|sample| sample.slowest_nanoseconds as f64)
    }
}

/// Codes of the reason why a sample is invalid, for the reduction; the more severe reason is the larger number.
pub(crate) const VALID: f64 = 0.0;
pub(crate) const BELOW_RESOLUTION: f64 = 1.0;
pub(crate) const MISSED_START: f64 = 2.0;

/// Decodes the reason.
pub(crate) fn invalid_reason(mark: f64) -> Option<ExclusionReason> {
    match mark {
        m if m >= MISSED_START => Some(ExclusionReason::MissedStart),
        m if m >= BELOW_RESOLUTION => Some(ExclusionReason::BelowClockResolution),
        _ => None,
    }
}

/// The largest value of a process's ranks; the lowest rank on a tie.
pub(crate) fn largest(first_rank: u32, values: impl Iterator<Item = f64>) -> Located {
    let mut found = Located { value: f64::NEG_INFINITY, rank: first_rank as i32 };
    for (rank, value) in (first_rank as i32..).zip(values) {
        if value > found.value {
            found = Located { value, rank };
        }
    }
    found
}
