//! NCCL's error codes, and the text of the last error.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::atomic::{AtomicPtr, Ordering};

pub const UNHANDLED_CUDA_ERROR: c_int = 1;
pub const SYSTEM_ERROR: c_int = 2;
pub const INVALID_ARGUMENT: c_int = 4;
pub const INVALID_USAGE: c_int = 5;
pub const IN_PROGRESS: c_int = 7;

/// An error code and its message.
#[derive(Debug)]
pub struct Failure {
    pub code: c_int,
    pub text: String,
}

pub type Answer<T = ()> = Result<T, Failure>;

pub fn failure<T>(code: c_int, text: impl Into<String>) -> Answer<T> {
    Err(Failure { code, text: text.into() })
}

/// One for the process, as in NCCL (`ncclLastError` in its src/debug.cc): threads that connect in the background write it too.
static LAST: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

impl Failure {
    /// Stores the text for `ncclGetLastError`.
    pub fn keep(&self) {
        let text = format!("commgauge double: {}", self.text);
        if std::env::var_os("NCCL_DEBUG").is_some() {
            eprintln!("{text}");
        }
        // Whoever requested an earlier one may still read it, so that none is freed.
        LAST.store(CString::new(text).unwrap_or_default().into_raw(), Ordering::SeqCst);
    }
}

/// The return code of the C function; stores the text.
pub fn code_of(answer: Answer) -> c_int {
    answer.map_or_else(
        |failure| {
            if failure.code != IN_PROGRESS {
                failure.keep();
            }
            failure.code
        },
        |()| 0,
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_communicator: usize) -> *const c_char {
    let last = LAST.load(Ordering::SeqCst);
    if last.is_null() { c"".as_ptr() } else { last }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    let text: &CStr = match code {
        0 => c"no error",
        1 => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        2 => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        3 => c"internal error - please report this issue to the NCCL developers",
        4 => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        5 => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        6 => c"remote process exited or there was a network error",
        7 => c"NCCL operation in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    match version.as_mut() {
        Some(version) => *version = VERSION,
        None => return INVALID_ARGUMENT,
    }
    0
}

pub const VERSION: c_int = parse(env!("NCCL_CODE"));

const fn parse(text: &str) -> c_int {
    let (bytes, mut value, mut at) = (text.as_bytes(), 0, 0);
    while at < bytes.len() {
        value = 10 * value + (bytes[at] - b'0') as c_int;
        at += 1;
    }
    value
}
