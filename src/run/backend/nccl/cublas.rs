//! cuBLAS, loaded while the program runs: which file, which version, and the one product used here. Its enums are ints, as in C
//! (cublas_api.h, library_types.h).

use super::driver::{CUdeviceptr, CUstream};
use super::library::{file_of, reason};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;

type Status = c_int;
type RawHandle = *mut c_void;
type Gemm = unsafe extern "C" fn(
    RawHandle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_void,
    *const c_void,
    c_int,
    c_int,
    *const c_void,
    c_int,
    c_int,
    *const c_void,
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
) -> Status;

const SUCCESS: Status = 0;
/// `CUBLAS_OP_N`, `CUBLAS_OP_T`.
const AS_IT_IS: c_int = 0;
const TRANSPOSED: c_int = 1;
/// `CUBLAS_GEMM_DEFAULT`: the library chooses.
const ITS_CHOICE: c_int = -1;
/// `CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION`: sums stay in the accumulator's type also where a product is split.
const SUMS_IN_FULL: c_int = 16;

/// A loaded cuBLAS. It stays loaded until the process ends.
pub(super) struct Cublas {
    /// Version and file, for the record.
    pub description: String,
    create: unsafe extern "C" fn(*mut RawHandle) -> Status,
    destroy: unsafe extern "C" fn(RawHandle) -> Status,
    set_stream: unsafe extern "C" fn(RawHandle, CUstream) -> Status,
    set_math_mode: unsafe extern "C" fn(RawHandle, c_int) -> Status,
    gemm: Gemm,
    status_name: Option<unsafe extern "C" fn(Status) -> *const c_char>,
}

impl Cublas {
    /// Loads the named file, or else the cuBLAS of the newest CUDA version that the driver supports.
    ///
    /// # Errors
    /// If there is none, with every file that was tried and where to get one, or if the file is not cuBLAS.
    pub fn load(named: Option<&Path>, driver_cuda: u32) -> Result<&'static Cublas> {
        let candidates: Vec<OsString> = match named {
            Some(path) => vec![path.into()],
            // A library of a newer CUDA than the driver supports can be loaded, but then fails at run time.
            None if driver_cuda >= 13 => vec!["libcublas.so.13".into(), "libcublas.so.12".into()],
            None => vec!["libcublas.so.12".into()],
        };
        let mut problems = Vec::new();
        for candidate in candidates {
            let name = candidate.to_string_lossy().into_owned();
            // SAFETY: loading runs the library's initialisers, which is what loading cuBLAS means.
            match unsafe { libloading::Library::new(&candidate) } {
                Ok(library) => return Cublas::of(library, &name),
                Err(error) => problems.push(reason(&error, &name)),
            }
        }
        let flag = if named.is_some() { "--cublas-library: " } else { "" };
        Err(Error::usage(format!(
            "{flag}[[compute]] on GPUs needs cuBLAS, which cannot be loaded: {}; it comes with the CUDA toolkit and with `pip install \
             nvidia-cublas` (CUDA 13) or nvidia-cublas-cu12; name its file with --cublas-library or COMMGAUGE_CUBLAS_LIBRARY",
            problems.join("; ")
        )))
    }

    fn of(handle: libloading::Library, name: &str) -> Result<&'static Cublas> {
        let missing = |symbol: &str| Error::usage(format!("{name} is not a usable cuBLAS: it has no {symbol}"));
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the type is that of cublas_api.h, with enums as ints, as in C.
                *unsafe { handle.get($name.as_bytes()) }.map_err(|_| missing($name))?
            };
        }
        let property: unsafe extern "C" fn(c_int, *mut c_int) -> Status = symbol!("cublasGetProperty");
        let mut version = [0; 3];
        for (which, part) in (0..).zip(&mut version) {
            // SAFETY: the int is ours; 0, 1 and 2 are MAJOR_VERSION, MINOR_VERSION and PATCH_LEVEL.
            let status = unsafe { property(which, part) };
            if status != SUCCESS {
                return Err(Error::usage(format!("{name} does not give its version: status {status}")));
            }
        }
        let file = file_of(property as *const c_void).unwrap_or_else(|| name.to_owned());
        let [major, minor, patch] = version;
        let library = Cublas {
            description: format!("cuBLAS {major}.{minor}.{patch} ({file}), sums in float32 or wider"),
            create: symbol!("cublasCreate_v2"),
            destroy: symbol!("cublasDestroy_v2"),
            set_stream: symbol!("cublasSetStream_v2"),
            set_math_mode: symbol!("cublasSetMathMode"),
            gemm: symbol!("cublasGemmEx"),
            // SAFETY: as above; since 11.4.
            status_name: unsafe { handle.get(b"cublasGetStatusName") }.ok().map(|symbol| *symbol),
        };
        std::mem::forget(handle);
        Ok(Box::leak(Box::new(library)))
    }

    /// Turns a status into an error that names the call.
    #[inline(always)]
    fn check(&self, status: Status, call: &str) -> Result<()> {
        if status == SUCCESS { Ok(()) } else { Err(self.failure(status, call)) }
    }

    #[cold]
    fn failure(&self, status: Status, call: &str) -> Error {
        // SAFETY: returns a pointer to a static text of the library, or null.
        let name = self.status_name.map(|of| unsafe { of(status) }).filter(|name| !name.is_null());
        let description = name.map_or_else(
            || format!("status {status}"),
            // SAFETY: not null, and null-terminated.
            |name| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
        );
        Error::environment(format!("{call} failed with {description}"))
    }
}

/// Element type of the matrices and type of the sums for cuBLAS: `cudaDataType`, `cublasComputeType_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arithmetic {
    data: c_int,
    compute: c_int,
}

/// The arithmetic of a type.
///
/// # Errors
/// Types that `cublasGemmEx` does not multiply, by name.
pub(super) fn arithmetic(element: ElementType) -> Result<Arithmetic> {
    let (data, compute) = match element {
        ElementType::Float16 => (2, 68),
        ElementType::Bfloat16 => (14, 68),
        ElementType::Float32 => (0, 68),
        ElementType::Float64 => (1, 70),
        ElementType::Fp8E4m3 | ElementType::Fp8E5m2 => {
            return Err(Error::usage(format!(
                "[[compute]]: cublasGemmEx does not multiply {element}; accepted on GPUs: float16, bfloat16, float32, float64"
            )));
        }
        whole => {
            return Err(Error::usage(format!(
                "[[compute]]: no layer of a model multiplies {whole} matrices; accepted on GPUs: float16, bfloat16, float32, float64"
            )));
        }
    };
    Ok(Arithmetic { data, compute })
}

/// A handle of cuBLAS that works on one stream.
pub(super) struct Handle {
    library: &'static Cublas,
    raw: RawHandle,
}

/// Addresses of the matrices of m x k by n x k, transposed. All are row-major, like input, weight and output of a
/// linear layer.
#[derive(Clone, Copy)]
pub(super) struct Matrices {
    pub left: CUdeviceptr,
    pub right: CUdeviceptr,
    pub result: CUdeviceptr,
    pub m: c_int,
    pub n: c_int,
    pub k: c_int,
}

impl Handle {
    /// Made in the current context, for a stream that outlives it.
    pub fn new(library: &'static Cublas, stream: CUstream) -> Result<Handle> {
        let mut raw = null_mut();
        // SAFETY: the handle is ours.
        library.check(unsafe { (library.create)(&mut raw) }, "cublasCreate")?;
        let handle = Handle { library, raw };
        // SAFETY: the handle lives, the stream is promised by the caller.
        library.check(unsafe { (library.set_stream)(raw, stream) }, "cublasSetStream")?;
        // SAFETY: the handle lives.
        library.check(unsafe { (library.set_math_mode)(raw, SUMS_IN_FULL) }, "cublasSetMathMode")?;
        Ok(handle)
    }

    /// Enqueues a product.
    ///
    /// cuBLAS is column-major, so a row-major matrix appears transposed: the n x m product is computed from the
    /// transposed right matrix and the left one unchanged (cuBLAS manual, 2.1.1 and cublasGemmEx).
    ///
    /// # Safety
    /// The matrices are device memory of sufficient size, alive until the stream has passed the product.
    #[inline]
    pub unsafe fn multiply(&self, of: &Matrices, arithmetic: Arithmetic) -> Result<()> {
        let Matrices { left, right, result, m, n, k } = *of;
        let Arithmetic { data, compute } = arithmetic;
        let (single, double) = ([1f32, 0.0], [1f64, 0.0]);
        // Scales have the type of the sums.
        let scale = |at: usize| -> *const c_void {
            if compute == 70 { (&raw const double[at]).cast() } else { (&raw const single[at]).cast() }
        };
        // SAFETY: promised by the caller; leading dimensions are the lengths of rows; the scales outlive the call, which reads them
        // (CUBLAS_POINTER_MODE_HOST, as handles begin with).
        let status = unsafe {
            (self.library.gemm)(
                self.raw,
                TRANSPOSED,
                AS_IT_IS,
                n,
                m,
                k,
                scale(0),
                right as *const c_void,
                data,
                k,
                left as *const c_void,
                data,
                k,
                scale(1),
                result as *mut c_void,
                data,
                n,
                compute,
                ITS_CHOICE,
            )
        };
        self.library.check(status, "cublasGemmEx")
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is not used again; nothing can be done about a failure.
        let _ = unsafe { (self.library.destroy)(self.raw) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_foreign_cublas_is_reported_with_where_to_get_one() {
        for (file, driver, words) in [
            (Some("/nowhere/libcublas.so.12"), 12, ["--cublas-library: ", "/nowhere/libcublas.so.12"]),
            (Some("libc.so.6"), 12, ["libc.so.6 is not a usable cuBLAS", "cublasGetProperty"]),
            (None, 12, ["libcublas.so.12: ", "pip install nvidia-cublas"]),
            (None, 13, ["libcublas.so.13: ", "libcublas.so.12: "]),
        ] {
            match Cublas::load(file.map(Path::new), driver) {
                // A machine may have one.
                Ok(_) => assert!(file.is_none()),
                Err(error) => {
                    assert_eq!(error.exit_code(), 2);
                    let text = error.to_string();
                    assert!(words.iter().all(|word| text.contains(word)), "{text}");
                }
            }
        }
    }

    #[test]
    fn types_that_are_not_multiplied_are_refused_by_name() {
        for element in ElementType::ALL {
            let multiplied = ["float16", "bfloat16", "float32", "float64"].contains(&element.name());
            match arithmetic(element) {
                Ok(_) => assert!(multiplied, "{element}"),
                Err(error) => assert!(!multiplied && error.to_string().contains(element.name()), "{error}"),
            }
        }
    }
}
