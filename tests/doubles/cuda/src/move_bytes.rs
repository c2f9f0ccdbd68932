//! Copies and sets of memory, at once and in streams.

use crate::answer::{Answer, INVALID_VALUE, answer};
use crate::memory::{check_contexts, find, find_on_device};
use crate::stream::{Work, stream_of};
use std::ffi::{c_int, c_uchar, c_uint, c_ushort, c_void};
use std::sync::Arc;

/// Copies now, in the thread of a stream; the two may overlap.
pub fn copy(to: usize, from: usize, bytes: usize) {
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) }
}

/// Sets `count` numbers of `width` bytes now.
pub fn set(to: usize, value: u32, width: usize, count: usize) {
    let bytes = unsafe { std::slice::from_raw_parts_mut(to as *mut u8, width * count) };
    for one in bytes.chunks_exact_mut(width) {
        one.copy_from_slice(&value.to_le_bytes()[..width]);
    }
}

/// Enqueues a copy on a stream after checking both addresses.
fn enqueue(to: usize, from: usize, bytes: usize, stream: usize, on_device: [bool; 2]) -> Answer {
    let stream = stream_of(stream)?;
    for (address, device) in [to, from].into_iter().zip(on_device) {
        if device {
            find_on_device(address, bytes)?;
        } else if address == 0 && bytes > 0 {
            return Err(INVALID_VALUE);
        }
    }
    if bytes == 0 {
        return Ok(());
    }
    // Memory that is not the driver's may be written again as soon as the call returns.
    let pageable = !on_device[1] && find(from, bytes).is_err();
    stream.enqueue(if pageable {
        let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) };
        Work::Staged { to, bytes: Arc::from(bytes) }
    } else {
        Work::Copy { to, from, bytes }
    });
    // And what is copied there is there when the call returns.
    if !on_device[0] && find(to, bytes).is_err() { stream.synchronize() } else { Ok(()) }
}

fn now(to: usize, from: usize, bytes: usize, on_device: [bool; 2]) -> c_int {
    answer(|| {
        enqueue(to, from, bytes, 0, on_device)?;
        stream_of(0)?.synchronize()
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoD_v2(to: usize, from: *const c_void, bytes: usize) -> c_int {
    now(to, from as usize, bytes, [true, false])
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: usize, bytes: usize) -> c_int {
    now(to as usize, from, bytes, [false, true])
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoD_v2(to: usize, from: usize, bytes: usize) -> c_int {
    now(to, from, bytes, [true, true])
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpy(to: usize, from: usize, bytes: usize) -> c_int {
    now(to, from, bytes, [false, false])
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoDAsync_v2(to: usize, from: *const c_void, bytes: usize, stream: usize) -> c_int {
    answer(|| enqueue(to, from as usize, bytes, stream, [true, false]))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: usize, bytes: usize, stream: usize) -> c_int {
    answer(|| enqueue(to as usize, from, bytes, stream, [false, true]))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: usize) -> c_int {
    answer(|| enqueue(to, from, bytes, stream, [true, true]))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyAsync(to: usize, from: usize, bytes: usize, stream: usize) -> c_int {
    answer(|| enqueue(to, from, bytes, stream, [false, false]))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyPeerAsync(
    to: usize,
    to_context: usize,
    from: usize,
    from_context: usize,
    bytes: usize,
    stream: usize,
) -> c_int {
    answer(|| {
        check_contexts([to_context, from_context])?;
        enqueue(to, from, bytes, stream, [true, true])
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyPeer(to: usize, to_context: usize, from: usize, from_context: usize, bytes: usize) -> c_int {
    answer(|| {
        check_contexts([to_context, from_context])?;
        enqueue(to, from, bytes, 0, [true, true])?;
        stream_of(0)?.synchronize()
    })
}

fn enqueue_set(to: usize, value: u32, width: usize, count: usize, stream: usize) -> Answer {
    let bytes = count.checked_mul(width).ok_or(INVALID_VALUE)?;
    if !to.is_multiple_of(width) {
        return Err(INVALID_VALUE);
    }
    find_on_device(to, bytes)?;
    stream_of(stream)?.enqueue(Work::Set { to, value, width, count });
    Ok(())
}

fn set_now(to: usize, value: u32, width: usize, count: usize) -> c_int {
    answer(|| {
        enqueue_set(to, value, width, count, 0)?;
        stream_of(0)?.synchronize()
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8_v2(to: usize, value: c_uchar, count: usize) -> c_int {
    set_now(to, value.into(), 1, count)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD16_v2(to: usize, value: c_ushort, count: usize) -> c_int {
    set_now(to, value.into(), 2, count)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD32_v2(to: usize, value: c_uint, count: usize) -> c_int {
    set_now(to, value, 4, count)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(to: usize, value: c_uchar, count: usize, stream: usize) -> c_int {
    answer(|| enqueue_set(to, value.into(), 1, count, stream))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD16Async(to: usize, value: c_ushort, count: usize, stream: usize) -> c_int {
    answer(|| enqueue_set(to, value.into(), 2, count, stream))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD32Async(to: usize, value: c_uint, count: usize, stream: usize) -> c_int {
    answer(|| enqueue_set(to, value, 4, count, stream))
}
