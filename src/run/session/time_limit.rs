//! The time limit of a run: no work is started that would not finish in time.
//!
//! Process 0 decides by its own clock and broadcasts the decision.

use crate::world::World;
use commgauge_base::error::Result;
use commgauge_base::units::Seconds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Reserved for the end line, flushing to disk and finalising MPI: this share of the limit, at most this long.
const RESERVE: (f64, Duration) = (0.05, Duration::from_secs(5));

/// What a piece of work may take beside its estimate without being slow: connections, memory and kernels that are made at a first use. Of a
/// case of a millisecond that is hundreds of times its estimate, and of a later one of a second no more than of the first.
const ONCE: Duration = Duration::from_millis(500);

/// Deadline of a run.
#[derive(Clone, Debug)]
pub struct TimeLimit {
    limit: Seconds,
    deadline: Instant,
    /// Largest ratio of actual to estimated duration so far, in thousandths; at least 1000.
    slowness: Arc<AtomicU64>,
    /// Most milliseconds beside the estimate so far, up to [`ONCE`].
    beside: Arc<AtomicU64>,
}

/// Work in progress.
pub(super) struct Begun {
    estimate: Seconds,
    at: Instant,
}

impl TimeLimit {
    /// A limit that counts from an earlier moment.
    pub fn of(limit: Seconds, begun: Instant) -> TimeLimit {
        let usable = (limit.0 - (limit.0 * RESERVE.0).min(RESERVE.1.as_secs_f64())).max(0.0);
        // A limit of centuries counts as none.
        let deadline = Duration::try_from_secs_f64(usable).ok().and_then(|usable| begun.checked_add(usable));
        let deadline = deadline.unwrap_or_else(|| begun + Duration::from_secs(1 << 32));
        TimeLimit { limit, deadline, slowness: Arc::new(AtomicU64::new(1000)), beside: Arc::default() }
    }

    /// The limit as requested.
    pub fn limit(&self) -> Seconds {
        self.limit
    }

    /// Begins work if it fits into the time limit; the same on every process.
    pub(super) fn begin(&self, world: &dyn World, estimate: Seconds) -> Result<Option<Begun>> {
        let mut enough = [u64::from(self.has_time_for(estimate, Instant::now()))];
        world.broadcast_u64(&mut enough)?;
        Ok((enough[0] == 1).then(|| Begun { estimate, at: Instant::now() }))
    }

    /// Updates the estimate with the actual duration of completed work.
    pub(super) fn done(&self, work: &Begun) {
        let elapsed = work.at.elapsed().as_secs_f64();
        let beside = (elapsed - work.estimate.0).clamp(0.0, ONCE.as_secs_f64());
        self.beside.fetch_max((beside * 1000.0) as u64, Ordering::Relaxed);
        let ratio = (elapsed - beside) / work.estimate.0.max(1e-3);
        // A ratio over 1000 says more about the estimate than about the machine.
        self.slowness.fetch_max((ratio.clamp(1.0, 1000.0) * 1000.0) as u64, Ordering::Relaxed);
    }

    /// Leaves no time for any work that is expected to take time.
    #[cfg(test)]
    pub(super) fn expire(&self) {
        self.slowness.store(u64::MAX, Ordering::Relaxed);
    }

    fn has_time_for(&self, estimate: Seconds, now: Instant) -> bool {
        let slowness = self.slowness.load(Ordering::Relaxed) as f64 / 1000.0;
        let beside = self.beside.load(Ordering::Relaxed) as f64 / 1000.0;
        self.deadline.saturating_duration_since(now).as_secs_f64() > estimate.0.max(0.0) * slowness + beside
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
            assert_eq!(limit.has_time_for(Seconds(estimate), after(passed)), fits, "{estimate} s after {passed} s");
        }
    }

    #[test]
    fn work_that_took_longer_than_estimated_makes_later_estimates_longer() {
        let begun = Instant::now();
        let limit = TimeLimit::of(Seconds(100.0), begun);
        let ago = |seconds| Instant::now() - Duration::from_millis(seconds);
        limit.done(&Begun { estimate: Seconds(1.0), at: ago(10) });
        assert!(limit.has_time_for(Seconds(40.0), begun), "quick work changes nothing");
        limit.done(&Begun { estimate: Seconds(0.1), at: ago(800) });
        assert!(!limit.has_time_for(Seconds(40.0), begun));
        assert!(limit.has_time_for(Seconds(25.0), begun));
    }

    #[test]
    fn what_a_first_use_takes_is_added_to_later_estimates_and_does_not_multiply_them() {
        let begun = Instant::now();
        let limit = TimeLimit::of(Seconds(100.0), begun);
        limit.done(&Begun { estimate: Seconds(0.001), at: begun - Duration::from_millis(400) });
        assert!(limit.has_time_for(Seconds(94.0), begun));
        assert!(!limit.has_time_for(Seconds(94.8), begun));
    }

    #[test]
    fn a_limit_of_nothing_begins_nothing_and_one_of_centuries_everything() {
        let long_ago = Instant::now();
        assert!(TimeLimit::of(Seconds(0.0), long_ago).begin(&SoloWorld, Seconds(0.0)).unwrap().is_none());
        for limit in [1e30, f64::MAX] {
            assert!(TimeLimit::of(Seconds(limit), long_ago).begin(&SoloWorld, Seconds(1e6)).unwrap().is_some());
        }
    }
}
