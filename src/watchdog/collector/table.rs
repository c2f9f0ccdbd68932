//! The state of every rank known to a collector, and whether it is time to act. Pure functions on given facts and
//! times.

use super::super::wire::RankState;
use std::time::{Duration, Instant};

/// How long a rank may stay in an operation after any rank received a stop signal.
const ASKED_TO_STOP: Duration = Duration::from_secs(10);

/// Connection state of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
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
    pub standing: Standing,
    /// Its last known state.
    pub state: RankState,
    /// When that was.
    pub heard: Instant,
    /// Its process and the start of that, on this host; 0 for ranks of other hosts.
    pub process: (u32, u64),
    /// Its answer to the query.
    pub detail: Option<Box<str>>,
    /// Its device, where it has one.
    pub device: Option<Box<str>>,
    /// Whether its thread sleeps, according to its answer.
    pub sleeps: bool,
}

/// Why a run is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A rank stayed where it was for longer than this.
    Deadline(Duration),
    /// A rank died; true if it had received a stop signal, so that the death was intended.
    Death {
        /// By a signal that it noticed.
        asked_to: bool,
    },
}

/// The ranks, by number.
#[derive(Debug)]
pub struct RankTable {
    entries: Vec<Entry>,
    first_death: Option<Instant>,
    /// A rank reported an error before ending: ranks that close after it were ended with it.
    excused: bool,
}

impl RankTable {
    /// Of sorted ranks.
    pub fn new(ranks: impl Iterator<Item = u32>, now: Instant) -> RankTable {
        let entry = |rank| Entry {
            rank,
            standing: Standing::Expected,
            state: RankState { rank, ..RankState::default() },
            heard: now,
            process: (0, 0),
            detail: None,
            device: None,
            sleeps: false,
        };
        RankTable { entries: ranks.map(entry).collect(), first_death: None, excused: false }
    }

    /// All of them.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// A rank, if it is one of these.
    pub fn get_mut(&mut self, rank: u32) -> Option<&mut Entry> {
        let at = self.entries.binary_search_by_key(&rank, |entry| entry.rank).ok()?;
        self.entries.get_mut(at)
    }

    /// Updates the state of a rank after a heartbeat.
    pub fn hear(&mut self, state: RankState, now: Instant) {
        let Some(entry) = self.get_mut(state.rank) else { return };
        if matches!(entry.standing, Standing::Expected | Standing::Live | Standing::Unwatched) {
            entry.standing = Standing::Live;
            (entry.state, entry.heard) = (state, now);
        }
    }

    /// A rank's connection closed. Those that close at the same time as the first are equally suspect.
    pub fn close(&mut self, rank: u32, now: Instant) {
        let (first, excused) = (self.first_death.unwrap_or(now), self.excused);
        let Some(entry) = self.get_mut(rank) else { return };
        if matches!(entry.standing, Standing::Expected | Standing::Live | Standing::Unwatched) {
            if excused {
                entry.standing = Standing::Dragged;
                return;
            }
            entry.standing = if first == now { Standing::Died } else { Standing::Dragged };
            self.first_death = Some(first);
        }
    }

    /// A rank ended normally.
    pub fn leave(&mut self, rank: u32, code: i32) {
        if let Some(entry) = self.get_mut(rank) {
            entry.standing = Standing::Left(code);
        }
        self.excused |= code != 0 && self.first_death.is_none();
    }

    /// When the first rank died.
    pub fn first_death(&self) -> Option<Instant> {
        self.first_death
    }

    /// Whether it is time to act: a rank died, or has stayed in an operation beyond its deadline.
    pub fn trigger(&self, now: Instant) -> Option<Trigger> {
        if self.first_death.is_some() {
            let mut died = self.entries.iter().filter(|entry| entry.standing == Standing::Died);
            return Some(Trigger::Death { asked_to: died.all(|entry| entry.state.signalled) });
        }
        // After a stop request the user does not want to wait for a blocked rank.
        let asked = self.entries.iter().any(|entry| entry.state.signalled);
        let deadline = |entry: &Entry| if asked { entry.deadline().min(ASKED_TO_STOP) } else { entry.deadline() };
        let late = |entry: &&Entry| entry.standing == Standing::Live && entry.stayed(now) > deadline(entry);
        self.entries.iter().filter(late).map(deadline).min().map(Trigger::Deadline)
    }

    /// An answer to an earlier query does not count for the next.
    pub fn forget_answers(&mut self) {
        for entry in &mut self.entries {
            (entry.detail, entry.sleeps) = (None, false);
        }
    }

    /// After the collector itself could not run for a while, that time counts against no rank.
    pub fn forgive(&mut self, now: Instant) {
        self.entries.iter_mut().for_each(|entry| entry.heard = now);
    }
}

impl Entry {
    /// Time since the last heartbeat.
    pub fn silent(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard) + Duration::from_millis(self.state.silent_milliseconds.into())
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
            table.hear(state(1, stuck), begun);
            let found = table.trigger(after(silent));
            assert_eq!(found, fires.then_some(Trigger::Deadline(Duration::from_secs(2))), "{stuck} {silent}");
        }
        let mut table = RankTable::new(0..3, begun);
        let long = |rank, signalled| RankState { deadline_milliseconds: 60_000, signalled, ..state(rank, 0) };
        table.hear(long(0, false), begun);
        assert_eq!(table.trigger(after(10_001)), None);
        table.hear(long(1, true), after(10_000));
        assert_eq!(table.trigger(after(10_001)), Some(Trigger::Deadline(ASKED_TO_STOP)), "somebody wants it to end");
        let mut table = RankTable::new(0..3, begun);
        table.hear(state(1, 1_900), begun);
        table.leave(1, 0);
        assert_eq!(table.trigger(after(99_000)), None, "who has left is not late");
        table.hear(state(2, 0), begun);
        table.forgive(after(50_000));
        assert_eq!(table.trigger(after(51_000)), None, "the collector itself was stopped");
    }

    #[test]
    fn only_those_that_closed_first_died_and_the_others_were_dragged_along() {
        let begun = Instant::now();
        let later = begun + Duration::from_millis(3);
        let mut table = RankTable::new(0..4, begun);
        (0..4).for_each(|rank| table.hear(state(rank, 0), begun));
        table.leave(0, 0);
        for (rank, moment) in [(2, begun), (1, later), (0, later), (9, later)] {
            table.close(rank, moment);
        }
        let standings: Vec<Standing> = table.entries().iter().map(|entry| entry.standing).collect();
        assert_eq!(standings, [Standing::Left(0), Standing::Dragged, Standing::Died, Standing::Live]);
        assert_eq!(table.trigger(later), Some(Trigger::Death { asked_to: false }));
        table.hear(state(2, 0), later);
        assert_eq!(table.entries()[2].standing, Standing::Died, "nobody comes back");
    }

    #[test]
    fn those_who_are_ended_by_another_rank_that_told_of_its_error_did_not_die() {
        let begun = Instant::now();
        let mut table = RankTable::new(0..2, begun);
        (0..2).for_each(|rank| table.hear(state(rank, 0), begun));
        table.leave(1, 6);
        table.close(0, begun);
        assert_eq!((table.entries()[0].standing, table.trigger(begun)), (Standing::Dragged, None));
    }
}
