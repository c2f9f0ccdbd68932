//! The time limit of a run: no work is started that would not finish in time.
//!
//! Process 0 decides by its own clock and broadcasts the decision.

use super::pace::Pace;
use crate::world::World;
use commgauge_base::error::Result;
use commgauge_base::units::Seconds;
use commgauge_model::workload::Estimate;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Reserved for the end line, flushing to disk and finalising MPI: this share of the limit, at most this long.
const RESERVE: (f64, Duration) = (0.05, Duration::from_secs(5));

/// Deadline of a run.
#[derive(Clone, Debug)]
pub struct TimeLimit {
    limit: Seconds,
    deadline: Instant,
    pace: Arc<Mutex<Pace>>,
}

/// Work in progress.
pub(super) struct Begun {
    estimate: Estimate,
    at: Instant,
}

impl TimeLimit {
    /// A limit that counts from an earlier moment.
    pub fn of(limit: Seconds, begun: Instant) -> TimeLimit {
        let usable = (limit.0 - (limit.0 * RESERVE.0).min(RESERVE.1.as_secs_f64())).max(0.0);
        // A limit of centuries counts as none.
        let deadline = Duration::try_from_secs_f64(usable).ok().and_then(|usable| begun.checked_add(usable));
        let deadline = deadline.unwrap_or_else(|| begun + Duration::from_secs(1 << 32));
        TimeLimit { limit, deadline, pace: Arc::new(Mutex::new(Pace::new())) }
    }

    /// The limit as requested.
    pub fn limit(&self) -> Seconds {
        self.limit
    }

    /// Begins work if it fits into the time limit; the same on every process.
    pub(super) fn begin(&self, world: &dyn World, estimate: Estimate) -> Result<Option<Begun>> {
        let mut enough = [u64::from(self.has_time_for(estimate, Instant::now()))];
        world.broadcast_u64(&mut enough)?;
        Ok((enough[0] == 1).then(|| Begun { estimate, at: Instant::now() }))
    }

    /// Learns from the actual duration of completed work.
    pub(super) fn done(&self, work: &Begun) {
        self.pace().learn(work.estimate, work.at.elapsed());
    }

    /// Leaves no time for any work that is expected to take time.
    #[cfg(test)]
    pub(super) fn expire(&self) {
        self.pace().stall();
    }

    fn has_time_for(&self, estimate: Estimate, now: Instant) -> bool {
        self.deadline.saturating_duration_since(now).as_secs_f64() > self.pace().expected(estimate).0
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::SoloWorld;

    #[test]
    fn nothing_is_begun_that_would_not_be_done_in_time() {
        let begun = Instant::now();
        let limit = TimeLimit::of(Seconds(100.0), begun);
        let after = |seconds| begun + Duration::from_secs(seconds);
        // 5 s are reserved.
        for (passed, estimate, fits) in
            [(0, 94.0, true), (0, 95.5, false), (90, 4.0, true), (90, 6.0, false), (95, 0.0, false), (200, 0.0, false)]
        {
            assert_eq!(
                limit.has_time_for(Estimate::Budget(Seconds(estimate)), after(passed)),
                fits,
                "{estimate} s after {passed} s"
            );
        }
    }

    #[test]
    fn a_limit_of_nothing_begins_nothing_and_one_of_centuries_everything() {
        let long_ago = Instant::now();
        assert!(
            TimeLimit::of(Seconds(0.0), long_ago).begin(&SoloWorld, Estimate::Budget(Seconds(0.0))).unwrap().is_none()
        );
        for limit in [1e30, f64::MAX] {
            assert!(
                TimeLimit::of(Seconds(limit), long_ago)
                    .begin(&SoloWorld, Estimate::Guess(Seconds(1e6)))
                    .unwrap()
                    .is_some()
            );
        }
    }
}
