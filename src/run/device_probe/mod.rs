//! Loads the GPU libraries of this machine and queries their versions and devices.
//!
//! A library that crashes takes the process with it, so the queries are meant to run in a child process. Communication
//! is left to the NCCL backend, which has its own function tables.

mod advice;
mod cublas;
mod cuda;
mod nccl_files;
mod nccl_library;
mod nvml;

pub use advice::advice;
pub use nccl_files::nccl_files;
pub use nvml::{MAX_NVLINKS, NVML_LIBRARY, THROTTLE_REASONS};

use serde::{Deserialize, Serialize};
use std::path::Path;

/// Device name of the stand-ins for tests, so that their results are never mistaken for real ones.
const DOUBLE: &str = "commgauge double";

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

/// Answer of the CUDA driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CudaAnswer {
    /// The file that was loaded.
    pub file: String,
    /// True if the devices identify themselves as stand-ins for tests.
    pub is_double: bool,
    /// The newest CUDA that the driver supports, such as `12.8`.
    pub cuda: String,
    /// Devices that this process may use.
    pub devices: Vec<Device>,
    /// Whether a device (row) can read and write the memory of another (column).
    pub peers: Vec<Vec<bool>>,
    /// The error that ended the query early, if any.
    pub problem: Option<String>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Name.
    pub name: String,
    /// PCI address, as `0000:3b:00.0`.
    pub pci: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

/// Answer of NCCL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NcclAnswer {
    /// The file that was loaded.
    pub file: String,
    /// Its version, such as `2.30.7`.
    pub version: String,
    /// The CUDA that it was built with, such as `12.9`; absent if its file does not contain it.
    pub cuda: Option<String>,
    /// Required functions that are missing.
    pub lacks: Vec<String>,
    /// Newer functions that are missing.
    pub lacks_newer: Vec<String>,
    /// The error that ended the query early, if any.
    pub problem: Option<String>,
}

/// Answer of cuBLAS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CublasAnswer {
    /// The file that was loaded.
    pub file: String,
    /// Its version, such as `13.1.0`.
    pub version: String,
    /// Required functions that are missing.
    pub lacks: Vec<String>,
    /// The error that ended the query early, if any.
    pub problem: Option<String>,
}

/// Answer of NVML.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvmlAnswer {
    /// Its version.
    pub version: String,
    /// That of the driver.
    pub driver: String,
    /// Every device of this machine, including those that this process may not use.
    pub devices: Vec<NvmlDevice>,
    /// The error that ended the query early, if any.
    pub problem: Option<String>,
}

/// State of a device at this moment; fields that it does not report are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvmlDevice {
    /// Why the device cannot be queried; all other fields are then absent.
    pub problem: Option<String>,
    /// Name.
    pub name: String,
    /// PCI address.
    pub pci: String,
    /// Clock of the multiprocessors.
    pub multiprocessor_clock_mhz: Option<u32>,
    /// Maximum clock of the multiprocessors.
    pub highest_multiprocessor_clock_mhz: Option<u32>,
    /// Clock of the memory.
    pub memory_clock_mhz: Option<u32>,
    /// Maximum clock of the memory.
    pub highest_memory_clock_mhz: Option<u32>,
    /// Power drawn.
    pub power_watts: Option<u32>,
    /// Current power limit.
    pub power_limit_watts: Option<u32>,
    /// Default power limit of the device.
    pub usual_power_limit_watts: Option<u32>,
    /// Temperature.
    pub temperature_celsius: Option<u32>,
    /// Temperature at which it slows down.
    pub slowdown_celsius: Option<u32>,
    /// Names of the reasons why its clocks are throttled.
    pub held_back_by: Vec<String>,
    /// True if it is idle, so that its clocks may be low.
    pub is_idle: bool,
    /// Number of NVLinks.
    pub nvlinks: u32,
    /// Number of active NVLinks.
    pub nvlinks_active: u32,
    /// ECC mode: now, and after a restart.
    pub ecc: Option<(bool, bool)>,
    /// Uncorrected memory errors since the driver was loaded.
    pub uncorrected_errors: Option<u64>,
    /// MIG mode: now, and after a reset.
    pub mig: Option<(bool, bool)>,
    /// Whether persistence mode is on, which keeps the driver loaded while no process uses the device.
    pub is_persistent: Option<bool>,
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

/// Loads the first library of these names that exists.
fn load(names: &[std::ffi::OsString]) -> Result<(libloading::Library, String), String> {
    let mut problems = Vec::new();
    for name in names {
        // SAFETY: loading runs the library's initialisers, which is the purpose of a probe; the process does little
        // else.
        match unsafe { libloading::Library::new(name) } {
            Ok(library) => return Ok((library, file_of(&name.to_string_lossy()))),
            Err(error) => {
                let source = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                problems.push(source);
            }
        }
    }
    Err(problems.join("; "))
}

/// The file that a library of this name was mapped from; the name itself where that cannot be determined.
fn file_of(name: &str) -> String {
    let begin = Path::new(name).file_name().map_or_else(|| name.to_owned(), |name| name.to_string_lossy().into_owned());
    // `libnccl.so.2` is mostly a link to `libnccl.so.2.30.7`.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let stem = begin.split(".so").next().unwrap_or(&begin).to_owned() + ".so";
    let found = paths
        .into_iter()
        .find(|path| Path::new(path).file_name().is_some_and(|file| file.to_string_lossy().starts_with(&stem)));
    found.map_or_else(|| name.to_owned(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

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
