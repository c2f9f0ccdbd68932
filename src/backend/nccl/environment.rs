//! What NCCL must find in the environment before it is loaded: algorithms that were asked for, and what ranks on one GPU need.

use super::log::Log;
use crate::error::{Error, Result};
use std::env;
use std::ffi::OsStr;

/// What is set for ranks that share GPUs, each only where the user has not set it: NCCL accepts several ranks on a device, does
/// without the multicast that needs a device for itself, and takes so few blocks that the kernels of all ranks are resident together
/// (one that is not would be waited for for ever by those that are).
pub(super) const SHARING: [(&str, &str); 3] =
    [("NCCL_MULTI_RANK_GPU_ENABLE", "1"), ("NCCL_NVLS_ENABLE", "0"), ("NCCL_MAX_CTAS", "4")];

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
    pub tell_algorithm: bool,
}

impl Environment {
    /// Writes it down. Must be called while the process has a single thread, so before MPI starts. Gives the log of choices, where
    /// there is to be one.
    ///
    /// # Errors
    /// Where the environment already asks for another algorithm or protocol, or for a log of its own.
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
        if self.share_gpu {
            for (name, value) in SHARING {
                if env::var_os(name).is_none() {
                    set(name, OsStr::new(value));
                }
            }
        }
        self.tell_algorithm.then(|| Log::prepare(set)).transpose()
    }
}

fn set(name: &str, value: &OsStr) {
    // SAFETY: the only thread of the process calls this, as `prepare` says (std::env::set_var).
    unsafe { env::set_var(name, value) };
}
