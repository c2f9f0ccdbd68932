//! First step of every driver function: checks the driver, the device and the context of the thread.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

pub const INVALID_VALUE: c_int = 1;
pub const OUT_OF_MEMORY: c_int = 2;
pub const NOT_INITIALIZED: c_int = 3;
pub const NO_DEVICE: c_int = 100;
pub const INVALID_DEVICE: c_int = 101;
pub const INVALID_CONTEXT: c_int = 201;
pub const NO_BINARY_FOR_GPU: c_int = 209;
pub const PEER_ACCESS_UNSUPPORTED: c_int = 217;
pub const INVALID_PTX: c_int = 218;
pub const INVALID_HANDLE: c_int = 400;
pub const NOT_FOUND: c_int = 500;
pub const NOT_READY: c_int = 600;
pub const PEER_ACCESS_ALREADY_ENABLED: c_int = 704;
pub const PEER_ACCESS_NOT_ENABLED: c_int = 705;
pub const HOST_MEMORY_ALREADY_REGISTERED: c_int = 712;
pub const HOST_MEMORY_NOT_REGISTERED: c_int = 713;
pub const ILLEGAL_ADDRESS: c_int = 700;
pub const NOT_PERMITTED: c_int = 800;
pub const NOT_SUPPORTED: c_int = 801;
pub const MPS_CONNECTION_FAILED: c_int = 805;
pub const CAPTURE_UNSUPPORTED: c_int = 900;
pub const CAPTURE_INVALIDATED: c_int = 901;
pub const CAPTURE_UNMATCHED: c_int = 903;
pub const CAPTURE_UNJOINED: c_int = 904;
pub const CAPTURE_ISOLATION: c_int = 905;
pub const CAPTURED_EVENT: c_int = 907;

/// Names and texts, as the driver gives them.
const ERRORS: [(c_int, &CStr, &CStr); 32] = [
    (0, c"CUDA_SUCCESS", c"no error"),
    (INVALID_VALUE, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (OUT_OF_MEMORY, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (NOT_INITIALIZED, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
    (NO_DEVICE, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
    (INVALID_DEVICE, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (INVALID_CONTEXT, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (NO_BINARY_FOR_GPU, c"CUDA_ERROR_NO_BINARY_FOR_GPU", c"no kernel image is available for execution on the device"),
    (
        PEER_ACCESS_UNSUPPORTED,
        c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
        c"peer access is not supported between these two devices",
    ),
    (INVALID_PTX, c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed"),
    (INVALID_HANDLE, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
    (NOT_FOUND, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (NOT_READY, c"CUDA_ERROR_NOT_READY", c"device not ready"),
    (46, c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"CUDA-capable device(s) is/are busy or unavailable"),
    (214, c"CUDA_ERROR_ECC_UNCORRECTABLE", c"uncorrectable ECC error encountered"),
    (ILLEGAL_ADDRESS, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
    (PEER_ACCESS_ALREADY_ENABLED, c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", c"peer access is already enabled"),
    (PEER_ACCESS_NOT_ENABLED, c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", c"peer access has not been enabled"),
    (
        HOST_MEMORY_ALREADY_REGISTERED,
        c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
        c"part or all of the requested memory range is already mapped",
    ),
    (
        HOST_MEMORY_NOT_REGISTERED,
        c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
        c"pointer does not correspond to a registered memory region",
    ),
    (719, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
    (NOT_PERMITTED, c"CUDA_ERROR_NOT_PERMITTED", c"operation not permitted"),
    (NOT_SUPPORTED, c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
    (
        MPS_CONNECTION_FAILED,
        c"CUDA_ERROR_MPS_CONNECTION_FAILED",
        c"MPS client failed to connect to the MPS control daemon or the MPS server",
    ),
    (
        CAPTURE_UNSUPPORTED,
        c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        c"operation not permitted when stream is capturing",
    ),
    (
        CAPTURE_INVALIDATED,
        c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        c"operation failed due to a previous error during capture",
    ),
    (902, c"CUDA_ERROR_STREAM_CAPTURE_MERGE", c"operation would result in a merge of separate capture sequences"),
    (
        CAPTURE_UNMATCHED,
        c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        c"capture was not ended in the same stream as it began",
    ),
    (CAPTURE_UNJOINED, c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", c"capturing stream has unjoined work"),
    (
        CAPTURE_ISOLATION,
        c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
        c"dependency created on uncaptured work in another stream",
    ),
    (
        CAPTURED_EVENT,
        c"CUDA_ERROR_CAPTURED_EVENT",
        c"operation not permitted on an event last recorded in a capturing stream",
    ),
    (999, c"CUDA_ERROR_UNKNOWN", c"unknown error"),
];

/// How a call ended: with one of the driver's error codes, or well.
pub type Answer = Result<(), c_int>;

static INITIALIZED: AtomicBool = AtomicBool::new(false);
/// The error that stays once the device is lost; 0 before.
static LOST: AtomicI32 = AtomicI32::new(0);

thread_local! {
    /// True in a thread that runs a function of the host in stream order, which may not call the driver.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Carries a call out, unless nothing may be called.
pub fn answer(call: impl FnOnce() -> Answer) -> c_int {
    let possible = match LOST.load(Ordering::SeqCst) {
        _ if IN_HOST_FUNCTION.get() => Err(NOT_PERMITTED),
        0 if !INITIALIZED.load(Ordering::SeqCst) => Err(NOT_INITIALIZED),
        0 => Ok(()),
        code => Err(code),
    };
    possible.and_then(|()| call()).err().unwrap_or(0)
}

/// The error of a lost device.
pub fn lost() -> Option<c_int> {
    Some(LOST.load(Ordering::SeqCst)).filter(|code| *code != 0)
}

/// Runs a function of the host in this thread of a stream.
pub fn in_host_function(call: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    call();
    IN_HOST_FUNCTION.set(false);
}

pub fn set_initialized() {
    INITIALIZED.store(true, Ordering::SeqCst);
}

/// For the stand-in for NCCL: marks the device of this process as lost from now on. Not a function of the driver.
#[unsafe(no_mangle)]
pub extern "C" fn commgauge_double_lose_device(code: c_int) {
    LOST.store(code, Ordering::SeqCst);
    crate::stream::wake_all();
}

fn error(code: c_int) -> Option<&'static (c_int, &'static CStr, &'static CStr)> {
    ERRORS.iter().find(|error| error.0 == code)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> c_int {
    *text = error(code).map_or(std::ptr::null(), |error| error.2.as_ptr());
    if text.read().is_null() { INVALID_VALUE } else { 0 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: c_int, text: *mut *const c_char) -> c_int {
    *text = error(code).map_or(std::ptr::null(), |error| error.1.as_ptr());
    if text.read().is_null() { INVALID_VALUE } else { 0 }
}
