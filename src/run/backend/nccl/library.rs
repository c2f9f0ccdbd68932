//! NCCL itself, loaded while the program runs: which file, which version, which functions it has.
//!
//! The bindings' own loader never tries `libnccl.so.2`, the only file in the packages that most people have; hence this one.

use super::abi::{Code, Config, RawCommunicator, RawStream, SUCCESS, SimulationInfo, UniqueId, name_of};
use super::causes;
use crate::device_probe::{is_rccl, nccl_files};
use commgauge_base::error::{Error, Result};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::path::Path;

/// A version of NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// Decodes the number that `ncclGetVersion` returns: 2.9 and later as 2_09_06, before that as 2_8_04.
    fn of_code(code: c_int) -> Version {
        let code = u32::try_from(code).unwrap_or(0);
        let major_at = if code >= 10_000 { 10_000 } else { 1_000 };
        Version(code / major_at, code % major_at / 100, code % 100)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

type P = *mut c_void;
type ConstP = *const c_void;
type Comm = RawCommunicator;
type Stream = RawStream;

/// Declares the table of functions: those of every supported version, and those added later.
macro_rules! functions {
    (required { $($need:ident: fn($($need_type:ty),*) = $need_symbol:literal;)* }
     newer { $($new:ident: fn($($new_type:ty),*) = $new_symbol:literal since $major:literal.$minor:literal;)* }) => {
        /// The functions of the library.
        #[allow(missing_docs, reason = "the names are those of nccl.h")]
        pub struct Functions {
            $(pub $need: unsafe extern "C" fn($($need_type),*) -> Code,)*
            $(pub $new: Option<unsafe extern "C" fn($($new_type),*) -> Code>,)*
        }

        impl Functions {
            fn of(library: &libloading::Library) -> std::result::Result<Functions, &'static str> {
                // SAFETY: the types are those of nccl.h, with enums as the ints that they are in C.
                unsafe {
                    Ok(Functions {
                        $($need: *library.get($need_symbol.as_bytes()).map_err(|_| $need_symbol)?,)*
                        $($new: library.get($new_symbol.as_bytes()).ok().map(|symbol| *symbol),)*
                    })
                }
            }
        }

        /// The version that first had a function, by its name.
        fn first_with(symbol: &str) -> &'static str {
            match symbol {
                $($new_symbol => concat!($major, ".", $minor),)*
                _ => "2.14",
            }
        }
    };
}

functions! {
    required {
        get_unique_id: fn(*mut UniqueId) = "ncclGetUniqueId";
        init_rank: fn(*mut Comm, c_int, UniqueId, c_int, *mut Config) = "ncclCommInitRankConfig";
        destroy: fn(Comm) = "ncclCommDestroy";
        finalize: fn(Comm) = "ncclCommFinalize";
        abort: fn(Comm) = "ncclCommAbort";
        get_async_error: fn(Comm, *mut Code) = "ncclCommGetAsyncError";
        group_start: fn() = "ncclGroupStart";
        group_end: fn() = "ncclGroupEnd";
        all_reduce: fn(ConstP, P, usize, c_int, c_int, Comm, Stream) = "ncclAllReduce";
        all_gather: fn(ConstP, P, usize, c_int, Comm, Stream) = "ncclAllGather";
        reduce_scatter: fn(ConstP, P, usize, c_int, c_int, Comm, Stream) = "ncclReduceScatter";
        broadcast: fn(ConstP, P, usize, c_int, c_int, Comm, Stream) = "ncclBroadcast";
        reduce: fn(ConstP, P, usize, c_int, c_int, c_int, Comm, Stream) = "ncclReduce";
        send: fn(ConstP, usize, c_int, c_int, Comm, Stream) = "ncclSend";
        receive: fn(P, usize, c_int, c_int, Comm, Stream) = "ncclRecv";
    }
    newer {
        split: fn(Comm, c_int, c_int, *mut Comm, *mut Config) = "ncclCommSplit" since "2"."18";
        create_pre_mul_sum: fn(*mut c_int, P, c_int, c_int, Comm) = "ncclRedOpCreatePreMulSum" since "2"."11";
        destroy_operation: fn(c_int, Comm) = "ncclRedOpDestroy" since "2"."11";
        init_rank_scalable: fn(*mut Comm, c_int, c_int, c_int, *mut UniqueId, *mut Config) = "ncclCommInitRankScalable" since "2"."23";
        simulate_end: fn(*mut SimulationInfo) = "ncclGroupSimulateEnd" since "2"."22";
        all_to_all: fn(ConstP, P, usize, c_int, Comm, Stream) = "ncclAlltoAll" since "2"."28";
        gather: fn(ConstP, P, usize, c_int, c_int, Comm, Stream) = "ncclGather" since "2"."28";
        scatter: fn(ConstP, P, usize, c_int, c_int, Comm, Stream) = "ncclScatter" since "2"."28";
        memory_allocate: fn(*mut P, usize) = "ncclMemAlloc" since "2"."19";
        memory_free: fn(P) = "ncclMemFree" since "2"."19";
        register: fn(Comm, P, usize, *mut P) = "ncclCommRegister" since "2"."19";
        deregister: fn(Comm, P) = "ncclCommDeregister" since "2"."19";
        window_register: fn(Comm, P, usize, *mut P, c_int) = "ncclCommWindowRegister" since "2"."27";
        window_deregister: fn(Comm, P) = "ncclCommWindowDeregister" since "2"."27";
    }
}

/// The first version whose communicators take limits to their thread blocks (`ncclConfig_t` in its nccl.h); older ones pass over them in
/// silence.
pub(super) const LIMITS_FROM: Version = Version(2, 17, 0);

/// A loaded NCCL. It stays loaded until the process ends, since its threads and ours may outlive any owner.
pub struct Library {
    /// The functions.
    pub call: Functions,
    /// Its version.
    pub version: Version,
    /// The file from which it was loaded.
    pub file: String,
    last_error: Option<unsafe extern "C" fn(Comm) -> *const c_char>,
    error_string: Option<unsafe extern "C" fn(Code) -> *const c_char>,
}

impl Library {
    /// Loads the file that was named, or else the first of the places where NCCL may be ([`nccl_files`]).
    ///
    /// # Errors
    /// Where there is none, or it lacks what every version since 2.14 has.
    pub fn load(named: Option<&Path>) -> Result<&'static Library> {
        let mut problems = Vec::new();
        for candidate in nccl_files(named) {
            // SAFETY: loading runs the library's initialisers, which is what loading NCCL means.
            match unsafe { libloading::Library::new(&candidate.file) } {
                Ok(library) => return Library::of(library, &candidate.file.to_string_lossy()),
                Err(error) => problems.push(reason(&error, &candidate.file.to_string_lossy())),
            }
        }
        let named = if named.is_some() { "--nccl-library: " } else { "" };
        Err(Error::usage(format!(
            "{named}NCCL cannot be loaded: {}; install it, or name its file with --nccl-library or COMMGAUGE_NCCL_LIBRARY",
            problems.join("; ")
        )))
    }

    fn of(handle: libloading::Library, name: &str) -> Result<&'static Library> {
        // SAFETY: `int ncclGetVersion(int *)` in every version.
        let get_version = unsafe { handle.get::<unsafe extern "C" fn(*mut c_int) -> Code>(b"ncclGetVersion") };
        let Ok(get_version) = get_version else {
            return Err(Error::usage(format!("{name} is not NCCL: it has no ncclGetVersion")));
        };
        let mut code = 0;
        // SAFETY: the int is ours.
        let result = unsafe { get_version(&mut code) };
        let file = file_of(*get_version as ConstP).unwrap_or_else(|| name.to_owned());
        if is_rccl(&handle) {
            return Err(Error::usage(format!(
                "{file} is RCCL: it has NCCL's functions and types, and takes streams, memory and kernels of HIP; this backend calls the CUDA \
                 driver, and commgauge has none for AMD GPUs; --backend mpi measures their hosts"
            )));
        }
        if result != SUCCESS {
            return Err(Error::usage(format!("{file} does not give its version: {}", name_of(result))));
        }
        let version = Version::of_code(code);
        let too_old = |symbol: &'static str| {
            Error::usage(format!("{file} has no {symbol}: needs NCCL {}, found {version}", first_with(symbol)))
        };
        let call = Functions::of(&handle).map_err(too_old)?;
        // SAFETY: the types are those of nccl.h.
        let library = unsafe {
            Library {
                call,
                version,
                file,
                last_error: handle.get(b"ncclGetLastError").ok().map(|symbol| *symbol),
                error_string: handle.get(b"ncclGetErrorString").ok().map(|symbol| *symbol),
            }
        };
        std::mem::forget(handle);
        Ok(Box::leak(Box::new(library)))
    }

    /// A function that a later version added.
    ///
    /// # Errors
    /// `needs NCCL 2.28, found 2.27.3`.
    pub fn newer<F: Copy>(&self, function: Option<F>, symbol: &str) -> Result<F> {
        function.ok_or_else(|| {
            Error::usage(format!("{symbol} needs NCCL {}, found {} ({})", first_with(symbol), self.version, self.file))
        })
    }

    /// Why limits to thread blocks would not hold, for versions before [`LIMITS_FROM`].
    pub fn limits_refusal(&self) -> String {
        format!(
            "limits to thread blocks need NCCL 2.17 (ncclConfig_t), found {}, which would pass over them",
            self.version
        )
    }

    /// Turns a result into an error that names the call and includes the description of the library.
    #[inline(always)]
    pub fn check(&self, code: Code, call: &'static str) -> Result<()> {
        if code == SUCCESS { Ok(()) } else { Err(self.failure(code, call)) }
    }

    /// The error of a result.
    #[cold]
    pub fn failure(&self, code: Code, call: &str) -> Error {
        let mut text = format!("{call} failed with {}", name_of(code));
        // SAFETY: both return pointers to static texts of the library.
        let description = unsafe { self.error_string.map(|of| text_at(of(code))) };
        // SAFETY: as above; a null communicator is allowed (nccl.h: "comm is currently unused").
        let last = unsafe { self.last_error.map(|of| text_at(of(std::ptr::null_mut()))) };
        for more in [description, last].into_iter().flatten().filter(|more| !more.is_empty()) {
            text.push_str(&format!(": {more}"));
        }
        if let Some(fix) = causes::fix(&text) {
            text.push_str(&format!("; {fix}"));
        }
        Error::environment(text)
    }

    /// Library and version, for the record.
    pub fn description(&self) -> String {
        format!("NCCL {} ({})", self.version, self.file)
    }
}

/// # Safety
/// The address is null or that of a text that ends with a zero.
unsafe fn text_at(address: *const c_char) -> String {
    if address.is_null() {
        return String::new();
    }
    // SAFETY: promised by the caller.
    let text = unsafe { CStr::from_ptr(address) }.to_string_lossy();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Why a file was not loaded. The error's own text is only "dlopen failed"; the message of the system is its source.
pub(super) fn reason(error: &libloading::Error, name: &str) -> String {
    let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), |cause| cause.to_string());
    if cause.contains(name) { cause } else { format!("{name}: {cause}") }
}

/// The file that contains an address.
pub(super) fn file_of(address: ConstP) -> Option<String> {
    // SAFETY: an all-zero `Dl_info` is valid.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is a local variable; any address may be passed (dladdr(3)).
    if unsafe { libc::dladdr(address, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the name is a text of the loader's own.
    Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_the_header_writes_them() {
        for (code, text) in [(23_007, "2.30.7"), (22_703, "2.27.3"), (2_804, "2.8.4"), (0, "0.0.0"), (-1, "0.0.0")] {
            assert_eq!(Version::of_code(code).to_string(), text);
        }
    }

    #[test]
    fn a_missing_or_foreign_library_file_is_reported_with_the_reason() {
        for (file, words) in [
            ("/nowhere/libnccl.so.2", ["/nowhere/libnccl.so.2", "COMMGAUGE_NCCL_LIBRARY"]),
            ("libc.so.6", ["libc.so.6 is not NCCL", "ncclGetVersion"]),
        ] {
            let Err(error) = Library::load(Some(Path::new(file))) else { panic!("{file} was loaded") };
            assert_eq!(error.exit_code(), 2);
            let text = error.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
    }

    #[test]
    fn newer_functions_are_refused_with_the_version_they_need() {
        assert_eq!((first_with("ncclAlltoAll"), first_with("ncclCommWindowRegister")), ("2.28", "2.27"));
    }
}
