//! The calls of one group on one communicator, executed in the thread of a stream, with injected faults.

use crate::buffers;
use crate::communicator::Communicator;
use crate::driver;
use crate::exchange::Exchange;
use crate::fifo::Fifo;
use crate::op::Call;
use crate::residency::{self, Launched};
use crate::result::{Answer, Failure, UNHANDLED_CUDA_ERROR, failure};
use settings::{Fault, Kind, SETTINGS};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

/// Calls of this process: of each name, and in all.
static CALLS: LazyLock<Mutex<HashMap<&'static str, u64>>> = LazyLock::new(Default::default);

/// A call, and the faults that strike it.
#[derive(Clone)]
pub struct Planned {
    pub call: Call,
    faults: Vec<Fault>,
    /// The input as it was when the kernel before the call started, and where it was.
    early: Option<Arc<Early>>,
}

/// An input that is read too early.
struct Early {
    from: usize,
    bytes: Mutex<Vec<u8>>,
}

/// Calls that are posted together.
pub struct Job {
    pub communicator: Arc<Communicator>,
    /// Its turn; assigned when it begins if it was captured, since it may begin often.
    pub number: Option<u64>,
    /// Its kernel; of one that was captured, when it begins.
    pub launched: Option<Launched>,
    pub calls: Vec<Planned>,
}

impl Planned {
    /// Counts the call, and looks up the faults injected into it.
    pub fn new(call: Call, rank: u32) -> Answer<Planned> {
        let mut calls = CALLS.lock().unwrap();
        let mut count = |name| {
            let number = calls.entry(name).or_default();
            *number += 1;
            *number
        };
        let (of_name, of_all) = (count(call.kind.name()), count(""));
        let fault = |kind| {
            let number = |fault: &Fault| if fault.call.is_some() { of_name } else { of_all };
            SETTINGS.fault(kind, Some(rank), call.kind.name(), number).cloned()
        };
        if let Some(fault) = fault(Kind::Error) {
            return failure(fault.code, format!("call {of_all} ({}) fails, as requested", call.kind.name()));
        }
        let kinds = [
            Kind::Kill,
            Kind::Exit,
            Kind::Lost,
            Kind::AsyncError,
            Kind::Slow,
            Kind::Hang,
            Kind::Corrupt,
            Kind::Early,
            Kind::OpenGroup,
            Kind::ConnectHang,
        ];
        Ok(Planned { call, faults: kinds.into_iter().filter_map(fault).collect(), early: None })
    }

    /// The call on the input that it reads.
    fn as_read(&self) -> Call {
        // The bytes stay where they are, as their length does.
        let early = self.early.as_ref().map(|early| early.bytes.lock().unwrap().as_ptr() as usize);
        Call { send: early.unwrap_or(self.call.send), ..self.call }
    }

    fn run(&self, communicator: &Communicator) -> Answer<bool> {
        self.as_read().run(communicator)
    }

    pub fn fault(&self, kind: Kind) -> Option<&Fault> {
        self.faults.iter().find(|fault| fault.kind == kind)
    }
}

/// What a fault leaves to be done.
enum Left {
    All,
    Nothing,
}

impl Job {
    /// Enqueues the job on a stream.
    pub fn enqueue(mut self, stream: usize) -> Answer {
        let captured = driver::is_capturing(stream)?;
        if !captured {
            self.communicator.take_buffers()?;
        }
        self.note_registered();
        self.connect(captured)?;
        if captured {
            self.register_for_graph();
        }
        let work = if captured { 0 } else { self.work_bytes() };
        if !captured {
            self.number = Some(self.communicator.issue());
            self.launched = Some(Launched::new(self.blocks()));
            self.communicator.fifo.put(work);
        }
        let (function, number): (unsafe extern "C" fn(*mut c_void), _) =
            if captured { (run_captured, None) } else { (run_once, self.number) };
        self.read_early(stream)?;
        let communicator = self.communicator.clone();
        let job = Box::into_raw(Box::new(self));
        let enqueued = driver::launch_host_function(stream, function, job.cast());
        if captured && enqueued.is_ok() {
            communicator.in_graphs.fetch_add(1, Ordering::SeqCst);
            let held = Arc::into_raw(communicator.clone());
            driver::when_graph_goes(stream, left_graph, held.cast_mut().cast())?;
        }
        enqueued.inspect_err(|_| {
            // SAFETY: the stream did not take it.
            drop(unsafe { Box::from_raw(job) });
            if let Some(number) = number {
                communicator.in_turn(number, || {});
            }
            communicator.fifo.take(work);
        })?;
        communicator.fifo.wait_for_room(|| communicator.is_aborted());
        communicator.graph_registrations.note_group(communicator.in_graphs.load(Ordering::SeqCst) > 0);
        Ok(())
    }

    /// Bytes of its work in the queue of the communicator.
    fn work_bytes(&self) -> usize {
        let Communicator { rank, ranks, .. } = *self.communicator;
        Fifo::queued(self.calls.iter().map(|planned| planned.call.work_bytes(rank, ranks)).sum())
    }

    /// Thread blocks of its kernel; none where it is a copy on one rank.
    fn blocks(&self) -> u64 {
        let of = |planned: &Planned| match planned.call.is_made_of_messages() {
            true => residency::OF_MESSAGES,
            false => self.communicator.blocks,
        };
        if self.communicator.ranks == 1 { 0 } else { self.calls.iter().map(of).max().unwrap_or(0) }
    }

    fn note_registered(&mut self) {
        for call in self.calls.iter_mut().map(|planned| &mut planned.call).filter(|call| !call.is_made_of_messages()) {
            let is_registered = |buffer| buffers::is_registered(&self.communicator, buffer);
            call.is_registered = is_registered(call.send) && is_registered(call.receive);
        }
    }

    /// Of calls that read too early: as an overlapping kernel that does not wait for the one before it.
    fn read_early(&mut self, stream: usize) -> Answer {
        let Communicator { rank, ranks, .. } = *self.communicator;
        for planned in self.calls.iter_mut().filter(|planned| planned.fault(Kind::Early).is_some()) {
            let (bytes, _) = planned.call.extents(rank, ranks);
            let early = Arc::new(Early { from: planned.call.send, bytes: Mutex::new(vec![0; bytes]) });
            let data = Arc::into_raw(early.clone());
            // Never freed, since a graph may read again.
            planned.early = driver::with_last_kernel(stream, read_now, data.cast_mut().cast()).is_ok().then_some(early);
        }
        Ok(())
    }

    /// NCCL connects what a call needs when it is first called, and the host waits there for the other ranks. Within a capture that
    /// allocates and sets memory, which may spoil it.
    fn connect(&self, captured: bool) -> Answer {
        self.connect_messages(captured)?;
        for planned in &self.calls {
            let call = &planned.call;
            let is_new = {
                let mut connected = self.communicator.connected.lock().unwrap();
                if captured { !connected.contains(&call.connection()) } else { connected.insert(call.connection()) }
            };
            if is_new && planned.fault(Kind::ConnectHang).is_some() {
                self.communicator.hang()?;
            }
            if !captured {
                if is_new && cfg!(since_2_22) && !call.is_made_of_messages() {
                    let pages =
                        [call.send, call.receive].map(|buffer| buffers::registered_pages(&self.communicator, buffer));
                    self.communicator.meet_on_the_host(pages);
                }
            } else if is_new {
                let what =
                    format!("{} of {} bytes is captured before it was ever called", call.kind.name(), call.bytes());
                return failure(UNHANDLED_CUDA_ERROR, format!("{what}: it would be connected within the capture"));
            }
        }
        Ok(())
    }

    /// Two ranks connect at the first message from one to the other, for which both hosts must come, whatever the other calls there: all
    /// messages of a group at once (`ncclP2PPreconnect` in NCCL's src/group.cc).
    fn connect_messages(&self, captured: bool) -> Answer {
        let Communicator { rank, ranks, .. } = *self.communicator;
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for planned in &self.calls {
            let [to, from] = planned.call.peers(rank, ranks);
            sends.extend(to);
            receives.extend(from);
        }
        let mut met = self.communicator.met.lock().unwrap();
        sends.retain(|peer| !met.to.contains(peer));
        receives.retain(|peer| !met.from.contains(peer));
        if captured || sends.is_empty() && receives.is_empty() {
            return Ok(());
        }
        met.to.extend(&sends);
        met.from.extend(&receives);
        drop(met);
        self.communicator.meet_peers(&sends, &receives)
    }

    /// NCCL registers buffers of calls in graphs by itself, of its own memory alone (`ncclRegisterCollBuffers` in its
    /// src/register/coll_reg.cc). Nothing becomes faster here; the log shows it.
    fn register_for_graph(&self) {
        let is_registered = |call: &Call| buffers::is_of_nccl(call.send) && buffers::is_of_nccl(call.receive);
        for call in self.calls.iter().map(|planned| &planned.call).filter(|call| is_registered(call)) {
            let starts = [call.send, call.receive].map(buffers::start_of_allocation);
            starts.into_iter().flatten().for_each(|start| self.communicator.graph_registrations.add(start));
            if std::env::var_os("NCCL_DEBUG").is_some() {
                eprintln!("commgauge double: the buffers of {} are registered for a graph", call.kind.name());
            }
        }
    }

    fn run(&self, launched: Launched) {
        let number = self.number.unwrap_or_else(|| self.communicator.issue());
        self.communicator.in_turn(number, || {
            launched.run(
                || self.communicator.is_aborted(),
                || {
                    if let Err(failure) = self.carry_out() {
                        self.communicator.set_asynchronous_error(&failure);
                    }
                },
            );
        });
    }

    /// The messages of the group all at once, then its collectives one after another.
    fn carry_out(&self) -> Answer {
        let begun = Instant::now();
        let mut exchange = Exchange::new(self.communicator.ranks);
        let mut messages = Vec::new();
        for planned in self.calls.iter().filter(|planned| planned.call.is_message()) {
            if let Left::All = self.strike(planned)? {
                planned.as_read().post(&mut exchange);
                messages.push(planned);
            }
        }
        if !exchange.run(&self.communicator)? {
            return Ok(());
        }
        let durations =
            messages.iter().map(|planned| self.communicator.duration(planned.call.peer, planned.call.bytes()));
        let longest = durations.max().unwrap_or_default();
        std::thread::sleep(longest.saturating_sub(begun.elapsed()));
        messages.into_iter().for_each(|planned| self.corrupt(planned));
        for planned in self.calls.iter().filter(|planned| !planned.call.is_message()) {
            if let Left::All = self.strike(planned)?
                && planned.run(&self.communicator)?
            {
                self.corrupt(planned);
            }
        }
        Ok(())
    }

    /// Injects the faults before a call.
    fn strike(&self, planned: &Planned) -> Answer<Left> {
        for fault in &planned.faults {
            match fault.kind {
                Kind::Slow => std::thread::sleep(Duration::from_micros(fault.microseconds)),
                Kind::Hang => {
                    while !self.communicator.is_aborted() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    return Ok(Left::Nothing);
                }
                Kind::Lost => {
                    driver::lose_device(fault.code);
                    return Ok(Left::Nothing);
                }
                Kind::AsyncError => {
                    let text = "an asynchronous error, as requested".to_owned();
                    return Err(Failure { code: fault.code, text });
                }
                Kind::Kill => {
                    unsafe { libc::raise(fault.code) };
                }
                // Without what runs at an orderly exit, which would wait for this thread.
                Kind::Exit => unsafe { libc::_exit(fault.code) },
                _ => {}
            }
        }
        Ok(Left::All)
    }

    /// Turns a bit over in the middle of what the call wrote.
    fn corrupt(&self, planned: &Planned) {
        let (_, written) = planned.call.extents(self.communicator.rank, self.communicator.ranks);
        if planned.fault(Kind::Corrupt).is_some() && written > 0 {
            let middle = (planned.call.receive + written / 2) as *mut u8;
            unsafe { middle.write(middle.read() ^ 1) };
        }
    }
}

/// Called when the kernel before a call starts that reads too early.
unsafe extern "C" fn read_now(early: *mut c_void) {
    let early = &*early.cast::<Early>();
    let mut bytes = early.bytes.lock().unwrap();
    let count = bytes.len();
    bytes.copy_from_slice(std::slice::from_raw_parts(early.from as *const u8, count));
}

unsafe extern "C" fn run_once(job: *mut c_void) {
    let mut job = Box::from_raw(job.cast::<Job>());
    let launched = job.launched.take().unwrap_or_else(|| Launched::of_graph(job.blocks()));
    job.run(launched);
    job.communicator.fifo.take(job.work_bytes());
}

/// Called when a graph that contained a call of a communicator is destroyed.
unsafe extern "C" fn left_graph(communicator: *mut c_void) {
    Arc::from_raw(communicator.cast::<Communicator>()).in_graphs.fetch_sub(1, Ordering::SeqCst);
}

/// Never freed, since the graph may run it again.
unsafe extern "C" fn run_captured(job: *mut c_void) {
    let job = &*job.cast::<Job>();
    job.run(Launched::of_graph(job.blocks()));
}
