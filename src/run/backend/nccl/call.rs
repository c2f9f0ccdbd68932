//! A bound call on device memory: its buffers, its rotation, its marks, its deadline.

use super::communicator::{Communicator, Members};
use super::data::{Data, Found, Multiplied, Place, Tools};
use super::driver::{CUdeviceptr, CUevent, Graph, Graphs};
use super::first_call::FirstCall;
use super::kernels::Walk;
use super::log::Log;
use super::open::NcclBackend;
use super::prepared::{Prepared, result_offset};
use super::{abi, driver, replay_limits};
use crate::backend::mpi::{Rotation, Turns};
use crate::backend::{Binding, Call, Marks, Mismatch};
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::error::{Error, Result};
use commgauge_base::pattern::multiplier;
use commgauge_base::pattern::segments::View;
use commgauge_base::sample::WrongCall;
use commgauge_base::units::Seconds;
use commgauge_base::variant::LibraryChoice;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Time limit for writing and poisoning whole buffers, equal to that of the watchdog.
const FILLING: Duration = Duration::from_secs(120);

/// Buffers start at multiples of a cache line.
const CACHE_LINE: u64 = 64;

/// A call that NCCL executes on a stream.
pub(super) struct NcclCall<'b> {
    backend: &'b mut NcclBackend,
    communicator: Rc<Communicator>,
    /// The operation of the call, if it had to be created.
    _multiplied: Option<Multiplied>,
    prepared: Arc<Prepared>,
    /// Rotates through copies of the buffers; each copy holds all calls of a group.
    rotation: Rotation,
    places: Places,
    graphs: Option<Graphs>,
    turns: Turns,
    checks: Checks,
    data: Data,
    has_data: bool,
    /// Whether the call was made once.
    is_connected: bool,
    /// Recorded marks, of those reserved.
    marked: usize,
    /// The first error of calls that cannot return one.
    first_error: RefCell<Option<Error>>,
    /// The call in words, for errors.
    what: String,
}

impl<'b> NcclCall<'b> {
    /// Prepares the call and writes the inputs of all copies; the buffers are there.
    pub fn new(
        backend: &'b mut NcclBackend,
        binding: &Binding,
        view: &View,
        rotation: Rotation,
    ) -> Result<NcclCall<'b>> {
        backend.log.as_mut().map_or(Ok(()), Log::skip)?;
        let op = binding.op;
        let reduce_op = op.collective.reduces().then(|| op.reduce_op.unwrap_or_default());
        let variant = binding.variant;
        let members = backend.members(binding);
        let communicator = backend.communicator(members, binding.groups.axis, variant.max_ctas)?;
        let multiplied = match reduce_op {
            Some(ReduceOp::PreMulSum) => {
                Some(Multiplied::new(backend.maker.library, communicator.clone(), op.element, multiplier(view.me))?)
            }
            _ => None,
        };
        let operation = multiplied.as_ref().map(Multiplied::raw).or(reduce_op.and_then(abi::operation)).unwrap_or(0);
        if variant.calls_in_a_graph().is_some() {
            backend.buffers.note_capture();
        }
        backend.buffers.scratch.clear();
        let (offset, seed) = (result_offset(view), binding.seed);
        let data = Data::new(view, op.element, reduce_op, offset, seed, &mut backend.buffers.scratch);
        let checks = Checks::of(binding, view, rotation.copies);
        let compared = checks.turns * u64::from(variant.aggregate) * data.comparisons();
        backend.buffers.scratch.reserve_comparisons(compared);
        backend.buffers.scratch.upload(backend.stream)?;
        let prepared = Prepared::new(backend.maker.library, view, op.element, operation);
        let prepared = match members {
            Members::World | Members::Network => prepared.among(view.group),
            Members::Host => prepared.among(&backend.ranks.on_host(view.group)),
            Members::Groups(_) => prepared,
        };
        let what = format!(
            "{} of {} {}, {}",
            op.collective,
            binding.geometry.bytes_total,
            op.element,
            binding.placement.name()
        );
        let places = Places {
            send: backend.buffers.send.address(),
            receive: backend.buffers.receive.address(),
            aggregate: u64::from(variant.aggregate),
            // Whole cache lines; at least as long as `rotation` assumed.
            stride_bytes: rotation.stride_bytes / u64::from(variant.aggregate) / CACHE_LINE * CACHE_LINE,
            element_bytes: prepared.element_bytes(),
            rotation,
        };
        let mut call = NcclCall {
            backend,
            communicator,
            _multiplied: multiplied,
            prepared: Arc::new(prepared),
            places,
            graphs: variant.calls_in_a_graph().map(|calls| Graphs::of(calls, rotation.copies)),
            rotation,
            turns: Turns::default(),
            checks,
            data,
            has_data: op.collective != Collective::Barrier,
            is_connected: false,
            marked: 0,
            first_error: RefCell::new(None),
            what,
        };
        for place in places.of(0) {
            call.data.write_inputs(place, places.all_copies(), call.tools())?;
        }
        // Launch what will be queued behind a held stream once before: loading its code would wait for the device.
        for place in places.of(0).take(1) {
            call.data.produce_inputs(place, call.tools())?;
            call.data.compare(place, Walk::ONE, 0, call.tools())?;
        }
        call.wait(FILLING)?;
        Ok(call)
    }

    /// Enqueues one group of calls, or one call, on the next copy of the buffers.
    #[inline]
    fn issue(&mut self) -> Result<()> {
        self.rotation.advance();
        self.issue_on(self.rotation.current)
    }

    #[inline(always)]
    fn issue_on(&self, copy: u64) -> Result<()> {
        let Places { aggregate, stride_bytes, .. } = self.places;
        let offset = copy * self.rotation.stride_bytes;
        let (send, receive) = (self.places.send + offset, self.places.receive + offset);
        let stream = self.backend.stream.cast();
        if aggregate == 1 {
            // SAFETY: both arenas belong to the backend, which is borrowed for as long as this call exists, and were
            // reserved for all copies of the buffers; the stream is the backend's and is waited for before they are
            // released.
            return unsafe { self.prepared.issue(send, receive, self.communicator.raw(), stream) };
        }
        self.prepared.grouped(|| {
            (0..aggregate).map(|call| call * stride_bytes).try_for_each(|on| {
                // SAFETY: as above; each call of the group has its part of the copy.
                unsafe { self.prepared.issue(send + on, receive + on, self.communicator.raw(), stream) }
            })
        })
    }

    /// Makes the call once, alone: NCCL connects at the first call of a kind, waits for the other ranks meanwhile, and allocates and sets
    /// memory, which is impossible while the stream is held or capturing.
    fn connect(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_connected, true) {
            return Ok(());
        }
        let offset = self.rotation.upcoming() * self.rotation.stride_bytes;
        let (send, receive) = (self.places.send + offset, self.places.receive + offset);
        // SAFETY: as in `issue_on`; after a hang the process ends, and its memory is freed by the driver alone.
        let first = unsafe { FirstCall::new(&self.prepared, send, receive, self.backend.stream.cast()) };
        let made = first.make(&self.backend.maker, &self.communicator, &self.what);
        made.inspect_err(|_| self.abort())?;
        self.wait(self.backend.maker.deadline)
    }

    /// Captures the graphs of the timed loop, unless they exist.
    fn capture(&mut self) -> Result<()> {
        let Some(Graphs { calls, wanted, .. }) = self.graphs else { return Ok(()) };
        while self.graphs.as_ref().is_some_and(|graphs| graphs.captured.len() < wanted) {
            let stream = self.backend.stream;
            let first_copy = self.rotation.upcoming();
            let graph = Graph::capture(stream, || (0..calls).try_for_each(|_| self.issue()))?;
            graph.upload(stream)?;
            if let Some(graphs) = &mut self.graphs {
                if graphs.captured.is_empty() {
                    graphs.first_copy = first_copy;
                }
                graphs.captured.push(graph);
            }
        }
        Ok(())
    }

    /// Enqueues the turns of a check: each call between the kernel that produces its inputs and the kernel that compares its outputs.
    fn issue_checked(&mut self) -> Result<()> {
        let (places, mut comparison) = (self.places, 0);
        for _ in 0..self.checks.turns {
            self.rotation.advance();
            let copy = self.rotation.current;
            places.of(copy).try_for_each(|place| self.data.produce_inputs(place, self.tools()))?;
            self.issue_on(copy)?;
            for place in places.of(copy) {
                self.data.compare(place, Walk::ONE, comparison, self.tools())?;
                comparison += self.data.comparisons();
            }
        }
        self.turns.count(self.checks.turns);
        self.turns.restart(self.rotation.upcoming());
        Ok(())
    }

    /// Holds the stream until `complete`.
    fn hold_check(&mut self) -> Result<()> {
        let NcclBackend { hold, kernels, stream, .. } = &*self.backend;
        self.checks.is_held = self.checks.can_be_held;
        if self.checks.is_held { hold.borrow_mut().until_released(kernels, *stream) } else { Ok(()) }
    }

    fn enqueue_held(&mut self) -> Result<()> {
        let stream = self.backend.stream;
        self.checks.enqueued = Some((self.rotation.upcoming(), self.turns.made()));
        if self.graphs.is_none() {
            self.hold_check()?;
            return self.issue_checked();
        }
        // Captured before the stream is held: making a graph waits for the device.
        let graph = Graph::capture(stream, || self.issue_checked())?;
        graph.upload(stream)?;
        self.hold_check()?;
        graph.launch(stream)?;
        if let Some(graphs) = &mut self.graphs {
            // Stored until the next replacement, since it is still running.
            graphs.checked = Some(graph);
        }
        Ok(())
    }

    fn tools(&self) -> Tools<'_> {
        Tools { kernels: &self.backend.kernels, scratch: &self.backend.buffers.scratch, stream: self.backend.stream }
    }

    /// Records the first error of calls that cannot return one.
    fn record_error(&self, result: Result<()>) {
        if let Err(error) = result {
            self.first_error.borrow_mut().get_or_insert(error);
        }
    }

    /// The error of a call, with the place and the call in words.
    #[cold]
    fn with_place(&self, error: &Error) -> Error {
        Error::from_exit_code(error.exit_code(), format!("{}: {}: {error}", self.backend.maker.place, self.what))
    }

    /// Waits for the stream. On an error the communicator is aborted, so that no other rank waits for it.
    fn wait(&mut self, deadline: Duration) -> Result<()> {
        let waited = self.backend.wait_for(&[self.backend.stream], std::slice::from_ref(&self.communicator), deadline);
        waited.map_err(|error| {
            self.abort();
            self.with_place(&error)
        })
    }

    fn events(&self) -> &[CUevent] {
        &self.backend.timeline.events[..self.marked]
    }
}

impl Call for NcclCall<'_> {
    fn blocks(&self) -> bool {
        false
    }

    fn fill(&mut self) -> Result<()> {
        self.connect()?;
        let (places, upcoming) = (self.places, self.rotation.upcoming());
        for place in places.of(0) {
            let all = places.all_copies();
            self.data.poison_outputs(place, all, self.tools())?;
            // After the poison: in place the two overlap.
            self.data.write_inputs(place, all, self.tools())?;
            self.data.poison_inputs(place, places.walk(upcoming, self.checks.turns), self.tools())?;
        }
        let compared = self.checks.turns * self.places.aggregate * self.data.comparisons();
        Data::forget(compared, self.tools())?;
        if let Some(graphs) = &mut self.graphs {
            graphs.restart();
        }
        self.wait(FILLING)
    }

    #[inline]
    fn enqueue(&mut self) -> Result<()> {
        let issued = match &mut self.graphs {
            Some(graphs) => {
                self.turns.count(u64::from(graphs.calls));
                graphs.launch(self.backend.stream)
            }
            None => {
                self.turns.count(1);
                self.issue()
            }
        };
        issued.map_err(|error| self.with_place(&error))
    }

    fn enqueue_checked(&mut self) -> Result<()> {
        self.enqueue_held().map_err(|error| {
            self.backend.hold.borrow_mut().release_now();
            self.with_place(&error)
        })
    }

    fn reserve_marks(&mut self, marks: usize) {
        self.marked = 0;
        while self.backend.timeline.events.len() < marks {
            match driver::create_event() {
                Ok(event) => self.backend.timeline.events.push(event),
                Err(error) => return self.record_error(Err(error)),
            }
        }
        let ready = self.connect().and_then(|()| self.capture());
        self.record_error(ready);
        let anchored = self.backend.timeline.clock.anchor(self.backend.stream);
        self.record_error(anchored);
    }

    #[inline]
    fn mark(&mut self) {
        let recorded = match self.backend.timeline.events.get(self.marked) {
            Some(event) => driver::record(*event, self.backend.stream),
            None => Err(Error::environment("more marks than reserved")),
        };
        self.marked += 1;
        self.record_error(recorded);
    }

    fn hold_until(&mut self, start_nanoseconds: u64) -> bool {
        let NcclBackend { hold, kernels, stream, .. } = &*self.backend;
        let held = hold.borrow_mut().until(start_nanoseconds, kernels, *stream);
        match held {
            Ok(in_time) => in_time,
            Err(error) => {
                self.record_error(Err(error));
                false
            }
        }
    }

    fn started_late(&self) -> bool {
        self.backend.hold.borrow().started_late()
    }

    fn clock_error_nanoseconds(&self) -> u64 {
        self.backend.timeline.clock.error_nanoseconds()
    }

    fn complete(&mut self, deadline: Duration) -> Result<()> {
        match std::mem::take(&mut self.checks.is_held) {
            // Not at an agreed time, so it says nothing about the time to enqueue calls.
            true => self.backend.hold.borrow_mut().release_now(),
            false => self.backend.hold.borrow_mut().release(),
        }
        if let Some(error) = self.first_error.borrow_mut().take() {
            return Err(self.with_place(&error));
        }
        self.wait(deadline)
    }

    fn read_marks(&self, marks: &mut Marks) {
        marks.local_ranks = 1;
        marks.nanoseconds.clear();
        self.record_error(self.backend.timeline.clock.times(self.events(), &mut marks.nanoseconds));
        // Errors surface at the next `complete`; until then every mark has a time.
        marks.nanoseconds.resize(self.marked, 0);
    }

    fn check(&mut self) -> Result<Option<Mismatch>> {
        let enqueued = self.checks.enqueued.take();
        let comparison = Comparison {
            data: &self.data,
            tools: self.tools(),
            places: self.places,
            turns: self.turns,
            graphs: self.graphs.as_ref(),
        };
        let found = match enqueued {
            Some((first_copy, before)) => comparison.of_check(first_copy, self.checks.turns, before),
            None => comparison.of_copies(),
        };
        found.map_err(|error| self.with_place(&error))
    }

    fn verifies(&self) -> bool {
        self.has_data
    }

    fn library_estimate(&mut self) -> Result<Option<Seconds>> {
        let Some(simulate_end) = self.backend.maker.library.call.simulate_end else { return Ok(None) };
        if !self.prepared.is_estimated {
            return Ok(None);
        }
        let estimated = self.prepared.simulated(simulate_end, || self.issue_on(self.rotation.current));
        let microseconds = f64::from(estimated.map_err(|error| self.with_place(&error))?);
        let usable = microseconds.is_finite() && microseconds > 0.0;
        Ok(usable.then(|| Seconds(microseconds * 1e-6 / self.places.aggregate as f64)))
    }

    fn library_choice(&mut self) -> Result<Option<LibraryChoice>> {
        self.backend.log.as_mut().map_or(Ok(None), Log::last_choice)
    }

    fn buffer_copies(&self) -> u32 {
        u32::try_from(self.rotation.copies * self.places.aggregate).unwrap_or(u32::MAX)
    }

    fn abort(&mut self) {
        self.backend.hold.borrow_mut().release_now();
        // A communicator can be destroyed only after the graphs that contain its calls (NCCL, `src/init.cc`,
        // `commDestroySync`).
        if let Some(graphs) = &mut self.graphs {
            graphs.captured.clear();
            graphs.checked = None;
        }
        self.backend.maker.abort(&self.communicator);
    }
}

impl Drop for NcclCall<'_> {
    /// A stream that is still blocked would keep the device busy until the hold kernel times out.
    fn drop(&mut self) {
        self.backend.hold.borrow_mut().release_now();
    }
}

// Checking the calls of a case: how many run between their producers and comparisons, and the results of the comparisons in the copies of
// the buffers.

/// Maximum turns that a check enqueues with their producers and comparisons.
const CHECKED_TURNS: u64 = 8;

/// Maximum pieces of work behind a held stream: the driver has room for about a thousand, and blocks the caller beyond that.
const MOST_HELD: u64 = 512;

/// Calls that are inspected one by one after a mismatch.
const LOOKED_AT_CLOSELY: usize = 4096;

/// What a check enqueues, and what it has enqueued.
#[derive(Clone, Copy)]
pub(super) struct Checks {
    /// Turns of one call or group each; the same on all ranks of a group.
    pub turns: u64,
    /// Whether the stream can be held until all of them are enqueued.
    pub can_be_held: bool,
    pub is_held: bool,
    /// The copy of the first of them and the turns before it, while their comparisons can be read.
    pub enqueued: Option<(u64, u64)>,
}

impl Checks {
    pub(super) fn of(binding: &Binding, view: &View, copies: u64) -> Checks {
        // A call is compared in as many stretches as there are ranks that can have data in it; its inputs are one.
        let pieces = u64::from(binding.variant.aggregate) * (view.group.len() as u64 + 2) + 1;
        let fitting = (MOST_HELD / pieces).min(replay_limits::turns_with_room(binding));
        let turns = fitting.clamp(1, CHECKED_TURNS).min(copies);
        Checks { turns, can_be_held: fitting > 0, is_held: false, enqueued: None }
    }
}

/// Where the buffers of every call are.
#[derive(Clone, Copy)]
pub(super) struct Places {
    pub send: CUdeviceptr,
    pub receive: CUdeviceptr,
    /// Calls in a group, and bytes from the buffers of one to those of the next.
    pub aggregate: u64,
    pub stride_bytes: u64,
    pub element_bytes: u64,
    pub rotation: Rotation,
}

impl Places {
    /// The buffers of every call of a group.
    pub(super) fn of(self, copy: u64) -> impl Iterator<Item = Place> {
        (0..self.aggregate).map(move |call| {
            let offset = copy * self.rotation.stride_bytes + call * self.stride_bytes;
            Place { send: self.send + offset, receive: self.receive + offset, shift: offset / self.element_bytes }
        })
    }

    /// The copies of `calls` turns, beginning with `copy`.
    pub(super) fn walk(&self, copy: u64, calls: u64) -> Walk {
        let Rotation { copies, stride_bytes, .. } = self.rotation;
        Walk { stride: stride_bytes / self.element_bytes, copies, copy, step: self.rotation.step, calls }
    }

    pub(super) fn all_copies(&self) -> Walk {
        Walk { step: 1, ..self.walk(0, self.rotation.copies) }
    }
}

/// What is compared once the stream is idle.
pub(super) struct Comparison<'a> {
    pub data: &'a Data,
    pub tools: Tools<'a>,
    pub places: Places,
    /// The turns since the last check.
    pub turns: Turns,
    pub graphs: Option<&'a Graphs>,
}

impl Comparison<'_> {
    /// The results of a check's comparisons, which were enqueued behind its calls.
    pub(super) fn of_check(&self, first_copy: u64, turns: u64, before: u64) -> Result<Option<Mismatch>> {
        let copies = self.places.rotation.copies_from(first_copy, turns);
        let places: Vec<Place> = copies.flat_map(|copy| self.places.of(copy)).collect();
        let found = self.data.found(places.len() as u64 * self.data.comparisons(), self.tools)?;
        let Some(first) = found.first() else { return Ok(None) };
        let call = |found: &Found| found.comparison / self.data.comparisons();
        let count = found.iter().filter(|found| call(found) == call(first)).map(|found| found.count).sum();
        let mut wrong: Vec<u64> = found.iter().map(call).collect();
        wrong.dedup();
        let mismatch = self.data.mismatch(first, places[call(first) as usize], count, self.tools)?;
        let call = WrongCall {
            number: before * self.places.aggregate + call(first) + 1,
            wrong_copies: wrong.len() as u64,
            compared_copies: places.len() as u64,
        };
        Ok(Some(Mismatch { call: Some(call), ..mismatch }))
    }

    /// Compares all copies that calls since the last check have used: in one launch for each stretch, and after a wrong one call by call.
    pub(super) fn of_copies(&self) -> Result<Option<Mismatch>> {
        let rotation = self.places.rotation;
        let (first_copy, turns) = self.turns.used(rotation.copies);
        let first_copy = self.graphs.map_or(first_copy, |graphs| graphs.first_copy);
        if turns == 0 {
            return Ok(None);
        }
        let each = self.data.comparisons();
        let mut found = Vec::new();
        for (place, call) in self.places.of(0).zip(0u64..) {
            Data::forget(each, self.tools)?;
            self.data.compare(place, self.places.walk(first_copy, turns), 0, self.tools)?;
            found.extend(self.data.found(each, self.tools)?.into_iter().map(|found| (found.call, call, found)));
        }
        let Some((turn, call, found)) = found.into_iter().min_by_key(|(turn, call, _)| (*turn, *call)) else {
            return Ok(None);
        };
        let from_there = rotation.copies_from(first_copy, turns).skip(turn as usize);
        let places = from_there.flat_map(|copy| self.places.of(copy)).skip(call as usize);
        let (mut first, mut wrong_copies, mut compared_copies) = (None, 0, 0);
        for place in places.take(LOOKED_AT_CLOSELY) {
            let wrong = self.data.check(place, self.tools)?;
            (wrong_copies, compared_copies) = (wrong_copies + u64::from(wrong.is_some()), compared_copies + 1);
            if compared_copies == 1 {
                // An element that was wrong at first counts as wrong even if it is right now.
                first = Some(wrong.map_or_else(|| self.data.mismatch(&found, place, found.count, self.tools), Ok)?);
            }
        }
        let period = self.graphs.map_or(rotation.copies, Graphs::period);
        let last = self.turns.last_call(turn, rotation.copies, period);
        let call = WrongCall {
            number: (last - 1) * self.places.aggregate + call + 1,
            wrong_copies: wrong_copies.max(1),
            compared_copies,
        };
        Ok(first.map(|mismatch| Mismatch { call: Some(call), ..mismatch }))
    }
}
