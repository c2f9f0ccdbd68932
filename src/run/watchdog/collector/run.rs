//! The loop of a collector, from its first rank to its last.

use super::super::wire::PeerKind;
use super::serve::{Serving, TICK};
use super::stage::Stage;
use std::time::{Duration, Instant};

/// How long other hosts may take to close their connections once they were told to end their ranks.
const HOSTS_TIMEOUT: Duration = Duration::from_millis(1_500);

impl Serving {
    /// Runs until the ranks are gone.
    pub fn run(&mut self) {
        let mut last = Instant::now();
        while !self.is_over(last) {
            self.wait();
            let now = Instant::now();
            if now - last > TICK * 10 {
                self.table.reset_heartbeats(now);
                self.times.heard_first = now;
                self.peers.iter_mut().for_each(|peer| peer.heard = now);
            }
            last = now;
            self.accept(now);
            self.receive_from_peers(now);
            self.receive_from_first();
            self.pass_stacks_on();
            self.advance(now);
            self.report_states(now);
            self.send_beats(now);
            self.note_leftovers(now);
            self.flush(now);
        }
        self.report_without_query();
        self.finish();
    }

    /// Whether nobody is left to wait for. Once the run is ended, these are the ranks of this host: another host may be
    /// out of reach.
    fn is_over(&self, now: Instant) -> bool {
        let has_ranks = || self.peers.iter().any(|peer| matches!(peer.peer_kind, Some(PeerKind::Rank(_))));
        match self.stage {
            Stage::Ending { since, .. } if now - since > HOSTS_TIMEOUT => !has_ranks(),
            _ => !self.admission.accepts_ranks && self.peers.is_empty(),
        }
    }
}
