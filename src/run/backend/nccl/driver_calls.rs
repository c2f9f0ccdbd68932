//! The CUDA driver functions in use, with their C types: each is looked up once, and returns an int. The bindings have an enum for it,
//! which newer drivers exceed; a value outside an enum is undefined behaviour.

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUfunction_attribute, CUgraph,
    CUgraphExec, CUmodule, CUstream, CUstreamCaptureMode, CUuuid,
};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// `CUresult`.
pub(super) type Code = c_int;

/// `CUDA_SUCCESS`.
pub(super) const SUCCESS: Code = 0;
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
        /// As in the driver's documentation; the driver was found ([`super::driver::start`]).
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
