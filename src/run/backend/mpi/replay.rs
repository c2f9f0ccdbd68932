//! Replay of a whole step on host memory: started calls progress while the rank computes or does other work.
//!
//! Computing is a busy loop on the clock. MPI moves data only inside its calls, so the loop tests one of the active
//! requests every few microseconds, as a progress thread of the library would.

use super::call::{Arena, Data, Divide, Place};
use crate::backend::contract::{CallBytes, Counted, by_axis};
use crate::backend::{AxisBytes, HiddenCall, Mismatch, RankTimes, ReplayBinding, Replayer, Span, SpanKind};
use crate::mpi_call::{Communicator, Datatype, Message, Operation, Prepared, Request, Waiting};
use commgauge_base::error::{Error, Result};
use commgauge_base::host;
use commgauge_base::pattern::Buffer;
use commgauge_base::pattern::segments::View;
use commgauge_base::progress::{CallPhase, Doing, Progress};
use commgauge_model::layout::Axis;
use commgauge_model::workload::replay::{Action, Movement, Regions, ReplayProgram, Slot, placement_of};
use std::collections::HashMap;
use std::sync::Arc;

/// Between two tests of calls in progress.
const NANOSECONDS_BETWEEN_TESTS: u64 = 2_000;

pub(super) struct MpiReplayer<'b> {
    program: &'b ReplayProgram,
    slots: Vec<SlotCall>,
    send: &'b mut Arena,
    receive: &'b mut Arena,
    /// Active slots that have not been seen complete.
    in_flight: Vec<u32>,
    /// By axis: number of active calls, and since when there is at least one.
    busy: [(u32, u64); Axis::ALL.len()],
    cursor: usize,
    waiting: Waiting,
    counted: Vec<Counted>,
    progress: Arc<Progress>,
    times: [RankTimes; 1],
    /// In the order of their starts; there is room for all of a run.
    hidden: Vec<HiddenCall>,
    /// When the last run began.
    begun: u64,
    /// There is room for all of a run.
    spans: Vec<Span>,
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
        let program = binding.program(rank)?;
        let place = binding.places(rank);
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
            let (send, receive) = (regions.send[index].offset as usize, regions.receive[index].offset as usize);
            let (at_once, data_place) = (program.at_once[index], Place { send, receive, shift: 0 });
            let call = prepare(program, slot, communicator, group, me, binding.seed)?;
            slots.push(SlotCall { at_once, place: data_place, is_hidden: hidden_ops[slot.op as usize], ..call });
        }
        Ok(MpiReplayer {
            in_flight: Vec::with_capacity(slots.len()),
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
            begun: 0,
            spans: Vec::with_capacity(2 * program.actions.len()),
        })
    }

    /// Starts a slot; a slot that is waited for at once runs as a blocking call.
    #[inline]
    fn start(&mut self, slot: u32) -> Result<()> {
        let call = &mut self.slots[slot as usize];
        let send = self.send.address().wrapping_add(call.place.send);
        let receive = self.receive.address_mut().wrapping_add(call.place.receive);
        let busy = &mut self.busy[call.axis];
        let begin = host::now_nanoseconds();
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
            let (axis, end) = (call.axis, host::now_nanoseconds());
            self.waited(axis, begin, end);
            self.done(slot, axis, end);
            return Ok(());
        }
        self.in_flight.push(slot);
        Ok(())
    }

    #[inline]
    fn wait(&mut self, slot: u32) -> Result<()> {
        let Some(place) = self.in_flight.iter().position(|other| *other == slot) else { return Ok(()) };
        self.in_flight.swap_remove(place);
        let begin = host::now_nanoseconds();
        let call = &mut self.slots[slot as usize];
        call.request.wait()?;
        let end = host::now_nanoseconds();
        let axis = call.axis;
        self.waited(axis, begin, end);
        self.done(slot, axis, end);
        Ok(())
    }

    #[inline]
    fn waited(&mut self, axis: usize, begin: u64, end: u64) {
        self.times[0].axes[axis].waiting_nanoseconds += end - begin;
        self.spans.push(Span { kind: SpanKind::Waiting { axis }, begin: begin - self.begun, end: end - self.begun });
    }

    /// Notes that a call has completed.
    #[inline]
    fn done(&mut self, slot: u32, axis: usize, now: u64) {
        let (in_flight, since) = &mut self.busy[axis];
        *in_flight -= 1;
        if *in_flight == 0 {
            self.times[0].axes[axis].in_flight_nanoseconds += now - *since;
            let (begin, end) = (*since - self.begun, now - self.begun);
            self.spans.push(Span { kind: SpanKind::InFlight { axis }, begin, end });
        }
        let call = &self.slots[slot as usize];
        if call.is_hidden {
            let (index, begin) = call.hidden;
            self.hidden[index].nanoseconds = now - begin;
        }
        if let Some(divide) = call.divide {
            divide.divide(self.receive.bytes_mut(), call.place.receive);
        }
    }

    /// Computes for a time.
    #[inline]
    fn compute(&mut self, nanoseconds: u64) -> Result<()> {
        let begin = host::now_nanoseconds();
        let (end, mut next_test) = (begin + nanoseconds, begin);
        let mut now = begin;
        while now < end {
            if now >= next_test && !self.in_flight.is_empty() {
                self.test_one(now)?;
                next_test = now + NANOSECONDS_BETWEEN_TESTS;
            } else {
                self.waiting.pause();
            }
            now = host::now_nanoseconds();
        }
        self.times[0].computing_nanoseconds += now - begin;
        let (begin, end) = (begin - self.begun, now - self.begun);
        self.spans.push(Span { kind: SpanKind::Computing, begin, end });
        Ok(())
    }

    #[inline]
    fn test_one(&mut self, now: u64) -> Result<()> {
        self.cursor = if self.cursor + 1 < self.in_flight.len() { self.cursor + 1 } else { 0 };
        let slot = self.in_flight[self.cursor];
        let call = &mut self.slots[slot as usize];
        if call.request.test()? {
            self.in_flight.swap_remove(self.cursor);
            let axis = call.axis;
            self.done(slot, axis, now);
        }
        Ok(())
    }

    /// Runs a slot once, alone, and checks its result.
    fn check_slot(&mut self, slot: usize) -> Result<Option<Mismatch>> {
        let call = &self.slots[slot];
        call.data.poison_outputs(call.place, self.receive.bytes_mut());
        call.data.write_inputs(std::iter::once(call.place), self.send.bytes_mut(), self.receive.bytes_mut());
        self.start(slot as u32)?;
        self.wait(slot as u32)?;
        let call = &self.slots[slot];
        Ok(call.data.first_wrong(call.place, self.receive.bytes()))
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

    fn run(&mut self) -> Result<()> {
        self.counted.fill(Counted::default());
        self.times = [RankTimes::default()];
        self.hidden.clear();
        self.spans.clear();
        let program = self.program;
        self.progress.enter(Doing::REPLAY);
        self.begun = host::now_nanoseconds();
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
        self.times[0].total_nanoseconds = host::now_nanoseconds() - self.begun;
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

    fn spans(&self, _: usize) -> Vec<Span> {
        self.spans.clone()
    }

    fn moved(&self, _: usize) -> Result<Vec<AxisBytes>> {
        by_axis(self.program, &self.counted)
    }
}

impl Drop for MpiReplayer<'_> {
    /// Calls in progress may still write: so the memory is never freed, and the launch is about to be aborted.
    fn drop(&mut self) {
        if !self.in_flight.is_empty() {
            std::mem::forget(std::mem::take(self.send));
            std::mem::forget(std::mem::take(self.receive));
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}

// A call of a replay on host memory, prepared so that it can be started repeatedly.

pub(super) struct SlotCall {
    pub kind: SlotKind,
    pub data: Data,
    pub request: Request,
    pub place: Place,
    pub op: usize,
    pub axis: usize,
    pub bytes: CallBytes,
    pub divide: Option<Divide>,
    /// A collective that is waited for at once wherever it is started.
    pub at_once: bool,
    /// Whether the call overlaps with computing.
    pub is_hidden: bool,
    /// For a hidden call in progress: its index and start time.
    pub hidden: (usize, u64),
}

pub(super) enum SlotKind {
    Together(Prepared),
    Send(Message),
    Receive(Message),
}

pub(super) fn prepare(
    program: &ReplayProgram,
    slot: &Slot,
    communicator: &Communicator,
    group: &[u32],
    me: u32,
    seed: u64,
) -> Result<SlotCall> {
    let op = program.op_of(slot);
    let geometry = &program.geometries[slot.op as usize];
    let elements = geometry.bytes_total.0 / geometry.element_bytes;
    let message = |peer, stream| Message::new(elements, Datatype::of(op.element), peer, stream, communicator);
    let (rank, element) = (group[me as usize], op.element);
    let (kind, data, divide) = match slot.movement {
        Movement::Send { to, stream } => {
            let data = Data::of_message(element, elements, [rank, rank], stream, Buffer::Send);
            (SlotKind::Send(message(to, stream)?), data, None)
        }
        Movement::Receive { from, stream } => {
            let data = Data::of_message(element, elements, [group[from as usize], rank], stream, Buffer::Receive);
            (SlotKind::Receive(message(from, stream)?), data, None)
        }
        Movement::Together => {
            let placement = placement_of(op.collective);
            let view = View { collective: op.collective, placement, geometry, group, me, root: op.root };
            let reduce_op = op.collective.reduces().then(|| op.reduce_op.unwrap_or_default());
            let operation = reduce_op.map(|reduce| Operation::of(reduce, op.element)).transpose()?;
            let prepared = Prepared::new(&view, communicator, Datatype::of(op.element), operation)?;
            let data = Data::of_collective(element, reduce_op, &view, seed);
            (SlotKind::Together(prepared), data, Divide::of(element, reduce_op, &view))
        }
    };
    let (named, crossing) = match &kind {
        SlotKind::Together(prepared) => {
            let crossing = prepared.elements_exchanged_with_others(me);
            // Dropped tokens are part of the nominal size but are not sent, so no count that MPI sees includes them.
            let named = crossing.map_or_else(|| prepared.elements_named(group.len() as u32), |_| elements);
            (named, crossing.unwrap_or(0))
        }
        SlotKind::Send(message) | SlotKind::Receive(message) => (message.elements(), 0),
    };
    let of = |elements: u64| elements * geometry.element_bytes;
    Ok(SlotCall {
        kind,
        data,
        request: Request::none(),
        place: Place::default(),
        op: slot.op as usize,
        axis: program.groups[slot.op as usize],
        bytes: CallBytes { payload: of(named), crossing: of(crossing) },
        divide,
        at_once: false,
        is_hidden: false,
        hidden: (0, 0),
    })
}
