//! What the replicates of a copy or of a matrix product come to together.

use super::outcome::Outcome;
use commgauge_base::stats::{Interval, median, median_interval, sorted};
use commgauge_base::units::Seconds;

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

    /// Why there is no time of some replicate; none where all were measured.
    pub fn trouble(&self) -> Option<&Outcome> {
        Some(&self.outcome).filter(|outcome| !is_measured(outcome))
    }

    /// The median of each replicate.
    pub fn medians(&self) -> Vec<Seconds> {
        self.seconds_of_replicate.iter().filter_map(|times| median(times)).map(Seconds).collect()
    }

    /// The median of these.
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
