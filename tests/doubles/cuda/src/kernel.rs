//! The kernels that were compiled for the CPU, and launching them.

use crate::answer::{Answer, INVALID_HANDLE, INVALID_VALUE, answer};
use crate::context::current_device;
use crate::device::MULTIPROCESSORS;
use crate::handles::Handles;
use crate::stream::{Work, stream_of, wait_for_kernels};
use settings::SETTINGS;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, LazyLock};

/// A kernel as `kernels.cpp` lists it.
#[repr(C)]
pub struct Kernel {
    name: *const c_char,
    run: unsafe extern "C" fn(*const *mut c_void, u64),
    parameters: u32,
    bytes: [u32; 8],
}

// SAFETY: they are constants of the C++ part.
unsafe impl Sync for Kernel {}
// SAFETY: likewise.
unsafe impl Send for Kernel {}

unsafe extern "C" {
    fn commgauge_kernels(count: *mut u64) -> *const Kernel;
}

/// A kernel of a loaded module.
pub struct Function {
    kernel: &'static Kernel,
    /// That of its module's context.
    device: c_int,
    most_shared_bytes: AtomicI32,
    /// Its code is on the device, where it comes at the latest at the first launch (CUDA programming guide, "Lazy Loading").
    is_loaded: AtomicBool,
}

impl Function {
    /// Loads its code, which waits for all that runs on the device.
    fn load(&self) -> Answer {
        if self.is_loaded.swap(true, Ordering::SeqCst) { Ok(()) } else { wait_for_kernels(current_device()?) }
    }
}

pub static FUNCTIONS: Handles<Function> = Handles::new();

/// Room for a parameter, at most a structure of five numbers.
type Parameter = [u64; 5];

/// A launch with its parameters, as they were when it was called.
pub struct Launch {
    kernel: &'static Kernel,
    parameters: Vec<Parameter>,
    threads: u64,
}

static LAUNCHES_BLOCK: LazyLock<bool> =
    LazyLock::new(|| std::env::var("CUDA_LAUNCH_BLOCKING").is_ok_and(|value| !["", "0"].contains(&value.trim())));
const MOST_SHARED_BYTES: c_int = 48 << 10;
const MOST_SHARED_BYTES_IF_ASKED: c_int = 227 << 10;
const ATTRIBUTE_MOST_DYNAMIC_SHARED: c_int = 8;

pub fn find(name: &str, device: c_int) -> Option<Function> {
    let mut count = 0;
    let kernels = unsafe { std::slice::from_raw_parts(commgauge_kernels(&mut count), count as usize) };
    let kernel = kernels.iter().find(|kernel| unsafe { CStr::from_ptr(kernel.name) }.to_str() == Ok(name))?;
    let most_shared_bytes = AtomicI32::new(MOST_SHARED_BYTES);
    Some(Function { kernel, device, most_shared_bytes, is_loaded: AtomicBool::new(false) })
}

impl Launch {
    pub fn run(&self) {
        let places: Vec<*mut c_void> = self.parameters.iter().map(|one| one.as_ptr() as *mut c_void).collect();
        unsafe { (self.kernel.run)(places.as_ptr(), self.threads) }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    stream: usize,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_int {
    answer(|| {
        let function = FUNCTIONS.get(function)?;
        let stream = stream_of(stream)?;
        let one_dimension = [grid_y, grid_z, block_y, block_z] == [1; 4];
        let shared = i64::from(shared_bytes) <= i64::from(function.most_shared_bytes.load(Ordering::Relaxed));
        if !one_dimension || grid_x == 0 || !(1..=1024).contains(&block_x) || !shared || !extra.is_null() {
            return Err(INVALID_VALUE);
        }
        // Of another device than the stream (CUDA programming guide, "Stream and Event Behavior"), or of another context's module.
        if current_device()? != stream.device || function.device != stream.device {
            return Err(INVALID_HANDLE);
        }
        function.load()?;
        let kernel = function.kernel;
        let copied = (0..kernel.parameters as usize).map(|index| {
            let mut copy: Parameter = [0; 5];
            let from = parameters.add(index).read().cast::<u8>();
            copy.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(from, kernel.bytes[index] as usize);
            copy
        });
        let threads = u64::from(grid_x) * u64::from(block_x);
        let mut parameters: Vec<Parameter> = copied.collect();
        if let Some(longest) = SETTINGS.longest_hold.filter(|_| CStr::from_ptr(kernel.name) == c"hold_for_flag") {
            parameters[2][0] = parameters[2][0].min(longest);
        }
        stream.enqueue(Work::Kernel(Arc::new(Launch { kernel, parameters, threads })));
        // A debugging aid of the driver: a kernel that waits for its own host then deadlocks.
        let is_captured = stream.capture.lock().unwrap().is_some();
        if *LAUNCHES_BLOCK && !is_captured { stream.synchronize() } else { Ok(()) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchCooperativeKernel(
    function: usize,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    stream: usize,
    parameters: *mut *mut c_void,
) -> c_int {
    let none = std::ptr::null_mut();
    cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, none)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: usize) -> c_int {
    answer(|| {
        let function = FUNCTIONS.get(function)?;
        *value = match attribute {
            // Threads of a block; registers; PTX and binary version.
            0 => 1024,
            4 => 32,
            5 => 65,
            6 => 75,
            ATTRIBUTE_MOST_DYNAMIC_SHARED => function.most_shared_bytes.load(Ordering::Relaxed),
            _ => 0,
        };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetAttribute(function: usize, attribute: c_int, value: c_int) -> c_int {
    answer(|| {
        let function = FUNCTIONS.get(function).map_err(|_| INVALID_HANDLE)?;
        if attribute == ATTRIBUTE_MOST_DYNAMIC_SHARED {
            if !(0..=MOST_SHARED_BYTES_IF_ASKED).contains(&value) {
                return Err(INVALID_VALUE);
            }
            function.most_shared_bytes.store(value, Ordering::Relaxed);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: usize,
    threads: c_int,
    _shared_bytes: usize,
) -> c_int {
    answer(|| {
        FUNCTIONS.get(function)?;
        *blocks = if threads > 0 { (2048 / threads).min(32) } else { return Err(INVALID_VALUE) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxPotentialBlockSize(
    grid: *mut c_int,
    block: *mut c_int,
    function: usize,
    _shared_of_block: usize,
    _shared_bytes: usize,
    _most: c_int,
) -> c_int {
    answer(|| {
        FUNCTIONS.get(function)?;
        (*grid, *block) = (2 * MULTIPROCESSORS, 1024);
        Ok(())
    })
}
