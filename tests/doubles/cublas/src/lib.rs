//! A stand-in for libcublas that multiplies on the host, in the streams of the stand-in for libcuda. Only what commgauge calls. For
//! tests only.

mod driver;
mod multiply;

use multiply::{Matrix, Product, Type};
use settings::{Fault, Kind, SETTINGS};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const NOT_INITIALIZED: c_int = 1;
const INVALID_VALUE: c_int = 7;
const MAPPING_ERROR: c_int = 11;
const NOT_SUPPORTED: c_int = 15;

/// The version that is played.
const VERSION: [c_int; 3] = [12, 8, 4];

/// The streams of the handles that are open.
static HANDLES: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(1);
/// Products that this process has requested.
static PRODUCTS: AtomicU64 = AtomicU64::new(0);

fn answer(work: impl FnOnce() -> Result<(), c_int>) -> c_int {
    work().err().unwrap_or(0)
}

fn stream_of(handle: usize) -> Result<usize, c_int> {
    HANDLES.lock().unwrap().get(&handle).copied().ok_or(NOT_INITIALIZED)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetProperty(which: c_int, value: *mut c_int) -> c_int {
    answer(|| {
        *value = *usize::try_from(which).ok().and_then(|which| VERSION.get(which)).ok_or(INVALID_VALUE)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStatusName(status: c_int) -> *const c_char {
    let name = match status {
        0 => c"CUBLAS_STATUS_SUCCESS",
        NOT_INITIALIZED => c"CUBLAS_STATUS_NOT_INITIALIZED",
        3 => c"CUBLAS_STATUS_ALLOC_FAILED",
        INVALID_VALUE => c"CUBLAS_STATUS_INVALID_VALUE",
        MAPPING_ERROR => c"CUBLAS_STATUS_MAPPING_ERROR",
        13 => c"CUBLAS_STATUS_EXECUTION_FAILED",
        14 => c"CUBLAS_STATUS_INTERNAL_ERROR",
        NOT_SUPPORTED => c"CUBLAS_STATUS_NOT_SUPPORTED",
        _ => c"CUBLAS_STATUS_UNKNOWN",
    };
    name.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasCreate_v2(handle: *mut usize) -> c_int {
    answer(|| {
        driver::check_context().map_err(|_| NOT_INITIALIZED)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed) as usize;
        HANDLES.lock().unwrap().insert(number, 0);
        *handle = number;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasDestroy_v2(handle: usize) -> c_int {
    answer(|| HANDLES.lock().unwrap().remove(&handle).map(drop).ok_or(NOT_INITIALIZED))
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasSetStream_v2(handle: usize, stream: usize) -> c_int {
    answer(|| {
        stream_of(handle)?;
        HANDLES.lock().unwrap().insert(handle, stream);
        Ok(())
    })
}

/// Every mode gives the same here.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSetMathMode(handle: usize, _mode: c_int) -> c_int {
    answer(|| stream_of(handle).map(drop))
}

/// The fault of a product, which only faults with `call=gemm` are for.
fn fault(kind: Kind, number: u64) -> Option<&'static Fault> {
    SETTINGS.fault(kind, None, "gemm", |_| number).filter(|fault| fault.call.is_some())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGemmEx(
    handle: usize,
    left_op: c_int,
    right_op: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    left: usize,
    left_type: c_int,
    left_stride: c_int,
    right: usize,
    right_type: c_int,
    right_stride: c_int,
    beta: *const c_void,
    result: usize,
    result_type: c_int,
    result_stride: c_int,
    compute: c_int,
    algorithm: c_int,
) -> c_int {
    answer(|| {
        let stream = stream_of(handle)?;
        let number = PRODUCTS.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(fault) = fault(Kind::Error, number) {
            return Err(fault.code);
        }
        if let Some(fault) = fault(Kind::SlowHost, number) {
            std::thread::sleep(Duration::from_micros(fault.microseconds));
        }
        if left_type != right_type || left_type != result_type || algorithm != -1 {
            return Err(NOT_SUPPORTED);
        }
        let kind = Type::of(left_type, compute).ok_or(NOT_SUPPORTED)?;
        let size = |value: c_int| usize::try_from(value).ok().filter(|value| *value > 0).ok_or(INVALID_VALUE);
        let (m, n, k) = (size(m)?, size(n)?, size(k)?);
        let matrix = |address, op, rows, columns, stride: c_int| {
            let transposed = match op {
                0 => false,
                1 => true,
                _ => return Err(NOT_SUPPORTED),
            };
            let (in_column, lines) = if transposed { (columns, rows) } else { (rows, columns) };
            let stride = size(stride)?;
            if stride < in_column {
                return Err(INVALID_VALUE);
            }
            let elements = (lines - 1) * stride + in_column;
            driver::check_buffer(address, elements * kind.bytes()).map_err(|()| MAPPING_ERROR)?;
            Ok(Matrix { address, stride, transposed })
        };
        let product = Product {
            kind,
            sizes: (m, n, k),
            left: matrix(left, left_op, m, k, left_stride)?,
            right: matrix(right, right_op, k, n, right_stride)?,
            result: matrix(result, 0, m, n, result_stride)?,
            scales: kind.scales(alpha, beta),
            late_microseconds: fault(Kind::Slow, number).map(|fault| fault.microseconds),
            corrupt: fault(Kind::Corrupt, number).is_some(),
            hangs: fault(Kind::Hang, number).is_some(),
        };
        let data = Box::into_raw(Box::new(product)).cast();
        driver::launch_host_function(stream, carry_out, data).map_err(|()| 13)
    })
}

unsafe extern "C" fn carry_out(data: *mut c_void) {
    let product = unsafe { Box::from_raw(data.cast::<Product>()) };
    unsafe { product.carry_out() };
}
