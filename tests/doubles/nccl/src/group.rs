//! Groups: calls between start and end are gathered in the thread that makes them, and posted together.

use crate::communicator::{self, Communicator};
use crate::driver;
use crate::job::{Job, Planned};
use crate::log;
use crate::op::{Call, Kind};
use crate::result::{Answer, IN_PROGRESS, INVALID_ARGUMENT, INVALID_USAGE, code_of, failure};
use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

#[derive(Default)]
struct Group {
    depth: u32,
    calls: Vec<Gathered>,
    /// Communicators that are being made.
    making: Vec<JoinHandle<Answer>>,
    /// The first call that could not be made; the whole group then fails.
    failed: Option<c_int>,
    any_non_blocking: bool,
}

struct Gathered {
    communicator: Arc<Communicator>,
    stream: usize,
    planned: Planned,
}

impl Gathered {
    fn is_enqueued_at_once(&self) -> bool {
        self.communicator.ranks == 1 && !self.planned.call.is_message()
    }

    /// Whether NCCL has an estimate of it.
    #[cfg(since_2_22)]
    fn is_estimated(&self) -> bool {
        !self.is_enqueued_at_once() && !self.planned.call.is_made_of_messages()
    }
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Accepts a call after checking its buffers, and runs it unless a group is open.
pub fn call(handle: usize, stream: usize, call: Call) -> Answer {
    inside(|| {
        let communicator = communicator::ready(handle)?;
        if call.is_made_of_messages() && communicator.has_left_over.load(Ordering::SeqCst) {
            return failure(
                INVALID_USAGE,
                "messages of a group that was only simulated are still queued and would be carried first",
            );
        }
        if call.peer >= communicator.ranks {
            return failure(INVALID_ARGUMENT, format!("rank {} of {} ranks is named", call.peer, communicator.ranks));
        }
        let extents = call.extents(communicator.rank, communicator.ranks);
        driver::check_buffer(call.send, extents.0, &format!("send buffer of {}", call.kind.name()))?;
        driver::check_buffer(call.receive, extents.1, &format!("receive buffer of {}", call.kind.name()))?;
        if communicator.ranks == 1 && call.is_eight_bit_product() {
            // The macro that would let it in is one of the device's, and the function one of the host (`ncclLaunchOneRank` in NCCL's
            // src/device/onerank.cu, 2.30).
            return failure(
                INVALID_ARGUMENT,
                format!("{} of one rank has no kernel for eight-bit floats", call.kind.name()),
            );
        }
        let planned = Planned::new(call, communicator.rank)?;
        if planned.fault(settings::Kind::OpenGroup).is_some() {
            GROUP.with_borrow_mut(|group| group.depth += 1);
        }
        if call.count > 0 {
            GROUP.with_borrow_mut(|group| group.calls.push(Gathered { communicator, stream, planned }));
        }
        Ok(())
    })
}

/// Makes a communicator in a thread of its own, and waits for it unless a group is open or it does not block.
pub fn make(blocking: bool, work: impl FnOnce() -> Answer + Send + 'static) -> Answer {
    inside(|| {
        let thread = std::thread::spawn(work);
        GROUP.with_borrow_mut(|group| {
            if blocking {
                group.making.push(thread);
            } else {
                group.any_non_blocking = true;
            }
        });
        Ok(())
    })
}

/// Whether this thread has a group open.
pub fn is_open() -> bool {
    GROUP.with_borrow(|group| group.depth > 0)
}

/// A call by itself is a group of one.
fn inside(work: impl FnOnce() -> Answer) -> Answer {
    GROUP.with_borrow_mut(|group| group.depth += 1);
    let done = work();
    if let Err(failure) = &done {
        GROUP.with_borrow_mut(|group| {
            if group.depth > 1 {
                group.failed = group.failed.or(Some(failure.code));
            }
        });
    }
    let ended = end(true);
    done.and(ended)
}

fn end(launch: bool) -> Answer {
    let group = GROUP.with_borrow_mut(|group| {
        if group.depth == 0 {
            return failure(INVALID_USAGE, "a group is ended that was not started");
        }
        group.depth -= 1;
        Ok((group.depth == 0).then(|| std::mem::take(group)))
    })?;
    let Some(group) = group else { return Ok(()) };
    for thread in group.making {
        thread.join().unwrap_or_else(|_| failure(3, "making a communicator panicked"))?;
    }
    if let Some(code) = group.failed {
        return failure(code, "a call of the group failed, and none of it was begun");
    }
    let calls = if launch { group.calls } else { simulated(group.calls) };
    if !calls.is_empty() {
        return begin(calls);
    }
    if group.any_non_blocking { failure(IN_PROGRESS, "") } else { Ok(()) }
}

/// The part of a simulated group that is executed: collectives of one rank, which NCCL enqueues at once (`taskAppend`
/// in its src/enqueue.cc). Messages stay in the queues of their peers, which NCCL empties only by executing them
/// (`ncclGroupCommJoin` in its src/include/group.h does not clear `planner.peers`).
fn simulated(calls: Vec<Gathered>) -> Vec<Gathered> {
    let (alone, others): (Vec<_>, Vec<_>) = calls.into_iter().partition(Gathered::is_enqueued_at_once);
    let messages = others.iter().filter(|gathered| gathered.planned.call.is_made_of_messages());
    messages.for_each(|gathered| gathered.communicator.has_left_over.store(true, Ordering::SeqCst));
    alone
}

/// Posts the calls of each communicator. If one of them is nonblocking, from another thread, and the call returns "in
/// progress", as NCCL does.
fn begin(calls: Vec<Gathered>) -> Answer {
    if calls.iter().all(|gathered| gathered.communicator.blocking) {
        return post(calls);
    }
    let communicators: Vec<_> = calls.iter().map(|gathered| gathered.communicator.clone()).collect();
    communicators.iter().for_each(|communicator| communicator.set_state(IN_PROGRESS));
    let context = driver::current_context()?;
    std::thread::spawn(move || {
        let posted = driver::set_current_context(context).and_then(|()| post(calls));
        let code = posted.err().map_or(0, |failure| failure.code);
        communicators
            .iter()
            .filter(|communicator| communicator.state() == IN_PROGRESS)
            .for_each(|communicator| communicator.set_state(code));
    });
    failure(IN_PROGRESS, "")
}

fn post(mut calls: Vec<Gathered>) -> Answer {
    calls.iter().for_each(|gathered| log::tell(&gathered.planned.call, &gathered.communicator));
    while let Some(first) = calls.first() {
        let communicator = first.communicator.clone();
        let stream = first.stream;
        let (mine, others): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|gathered| Arc::ptr_eq(&gathered.communicator, &communicator));
        calls = others;
        let mut streams: Vec<usize> =
            mine.iter().map(|gathered| gathered.stream).filter(|other| *other != stream).collect();
        streams.sort_unstable();
        streams.dedup();
        streams.iter().try_for_each(|other| driver::wait_for_stream(stream, *other))?;
        let job = Job {
            communicator,
            number: None,
            launched: None,
            calls: mine.into_iter().map(|gathered| gathered.planned).collect(),
        };
        job.enqueue(stream)?;
        streams.iter().try_for_each(|other| driver::wait_for_stream(*other, stream))?;
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> c_int {
    GROUP.with_borrow_mut(|group| group.depth += 1);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> c_int {
    code_of(end(true))
}

/// What NCCL predicts of a group that is not carried out.
#[cfg(since_2_22)]
#[repr(C)]
pub struct Simulation {
    size: usize,
    magic: u32,
    version: u32,
    estimated_microseconds: f32,
}

#[cfg(since_2_22)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupSimulateEnd(simulation: *mut Simulation) -> c_int {
    code_of((|| {
        let bytes = |gathered: &Gathered| gathered.planned.call.bytes();
        let estimated = |group: &mut Group| -> Vec<usize> {
            group.calls.iter().filter(|gathered| gathered.is_estimated()).map(bytes).collect()
        };
        let bytes = GROUP.with_borrow_mut(estimated);
        if let Some(simulation) = simulation.as_mut() {
            if simulation.magic != 0x7468_5283 || simulation.size < size_of::<Simulation>() {
                return failure(INVALID_ARGUMENT, "the simulation info was not initialised");
            }
            // A law that a test can compute: 10 us and 10 GB/s.
            if !bytes.is_empty() {
                simulation.estimated_microseconds = 10.0 + bytes.iter().sum::<usize>() as f32 * 1e-4;
            }
        }
        end(false)
    })())
}

/// Kinds that need nothing but the communicator.
pub fn control(kind: Kind) -> Call {
    let operator = crate::operator::Named::Now(crate::operator::Operator::Sum);
    Call {
        kind,
        send: 0,
        receive: 0,
        count: 0,
        element: crate::element::Element::Int8,
        operator,
        peer: 0,
        is_registered: false,
    }
}
