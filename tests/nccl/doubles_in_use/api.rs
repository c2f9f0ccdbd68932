//! The two libraries as a program finds them: by name, and their functions by name.

use std::ffi::{CString, c_int, c_void};

/// A library that was loaded.
pub struct Library(*mut c_void);

impl Library {
    /// Loads it from `LD_LIBRARY_PATH`.
    pub fn load(name: &str) -> Library {
        let name = CString::new(name).expect("no zero in a name");
        // SAFETY: the doubles have no constructors that could fail.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{name:?} is not in LD_LIBRARY_PATH");
        Library(library)
    }

    /// The address of a function, where the library has it.
    pub fn symbol(&self, name: &str) -> Option<*mut c_void> {
        let name = CString::new(name).expect("no zero in a name");
        // SAFETY: the library stays loaded.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    }
}

/// Calls a function of a library: `call!(cuda, "cuInit", 0 => u32)`. Returns its return code.
macro_rules! call {
    ($library:expr, $name:literal $(, $argument:expr => $kind:ty)* $(,)?) => {{
        let symbol = $library.symbol($name).unwrap_or_else(|| panic!("there is no {}", $name));
        // SAFETY: the types are those of the header of CUDA or NCCL, and pointers are to living values of the test.
        unsafe {
            let function: unsafe extern "C" fn($($kind),*) -> std::ffi::c_int = std::mem::transmute(symbol);
            function($($argument),*)
        }
    }};
}
pub(crate) use call;

/// Calls a function and fails the test unless it returns 0.
macro_rules! good {
    ($library:expr, $name:literal $($rest:tt)*) => {
        assert_eq!($crate::doubles_in_use::api::call!($library, $name $($rest)*), 0, "{}", $name)
    };
}
pub(crate) use good;

/// The unique id of NCCL, which is passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UniqueId(pub [u8; 128]);

/// The driver with a context on a device, and a stream.
pub struct Cuda {
    pub library: Library,
    pub stream: usize,
}

impl Cuda {
    pub fn start(device: c_int) -> Cuda {
        let library = Library::load("libcuda.so");
        let (mut context, mut stream) = (0usize, 0usize);
        good!(library, "cuInit", 0 => u32);
        good!(library, "cuDevicePrimaryCtxRetain", &mut context => *mut usize, device => c_int);
        good!(library, "cuCtxSetCurrent", context => usize);
        good!(library, "cuStreamCreate", &mut stream => *mut usize, 1 => u32);
        Cuda { library, stream }
    }

    pub fn allocate(&self, bytes: usize) -> usize {
        let mut address = 0usize;
        good!(self.library, "cuMemAlloc_v2", &mut address => *mut usize, bytes => usize);
        address
    }

    pub fn free(&self, address: usize) {
        good!(self.library, "cuMemFree_v2", address => usize);
    }

    pub fn synchronize(&self) {
        good!(self.library, "cuStreamSynchronize", self.stream => usize);
    }

    pub fn upload(&self, to: usize, bytes: &[u8]) {
        good!(self.library, "cuMemcpyHtoD_v2", to => usize, bytes.as_ptr() => *const u8, bytes.len() => usize);
    }

    pub fn download(&self, from: usize, bytes: usize) -> Vec<u8> {
        let mut copy = vec![0u8; bytes];
        good!(self.library, "cuMemcpyDtoH_v2", copy.as_mut_ptr() => *mut u8, from => usize, bytes => usize);
        copy
    }

    /// An event, recorded in the stream.
    pub fn mark(&self) -> usize {
        let mut event = 0usize;
        good!(self.library, "cuEventCreate", &mut event => *mut usize, 0 => u32);
        good!(self.library, "cuEventRecord", event => usize, self.stream => usize);
        event
    }

    pub fn milliseconds(&self, start: usize, end: usize) -> f32 {
        let mut milliseconds = 0f32;
        good!(self.library, "cuEventElapsedTime", &mut milliseconds => *mut f32, start => usize, end => usize);
        milliseconds
    }
}

/// The kernels, as the program loads them.
pub struct Kernels<'a> {
    cuda: &'a Cuda,
    module: usize,
}

impl<'a> Kernels<'a> {
    pub fn load(cuda: &'a Cuda) -> Kernels<'a> {
        let text = CString::new(include_str!("../../../kernels/commgauge.ptx")).expect("no zero in PTX");
        let mut module = 0usize;
        good!(cuda.library, "cuModuleLoadData", &mut module => *mut usize, text.as_ptr() => *const libc::c_char);
        Kernels { cuda, module }
    }

    /// Launches a kernel on the stream. Numbers of 32 bits are passed in 64: the low half is first.
    pub fn launch(&self, name: &str, blocks: u32, threads: u32, parameters: &[u64]) {
        let mut function = 0usize;
        self.get(name, &mut function);
        self.launch_in(function, self.cuda.stream, blocks, threads, parameters);
    }

    /// The handle of a kernel, whose code is not loaded yet.
    pub fn get(&self, name: &str, function: &mut usize) {
        let text = CString::new(name).expect("no zero in a name");
        let symbol = function as *mut usize;
        good!(self.cuda.library, "cuModuleGetFunction", symbol => *mut usize, self.module => usize, text.as_ptr() => *const libc::c_char);
    }

    /// Launches one block of one thread on another stream.
    pub fn launch_function(&self, function: usize, stream: usize, parameters: &[u64]) {
        self.launch_in(function, stream, 1, 1, parameters);
    }

    /// The same with a walk over a single copy of the buffer before the last parameter.
    pub fn launch_on_one_copy(&self, name: &str, blocks: u32, threads: u32, parameters: &[u64]) {
        // Stride, copies, first copy, step, calls: see kernels/pattern.h.
        const ONE_COPY: [u64; 5] = [0, 1, 0, 0, 1];
        let mut function = 0usize;
        self.get(name, &mut function);
        let mut places: Vec<*const u64> = parameters.iter().map(std::ptr::from_ref).collect();
        places.insert(parameters.len() - 1, ONE_COPY.as_ptr());
        self.launch_with(function, self.cuda.stream, blocks, threads, &places);
    }

    fn launch_in(&self, function: usize, stream: usize, blocks: u32, threads: u32, parameters: &[u64]) {
        let places: Vec<*const u64> = parameters.iter().map(std::ptr::from_ref).collect();
        self.launch_with(function, stream, blocks, threads, &places);
    }

    fn launch_with(&self, function: usize, stream: usize, blocks: u32, threads: u32, places: &[*const u64]) {
        good!(
            self.cuda.library, "cuLaunchKernel", function => usize, blocks => u32, 1 => u32, 1 => u32, threads => u32, 1 => u32,
            1 => u32, 0 => u32, stream => usize, places.as_ptr() => *const *const u64, std::ptr::null_mut() => *mut c_void,
        );
    }
}
