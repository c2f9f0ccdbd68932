//! Contexts: one primary context for each device, and which one each thread works in.

use crate::answer::{
    Answer, INVALID_CONTEXT, INVALID_VALUE, PEER_ACCESS_ALREADY_ENABLED, PEER_ACCESS_NOT_ENABLED, answer,
};
use crate::device::{check_peers, number_on_host};
use crate::stream;
use settings::{Kind, SETTINGS};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_uint};
use std::sync::Mutex;

/// Reference count of each device's primary context.
static HELD: Mutex<BTreeMap<c_int, u32>> = Mutex::new(BTreeMap::new());
/// Devices of contexts that may reach devices.
static PEERS: Mutex<BTreeSet<(c_int, c_int)>> = Mutex::new(BTreeSet::new());

const FIRST: usize = 0xc0_0000;

thread_local! {
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn handle_of(device: c_int) -> usize {
    FIRST + 0x100 * device as usize
}

pub fn device_of(context: usize) -> Result<c_int, c_int> {
    let device = context.checked_sub(FIRST).ok_or(INVALID_CONTEXT)? / 0x100;
    let device = c_int::try_from(device).map_err(|_| INVALID_CONTEXT)?;
    let held = HELD.lock().unwrap().get(&device).is_some_and(|held| *held > 0);
    if held && handle_of(device) == context { Ok(device) } else { Err(INVALID_CONTEXT) }
}

/// The device of this thread's context.
pub fn current_device() -> Result<c_int, c_int> {
    device_of(current())
}

fn current() -> usize {
    STACK.with_borrow(|stack| stack.last().copied().unwrap_or(0))
}

fn check(context: usize) -> Answer {
    if context == 0 { Ok(()) } else { device_of(context).map(|_| ()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) -> c_int {
    answer(|| {
        number_on_host(device)?;
        if let Some(fault) = SETTINGS.fault(Kind::Context, None, "", |_| 1) {
            return Err(fault.code);
        }
        *HELD.lock().unwrap().entry(device).or_default() += 1;
        *context = handle_of(device);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_int {
    answer(|| {
        number_on_host(device)?;
        let mut held = HELD.lock().unwrap();
        let count = held.get_mut(&device).filter(|count| **count > 0).ok_or(INVALID_CONTEXT)?;
        *count -= 1;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int) -> c_int {
    answer(|| {
        number_on_host(device)?;
        *flags = 0;
        *active = c_int::from(HELD.lock().unwrap().get(&device).is_some_and(|held| *held > 0));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, _flags: c_uint) -> c_int {
    answer(|| number_on_host(device).map(|_| ()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut usize) -> c_int {
    answer(|| {
        *context = current();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: usize) -> c_int {
    answer(|| {
        check(context)?;
        STACK.with_borrow_mut(|stack| {
            stack.pop();
            if context != 0 {
                stack.push(context);
            }
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPushCurrent_v2(context: usize) -> c_int {
    answer(|| {
        device_of(context)?;
        STACK.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut usize) -> c_int {
    answer(|| {
        let popped = STACK.with_borrow_mut(Vec::pop).ok_or(INVALID_CONTEXT)?;
        if !context.is_null() {
            *context = popped;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> c_int {
    answer(|| {
        *device = current_device()?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> c_int {
    answer(|| stream::synchronize_device(current_device()?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> c_int {
    answer(|| {
        current_device()?;
        for (place, value) in [(least, 0), (greatest, -5)] {
            if !place.is_null() {
                *place = value;
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetApiVersion(context: usize, version: *mut c_uint) -> c_int {
    answer(|| {
        check(context)?;
        *version = 3020;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetFlags(_flags: c_uint) -> c_int {
    answer(|| current_device().map(|_| ()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetLimit(value: *mut usize, _limit: c_int) -> c_int {
    answer(|| {
        current_device()?;
        *value = 1024;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetLimit(_limit: c_int, _value: usize) -> c_int {
    answer(|| current_device().map(|_| ()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxEnablePeerAccess(peer: usize, flags: c_uint) -> c_int {
    answer(|| {
        let pair = (current_device()?, device_of(peer)?);
        check_peers(pair.0, pair.1)?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        if PEERS.lock().unwrap().insert(pair) { Ok(()) } else { Err(PEER_ACCESS_ALREADY_ENABLED) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxDisablePeerAccess(peer: usize) -> c_int {
    answer(|| {
        let pair = (current_device()?, device_of(peer)?);
        if PEERS.lock().unwrap().remove(&pair) { Ok(()) } else { Err(PEER_ACCESS_NOT_ENABLED) }
    })
}
