//! How long work takes compared with its estimate, learnt from completed work.

use crate::world::{World, decided};
use commgauge_base::error::Result;
use commgauge_base::units::Seconds;
use commgauge_model::workload::Estimate;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Extra time that work may take without being slow: connections, memory and kernels are created at first use. For a case of a millisecond
/// that is hundreds of times its estimate; for a later case of a second it is no more than for the first.
const ONCE: Duration = Duration::from_millis(500);

/// A ratio of actual to estimated time above this says more about the estimate than about the machine.
const MOST_SLOWNESS: f64 = 1000.0;

/// How much larger than a tried estimate an estimate may be and still be judged by it: small calls say nothing about the rate of large
/// ones.
const REACH: f64 = 16.0;

/// How many times as long as the tried estimate work may take for its own.
const CAUTION: f64 = 4.0;

/// Results of this launch's work.
#[derive(Debug)]
pub(super) struct Pace {
    /// Largest ratio of actual to estimated time; at least 1.
    slowness: f64,
    /// Maximum seconds in addition to the estimate, up to [`ONCE`].
    extra: f64,
    /// The largest tried estimate.
    tried: Option<Tried>,
    has_done_work: bool,
}

#[derive(Clone, Copy, Debug)]
struct Tried {
    guess: f64,
    /// Its ratio of actual to estimated time.
    ratio: f64,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace { slowness: 1.0, extra: 0.0, tried: None, has_done_work: false }
    }

    /// How long work is expected to take. An estimate does not prevent the first work of a launch: if it is far too long, a run would
    /// measure nothing, however often it is resumed.
    pub(super) fn expected(&self, estimate: Estimate) -> Seconds {
        let usual = estimate.seconds().0.max(0.0) * self.slowness;
        let seconds = match (estimate, self.tried) {
            (Estimate::Guess(_), _) if !self.has_done_work => 0.0,
            (Estimate::Guess(guess), Some(tried)) if guess.0 <= REACH * tried.guess => {
                usual.min(guess.0 * tried.ratio * CAUTION)
            }
            _ => usual,
        };
        Seconds(seconds + self.extra)
    }

    /// Learns how long work took.
    pub(super) fn learn(&mut self, estimate: Estimate, elapsed: Duration) {
        let (seconds, elapsed) = (estimate.seconds().0, elapsed.as_secs_f64());
        let extra = (elapsed - seconds).clamp(0.0, ONCE.as_secs_f64());
        self.extra = self.extra.max(extra);
        let ratio = (elapsed - extra) / seconds.max(1e-3);
        self.slowness = self.slowness.max(ratio.clamp(1.0, MOST_SLOWNESS));
        self.has_done_work = true;
        let is_largest = self.tried.is_none_or(|tried| seconds >= tried.guess);
        if matches!(estimate, Estimate::Guess(_)) && is_largest {
            self.tried = Some(Tried { guess: seconds, ratio });
        }
    }

    /// Expects any work to take forever.
    #[cfg(test)]
    pub(super) fn stall(&mut self) {
        self.extra = f64::INFINITY;
    }
}

// The time limit of a run: no work starts that would not finish in time.
//
// Process 0 decides by its own clock and broadcasts the decision.

/// Reserved for the end line, flushing to disk and finalising MPI: this share of the limit, at most this long.
const RESERVE: (f64, Duration) = (0.05, Duration::from_secs(5));

/// Deadline of a run.
#[derive(Clone, Debug)]
pub struct TimeLimit {
    limit: Seconds,
    deadline: Instant,
    pace: Arc<Mutex<Pace>>,
}

pub(super) struct Begun {
    estimate: Estimate,
    at: Instant,
}

impl TimeLimit {
    /// A limit that counts from an earlier time.
    pub fn of(limit: Seconds, begun: Instant) -> TimeLimit {
        let usable = (limit.0 - (limit.0 * RESERVE.0).min(RESERVE.1.as_secs_f64())).max(0.0);
        // A limit of centuries is no limit.
        let deadline = Duration::try_from_secs_f64(usable).ok().and_then(|usable| begun.checked_add(usable));
        let deadline = deadline.unwrap_or_else(|| begun + Duration::from_secs(1 << 32));
        TimeLimit { limit, deadline, pace: Arc::new(Mutex::new(Pace::new())) }
    }

    pub fn limit(&self) -> Seconds {
        self.limit
    }

    /// Begins work if it fits into the time limit; the same on every process.
    pub(super) fn begin(&self, world: &dyn World, estimate: Estimate) -> Result<Option<Begun>> {
        let has_time = decided(world, self.has_time_for(estimate, Instant::now()))?;
        Ok(has_time.then(|| Begun { estimate, at: Instant::now() }))
    }

    /// Learns from the actual duration of completed work.
    pub(super) fn done(&self, work: &Begun) {
        self.pace().learn(work.estimate, work.at.elapsed());
    }

    /// Leaves no time for any work with an expected duration.
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

    const fn guess(seconds: f64) -> Estimate {
        Estimate::Guess(Seconds(seconds))
    }

    const fn budget(seconds: f64) -> Estimate {
        Estimate::Budget(Seconds(seconds))
    }

    fn after(work: &[(Estimate, u64)]) -> Pace {
        let mut pace = Pace::new();
        work.iter().for_each(|(estimate, milliseconds)| pace.learn(*estimate, Duration::from_millis(*milliseconds)));
        pace
    }

    #[test]
    fn budgets_are_believed_and_stretched_and_guesses_follow_what_was_tried() {
        for (what, work, asked, expected) in [
            ("a budget before any work", &[][..], budget(40.0), 40.0),
            ("quick work shortens no budget", &[(budget(1.0), 10)], budget(40.0), 40.0),
            ("slow work stretches all, except for first use", &[(budget(0.1), 800)], budget(40.0), 120.5),
            ("first use multiplies nothing", &[(budget(0.001), 400)], budget(94.0), 94.399),
            ("the first estimate prevents nothing", &[], guess(172.0), 0.0),
            ("after other work an estimate counts", &[(budget(1.0), 10)], guess(172.0), 172.0),
            ("an estimate that was far too long", &[(guess(20.0), 100)], guess(172.0), 172.0 * 0.005 * 4.0),
            ("small calls say nothing about large ones", &[(guess(0.06), 10)], guess(172.0), 172.0),
            ("the largest tried one counts", &[(guess(20.0), 100), (guess(0.06), 60)], guess(20.0), 0.4),
            ("an estimate that was too short", &[(guess(1.0), 4500)], guess(10.0), 40.5),
        ] {
            let found = after(work).expected(asked).0;
            assert!((found - expected).abs() < 1e-6, "{what}: {found}, not {expected}");
        }
    }

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
