//! The work loop: whatever a run measures is a [`WorkItem`], and this is the one place where a run asks whether to begin
//! it, counts how it came out and records it.

use super::completed::CompletedWork;
use super::journal::SharedJournal;
use super::preflight::Ranks;
use super::request::Request;
use super::signals::{BegunWork, Signals};
use super::tally::Tally;
use crate::backend::Backend;
use crate::measure::{Repetitions, ReplayContext};
use crate::world::{Located, World, agree};
use commgauge_base::error::Result;
use commgauge_base::stop_signal::noted;
use commgauge_model::record::line::{Line, Outcome};
use commgauge_model::record::unwatched_line::UnwatchedLine;
use commgauge_model::workload::Estimate;
use signal_hook::consts::SIGTERM;
use std::collections::BTreeSet;

/// Default number of repetitions of work that has no stop rule.
const REPETITIONS: u32 = 50;

/// A piece of work: a case, calls at once, a matrix product, a copy, a replay.
pub(super) trait WorkItem {
    /// Whether earlier launches have completed it.
    fn is_completed(&self, completed: &CompletedWork) -> bool;

    /// How long it is expected to take at most; the time limit must allow it.
    fn estimate(&self, run: &Run) -> Estimate;

    /// Carries it out and records it. Called on all processes.
    fn carry_out(&mut self, run: &mut Run, backend: &mut dyn Backend) -> Result<()>;
}

/// A run that has a record, and how far it has come.
pub(super) struct Run<'a> {
    /// The processes.
    pub world: &'a dyn World,
    /// What was asked for.
    pub request: &'a Request,
    /// The ranks and their hosts.
    pub ranks: &'a Ranks,
    /// Reasons to stop early.
    pub signals: &'a Signals,
    /// Work of earlier launches.
    pub completed: CompletedWork,
    /// The record.
    pub journal: SharedJournal<'a>,
    /// How the work came out so far.
    pub tally: Tally,
    /// The hosts of which the record says that their watchdog was lost; the same on every process.
    pub unwatched_hosts: BTreeSet<String>,
}

impl Run<'_> {
    /// Carries out items in their order, as [`Run::carry_out`] does.
    pub(super) fn carry_out_all<Item: WorkItem>(
        &mut self,
        backend: &mut dyn Backend,
        items: impl IntoIterator<Item = Item>,
    ) -> Result<()> {
        items.into_iter().try_for_each(|mut item| self.carry_out(backend, &mut item).map(drop))
    }

    /// Carries out an item, and returns whether it did: not if the run is stopped, if an earlier launch has completed
    /// the item, or if the time limit leaves no time for it, which stops the run.
    ///
    /// # Errors
    /// Those of the item. An error that is not shared is known to this process only: the caller must then abort the
    /// launch.
    pub(super) fn carry_out(&mut self, backend: &mut dyn Backend, item: &mut dyn WorkItem) -> Result<bool> {
        if self.tally.is_stopped() || item.is_completed(&self.completed) {
            return Ok(false);
        }
        let Some(begun) = self.begin(item.estimate(self))? else { return Ok(false) };
        item.carry_out(self, backend)?;
        self.signals.done(&begun);
        Ok(true)
    }

    /// Begins work if the time limit allows it, and else stops the run; the same on every process.
    pub(super) fn begin(&mut self, estimate: Estimate) -> Result<Option<BegunWork>> {
        let begun = self.signals.begin(self.world, estimate)?;
        self.tally.out_of_time = begun.is_none();
        Ok(begun)
    }

    /// Counts and records how work came out.
    pub(super) fn record(&mut self, line: Line) -> Result<()> {
        if let Some(outcome) = outcome(&line) {
            self.tally.count(outcome);
        }
        self.journal.write(|| line)
    }

    /// The same for work whose line cannot say that a signal cut it short: after one, the run is stopped and the line
    /// is dropped, so that a resumed run measures it again.
    pub(super) fn record_if_whole(&mut self, line: Line) -> Result<()> {
        self.ask_for_signal()?;
        if self.tally.signal == 0 { self.record(line) } else { Ok(()) }
    }

    /// Stops the run if any process has received a signal, and records whose host is watched no more.
    pub(super) fn ask_for_signal(&mut self) -> Result<()> {
        let is_newly_lost =
            self.request.watch.is_lost() && !self.unwatched_hosts.contains(&self.host_of(self.world.process()));
        let agreed = self.signals.agreed(self.world, is_newly_lost)?;
        self.tally.signal = self.named_signal(agreed.signal)?;
        if let Some(rank) = agreed.unwatched {
            let host = self.host_of(rank);
            self.request.watch.lost_collector_of(rank);
            self.unwatched_hosts.insert(host.clone());
            self.journal.write(|| Line::Unwatched(UnwatchedLine { host, rank }))?;
        }
        Ok(())
    }

    fn host_of(&self, rank: u32) -> String {
        self.request.launch.hosts.get(rank as usize).cloned().unwrap_or_default()
    }

    /// The signal that stops the run, as the person or the scheduler sent it, where `commgauge run` noted that; the same everywhere.
    fn named_signal(&self, received: i32) -> Result<i32> {
        if received != SIGTERM {
            return Ok(received);
        }
        let note = if self.world.process() == 0 { noted(&self.request.record) } else { None };
        let mut named = [note.unwrap_or(received) as u64];
        self.world.broadcast_u64(&mut named)?;
        Ok(named[0] as i32)
    }

    /// If any rank has a reason to skip work, all get the reason of the lowest such rank.
    pub(super) fn common_skip_reason(&self, mine: Option<String>) -> Result<Option<String>> {
        let world = self.world;
        let mut lowest = [Located { value: if mine.is_some() { 0.0 } else { 1.0 }, rank: world.process() as i32 }];
        world.all_min(&mut lowest)?;
        if lowest[0].value > 0.0 {
            return Ok(None);
        }
        let mut reason = mine.unwrap_or_default().into_bytes();
        reason = world.gather(&reason)?.into_iter().nth(lowest[0].rank as usize).unwrap_or_default();
        world.broadcast(&mut reason)?;
        Ok(Some(String::from_utf8_lossy(&reason).into_owned()))
    }

    /// What every rank has bound, or the outcome of work for which a rank has no memory. Nothing starts before: the
    /// others would wait for that rank.
    pub(super) fn bound<T>(&self, mine: Result<T>) -> Result<std::result::Result<T, Outcome>> {
        match agree(self.world, mine) {
            Ok(bound) => Ok(Ok(bound)),
            Err(error) if error.is_shared() => Ok(Err(Outcome::Failed { reason: error.to_string() })),
            Err(error) => Err(error),
        }
    }

    /// What measuring a product, a replay or calls at once needs to know of the run.
    pub(super) fn replay_context(&self, backend: &dyn Backend) -> ReplayContext<'_> {
        ReplayContext {
            world: self.world,
            local_ranks: backend.local_ranks(),
            verify: self.request.settings.verify,
            interrupted: self.signals.raised(),
        }
    }

    /// How often products and calls at once are repeated.
    pub(super) fn repetitions(&self) -> Repetitions {
        let settings = &self.request.settings;
        Repetitions { most: settings.fixed_iterations.unwrap_or(REPETITIONS), budget: settings.case_budget }
    }
}

fn outcome(line: &Line) -> Option<&Outcome> {
    match line {
        Line::Case(line) => Some(&line.outcome),
        Line::Interference(line) => Some(&line.outcome),
        Line::Product(line) => Some(&line.outcome),
        Line::Copy(line) => Some(&line.outcome),
        Line::Replay(line) => Some(&line.outcome),
        _ => None,
    }
}
