//! NCCL communicators, created and destroyed within a deadline; otherwise the launch ends with an error that names the
//! step.

use super::abi::{Code, Config, CtaLimits, IN_PROGRESS, NO_COLOR, RawCommunicator, SUCCESS, SYMMETRIC, UniqueId};
use super::device::Device;
use super::driver::{Arena, CUstream};
use super::library::{CHANNELS_FROM, Library, Version};
use crate::backend::{Binding, SETUP_OF_EACH_RANK};
use commgauge_base::collective::Collective;
use commgauge_base::error::{Error, Kind, Result};
use commgauge_base::variant::Buffers;
use commgauge_model::layout::Axis;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Default deadline for creating a communicator and for its first call, in which every rank of an all_to_all connects to all others. Shorter
/// than the limit of the watchdog before the first case, because this error says more.
pub(super) fn deadline(ranks: u32) -> Duration {
    Duration::from_secs(100) + SETUP_OF_EACH_RANK * ranks
}

/// Aborting a communicator releases everything that waits for it; the launch ends even if the abort does not return.
const ABORT_DEADLINE: Duration = Duration::from_secs(5);

/// Everything needed to create communicators.
#[derive(Clone)]
pub struct Maker {
    pub library: &'static Library,
    /// The device of this process.
    pub device: Arc<Device>,
    /// Host, rank and device, for error messages.
    pub place: String,
    /// Limits on the thread blocks of its kernels.
    pub ctas: CtaLimits,
    /// Channels for a message to a rank of another node; without it NCCL chooses.
    pub channels: Option<u32>,
    /// Time limit for creating or destroying one.
    pub deadline: Duration,
}

/// An owned communicator, ended by [`Maker::destroy`] or [`Maker::abort`]; never in `Drop`, as both may wait.
pub struct Communicator {
    library: &'static Library,
    /// The handle; null after an abort.
    raw: Cell<RawCommunicator>,
    /// Whether anything was called on it: until then it has no buffers.
    pub(super) is_used: Cell<bool>,
}

/// A handle sent by the waiting thread.
struct Handle(RawCommunicator);

// SAFETY: any thread may use NCCL's handles, one at a time.
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
        let (ranks, rank, ctas, channels) = (ranks as c_int, rank as c_int, self.ctas, self.channels);
        let init = self.library.call.init_rank;
        self.made("ncclCommInitRankConfig", move |raw| {
            let mut config = Config::blocking(ctas, channels);
            // SAFETY: handle and configuration are ours and outlive the call, which blocks.
            unsafe { init(raw, ranks, id, rank, &mut config) }
        })
    }

    /// As above from several ids, each made by a rank that is a root of the exchange ([`root_of`]): a single root would talk to every rank
    /// in turn. Called by all ranks with the same ids.
    pub fn init_from_many(&self, ids: Vec<UniqueId>, ranks: u32, rank: u32) -> Result<Communicator> {
        let init = self.library.newer(self.library.call.init_rank_scalable, "ncclCommInitRankScalable")?;
        let (ranks, rank, count) = (ranks as c_int, rank as c_int, ids.len() as c_int);
        let (ctas, channels) = (self.ctas, self.channels);
        self.made("ncclCommInitRankScalable", move |raw| {
            let (mut config, mut ids) = (Config::blocking(ctas, channels), ids);
            // SAFETY: handle, ids and configuration are ours and outlive the call, which blocks.
            unsafe { init(raw, ranks, rank, count, ids.as_mut_ptr(), &mut config) }
        })
    }

    /// The communicator of the ranks that pass the same colour, ordered by key; none for ranks that pass no colour.
    /// Called by all ranks of `parent`.
    pub fn split(&self, parent: &Communicator, color: Option<u32>, key: u32) -> Result<Option<Communicator>> {
        let split = self.library.newer(self.library.call.split, "ncclCommSplit")?;
        let (from, ctas, channels) = (Handle(parent.raw()), self.ctas, self.channels);
        let (number, key) = (color.map_or(NO_COLOR, |color| color as c_int), key as c_int);
        let made = self.made("ncclCommSplit", move |raw| {
            let (from, mut config) = (from, Config::blocking(ctas, channels));
            // SAFETY: the parent lives, as `waited_for` returns only when this is done or the launch ends; the rest is ours.
            unsafe { split(from.0, number, key, raw, &mut config) }
        })?;
        Ok(color.map(|_| made))
    }

    /// Finalizes a communicator after waiting for its active calls. Called by all its ranks.
    pub fn destroy(&self, communicator: &Communicator) -> Result<()> {
        let (finalize, destroy) = (self.library.call.finalize, self.library.call.destroy);
        let handle = communicator.take();
        if handle.0.is_null() {
            return Ok(());
        }
        let ended = self.waited_for("ncclCommDestroy", self.deadline, move |_| {
            let handle = handle;
            // SAFETY: the handle is not used again.
            unsafe {
                match finalize(handle.0) {
                    SUCCESS | IN_PROGRESS => destroy(handle.0),
                    failed => failed,
                }
            }
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
        let _ = self.waited_for("ncclCommAbort", ABORT_DEADLINE, move |_| {
            let handle = handle;
            // SAFETY: the handle is not used again.
            unsafe { abort(handle.0) }
        });
    }

    /// Whether all its communicators have this limit on thread blocks.
    pub fn limits_to(&self, blocks: u32) -> bool {
        self.ctas.most == Some(blocks)
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
        let made = self.waited_for("ncclCommWindowRegister", self.deadline, move |window| {
            let of = of;
            // SAFETY: the communicator lives, as `waited_for` returns only when this is done or the launch ends; the memory is promised
            // by the caller, the handle is ours.
            unsafe { register(of.0, address as *mut c_void, bytes, window, SYMMETRIC) }
        })?;
        Ok((!made.0.is_null()).then_some(made.0))
    }

    /// The communicator whose handle a call fills in.
    fn made(
        &self,
        call: &'static str,
        work: impl FnOnce(&mut *mut c_void) -> Code + Send + 'static,
    ) -> Result<Communicator> {
        let Handle(raw) = self.waited_for(call, self.deadline, work)?;
        Ok(Communicator { library: self.library, raw: Cell::new(raw), is_used: Cell::new(false) })
    }

    /// Runs a call that waits for other ranks, at most for the deadline, and returns the handle that it fills in.
    fn waited_for(
        &self,
        call: &'static str,
        deadline: Duration,
        work: impl FnOnce(&mut *mut c_void) -> Code + Send + 'static,
    ) -> Result<Handle> {
        let place = &self.place;
        let called = self.in_time(call, deadline, move || {
            let mut handle = null_mut();
            (work(&mut handle), Handle(handle))
        });
        match called? {
            (SUCCESS, handle) => Ok(handle),
            (IN_PROGRESS, _) => Err(Error::environment(format!(
                "{place}: {call} does not block: a configuration file of NCCL (/etc/nccl.conf, ~/.nccl.conf) sets NCCL_COMM_BLOCKING=0, so calls would be enqueued after their times were taken; remove it, or set NCCL_COMM_BLOCKING=1"
            ))),
            (code, _) => {
                let cause = self.library.failure(code, call);
                Err(Error::environment(format!("{place}: {cause}")))
            }
        }
    }

    /// Does work that waits for other ranks in its own thread, at most for the deadline; after it the work continues and its result is
    /// dropped.
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
            // After the deadline there is no receiver; the launch is about to be aborted.
            let _ = sender.send(result);
        });
        let place = &self.place;
        match receiver.recv_timeout(deadline) {
            Ok(result) => result,
            Err(_) => Err(Error::from(Kind::Hang(format!(
                "{place}: {call} did not end within {} s: a rank never called it, or cannot be reached (NCCL_DEBUG=INFO shows more); raise --timeout to wait longer",
                deadline.as_secs_f64()
            )))),
        }
    }
}

/// The rank that makes an id, given the numbers of ids and ranks: the first of its part of the ranks, as NCCL divides them among the roots
/// (its user guide, "Creating a communicator using multiple ncclUniqueIds").
pub fn root_of(id: u32, ids: u32, ranks: u32) -> u32 {
    (u64::from(id) * u64::from(ranks)).div_ceil(u64::from(ids.max(1))) as u32
}

impl Communicator {
    fn take(&self) -> Handle {
        Handle(self.raw.replace(null_mut()))
    }

    /// Notes that it was used.
    pub fn note_use(&self) {
        self.is_used.set(true);
    }

    /// The handle; null after an abort.
    pub fn raw(&self) -> RawCommunicator {
        self.raw.get()
    }

    pub(super) fn deregister_window(&self, window: *mut c_void) -> Result<()> {
        let deregister = self.library.newer(self.library.call.window_deregister, "ncclCommWindowDeregister")?;
        // SAFETY: the window is one of `ncclCommWindowRegister` and not used again.
        self.library.check(unsafe { deregister(self.raw(), window) }, "ncclCommWindowDeregister")
    }

    /// An asynchronous error since the last call, if any.
    pub fn asynchronous_error(&self) -> Result<()> {
        let mut code = SUCCESS;
        if self.raw().is_null() {
            return Err(Error::environment("the communicator was aborted"));
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

// The ranks of a communicator, and the communicator that carries the calls of a case.

/// The ranks of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Members {
    World,
    /// All ranks, with enough channels for a pair of them to fill the link between their nodes.
    Network,
    /// The ranks of this rank's host.
    Host,
    /// Those of this rank's group, by the number of the groups.
    Groups(usize),
}

impl Members {
    /// Whether a case has messages between the two ranks of a pair that share a communicator with other pairs: otherwise every round of
    /// pairs would need its own, each with memory, threads and connections, as many as there are ranks. Windows need all ranks of a
    /// communicator, and some are in no pair.
    pub fn shared_by_pairs(binding: &Binding) -> bool {
        let messages =
            matches!(binding.op.collective, Collective::PingPong | Collective::Bidirectional | Collective::SendRecv);
        binding.groups.axis == Axis::Pair && messages && binding.variant.buffers != Buffers::Symmetric
    }

    /// Those of a pair. NCCL gives every peer of a communicator the number of channels of the worst connected one, so that messages inside a
    /// host need a communicator without other hosts to use all NVLinks.
    pub fn of_pair(pair: &[u32], hosts: &[String], version: Version) -> Members {
        let is_inside = pair.windows(2).all(|two| hosts.get(two[0] as usize) == hosts.get(two[1] as usize));
        match is_inside {
            _ if hosts.windows(2).all(|two| two[0] == two[1]) => Members::World,
            true => Members::Host,
            false if version < CHANNELS_FROM => Members::World,
            false => Members::Network,
        }
    }
}

/// Members of a communicator, and its own limit on thread blocks, if any.
pub(super) type MembersKey = (Members, Option<u32>);

// Buffers that are registered with NCCL before they are used: as plain registrations, or as symmetric windows of all
// ranks.
//
// NCCL allocates them. It does not register other memory for use between GPUs, and does not report that (NCCL user guide, "User Buffer
// Registration"): the times would be those of plain buffers under another name.

/// Buffers that are registered with a communicator, until [`Registration::end`].
pub(super) struct Registration {
    communicator: Rc<Communicator>,
    buffers: Buffers,
    handles: Vec<*mut c_void>,
}

impl Registration {
    /// Registers the first bytes of some memory. Called by all ranks of the communicator with the same number of bytes, which every
    /// arena has; for windows, of memory that has the same length on all of them.
    ///
    /// # Errors
    /// Also if NCCL accepts the memory but does not register it.
    pub fn begin(
        maker: &Maker,
        communicator: Rc<Communicator>,
        buffers: Buffers,
        arenas: [&Arena; 2],
        bytes: u64,
    ) -> Result<Registration> {
        let mut registration = Registration { communicator, buffers, handles: Vec::new() };
        for arena in arenas {
            match registration.one(maker, arena.address(), bytes as usize) {
                Ok(handle) => registration.handles.extend(handle),
                Err(error) => {
                    // The first error is the most informative one.
                    let _ = registration.end();
                    return Err(error);
                }
            }
        }
        Ok(registration)
    }

    fn one(&self, maker: &Maker, address: u64, bytes: usize) -> Result<Option<*mut c_void>> {
        match self.buffers {
            Buffers::Plain | Buffers::Allocated => Ok(None),
            Buffers::Registered => {
                let library = self.communicator.library;
                let register = library.newer(library.call.register, "ncclCommRegister")?;
                let mut handle = null_mut();
                // SAFETY: the memory belongs to the arena, which outlives this registration; the handle is ours.
                let code = unsafe { register(self.communicator.raw(), address as *mut c_void, bytes, &mut handle) };
                library.check(code, "ncclCommRegister")?;
                made(
                    handle,
                    "ncclCommRegister registers nothing here: NCCL_LOCAL_REGISTER=0 or copies by the driver are set",
                )
            }
            Buffers::Symmetric => {
                // SAFETY: as above.
                let window = unsafe { maker.register_window(&self.communicator, address, bytes)? };
                made(window.unwrap_or(null_mut()), NO_WINDOWS)
            }
        }
    }

    /// Ends all registrations. Called before the memory or the communicator is released.
    pub fn end(self) -> Result<()> {
        let library = self.communicator.library;
        if self.communicator.raw().is_null() {
            // Aborted, and its registrations with it.
            return Ok(());
        }
        for handle in self.handles {
            if self.buffers == Buffers::Symmetric {
                self.communicator.deregister_window(handle)?;
            } else {
                let deregister = library.newer(library.call.deregister, "ncclCommDeregister")?;
                // SAFETY: the handle is from `ncclCommRegister` and not used again.
                library.check(unsafe { deregister(self.communicator.raw(), handle) }, "ncclCommDeregister")?;
            }
        }
        Ok(())
    }
}

/// A handle; null is success to NCCL, and the buffers then stay plain.
fn made(handle: *mut c_void, otherwise: &str) -> Result<Option<*mut c_void>> {
    if handle.is_null() { Err(Error::environment(otherwise)) } else { Ok(Some(handle)) }
}

// The known facts about the symmetric windows of a replicate: whether there are any, and how much of their space is used.

/// One unit of the virtual memory of a device.
pub(super) const TRIED_BYTES: u64 = 2 << 20;

/// The reason if there are no windows.
pub(super) const NO_WINDOWS: &str = "NCCL makes no symmetric windows for these ranks: it needs virtual memory of the driver \
     (NCCL_CUMEM_ENABLE), direct access between the GPUs of a host, for several hosts NCCL 2.28 and adapters that GPUs can drive, and \
     NCCL_WIN_ENABLE not 0";

/// Known facts about windows in this replicate.
#[derive(Default)]
pub(super) struct Windows {
    /// By number of the groups: whether there are any.
    pub(super) are_made: RefCell<HashMap<usize, bool>>,
    /// By communicator: the end of its used window space, if space is never reused.
    used: RefCell<HashMap<WindowsKey, u64>>,
}

/// Number of the groups, and limit on thread blocks.
type WindowsKey = (usize, Option<u32>);

impl Windows {
    /// Resets the state for a new replicate, which has new communicators.
    pub fn forget(&self) {
        self.are_made.borrow_mut().clear();
        self.used.borrow_mut().clear();
    }

    /// Forgets a communicator and its window space.
    pub fn forget_one(&self, key: MembersKey) {
        if let (Members::Groups(number), limit) = key {
            self.used.borrow_mut().remove(&(number, limit));
        }
    }

    /// End of two further windows in the window space of a communicator: NCCL 2.27 aligns long ones to whole pages of
    /// 512 MiB (`src/register/register.cc`, `ncclCommWindowRegister`).
    pub fn end_of_two(&self, key: WindowsKey, bytes: u64) -> u64 {
        let bytes = bytes.next_multiple_of(TRIED_BYTES);
        let page = if bytes >= 72 * TRIED_BYTES { 512 << 20 } else { TRIED_BYTES };
        let begin = self.used.borrow().get(&key).copied().unwrap_or(0);
        (0..2).fold(begin, |end, _| end.next_multiple_of(page) + bytes)
    }

    pub fn use_two(&self, key: WindowsKey, bytes: u64) {
        let end = self.end_of_two(key, bytes);
        self.used.borrow_mut().insert(key, end);
    }
}

// A one-way channel for the messages of a replay: a communicator of two ranks, and a stream.

/// Key of a channel: world ranks, and the number that identifies the message stream within a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Route {
    pub from: u32,
    pub to: u32,
    pub stream: u32,
}

/// Which end of a channel a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelEnd {
    Sender,
    Receiver,
}

impl ChannelEnd {
    /// Its rank in the communicator of the two.
    pub fn rank(self) -> u32 {
        match self {
            ChannelEnd::Sender => 0,
            ChannelEnd::Receiver => 1,
        }
    }

    /// The rank of the peer.
    pub fn peer(self) -> u32 {
        1 - self.rank()
    }
}

/// An open channel, as seen from one of its ends.
#[derive(Clone)]
pub(super) struct Channel {
    pub communicator: Rc<Communicator>,
    pub stream: CUstream,
}

// Keeps the most recently used communicators of pairs. Every round of pairs needs its own where messages cannot go over the communicator of
// all ranks; keeping all would take as many as there are ranks, each with memory, threads and connections.

/// For one case and the one before, whose registered buffers are freed only when the next ones are reserved.
const MOST: usize = 2;

/// Keys of communicators of pairs, the most recent last.
#[derive(Default)]
pub(super) struct RecentPairs(VecDeque<MembersKey>);

impl RecentPairs {
    /// Notes a use, and returns the communicator to evict, if any.
    pub fn use_one(&mut self, key: MembersKey) -> Option<MembersKey> {
        self.0.retain(|other| *other != key);
        self.0.push_back(key);
        if self.0.len() > MOST { self.0.pop_front() } else { None }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{Members, *};

    #[test]
    fn windows_are_laid_behind_one_another_and_long_ones_at_whole_pages() {
        let windows = Windows::default();
        let key = (1, None);
        windows.use_two(key, 1);
        assert_eq!(windows.end_of_two(key, 3 << 20), 12 << 20);
        assert_eq!(windows.end_of_two(key, 144 << 20), (2 * 512 + 144) << 20);
        assert_eq!(windows.end_of_two((1, Some(4)), 1), 4 << 20, "another communicator");
        windows.forget();
        assert_eq!(windows.end_of_two(key, 1), 4 << 20);
    }

    #[test]
    fn pairs_use_the_links_between_them_whatever_the_other_ranks_are_connected_by() {
        let hosts = |names: &str| names.split(' ').map(String::from).collect::<Vec<_>>();
        let newest = CHANNELS_FROM;
        for (names, pair, version, expected) in [
            ("a a b b", [0, 1], newest, Members::Host),
            ("a a b b", [1, 2], newest, Members::Network),
            ("a a b b", [1, 2], Version(2, 27, 5), Members::World),
            ("a a b b", [2, 3], Version(2, 27, 5), Members::Host),
            ("a a a a", [0, 3], newest, Members::World),
        ] {
            assert_eq!(Members::of_pair(&pair, &hosts(names), version), expected, "{names} {pair:?} {version}");
        }
    }

    #[test]
    fn the_one_that_was_used_longest_ago_goes_and_never_that_of_the_case_before() {
        let key = |number| (Members::Groups(number), None);
        let mut recent = RecentPairs::default();
        let gone: Vec<_> = [1, 2, 1, 3, 3, 2].map(|number| recent.use_one(key(number))).into();
        assert_eq!(gone, [None, None, None, Some(key(2)), None, Some(key(1))]);
        recent.clear();
        assert_eq!(recent.use_one(key(5)), None);
    }
}
