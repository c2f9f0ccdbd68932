//! Sampling settings: the checked form of a suite's `[measure]` table and of the flags that override it.

use super::{Calibrate, Peer};
use commgauge_base::error::{Error, Result};
use commgauge_base::sample::{ClockMethod, Timing};
use commgauge_base::units::{Bytes, Seconds};
use std::borrow::Cow;

/// Sampling settings.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSettings {
    /// Requested half width of the median's 95 % interval, relative to the median.
    pub precision: f64,
    /// Fewest samples of a case and replicate.
    pub minimum_samples: u32,
    /// Most samples of a case and replicate.
    pub maximum_samples: u32,
    /// Take exactly this many calls instead of stopping by precision (`-n` of the sweep).
    pub fixed_iterations: Option<u32>,
    /// Run exactly this many iterations before timing instead of waiting until times are stationary (`-w` of the
    /// sweep).
    pub fixed_warm_up: Option<u32>,
    /// Use the numbers of iterations and warm-up calls of this tool, which depend on the size, unless the fields above
    /// set them.
    pub calls_like: Option<Peer>,
    /// Time budget of a case and replicate, warm-up and checks not counted.
    pub case_budget: Seconds,
    /// Independent repetitions, each with fresh communicators and a new order of the cases.
    pub replicates: u32,
    /// One buffer for all iterations instead of a rotation that exceeds the last-level cache.
    pub warm_buffers: bool,
    /// How the ranks start an isolated call together, where their clocks allow it.
    pub start: ClockMethod,
    /// Between which readings streaming calls are timed.
    pub timing: Timing,
    /// Check data before and after timing.
    pub verify: bool,
    /// Seed of data and order.
    pub seed: u64,
    /// How sizes are added to sweeps during the run, if they are.
    pub calibrate: Option<Calibrate>,
    /// The time that all cases together may take (`--within`): first a short round over all of them, then `replicates` less one
    /// further rounds over those whose interval is widest.
    pub within: Option<Seconds>,
    /// What the replicates are for.
    pub rounds: Rounds,
}

/// What the replicates of a run are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounds {
    /// Independent measurements, each in a shuffled order of the cases.
    #[default]
    Shuffled,
    /// The same, but the last one has the order of the table, so that its rows complete one after another.
    LastInOrder,
    /// Rolling checks with changing data (`--soak`), for the time of `within`.
    Soak,
}

/// Rounds of a soak last ten seconds each, within these bounds on their number: a round adds a line to the record for every case.
const SOAK_ROUND_SECONDS: f64 = 10.0;
const SOAK_ROUNDS: (f64, f64) = (3.0, 120.0);

/// Default number of rounds of a run with a time budget: a short one and one that divides the remaining time.
pub const ROUNDS_WITHIN: u32 = 2;

impl RunSettings {
    /// The same with a time budget for all cases together.
    ///
    /// # Errors
    /// A usage error if the settings leave no choice to the budget.
    pub fn divided(self, within: Seconds) -> Result<RunSettings> {
        let refused = |why: &str| Err(Error::usage(format!("--within {within}: {why}")));
        if self.fixed_iterations.is_some() {
            return refused(
                "-n/--iters takes a fixed number of calls, so no time is left to divide; leave one of them out",
            );
        }
        if self.calls_like.is_some() {
            return refused("--like takes a fixed number of calls; leave one of them out, or add --precision");
        }
        if self.calibrate.is_some() {
            return refused(
                "a suite with [calibrate] has a budget of its own, `budget` in that table; leave one of them out",
            );
        }
        Ok(RunSettings { within: Some(within), replicates: self.replicates.max(ROUNDS_WITHIN), ..self })
    }

    /// Whether the run looks for wrong data for a time instead of measuring.
    pub fn is_soak(&self) -> bool {
        self.rounds == Rounds::Soak
    }

    /// The same for repeating all cases with rolling checks for a time.
    ///
    /// # Errors
    /// A usage error if the settings leave the time no choice, or switch the checks off.
    pub fn soaked(self, time: Seconds) -> Result<RunSettings> {
        let refused = |why: &str| Err(Error::usage(format!("--soak {time}: {why}")));
        if self.fixed_iterations.is_some() || self.calls_like.is_some() {
            return refused(
                "a fixed number of calls (-n/--iters, --like) ends before the time does; leave one of them out",
            );
        }
        if self.calibrate.is_some() {
            return refused("a suite with [calibrate] adds cases until it knows a curve; leave that table out");
        }
        if !self.verify {
            return refused("a soak looks for wrong data, and checking is switched off (-c 0, verify = false)");
        }
        let rounds = (time.0 / SOAK_ROUND_SECONDS).clamp(SOAK_ROUNDS.0, SOAK_ROUNDS.1) as u32;
        Ok(RunSettings { within: Some(time), rounds: Rounds::Soak, replicates: rounds, ..self })
    }
}

impl RunSettings {
    /// Settings for a case of this size.
    pub fn at(&self, bytes: Bytes) -> Cow<'_, RunSettings> {
        let Some(peer) = self.calls_like else { return Cow::Borrowed(self) };
        let calls = peer.calls(bytes);
        Cow::Owned(RunSettings {
            fixed_iterations: self.fixed_iterations.or(Some(calls.timed)),
            fixed_warm_up: self.fixed_warm_up.or(Some(calls.warm_up)),
            ..self.clone()
        })
    }
}

impl Default for RunSettings {
    fn default() -> Self {
        RunSettings {
            precision: 0.02,
            minimum_samples: 30,
            maximum_samples: 100_000,
            fixed_iterations: None,
            fixed_warm_up: None,
            calls_like: None,
            case_budget: Seconds(1.0),
            replicates: 3,
            warm_buffers: false,
            start: ClockMethod::default(),
            timing: Timing::default(),
            verify: true,
            seed: 20_240_613,
            calibrate: None,
            within: None,
            rounds: Rounds::Shuffled,
        }
    }
}
