//! What a rank does by itself on its GPU, timed between two events on a held stream; among it the matrix products by cuBLAS, which is loaded
//! while the program runs: known matrices, and a check of a few elements. Its enums are ints, as in C (cublas_api.h, library_types.h).

use super::driver::{self, Arena, CUdeviceptr, CUevent, CUstream};
use super::kernels::{Bits, Content, Hold, Kernels, Stretch, Walk};
use super::library::{file_of, reason};
use crate::backend::{LocalWork, Mismatch};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Kind, Result};
use commgauge_base::host;
use commgauge_base::pattern::encode::Notation;
use commgauge_base::pattern::{self, encode};
use commgauge_model::workload::ProductShape;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::rc::Rc;
use std::time::Duration;

/// Number of distinct values of a matrix: enough that its rows look random, since power and clocks of a device depend on its data.
const NUMBERS: usize = 4096;
/// Seeds of the left matrix and the right one.
const SEEDS: [u64; 2] = [11, 23];
/// Elements of a result that are checked.
const CHECKED: u64 = 64;
/// Default time limit: twice that of the watchdog.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
const CAUTIOUS_OPERATIONS_PER_SECOND: f64 = 0.5e9;

/// A product whose matrices are in device memory.
pub(super) struct DeviceProduct {
    /// Present until drop.
    handle: Option<Handle>,
    matrices: Matrices,
    arithmetic: Arithmetic,
    shape: ProductShape,
    held: HeldStream,
    events: [CUevent; 2],
    /// Whether the first product has run, in which cuBLAS loads kernels and reserves memory.
    is_loaded: bool,
    /// Small whole numbers from which the elements of each matrix are drawn.
    numbers: [Vec<i8>; 2],
    /// Memory of the matrices and the numbers.
    memory: [Arena; 4],
}

impl DeviceProduct {
    /// Reserves and fills the matrices.
    ///
    /// # Errors
    /// If cuBLAS does not support the type or size, or the memory cannot be allocated.
    pub fn new(shape: &ProductShape, library: &'static Cublas, context: &OwnWork) -> Result<DeviceProduct> {
        let arithmetic = arithmetic(shape.element_type)?;
        let (m, n, k) = (length(shape.m)?, length(shape.n)?, length(shape.k)?);
        let mut memory: [Arena; 4] = Default::default();
        let elements = [(shape.m, shape.k), (shape.n, shape.k), (shape.m, shape.n)].map(|(a, b)| a.saturating_mul(b));
        for (arena, elements) in memory.iter_mut().zip(elements) {
            arena.reserve(elements.saturating_mul(shape.element_type.size()))?;
        }
        memory[3].reserve((2 * NUMBERS * 8) as u64)?;
        let numbers = SEEDS.map(numbers);
        let bits = numbers.iter().flatten().map(|number| encode::bits(shape.element_type, f64::from(*number)));
        let bits: Vec<u8> = bits.flat_map(u64::to_le_bytes).collect();
        // SAFETY: room was reserved for all of them.
        unsafe { driver::copy_to_device(memory[3].address(), &bits, context.stream)? };
        for (index, elements) in elements.into_iter().enumerate() {
            // An element that no product overwrites must be detected: the result is initialised with a large number.
            let (which, written) = (index % 2, if index == 2 { Bits::TurnedOver } else { Bits::AsTheyAre });
            let address = memory[3].address() + (which * NUMBERS * 8) as u64;
            let content = Content::Column { address, length: NUMBERS as u32, first: 0 };
            let (address, element_bytes, seed) = (memory[index].address(), shape.element_type.size(), SEEDS[which]);
            let stretch = Stretch { address, elements, element_bytes, seed, content };
            // SAFETY: room was reserved for all elements, and the numbers are there.
            unsafe { context.kernels.fill(stretch, Walk::ONE, written, context.stream)? };
        }
        let [left, right, result] = [0, 1, 2].map(|index: usize| memory[index].address());
        let cautious = Duration::from_secs_f64((operations(shape) / CAUTIOUS_OPERATIONS_PER_SECOND).min(1e6));
        let work = format!("product of {} x {} by {} x {} {}", shape.m, shape.k, shape.k, shape.n, shape.element_type);
        let product = DeviceProduct {
            handle: Some(Handle::new(library, context.stream)?),
            matrices: Matrices { left, right, result, m, n, k },
            arithmetic,
            shape: shape.clone(),
            held: HeldStream::new(context, &work, DEFAULT_TIMEOUT + cautious),
            events: [driver::create_event()?, driver::create_event()?],
            is_loaded: false,
            numbers,
            memory,
        };
        product.held.wait(context.stream)?;
        Ok(product)
    }

    /// The stream is held until the product is enqueued: otherwise the device would wait for the host between the first event
    /// and the product, which for small ones is as long as the product. Not for the first one: loading kernels and reserving
    /// memory may wait for the device.
    fn run_once(&mut self) -> Result<u64> {
        let [begin, end] = self.events;
        self.held.run(self.is_loaded, &[self.held.stream], || self.enqueue())?;
        self.is_loaded = true;
        Ok(driver::nanoseconds_between(begin, end)?.round() as u64)
    }

    fn enqueue(&self) -> Result<()> {
        let [begin, end] = self.events;
        driver::record(begin, self.held.stream)?;
        if let Some(handle) = &self.handle {
            // SAFETY: the matrices were reserved for this shape and live as long as this; the stream is waited for by the caller.
            unsafe { handle.multiply(&self.matrices, self.arithmetic)? };
        }
        driver::record(end, self.held.stream)
    }

    /// Compares one element; if it differs, the expected and the actual value.
    fn check_element(&self, element: u64) -> Result<Option<(String, String)>> {
        let ProductShape { n, k, element_type: of, .. } = self.shape;
        let (row, column) = (element / n, element % n);
        let number =
            |which: usize, at: u64| i64::from(self.numbers[which][pattern::entry_at(SEEDS[which], at, NUMBERS)]);
        // Exact in the accumulator, and rounded once when it is stored.
        let sum: i64 = (0..k).map(|term| number(0, row * k + term) * number(1, column * k + term)).sum();
        let expected = encode::bits(of, sum as f64);
        let mut bytes = [0u8; 8];
        let size = of.size() as usize;
        // SAFETY: the element is inside the result.
        unsafe {
            driver::copy_to_host(&mut bytes[..size], self.matrices.result + element * of.size(), self.held.stream)?
        };
        let got = u64::from_le_bytes(bytes);
        // A sum of 0 may have either sign.
        let same = got == expected || encode::value(of, got) == encode::value(of, expected);
        let show = |bits: u64| encode::show(of, Notation::Number, bits);
        Ok((!same).then(|| (show(expected), show(got))))
    }
}

impl LocalWork for DeviceProduct {
    fn run(&mut self) -> Result<u64> {
        self.run_once().map_err(|error| self.held.with_place(&error))
    }

    fn check(&self) -> Result<Option<Mismatch>> {
        let elements = self.shape.m.saturating_mul(self.shape.n);
        let mut found: Option<Mismatch> = None;
        for index in 0..CHECKED {
            // Spread over the whole result, including the first and the last.
            let element = (u128::from(elements - 1) * u128::from(index) / u128::from(CHECKED - 1)) as u64;
            let wrong = self.check_element(element).map_err(|error| self.held.with_place(&error))?;
            if let Some((expected, got)) = wrong {
                let first = Mismatch { rank: self.held.rank, element, expected, got, count: 0, call: None };
                found.get_or_insert(first).count += 1;
            }
        }
        Ok(found)
    }
}

impl Drop for DeviceProduct {
    fn drop(&mut self) {
        if self.held.given_up.get() {
            // Destroying the handle and freeing memory would wait for the device, which does not respond. The process
            // ends soon.
            std::mem::forget(self.handle.take());
            return;
        }
        // This fails only if the device is lost, which the next call reports.
        self.memory.iter_mut().for_each(|arena| drop(arena.release()));
        self.events.into_iter().for_each(driver::destroy_event);
    }
}

/// From -3 to 3, evenly.
fn numbers(seed: u64) -> Vec<i8> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..NUMBERS).map(|_| random.random_range(-3..=3)).collect()
}

fn length(value: u64) -> Result<c_int> {
    c_int::try_from(value).ok().filter(|length| *length > 0).ok_or_else(|| {
        Error::usage(format!(
            "cublasGemmEx takes matrices of up to {} rows, not of {value}; choose a shorter sequence",
            c_int::MAX
        ))
    })
}

/// A multiplication and an addition for each term of each sum.
fn operations(shape: &ProductShape) -> f64 {
    2.0 * shape.m as f64 * shape.n as f64 * shape.k as f64
}

/// What a rank needs for its products and copies.
pub(super) struct OwnWork<'a> {
    pub kernels: &'a Kernels,
    pub hold: &'a Rc<RefCell<Hold>>,
    pub stream: CUstream,
    pub rank: u32,
    /// For errors.
    pub place: &'a str,
    /// The PCI address of the GPU.
    pub pci: &'a str,
    /// Time limit of one, if the user sets it.
    pub deadline: Option<Duration>,
}

/// The stream on which a rank times work of its own: held until all of it is enqueued, and waited for until a deadline.
pub(super) struct HeldStream {
    pub stream: CUstream,
    pub rank: u32,
    /// Set once the device did not respond in time: freeing memory would wait for it.
    pub given_up: Cell<bool>,
    pub kernels: Kernels,
    hold: Rc<RefCell<Hold>>,
    deadline: Duration,
    /// The place and the work, for errors.
    what: String,
}

impl HeldStream {
    /// The stream of a context, for work in words; `deadline` applies unless the user sets one.
    pub fn new(context: &OwnWork, work: &str, deadline: Duration) -> HeldStream {
        HeldStream {
            stream: context.stream,
            rank: context.rank,
            given_up: Cell::new(false),
            kernels: *context.kernels,
            hold: context.hold.clone(),
            deadline: context.deadline.unwrap_or(deadline),
            what: format!("{}: {work}", context.place),
        }
    }

    /// Enqueues work, behind a held stream unless the work itself waits for the host, and waits for its streams.
    pub fn run(&self, is_held: bool, streams: &[CUstream], enqueue: impl FnOnce() -> Result<()>) -> Result<()> {
        if is_held {
            self.hold.borrow_mut().until_released(&self.kernels, self.stream)?;
        }
        let enqueued = enqueue();
        // Also after an error: otherwise the device would stay blocked for a long time.
        self.hold.borrow_mut().release_now();
        enqueued?;
        streams.iter().try_for_each(|stream| self.wait(*stream))?;
        if is_held && self.hold.borrow().gave_up() {
            return Err(Error::environment(
                "the host did not enqueue it while the stream was held, so its time would include the launch; was this process stopped?",
            ));
        }
        Ok(())
    }

    pub fn wait(&self, stream: CUstream) -> Result<()> {
        let begun = host::now_nanoseconds();
        while !driver::is_done(stream)? {
            if u128::from(host::now_nanoseconds() - begun) > self.deadline.as_nanos() {
                self.given_up.set(true);
                let seconds = self.deadline.as_secs_f64();
                return Err(Kind::Hang(format!("not done within {seconds} s; aborted")).into());
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    #[cold]
    pub fn with_place(&self, error: &Error) -> Error {
        Error::from_exit_code(error.exit_code(), format!("{}: {error}", self.what))
    }
}

type Status = c_int;
type RawHandle = *mut c_void;
type I = c_int;
type P = *const c_void;
type Gemm = unsafe extern "C" fn(RawHandle, I, I, I, I, I, P, P, I, I, P, I, I, P, *mut c_void, I, I, I, I) -> Status;

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
        _ => {
            return Err(Error::usage(format!(
                "[[compute]]: cublasGemmEx multiplies no {element} matrices; accepted on GPUs: float16, bfloat16, float32, float64"
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
        let scale = |at: usize| -> P {
            if compute == 70 { (&raw const double[at]).cast() } else { (&raw const single[at]).cast() }
        };
        let (gemm, one, zero) = (self.library.gemm, scale(0), scale(1));
        let (a, b, c) = (right as P, left as P, result as *mut c_void);
        // SAFETY: promised by the caller; leading dimensions are the lengths of rows; the scales outlive the call, which reads them
        // (CUBLAS_POINTER_MODE_HOST, as handles begin with).
        let status = unsafe {
            gemm(
                self.raw, TRANSPOSED, AS_IT_IS, n, m, k, one, a, data, k, b, data, k, zero, c, data, n, compute,
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
    use commgauge_base::element::ElementType;

    #[test]
    fn sums_of_the_longest_layers_stay_exact_in_their_accumulator_and_finite_in_every_type() {
        let [left, right] = SEEDS.map(numbers);
        let at =
            |which: usize, numbers: &[i8], index| f64::from(numbers[pattern::entry_at(SEEDS[which], index, NUMBERS)]);
        // The longest sum of the shipped models is that of an undivided feed-forward layer.
        let k = 53_248;
        for (row, column) in [(0, 0), (1, 0), (511, 1023), (8191, 16_383)] {
            let mut largest = 0f64;
            let sum = (0..k).fold(0.0, |sum, term| {
                let next = sum + at(0, &left, row * k + term) * at(1, &right, column * k + term);
                largest = largest.max(f64::abs(next));
                next
            });
            assert!(largest < 16_777_216.0, "beyond 2^24 a float32 has gaps");
            for element in [ElementType::Float16, ElementType::Bfloat16, ElementType::Float32] {
                assert!(encode::value(element, encode::bits(element, sum)).is_finite(), "{element}: {sum}");
            }
        }
    }
}

#[cfg(test)]
mod library_tests {
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
