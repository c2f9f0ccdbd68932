//! Device memory: host memory with a limited capacity, in which every address is part of an allocation or an error.

use crate::answer::{Answer, ILLEGAL_ADDRESS, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, answer};
use crate::context::{current_device, device_of};
use crate::device::number_on_host;
use crate::stream::{self, Work, stream_of};
use settings::{Kind, SETTINGS};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Mutex;

/// Kind of the allocation.
#[derive(Clone, Copy)]
pub struct Allocation {
    pub start: usize,
    pub bytes: usize,
    pub device: c_int,
    pub host: bool,
}

#[derive(Default)]
struct Memory {
    allocations: BTreeMap<usize, Allocation>,
    used: BTreeMap<c_int, usize>,
    /// Allocations that were requested since the start.
    asked: u64,
}

static MEMORY: Mutex<Memory> = Mutex::new(Memory { allocations: BTreeMap::new(), used: BTreeMap::new(), asked: 0 });

/// The driver guarantees 256 bytes; a page suits windows of NCCL.
const ALIGNMENT: usize = 4096;
/// Bytes behind every allocation that must not be written.
const FENCE: usize = 64;
const FENCE_BYTE: u8 = 0xa5;
/// Fresh memory is not zero; as much of it is set as costs no time.
const FRESH_BYTE: u8 = 0xdb;
const FRESH_BYTES: usize = 1 << 20;

/// The allocation that contains this many bytes from an address.
pub fn find(address: usize, bytes: usize) -> Result<Allocation, c_int> {
    let memory = MEMORY.lock().unwrap();
    let (_, allocation) = memory.allocations.range(..=address).next_back().ok_or(INVALID_VALUE)?;
    let end = allocation.start + allocation.bytes;
    let inside = address.checked_add(bytes).is_some_and(|last| last <= end) && (address < end || bytes == 0);
    if inside { Ok(*allocation) } else { Err(INVALID_VALUE) }
}

/// The same, where it must be device memory.
pub fn find_on_device(address: usize, bytes: usize) -> Answer {
    if bytes == 0 {
        return Ok(());
    }
    if find(address, bytes)?.host { Err(INVALID_VALUE) } else { Ok(()) }
}

fn place(address: usize, bytes: usize) -> *mut c_void {
    let raw: *mut u8 = address as *mut u8;
    unsafe {
        raw.write_bytes(FRESH_BYTE, bytes.min(FRESH_BYTES));
        raw.add(bytes).write_bytes(FENCE_BYTE, FENCE);
    }
    raw.cast()
}

fn allocate(bytes: usize) -> Result<usize, c_int> {
    let device = current_device()?;
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    stream::wait_for_kernels(device)?;
    let capacity = SETTINGS.memory_of(number_on_host(device)?);
    let mut memory = MEMORY.lock().unwrap();
    memory.asked += 1;
    let number = memory.asked;
    let fault = SETTINGS.fault(Kind::OutOfMemory, None, "", |_| number);
    let used = memory.used.entry(device).or_default();
    if fault.is_some() || bytes as u64 > capacity.saturating_sub(*used as u64) {
        return Err(OUT_OF_MEMORY);
    }
    *used += bytes;
    let mut raw = std::ptr::null_mut();
    if unsafe { libc::posix_memalign(&mut raw, ALIGNMENT, bytes + FENCE) } != 0 {
        return Err(OUT_OF_MEMORY);
    }
    let start = place(raw as usize, bytes) as usize;
    memory.allocations.insert(start, Allocation { start, bytes, device, host: false });
    Ok(start)
}

/// Removes an allocation from the list; an address that is not the start of one is an error.
fn forget(address: usize, host: bool) -> Result<Allocation, c_int> {
    let mut memory = MEMORY.lock().unwrap();
    if memory.allocations.get(&address).is_none_or(|allocation| allocation.host != host) {
        return Err(INVALID_VALUE);
    }
    let allocation = memory.allocations.remove(&address).ok_or(INVALID_VALUE)?;
    if !host {
        *memory.used.entry(allocation.device).or_default() -= allocation.bytes;
    }
    Ok(allocation)
}

/// Frees device memory whose fence is whole.
fn free(allocation: Allocation) -> Answer {
    let fence = unsafe { std::slice::from_raw_parts((allocation.start + allocation.bytes) as *const u8, FENCE) };
    let written = fence.iter().position(|byte| *byte != FENCE_BYTE);
    unsafe { libc::free(allocation.start as *mut c_void) };
    let Some(first) = written else { return Ok(()) };
    eprintln!("commgauge double: something wrote {first} bytes behind an allocation of {} bytes", allocation.bytes);
    Err(ILLEGAL_ADDRESS)
}

/// Frees in stream order.
pub fn release(address: usize) {
    if let Ok(allocation) = forget(address, false) {
        let _ = free(allocation);
    }
}

/// Host memory that was registered or allocated by the driver.
pub fn add_host(start: usize, bytes: usize) {
    MEMORY.lock().unwrap().allocations.insert(start, Allocation { start, bytes, device: 0, host: true });
}

pub fn forget_host(start: usize) -> Answer {
    forget(start, true).map(|_| ())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut usize, bytes: usize) -> c_int {
    answer(|| {
        *address = allocate(bytes)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(address: *mut usize, bytes: usize, stream: usize) -> c_int {
    answer(|| {
        stream_of(stream)?;
        *address = allocate(bytes)?;
        Ok(())
    })
}

/// For the stand-in for NCCL: memory of the current device that it has for itself, without any bytes behind it. Not a function of the
/// driver.
#[unsafe(no_mangle)]
pub extern "C" fn commgauge_double_take_memory(bytes: usize) -> c_int {
    answer(|| {
        let device = current_device()?;
        stream::wait_for_kernels(device)?;
        let capacity = SETTINGS.memory_of(number_on_host(device)?);
        let mut memory = MEMORY.lock().unwrap();
        let used = memory.used.entry(device).or_default();
        if bytes as u64 > capacity.saturating_sub(*used as u64) {
            return Err(OUT_OF_MEMORY);
        }
        *used += bytes;
        Ok(())
    })
}

/// Gives it back, from any thread and without waiting for anything.
#[unsafe(no_mangle)]
pub extern "C" fn commgauge_double_give_memory(device: c_int, bytes: usize) -> c_int {
    let mut memory = MEMORY.lock().unwrap();
    let used = memory.used.entry(device).or_default();
    *used = used.saturating_sub(bytes);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: usize) -> c_int {
    answer(|| {
        if address == 0 {
            return Ok(());
        }
        // As the driver does: nothing that runs may still use it.
        stream::synchronize_device(find(address, 0)?.device)?;
        free(forget(address, false)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(address: usize, stream: usize) -> c_int {
    answer(|| {
        let stream = stream_of(stream)?;
        if find(address, 0)?.start != address {
            return Err(INVALID_VALUE);
        }
        stream.enqueue(Work::Free(address));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAllocManaged(_address: *mut usize, _bytes: usize, _flags: c_uint) -> c_int {
    answer(|| Err(NOT_SUPPORTED))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int {
    answer(|| {
        let device = current_device()?;
        let used = MEMORY.lock().unwrap().used.get(&device).copied().unwrap_or(0);
        *total = SETTINGS.memory_of(number_on_host(device)?) as usize;
        *free = total.read().saturating_sub(used);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAddressRange_v2(start: *mut usize, bytes: *mut usize, address: usize) -> c_int {
    answer(|| {
        let allocation = find(address, 1)?;
        if let Some(start) = start.as_mut() {
            *start = allocation.start;
        }
        if let Some(bytes) = bytes.as_mut() {
            *bytes = allocation.bytes;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: usize) -> c_int {
    answer(|| {
        let allocation = find(address, 1)?;
        match attribute {
            // Host or device; the address on either; managed memory; the device.
            2 => value.cast::<c_uint>().write(if allocation.host { 1 } else { 2 }),
            3 | 4 => value.cast::<usize>().write(address),
            8 => value.cast::<bool>().write(false),
            9 => value.cast::<c_int>().write(allocation.device),
            11 => value.cast::<usize>().write(allocation.start),
            12 => value.cast::<usize>().write(allocation.bytes),
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetDefaultMemPool(pool: *mut usize, device: c_int) -> c_int {
    answer(|| {
        crate::device::number_on_host(device)?;
        *pool = 0x900_0000 + device as usize;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetMemPool(pool: *mut usize, device: c_int) -> c_int {
    cuDeviceGetDefaultMemPool(pool, device)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolSetAttribute(_pool: usize, _attribute: c_int, _value: *mut c_void) -> c_int {
    answer(|| Ok(()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolTrimTo(_pool: usize, _bytes: usize) -> c_int {
    answer(|| Ok(()))
}

/// The context of a device is what a copy between devices names; both must be there.
pub fn check_contexts(contexts: [usize; 2]) -> Answer {
    contexts.into_iter().try_for_each(|context| device_of(context).map(|_| ()))
}
