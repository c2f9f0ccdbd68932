//! NCCL itself, loaded while the program runs: which file, which version, which functions it has.
//!
//! The bindings' own loader never tries `libnccl.so.2`, the only file in the packages that most people have; hence this one.

/// Declares the table of functions: those of every supported version, and those added later.
macro_rules! functions {
    (required { $($need:ident: fn($($need_type:ty),*) = $need_symbol:literal;)* }
     newer { $($new:ident: fn($($new_type:ty),*) = $new_symbol:literal since $major:literal.$minor:literal;)* }) => {
        /// The functions of the library.
        pub struct Functions {
            $(pub $need: unsafe extern "C" fn($($need_type),*) -> Code,)*
            $(pub $new: Option<unsafe extern "C" fn($($new_type),*) -> Code>,)*
        }

        impl Functions {
            fn of(library: &libloading::Library) -> std::result::Result<Functions, &'static str> {
                // SAFETY: the types are those of nccl.h, with enums as ints, as in C.
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

use super::abi::{Code, Config, CtaLimits, RawCommunicator, RawStream, SUCCESS, SimulationInfo, UniqueId, name_of};
use super::log::{Log, Logged};
use crate::backend::{MeasuredPairs, Setting};
pub use crate::device_probe::Version;
use crate::device_probe::{FOR_AMD, advice, cause, is_rccl, nccl_files};
use commgauge_base::embedded::pairs;
use commgauge_base::error::{Error, Result};
use std::env;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::path::Path;

type P = *mut c_void;

type ConstP = *const c_void;

type Comm = RawCommunicator;

type Stream = RawStream;

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

/// The first version whose communicators take limits on their thread blocks (`ncclConfig_t` in its nccl.h); older ones ignore them
/// silently.
pub(super) const LIMITS_FROM: Version = Version(2, 17, 0);

/// A loaded NCCL. It stays loaded until the process ends, since its threads and ours may outlive any owner.
pub struct Library {
    pub call: Functions,
    pub version: Version,
    /// The file from which it was loaded.
    pub file: String,
    last_error: Option<unsafe extern "C" fn(Comm) -> *const c_char>,
    error_string: Option<unsafe extern "C" fn(Code) -> *const c_char>,
}

impl Library {
    /// Loads the named file, or else the first of the places where NCCL may be ([`nccl_files`]).
    ///
    /// # Errors
    /// If there is none, or it lacks what every version since 2.14 has.
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
                "{file} is RCCL: it has NCCL's functions and types but takes HIP streams, memory and kernels; {FOR_AMD}"
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
    /// An error such as `needs NCCL 2.28, found 2.27.3`.
    pub fn newer<F: Copy>(&self, function: Option<F>, symbol: &str) -> Result<F> {
        function.ok_or_else(|| {
            Error::usage(format!("{symbol} needs NCCL {}, found {} ({})", first_with(symbol), self.version, self.file))
        })
    }

    /// Why limits on thread blocks would have no effect before [`LIMITS_FROM`].
    pub fn limits_refusal(&self) -> String {
        format!("limits on thread blocks need NCCL 2.17 (ncclConfig_t), found {}, which ignores them", self.version)
    }

    /// Turns a result into an error that names the call and quotes the library's description.
    #[inline(always)]
    pub fn check(&self, code: Code, call: &'static str) -> Result<()> {
        if code == SUCCESS { Ok(()) } else { Err(self.failure(code, call)) }
    }

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
        if let Some(fix) = fix(&text) {
            text.push_str(&format!("; {fix}"));
        }
        Error::environment(text)
    }

    pub fn description(&self) -> String {
        format!("NCCL {} ({})", self.version, self.file)
    }
}

/// # Safety
/// The address is null or that of a null-terminated text.
unsafe fn text_at(address: *const c_char) -> String {
    if address.is_null() {
        return String::new();
    }
    // SAFETY: promised by the caller.
    let text = unsafe { CStr::from_ptr(address) }.to_string_lossy();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Why a file was not loaded, with its name.
pub(super) fn reason(error: &libloading::Error, name: &str) -> String {
    let cause = cause(error);
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

// Fixes for NCCL errors whose text names a cause on the host: memory, drivers, adapters, shared memory. NCCL's codes do not distinguish
// these: most are `ncclUnhandledCudaError` or `ncclSystemError`.

/// `CUresult` numbers of causes that the driver and NCCL share.
const DEVICE_UNAVAILABLE: i32 = 46;

const ECC_UNCORRECTABLE: i32 = 214;

/// Text in messages of NCCL, or of its CUDA runtime, and the fix.
const CAUSES: &str = include_str!("causes.txt");

/// The fix for an NCCL error whose text names its cause.
pub(super) fn fix(text: &str) -> Option<&'static str> {
    let of_driver = [("uncorrectable ECC", ECC_UNCORRECTABLE), ("busy or unavailable", DEVICE_UNAVAILABLE)];
    let shared = of_driver.into_iter().find(|(words, _)| text.contains(words)).and_then(|(_, code)| advice(code));
    shared.or_else(|| pairs(CAUSES).find(|(words, _)| text.contains(words)).map(|(_, fix)| fix))
}

// Environment variables that must be set before NCCL is loaded: requested algorithms, and settings for ranks on one
// GPU.

/// Settings for ranks that share GPUs, each only if the user has not set it: NCCL accepts several ranks on a device, and does not use
/// multicast, which needs an exclusive device.
pub(super) const SHARING: [(&str, &str); 2] = [("NCCL_MULTI_RANK_GPU_ENABLE", "1"), ("NCCL_NVLS_ENABLE", "0")];

/// The variable for the number of device queues, and the maximum, which is 8 by default (CUDA programming guide, "CUDA
/// Environment Variables").
pub(super) const QUEUES: (&str, usize) = ("CUDA_DEVICE_MAX_CONNECTIONS", 32);

/// The variable by which NCCL starts the kernels of all communicators of a device in the order of the calls (NCCL user guide,
/// "NCCL_LAUNCH_ORDER_IMPLICIT"), and the first version that knows it. It adds to the time of every call, so it is set only if calls of
/// several communicators overlap.
pub(super) const ORDER: (&str, &str) = ("NCCL_LAUNCH_ORDER_IMPLICIT", "1");

pub(super) const ORDERS_FROM: Version = Version(2, 26, 0);

/// Channels of a pair between nodes. NCCL counts 14 GB/s for each (`P2P_PER_CHANNEL_NET_BW`, `src/graph/paths.cc`), so these carry 800
/// Gbit/s. Left to itself it gives a pair fewer the more ranks there are, down to one, and times would be those of its channels
/// instead of the link's (nccl#1272: 24 GB/s, and 18 GB/s from 32 ranks on).
pub(super) const CHANNELS_OF_A_PAIR: u32 = 8;

/// The first version in which a communicator sets its channels; before it an environment variable sets those of all.
pub(super) const CHANNELS_FROM: Version = Version(2, 28, 0);

/// The variable for the channels of every communicator, which is above what a communicator sets (NCCL user guide,
/// "NCCL_NCHANNELS_PER_NET_PEER").
const CHANNELS: &str = "NCCL_NCHANNELS_PER_NET_PEER";

/// The variables of Open MPI's collectives over HCOLL (with SHARP) and UCC, which a value of 0 leaves out.
const OFFLOADED_MPI: [&str; 2] = ["OMPI_MCA_coll_hcoll_enable", "OMPI_MCA_coll_ucc_enable"];

/// The variable for `nvlinkCentricSched` of all communicators (NCCL, `src/init.cc`), which nccl-tests sets (`src/common.cu`): a launch attribute
/// of kernels from Blackwell on. Versions before 2.28 ignore it.
const FOR_NVLINK: &str = "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE";

/// The variable for `maxP2pPeers` of all communicators from 2.30 on (NCCL, `src/init.cc`), which nccl-tests sets for its sendrecv: NCCL then
/// leaves a message between nodes more channels than where every rank may send to every other (`src/graph/paths.cc`).
const TWO_PEERS: (&str, &str) = ("NCCL_P2P_MAX_PEERS", "2");

/// The variable by which a message leaves through its own GPU's adapter (NCCL user guide, "NCCL_P2P_PXN_LEVEL"). NCCL sends one to a GPU on
/// another rail through the adapter of the neighbour on that rail, and a map of pairs would blame the wrong one.
const DIRECT: (&str, &str) = ("NCCL_P2P_PXN_LEVEL", "0");

/// The channels of a pair between nodes, where NCCL does not choose their number.
pub(super) fn channels_of_a_pair(version: Version) -> Option<u32> {
    let forced = env::var(CHANNELS).ok().and_then(|number| number.trim().parse().ok());
    forced.or((version >= CHANNELS_FROM).then_some(CHANNELS_OF_A_PAIR))
}

/// Thread blocks of NCCL's kernels on shared GPUs unless the user sets a limit: few enough that the kernels of all
/// ranks are resident together (otherwise the resident ones would wait forever for the others). Set per communicator,
/// because the environment would override what cases request.
pub(super) const SHARING_CTAS: u32 = 4;

/// Limits set by the environment, which overrides the configuration of every communicator
/// (NCCL, `src/init.cc`, `envConfigOverride`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ForcedCtas {
    least: Option<i64>,
    most: Option<i64>,
}

impl ForcedCtas {
    /// Reads the current values.
    pub fn read() -> ForcedCtas {
        let number = |name| env::var(name).ok().and_then(|value: String| value.trim().parse().ok());
        ForcedCtas { least: number("NCCL_MIN_CTAS"), most: number("NCCL_MAX_CTAS") }
    }

    /// Why requested limits would not take effect; `None` if they do.
    pub fn conflict_with(&self, limits: CtaLimits) -> Option<String> {
        let limits = [("NCCL_MIN_CTAS", self.least, limits.least), ("NCCL_MAX_CTAS", self.most, limits.most)];
        limits.into_iter().find_map(|(name, forced, requested)| {
            let (forced, requested) = (forced?, requested?);
            (forced != i64::from(requested)).then(|| {
                format!(
                    "{requested} requested, but the environment has {name}={forced}, which takes precedence in NCCL"
                )
            })
        })
    }
}

/// The variables that NCCL reads.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Ranks may share a device.
    pub share_gpu: bool,
    /// What flags set.
    pub settings: Vec<Setting>,
    /// Calls of several communicators are in progress at once.
    pub calls_overlap: bool,
    /// Make NCCL log its choice for every call.
    pub record_algorithm: bool,
    /// Whether pairs of ranks are measured.
    pub pairs: MeasuredPairs,
    /// Whether kernels are placed for the use of NVLink, as nccl-tests has them.
    pub schedules_for_nvlink: bool,
    /// Whether each rank has two others with which it exchanges messages.
    pub two_peers: bool,
}

impl Environment {
    /// Sets the variables, for the library of this file (see [`Options::library`](super::Options)). Must be called while the process has a
    /// single thread, so before MPI starts. Returns the log of this process.
    ///
    /// # Errors
    /// If the environment already sets another algorithm or protocol, calls that return before they are enqueued, or a
    /// log while one is requested here.
    pub fn prepare(&self, library: Option<&Path>) -> Result<Log> {
        let require = |name, value: &str, conflict: &dyn Fn(&str) -> String| match env::var(name) {
            Ok(other) if !other.trim().eq_ignore_ascii_case(value) => Err(Error::usage(conflict(&other))),
            _ => {
                set(name, OsStr::new(value));
                Ok(())
            }
        };
        for Setting { flag, variable: name, value, .. } in self.settings.iter().copied() {
            let conflict = |other: &str| format!("{flag} requests {value}, the environment {name}={other}; remove one");
            require(name, value, &conflict)?;
        }
        if env::var("NCCL_COMM_BLOCKING").is_ok_and(|value| value.trim() == "0") {
            return Err(Error::usage(
                "the environment has NCCL_COMM_BLOCKING=0: NCCL would start a thread for every call, and enqueue it after its time was taken; unset it",
            ));
        }
        // MPI only carries the control plane here; offloaded, it would take resources of switches from NCCL's CollNet.
        OFFLOADED_MPI.iter().for_each(|name| set_if_unset(name, "0"));
        // Streams that share one of few hardware queues wait for each other without an explicit dependency. A replay has a stream for each
        // axis and each message channel, so two ranks could deadlock. Ranks that share a device also share its queues, and the first rank
        // would use all of them (NVIDIA MPS, "CUDA_DEVICE_MAX_CONNECTIONS").
        if !self.share_gpu {
            set_if_unset(QUEUES.0, &QUEUES.1.to_string());
        }
        if self.calls_overlap {
            let conflict = |other: &str| {
                format!(
                    "the environment has {}={other}: calls of several communicators at once (--replay, --interfere) may then block each other forever; unset it",
                    ORDER.0
                )
            };
            require(ORDER.0, ORDER.1, &conflict)?;
        }
        if self.schedules_for_nvlink {
            set_if_unset(FOR_NVLINK, "1");
        }
        if self.two_peers {
            set_if_unset(TWO_PEERS.0, TWO_PEERS.1);
        }
        if self.pairs == MeasuredPairs::Only {
            set_if_unset(DIRECT.0, DIRECT.1);
        }
        let logged = if self.record_algorithm { Logged::SetUpAndChoices } else { Logged::SetUp };
        let log = Log::prepare(logged, set)?;
        if self.share_gpu {
            SHARING.iter().for_each(|(name, value)| set_if_unset(name, value));
        }
        // Last, as it loads NCCL to know its version. That it cannot be loaded is reported later, with the host.
        if self.pairs != MeasuredPairs::None
            && Library::load(library).is_ok_and(|library| library.version < CHANNELS_FROM)
        {
            set_if_unset(CHANNELS, &CHANNELS_OF_A_PAIR.to_string());
        }
        Ok(log)
    }
}

fn set_if_unset(name: &str, value: &str) {
    if env::var_os(name).is_none() {
        set(name, OsStr::new(value));
    }
}

fn set(name: &str, value: &OsStr) {
    // SAFETY: called by the only thread of the process, as `prepare` requires (std::env::set_var).
    unsafe { env::set_var(name, value) };
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

    #[test]
    fn warnings_of_nccl_that_name_a_cause_have_its_fix_and_others_none() {
        for (said, words) in [
            ("Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'", "nvidia-nccl-cu12"),
            ("Cuda failure 'no kernel image is available for execution on the device'", "compute capability"),
            ("Cuda failure 2 'out of memory'", "NCCL_BUFFSIZE"),
            ("Cuda failure 'uncorrectable ECC error encountered'", "ROW_REMAPPER"),
            ("Cuda failure 'CUDA-capable device(s) is/are busy or unavailable'", "compute mode"),
            ("Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1", "--share-gpu"),
            ("Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 3b000", "MIG"),
            (
                "Error while creating shared memory segment /dev/shm/nccl-a1b2c3 (size 9637888), error: No space left on device (28)",
                "--shm-size",
            ),
            ("Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1", "NCCL_IB_HCA"),
            ("NET/IB: Got completion from peer 10.0.0.2<41234> with status=12 opcode=0 len=0 vendor err 129", "cable"),
            ("Bootstrap : no socket interface found", "NCCL_SOCKET_IFNAME"),
            (
                "socketPollConnect: connect to 10.0.0.2<5000> returned No route to host, exceeded error retry count after 35 attempts",
                "firewall",
            ),
            (
                "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 1 'invalid argument'",
                "--nvls off",
            ),
        ] {
            assert!(fix(said).is_some_and(|fix| fix.contains(words)), "{said}: {:?}", fix(said));
        }
        assert_eq!(fix("unhandled system error (run with NCCL_DEBUG=INFO for details)"), None);
    }

    #[test]
    fn limits_that_the_environment_overrides_are_named() {
        let forced = ForcedCtas { least: None, most: Some(4) };
        for (least, most) in [(None, None), (Some(8), None), (None, Some(4))] {
            assert_eq!(forced.conflict_with(CtaLimits { least, most }), None);
        }
        let message = forced.conflict_with(CtaLimits { least: Some(1), most: Some(8) }).expect("8 is not 4");
        assert_eq!(message, "8 requested, but the environment has NCCL_MAX_CTAS=4, which takes precedence in NCCL");
    }
}
