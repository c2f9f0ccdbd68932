//! Replay of a whole step on streams: one for computing, one for the calls of each axis, and channels for messages.
//!
//! Everything is enqueued at once. The stream of a call waits for the point of the computing stream at which the
//! program starts it, and the computing stream waits for the call where the program does. Durations are read from
//! events afterwards; the whole is timed by the host's clock.

use super::abi;
use super::communicator::{ChannelEnd, Communicator, Members};
use super::data::{Data, Place, Tools};
use super::driver::{self, CUevent, CUstream};
use super::first_call::FirstCall;
use super::kernels::{Computing, Walk};
use super::open::NcclBackend;
use super::prepared::{Prepared, result_offset};
use super::replay_limits::{EventSpan, Intervals, channel_of, channels, events_of};
use crate::backend::contract::{CallBytes, Counted, by_axis, crossing_bytes};
use crate::backend::{AxisBytes, HiddenCall, Mismatch, RankTimes, ReplayBinding, Replayer, Span, SpanKind};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::error::{Error, Result};
use commgauge_base::host;
use commgauge_base::pattern::segments::View;
use commgauge_base::progress::{CallPhase, Doing, Progress};
use commgauge_base::writing::ascending;
use commgauge_model::workload::replay::{Action, Regions, ReplayProgram, Slot, placement_of};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long a replay may take in addition to the time that the step computes.
const DEADLINE: Duration = Duration::from_secs(120);

/// A bound step.
pub(super) struct NcclReplayer<'b> {
    backend: &'b mut NcclBackend,
    program: &'b ReplayProgram,
    /// The stream on which the program computes and waits.
    computing: CUstream,
    slots: Vec<SlotCall>,
    /// All streams except the computing one, and all communicators.
    streams: Vec<CUstream>,
    communicators: Vec<Rc<Communicator>>,
    /// By slot: the event at the end of its active call.
    done: Vec<Option<CUevent>>,
    spans: Vec<EventSpan>,
    intervals: Intervals,
    counted: Vec<Counted>,
    deadline: Duration,
    times: [RankTimes; 1],
    progress: Arc<Progress>,
    /// Whether every call was made once.
    is_connected: bool,
}

struct SlotCall {
    prepared: Arc<Prepared>,
    data: Data,
    communicator: Rc<Communicator>,
    stream: CUstream,
    send_offset: u64,
    receive_offset: u64,
    op: usize,
    axis: usize,
    bytes: CallBytes,
    receives_message: bool,
    /// Whether the call overlaps with computing.
    is_hidden: bool,
}

/// Placement of a collective in a replay: in place if NCCL supports that.
pub(super) fn placement(collective: Collective) -> Placement {
    if collective == Collective::AllToAll { Placement::OutOfPlace } else { placement_of(collective) }
}

/// The communicators of calls, without duplicates.
fn communicators_of(slots: &[SlotCall]) -> Vec<Rc<Communicator>> {
    let mut communicators: Vec<Rc<Communicator>> = slots.iter().map(|slot| slot.communicator.clone()).collect();
    communicators.sort_unstable_by_key(Rc::as_ptr);
    communicators.dedup_by_key(|communicator| Rc::as_ptr(communicator));
    communicators
}

impl<'b> NcclReplayer<'b> {
    /// Prepares every slot; the arenas contain the regions.
    pub fn new(
        backend: &'b mut NcclBackend,
        binding: &ReplayBinding<'b>,
        regions: &Regions,
    ) -> Result<NcclReplayer<'b>> {
        let rank = backend.world.rank();
        let program = binding.program(rank)?;
        let place = binding.places(rank);
        let events = events_of(program);
        let unconnected = |slot: &Slot| {
            Error::environment(format!("axis {} was not connected before the replay", program.op_of(slot).axis))
        };
        let sends_on = channels(program, &place, rank).filter(|(_, end)| *end == ChannelEnd::Sender);
        backend.open_channels(sends_on.map(|(route, _)| route).collect())?;
        while backend.timeline.events.len() < events {
            backend.timeline.events.push(driver::create_event()?);
        }
        // No more than counted: extra streams of an earlier step would take queues to the device from these.
        let (streams, wanted) = (&mut backend.replays.axis_streams, binding.plan.groups.len());
        streams.drain(wanted.min(streams.len())..).for_each(driver::destroy_stream);
        while streams.len() < wanted {
            streams.push(driver::create_stream()?);
        }
        backend.buffers.scratch.clear();
        let mut slots = Vec::with_capacity(program.slots.len());
        let hidden_ops = program.hidden_collectives();
        for (index, slot) in program.slots.iter().enumerate() {
            let (group, me) = place(program.groups[slot.op as usize]).ok_or_else(|| unconnected(slot))?;
            let (send_offset, receive_offset) = (regions.send[index].offset, regions.receive[index].offset);
            let call = prepare(backend, binding, program, slot, group, me)?;
            slots.push(SlotCall { send_offset, receive_offset, is_hidden: hidden_ops[slot.op as usize], ..call });
        }
        backend.buffers.scratch.upload(backend.stream)?;
        let streams: Vec<CUstream> = ascending(slots.iter().map(|slot| slot.stream));
        let computing = match &backend.replays.computing {
            Some(computing) => computing.stream,
            None => {
                let made = Computing::new(&backend.kernels, backend.maker.device.cache_bytes)?;
                backend.replays.computing.insert(made).stream
            }
        };
        let communicators = communicators_of(&slots);
        let deadline =
            backend.replays.deadline.unwrap_or(DEADLINE + 4 * Duration::from_nanos(program.compute_nanoseconds()));
        Ok(NcclReplayer {
            backend,
            program,
            computing,
            done: vec![None; slots.len()],
            slots,
            streams,
            communicators,
            spans: Vec::with_capacity(program.actions.len()),
            intervals: Intervals::with_room(program.actions.len()),
            counted: vec![Counted::default(); program.ops.len()],
            deadline,
            times: [RankTimes::default()],
            progress: Arc::default(),
            is_connected: false,
        })
    }

    /// Makes every call once, one after another in an order that all ranks share: NCCL connects at the first call of a kind and waits for
    /// the other ranks, which may wait for something else in the middle of a program.
    fn connect(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_connected, true) {
            return Ok(());
        }
        for slot in self.program.check_order.iter().copied() {
            let call = &self.slots[slot];
            let (send, receive) = self.addresses(call);
            // SAFETY: as in `issue`; after a hang the process ends, and its memory is freed by the driver alone.
            let first = unsafe { FirstCall::new(&call.prepared, send, receive, call.stream.cast()) };
            let what = format!("call of {}", self.program.op_of(&self.program.slots[slot]).collective);
            let made = first.make(&self.backend.maker, &call.communicator, &what);
            let own = std::slice::from_ref(&call.communicator);
            let deadline = self.backend.maker.deadline;
            let waited = made.and_then(|()| self.backend.wait_for(&[call.stream], own, deadline));
            waited.map_err(|error| self.abort_all(&error))?;
        }
        Ok(())
    }

    fn addresses(&self, call: &SlotCall) -> (u64, u64) {
        (
            self.backend.buffers.send.address() + call.send_offset,
            self.backend.buffers.receive.address() + call.receive_offset,
        )
    }

    /// Enqueues everything; `next` is the first free event.
    fn enqueue(&mut self, mut next: usize) -> Result<()> {
        let (program, main) = (self.program, self.computing);
        let mut event = |backend: &NcclBackend| {
            next += 1;
            backend.timeline.events[next - 1]
        };
        for action in &program.actions {
            match *action {
                Action::Compute { nanoseconds, .. } => {
                    let (begin, end) = (event(self.backend), event(self.backend));
                    driver::record(begin, main)?;
                    let NcclBackend { kernels, replays, .. } = &mut *self.backend;
                    replays.computing.as_mut().map_or(Ok(()), |computing| computing.occupy(nanoseconds, kernels))?;
                    driver::record(end, main)?;
                    self.spans.push(EventSpan { kind: SpanKind::Computing, hidden_op: None, begin, end });
                }
                Action::Start { slot } => {
                    let (ready, begin, end) = (event(self.backend), event(self.backend), event(self.backend));
                    let call = &self.slots[slot as usize];
                    driver::record(ready, main)?;
                    driver::wait_for(call.stream, ready)?;
                    driver::record(begin, call.stream)?;
                    self.issue(slot as usize)?;
                    let call = &self.slots[slot as usize];
                    driver::record(end, call.stream)?;
                    self.done[slot as usize] = Some(end);
                    if !call.receives_message {
                        self.counted[call.op].add(call.bytes);
                    }
                    let (kind, hidden_op) = (SpanKind::InFlight { axis: call.axis }, call.is_hidden.then_some(call.op));
                    self.spans.push(EventSpan { kind, hidden_op, begin, end });
                }
                Action::Wait { slot } => {
                    let Some(done) = self.done[slot as usize].take() else { continue };
                    let (begin, end) = (event(self.backend), event(self.backend));
                    driver::record(begin, main)?;
                    driver::wait_for(main, done)?;
                    driver::record(end, main)?;
                    let kind = SpanKind::Waiting { axis: self.slots[slot as usize].axis };
                    self.spans.push(EventSpan { kind, hidden_op: None, begin, end });
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn issue(&self, slot: usize) -> Result<()> {
        let call = &self.slots[slot];
        let (send, receive) = self.addresses(call);
        // SAFETY: the arenas contain all regions and belong to the backend, which is borrowed; regions that are
        // written to are shared only by slots that are never active together; the streams are waited for before
        // anything is freed.
        unsafe { call.prepared.issue(send, receive, call.communicator.raw(), call.stream.cast()) }
    }

    /// Executes one slot alone, on known data, and checks the result.
    fn check_slot(&mut self, slot: usize) -> Result<Option<Mismatch>> {
        let call = &self.slots[slot];
        let place = Place {
            send: self.backend.buffers.send.address() + call.send_offset,
            receive: self.backend.buffers.receive.address() + call.receive_offset,
            shift: 0,
        };
        let (kernels, scratch) = (&self.backend.kernels, &self.backend.buffers.scratch);
        let tools = Tools { kernels, scratch, stream: call.stream };
        call.data.poison_outputs(place, Walk::ONE, tools)?;
        call.data.write_inputs(place, Walk::ONE, tools)?;
        self.issue(slot)?;
        let own = std::slice::from_ref(&call.communicator);
        self.backend.wait_for(&[call.stream], own, self.deadline)?;
        call.data.check(place, tools)
    }

    /// Aborts all communicators, so that no rank waits for them, and adds the place to the error.
    #[cold]
    fn abort_all(&mut self, error: &Error) -> Error {
        for communicator in &self.communicators {
            self.backend.maker.abort(communicator);
        }
        Error::from_exit_code(error.exit_code(), format!("{}: replay: {error}", self.backend.maker.place))
    }

    fn run_once(&mut self) -> Result<()> {
        self.counted.fill(Counted::default());
        self.times = [RankTimes::default()];
        self.done.fill(None);
        self.spans.clear();
        let main = self.computing;
        let begun = host::now_nanoseconds();
        let first = self.backend.timeline.events[0];
        driver::record(first, main)?;
        self.enqueue(1)?;
        self.backend.wait_for(&[main], &self.communicators, self.deadline)?;
        self.backend.wait_for(&self.streams, &self.communicators, self.deadline)?;
        self.times[0].total_nanoseconds = host::now_nanoseconds() - begun;
        self.intervals.sum_up(first, &self.spans, &mut self.times[0])
    }
}

fn prepare(
    backend: &mut NcclBackend,
    binding: &ReplayBinding,
    program: &ReplayProgram,
    slot: &Slot,
    group: &[u32],
    me: u32,
) -> Result<SlotCall> {
    let op = program.op_of(slot);
    let geometry = &program.geometries[slot.op as usize];
    let axis = program.groups[slot.op as usize];
    let library = backend.maker.library;
    let elements = geometry.bytes_total.0 / geometry.element_bytes;
    let rank = group[me as usize];
    let call = |prepared, data, communicator, stream, crossing, receives_message| SlotCall {
        prepared: Arc::new(prepared),
        data,
        communicator,
        stream,
        send_offset: 0,
        receive_offset: 0,
        op: slot.op as usize,
        axis,
        bytes: CallBytes { payload: geometry.bytes_total.0, crossing },
        receives_message,
        is_hidden: false,
    };
    let Some((route, end)) = channel_of(slot, group, rank) else {
        let placement = placement(op.collective);
        let view = View { collective: op.collective, placement, geometry, group, me, root: op.root };
        let reduce_op = op.collective.reduces().then(|| op.reduce_op.unwrap_or_default());
        let operation = reduce_op.and_then(abi::operation).unwrap_or(0);
        let prepared = Prepared::new(library, &view, op.element, operation);
        let offset = result_offset(&view);
        let data = Data::new(&view, op.element, reduce_op, offset, binding.seed, &mut backend.buffers.scratch);
        let members = Members::Groups(binding.first_groups_number + axis);
        let communicator = backend.communicator(members, op.axis, backend.maker.ctas.most)?;
        let crossing = crossing_bytes(op, geometry, me);
        return Ok(call(prepared, data, communicator, backend.replays.axis_streams[axis], crossing, false));
    };
    let missing = || Error::environment(format!("no channel from rank {} to rank {}", route.from, route.to));
    let channel = backend.replays.channels.get(&route).ok_or_else(missing)?.clone();
    let prepared = Prepared::message(library, op.element, elements, end);
    let data = Data::message(op.element, elements, route, end);
    backend.buffers.scratch.reserve_comparisons(data.comparisons());
    Ok(call(prepared, data, channel.communicator, channel.stream, 0, end == ChannelEnd::Receiver))
}

impl Replayer for NcclReplayer<'_> {
    /// Collectives in program order, then the messages from stage to stage in one order for all ranks.
    fn check(&mut self) -> Result<Option<Mismatch>> {
        self.connect()?;
        let mut first_wrong = None;
        for slot in self.program.check_order.iter().copied() {
            self.progress.begin_action(Doing::op(self.slots[slot].op as u32, CallPhase::Wait));
            let wrong = self.check_slot(slot).map_err(|error| self.abort_all(&error))?;
            self.progress.end_action();
            first_wrong = first_wrong.or(wrong);
        }
        Ok(first_wrong)
    }

    fn run(&mut self) -> Result<()> {
        self.connect()?;
        self.progress.enter(Doing::REPLAY);
        self.run_once().map_err(|error| self.abort_all(&error))?;
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
        self.intervals.hidden.clone()
    }

    fn spans(&self, _: usize) -> Vec<Span> {
        self.intervals.spans.clone()
    }

    fn moved(&self, _: usize) -> Result<Vec<AxisBytes>> {
        by_axis(self.program, &self.counted)
    }
}
