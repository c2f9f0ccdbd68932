//! The driver's functions that make, wait for and destroy streams.

use crate::answer::{INVALID_VALUE, NOT_READY, NOT_SUPPORTED, answer};
use crate::context::current_device;
use crate::event::EVENTS;
use crate::stream::{Held, HostFunction, STREAMS, Stream, Work, stream_of};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(handle: *mut usize, flags: c_uint) -> c_int {
    cuStreamCreateWithPriority(handle, flags, 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(handle: *mut usize, flags: c_uint, priority: c_int) -> c_int {
    answer(|| {
        let device = current_device()?;
        if flags > 1 {
            return Err(INVALID_VALUE);
        }
        *handle = STREAMS.add(Stream::start(device, flags, priority.clamp(-5, 0)));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(handle: usize) -> c_int {
    answer(|| {
        STREAMS.remove(handle)?.close();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(handle: usize) -> c_int {
    answer(|| stream_of(handle)?.synchronize())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamQuery(handle: usize) -> c_int {
    answer(|| {
        let stream = stream_of(handle)?;
        if let Some(capture) = &*stream.capture.lock().unwrap() {
            return Err(capture.refuse());
        }
        if stream.is_idle() { Ok(()) } else { Err(NOT_READY) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(handle: usize, event: usize, _flags: c_uint) -> c_int {
    answer(|| {
        let stream = stream_of(handle)?;
        let event = EVENTS.get(event)?;
        if let Some(capture) = event.capture() {
            return capture.join(&stream);
        }
        if let Some(capture) = &*stream.capture.lock().unwrap() {
            return Err(capture.isolated());
        }
        // Waiting for an event that was never recorded has no effect.
        if let Some(generation) = event.recorded() {
            stream.enqueue(Work::Wait(event, generation));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetPriority(handle: usize, priority: *mut c_int) -> c_int {
    answer(|| {
        *priority = stream_of(handle)?.priority;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetFlags(handle: usize, flags: *mut c_uint) -> c_int {
    answer(|| {
        *flags = stream_of(handle)?.flags;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetDevice(handle: usize, device: *mut c_int) -> c_int {
    answer(|| {
        *device = stream_of(handle)?.device;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchHostFunc(handle: usize, function: Option<HostFunction>, data: *mut c_void) -> c_int {
    answer(|| {
        let function = function.ok_or(INVALID_VALUE)?;
        stream_of(handle)?.enqueue(Work::Host { function, data: data as usize });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamAttachMemAsync(_handle: usize, _address: usize, _bytes: usize, _flags: c_uint) -> c_int {
    answer(|| Err(NOT_SUPPORTED))
}

/// For the stand-in for NCCL: calls a function when the kernel starts that is the last work of a stream. 600 where none is, or it has begun.
/// Not a function of the driver, where programmatic dependent launch starts one kernel with another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn commgauge_double_with_last_kernel(
    handle: usize,
    function: Option<HostFunction>,
    data: *mut c_void,
) -> c_int {
    answer(|| {
        let function = function.ok_or(INVALID_VALUE)?;
        let work = Work::Host { function, data: data as usize };
        if stream_of(handle)?.enqueue_before_last_kernel(work) { Ok(()) } else { Err(NOT_READY) }
    })
}

/// For the stand-in for NCCL, of a stream that is captured: calls a function when the graph is gone, and no launch of it runs any more.
/// Not a function of the driver, where user objects do this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn commgauge_double_when_graph_goes(
    handle: usize,
    function: Option<HostFunction>,
    data: *mut c_void,
) -> c_int {
    answer(|| {
        let function = function.ok_or(INVALID_VALUE)?;
        stream_of(handle)?.enqueue(Work::Held(Arc::new(Held { function, data: data as usize })));
        Ok(())
    })
}
