//! A bound case on virtual clocks.

use super::clocks::{Clocks, MarkLog};
use super::fault_states::FaultStates;
use super::fleet::CorruptRank;
use super::noise::Noise;
use super::placing::{LateSlot, Placed};
use super::work::Work;
use crate::backend::{Call, Marks, Mismatch};
use commgauge_base::error::{Error, Result};
use std::cell::Cell;
use std::time::Duration;

/// A bound case. There are no buffers; filling and checking have nothing to do.
pub(super) struct SimulatedCall<'b> {
    pub placed: &'b Placed,
    /// Ranks of the world, including idle ones.
    pub ranks: u32,
    pub clocks: Clocks<'b>,
    pub work: Work,
    pub log: MarkLog,
    pub noise: &'b mut Noise,
    /// The backend's clock, which follows the furthest rank.
    pub now: &'b Cell<u64>,
    pub late: Vec<LateSlot>,
    /// Intermittent faults, if any; `work` and `late` are then without them.
    pub fault_states: Option<FaultStates<'b>>,
    pub corrupt: &'b [CorruptRank],
    pub aborted: bool,
}

impl Call for SimulatedCall<'_> {
    fn fill(&mut self) -> Result<()> {
        Ok(())
    }

    fn enqueue(&mut self) -> Result<()> {
        let work = match &mut self.fault_states {
            None => &self.work,
            Some(fault_states) => &fault_states.at(self.clocks.latest(), self.noise)?.work,
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
        // An error in computing the fault state is reported by the call that follows.
        let state =
            self.fault_states.as_mut().and_then(|fault_states| fault_states.at(start_nanoseconds, self.noise).ok());
        let late = state.map_or(&self.late, |state| &state.late);
        let in_time = self.clocks.hold_until(start_nanoseconds, self.noise, late);
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

    /// There is no data; only a fault of the kind `corrupt` is ever detected.
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

    fn is_idle_rank(&self, local_rank: usize) -> bool {
        self.placed.is_idle_rank(local_rank as u32)
    }

    fn abort(&mut self) {
        self.aborted = true;
    }
}

/// The mismatch of the first corrupt rank that fails this time.
pub(super) fn corrupted(ranks: &[CorruptRank], noise: &mut Noise) -> Option<Mismatch> {
    let found = ranks.iter().find(|corrupt| noise.happens(corrupt.probability));
    found.map(|corrupt| Mismatch {
        rank: corrupt.rank,
        element: 0,
        expected: "0x00".to_owned(),
        got: "0x01 (a simulated fault)".to_owned(),
        count: 1,
        call: None,
    })
}
