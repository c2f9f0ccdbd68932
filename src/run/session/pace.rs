//! When a run stops early: signals, and a time limit with what completed work has shown about the duration of the rest.

use crate::watchdog::keep_mark_when_asked_to_end;
use crate::world::{Located, World, decided};
use commgauge_base::error::{Error, Result};
use commgauge_base::host::{StopSignal, stop_signals};
use commgauge_base::units::Seconds;
use commgauge_model::record::line::Outcome;
use commgauge_model::workload::Estimate;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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

/// Work in progress that fits into the time limit.
pub(super) struct BegunWork {
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

    /// Whether work fits into the time limit; the same on every process.
    fn agrees(&self, world: &dyn World, estimate: Estimate) -> Result<bool> {
        decided(world, self.has_time_for(estimate, Instant::now()))
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

/// Counts of the outcomes of all work, and whether the run should stop.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Lines with wrong data.
    pub corrupt: u64,
    /// Lines of work that did not complete.
    pub failed: u64,
    /// Lines of work that cannot be run here.
    pub skipped: u64,
    /// Lines of work with times.
    pub measured: u64,
    /// The signal that ended the run early, or 0.
    pub signal: i32,
    /// Whether the time limit ended it early.
    pub out_of_time: bool,
}

impl Tally {
    pub(super) fn count(&mut self, outcome: &Outcome) {
        self.corrupt += u64::from(outcome.is_wrong());
        self.failed += u64::from(matches!(outcome, Outcome::Failed { .. }));
        self.skipped += u64::from(matches!(outcome, Outcome::Skipped { .. }));
        self.measured += u64::from(matches!(outcome, Outcome::Measured { .. }));
    }

    /// Whether no further work may begin.
    pub(super) fn is_stopped(&self) -> bool {
        self.signal != 0 || self.out_of_time
    }
}

// Reasons for a run to stop early: signals, noticed between batches and agreed on between cases, and the time limit.

/// Signals raised in this process, and the time limit.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    raised: Arc<AtomicBool>,
    number: Arc<AtomicUsize>,
    limit: Option<TimeLimit>,
}

/// What all processes know after an exchange.
pub(super) struct Agreed {
    /// The signal received by any process, or 0.
    pub signal: i32,
    /// A rank that lost its watchdog.
    pub unwatched: Option<u32>,
}

impl Signals {
    /// Catches every stop signal from now on: the first one requests a stop that records the measured results.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn catch() -> Result<Signals> {
        let signals = Signals::default();
        for StopSignal { number: signal, counts_as } in stop_signals() {
            signal_hook::flag::register(signal, Arc::clone(&signals.raised))
                .and_then(|_| {
                    signal_hook::flag::register_usize(signal, Arc::clone(&signals.number), counts_as as usize)
                })
                .map_err(|cause| Error::environment(format!("cannot catch signal {signal}: {cause}")))?;
        }
        keep_mark_when_asked_to_end().map_err(|cause| Error::environment(format!("cannot catch SIGTERM: {cause}")))?;
        Ok(signals)
    }

    /// With a time limit; all processes must have one or none.
    #[must_use]
    pub fn with_limit(self, limit: Option<TimeLimit>) -> Signals {
        Signals { limit, ..self }
    }

    /// Set when a signal is received; ends sampling early.
    pub fn raised(&self) -> &AtomicBool {
        &self.raised
    }

    /// The number of the signal received by this process, or 0, for the watchdog.
    pub fn number(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.number)
    }

    /// The signal received by any process, and a rank that lost its watchdog since the last call; the same everywhere.
    pub(super) fn agreed(&self, world: &dyn World, is_newly_lost: bool) -> Result<Agreed> {
        let rank = world.process() as i32;
        let signal = self.number.load(Ordering::Relaxed) as f64;
        let lost = f64::from(u8::from(is_newly_lost));
        let mut highest = [signal, lost].map(|value| Located { value, rank });
        world.all_max(&mut highest)?;
        let [signal, lost] = highest;
        let unwatched = (lost.value > 0.0).then_some(lost.rank as u32);
        Ok(Agreed { signal: signal.value as i32, unwatched })
    }

    /// Begins work with an estimated duration if it fits into the time limit; the same on every process.
    pub(super) fn begin(&self, world: &dyn World, estimate: Estimate) -> Result<Option<BegunWork>> {
        let fits = self.limit.as_ref().map_or(Ok(true), |limit| limit.agrees(world, estimate))?;
        Ok(fits.then(|| BegunWork { estimate, at: Instant::now() }))
    }

    /// Learns from the actual duration of completed work.
    pub(super) fn done(&self, work: &BegunWork) {
        if let Some(limit) = &self.limit {
            limit.pace().learn(work.estimate, work.at.elapsed());
        }
    }

    /// The time limit, where there is one.
    pub(super) fn limit(&self) -> Option<Seconds> {
        self.limit.as_ref().map(TimeLimit::limit)
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
        let agrees = |limit, estimate| TimeLimit::of(Seconds(limit), long_ago).agrees(&SoloWorld, estimate).unwrap();
        assert!(!agrees(0.0, Estimate::Budget(Seconds(0.0))));
        assert!([1e30, f64::MAX].into_iter().all(|limit| agrees(limit, Estimate::Guess(Seconds(1e6)))));
    }
}
