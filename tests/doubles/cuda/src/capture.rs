//! Captures enqueued work instead of running it: into one list, in the order of the calls, over all streams that take
//! part. That order preserves every dependency, since a call can depend only on earlier ones.

use crate::answer::{
    Answer, CAPTURE_INVALIDATED, CAPTURE_ISOLATION, CAPTURE_UNMATCHED, CAPTURE_UNSUPPORTED, INVALID_VALUE, answer,
};
use crate::graph::{GRAPHS, Graph};
use crate::stream::{Stream, Work, stream_of};
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

static NEXT: AtomicU64 = AtomicU64::new(1);

pub struct Capture {
    number: u64,
    work: Mutex<Vec<Work>>,
    /// The first is where it began.
    streams: Mutex<Vec<Weak<Stream>>>,
    invalid: AtomicBool,
}

impl Capture {
    pub fn add(&self, work: Work) {
        self.work.lock().unwrap().push(work);
    }

    /// The same before the last kernel, if that is the last work.
    pub fn add_before_last_kernel(&self, work: Work) -> bool {
        let mut all = self.work.lock().unwrap();
        let is_after_kernel = matches!(all.last(), Some(Work::Kernel(_)));
        if is_after_kernel {
            let last = all.len() - 1;
            all.insert(last, work);
        }
        is_after_kernel
    }

    /// A call that waits is not possible now, and ends the capture.
    pub fn refuse(&self) -> c_int {
        self.invalid.store(true, Ordering::Relaxed);
        CAPTURE_UNSUPPORTED
    }

    /// Nothing outside can be waited for.
    pub fn isolated(&self) -> c_int {
        self.invalid.store(true, Ordering::Relaxed);
        CAPTURE_ISOLATION
    }

    /// A stream that waits for an event of the capture takes part in it.
    pub fn join(self: &Arc<Capture>, stream: &Arc<Stream>) -> Answer {
        let mut place = stream.capture.lock().unwrap();
        match &*place {
            Some(other) if !Arc::ptr_eq(other, self) => Err(902),
            Some(_) => Ok(()),
            None => {
                self.streams.lock().unwrap().push(Arc::downgrade(stream));
                *place = Some(self.clone());
                Ok(())
            }
        }
    }

    fn state(&self) -> c_int {
        if self.invalid.load(Ordering::Relaxed) { 2 } else { 1 }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(handle: usize, mode: c_int) -> c_int {
    answer(|| {
        let stream = stream_of(handle)?;
        // The default streams cannot be captured.
        if handle <= 2 || !(0..=2).contains(&mode) {
            return Err(if handle <= 2 { CAPTURE_UNSUPPORTED } else { INVALID_VALUE });
        }
        let mut place = stream.capture.lock().unwrap();
        if place.is_some() {
            return Err(INVALID_VALUE);
        }
        *place = Some(Arc::new(Capture {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            work: Mutex::default(),
            streams: Mutex::new(vec![Arc::downgrade(&stream)]),
            invalid: AtomicBool::new(false),
        }));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(handle: usize, graph: *mut usize) -> c_int {
    answer(|| {
        *graph = 0;
        let stream = stream_of(handle)?;
        let capture = stream.capture.lock().unwrap().clone().ok_or(INVALID_VALUE)?;
        let streams = capture.streams.lock().unwrap().clone();
        if !streams[0].upgrade().is_some_and(|first| Arc::ptr_eq(&first, &stream)) {
            return Err(CAPTURE_UNMATCHED);
        }
        for stream in streams.iter().filter_map(Weak::upgrade) {
            stream.capture.lock().unwrap().take();
        }
        if capture.state() == 2 {
            return Err(CAPTURE_INVALIDATED);
        }
        let work = std::mem::take(&mut *capture.work.lock().unwrap());
        *graph = GRAPHS.add(Arc::new(Graph { work }));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(handle: usize, state: *mut c_int) -> c_int {
    answer(|| {
        *state = stream_of(handle)?.capture.lock().unwrap().as_ref().map_or(0, |capture| capture.state());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCaptureInfo_v2(
    handle: usize,
    state: *mut c_int,
    number: *mut u64,
    graph: *mut usize,
    dependencies: *mut usize,
    count: *mut usize,
) -> c_int {
    answer(|| {
        let capture = stream_of(handle)?.capture.lock().unwrap().clone();
        *state = capture.as_ref().map_or(0, |capture| capture.state());
        if let Some(number) = number.as_mut() {
            *number = capture.map_or(0, |capture| capture.number);
        }
        for place in [graph, dependencies, count] {
            if let Some(place) = place.as_mut() {
                *place = 0;
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) -> c_int {
    answer(|| {
        *mode = 0;
        Ok(())
    })
}
