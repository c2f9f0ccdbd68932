//! The CUDA driver calls used here, each checked and named, with the memory and the graphs made by them.
//!
//! Driver functions, not the runtime's: pointers are addresses, and the primary context is the one that NCCL uses too.

pub(super) use cudarc::driver::sys::{CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream};

use super::abi::SUCCESS;
use super::library::{Library, file_of};
use crate::backend::mpi::Rotation;
use crate::device_probe::advice;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_base::variant::Variant;
use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute, CUfunction_attribute, CUgraph, CUgraphExec, CUstreamCaptureMode,
    CUuuid,
};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

/// `CUresult`.
pub(super) type Code = c_int;

/// `CUDA_SUCCESS`.
pub(super) const CUDA_SUCCESS: Code = 0;
/// `CUDA_ERROR_NOT_READY`.
pub(super) const NOT_READY: Code = 600;
/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
pub(super) const ACCESS_ALREADY_ENABLED: Code = 704;
/// `CUDA_ERROR_NOT_FOUND`, also the result for a function that this driver lacks.
const NOT_FOUND: Code = 500;

macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => { $(
        /// The function of that name in the CUDA driver API.
        ///
        /// # Safety
        /// As in the driver's documentation; the driver was found ([`start`]).
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's names and arguments")]
        #[inline]
        pub(super) unsafe fn $name($($argument: $kind),*) -> Code {
            static FOUND: OnceLock<Option<unsafe extern "C" fn($($kind),*) -> Code>> = OnceLock::new();
            let found = FOUND.get_or_init(|| {
                // SAFETY: the type is that of cuda.h, with the returned enum as an int, as in C.
                unsafe { sys::culib().get(concat!(stringify!($name), "\0").as_bytes()).ok().map(|symbol| *symbol) }
            });
            match found {
                // SAFETY: promised by the caller.
                Some(function) => unsafe { function($($argument),*) },
                None => NOT_FOUND,
            }
        }
    )* };
}

functions! {
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDriverGetVersion(version: *mut c_int);
    fn cuDeviceGet(device: *mut CUdevice, number: c_int);
    fn cuDeviceGetAttribute(value: *mut c_int, which: CUdevice_attribute, device: CUdevice);
    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice);
    fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    fn cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);
    fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);
    fn cuCtxSetCurrent(context: CUcontext);
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
    fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    fn cuMemFree_v2(address: CUdeviceptr);
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemFreeHost(here: *mut c_void);
    fn cuMemHostAlloc(here: *mut *mut c_void, bytes: usize, flags: c_uint);
    fn cuMemHostGetDevicePointer_v2(there: *mut CUdeviceptr, here: *mut c_void, flags: c_uint);
    fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
    fn cuStreamDestroy_v2(stream: CUstream);
    fn cuStreamQuery(stream: CUstream);
    fn cuStreamSynchronize(stream: CUstream);
    fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode);
    fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    fn cuEventCreate(event: *mut CUevent, flags: c_uint);
    fn cuEventDestroy_v2(event: CUevent);
    fn cuEventRecord(event: CUevent, stream: CUstream);
    fn cuEventQuery(event: CUevent);
    fn cuEventElapsedTime(milliseconds: *mut f32, first: CUevent, second: CUevent);
    fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    fn cuFuncSetAttribute(function: CUfunction, which: CUfunction_attribute, value: c_int);
    fn cuLaunchKernel(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void);
    fn cuGraphInstantiateWithFlags(executable: *mut CUgraphExec, graph: CUgraph, flags: u64);
    fn cuGraphDestroy(graph: CUgraph);
    fn cuGraphLaunch(executable: CUgraphExec, stream: CUstream);
    fn cuGraphUpload(executable: CUgraphExec, stream: CUstream);
    fn cuGraphExecDestroy(executable: CUgraphExec);
}

/// The message if the driver's library is missing.
const NO_DRIVER: &str = "no CUDA driver: the loader does not find libcuda.so.1; NVIDIA's driver provides it";

/// Turns a result into an error that names the call.
#[inline(always)]
pub(super) fn check(code: Code, call: &'static str) -> Result<()> {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(failure(code, call)) }
}

/// A code as an integer, since newer drivers return newer codes.
#[cold]
fn failure(code: c_int, call: &'static str) -> Error {
    let description: Vec<String> =
        [c"cuGetErrorName", c"cuGetErrorString"].into_iter().filter_map(|of| status_text(code, of)).collect();
    let description = if description.is_empty() { format!("error {code}") } else { description.join(": ") };
    let hint = advice(code).map_or_else(String::new, |hint| format!("; {hint}"));
    Error::environment(format!("{call} failed with {description}{hint}"))
}

fn status_text(code: c_int, function: &CStr) -> Option<String> {
    type TextFunction = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;
    let mut text = null();
    // SAFETY: both take the address of a pointer, which they set to a text that lasts, or to null (CUDA driver API, 6.1).
    unsafe {
        let of = sys::culib().get::<TextFunction>(function.to_bytes_with_nul()).ok()?;
        of(code, &mut text);
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}

/// Starts the driver and counts the visible devices.
///
/// # Errors
/// If there is no driver, or it finds no device.
pub(super) fn start() -> Result<u32> {
    if let Ok(value) = std::env::var("CUDA_LAUNCH_BLOCKING")
        && !["", "0"].contains(&value.trim())
    {
        return Err(Error::usage(format!(
            "CUDA_LAUNCH_BLOCKING={value} makes every launch synchronous: calls could not start together, and their times would not be those of a job; unset it"
        )));
    }
    // SAFETY: loads the library and unloads it; called first, because every other call panics if it is missing.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::usage(NO_DRIVER));
    }
    // The driver may return any number, which the enum of the bindings does not allow.
    type Init = unsafe extern "C" fn(c_uint) -> c_int;
    // SAFETY: the library is there, and cuInit takes flags, of which there are none (CUDA driver API, 6.3).
    let started = unsafe { sys::culib().get::<Init>(b"cuInit\0").map(|init| init(0)) };
    let started = started.map_err(|_| Error::usage("libcuda is not a CUDA driver: it has no cuInit"))?;
    let mut devices = 0;
    let counted = match started {
        // SAFETY: the int is ours.
        0 => unsafe { cuDeviceGetCount(&mut devices) },
        refused => refused,
    };
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").map(|list| format!(" (CUDA_VISIBLE_DEVICES={list})"));
    let visible = visible.unwrap_or_default();
    const NO_DEVICE: c_int = sys::CUresult::CUDA_ERROR_NO_DEVICE as c_int;
    match counted {
        0 if devices > 0 => Ok(devices as u32),
        0 | NO_DEVICE => Err(Error::usage(format!("the CUDA driver finds no device{visible}"))),
        refused => Err(Error::usage(format!("{}{visible}", failure(refused, "cuInit")))),
    }
}

/// The file from which the driver was loaded.
pub(super) fn file() -> String {
    // SAFETY: the library was loaded by `start`; nothing is called in it.
    let address = unsafe { sys::culib().get::<*const c_void>(b"cuInit").map(|symbol| *symbol) };
    address.ok().and_then(file_of).unwrap_or_else(|| "libcuda.so".to_owned())
}

/// The newest CUDA version that the driver supports, such as `(12, 8)`.
pub(super) fn version() -> Result<(i32, i32)> {
    let mut version = 0;
    // SAFETY: the int is ours.
    check(unsafe { cuDriverGetVersion(&mut version) }, "cuDriverGetVersion")?;
    Ok((version / 1000, version % 1000 / 10))
}

pub(super) fn allocate(bytes: usize) -> Result<CUdeviceptr> {
    let mut address = 0;
    // SAFETY: the address is ours. Not from a pool, so that it may be registered with NCCL.
    check(unsafe { cuMemAlloc_v2(&mut address, bytes) }, "cuMemAlloc")?;
    Ok(address)
}

/// # Safety
/// The address is from [`allocate`], and nothing enqueued uses it.
pub(super) unsafe fn free(address: CUdeviceptr) -> Result<()> {
    // SAFETY: promised by the caller.
    check(unsafe { cuMemFree_v2(address) }, "cuMemFree")
}

/// Free and total bytes of the current device.
pub(super) fn memory() -> Result<(u64, u64)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both are ours.
    check(unsafe { cuMemGetInfo_v2(&mut free, &mut total) }, "cuMemGetInfo")?;
    Ok((free as u64, total as u64))
}

/// Copies to the device, in the order of the stream; returns when the host's bytes may change.
///
/// # Safety
/// The device memory has room for the bytes.
pub(super) unsafe fn copy_to_device(to: CUdeviceptr, from: &[u8], stream: CUstream) -> Result<()> {
    if from.is_empty() {
        return Ok(());
    }
    // SAFETY: the slice is read before the stream is synchronised below; room is promised by the caller.
    check(unsafe { cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), stream) }, "cuMemcpyHtoDAsync")?;
    synchronize(stream)
}

/// Copies to the host in stream order; returns when the bytes have arrived.
///
/// # Safety
/// The device memory has at least that many bytes.
pub(super) unsafe fn copy_to_host(to: &mut [u8], from: CUdeviceptr, stream: CUstream) -> Result<()> {
    if to.is_empty() {
        return Ok(());
    }
    // SAFETY: the slice is written before the stream is synchronised below; the source is promised by the caller.
    check(unsafe { cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), stream) }, "cuMemcpyDtoHAsync")?;
    synchronize(stream)
}

/// Waits until a stream is idle.
pub(super) fn synchronize(stream: CUstream) -> Result<()> {
    // SAFETY: the stream lives.
    check(unsafe { cuStreamSynchronize(stream) }, "cuStreamSynchronize")
}

/// A stream for calls: it does not synchronise with other streams, and its kernels are scheduled before those of a
/// [`create_computing_stream`].
///
/// Without the priority, all blocks of kernels that were launched first are placed first (CUDA programming guide,
/// "Stream priorities"), and no call would begin before the concurrent computing is nearly over.
pub(super) fn create_stream() -> Result<CUstream> {
    create_stream_of(priorities()?.1)
}

/// A stream for computing concurrently with calls.
pub(super) fn create_computing_stream() -> Result<CUstream> {
    create_stream_of(priorities()?.0)
}

/// The least and the greatest priority that streams of the current device can have; the greatest is the lowest number.
fn priorities() -> Result<(c_int, c_int)> {
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: both are ours.
    check(unsafe { cuCtxGetStreamPriorityRange(&mut least, &mut greatest) }, "cuCtxGetStreamPriorityRange")?;
    Ok((least, greatest))
}

fn create_stream_of(priority: c_int) -> Result<CUstream> {
    let mut stream = null_mut();
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
    // SAFETY: the handle is ours.
    check(unsafe { cuStreamCreateWithPriority(&mut stream, flags, priority) }, "cuStreamCreateWithPriority")?;
    Ok(stream)
}

/// Destroys a stream; work that is already on it still completes.
pub(super) fn destroy_stream(stream: CUstream) {
    // SAFETY: the handle is ours and not used again (CUDA driver API, 6.18).
    let _ = unsafe { cuStreamDestroy_v2(stream) };
}

/// Whether a stream is idle.
#[inline]
pub(super) fn is_done(stream: CUstream) -> Result<bool> {
    // SAFETY: the stream lives.
    match unsafe { cuStreamQuery(stream) } {
        NOT_READY => Ok(false),
        code => check(code, "cuStreamQuery").map(|()| true),
    }
}

/// An event with timing enabled.
pub(super) fn create_event() -> Result<CUevent> {
    let mut event = null_mut();
    let flags = sys::CUevent_flags::CU_EVENT_DEFAULT as c_uint;
    // SAFETY: the handle is ours.
    check(unsafe { cuEventCreate(&mut event, flags) }, "cuEventCreate")?;
    Ok(event)
}

pub(super) fn destroy_event(event: CUevent) {
    // SAFETY: the handle is ours and not used again.
    let _ = unsafe { cuEventDestroy_v2(event) };
}

#[inline(always)]
pub(super) fn record(event: CUevent, stream: CUstream) -> Result<()> {
    // SAFETY: both live.
    check(unsafe { cuEventRecord(event, stream) }, "cuEventRecord")
}

/// Whether the device has reached an event.
#[inline]
pub(super) fn is_recorded(event: CUevent) -> Result<bool> {
    // SAFETY: the event lives.
    match unsafe { cuEventQuery(event) } {
        NOT_READY => Ok(false),
        code => check(code, "cuEventQuery").map(|()| true),
    }
}

/// Makes a stream wait for an event that was recorded on another.
#[inline]
pub(super) fn wait_for(stream: CUstream, event: CUevent) -> Result<()> {
    // SAFETY: both live; no flags.
    check(unsafe { cuStreamWaitEvent(stream, event, 0) }, "cuStreamWaitEvent")
}

/// Nanoseconds from one event that the device has reached to a later one.
pub(super) fn nanoseconds_between(first: CUevent, second: CUevent) -> Result<f64> {
    let mut milliseconds = 0f32;
    // SAFETY: both events exist and were reached; the output is a local variable.
    check(unsafe { cuEventElapsedTime(&mut milliseconds, first, second) }, "cuEventElapsedTime")?;
    Ok(f64::from(milliseconds) * 1e6)
}

/// Host memory mapped into the device: its address on both.
pub(super) fn allocate_shared(bytes: usize) -> Result<(*mut c_void, CUdeviceptr)> {
    let (mut here, mut there) = (null_mut(), 0);
    // CU_MEMHOSTALLOC_PORTABLE and _DEVICEMAP. Not write-combined, which the host reads slowly.
    const FLAGS: c_uint = 1 | 2;
    // SAFETY: both addresses are local; the second call uses the result of the first.
    unsafe {
        check(cuMemHostAlloc(&mut here, bytes, FLAGS), "cuMemHostAlloc")?;
        check(cuMemHostGetDevicePointer_v2(&mut there, here, 0), "cuMemHostGetDevicePointer")?;
    }
    Ok((here, there))
}

/// # Safety
/// Nothing uses it any longer.
pub(super) unsafe fn free_shared(here: *mut c_void) -> Result<()> {
    // SAFETY: promised by the caller.
    check(unsafe { cuMemFreeHost(here) }, "cuMemFreeHost")
}

/// Copies between any two addresses of the host or a device. With pageable host memory the call itself may wait.
///
/// # Safety
/// Both have this many bytes until the stream is done.
pub(super) unsafe fn copy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> Result<()> {
    // SAFETY: promised by the caller.
    check(unsafe { cuMemcpyAsync(to, from, bytes, stream) }, "cuMemcpyAsync")
}

/// Enables access from the current context to the memory of another device.
pub(super) fn enable_access_to(context: sys::CUcontext) -> Result<()> {
    // SAFETY: both contexts are retained; no flags.
    match unsafe { cuCtxEnablePeerAccess(context, 0) } {
        ACCESS_ALREADY_ENABLED => Ok(()),
        code => check(code, "cuCtxEnablePeerAccess"),
    }
}

/// Loads a module from null-terminated PTX.
pub(super) fn load_module(ptx: &CStr) -> Result<CUmodule> {
    let mut module = null_mut();
    // SAFETY: the handle is ours; the text ends with a zero (CUDA driver API, 6.10).
    check(unsafe { cuModuleLoadData(&mut module, ptx.as_ptr().cast()) }, "cuModuleLoadData")?;
    Ok(module)
}

pub(super) fn kernel(module: CUmodule, name: &CStr) -> Result<CUfunction> {
    let mut function = null_mut();
    // SAFETY: the module lives, the handle is ours.
    check(unsafe { cuModuleGetFunction(&mut function, module, name.as_ptr()) }, "cuModuleGetFunction")?;
    Ok(function)
}

/// One-dimensional blocks, and the dynamic shared memory of each.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    pub blocks: u32,
    pub threads: u32,
    pub shared_bytes: u32,
}

/// Launches a kernel.
///
/// # Safety
/// The parameters are those of the kernel, in order, and what they point to outlives its run.
#[inline]
pub(super) unsafe fn launch(
    of: CUfunction,
    grid: Grid,
    stream: CUstream,
    parameters: &mut [*mut c_void],
) -> Result<()> {
    let Grid { blocks, threads, shared_bytes } = grid;
    let parameters = parameters.as_mut_ptr();
    // SAFETY: promised by the caller; the driver copies the parameters before it returns.
    let code = unsafe { cuLaunchKernel(of, blocks, 1, 1, threads, 1, 1, shared_bytes, stream, parameters, null_mut()) };
    check(code, "cuLaunchKernel")
}

/// Allows a kernel this much dynamic shared memory.
pub(super) fn allow_shared_bytes(function: CUfunction, bytes: c_int) -> Result<()> {
    let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: the function lives.
    check(unsafe { cuFuncSetAttribute(function, attribute, bytes) }, "cuFuncSetAttribute")
}

// Device memory that grows and is reused between cases.

/// Plain device memory, never pooled or managed, or NCCL's own; freed when it must grow, and by the driver when the process ends.
///
/// Memory on which a graph captured calls is kept until the communicators are gone ([`Arena::release_kept`]): NCCL registers it by its
/// address for the graph, and withdraws that only at some later group of calls (every eleventh looks for graphs that are gone:
/// `GROUP_MAX_RECLAIM_STEPS` in its `src/group.cc`). Until then it mistakes any allocation at that address for the old memory, and reads
/// and writes the other ranks' old memory: with NCCL 2.30.7 sums lacked a rank.
#[derive(Default)]
pub(super) struct Arena {
    memory: Memory,
    is_captured: bool,
    kept: Vec<Memory>,
    /// NCCL, if it allocates further memory instead of the driver, as required for registered buffers and symmetric windows.
    from_nccl: Option<&'static Library>,
}

/// One allocation; none if the address is 0.
#[derive(Clone, Copy, Default)]
struct Memory {
    address: CUdeviceptr,
    bytes: usize,
    from_nccl: Option<&'static Library>,
}

impl Arena {
    /// Sets the allocator of further memory: the driver, or NCCL. Memory of the other allocator is freed.
    pub fn take_from(&mut self, nccl: Option<&'static Library>) -> Result<()> {
        self.from_nccl = nccl;
        if self.memory.is_from(nccl) { Ok(()) } else { self.release() }
    }

    /// At least `bytes` bytes. Their content is left over from earlier use.
    ///
    /// # Errors
    /// If the device has not enough memory; the previous memory is then freed all the same.
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.reserve_where(bytes, |length, wanted| length >= wanted)
    }

    /// Exactly this many bytes, as on the other ranks.
    pub fn reserve_exactly(&mut self, bytes: u64) -> Result<()> {
        self.reserve_where(bytes, |length, wanted| length == wanted)
    }

    fn reserve_where(&mut self, bytes: u64, fits: impl Fn(usize, usize) -> bool) -> Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(1);
        if fits(self.memory.bytes, bytes) {
            return Ok(());
        }
        self.release()?;
        let known = self.kept.iter().position(|kept| kept.is_from(self.from_nccl) && fits(kept.bytes, bytes));
        (self.memory, self.is_captured) = match known {
            Some(index) => (self.kept.swap_remove(index), true),
            None => (Memory::allocate(bytes, self.from_nccl)?, false),
        };
        Ok(())
    }

    /// Notes that a graph captures calls on this memory.
    pub fn note_capture(&mut self) {
        self.is_captured = true;
    }

    /// Frees the memory, or keeps it if a graph captured calls on it.
    pub fn release(&mut self) -> Result<()> {
        let memory = std::mem::take(&mut self.memory);
        if std::mem::take(&mut self.is_captured) && memory.address != 0 {
            self.kept.push(memory);
            return Ok(());
        }
        memory.free()
    }

    /// Frees the kept memory; the communicators that captured calls on it are gone.
    pub fn release_kept(&mut self) -> Result<()> {
        self.is_captured = false;
        std::mem::take(&mut self.kept).into_iter().try_for_each(Memory::free)
    }

    /// How many of `bytes` bytes are available without further free device memory: those that would be reused or freed.
    pub fn available(&self, bytes: u64, from_nccl: Option<&'static Library>) -> u64 {
        let fits = |memory: &&Memory| memory.is_from(from_nccl) && memory.bytes as u64 >= bytes;
        let reused = if self.kept.iter().chain([&self.memory]).any(|memory| fits(&memory)) { bytes } else { 0 };
        reused.max(self.releasable())
    }

    /// Bytes that releasing it would free.
    pub fn releasable(&self) -> u64 {
        if self.is_captured { 0 } else { self.memory.bytes as u64 }
    }

    /// Start address; 0 before anything was reserved.
    #[inline(always)]
    pub fn address(&self) -> CUdeviceptr {
        self.memory.address
    }
}

impl Memory {
    fn allocate(bytes: usize, from_nccl: Option<&'static Library>) -> Result<Memory> {
        let address = from_nccl.map_or_else(|| allocate(bytes), |library| allocate_by_nccl(bytes, library));
        let address = address.map_err(|cause| {
            let free = memory().map_or_else(|_| "unknown".to_owned(), |(free, _)| Bytes(free).to_string());
            let wanted = Bytes(bytes as u64);
            Error::environment(format!("cannot allocate {wanted} of device memory, {free} free: {cause}"))
        })?;
        Ok(Memory { address, bytes, from_nccl })
    }

    /// Whether NCCL allocated it; otherwise the driver did.
    fn is_from(&self, nccl: Option<&'static Library>) -> bool {
        self.from_nccl.is_some() == nccl.is_some()
    }

    fn free(self) -> Result<()> {
        if self.address == 0 {
            return Ok(());
        }
        if let Some(library) = self.from_nccl {
            let free = library.newer(library.call.memory_free, "ncclMemFree")?;
            // SAFETY: the address is from `ncclMemAlloc`, forgotten here, and nothing is registered on it any more.
            let code = unsafe { free(self.address as *mut std::ffi::c_void) };
            return if code == SUCCESS { Ok(()) } else { Err(library.failure(code, "ncclMemFree")) };
        }
        // SAFETY: the address is from `allocate` and forgotten here; freeing waits for the device (CUDA driver API, 6.13).
        unsafe { free(self.address) }
    }
}

fn allocate_by_nccl(bytes: usize, library: &'static Library) -> Result<CUdeviceptr> {
    let allocate = library.newer(library.call.memory_allocate, "ncclMemAlloc")?;
    let mut address = std::ptr::null_mut();
    // SAFETY: the address is ours.
    library.check(unsafe { allocate(&mut address, bytes) }, "ncclMemAlloc")?;
    Ok(address as CUdeviceptr)
}

/// Maximum number of graphs: they contain the addresses of buffers, so rotating through many copies takes many.
const MOST_GRAPHS: u64 = 64;

/// Rotation through copies of the buffers that fill `cold_bytes` or fit `within`; limited by the number of graphs of a case. One copy serves
/// all calls of a group.
pub(super) fn rotation(buffer_bytes: u64, cold_bytes: u64, within: Option<u64>, variant: Variant) -> Rotation {
    let copy_bytes = Rotation::new(buffer_bytes, 0).stride_bytes.saturating_mul(u64::from(variant.aggregate));
    let calls = variant.calls_in_a_graph().map(u64::from);
    let most_bytes = calls.map_or(u64::MAX, |calls| copy_bytes.saturating_mul(MOST_GRAPHS * calls));
    if let Some(within) = within {
        return Rotation::within(copy_bytes, within.min(most_bytes));
    }
    let copies = cold_bytes.min(most_bytes).div_ceil(copy_bytes);
    // Whole graphs, so that no captured call overwrites what one of another graph left to be compared.
    let copies = calls.filter(|calls| copies > *calls).map_or(copies, |calls| copies.next_multiple_of(calls));
    Rotation::new(copy_bytes, copies * copy_bytes)
}

/// The captured graphs of a call.
pub(super) struct Graphs {
    /// Calls, or groups of calls, per graph.
    pub(super) calls: u32,
    /// Number of graphs needed to go through all copies of the buffers.
    pub(super) wanted: usize,
    /// The graphs of the timed loop; each continues the rotation of the one before.
    pub(super) captured: Vec<Graph>,
    /// The copy of the first call of the first graph.
    pub(super) first_copy: u64,
    next: usize,
    /// The graph with producers and comparisons.
    pub(super) checked: Option<Graph>,
}

impl Graphs {
    pub(super) fn of(calls: u32, copies: u64) -> Graphs {
        let wanted = copies.div_ceil(u64::from(calls)).clamp(1, MOST_GRAPHS) as usize;
        Graphs { calls, wanted, captured: Vec::with_capacity(wanted), first_copy: 0, next: 0, checked: None }
    }

    /// Restarts with the first graph, as all copies are filled again.
    pub(super) fn restart(&mut self) {
        self.next = 0;
    }

    pub(super) fn period(&self) -> u64 {
        u64::from(self.calls) * self.captured.len() as u64
    }

    #[inline]
    pub(super) fn launch(&mut self, stream: CUstream) -> Result<()> {
        let Some(graph) = self.captured.get(self.next) else {
            return Err(Error::environment("a graph is launched before marks were reserved"));
        };
        self.next = if self.next + 1 == self.captured.len() { 0 } else { self.next + 1 };
        graph.launch(stream)
    }
}

// CUDA graphs: work that a stream captured once, launched again and again.
//
// Captured thread-local, as nccl-tests and PyTorch do: NCCL connects ranks from its own threads, whose calls must not
// invalidate the capture (CUDA driver API, 6.18, `cuThreadExchangeStreamCaptureMode`).

/// The first driver with `cuGraphInstantiateWithFlags`, which is used here.
pub(super) const FIRST_DRIVER: (i32, i32) = (11, 4);

/// A graph that can be launched; destroyed on drop. It must be dropped before the communicators whose calls it
/// contains.
pub(super) struct Graph {
    executable: sys::CUgraphExec,
}

impl Graph {
    /// Captures what is enqueued on a stream meanwhile, without executing it.
    pub fn capture(stream: CUstream, enqueue: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives.
        check(unsafe { cuStreamBeginCapture_v2(stream, mode) }, "cuStreamBeginCapture")?;
        let enqueued = enqueue();
        let mut graph = null_mut();
        // SAFETY: the stream is capturing since the call above; the handle is a local variable. Needed after an error
        // too, or the stream would keep capturing.
        let ended = check(unsafe { cuStreamEndCapture(stream, &mut graph) }, "cuStreamEndCapture");
        enqueued.and(ended)?;
        if graph.is_null() {
            return Err(Error::environment("cuStreamEndCapture gave no graph"));
        }
        let mut executable = null_mut();
        // SAFETY: the graph was just made, the handle is ours, no flags; the graph is not used afterwards, which the executable graph does
        // not need (CUDA driver API, 6.20).
        let instantiated = unsafe {
            let code = cuGraphInstantiateWithFlags(&mut executable, graph, 0);
            let _ = cuGraphDestroy(graph);
            check(code, "cuGraphInstantiate")
        };
        instantiated.map(|()| Graph { executable })
    }

    /// Enqueues the whole graph on a stream.
    #[inline(always)]
    pub fn launch(&self, stream: CUstream) -> Result<()> {
        // SAFETY: the graph lives and so does the stream.
        check(unsafe { cuGraphLaunch(self.executable, stream) }, "cuGraphLaunch")
    }

    /// Uploads it to the device, so that the first launch takes no longer than the others.
    pub fn upload(&self, stream: CUstream) -> Result<()> {
        // SAFETY: as above.
        check(unsafe { cuGraphUpload(self.executable, stream) }, "cuGraphUpload")
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and not used again; a running graph is freed when it completes (CUDA driver API, 6.20).
        let _ = unsafe { cuGraphExecDestroy(self.executable) };
    }
}
