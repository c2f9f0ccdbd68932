//! NCCL communicators, created and destroyed within a deadline; otherwise the launch ends with an error that names the
//! step.

use super::abi::{Code, Config, CtaLimits, IN_PROGRESS, NO_COLOR, RawCommunicator, SUCCESS, SYMMETRIC, UniqueId};
use super::device::Device;
use super::library::Library;
use commgauge_base::error::{Error, Kind, Result};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Default deadline. Creating a communicator of thousands of ranks may take a minute; one that takes longer than this
/// has failed. Shorter than the limit of the watchdog before the first case, because this error says more.
pub(super) const DEADLINE: Duration = Duration::from_secs(100);

/// Aborting a communicator releases whatever waits for it; if even the abort does not return, the launch ends without
/// it.
const ABORT_DEADLINE: Duration = Duration::from_secs(5);

/// Everything needed to create communicators.
#[derive(Clone)]
pub struct Maker {
    /// The library.
    pub library: &'static Library,
    /// The device of this process.
    pub device: Arc<Device>,
    /// Host, rank and device, for error messages.
    pub place: String,
    /// Limits to the thread blocks of its kernels.
    pub ctas: CtaLimits,
    /// Time limit for creating or destroying one.
    pub deadline: Duration,
}

/// An owned communicator, ended by [`Maker::destroy`] or [`Maker::abort`]; never in `Drop`, as both may wait.
pub struct Communicator {
    library: &'static Library,
    /// The handle; null after an abort.
    raw: Cell<RawCommunicator>,
    /// Whether anything was called on it: until then it has no buffers.
    is_used: Cell<bool>,
}

/// A handle on its way from the thread that waits.
struct Handle(RawCommunicator);
// SAFETY: NCCL's handles may be used by any thread, by one at a time.
unsafe impl Send for Handle {}

impl Maker {
    /// The id of a new communicator; created by one of its ranks and sent to the others.
    pub fn unique_id(&self) -> Result<UniqueId> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: the id is ours.
        self.library.check(unsafe { (self.library.call.get_unique_id)(&mut id) }, "ncclGetUniqueId")?;
        Ok(id)
    }

    /// A communicator of `ranks` ranks, of which this one is `rank`. Called by all of them.
    pub fn init(&self, id: UniqueId, ranks: u32, rank: u32) -> Result<Communicator> {
        let config = self.config();
        let (ranks, rank) = (ranks as c_int, rank as c_int);
        let init = self.library.call.init_rank;
        self.waited_for("ncclCommInitRankConfig", self.deadline, move || {
            let mut config = config;
            let mut raw = null_mut();
            // SAFETY: handle and configuration are ours and outlive the call, which blocks.
            let code = unsafe { init(&mut raw, ranks, id, rank, &mut config.0) };
            (code, Handle(raw))
        })
        .map(|made| self.communicator(made))
    }

    /// The same from several ids, each made by a rank that serves as a root of the exchange ([`root_of`]): one of them would have to talk to
    /// every rank in turn. Called by all ranks with the same ids.
    pub fn init_from_many(&self, ids: Vec<UniqueId>, ranks: u32, rank: u32) -> Result<Communicator> {
        let init = self.library.newer(self.library.call.init_rank_scalable, "ncclCommInitRankScalable")?;
        let config = self.config();
        let (ranks, rank, count) = (ranks as c_int, rank as c_int, ids.len() as c_int);
        self.waited_for("ncclCommInitRankScalable", self.deadline, move || {
            let (mut config, mut ids) = (config, ids);
            let mut raw = null_mut();
            // SAFETY: handle, ids and configuration are ours and outlive the call, which blocks.
            let code = unsafe { init(&mut raw, ranks, rank, count, ids.as_mut_ptr(), &mut config.0) };
            (code, Handle(raw))
        })
        .map(|made| self.communicator(made))
    }

    /// The communicator of the ranks that pass the same colour, ordered by key; none for ranks that pass no colour.
    /// Called by all ranks of `parent`.
    pub fn split(&self, parent: &Communicator, color: Option<u32>, key: u32) -> Result<Option<Communicator>> {
        let split = self.library.newer(self.library.call.split, "ncclCommSplit")?;
        let config = self.config();
        let from = Handle(parent.raw());
        let (number, key) = (color.map_or(NO_COLOR, |color| color as c_int), key as c_int);
        let made = self.waited_for("ncclCommSplit", self.deadline, move || {
            let (from, mut config) = (from, config);
            let mut raw = null_mut();
            // SAFETY: the parent lives, as `waited_for` returns only when this is done or the launch ends; the rest is ours.
            let code = unsafe { split(from.0, number, key, &mut raw, &mut config.0) };
            (code, Handle(raw))
        })?;
        Ok(color.map(|_| self.communicator(made)))
    }

    /// Ends a communicator in order: what is under way is waited for. Called by all its ranks.
    pub fn destroy(&self, communicator: &Communicator) -> Result<()> {
        let (finalize, destroy) = (self.library.call.finalize, self.library.call.destroy);
        let handle = communicator.take();
        if handle.0.is_null() {
            return Ok(());
        }
        let ended = self.waited_for("ncclCommDestroy", self.deadline, move || {
            let handle = handle;
            // SAFETY: the handle is not used again.
            let code = unsafe {
                match finalize(handle.0) {
                    SUCCESS | IN_PROGRESS => destroy(handle.0),
                    failed => failed,
                }
            };
            (code, Handle(null_mut()))
        });
        ended.map(drop)
    }

    /// Aborts the active calls of a communicator, whose handle is invalid afterwards. Errors of the abort are ignored:
    /// it is only called after another error.
    pub fn abort(&self, communicator: &Communicator) {
        let abort = self.library.call.abort;
        let handle = communicator.take();
        if handle.0.is_null() {
            return;
        }
        let _ = self.waited_for("ncclCommAbort", ABORT_DEADLINE, move || {
            let handle = handle;
            // SAFETY: the handle is not used again.
            (unsafe { abort(handle.0) }, Handle(null_mut()))
        });
    }

    /// Whether all its communicators have this limit to thread blocks.
    pub fn limits_to(&self, blocks: u32) -> bool {
        self.ctas.most == Some(blocks)
    }

    fn config(&self) -> SendConfig {
        SendConfig(Config::blocking(self.ctas))
    }

    /// Registers memory as a window on all ranks of a communicator; none if NCCL cannot, which is not reported as an
    /// error. Called by all ranks, with memory allocated by NCCL of the same length on all of them.
    ///
    /// # Safety
    /// The memory must exist until the window is deregistered.
    pub(super) unsafe fn register_window(
        &self,
        communicator: &Communicator,
        address: u64,
        bytes: usize,
    ) -> Result<Option<*mut c_void>> {
        let register = self.library.newer(self.library.call.window_register, "ncclCommWindowRegister")?;
        let of = Handle(communicator.raw());
        let made = self.waited_for("ncclCommWindowRegister", self.deadline, move || {
            let of = of;
            let mut window = null_mut();
            // SAFETY: the communicator lives, as `waited_for` returns only when this is done or the launch ends; the memory is promised
            // by the caller, the handle is ours.
            let code = unsafe { register(of.0, address as *mut c_void, bytes, &mut window, SYMMETRIC) };
            (code, Handle(window))
        })?;
        Ok((!made.0.is_null()).then_some(made.0))
    }

    /// Deregisters a window.
    pub(super) fn deregister_window(&self, communicator: &Communicator, window: *mut c_void) -> Result<()> {
        let deregister = self.library.newer(self.library.call.window_deregister, "ncclCommWindowDeregister")?;
        // SAFETY: the window is one of `register_window` and not used again.
        self.library.check(unsafe { deregister(communicator.raw(), window) }, "ncclCommWindowDeregister")
    }

    fn communicator(&self, handle: Handle) -> Communicator {
        Communicator { library: self.library, raw: Cell::new(handle.0), is_used: Cell::new(false) }
    }

    /// Runs a call that waits for other ranks, at most for the deadline.
    fn waited_for(
        &self,
        call: &'static str,
        deadline: Duration,
        work: impl FnOnce() -> (Code, Handle) + Send + 'static,
    ) -> Result<Handle> {
        let place = &self.place;
        match self.in_time(call, deadline, work)? {
            (SUCCESS, handle) => Ok(handle),
            (IN_PROGRESS, _) => Err(Error::environment(format!(
                "{place}: {call} does not block: NCCL_COMM_BLOCKING=0 is in a file that NCCL reads (/etc/nccl.conf, ~/.nccl.conf), and \
                 calls would be enqueued after their times were taken; take it out, or set NCCL_COMM_BLOCKING=1"
            ))),
            (code, _) => {
                let cause = self.library.failure(code, call);
                Err(Error::environment(format!("{place}: {cause}")))
            }
        }
    }

    /// Does work that waits for other ranks in a thread of its own, at most for the deadline; after it the work goes on unheard.
    pub(super) fn in_time<T: Send + 'static>(
        &self,
        call: &str,
        deadline: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let (sender, receiver) = channel();
        let device = self.device.clone();
        std::thread::spawn(move || {
            let result = device.make_current().map(|()| work());
            // After the deadline there is no receiver any more; the launch is then about to be aborted.
            let _ = sender.send(result);
        });
        let place = &self.place;
        match receiver.recv_timeout(deadline) {
            Ok(result) => result,
            Err(_) => Err(Error::from(Kind::Hang(format!(
                "{place}: {call} did not end within {} s: a rank that belongs to it did not come, or cannot be \
                 reached (NCCL_DEBUG=INFO shows more); a longer --timeout waits longer",
                deadline.as_secs_f64()
            )))),
        }
    }
}

/// The rank that makes an id, of so many ids and ranks: the first of its part of the ranks, as NCCL divides them among the roots (its user
/// guide, "Creating a communicator using multiple ncclUniqueIds").
pub fn root_of(id: u32, ids: u32, ranks: u32) -> u32 {
    (u64::from(id) * u64::from(ranks)).div_ceil(u64::from(ids.max(1))) as u32
}

/// A configuration without any pointer in it.
struct SendConfig(Config);
// SAFETY: its one pointer is null.
unsafe impl Send for SendConfig {}

impl Communicator {
    fn take(&self) -> Handle {
        Handle(self.raw.replace(null_mut()))
    }

    /// Notes that something was called on it.
    pub fn note_use(&self) {
        self.is_used.set(true);
    }

    /// Whether something was called on it.
    pub fn is_used(&self) -> bool {
        self.is_used.get()
    }

    /// The handle; null after an abort.
    pub fn raw(&self) -> RawCommunicator {
        self.raw.get()
    }

    /// An asynchronous error since the last call, if any.
    pub fn asynchronous_error(&self) -> Result<()> {
        let mut code = SUCCESS;
        if self.raw().is_null() {
            return Err(Error::environment("the communicator was given up"));
        }
        // SAFETY: the communicator lives, the code is ours.
        let queried = unsafe { (self.library.call.get_async_error)(self.raw(), &mut code) };
        self.library.check(queried, "ncclCommGetAsyncError")?;
        match code {
            SUCCESS | IN_PROGRESS => Ok(()),
            failed => Err(self.library.failure(failed, "the communicator")),
        }
    }
}
