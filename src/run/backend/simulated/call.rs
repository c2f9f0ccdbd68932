//! A bound case on virtual clocks.

use super::fleet::{CorruptRank, LateSlot, Placed};
use super::noise::{FaultStates, LastMessage, Noise, Order, Work};
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
    /// Intermittent faults, if any; `work` and `late` are without them.
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
            Some(fault_states) => &fault_states.at(self.clocks.latest, self.noise)?.work,
        };
        self.clocks.advance(work, self.noise);
        self.now.set(self.clocks.latest);
        Ok(())
    }

    fn reserve_marks(&mut self, marks: usize) {
        self.log.reserve(marks, self.placed.rank_of_slot.len());
    }

    fn mark(&mut self) {
        self.clocks.mark(&mut self.log);
    }

    fn hold_until(&mut self, start_nanoseconds: u64) -> bool {
        // The following call reports an error in computing the fault state.
        let state =
            self.fault_states.as_mut().and_then(|fault_states| fault_states.at(start_nanoseconds, self.noise).ok());
        let late = state.map_or(&self.late, |state| &state.late);
        let in_time = self.clocks.hold_until(start_nanoseconds, self.noise, late);
        self.now.set(self.clocks.latest);
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

    /// There is no data; only a `corrupt` fault is ever detected.
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

/// The mismatch of the first corrupt rank whose data is wrong this time.
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

// The virtual clocks of all ranks, and the marks taken from them.
//
// After a call in which all ranks of a group end together there is one clock per group, not one per rank, so that
// back-to-back calls and their marks cost work per group only.

/// The clocks of the slots, in nanoseconds.
#[derive(Debug)]
pub(super) struct Clocks<'a> {
    group_starts: &'a [usize],
    /// Valid while `together`.
    of_group: Vec<u64>,
    /// Valid while not `together`.
    of_slot: Vec<u64>,
    /// All ranks of each group show the same time.
    together: bool,
    /// The latest clock.
    pub(super) latest: u64,
}

/// Snapshots of the clocks.
#[derive(Debug, Default)]
pub(super) struct MarkLog {
    /// One number for each group or each slot, snapshot after snapshot.
    nanoseconds: Vec<u64>,
    /// For each snapshot: one number per group.
    together: Vec<bool>,
}

impl<'a> Clocks<'a> {
    /// All ranks at the same moment.
    pub(super) fn new(group_starts: &'a [usize], now: u64) -> Clocks<'a> {
        let groups = group_starts.len() - 1;
        let slots = group_starts[groups];
        Clocks { group_starts, of_group: vec![now; groups], of_slot: vec![now; slots], together: true, latest: now }
    }

    /// Makes every rank wait for `start`; noise and faults add to the arrival time. False if a clock was already past the
    /// start.
    pub(super) fn hold_until(&mut self, start: u64, noise: &mut Noise, late: &[LateSlot]) -> bool {
        let in_time = self.latest <= start;
        if noise.jitters() || !late.is_empty() {
            self.part();
        }
        if self.together {
            self.of_group.iter_mut().for_each(|clock| *clock = start.max(*clock));
            self.latest = self.latest.max(start);
            return in_time;
        }
        self.of_slot.iter_mut().for_each(|clock| *clock = start.max(*clock));
        if noise.jitters() {
            for two in self.of_slot.chunks_mut(2) {
                two.iter_mut()
                    .zip(noise.two_delays_nanoseconds())
                    .for_each(|(clock, delay)| *clock = clock.saturating_add(delay));
            }
        }
        for LateSlot { slot, nanoseconds } in late {
            self.of_slot[*slot] = self.of_slot[*slot].saturating_add(*nanoseconds);
        }
        self.latest = self.of_slot.iter().copied().fold(self.latest, u64::max);
        in_time
    }

    /// Executes one call.
    pub(super) fn advance(&mut self, work: &Work, noise: &mut Noise) {
        let times = work.nanoseconds.as_slice();
        match work.order {
            Order::Together => self.advance_together(times, noise),
            Order::Neighbours(last) => {
                let send = |clocks: &mut [u64], times: &[f64], factor| send_to_neighbours(clocks, times, last, factor);
                self.advance_by_group(times, noise, send);
            }
            Order::Pairs => self.advance_by_group(times, noise, exchange_in_pairs),
        }
    }

    fn advance_together(&mut self, nanoseconds_of_group: &[f64], noise: &mut Noise) {
        if !self.together {
            for (clock, [start, end]) in self.of_group.iter_mut().zip(self.group_starts.array_windows()) {
                *clock = self.of_slot[*start..*end].iter().copied().fold(0, u64::max);
            }
            self.together = true;
        }
        let mut latest = self.latest;
        for (clock, time) in self.of_group.iter_mut().zip(nanoseconds_of_group) {
            *clock = later(*clock, *time, noise.factor());
            latest = latest.max(*clock);
        }
        self.latest = latest;
    }

    fn advance_by_group(&mut self, times: &[f64], noise: &mut Noise, step: impl Fn(&mut [u64], &[f64], f64)) {
        self.part();
        for [start, end] in self.group_starts.array_windows() {
            step(&mut self.of_slot[*start..*end], &times[*start..*end], noise.factor());
        }
        self.latest = self.of_slot.iter().copied().fold(self.latest, u64::max);
    }

    /// Splits the group clocks into one clock per rank.
    fn part(&mut self) {
        if self.together {
            for (clock, [start, end]) in self.of_group.iter().zip(self.group_starts.array_windows()) {
                self.of_slot[*start..*end].fill(*clock);
            }
            self.together = false;
        }
    }

    /// Takes a snapshot.
    pub(super) fn mark(&self, log: &mut MarkLog) {
        log.together.push(self.together);
        log.nanoseconds.extend_from_slice(if self.together { &self.of_group } else { &self.of_slot });
    }
}

impl MarkLog {
    /// Forgets all marks and makes room for others.
    pub(super) fn reserve(&mut self, marks: usize, slots: usize) {
        self.nanoseconds.clear();
        self.together.clear();
        self.nanoseconds.reserve(marks * slots);
        self.together.reserve(marks);
    }

    /// Returns the marks by world rank; the marks of ranks in no slot are 0.
    pub(super) fn read(&self, group_starts: &[usize], rank_of_slot: &[u32], ranks: usize, marks: &mut Marks) {
        let slots = rank_of_slot.len();
        marks.local_ranks = ranks;
        marks.nanoseconds.clear();
        marks.nanoseconds.resize(self.together.len() * ranks, 0);
        let mut rest = self.nanoseconds.as_slice();
        for (together, row) in self.together.iter().zip(marks.nanoseconds.chunks_mut(ranks)) {
            let (taken, left) = rest.split_at(if *together { group_starts.len() - 1 } else { slots });
            rest = left;
            if *together {
                for (clock, [start, end]) in taken.iter().zip(group_starts.array_windows()) {
                    rank_of_slot[*start..*end].iter().for_each(|rank| row[*rank as usize] = *clock);
                }
            } else {
                taken.iter().zip(rank_of_slot).for_each(|(clock, rank)| row[*rank as usize] = *clock);
            }
        }
    }
}

/// A clock after a time of this length, to the nearest nanosecond; clocks saturate instead of wrapping.
fn later(clock: u64, nanoseconds: f64, factor: f64) -> u64 {
    clock.saturating_add((nanoseconds * factor + 0.5) as u64)
}

/// A message moves once both ends have arrived; a rank continues when its send and its receive are complete.
fn send_to_neighbours(clocks: &mut [u64], times: &[f64], last_message: LastMessage, factor: f64) {
    let last = clocks.len() - 1;
    let around = (last_message == LastMessage::Wraps).then(|| later(clocks[last].max(clocks[0]), times[last], factor));
    let mut received = around.unwrap_or(0);
    for rank in 0..last {
        let sent = later(clocks[rank].max(clocks[rank + 1]), times[rank], factor);
        clocks[rank] = sent.max(received);
        received = sent;
    }
    clocks[last] = received.max(around.unwrap_or(0));
}

/// Both ends of a pair end together; the odd one out does nothing.
fn exchange_in_pairs(clocks: &mut [u64], times: &[f64], factor: f64) {
    let (lower, upper) = clocks.split_at_mut(times.len() / 2);
    for ((one, other), time) in lower.iter_mut().zip(upper).zip(times) {
        let end = later((*one).max(*other), *time, factor);
        (*one, *other) = (end, end);
    }
}
