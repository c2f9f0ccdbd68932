//! What NCCL must find in the environment before it is loaded: algorithms that were requested, and what ranks on one GPU need.

use super::log::Log;
use crate::error::{Error, Result};
use rustix::fs::FileType;
use std::env;
use std::ffi::OsStr;

/// What is set for ranks that share GPUs, each only where the user has not set it: NCCL accepts several ranks on a device, and does
/// without the multicast that needs a device for itself.
pub(super) const SHARING: [(&str, &str); 2] = [("NCCL_MULTI_RANK_GPU_ENABLE", "1"), ("NCCL_NVLS_ENABLE", "0")];

/// By what queues to the device are set, and as many as there can be, which are 8 unless set (CUDA programming guide, "CUDA Environment
/// Variables").
pub(super) const QUEUES: (&str, usize) = ("CUDA_DEVICE_MAX_CONNECTIONS", 32);

/// Thread blocks that NCCL's kernels take on shared GPUs unless the user says otherwise: so few that the kernels of all ranks are resident
/// together (one that is not would be waited for for ever by those that are). Not from the environment, which is above what cases ask for.
pub(super) const SHARING_CTAS: u32 = 4;

/// Fewest and most thread blocks that the environment asks for. NCCL puts it above the configuration of every communicator
/// (`src/init.cc`, `envConfigOverride`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ForcedCtas {
    least: Option<i64>,
    most: Option<i64>,
}

impl ForcedCtas {
    /// As it is now.
    pub fn read() -> ForcedCtas {
        let number = |name| env::var(name).ok().and_then(|value: String| value.trim().parse().ok());
        ForcedCtas { least: number("NCCL_MIN_CTAS"), most: number("NCCL_MAX_CTAS") }
    }

    /// Why limits would not hold; none where they do.
    pub fn against(&self, (least, most): (Option<u32>, Option<u32>)) -> Option<String> {
        let limits = [("NCCL_MIN_CTAS", self.least, least), ("NCCL_MAX_CTAS", self.most, most)];
        limits.into_iter().find_map(|(name, forced, asked)| {
            let (forced, asked) = (forced?, asked?);
            (forced != i64::from(asked)).then(|| {
                format!("{asked} is requested, and the environment has {name}={forced}, which NCCL puts above it")
            })
        })
    }
}

/// What NCCL reads from its environment.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Ranks may share a device.
    pub share_gpu: bool,
    /// The algorithm to take for every call, as NCCL writes it.
    pub algorithm: Option<&'static str>,
    /// The protocol to take for every call, as NCCL writes it.
    pub protocol: Option<&'static str>,
    /// NCCL shall tell what it chooses for every call.
    pub record_algorithm: bool,
}

impl Environment {
    /// Writes it down. Must be called while the process has a single thread, so before MPI starts. Gives the log of choices, where
    /// there is to be one.
    ///
    /// # Errors
    /// Where the environment already asks for another algorithm or protocol, for calls that return before they are enqueued, or for a log
    /// of its own where there is to be one.
    pub fn prepare(&self) -> Result<Option<Log>> {
        for (flag, name, value) in
            [("--algorithm", "NCCL_ALGO", self.algorithm), ("--protocol", "NCCL_PROTO", self.protocol)]
        {
            let Some(value) = value else { continue };
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
        // What streams enqueue behind one another in one of few queues waits for one another, though no stream asks for it: a replay has
        // a stream for each axis and each channel of messages, and two ranks could wait for each other for ever. Ranks that share a device
        // share its queues, of which the first would take all (NVIDIA MPS, "CUDA_DEVICE_MAX_CONNECTIONS").
        if !self.share_gpu && env::var_os(QUEUES.0).is_none() {
            set(QUEUES.0, OsStr::new(&QUEUES.1.to_string()));
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

/// NCCL writes its log to standard output unless a file is named. There are our data, so that the log goes to standard error; but not where
/// that is a file, which NCCL would begin anew (`src/debug.cc`).
fn keep_log_from_standard_output() {
    let has_log = env::var_os("NCCL_DEBUG").is_some() && env::var_os("NCCL_DEBUG_FILE").is_none();
    let kind = rustix::fs::fstat(std::io::stderr()).map(|facts| FileType::from_raw_mode(facts.st_mode));
    if has_log && matches!(kind, Ok(FileType::Fifo | FileType::CharacterDevice)) {
        set("NCCL_DEBUG_FILE", OsStr::new("/dev/stderr"));
    }
}

fn set(name: &str, value: &OsStr) {
    // SAFETY: the only thread of the process calls this, as `prepare` says (std::env::set_var).
    unsafe { env::set_var(name, value) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_the_environment_overrides_are_named() {
        let forced = ForcedCtas { least: None, most: Some(4) };
        for holds in [(None, None), (Some(8), None), (None, Some(4))] {
            assert_eq!(forced.against(holds), None);
        }
        let told = forced.against((Some(1), Some(8))).expect("8 is not 4");
        assert_eq!(told, "8 is requested, and the environment has NCCL_MAX_CTAS=4, which NCCL puts above it");
    }
}
