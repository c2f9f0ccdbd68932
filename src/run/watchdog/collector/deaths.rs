//! Which ranks of this host died by themselves, not because a launcher ended them after the first.
//!
//! A killed process needs a processor, and frees its memory, before its connection closes: on a busy machine, connections of processes
//! killed together close tens of milliseconds apart, by which time a launcher has killed the others too. So at the first closed connection
//! the collector queries the system for the fate of each rank.

use super::super::wire::{Frame, print_message};
use super::process::{Entry, Fate, RankStatus};
use super::serve::{Serving, Stage};
use crate::launcher;
use std::time::Instant;

/// The ranks of one host when the first death is noticed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Deaths {
    own: Vec<u32>,
    /// Ranks that the launcher may have ended.
    is_unsure: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct RankFate {
    rank: u32,
    fate: Fate,
}

impl Deaths {
    /// `first` is the rank whose closed connection was noticed; `others_run` says that a rank was still running after all fates had been
    /// read. A launcher that asks ranks to end asks all of them before it kills the first, so a dying rank that was not asked died by
    /// itself. A rank that is gone no longer shows whether it was asked: only if others still run has the launcher certainly ended no rank.
    /// A launcher that does not ask kills all ranks, so it has not begun if some still run.
    fn of(first: u32, fates: &[RankFate], others_run: bool, launcher_asks_first: bool) -> Deaths {
        let died = fates.iter().filter(|of| matches!(of.fate, Fate::Dying | Fate::Gone));
        let own: Vec<u32> = died.map(|of| of.rank).collect();
        if own.is_empty() || !launcher_asks_first && !others_run {
            return Deaths { own: vec![first], is_unsure: false };
        }
        let is_any_gone = fates.iter().any(|of| of.fate == Fate::Gone);
        let is_unsure = own.len() > 1 && is_any_gone && !others_run;
        Deaths { own, is_unsure }
    }
}

impl Serving {
    /// Notes that the connection of a rank of this host closed without a farewell, and which other ranks are dying with it.
    pub(super) fn lose_rank(&mut self, rank: u32, now: Instant) {
        if self.table.get_mut(rank).is_none_or(|entry| matches!(entry.status, RankStatus::Left(_))) {
            return;
        }
        if self.table.first_death.is_some() {
            self.lose_later_rank(rank, now);
            return;
        }
        let fates = self.fates_now(None);
        let deaths = Deaths::of(rank, &fates, self.others_run(), launcher::asks_first());
        self.launcher_may_have_ended_some = deaths.is_unsure;
        deaths.own.into_iter().for_each(|rank| self.close_rank(rank, now));
        self.close_rank(rank, now);
    }

    fn lose_later_rank(&mut self, rank: u32, now: Instant) {
        let is_gone = self.fates_now(Some(rank)).contains(&RankFate { rank, fate: Fate::Gone });
        self.close_rank(rank, now);
        let has_died = self.table.get_mut(rank).is_some_and(|entry| entry.status == RankStatus::Died);
        if has_died && is_gone && !self.launcher_may_have_ended_some {
            self.launcher_may_have_ended_some = !self.others_run();
        }
    }

    /// Fate of one rank of this host, or of all; notes which were asked to end.
    fn fates_now(&mut self, only: Option<u32>) -> Vec<RankFate> {
        let is_meant = |rank: u32| only.is_none_or(|only| only == rank);
        let open = self.local().filter(|entry| entry.status == RankStatus::Live && is_meant(entry.rank));
        let mut fates: Vec<RankFate> =
            open.map(|entry| RankFate { rank: entry.rank, fate: entry.process.fate() }).collect();
        for RankFate { rank, fate } in &mut fates {
            let Some(entry) = self.table.get_mut(*rank) else { continue };
            entry.state.signalled |= matches!(fate, Fate::Asked | Fate::AskedAndDying);
            if entry.state.signalled {
                *fate = fate.after_request();
            }
        }
        fates
    }

    /// Whether any rank of this host still runs.
    fn others_run(&self) -> bool {
        let mut open = self.local().filter(|entry| entry.status == RankStatus::Live);
        open.any(|entry| entry.process.fate().is_running())
    }

    fn close_rank(&mut self, rank: u32, now: Instant) {
        self.table.close(rank, now);
        // Its last known state is sent first.
        self.send_states(now, Some(rank));
        self.send_up(&Frame::Closed(rank));
    }

    /// Notes what the ranks agree on: the collector of this host does not answer. Its ranks continue, so the host counts as reachable.
    pub(super) fn lose_collector_of(&mut self, host: u32) {
        match (self.is_first(), host) {
            (false, 0) => self.upstream = None,
            (true, 1..) => self.lose_host(host, "does not answer"),
            (true, 0) | (false, 1..) => {}
        }
    }

    /// Notes that the collector of another host is silent, until it reports again.
    pub(super) fn lose_host(&mut self, host: u32, why: &str) {
        let ranks = (0..).zip(&self.config.node_of_rank).filter(|(_, node)| **node == host).map(|(rank, _)| rank);
        let mut lost = 0;
        for rank in ranks.collect::<Vec<u32>>() {
            // They may not have reported anything yet.
            let is_open = |entry: &&mut Entry| matches!(entry.status, RankStatus::Expected | RankStatus::Live);
            if let Some(entry) = self.table.get_mut(rank).filter(is_open) {
                entry.status = RankStatus::Unwatched;
                lost += 1;
            }
        }
        if lost > 0 && matches!(self.stage, Stage::Watching) {
            let name = self.config.hosts.get(host as usize).map_or("?", String::as_str);
            print_message(&format!("the watchdog of host {name} {why}; its {lost} ranks are no longer watched"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Fate::{Asked, AskedAndDying, Dying, Gone, Running};
    use super::*;

    #[test]
    fn who_died_by_itself_follows_from_who_was_asked_to_end_and_who_still_runs() {
        for (what, fates, others_run, asks_first, own, is_unsure) in [
            ("others still run", [Running, Gone, Dying, Running], true, true, vec![1, 2], false),
            ("the launcher has asked the others", [Asked, Gone, Dying, Asked], true, true, vec![1, 2], false),
            (
                "it may have ended a rank that is gone",
                [Gone, Dying, Dying, AskedAndDying],
                false,
                true,
                vec![0, 1, 2],
                true,
            ),
            ("it ended the others meanwhile", [Running, Gone, Dying, Asked], false, true, vec![1, 2], true),
            (
                "it has ended the ranks that it asked",
                [AskedAndDying, Dying, Dying, AskedAndDying],
                false,
                true,
                vec![1, 2],
                false,
            ),
            ("all were killed at once", [Dying, Dying, Dying, Dying], false, true, vec![0, 1, 2, 3], false),
            ("no evidence is left", [Gone, Gone, Dying, Gone], false, true, vec![0, 1, 2, 3], true),
            ("all were asked", [AskedAndDying; 4], false, true, vec![1], false),
            ("a rank that lost its connection still runs", [Running; 4], true, true, vec![1], false),
            (
                "a launcher that does not ask has not begun",
                [Running, Gone, Dying, Running],
                true,
                false,
                vec![1, 2],
                false,
            ),
            ("a launcher that does not ask has finished", [Gone, Gone, Dying, Dying], false, false, vec![1], false),
        ] {
            let fates: Vec<RankFate> = (0..).zip(fates).map(|(rank, fate)| RankFate { rank, fate }).collect();
            assert_eq!(Deaths::of(1, &fates, others_run, asks_first), Deaths { own, is_unsure }, "{what}");
        }
    }
}
