//! A bound call on device memory: its buffers, its rotation, its marks, its deadline.

use super::NcclBackend;
use super::abi;
use super::communicator::Communicator;
use super::data::{Data, Place, Tools};
use super::driver::{self, CUevent, CUstream};
use super::prepared::{Prepared, result_offset};
use crate::backend::mpi::Rotation;
use crate::backend::{Binding, Call, Marks, Mismatch};
use crate::collective::Collective;
use crate::error::{Error, Kind, Result};
use crate::host_clock;
use crate::pattern::segments::View;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Between two looks at what happened in the background while waiting.
const NANOSECONDS_BETWEEN_LOOKS: u64 = 200_000;
/// For writing and poisoning whole buffers, as the watchdog allows it too.
const FILLING: Duration = Duration::from_secs(120);

/// A call that NCCL carries out on a stream.
pub(super) struct NcclCall<'b> {
    backend: &'b mut NcclBackend,
    communicator: Rc<Communicator>,
    prepared: Prepared,
    rotation: Rotation,
    data: Data,
    has_data: bool,
    /// Marks that were recorded of those that there is room for.
    marked: usize,
    /// What went wrong where nothing can be returned.
    trouble: RefCell<Option<Error>>,
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
        let op = binding.op;
        let reduce_op = op.collective.reduces().then(|| op.reduce_op.unwrap_or_default());
        let operation = reduce_op.map_or(0, abi::operation);
        let communicator = backend.communicator(binding.groups_number, binding.groups.axis)?;
        backend.scratch.clear();
        let (offset, seed) = (result_offset(view), binding.seed);
        let data = Data::new(view, op.element, reduce_op, offset, seed, &mut backend.scratch);
        backend.scratch.upload(backend.stream)?;
        let prepared = Prepared::new(backend.maker.library, view, op.element, operation)?;
        let what = format!(
            "{} of {} {}, {}",
            op.collective,
            binding.geometry.bytes_total,
            op.element,
            binding.placement.name()
        );
        let mut call = NcclCall {
            backend,
            communicator,
            prepared,
            rotation,
            data,
            has_data: op.collective != Collective::Barrier,
            marked: 0,
            trouble: RefCell::new(None),
            what,
        };
        for copy in 0..rotation.copies {
            call.data.write_inputs(call.place(copy), call.tools())?;
        }
        call.wait(FILLING)?;
        Ok(call)
    }

    fn place(&self, copy: u64) -> Place {
        let offset = copy * self.rotation.stride_bytes;
        Place {
            send: self.backend.send.address() + offset,
            receive: self.backend.receive.address() + offset,
            shift: offset / self.prepared.element_bytes(),
        }
    }

    fn tools(&self) -> Tools<'_> {
        Tools { kernels: &self.backend.kernels, scratch: &self.backend.scratch, stream: self.backend.stream }
    }

    /// Keeps the first trouble of calls that cannot return it.
    fn keep(&self, result: Result<()>) {
        if let Err(error) = result {
            self.trouble.borrow_mut().get_or_insert(error);
        }
    }

    /// The error of a call, with the place and the call in words.
    #[cold]
    fn told(&self, error: &Error) -> Error {
        Error::from_exit_code(error.exit_code(), format!("{}: {}: {error}", self.backend.maker.place, self.what))
    }

    /// Waits for the stream. Trouble gives up the communicator, so that nothing else waits for it.
    fn wait(&mut self, deadline: Duration) -> Result<()> {
        let waited = self.backend.wait_for(&[self.backend.stream], std::slice::from_ref(&self.communicator), deadline);
        waited.map_err(|error| {
            self.abort();
            self.told(&error)
        })
    }

    fn events(&self) -> &[CUevent] {
        &self.backend.events[..self.marked]
    }
}

impl NcclBackend {
    /// Waits until streams are done, at most for a deadline, and looks at what happens to the communicators meanwhile.
    pub(super) fn wait_for(
        &self,
        streams: &[CUstream],
        communicators: &[Rc<Communicator>],
        deadline: Duration,
    ) -> Result<()> {
        let begun = host_clock::now_nanoseconds();
        let end = begun.saturating_add(u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX));
        let mut next_look = begun + NANOSECONDS_BETWEEN_LOOKS;
        let look = || communicators.iter().try_for_each(|communicator| communicator.asynchronous_error());
        for stream in streams {
            while !driver::is_done(*stream)? {
                let now = host_clock::now_nanoseconds();
                if now >= next_look {
                    next_look = now + NANOSECONDS_BETWEEN_LOOKS;
                    look()?;
                    if now >= end {
                        let seconds = deadline.as_secs_f64();
                        return Err(Kind::Hang(format!("not done within {seconds} s; given up")).into());
                    }
                }
                // Times are read from events, so that nothing is lost by giving way to threads of the libraries.
                std::thread::yield_now();
            }
        }
        // What failed may have left the stream idle, and yesterday's right answer in the buffer.
        look()
    }
}

impl Call for NcclCall<'_> {
    fn blocks(&self) -> bool {
        false
    }

    fn fill(&mut self) -> Result<()> {
        let place = self.place(self.rotation.upcoming());
        self.data.poison_outputs(place, self.tools())?;
        // After the poison: in place the two overlap.
        self.data.write_inputs(place, self.tools())?;
        self.wait(FILLING)
    }

    #[inline]
    fn enqueue(&mut self) -> Result<()> {
        let offset = self.rotation.advance() as u64;
        let (send, receive) = (self.backend.send.address() + offset, self.backend.receive.address() + offset);
        // SAFETY: both arenas belong to the backend, which is borrowed for as long as this call lives, and were reserved for all
        // copies of the buffers; the stream is the backend's and is waited for before they are given back.
        let issued = unsafe { self.prepared.issue(send, receive, &self.communicator, self.backend.stream.cast()) };
        issued.map_err(|error| self.told(&error))
    }

    fn reserve_marks(&mut self, marks: usize) {
        self.marked = 0;
        while self.backend.events.len() < marks {
            match driver::create_event() {
                Ok(event) => self.backend.events.push(event),
                Err(error) => return self.keep(Err(error)),
            }
        }
        let anchored = self.backend.clock.anchor(self.backend.stream);
        self.keep(anchored);
    }

    #[inline]
    fn mark(&mut self) {
        let recorded = match self.backend.events.get(self.marked) {
            Some(event) => driver::record(*event, self.backend.stream),
            None => Err(Error::environment("more marks than were reserved")),
        };
        self.marked += 1;
        self.keep(recorded);
    }

    fn hold_until(&mut self, start_nanoseconds: u64) -> bool {
        let backend = &mut *self.backend;
        match backend.hold.until(start_nanoseconds, &backend.kernels, backend.stream) {
            Ok(in_time) => in_time,
            Err(error) => {
                self.keep(Err(error));
                false
            }
        }
    }

    fn came_late(&self) -> bool {
        self.backend.hold.came_late()
    }

    fn complete(&mut self, deadline: Duration) -> Result<()> {
        self.backend.hold.release();
        if let Some(error) = self.trouble.borrow_mut().take() {
            return Err(self.told(&error));
        }
        self.wait(deadline)
    }

    fn read_marks(&self, marks: &mut Marks) {
        marks.local_ranks = 1;
        marks.nanoseconds.clear();
        self.keep(self.backend.clock.times(self.events(), &mut marks.nanoseconds));
        // Trouble surfaces at the next `complete`; until then every mark has a time.
        marks.nanoseconds.resize(self.marked, 0);
    }

    fn check(&mut self) -> Result<Option<Mismatch>> {
        let place = self.place(self.rotation.last_used());
        self.data.check(place, self.tools()).map_err(|error| self.told(&error))
    }

    fn verifies(&self) -> bool {
        self.has_data
    }

    fn now_nanoseconds(&self) -> u64 {
        host_clock::now_nanoseconds()
    }

    fn buffer_copies(&self) -> u32 {
        u32::try_from(self.rotation.copies).unwrap_or(u32::MAX)
    }

    fn abort(&mut self) {
        self.backend.hold.give_up();
        self.backend.maker.abort(&self.communicator);
    }
}

impl Drop for NcclCall<'_> {
    /// A stream that is still held would keep the device busy until the hold ends by itself.
    fn drop(&mut self) {
        self.backend.hold.give_up();
    }
}
