//! Host memory that the device reaches: allocated by the driver, or registered with it.

use crate::answer::{HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, OUT_OF_MEMORY, answer};
use crate::context::current_device;
use crate::memory::{add_host, find, forget_host};
use crate::stream::wait_for_kernels;
use std::ffi::{c_int, c_uint, c_void};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(memory: *mut *mut c_void, bytes: usize, _flags: c_uint) -> c_int {
    answer(|| {
        wait_for_kernels(current_device()?)?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let mut raw = std::ptr::null_mut();
        if libc::posix_memalign(&mut raw, 4096, bytes) != 0 {
            return Err(OUT_OF_MEMORY);
        }
        raw.write_bytes(0xdb, bytes);
        add_host(raw as usize, bytes);
        *memory = raw;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocHost_v2(memory: *mut *mut c_void, bytes: usize) -> c_int {
    cuMemHostAlloc(memory, bytes, 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(memory: *mut c_void) -> c_int {
    answer(|| {
        forget_host(memory as usize)?;
        libc::free(memory);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostRegister_v2(memory: *mut c_void, bytes: usize, _flags: c_uint) -> c_int {
    answer(|| {
        wait_for_kernels(current_device()?)?;
        if find(memory as usize, 1).is_ok() {
            return Err(HOST_MEMORY_ALREADY_REGISTERED);
        }
        add_host(memory as usize, bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostUnregister(memory: *mut c_void) -> c_int {
    answer(|| forget_host(memory as usize).map_err(|_| HOST_MEMORY_NOT_REGISTERED))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostGetDevicePointer_v2(
    address: *mut usize,
    memory: *mut c_void,
    _flags: c_uint,
) -> c_int {
    answer(|| {
        find(memory as usize, 1)?;
        *address = memory as usize;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostGetFlags(flags: *mut c_uint, memory: *mut c_void) -> c_int {
    answer(|| {
        find(memory as usize, 1)?;
        *flags = 0;
        Ok(())
    })
}
