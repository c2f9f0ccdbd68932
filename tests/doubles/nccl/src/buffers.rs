//! Buffers that NCCL allocates or that are registered with it. Nothing becomes faster here; incorrect use is detected.

use crate::communicator::{self, Communicator};
use crate::driver;
use crate::result::{Answer, INVALID_ARGUMENT, code_of, failure};
#[cfg(since_2_27)]
use crate::result::{IN_PROGRESS, VERSION};
#[cfg(since_2_27)]
use crate::split::all_say;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

static NEXT: AtomicUsize = AtomicUsize::new(0x10);
/// What NCCL allocated, with its length.
static ALLOCATED: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Default::default);
/// What virtual memory is made of. Less than that of a device, that small capacities suffice.
const GRANULARITY: usize = 4096;

#[cfg(since_2_19)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemAlloc(address: *mut usize, bytes: usize) -> c_int {
    let bytes = bytes.next_multiple_of(GRANULARITY);
    code_of(driver::allocate(bytes).map(|allocated| {
        ALLOCATED.lock().unwrap().insert(allocated, bytes);
        *address = allocated;
    }))
}

#[cfg(since_2_19)]
#[unsafe(no_mangle)]
pub extern "C" fn ncclMemFree(address: usize) -> c_int {
    // NCCL says nothing, and carries wrong data later.
    if communicator::is_registered_for_a_graph(address) {
        return code_of(failure(
            INVALID_ARGUMENT,
            format!(
                "0x{address:x} is freed while it is registered for a graph: NCCL withdraws that only at some later group of calls"
            ),
        ));
    }
    ALLOCATED.lock().unwrap().remove(&address);
    code_of(driver::free(address))
}

/// Whether NCCL allocated the memory of a buffer, which alone it registers for calls in graphs.
pub fn is_of_nccl(address: usize) -> bool {
    start_of_allocation(address).is_some()
}

/// Where the memory around an address begins, if NCCL allocated it.
pub fn start_of_allocation(address: usize) -> Option<usize> {
    around(address).map(|(start, _)| start)
}

/// Start and length of what NCCL allocated around an address.
fn around(address: usize) -> Option<(usize, usize)> {
    let allocated = ALLOCATED.lock().unwrap();
    let found = allocated.iter().find(|(start, bytes)| (**start..**start + **bytes).contains(&address));
    found.map(|(start, bytes)| (*start, *bytes))
}

/// Whether the memory around a buffer is registered with a communicator, or a window of it.
pub fn is_registered(communicator: &Communicator, address: usize) -> bool {
    registered_pages(communicator, address) > 0
}

/// Pages that are registered around a buffer; none where it is not.
pub fn registered_pages(communicator: &Communicator, address: usize) -> u64 {
    let registered = communicator.registered.lock().unwrap();
    // Of a registration and a window at one place the longer one.
    let lengths =
        |start: usize| registered.values().filter(move |known| known.address == start).map(|known| known.bytes);
    around(address).and_then(|(start, _)| lengths(start).max()).map_or(0, |bytes| (bytes as u64).div_ceil(PAGE_BYTES))
}

/// NCCL registers whole pages (`ncclRegister` in its src/register/register.cc).
const PAGE_BYTES: u64 = 4096;

/// What was registered, and how often; windows not at all.
pub struct Known {
    address: usize,
    bytes: usize,
    times: u32,
}

/// The length of what NCCL allocated around a buffer. Of other memory it registers nothing, without a word, or cannot make a window.
fn allocation(address: usize, what: &str) -> Answer<usize> {
    around(address).map_or_else(
        || failure(INVALID_ARGUMENT, format!("{what} at 0x{address:x} is no memory of ncclMemAlloc")),
        |(_, bytes)| Ok(bytes),
    )
}

/// Whether the environment disables a feature that is enabled by default; NCCL then gives no error and no handle.
fn is_off(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| value == "0")
}

/// Registers a buffer, or counts once more what is registered already.
fn register(communicator: &Arc<Communicator>, address: usize, bytes: usize) -> Answer<usize> {
    let what = "a buffer to register";
    driver::check_buffer(address, bytes, what)?;
    allocation(address, what)?;
    let mut registered = communicator.registered.lock().unwrap();
    if let Some((handle, times)) = registered
        .iter_mut()
        .find(|(_, known)| known.address == address && known.times > 0)
        .map(|(handle, known)| (*handle, &mut known.times))
    {
        *times += 1;
        return Ok(handle);
    }
    let handle = NEXT.fetch_add(0x10, Ordering::Relaxed);
    registered.insert(handle, Known { address, bytes, times: 1 });
    Ok(handle)
}

#[cfg(since_2_27)]
fn make_window(communicator: &Arc<Communicator>, address: usize, bytes: usize) -> Answer<usize> {
    driver::check_buffer(address, bytes, "a window")?;
    let handle = NEXT.fetch_add(0x10, Ordering::Relaxed);
    communicator.registered.lock().unwrap().insert(handle, Known { address, bytes, times: 0 });
    Ok(handle)
}

fn deregister(communicator: usize, handle: usize, what: &str) -> Answer {
    if handle == 0 {
        return Ok(());
    }
    // Also where the communicator has an error: cleaning up must be possible.
    let communicator = communicator::find(communicator)?;
    let mut registered = communicator.registered.lock().unwrap();
    match registered.get_mut(&handle) {
        Some(known) if known.times > 1 => known.times -= 1,
        Some(_) => drop(registered.remove(&handle)),
        None => return failure(INVALID_ARGUMENT, format!("{what}: the handle is not known")),
    }
    Ok(())
}

#[cfg(since_2_19)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommRegister(
    communicator: usize,
    address: usize,
    bytes: usize,
    handle: *mut usize,
) -> c_int {
    code_of((|| {
        let communicator = communicator::ready(communicator)?;
        *handle = 0;
        if !is_off("NCCL_LOCAL_REGISTER") {
            *handle = register(&communicator, address, bytes)?;
        }
        Ok(())
    })())
}

#[cfg(since_2_19)]
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDeregister(communicator: usize, handle: usize) -> c_int {
    code_of(deregister(communicator, handle, "a buffer to deregister"))
}

/// What a window must be aligned to.
#[cfg(since_2_27)]
const WINDOW_ALIGNMENT: usize = 4096;

/// All ranks call it, with as much of an allocation of the same length. Where windows cannot be, that is no error, and there is none.
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
        let communicator = communicator::ready(communicator)?;
        *window = 0;
        if !(0..=15).contains(&flags) {
            return failure(INVALID_ARGUMENT, format!("window flags {flags} are not known"));
        }
        if is_off("NCCL_WIN_ENABLE") {
            // Before 2.29 there is something else instead of nothing.
            if VERSION < 22_900 {
                *window = register(&communicator, address, bytes)?;
            }
            return Ok(());
        }
        if !address.is_multiple_of(WINDOW_ALIGNMENT) {
            return failure(
                INVALID_ARGUMENT,
                format!("a window at 0x{address:x} is not aligned to {WINDOW_ALIGNMENT}"),
            );
        }
        meet(&communicator, [allocation(address, "a window")?, bytes, flags as usize])?;
        *window = make_window(&communicator, address, bytes)?;
        Ok(())
    })())
}

/// NCCL maps every rank's whole allocation at the same place of a space of its own: all must be of one length.
#[cfg(since_2_27)]
fn meet(communicator: &Arc<Communicator>, mine: [usize; 3]) -> Answer {
    let mine: Vec<u8> = mine.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let number = communicator.issue();
    let mut said = failure(IN_PROGRESS, "");
    communicator.in_turn(number, || said = all_say(communicator, &mine));
    match said?.iter().position(|other| *other != mine) {
        Some(other) => {
            failure(INVALID_ARGUMENT, format!("rank {other} has a window of another length, or in other memory"))
        }
        None => Ok(()),
    }
}

#[cfg(since_2_27)]
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommWindowDeregister(communicator: usize, window: usize) -> c_int {
    code_of(deregister(communicator, window, "a window to deregister"))
}
