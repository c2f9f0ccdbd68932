//! A communicator: its ranks, its state, and the order in which its calls are carried out.

use crate::buffers::Known;
use crate::config::Asked;
use crate::driver;
use crate::fifo::Fifo;
use crate::graph_registrations::GraphRegistrations;
use crate::link::{Links, Seat};
use crate::log;
use crate::op::Connection;
use crate::operator::Made;
use crate::residency;
use crate::result::{
    Answer, Failure, IN_PROGRESS, INVALID_ARGUMENT, INVALID_USAGE, SYSTEM_ERROR, UNHANDLED_CUDA_ERROR, VERSION, failure,
};
use crate::segment::{self, End, Segment};
use settings::{Kind, SETTINGS};
use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, OnceLock};
use std::time::Duration;

static COMMUNICATORS: LazyLock<Mutex<HashMap<usize, Arc<Communicator>>>> = LazyLock::new(Default::default);
static NEXT: AtomicUsize = AtomicUsize::new(0x10);
/// Communicators that this process began to make.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// Live communicators: each has threads, descriptors and memory, whose number is limited.
static ALIVE: AtomicU64 = AtomicU64::new(0);

pub struct Communicator {
    pub rank: u32,
    pub ranks: u32,
    pub device: c_int,
    pub blocking: bool,
    pub operators: Mutex<Vec<Option<Made>>>,
    /// By handle.
    pub registered: Mutex<HashMap<usize, Known>>,
    /// What was called and not captured, so that it is connected.
    pub connected: Mutex<HashSet<Connection>>,
    /// Ranks to which messages were sent, and from which some were received.
    pub met: Mutex<Met>,
    /// Captured calls in graphs that are still there.
    pub in_graphs: AtomicU32,
    /// What is registered for calls in graphs.
    pub graph_registrations: GraphRegistrations,
    /// Messages of a simulated group are still queued.
    pub has_left_over: AtomicBool,
    pub fifo: Fifo,
    /// Thread blocks of the kernels of collectives.
    pub blocks: u64,
    /// Memory that it took for its buffers when something was first called on it.
    buffers: Mutex<Option<usize>>,
    /// Those of sockets and of shared memory; never used.
    descriptors: Vec<OwnedFd>,
    /// For the device and for the host, as NCCL has them: nothing is enqueued there, and each takes a queue to the device.
    streams: [usize; 2],
    uuid: [u8; 16],
    segment: OnceLock<Segment>,
    asked: Asked,
    /// The links to the other ranks; known when it is connected.
    links: OnceLock<Links>,
    /// 0, in progress, or the asynchronous error.
    state: AtomicI32,
    aborted: AtomicBool,
    turns: Mutex<Turns>,
    turned: Condvar,
}

/// Ranks with which messages are connected.
#[derive(Default)]
pub struct Met {
    pub to: HashSet<u32>,
    pub from: HashSet<u32>,
}

/// Counts one more that lives, unless there are too many. The last of a stream's work may hold one that was destroyed a moment longer.
fn take_place() -> bool {
    for _ in 0..200 {
        if ALIVE.fetch_add(1, Ordering::SeqCst) < SETTINGS.communicators {
            return true;
        }
        ALIVE.fetch_sub(1, Ordering::SeqCst);
        std::thread::sleep(LOOK_AGAIN);
    }
    false
}

impl Drop for Communicator {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::SeqCst);
        self.streams.into_iter().for_each(driver::destroy_stream);
        let bytes = self.buffers.lock().unwrap().take();
        bytes.into_iter().for_each(|bytes| driver::give_memory(self.device, bytes));
        self.descriptors.clear();
    }
}

/// Descriptors that a communicator has, at the least.
const DESCRIPTORS: usize = 8;

fn descriptors() -> Answer<Vec<OwnedFd>> {
    let one = |_| match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) } {
        -1 => failure(SYSTEM_ERROR, "no descriptor is left for another communicator (ulimit -n)"),
        descriptor => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
    };
    (0..DESCRIPTORS).map(one).collect()
}

/// A communicator takes this part of the memory of its device when something is first called on it.
const BUFFERS_DIVISOR: usize = 64;

/// Calls get a number when they are made, and run in that order on whatever streams they are.
#[derive(Default)]
struct Turns {
    issued: u64,
    done: u64,
}

const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The communicator of a handle.
pub fn find(handle: usize) -> Answer<Arc<Communicator>> {
    let found = COMMUNICATORS.lock().unwrap().get(&handle).cloned();
    found.map_or_else(|| failure(INVALID_ARGUMENT, "the communicator is not there, or not any more"), Ok)
}

/// Whether a communicator has something registered for a graph in the memory that begins at an address.
pub fn is_registered_for_a_graph(start: usize) -> bool {
    COMMUNICATORS.lock().unwrap().values().any(|communicator| communicator.graph_registrations.has(start))
}

/// The communicator of a handle, where it may be used now.
pub fn ready(handle: usize) -> Answer<Arc<Communicator>> {
    let communicator = find(handle)?;
    match communicator.state() {
        0 => Ok(communicator),
        IN_PROGRESS => {
            failure(INVALID_ARGUMENT, "the communicator was used before its earlier call was no longer in progress")
        }
        code => failure(code, "the communicator has an asynchronous error"),
    }
}

pub fn add(communicator: Arc<Communicator>) -> usize {
    // As addresses are.
    let handle = NEXT.fetch_add(0x10, Ordering::Relaxed) + 0xcc00_0000;
    COMMUNICATORS.lock().unwrap().insert(handle, communicator);
    handle
}

pub fn remove(handle: usize) -> Answer<Arc<Communicator>> {
    let removed = COMMUNICATORS.lock().unwrap().remove(&handle);
    removed.map_or_else(|| failure(INVALID_ARGUMENT, "the communicator is not there, or was destroyed already"), Ok)
}

impl Communicator {
    /// One that is not connected yet.
    pub fn new(rank: u32, ranks: u32, asked: Asked) -> Answer<Arc<Communicator>> {
        let (device, uuid) = driver::current_device()?;
        let descriptors = descriptors()?;
        let streams = [driver::create_stream()?, driver::create_stream()?];
        if !take_place() {
            streams.into_iter().for_each(driver::destroy_stream);
            return failure(SYSTEM_ERROR, format!("more than {} communicators at one time", SETTINGS.communicators));
        }
        Ok(Arc::new(Communicator {
            rank,
            ranks,
            device,
            blocking: asked.blocking,
            fifo: Fifo::default(),
            blocks: asked.most_ctas.map_or(residency::OF_A_COLLECTIVE, u64::from).min(residency::OF_A_COLLECTIVE),
            buffers: Mutex::default(),
            descriptors,
            operators: Mutex::default(),
            registered: Mutex::default(),
            connected: Mutex::default(),
            met: Mutex::default(),
            in_graphs: AtomicU32::new(0),
            graph_registrations: GraphRegistrations::default(),
            has_left_over: AtomicBool::new(false),
            streams,
            uuid,
            segment: OnceLock::new(),
            asked,
            links: OnceLock::new(),
            state: AtomicI32::new(IN_PROGRESS),
            aborted: AtomicBool::new(false),
            turns: Mutex::default(),
            turned: Condvar::new(),
        }))
    }

    /// Connects to the other ranks under a name. Afterwards the state has the result.
    pub fn connect(&self, name: &str) -> Answer {
        let met = self.meet(name).inspect_err(Failure::keep);
        segment::retire(name, met.is_err());
        self.settle(met)
    }

    fn meet(&self, name: &str) -> Answer {
        let number = BEGUN.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(fault) = SETTINGS.fault(Kind::InitError, Some(self.rank), "", |_| number) {
            return failure(
                fault.code,
                match fault.code {
                    UNHANDLED_CUDA_ERROR => {
                        "Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'"
                    }
                    _ => "making a communicator fails, as requested",
                },
            );
        }
        if let Some(fault) = SETTINGS.fault(Kind::InitSlow, Some(self.rank), "", |_| number) {
            std::thread::sleep(Duration::from_micros(fault.microseconds));
        }
        if SETTINGS.fault(Kind::InitHang, Some(self.rank), "", |_| number).is_some() {
            self.wait_while(|| true)?;
        }
        let place = Seat::of_this(self.rank);
        let opened = Segment::open(name, self.rank as usize, self.ranks as usize, self.uuid, place)?;
        let segment = self.segment.get_or_init(|| opened);
        self.wait_while(|| !segment.is_complete())?;
        let links = self.links.get_or_init(|| Links::new(self.rank as usize, segment.seats(), self.asked));
        log::tell_opened(self.rank, self.ranks, links);
        // From 2.30 on several ranks may share a device if the environment allows it.
        let shares = VERSION >= 23000 && std::env::var("NCCL_MULTI_RANK_GPU_ENABLE").is_ok_and(|value| value == "1");
        match segment.sharer(self.rank as usize) {
            Some(other) if !shares => failure(
                INVALID_USAGE,
                format!("Duplicate GPU detected : rank {} and rank {other} both on one device", self.rank),
            ),
            _ => Ok(()),
        }
    }

    /// How long a message to or from a rank takes at least.
    pub fn duration(&self, peer: u32, bytes: usize) -> Duration {
        self.links.get().map_or(Duration::ZERO, |links| links.duration(peer, bytes))
    }

    /// The host waits until all ranks are in the same first call, which must agree in how many pages of send and receive buffer are registered:
    /// what NCCL does otherwise is undefined.
    pub fn meet_on_the_host(&self, registered_pages: [u64; 2]) {
        let number = self.issue();
        self.in_turn(number, || {
            let said = crate::split::all_say(self, &registered_pages.map(u64::to_le_bytes).concat());
            let agreed = said.and_then(|said| match said.iter().all(|theirs| *theirs == said[0]) {
                true => Ok(()),
                false => failure(
                    INVALID_USAGE,
                    "some ranks have registered the buffers of a call and others not, or less of them",
                ),
            });
            if let Err(failure) = agreed {
                self.set_asynchronous_error(&failure);
            }
        });
    }

    /// Takes the memory of its buffers, once.
    pub fn take_buffers(&self) -> Answer {
        let mut buffers = self.buffers.lock().unwrap();
        if buffers.is_none() {
            if SETTINGS.fault(Kind::ConnectOutOfMemory, Some(self.rank), "", |_| 1).is_some() {
                return failure(UNHANDLED_CUDA_ERROR, "Cuda failure 2 'out of memory'");
            }
            *buffers = Some(driver::take_memory(self.device, BUFFERS_DIVISOR)?);
        }
        Ok(())
    }

    /// The host waits until the other ends of messages have come, too: `sends` and `receives` are ranks that this one has not met yet.
    pub fn meet_peers(&self, sends: &[u32], receives: &[u32]) -> Answer {
        let (segment, me) = (self.segment()?, self.rank as usize);
        sends.iter().for_each(|peer| segment.come(me, *peer as usize, End::Sender));
        receives.iter().for_each(|peer| segment.come(*peer as usize, me, End::Receiver));
        let mut pairs =
            sends.iter().map(|peer| (me, *peer as usize)).chain(receives.iter().map(|peer| (*peer as usize, me)));
        pairs.try_for_each(|(from, to)| self.wait_while(|| !segment.have_met(from, to)))
    }

    /// The host waits until the communicator is aborted.
    pub fn hang(&self) -> Answer {
        self.wait_while(|| true)
    }

    fn wait_while(&self, waits: impl Fn() -> bool) -> Answer {
        while waits() {
            if self.is_aborted() {
                return failure(INVALID_USAGE, "the communicator was aborted while it connected");
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Ends what was in progress.
    pub fn settle(&self, ended: Answer) -> Answer {
        self.set_state(ended.as_ref().err().map_or(0, |failure| failure.code));
        ended
    }

    pub fn segment(&self) -> Answer<&Segment> {
        self.segment.get().map_or_else(|| failure(INVALID_USAGE, "the communicator was never connected"), Ok)
    }

    pub fn state(&self) -> c_int {
        self.state.load(Ordering::SeqCst)
    }

    pub fn set_state(&self, state: c_int) {
        self.state.store(state, Ordering::SeqCst);
    }

    /// Notes an error that no call returns.
    pub fn set_asynchronous_error(&self, failure: &Failure) {
        eprintln!("commgauge double: rank {} of {}: {}", self.rank, self.ranks, failure.text);
        self.set_state(failure.code);
    }

    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::SeqCst)
    }

    /// Aborts active and queued calls, and waits until nothing runs.
    pub fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
        self.turned.notify_all();
    }

    /// Waits until no graph contains a call, as NCCL does before it destroys or aborts a communicator
    /// (`commDestroySync` in its src/init.cc).
    pub fn outlive_graphs(&self) {
        while self.in_graphs.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the next number.
    pub fn issue(&self) -> u64 {
        let mut turns = self.turns.lock().unwrap();
        turns.issued += 1;
        turns.issued
    }

    /// Runs a call when its turn has come, unless the communicator is aborted.
    pub fn in_turn(&self, number: u64, call: impl FnOnce()) {
        let mut turns = self.turns.lock().unwrap();
        while turns.done + 1 < number && !self.is_aborted() {
            turns = self.turned.wait_timeout(turns, LOOK_AGAIN).unwrap().0;
        }
        drop(turns);
        if !self.is_aborted() {
            call();
        }
        let mut turns = self.turns.lock().unwrap();
        turns.done = turns.done.max(number);
        self.turned.notify_all();
    }

    /// Waits until all that was issued is done, or given up.
    pub fn drain(&self) {
        let mut turns = self.turns.lock().unwrap();
        while turns.done < turns.issued && !self.is_aborted() {
            turns = self.turned.wait_timeout(turns, LOOK_AGAIN).unwrap().0;
        }
    }
}
