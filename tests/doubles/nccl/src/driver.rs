//! The functions of the stand-in for libcuda that this one calls. It refuses to work with the real driver.

use crate::result::{Answer, INVALID_ARGUMENT, SYSTEM_ERROR, UNHANDLED_CUDA_ERROR, VERSION, failure};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::LazyLock;

macro_rules! driver {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {
        #[allow(non_snake_case)]
        struct Driver { $($name: unsafe extern "C" fn($($kind),*) -> c_int),* }

        impl Driver {
            #[allow(non_snake_case)]
            fn load() -> Result<Driver, String> {
                let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
                if library.is_null() {
                    return Err("libcuda.so.1 is not there".to_owned());
                }
                $(
                    let name = CString::new(stringify!($name)).expect("no zero in a name");
                    let $name = unsafe { libc::dlsym(library, name.as_ptr()) };
                    if $name.is_null() {
                        return Err(format!("libcuda.so.1 is not the stand-in: it has no {}", stringify!($name)));
                    }
                )*
                // SAFETY: the functions of the stand-in have these signatures.
                Ok(Driver { $($name: unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($kind),*) -> c_int>($name) }),* })
            }
        }

        $(
            #[allow(non_snake_case)]
            unsafe fn $name($($argument: $kind),*) -> Answer {
                let driver = DRIVER.as_ref().or_else(|cause| failure(SYSTEM_ERROR, cause.clone()))?;
                match (driver.$name)($($argument),*) {
                    0 => Ok(()),
                    code => failure(UNHANDLED_CUDA_ERROR, format!("{} answered {code}", stringify!($name))),
                }
            }
        )*
    };
}
driver! {
    cuCtxGetDevice(device: *mut c_int);
    cuCtxGetCurrent(context: *mut usize);
    cuCtxSetCurrent(context: usize);
    cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int);
    commgauge_double_gpu_uuid(uuid: *mut [u8; 16], device: c_int);
    cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int);
    cuLaunchHostFunc(stream: usize, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void);
    cuStreamIsCapturing(stream: usize, state: *mut c_int);
    cuStreamWaitEvent(stream: usize, event: usize, flags: c_uint);
    cuEventCreate(event: *mut usize, flags: c_uint);
    cuEventRecord(event: usize, stream: usize);
    cuEventDestroy_v2(event: usize);
    cuStreamCreateWithPriority(stream: *mut usize, flags: c_uint, priority: c_int);
    cuStreamDestroy_v2(stream: usize);
    cuMemAlloc_v2(address: *mut usize, bytes: usize);
    cuMemFree_v2(address: usize);
    cuMemGetAddressRange_v2(start: *mut usize, bytes: *mut usize, address: usize);
    commgauge_double_lose_device(code: c_int);
    commgauge_double_take_memory(bytes: usize);
    commgauge_double_give_memory(device: c_int, bytes: usize);
    cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int);
    commgauge_double_with_last_kernel(stream: usize, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void);
    commgauge_double_when_graph_goes(stream: usize, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void);
}

static DRIVER: LazyLock<Result<Driver, String>> = LazyLock::new(Driver::load);

/// The device of this thread, and its identity.
pub fn current_device() -> Answer<(c_int, [u8; 16])> {
    let (mut device, mut uuid, mut name) = (0, [0; 16], [0; 64]);
    unsafe {
        cuCtxGetDevice(&mut device)?;
        // Before 2.30 NCCL tells devices apart by their address, which parts of one GPU (MIG) share.
        match VERSION {
            ..23000 => commgauge_double_gpu_uuid(&mut uuid, device)?,
            _ => cuDeviceGetUuid(&mut uuid, device)?,
        }
        cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device)?;
        if !CStr::from_ptr(name.as_ptr()).to_string_lossy().contains("double") {
            return failure(SYSTEM_ERROR, "the stand-in for NCCL works with the stand-in for the driver alone");
        }
    }
    Ok((device, uuid))
}

/// The context of this thread, for another one that works for it.
pub fn current_context() -> Answer<usize> {
    let mut context = 0;
    unsafe { cuCtxGetCurrent(&mut context)? };
    Ok(context)
}

pub fn set_current_context(context: usize) -> Answer {
    unsafe { cuCtxSetCurrent(context) }
}

pub fn launch_host_function(stream: usize, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> Answer {
    unsafe { cuLaunchHostFunc(stream, function, data) }
}

/// Calls a function when the kernel starts that is the last work of a stream; an error where it has begun, or there is none.
pub fn with_last_kernel(stream: usize, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> Answer {
    unsafe { commgauge_double_with_last_kernel(stream, function, data) }
}

pub fn is_capturing(stream: usize) -> Answer<bool> {
    let mut state = 0;
    unsafe { cuStreamIsCapturing(stream, &mut state)? };
    Ok(state == 1)
}

/// Makes a stream wait for all that another has.
pub fn wait_for_stream(waiting: usize, other: usize) -> Answer {
    let mut event = 0;
    unsafe {
        cuEventCreate(&mut event, 2)?;
        cuEventRecord(event, other)?;
        cuStreamWaitEvent(waiting, event, 0)?;
        cuEventDestroy_v2(event)
    }
}

/// A stream that does not synchronise with others.
pub fn create_stream() -> Answer<usize> {
    let mut stream = 0;
    unsafe { cuStreamCreateWithPriority(&mut stream, 1, 0)? };
    Ok(stream)
}

pub fn destroy_stream(stream: usize) {
    let _ = unsafe { cuStreamDestroy_v2(stream) };
}

pub fn allocate(bytes: usize) -> Answer<usize> {
    let mut address = 0;
    unsafe { cuMemAlloc_v2(&mut address, bytes)? };
    Ok(address)
}

pub fn free(address: usize) -> Answer {
    unsafe { cuMemFree_v2(address) }
}

/// Rejects a buffer that is not memory of the driver, or ends before this many bytes.
pub fn check_buffer(address: usize, bytes: usize, what: &str) -> Answer {
    if bytes == 0 {
        return Ok(());
    }
    let (mut start, mut room) = (0, 0);
    if unsafe { cuMemGetAddressRange_v2(&mut start, &mut room, address) }.is_err() {
        return failure(INVALID_ARGUMENT, format!("{what}: 0x{address:x} is no memory of a device"));
    }
    let left = start + room - address;
    if bytes > left {
        return failure(
            INVALID_ARGUMENT,
            format!("{what}: {bytes} bytes from 0x{address:x}, where {left} are allocated"),
        );
    }
    Ok(())
}

/// Registers a function to be called when the graph that a stream captures is destroyed.
pub fn when_graph_goes(stream: usize, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> Answer {
    unsafe { commgauge_double_when_graph_goes(stream, function, data) }
}

/// Takes a part of the memory of this thread's device, for what NCCL has there itself; how much that is.
pub fn take_memory(device: c_int, divisor: usize) -> Answer<usize> {
    let mut bytes = 0;
    unsafe {
        cuDeviceTotalMem_v2(&mut bytes, device)?;
        commgauge_double_take_memory(bytes / divisor).or_else(|_| {
            failure(
                UNHANDLED_CUDA_ERROR,
                format!("Cuda failure 2 'out of memory': {} bytes for a communicator", bytes / divisor),
            )
        })?;
    }
    Ok(bytes / divisor)
}

pub fn give_memory(device: c_int, bytes: usize) {
    let _ = unsafe { commgauge_double_give_memory(device, bytes) };
}

pub fn lose_device(code: c_int) {
    let _ = unsafe { commgauge_double_lose_device(code) };
}
