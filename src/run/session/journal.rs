//! The record as a run writes it: open on process 0 only, with errors that all processes share.

use super::pace::{Begun, TimeLimit};
use crate::watchdog::{Watch, keep_mark_when_asked_to_end};
use crate::world::{Located, World, agree};
use commgauge_base::error::{Error, Result};
use commgauge_base::host::{StopSignal, stop_signals};
use commgauge_base::units::Seconds;
use commgauge_model::record::line::{Line, Outcome};
use commgauge_model::record::{Journal, Moved};
use commgauge_model::workload::Estimate;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Writes the lines of a run. Collective unless stated otherwise.
pub(super) struct SharedJournal<'a> {
    world: &'a dyn World,
    journal: Option<Journal>,
    listener: Listener,
    watch: Watch,
    /// Fate of the file, if it was removed or renamed.
    moved: Option<Moved>,
}

impl<'a> SharedJournal<'a> {
    /// The journal opened by process 0; the other processes have none.
    pub(super) fn new(
        world: &'a dyn World,
        journal: Option<Journal>,
        listener: &Listener,
        watch: &Watch,
    ) -> SharedJournal<'a> {
        if let Some(journal) = &journal {
            watch.record(journal);
        }
        SharedJournal { world, journal, listener: listener.clone(), watch: watch.clone(), moved: None }
    }

    /// Writes a line made by process 0.
    pub(super) fn write(&mut self, line: impl FnOnce() -> Line) -> Result<()> {
        let mine = self.write_locally(line);
        agree(self.world, mine)
    }

    /// Writes several lines.
    pub(super) fn write_all(&mut self, lines: impl FnOnce() -> Vec<Line>) -> Result<()> {
        let mine = match self.journal {
            Some(_) => lines().into_iter().try_for_each(|line| self.write_locally(|| line)),
            None => Ok(()),
        };
        agree(self.world, mine)
    }

    /// Writes a line without waiting for the other processes.
    pub(super) fn write_locally(&mut self, line: impl FnOnce() -> Line) -> Result<()> {
        let Some(journal) = self.journal.as_mut() else { return Ok(()) };
        let mut line = line();
        if let Line::End(end) = &mut line {
            end.lines_before = Some(journal.lines());
        }
        journal.write(&line)?;
        if let Some(moved) = journal.take_moved() {
            self.watch.record_moved(&moved);
            let from = self.moved.take().map_or(moved.from, |earlier| earlier.from);
            self.moved = Some(Moved { from, ..moved });
        }
        self.listener.notify(&line);
        Ok(())
    }

    /// Closes the record. An error if it is no longer at the requested path, although no data is lost.
    pub(super) fn finish(self) -> Result<()> {
        let closed = self.journal.map_or(Ok(()), Journal::finish);
        let moved = self.moved.map_or(Ok(()), |moved| Err(Error::environment(moved.sentence())));
        agree(self.world, closed.and(moved))
    }
}

// Callback for every line of the record as it is written, for example for a table that shows finished rows.

type LineCallback = dyn FnMut(&Line) + Send;

/// Receives the lines of process 0, between cases; empty by default.
#[derive(Clone, Default)]
pub struct Listener(Option<Arc<Mutex<LineCallback>>>);

impl Listener {
    /// Calls `callback` with every line after it is written to the record.
    pub fn new(notify: impl FnMut(&Line) + Send + 'static) -> Listener {
        Listener(Some(Arc::new(Mutex::new(notify))))
    }

    pub(super) fn notify(&self, line: &Line) {
        // A callback that panicked is not called again.
        if let Some(Ok(mut notify)) = self.0.as_ref().map(|notify| notify.lock()) {
            notify(line);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Listener" } else { "Listener without callback" })
    }
}

// Counts of the outcomes of a run, and why it stopped early.

/// Counts of the outcomes of all work, and whether the run should stop.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Lines with wrong data.
    pub corrupt: u64,
    /// Lines of work that did not complete.
    pub failed: u64,
    /// The signal that ended the run early, or 0.
    pub signal: i32,
    /// Whether the time limit ended it early.
    pub out_of_time: bool,
}

impl Tally {
    pub(super) fn count(&mut self, outcome: &Outcome) {
        self.corrupt += u64::from(outcome.is_wrong());
        self.failed += u64::from(matches!(outcome, Outcome::Failed { .. }));
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

/// Work in progress that fits into the time limit.
pub(super) struct BegunWork(Option<Begun>);

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
        match &self.limit {
            None => Ok(Some(BegunWork(None))),
            Some(limit) => Ok(limit.begin(world, estimate)?.map(|begun| BegunWork(Some(begun)))),
        }
    }

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
