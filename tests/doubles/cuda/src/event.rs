//! Events: a place in a stream, and when it was reached.

use crate::answer::{Answer, CAPTURED_EVENT, INVALID_HANDLE, INVALID_VALUE, NOT_READY, answer, lost};
use crate::capture::Capture;
use crate::context::current_device;
use crate::handles::Handles;
use crate::stream::{LOOK_AGAIN, Work, spin_until, stream_of};
use std::ffi::{c_int, c_uint};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::time::{Duration, Instant};

pub static EVENTS: Handles<Event> = Handles::new();
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What a record takes on the device, and the step of its times.
const RECORD: Duration = Duration::from_micros(1);
const QUANTUM_NANOSECONDS: u64 = 500;

const DISABLE_TIMING: c_uint = 2;
/// Flag of a record that is part of the graph and not a fork of the capture.
const EXTERNAL: c_uint = 1;

pub struct Event {
    timing: bool,
    device: c_int,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How often it was recorded.
    recorded: u64,
    /// The last of these that was reached, and when.
    reached: u64,
    nanoseconds: u64,
    /// The capture in which it was recorded last.
    capture: Option<Arc<Capture>>,
}

impl Event {
    /// Notes that it is recorded once more, and which time that is.
    pub fn record(&self) -> u64 {
        let mut state = self.state.lock().unwrap();
        state.capture = None;
        state.recorded += 1;
        state.recorded
    }

    pub fn recorded(&self) -> Option<u64> {
        Some(self.state.lock().unwrap().recorded).filter(|recorded| *recorded > 0)
    }

    pub fn capture(&self) -> Option<Arc<Capture>> {
        self.state.lock().unwrap().capture.clone()
    }

    /// The stream reached the place.
    pub fn happened(&self, generation: u64) {
        if self.timing {
            spin_until(Instant::now() + RECORD);
        }
        let mut state = self.state.lock().unwrap();
        if generation > state.reached {
            state.reached = generation;
            state.nanoseconds = START.elapsed().as_nanos() as u64 / QUANTUM_NANOSECONDS * QUANTUM_NANOSECONDS;
        }
        self.changed.notify_all();
    }

    /// Waits in a stream for another.
    pub fn wait_for(&self, generation: u64) {
        let mut state = self.state.lock().unwrap();
        while state.reached < generation && lost().is_none() {
            state = self.changed.wait_timeout(state, LOOK_AGAIN).unwrap().0;
        }
    }

    fn query(&self) -> Answer {
        let state = self.state.lock().unwrap();
        match () {
            _ if state.capture.is_some() => Err(CAPTURED_EVENT),
            _ if state.reached < state.recorded => Err(NOT_READY),
            _ => Ok(()),
        }
    }

    /// When it was reached.
    fn time(&self) -> Result<u64, c_int> {
        self.query()?;
        let state = self.state.lock().unwrap();
        if self.timing && state.recorded > 0 { Ok(state.nanoseconds) } else { Err(INVALID_HANDLE) }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(handle: *mut usize, flags: c_uint) -> c_int {
    answer(|| {
        let device = current_device()?;
        LazyLock::force(&START);
        let timing = flags & DISABLE_TIMING == 0;
        *handle = EVENTS.add(Arc::new(Event { timing, device, state: Mutex::default(), changed: Condvar::new() }));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(handle: usize) -> c_int {
    answer(|| EVENTS.remove(handle).map(|_| ()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(handle: usize, stream: usize) -> c_int {
    cuEventRecordWithFlags(handle, stream, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecordWithFlags(handle: usize, stream: usize, flags: c_uint) -> c_int {
    answer(|| {
        let event = EVENTS.get(handle)?;
        let stream = stream_of(stream)?;
        if flags > EXTERNAL {
            return Err(INVALID_VALUE);
        }
        // Of another device than the stream (CUDA driver API, cuEventRecord).
        if event.device != stream.device {
            return Err(INVALID_HANDLE);
        }
        let capture = stream.capture.lock().unwrap().clone();
        match capture {
            Some(capture) if flags == 0 => event.state.lock().unwrap().capture = Some(capture),
            // Its number is given at each launch of the graph.
            Some(capture) => capture.add(Work::Record(event, 0)),
            None => {
                let generation = event.record();
                stream.enqueue(Work::Record(event, generation));
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(handle: usize) -> c_int {
    answer(|| EVENTS.get(handle)?.query())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(handle: usize) -> c_int {
    answer(|| {
        let event = EVENTS.get(handle)?;
        if event.capture().is_some() {
            return Err(CAPTURED_EVENT);
        }
        if let Some(generation) = event.recorded() {
            event.wait_for(generation);
        }
        lost().map_or(Ok(()), Err)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, start: usize, end: usize) -> c_int {
    answer(|| {
        let (start, end) = (EVENTS.get(start)?, EVENTS.get(end)?);
        // The clocks of two devices have nothing in common.
        if start.device != end.device {
            return Err(INVALID_HANDLE);
        }
        let (start, end) = (start.time()?, end.time()?);
        *milliseconds = (end as f64 - start as f64) as f32 / 1e6;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: usize, end: usize) -> c_int {
    cuEventElapsedTime(milliseconds, start, end)
}
