//! A bound case on virtual clocks.

use super::clocks::{Clocks, MarkLog};
use super::moods::Moods;
use super::noise::Noise;
use super::placing::Placed;
use super::work::Work;
use crate::backend::{Call, Marks, Mismatch};
use crate::error::{Error, Result};
use std::cell::Cell;
use std::time::Duration;

/// A bound case. There are no buffers; filling and checking have nothing to do.
pub(super) struct SimulatedCall<'b> {
    pub placed: &'b Placed,
    /// Ranks of the world, also those that stand aside.
    pub ranks: u32,
    pub clocks: Clocks<'b>,
    pub work: Work,
    pub log: MarkLog,
    pub noise: &'b mut Noise,
    /// The backend's clock, which follows the furthest rank.
    pub now: &'b Cell<u64>,
    /// Slots that come late, with nanoseconds.
    pub delays: Vec<(usize, u64)>,
    /// Where faults come and go; `work` and `delays` are then those without them.
    pub moods: Option<Moods<'b>>,
    /// Ranks whose data come out wrong, with the probability.
    pub corrupt: &'b [(u32, f64)],
    pub aborted: bool,
}

impl Call for SimulatedCall<'_> {
    fn fill(&mut self) -> Result<()> {
        Ok(())
    }

    fn enqueue(&mut self) -> Result<()> {
        let work = match &mut self.moods {
            None => &self.work,
            Some(moods) => &moods.at(self.clocks.latest(), self.noise)?.work,
        };
        self.clocks.advance(work, self.noise);
        self.now.set(self.clocks.latest());
        Ok(())
    }

    fn reserve_marks(&mut self, marks: usize) {
        self.log.reserve(marks, self.placed.rank_of_slot.len());
    }

    fn mark(&mut self) {
        self.clocks.mark(&mut self.log);
    }

    fn hold_until(&mut self, start_nanoseconds: u64) -> bool {
        // A mood that cannot be worked out is told by the call that follows.
        let mood = self.moods.as_mut().and_then(|moods| moods.at(start_nanoseconds, self.noise).ok());
        let delays = mood.map_or(&self.delays, |mood| &mood.delays);
        let in_time = self.clocks.hold_until(start_nanoseconds, self.noise, delays);
        self.now.set(self.clocks.latest());
        in_time
    }

    fn complete(&mut self, _: Duration) -> Result<()> {
        if self.aborted {
            return Err(Error::environment("the simulated call was aborted; what was enqueued is lost"));
        }
        Ok(())
    }

    fn read_marks(&self, marks: &mut Marks) {
        self.log.read(&self.placed.group_starts, &self.placed.rank_of_slot, self.ranks as usize, marks);
    }

    /// There is no data; only a fault of the kind `corrupt` is ever found.
    fn check(&mut self) -> Result<Option<Mismatch>> {
        Ok(corrupted(self.corrupt, self.noise))
    }

    fn verifies(&self) -> bool {
        false
    }

    fn now_nanoseconds(&self) -> u64 {
        self.now.get()
    }

    fn buffer_copies(&self) -> u32 {
        1
    }

    fn stands_aside(&self, local_rank: usize) -> bool {
        self.placed.stands_aside(local_rank as u32)
    }

    fn abort(&mut self) {
        self.aborted = true;
    }
}

/// What the first of the corrupt ranks (with the probability) that fails this time finds.
pub(super) fn corrupted(ranks: &[(u32, f64)], noise: &mut Noise) -> Option<Mismatch> {
    let found = ranks.iter().find(|(_, probability)| noise.happens(*probability));
    found.map(|(rank, _)| Mismatch {
        rank: *rank,
        element: 0,
        expected: "0x00".to_owned(),
        got: "0x01 (a simulated fault)".to_owned(),
        count: 1,
    })
}
