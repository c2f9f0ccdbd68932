//! Replay of a whole step on host memory: started calls progress while the rank computes or does other work.
//!
//! Computing is a busy loop on the clock. MPI moves data only inside its calls, so the loop tests one of the active
//! requests every few microseconds, as a progress thread of the library would.

use super::arena::Arena;
use super::replay_data::Offsets;
use super::replay_slot::{Divide, SlotCall, SlotKind, prepare};
use crate::backend::counted::{Counted, by_axis};
use crate::backend::replay_place::{place, program_of};
use crate::backend::{AxisBytes, HiddenCall, Mismatch, RankTimes, ReplayBinding, Replayer};
use crate::mpi_call::{Communicator, Waiting};
use commgauge_base::error::{Error, Result};
use commgauge_base::host_clock;
use commgauge_base::pattern::encode;
use commgauge_base::progress::{CallPhase, Doing, Progress};
use commgauge_model::layout::Axis;
use commgauge_model::workload::replay::{Action, Regions, ReplayProgram};
use std::collections::HashMap;
use std::sync::Arc;

/// Between two tests of calls under way.
const NANOSECONDS_BETWEEN_TESTS: u64 = 2_000;

/// A bound step.
pub(super) struct MpiReplayer<'b> {
    rank: u32,
    program: &'b ReplayProgram,
    slots: Vec<SlotCall>,
    send: &'b mut Arena,
    receive: &'b mut Arena,
    /// Active slots that have not been seen complete.
    under_way: Vec<u32>,
    /// By axis: number of active calls, and since when there is at least one.
    busy: [(u32, u64); Axis::ALL.len()],
    cursor: usize,
    waiting: Waiting,
    counted: Vec<Counted>,
    progress: Arc<Progress>,
    times: [RankTimes; 1],
    /// In the order of their starts; there is room for all of a run.
    hidden: Vec<HiddenCall>,
}

impl<'b> MpiReplayer<'b> {
    /// Prepares every slot; the arenas contain the regions.
    pub(super) fn new(
        binding: &ReplayBinding<'b>,
        rank: u32,
        regions: &Regions,
        communicators: &HashMap<usize, Option<Communicator>>,
        send: &'b mut Arena,
        receive: &'b mut Arena,
        waiting: Waiting,
    ) -> Result<MpiReplayer<'b>> {
        let program = program_of(binding, rank)?;
        let place = place(binding, rank);
        let mut slots = Vec::with_capacity(program.slots.len());
        let hidden_ops = program.hidden_collectives();
        for (index, slot) in program.slots.iter().enumerate() {
            let groups = program.groups[slot.op as usize];
            let unconnected = || {
                let axis = program.op_of(slot).axis;
                Error::environment(format!("axis {axis} was not connected before the replay"))
            };
            let communicator = communicators.get(&(binding.first_groups_number + groups)).and_then(Option::as_ref);
            let communicator = communicator.ok_or_else(unconnected)?;
            let (group, me) = place(groups).ok_or_else(unconnected)?;
            let mut call = prepare(program, slot, communicator, group, me, binding.seed)?;
            call.at_once = program.at_once[index];
            call.is_hidden = hidden_ops[slot.op as usize];
            let (send, receive) = (regions.send[index].offset as usize, regions.receive[index].offset as usize);
            call.offsets = Offsets { send, receive };
            slots.push(call);
        }
        Ok(MpiReplayer {
            rank,
            under_way: Vec::with_capacity(slots.len()),
            counted: vec![Counted::default(); program.ops.len()],
            program,
            slots,
            send,
            receive,
            busy: [(0, 0); Axis::ALL.len()],
            cursor: 0,
            waiting,
            progress: Arc::default(),
            times: [RankTimes::default()],
            hidden: Vec::with_capacity(program.actions.len()),
        })
    }

    /// Starts a slot; one that is waited for at once is carried out by the call that blocks.
    #[inline]
    fn start(&mut self, slot: u32) -> Result<()> {
        let call = &mut self.slots[slot as usize];
        let send = self.send.address().wrapping_add(call.offsets.send);
        let receive = self.receive.address_mut().wrapping_add(call.offsets.receive);
        let busy = &mut self.busy[call.axis];
        let begin = host_clock::now_nanoseconds();
        if busy.0 == 0 {
            busy.1 = begin;
        }
        busy.0 += 1;
        // SAFETY: the arenas are borrowed for as long as this value exists (and are leaked if it is dropped with
        // active calls) and contain all regions; regions that are written to are shared only by slots that are never
        // active together; the program waits for a slot before it starts it again; the communicators are the
        // backend's, which is borrowed.
        unsafe {
            match &call.kind {
                SlotKind::Together(prepared) if call.at_once => prepared.issue(send, receive)?,
                SlotKind::Together(prepared) => prepared.start(send, receive, &mut call.request)?,
                SlotKind::Send(message) => message.start_sending(send, &mut call.request)?,
                SlotKind::Receive(message) => message.start_receiving(receive, &mut call.request)?,
            }
        }
        if !matches!(call.kind, SlotKind::Receive(_)) {
            self.counted[call.op].add(call.bytes);
        }
        if call.is_hidden {
            call.hidden = (self.hidden.len(), begin);
            self.hidden.push(HiddenCall { op: call.op, calls: 1, nanoseconds: 0 });
        }
        if call.at_once {
            let (axis, end) = (call.axis, host_clock::now_nanoseconds());
            self.times[0].axes[axis].waiting_nanoseconds += end - begin;
            self.done(slot, axis, end);
            return Ok(());
        }
        self.under_way.push(slot);
        Ok(())
    }

    /// Waits for a slot.
    #[inline]
    fn wait(&mut self, slot: u32) -> Result<()> {
        let Some(place) = self.under_way.iter().position(|other| *other == slot) else { return Ok(()) };
        self.under_way.swap_remove(place);
        let begin = host_clock::now_nanoseconds();
        let call = &mut self.slots[slot as usize];
        call.request.wait()?;
        let end = host_clock::now_nanoseconds();
        let axis = call.axis;
        self.times[0].axes[axis].waiting_nanoseconds += end - begin;
        self.done(slot, axis, end);
        Ok(())
    }

    /// What follows when a call was seen done.
    #[inline]
    fn done(&mut self, slot: u32, axis: usize, now: u64) {
        let (under_way, since) = &mut self.busy[axis];
        *under_way -= 1;
        if *under_way == 0 {
            self.times[0].axes[axis].under_way_nanoseconds += now - *since;
        }
        let call = &self.slots[slot as usize];
        if call.is_hidden {
            let (index, begin) = call.hidden;
            self.hidden[index].nanoseconds = now - begin;
        }
        if let Some(Divide { element, ranks, bytes }) = call.divide {
            let result = &mut self.receive.bytes_mut()[call.offsets.receive..call.offsets.receive + bytes];
            encode::divide_all(element, result, ranks);
        }
    }

    /// Works for a time.
    #[inline]
    fn compute(&mut self, nanoseconds: u64) -> Result<()> {
        let begin = host_clock::now_nanoseconds();
        let (end, mut next_test) = (begin + nanoseconds, begin);
        let mut now = begin;
        while now < end {
            if now >= next_test && !self.under_way.is_empty() {
                self.test_one(now)?;
                next_test = now + NANOSECONDS_BETWEEN_TESTS;
            } else {
                self.waiting.pause();
            }
            now = host_clock::now_nanoseconds();
        }
        self.times[0].computing_nanoseconds += now - begin;
        Ok(())
    }

    #[inline]
    fn test_one(&mut self, now: u64) -> Result<()> {
        self.cursor = if self.cursor + 1 < self.under_way.len() { self.cursor + 1 } else { 0 };
        let slot = self.under_way[self.cursor];
        let call = &mut self.slots[slot as usize];
        if call.request.test()? {
            self.under_way.swap_remove(self.cursor);
            let axis = call.axis;
            self.done(slot, axis, now);
        }
        Ok(())
    }

    /// Carries a slot out once, alone, and checks what it left.
    fn check_slot(&mut self, slot: usize) -> Result<Option<Mismatch>> {
        let call = &self.slots[slot];
        call.data.write(call.offsets, self.send.bytes_mut(), self.receive.bytes_mut());
        self.start(slot as u32)?;
        self.wait(slot as u32)?;
        let call = &self.slots[slot];
        Ok(call.data.first_wrong(call.offsets, self.receive.bytes(), self.rank))
    }
}

impl Replayer for MpiReplayer<'_> {
    /// Every slot once, alone; then the buffers are cleared.
    fn check(&mut self) -> Result<Option<Mismatch>> {
        let mut first_wrong = None;
        for slot in self.program.check_order.iter().copied() {
            let wrong = self.check_slot(slot)?;
            first_wrong = first_wrong.or(wrong);
        }
        // Sums of sums would soon be infinite.
        self.send.bytes_mut().fill(0);
        self.receive.bytes_mut().fill(0);
        Ok(first_wrong)
    }

    fn verifies(&self) -> bool {
        true
    }

    fn run(&mut self) -> Result<()> {
        self.counted.fill(Counted::default());
        self.times = [RankTimes::default()];
        self.hidden.clear();
        let program = self.program;
        self.progress.enter(Doing::REPLAY);
        let begin = host_clock::now_nanoseconds();
        for action in &program.actions {
            match action {
                Action::Compute { nanoseconds, .. } => {
                    self.progress.begin_action(Doing::COMPUTING);
                    self.compute(*nanoseconds)?;
                }
                Action::Start { slot } => {
                    self.progress.begin_action(Doing::op(self.slots[*slot as usize].op as u32, CallPhase::Start));
                    self.start(*slot)?;
                }
                Action::Wait { slot } => {
                    self.progress.begin_action(Doing::op(self.slots[*slot as usize].op as u32, CallPhase::Wait));
                    self.wait(*slot)?;
                }
            }
            self.progress.end_action();
        }
        self.times[0].total_nanoseconds = host_clock::now_nanoseconds() - begin;
        self.progress.finish();
        Ok(())
    }

    fn watch(&mut self, progress: Arc<Progress>) {
        self.progress = progress;
    }

    fn times(&self) -> &[RankTimes] {
        &self.times
    }

    fn hidden_calls(&self, _: usize) -> Vec<HiddenCall> {
        self.hidden.clone()
    }

    fn moved(&self, _: usize) -> Result<Vec<AxisBytes>> {
        by_axis(self.program, &self.counted)
    }
}

impl Drop for MpiReplayer<'_> {
    /// Calls under way may still write: the memory is then never given back, and the launch is about to be aborted.
    fn drop(&mut self) {
        if !self.under_way.is_empty() {
            std::mem::forget(std::mem::take(self.send));
            std::mem::forget(std::mem::take(self.receive));
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}
