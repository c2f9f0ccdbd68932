//! Buffers that NCCL allocates or is told of beforehand. Nothing becomes faster here; wrong use is found.

use crate::communicator;
use crate::driver;
use crate::result::{Answer, INVALID_ARGUMENT, code_of, trouble};
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

static NEXT: AtomicUsize = AtomicUsize::new(0x10);

#[cfg(since_2_19)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemAlloc(address: *mut usize, bytes: usize) -> c_int {
    // As NCCL rounds up to what virtual memory is made of; less here, that small capacities suffice.
    code_of(driver::allocate(bytes.next_multiple_of(4096)).map(|allocated| *address = allocated))
}

#[cfg(since_2_19)]
#[unsafe(no_mangle)]
pub extern "C" fn ncclMemFree(address: usize) -> c_int {
    code_of(driver::free(address))
}

fn register(communicator: usize, address: usize, bytes: usize, what: &str) -> Answer<usize> {
    let communicator = communicator::ready(communicator)?;
    driver::check_buffer(address, bytes, what)?;
    let handle = NEXT.fetch_add(0x10, Ordering::Relaxed);
    communicator.registered.lock().unwrap().insert(handle, address);
    Ok(handle)
}

fn deregister(communicator: usize, handle: usize, what: &str) -> Answer {
    // Also where the communicator has an error: cleaning up must be possible.
    match communicator::find(communicator)?.registered.lock().unwrap().remove(&handle) {
        Some(_) => Ok(()),
        None => trouble(INVALID_ARGUMENT, format!("{what}: the handle is not known")),
    }
}

#[cfg(since_2_19)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommRegister(
    communicator: usize,
    address: usize,
    bytes: usize,
    handle: *mut usize,
) -> c_int {
    code_of(register(communicator, address, bytes, "a buffer to register").map(|made| *handle = made))
}

#[cfg(since_2_19)]
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDeregister(communicator: usize, handle: usize) -> c_int {
    code_of(deregister(communicator, handle, "a buffer to deregister"))
}

/// What a window must be aligned to.
#[cfg(since_2_27)]
const WINDOW_ALIGNMENT: usize = 4096;

#[cfg(since_2_27)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommWindowRegister(
    communicator: usize,
    address: usize,
    bytes: usize,
    window: *mut usize,
    flags: c_int,
) -> c_int {
    code_of((|| {
        if !(0..=15).contains(&flags) {
            return trouble(INVALID_ARGUMENT, format!("window flags {flags} are not known"));
        }
        if !address.is_multiple_of(WINDOW_ALIGNMENT) {
            return trouble(
                INVALID_ARGUMENT,
                format!("a window at 0x{address:x} is not aligned to {WINDOW_ALIGNMENT}"),
            );
        }
        *window = register(communicator, address, bytes, "a window")?;
        Ok(())
    })())
}

#[cfg(since_2_27)]
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommWindowDeregister(communicator: usize, window: usize) -> c_int {
    code_of(deregister(communicator, window, "a window to deregister"))
}
