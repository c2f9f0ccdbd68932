//! Reasons for a run to stop early: signals, noticed between batches and agreed on between cases, and the time limit.

use super::time_limit::{Begun, TimeLimit};
use crate::watchdog::keep_mark_when_asked_to_end;
use crate::world::{Located, World};
use commgauge_base::error::{Error, Result};
use commgauge_base::stop_signal::{StopSignal, stop_signals};
use commgauge_base::units::Seconds;
use commgauge_model::workload::Estimate;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Signals raised in this process, and the time limit.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    raised: Arc<AtomicBool>,
    number: Arc<AtomicUsize>,
    limit: Option<TimeLimit>,
}

/// What all processes know after they asked each other.
pub(super) struct Agreed {
    /// The signal received by any process, or 0.
    pub signal: i32,
    /// A rank whose watchdog was lost.
    pub unwatched: Option<u32>,
}

/// Work in progress, which fits into the time limit.
pub(super) struct BegunWork(Option<Begun>);

impl Signals {
    /// Catches every stop signal from now on: the first one requests a stop in which the measured results are recorded.
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
        keep_mark_when_asked_to_end()
            .map_err(|cause| Error::environment(format!("cannot catch the signal to end: {cause}")))?;
        Ok(signals)
    }

    /// The same with a time limit; all processes must have one or none.
    #[must_use]
    pub fn with_limit(self, limit: Option<TimeLimit>) -> Signals {
        Signals { limit, ..self }
    }

    /// Set when a signal was received, which ends sampling early.
    pub fn raised(&self) -> &AtomicBool {
        &self.raised
    }

    /// The number of the signal received by this process, or 0, for the watchdog.
    pub fn number(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.number)
    }

    /// The signal received by any process, and a rank whose watchdog was lost since the last time; the same everywhere.
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
        match &self.limit {
            None => Ok(Some(BegunWork(None))),
            Some(limit) => Ok(limit.begin(world, estimate)?.map(|begun| BegunWork(Some(begun)))),
        }
    }

    /// Ends the work.
    pub(super) fn done(&self, work: &BegunWork) {
        if let (Some(limit), BegunWork(Some(begun))) = (&self.limit, work) {
            limit.done(begun);
        }
    }

    /// The time limit, where there is one.
    pub(super) fn limit(&self) -> Option<Seconds> {
        self.limit.as_ref().map(TimeLimit::limit)
    }
}
