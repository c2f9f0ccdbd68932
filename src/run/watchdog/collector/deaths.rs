//! Which ranks of this host died by themselves, and not because a launcher ended them after the first.
//!
//! A killed process needs a processor, and gives its memory back, before its connection closes: on a busy machine those that
//! were killed at one time close tens of milliseconds apart, by which time a launcher has killed the others as well. So at the
//! first that closes the system is asked which others are dying at that moment.

use super::super::message::print_message;
use super::super::wire::Frame;
use super::process;
use super::serve::Serving;
use super::stage::{Stage, launcher_asks_first};
use super::table::RankStatus;
use std::time::Instant;

/// A rank of this host and its process.
type LocalRank = (u32, (u32, u64));

impl Serving {
    /// Notes that the connection of a rank of this host closed without a farewell, and which others are dying with it.
    pub(super) fn lose_rank(&mut self, rank: u32, now: Instant) {
        if self.table.get_mut(rank).is_none_or(|entry| matches!(entry.status, RankStatus::Left(_))) {
            return;
        }
        let with_it = if self.table.first_death().is_none() { self.dying_beside(rank) } else { Vec::new() };
        self.close_rank(rank, now);
        with_it.into_iter().for_each(|rank| self.close_rank(rank, now));
    }

    fn close_rank(&mut self, rank: u32, now: Instant) {
        self.table.close(rank, now);
        // Its last known state is sent first.
        self.send_states(now, Some(rank));
        self.send_up(&Frame::Closed(rank));
    }

    /// The ranks of this host that are dying while the first one has died. None where the launcher may have killed them: it kills
    /// all, so that it has not begun where some go on; and some ask ranks to end long before they kill them.
    fn dying_beside(&self, first: u32) -> Vec<u32> {
        let others = self.local().filter(|entry| entry.status == RankStatus::Live && entry.rank != first);
        let others: Vec<LocalRank> = others.map(|entry| (entry.rank, entry.process)).collect();
        let is_dying = |rank: &LocalRank| process::is_dying(rank.1);
        let (mut dying, alive): (Vec<LocalRank>, Vec<LocalRank>) = others.into_iter().partition(is_dying);
        // Again, as a launcher that was at work meanwhile is through with all by now.
        let (late, alive): (Vec<LocalRank>, Vec<LocalRank>) = alive.into_iter().partition(is_dying);
        dying.extend(late);
        let is_own = !alive.is_empty() || launcher_asks_first();
        dying.into_iter().filter(|_| is_own).map(|(rank, _)| rank).collect()
    }

    /// Notes that nothing is heard any more of the collector of another host.
    pub(super) fn lose_host(&mut self, host: u32) {
        let ranks = (0..).zip(&self.config.node_of_rank).filter(|(_, node)| **node == host).map(|(rank, _)| rank);
        let mut lost = 0;
        for rank in ranks.collect::<Vec<u32>>() {
            if let Some(entry) = self.table.get_mut(rank).filter(|entry| entry.status == RankStatus::Live) {
                entry.status = RankStatus::Unwatched;
                lost += 1;
            }
        }
        if lost > 0 && matches!(self.stage, Stage::Watching) {
            let name = self.config.hosts.get(host as usize).map_or("?", String::as_str);
            print_message(&format!("the watchdog of host {name} is gone; its {lost} ranks are no longer watched"));
        }
    }
}
