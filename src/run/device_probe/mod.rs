//! Loads the GPU libraries of this machine and queries their versions and devices.
//!
//! A library that crashes takes the process with it, so the queries are meant to run in a child process. Communication
//! is left to the NCCL backend, which has its own function tables.

mod advice;
mod answer;
mod cublas;
mod cuda;
mod load;
mod nccl_files;
mod nccl_library;
mod nvml;

pub use advice::advice;
pub use answer::{CublasAnswer, CudaAnswer, Device, NcclAnswer, NvmlAnswer, NvmlDevice};
pub use nccl_files::{NcclFile, nccl_files};
pub use nccl_library::is_rccl;
pub use nvml::{MAX_NVLINKS, NVML_LIBRARY, THROTTLE_REASONS};

use std::path::Path;

/// A library that can be queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The CUDA driver.
    Cuda,
    /// NCCL.
    Nccl,
    /// cuBLAS.
    Cublas,
    /// NVML, on which `nvidia-smi` is based.
    Nvml,
}

impl Probe {
    /// All libraries.
    pub const ALL: [Probe; 4] = [Probe::Cuda, Probe::Nccl, Probe::Cublas, Probe::Nvml];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Probe::Cuda => "cuda",
            Probe::Nccl => "nccl",
            Probe::Cublas => "cublas",
            Probe::Nvml => "nvml",
        }
    }
}

/// Loads the library in this process, queries it, and returns the answer as JSON.
///
/// # Errors
/// Why the library cannot be loaded.
pub fn answer(probe: Probe, named: Option<&Path>) -> Result<String, String> {
    let text = match probe {
        Probe::Cuda => serde_json::to_string(&cuda::query()?),
        Probe::Nccl => serde_json::to_string(&nccl_library::query(named)?),
        Probe::Cublas => serde_json::to_string(&cublas::query(named)?),
        Probe::Nvml => serde_json::to_string(&nvml::query()?),
    };
    text.map_err(|cause| cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::file_of;

    #[test]
    fn a_library_that_is_not_there_is_a_reason_and_no_panic() {
        let reason = answer(Probe::Nccl, Some(Path::new("/nowhere/libnccl.so.2"))).expect_err("not there");
        assert!(reason.contains("/nowhere/libnccl.so.2"), "{reason}");
    }

    #[test]
    fn a_library_that_is_not_nccl_is_reported_with_its_file() {
        // Any library that is already mapped works for this test.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("libc.so"));
        let Some(libc) = libc else { return };
        assert_eq!(file_of("libc.so.6"), libc);
        let text = answer(Probe::Nccl, Some(Path::new(libc))).expect("loaded");
        let parsed: NcclAnswer = serde_json::from_str(&text).unwrap();
        assert!(parsed.problem.is_some_and(|problem| problem.contains("no ncclGetVersion")), "{text}");
    }
}
