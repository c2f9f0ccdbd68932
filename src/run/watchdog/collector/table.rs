//! The state of every rank known to a collector, and whether it is time to act. Pure functions on given facts and
//! times.

use super::super::wire::RankState;
use super::process::Process;
use std::time::{Duration, Instant};

/// How long a rank may stay in an operation after any rank received a stop signal.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// Connection state of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankStatus {
    /// It has not connected yet.
    Expected,
    /// It is connected and should answer.
    Live,
    /// Its connection closed without a farewell, before that of any other.
    Died,
    /// Its connection closed without a farewell, after another rank had died.
    Dragged,
    /// It ended normally, with this exit code.
    Left(i32),
    /// Its host's collector is gone, so its state is unknown.
    Unwatched,
}

/// One rank.
#[derive(Clone, Debug)]
pub struct Entry {
    /// World rank.
    pub rank: u32,
    /// Connection state.
    pub status: RankStatus,
    /// Its last known state.
    pub state: RankState,
    /// Time of the last heartbeat.
    pub last_heartbeat: Instant,
    /// Its process, if it is a rank of this host.
    pub process: Process,
    /// Its answer to the query.
    pub detail: Option<Box<str>>,
    /// Its device, where it has one.
    pub device: Option<Box<str>>,
    /// Whether its thread sleeps, according to its answer.
    pub sleeps: bool,
}

/// Reason for ending a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A rank stayed in an operation for longer than this.
    Deadline(Duration),
    /// A rank died; true if it had received a stop signal, so that the death was intended.
    Death {
        /// Whether all dead ranks had received a stop signal.
        requested: bool,
    },
}

/// The table of ranks, sorted by number.
#[derive(Debug)]
pub struct RankTable {
    entries: Vec<Entry>,
    first_death: Option<Instant>,
    /// How long after the first death others count as deaths of their own, and not as its consequences.
    death_window: Duration,
    /// A rank reported an error before ending: ranks that close after it were ended with it.
    has_reported_error: bool,
}

impl RankTable {
    /// Creates the table from sorted ranks.
    pub fn new(ranks: impl Iterator<Item = u32>, now: Instant) -> RankTable {
        let entry = |rank| Entry {
            rank,
            status: RankStatus::Expected,
            state: RankState { rank, ..RankState::default() },
            last_heartbeat: now,
            process: Process::default(),
            detail: None,
            device: None,
            sleeps: false,
        };
        let entries = ranks.map(entry).collect();
        RankTable { entries, first_death: None, death_window: Duration::ZERO, has_reported_error: false }
    }

    /// The same under a launcher that asks ranks to end before it kills them, and so gives them this long.
    #[must_use]
    pub fn with_death_window(self, death_window: Duration) -> RankTable {
        RankTable { death_window, ..self }
    }

    /// All entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of a rank, if the table has one.
    pub fn get_mut(&mut self, rank: u32) -> Option<&mut Entry> {
        let at = self.entries.binary_search_by_key(&rank, |entry| entry.rank).ok()?;
        self.entries.get_mut(at)
    }

    /// Updates the state of a rank after a heartbeat.
    pub fn record_heartbeat(&mut self, state: RankState, now: Instant) {
        let Some(entry) = self.get_mut(state.rank) else { return };
        if matches!(entry.status, RankStatus::Expected | RankStatus::Live | RankStatus::Unwatched) {
            entry.status = RankStatus::Live;
            (entry.state, entry.last_heartbeat) = (state, now);
        }
    }

    /// A rank's connection closed. Those that close at the same time as the first, or before a launcher could have ended
    /// them, are equally suspect.
    pub fn close(&mut self, rank: u32, now: Instant) {
        let is_first = self.first_death.is_none();
        let (first, window) = (self.first_death.unwrap_or(now), self.death_window);
        let has_reported_error = self.has_reported_error;
        let Some(entry) = self.get_mut(rank) else { return };
        if matches!(entry.status, RankStatus::Expected | RankStatus::Live | RankStatus::Unwatched) {
            if has_reported_error {
                entry.status = RankStatus::Dragged;
                return;
            }
            let is_own = is_first || now - first <= window && !entry.state.signalled;
            entry.status = if is_own { RankStatus::Died } else { RankStatus::Dragged };
            self.first_death = Some(first);
        }
    }

    /// A rank ended normally.
    pub fn leave(&mut self, rank: u32, code: i32) {
        if let Some(entry) = self.get_mut(rank) {
            entry.status = RankStatus::Left(code);
        }
        self.has_reported_error |= code != 0 && self.first_death.is_none();
    }

    /// When the first rank died.
    pub fn first_death(&self) -> Option<Instant> {
        self.first_death
    }

    /// Whether it is time to act: a rank died, or has stayed in an operation beyond its deadline.
    pub fn trigger(&self, now: Instant) -> Option<Trigger> {
        if self.first_death.is_some() {
            let mut died = self.entries.iter().filter(|entry| entry.status == RankStatus::Died);
            return Some(Trigger::Death { requested: died.all(|entry| entry.state.signalled) });
        }
        // After a stop request the user does not want to wait for a blocked rank.
        let stop_requested = self.entries.iter().any(|entry| entry.state.signalled);
        let deadline = |entry: &Entry| if stop_requested { entry.deadline().min(STOP_GRACE) } else { entry.deadline() };
        let late = |entry: &&Entry| entry.status == RankStatus::Live && entry.stayed(now) > deadline(entry);
        self.entries.iter().filter(late).map(deadline).min().map(Trigger::Deadline)
    }

    /// An answer to an earlier query does not count for the next.
    pub fn forget_answers(&mut self) {
        for entry in &mut self.entries {
            (entry.detail, entry.sleeps) = (None, false);
        }
    }

    /// After the collector itself could not run for a while, that time counts against no rank.
    pub fn reset_heartbeats(&mut self, now: Instant) {
        self.entries.iter_mut().for_each(|entry| entry.last_heartbeat = now);
    }
}

impl Entry {
    /// Time since the last heartbeat.
    pub fn silent(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_heartbeat)
            + Duration::from_millis(self.state.silent_milliseconds.into())
    }

    /// How long it has stayed in its operation, as far as is known.
    pub fn stayed(&self, now: Instant) -> Duration {
        self.silent(now) + Duration::from_millis(self.state.stuck_milliseconds.into())
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(self.state.deadline_milliseconds.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(rank: u32, stuck: u32) -> RankState {
        RankState { rank, stuck_milliseconds: stuck, deadline_milliseconds: 2_000, ..RankState::default() }
    }

    #[test]
    fn a_rank_is_late_when_it_has_stayed_or_been_silent_for_longer_than_it_may() {
        let begun = Instant::now();
        let after = |milliseconds| begun + Duration::from_millis(milliseconds);
        for (stuck, silent, fires) in [(0, 1_900, false), (1_900, 0, false), (1_900, 200, true), (0, 2_001, true)] {
            let mut table = RankTable::new(0..3, begun);
            table.record_heartbeat(state(1, stuck), begun);
            let found = table.trigger(after(silent));
            assert_eq!(found, fires.then_some(Trigger::Deadline(Duration::from_secs(2))), "{stuck} {silent}");
        }
        let mut table = RankTable::new(0..3, begun);
        let long = |rank, signalled| RankState { deadline_milliseconds: 60_000, signalled, ..state(rank, 0) };
        table.record_heartbeat(long(0, false), begun);
        assert_eq!(table.trigger(after(10_001)), None);
        table.record_heartbeat(long(1, true), after(10_000));
        assert_eq!(table.trigger(after(10_001)), Some(Trigger::Deadline(STOP_GRACE)), "somebody wants it to end");
        let mut table = RankTable::new(0..3, begun);
        table.record_heartbeat(state(1, 1_900), begun);
        table.leave(1, 0);
        assert_eq!(table.trigger(after(99_000)), None, "who has left is not late");
        table.record_heartbeat(state(2, 0), begun);
        table.reset_heartbeats(after(50_000));
        assert_eq!(table.trigger(after(51_000)), None, "the collector itself was stopped");
    }

    #[test]
    fn only_those_that_closed_first_died_and_the_others_were_dragged_along() {
        let begun = Instant::now();
        let later = begun + Duration::from_millis(3);
        let mut table = RankTable::new(0..4, begun);
        (0..4).for_each(|rank| table.record_heartbeat(state(rank, 0), begun));
        table.leave(0, 0);
        for (rank, moment) in [(2, begun), (1, later), (0, later), (9, later)] {
            table.close(rank, moment);
        }
        let statuses: Vec<RankStatus> = table.entries().iter().map(|entry| entry.status).collect();
        assert_eq!(statuses, [RankStatus::Left(0), RankStatus::Dragged, RankStatus::Died, RankStatus::Live]);
        assert_eq!(table.trigger(later), Some(Trigger::Death { requested: false }));
        table.record_heartbeat(state(2, 0), later);
        assert_eq!(table.entries()[2].status, RankStatus::Died, "nobody comes back");
    }

    #[test]
    fn ranks_that_are_killed_at_once_all_died_where_the_launcher_asks_first() {
        let begun = Instant::now();
        let after = |milliseconds| begun + Duration::from_millis(milliseconds);
        let mut table = RankTable::new(0..5, begun).with_death_window(Duration::from_millis(100));
        (0..5).for_each(|rank| table.record_heartbeat(state(rank, 0), begun));
        table.record_heartbeat(RankState { signalled: true, ..state(4, 0) }, begun);
        for (rank, moment) in [(1, 0), (2, 40), (4, 50), (3, 101)] {
            table.close(rank, after(moment));
        }
        let died = table.entries().iter().filter(|entry| entry.status == RankStatus::Died);
        assert!(died.map(|entry| entry.rank).eq([1, 2]), "one had been asked to end, one came too late");
    }

    #[test]
    fn ranks_that_end_after_a_reported_error_did_not_die() {
        let begun = Instant::now();
        let mut table = RankTable::new(0..2, begun);
        (0..2).for_each(|rank| table.record_heartbeat(state(rank, 0), begun));
        table.leave(1, 6);
        table.close(0, begun);
        assert_eq!((table.entries()[0].status, table.trigger(begun)), (RankStatus::Dragged, None));
    }
}
