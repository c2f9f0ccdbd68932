//! The loop of a collector, from its first rank to its last.

use super::serve::{Serving, TICK};
use std::time::Instant;

impl Serving {
    /// Runs until the ranks are gone.
    pub fn run(&mut self) {
        let mut last = Instant::now();
        while self.accepts_ranks || !self.peers.is_empty() {
            self.wait();
            let now = Instant::now();
            if now - last > TICK * 10 {
                self.table.reset_heartbeats(now);
            }
            last = now;
            self.accept(now);
            self.receive_from_peers(now);
            self.receive_from_first();
            self.advance(now);
            self.report_states(now);
            self.note_segments(now);
            self.flush(now);
        }
        self.report_without_query();
        self.finish();
    }
}
