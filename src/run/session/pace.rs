//! How long work takes beside what was estimated, learnt from work that was done.

use commgauge_base::units::Seconds;
use commgauge_model::workload::Estimate;
use std::time::Duration;

/// What a piece of work may take beside its estimate without being slow: connections, memory and kernels that are made at a first use. Of a
/// case of a millisecond that is hundreds of times its estimate, and of a later one of a second no more than of the first.
const ONCE: Duration = Duration::from_millis(500);
/// A ratio of actual to estimated time above it says more about the estimate than about the machine.
const MOST_SLOWNESS: f64 = 1000.0;
/// How many times as large a guess may be as one that was tried, to be judged by it: small calls say nothing of the rate of large ones.
const REACH: f64 = 16.0;
/// How many times as long as the one that was tried it may take for its guess.
const CAUTION: f64 = 4.0;

/// What the work of this launch has shown.
#[derive(Debug)]
pub(super) struct Pace {
    /// Largest ratio of actual to estimated time; at least 1.
    slowness: f64,
    /// Most seconds beside the estimate, up to [`ONCE`].
    beside: f64,
    /// The largest guess that was tried.
    tried: Option<Tried>,
    has_done_work: bool,
}

#[derive(Clone, Copy, Debug)]
struct Tried {
    guess: f64,
    /// What it took of it.
    ratio: f64,
}

impl Pace {
    /// Before any work.
    pub(super) fn new() -> Pace {
        Pace { slowness: 1.0, beside: 0.0, tried: None, has_done_work: false }
    }

    /// How long work is expected to take. The first work of a launch is not held back by a guess: where that is far too long, a run would
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
        Seconds(seconds + self.beside)
    }

    /// Takes note of how long work took.
    pub(super) fn learn(&mut self, estimate: Estimate, elapsed: Duration) {
        let (seconds, elapsed) = (estimate.seconds().0, elapsed.as_secs_f64());
        let beside = (elapsed - seconds).clamp(0.0, ONCE.as_secs_f64());
        self.beside = self.beside.max(beside);
        let ratio = (elapsed - beside) / seconds.max(1e-3);
        self.slowness = self.slowness.max(ratio.clamp(1.0, MOST_SLOWNESS));
        self.has_done_work = true;
        let is_largest = self.tried.is_none_or(|tried| seconds >= tried.guess);
        if matches!(estimate, Estimate::Guess(_)) && is_largest {
            self.tried = Some(Tried { guess: seconds, ratio });
        }
    }

    /// Expects any work to take for ever.
    #[cfg(test)]
    pub(super) fn stall(&mut self) {
        self.beside = f64::INFINITY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("slow work stretches all, but for what a first use takes", &[(budget(0.1), 800)], budget(40.0), 120.5),
            ("a first use multiplies nothing", &[(budget(0.001), 400)], budget(94.0), 94.399),
            ("the first guess holds nothing back", &[], guess(172.0), 0.0),
            ("after other work a guess is a guess", &[(budget(1.0), 10)], guess(172.0), 172.0),
            ("a guess that was far too long", &[(guess(20.0), 100)], guess(172.0), 172.0 * 0.005 * 4.0),
            ("small calls say nothing of large ones", &[(guess(0.06), 10)], guess(172.0), 172.0),
            ("the largest one that was tried counts", &[(guess(20.0), 100), (guess(0.06), 60)], guess(20.0), 0.4),
            ("a guess that was too short", &[(guess(1.0), 4500)], guess(10.0), 40.5),
        ] {
            let found = after(work).expected(asked).0;
            assert!((found - expected).abs() < 1e-6, "{what}: {found}, not {expected}");
        }
    }
}
