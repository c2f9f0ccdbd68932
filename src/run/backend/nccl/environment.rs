//! Environment variables that must be set before NCCL is loaded: requested algorithms, and settings for ranks on one
//! GPU.

use super::abi::CtaLimits;
use super::library::Version;
use super::log::Log;
use commgauge_base::error::{Error, Result};
use rustix::fs::FileType;
use std::env;
use std::ffi::OsStr;

/// Settings for ranks that share GPUs, each only if the user has not set it: NCCL accepts several ranks on a device,
/// and does not use multicast, which needs a device for itself.
pub(super) const SHARING: [(&str, &str); 2] = [("NCCL_MULTI_RANK_GPU_ENABLE", "1"), ("NCCL_NVLS_ENABLE", "0")];

/// The variables that choose or forbid transports of NCCL (NCCL user guide, "Environment Variables").
pub(super) const TRANSPORTS: [&str; 8] = [
    "NCCL_NET",
    "NCCL_NET_PLUGIN",
    "NCCL_P2P_LEVEL",
    "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_IB_DISABLE",
    "NCCL_NVLS_ENABLE",
    "NCCL_MNNVL_ENABLE",
];

/// The variable for the number of device queues, and the maximum, which is 8 by default (CUDA programming guide, "CUDA
/// Environment Variables").
pub(super) const QUEUES: (&str, usize) = ("CUDA_DEVICE_MAX_CONNECTIONS", 32);

/// The variable by which NCCL starts the kernels of all communicators of a device in the order of the calls (NCCL user guide,
/// "NCCL_LAUNCH_ORDER_IMPLICIT"), and the first version that knows it. It adds to the time of every call, so that it is set only where calls
/// of several communicators are under way at once.
pub(super) const ORDER: (&str, &str) = ("NCCL_LAUNCH_ORDER_IMPLICIT", "1");
pub(super) const ORDERS_FROM: Version = Version(2, 26, 0);

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

    /// Why requested limits would not take effect; none if they do.
    pub fn conflict_with(&self, limits: CtaLimits) -> Option<String> {
        let limits = [("NCCL_MIN_CTAS", self.least, limits.least), ("NCCL_MAX_CTAS", self.most, limits.most)];
        limits.into_iter().find_map(|(name, forced, requested)| {
            let (forced, requested) = (forced?, requested?);
            (forced != i64::from(requested)).then(|| {
                format!("{requested} is requested, and the environment has {name}={forced}, which NCCL puts above it")
            })
        })
    }
}

/// A variable of NCCL that a flag sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The flag, for errors.
    pub flag: &'static str,
    /// The variable.
    pub variable: &'static str,
    /// Its value.
    pub value: &'static str,
    /// The first version that knows it; older ones pass over it in silence.
    pub since: Version,
}

impl Setting {
    /// Why a version of NCCL would pass over it.
    pub(super) fn refusal(&self, found: Version) -> Option<String> {
        let Setting { flag, variable, value, since } = self;
        (found < *since).then(|| {
            format!(
                "{flag} needs NCCL {}.{} ({variable}={value}), found {found}, which would pass over it",
                since.0, since.1
            )
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
    /// Calls of several communicators are under way at once.
    pub calls_overlap: bool,
    /// Make NCCL log its choice for every call.
    pub record_algorithm: bool,
}

impl Environment {
    /// Sets the variables. Must be called while the process has a single thread, so before MPI starts. Returns the log
    /// of choices if one was requested.
    ///
    /// # Errors
    /// If the environment already sets another algorithm or protocol, calls that return before they are enqueued, or a
    /// log while one is requested here.
    pub fn prepare(&self) -> Result<Option<Log>> {
        for Setting { flag, variable: name, value, .. } in self.settings.iter().copied() {
            match env::var(name) {
                Ok(set) if !set.eq_ignore_ascii_case(value) => {
                    return Err(Error::usage(format!(
                        "{flag} asks for {value}, and the environment for {name}={set}; leave one out"
                    )));
                }
                _ => set(name, OsStr::new(value)),
            }
        }
        if env::var("NCCL_COMM_BLOCKING").is_ok_and(|value| value.trim() == "0") {
            return Err(Error::usage(
                "the environment has NCCL_COMM_BLOCKING=0: NCCL would start a thread for every call, and enqueue it after its time was \
                 taken; leave it out",
            ));
        }
        // Streams that share one of few hardware queues wait for each other without an explicit dependency. A replay
        // has a stream for each axis and each message channel, and two ranks could deadlock. Ranks that share a device
        // also share its queues, and the first rank would use all of them (NVIDIA MPS, "CUDA_DEVICE_MAX_CONNECTIONS").
        if !self.share_gpu && env::var_os(QUEUES.0).is_none() {
            set(QUEUES.0, OsStr::new(&QUEUES.1.to_string()));
        }
        if self.calls_overlap {
            match env::var(ORDER.0) {
                Ok(set) if set.trim() != ORDER.1 => {
                    return Err(Error::usage(format!(
                        "the environment has {}={set}: calls of several communicators at once (--replay, --interfere) may then wait for one \
                         another for ever; leave it out",
                        ORDER.0
                    )));
                }
                _ => set(ORDER.0, OsStr::new(ORDER.1)),
            }
        }
        if !self.record_algorithm {
            keep_log_from_standard_output();
        }
        if self.share_gpu {
            for (name, value) in SHARING {
                if env::var_os(name).is_none() {
                    set(name, OsStr::new(value));
                }
            }
        }
        self.record_algorithm.then(|| Log::prepare(set)).transpose()
    }
}

/// NCCL writes its log to standard output unless a file is set. Standard output is for our data, so the log goes to
/// standard error, unless that is a file, which NCCL would truncate (`src/debug.cc`).
fn keep_log_from_standard_output() {
    let has_log = env::var_os("NCCL_DEBUG").is_some() && env::var_os("NCCL_DEBUG_FILE").is_none();
    let kind = rustix::fs::fstat(std::io::stderr()).map(|facts| FileType::from_raw_mode(facts.st_mode));
    if has_log && matches!(kind, Ok(FileType::Fifo | FileType::CharacterDevice)) {
        set("NCCL_DEBUG_FILE", OsStr::new("/dev/stderr"));
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
    fn limits_that_the_environment_overrides_are_named() {
        let forced = ForcedCtas { least: None, most: Some(4) };
        for (least, most) in [(None, None), (Some(8), None), (None, Some(4))] {
            assert_eq!(forced.conflict_with(CtaLimits { least, most }), None);
        }
        let message = forced.conflict_with(CtaLimits { least: Some(1), most: Some(8) }).expect("8 is not 4");
        assert_eq!(message, "8 is requested, and the environment has NCCL_MAX_CTAS=4, which NCCL puts above it");
    }
}
