//! Streams: a thread each, with a queue of work that it does in order.

use crate::answer::{Answer, INVALID_HANDLE, in_host_function, lost};
use crate::capture::Capture;
use crate::connection::Connection;
use crate::context::current_device;
use crate::device::submission_delay;
use crate::event::Event;
use crate::handles::Handles;
use crate::kernel::Launch;
use crate::memory;
use crate::move_bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A function of the host that is called in stream order.
pub type HostFunction = unsafe extern "C" fn(*mut c_void);

/// One piece of work. Graphs hold copies of it.
#[derive(Clone)]
pub enum Work {
    Host {
        function: HostFunction,
        data: usize,
    },
    Copy {
        to: usize,
        from: usize,
        bytes: usize,
    },
    /// Bytes of pageable memory, copied when the call was made.
    Staged {
        to: usize,
        bytes: Arc<[u8]>,
    },
    Set {
        to: usize,
        value: u32,
        width: usize,
        count: usize,
    },
    Kernel(Arc<Launch>),
    /// Two pieces in one place of the queue to the device.
    Both(Arc<[Work; 2]>),
    Record(Arc<Event>, u64),
    Wait(Arc<Event>, u64),
    Free(usize),
    /// Of a graph: something that lives as long as it, and as long as it runs.
    Held(Arc<Held>),
}

/// Calls a host function when it is dropped.
pub struct Held {
    pub function: HostFunction,
    pub data: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        unsafe { (self.function)(self.data as *mut c_void) }
    }
}

pub struct Stream {
    pub device: c_int,
    pub flags: u32,
    pub priority: c_int,
    queue: Mutex<Queue>,
    changed: Condvar,
    connection: &'static Connection,
    /// The capture that receives what is enqueued, instead of the queue.
    pub capture: Mutex<Option<Arc<Capture>>>,
}

#[derive(Default)]
struct Queue {
    /// Each with its place in the queue to the device, and when it was enqueued.
    work: VecDeque<(u64, Instant, Work)>,
    busy: bool,
    closed: bool,
}

/// Streams that were made, by handle.
pub static STREAMS: Handles<Stream> = Handles::new();
/// The streams that are always there, by device.
static DEFAULTS: Mutex<BTreeMap<c_int, Arc<Stream>>> = Mutex::new(BTreeMap::new());

/// Callers that enqueue more wait: the driver has room for about this many launches before the device has begun them.
const MOST_PENDING: usize = 1024;

/// A waiting thread looks this often whether the device was lost meanwhile.
pub const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Stream {
    pub fn start(device: c_int, flags: u32, priority: c_int) -> Arc<Stream> {
        let stream = Arc::new(Stream {
            device,
            flags,
            priority,
            queue: Mutex::default(),
            changed: Condvar::new(),
            connection: Connection::take(),
            capture: Mutex::default(),
        });
        let worker = stream.clone();
        std::thread::Builder::new()
            .name("stream".to_owned())
            .spawn(move || worker.serve())
            .expect("a thread can be started");
        stream
    }

    /// Appends work, to the active capture if there is one.
    pub fn enqueue(&self, work: Work) {
        if let Some(capture) = &*self.capture.lock().unwrap() {
            capture.add(work);
            return;
        }
        let mut queue = self.queue.lock().unwrap();
        // A host that must first unblock the work before it, such as release a blocked stream, deadlocks here, as on a
        // GPU.
        while queue.work.len() >= MOST_PENDING && lost().is_none() {
            queue = self.changed.wait_timeout(queue, LOOK_AGAIN).unwrap().0;
        }
        queue.work.push_back((self.connection.place(), Instant::now(), work));
        self.changed.notify_all();
    }

    /// Puts work before the last kernel, if that is the last work and has not begun.
    pub fn enqueue_before_last_kernel(&self, work: Work) -> bool {
        if let Some(capture) = &*self.capture.lock().unwrap() {
            return capture.add_before_last_kernel(work);
        }
        let mut queue = self.queue.lock().unwrap();
        if !matches!(queue.work.back(), Some((_, _, Work::Kernel(_)))) {
            return false;
        }
        let last = queue.work.len() - 1;
        // Streams that share a queue to the device take turns by these places: the two have the one of the kernel.
        let (place, enqueued, kernel) = queue.work.pop_back().expect("it is there");
        queue.work.insert(last, (place, enqueued, Work::Both(Arc::new([work, kernel]))));
        true
    }

    pub fn is_idle(&self) -> bool {
        let queue = self.queue.lock().unwrap();
        queue.work.is_empty() && !queue.busy
    }

    /// Waits until everything is done, or the device lost.
    pub fn synchronize(&self) -> Answer {
        if let Some(capture) = &*self.capture.lock().unwrap() {
            return Err(capture.refuse());
        }
        let mut queue = self.queue.lock().unwrap();
        while !queue.work.is_empty() || queue.busy {
            if let Some(code) = lost() {
                return Err(code);
            }
            queue = self.changed.wait_timeout(queue, LOOK_AGAIN).unwrap().0;
        }
        lost().map_or(Ok(()), Err)
    }

    /// Ends the thread once the queue is empty.
    pub fn close(&self) {
        self.queue.lock().unwrap().closed = true;
        self.changed.notify_all();
    }

    fn serve(&self) {
        let mut queue = self.queue.lock().unwrap();
        loop {
            let Some((place, enqueued, work)) = queue.work.pop_front() else {
                if queue.closed {
                    self.connection.give_back();
                    return;
                }
                queue = self.changed.wait(queue).unwrap();
                continue;
            };
            queue.busy = true;
            if queue.work.len() + 1 == MOST_PENDING {
                self.changed.notify_all();
            }
            drop(queue);
            self.connection.in_turn(place, || {
                if lost().is_none() {
                    spin_until(enqueued + submission_delay(self.device));
                    carry_out(work);
                }
            });
            queue = self.queue.lock().unwrap();
            queue.busy = false;
            if queue.work.is_empty() {
                self.changed.notify_all();
            }
        }
    }
}

/// Passes a time so short that sleeping would take longer.
pub fn spin_until(end: Instant) {
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

fn carry_out(work: Work) {
    match work {
        // SAFETY: the caller of the launch keeps function and data alive until the call, as the driver requires.
        Work::Host { function, data } => in_host_function(|| unsafe { function(data as *mut c_void) }),
        Work::Copy { to, from, bytes } => move_bytes::copy(to, from, bytes),
        Work::Staged { to, bytes } => move_bytes::copy(to, bytes.as_ptr() as usize, bytes.len()),
        Work::Set { to, value, width, count } => move_bytes::set(to, value, width, count),
        Work::Kernel(launch) => launch.run(),
        Work::Both(both) => both.iter().cloned().for_each(carry_out),
        Work::Record(event, generation) => event.happened(generation),
        Work::Wait(event, generation) => event.wait_for(generation),
        Work::Free(address) => memory::release(address),
        Work::Held(held) => drop(held),
    }
}

/// The stream of a handle; the default stream of the current device for the handles that denote it.
pub fn stream_of(handle: usize) -> Result<Arc<Stream>, c_int> {
    if handle > 2 {
        return STREAMS.get(handle);
    }
    let device = current_device().map_err(|_| INVALID_HANDLE)?;
    Ok(DEFAULTS.lock().unwrap().entry(device).or_insert_with(|| Stream::start(device, 0, 0)).clone())
}

/// Waits for all streams of a device.
pub fn synchronize_device(device: c_int) -> Answer {
    let default = DEFAULTS.lock().unwrap().get(&device).cloned();
    let streams = STREAMS.all().into_iter().chain(default);
    streams.filter(|stream| stream.device == device).try_for_each(|stream| stream.synchronize())
}

/// Waits for all that runs on a device, as the driver does where it gets memory or loads code, and spoils no capture by it. Behind a kernel
/// that waits for the calling thread it blocks forever.
pub fn wait_for_kernels(device: c_int) -> Answer {
    let default = DEFAULTS.lock().unwrap().get(&device).cloned();
    let streams = STREAMS.all().into_iter().chain(default);
    let captures = |stream: &Arc<Stream>| stream.capture.lock().unwrap().is_some();
    streams.filter(|stream| stream.device == device && !captures(stream)).try_for_each(|stream| stream.synchronize())
}

/// Makes every thread that waits look again.
pub fn wake_all() {
    for stream in STREAMS.all() {
        stream.changed.notify_all();
    }
}
