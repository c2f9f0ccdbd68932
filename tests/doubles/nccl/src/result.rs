//! NCCL's error codes, and the text of the last error.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

pub const UNHANDLED_CUDA_ERROR: c_int = 1;
pub const SYSTEM_ERROR: c_int = 2;
pub const INVALID_ARGUMENT: c_int = 4;
pub const INVALID_USAGE: c_int = 5;
pub const IN_PROGRESS: c_int = 7;

/// An error code and what to say about it.
#[derive(Debug)]
pub struct Trouble {
    pub code: c_int,
    pub text: String,
}

pub type Answer<T = ()> = Result<T, Trouble>;

pub fn trouble<T>(code: c_int, text: impl Into<String>) -> Answer<T> {
    Err(Trouble { code, text: text.into() })
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// What the function of C returns, with the text kept for `ncclGetLastError`.
pub fn code_of(answer: Answer) -> c_int {
    answer.map_or_else(
        |trouble| {
            if trouble.code != IN_PROGRESS {
                let text = format!("commgauge double: {}", trouble.text);
                if std::env::var_os("NCCL_DEBUG").is_some() {
                    eprintln!("{text}");
                }
                LAST.with_borrow_mut(|last| *last = CString::new(text).unwrap_or_default());
            }
            trouble.code
        },
        |()| 0,
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_communicator: usize) -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
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
