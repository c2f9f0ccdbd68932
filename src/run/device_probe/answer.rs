//! Answers of libraries about themselves and their devices.

use serde::{Deserialize, Serialize};

/// Answer of the CUDA driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CudaAnswer {
    pub file: String,
    /// True if the devices identify themselves as test doubles.
    pub is_double: bool,
    /// The newest CUDA version that the driver supports, such as `12.8`.
    pub cuda: String,
    /// Devices that this process may use.
    pub devices: Vec<Device>,
    /// Whether a device (row) can read and write the memory of another (column).
    pub peers: Vec<Vec<bool>>,
    /// The error that ended the query early, if any.
    pub problem: Option<String>,
}

/// A CUDA device that this process may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub name: String,
    /// PCI address, as `0000:3b:00.0`.
    pub pci: String,
    pub memory_bytes: u64,
}

/// The NCCL that runs would load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NcclAnswer {
    /// The file that was loaded.
    pub file: String,
    /// Why this file: where it was found, and what led there.
    #[serde(default)]
    pub why: String,
    /// Its version, such as `2.30.7`.
    pub version: String,
    /// The CUDA that it was built with, such as `12.9`; absent if its file does not contain it.
    pub cuda: Option<String>,
    /// Required functions that are missing.
    pub lacks: Vec<String>,
    pub lacks_newer: Vec<String>,
    /// The error that ended the query early, if any.
    pub problem: Option<String>,
}

/// The cuBLAS that matrix products would load.
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

/// The report of the NVIDIA management library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvmlAnswer {
    pub version: String,
    pub driver: String,
    /// Every device of this machine, including those that this process may not use.
    pub devices: Vec<NvmlDevice>,
    /// The error that ended the query early, if any.
    pub problem: Option<String>,
}

/// Current state of a device; fields that it does not report are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvmlDevice {
    /// Why the device cannot be queried; all other fields are then absent.
    pub problem: Option<String>,
    pub name: String,
    /// PCI address.
    pub pci: String,
    pub multiprocessor_clock_mhz: Option<u32>,
    /// Maximum clock of the multiprocessors.
    pub highest_multiprocessor_clock_mhz: Option<u32>,
    pub memory_clock_mhz: Option<u32>,
    /// Maximum clock of the memory.
    pub highest_memory_clock_mhz: Option<u32>,
    /// Power drawn.
    pub power_watts: Option<u32>,
    /// Current power limit.
    pub power_limit_watts: Option<u32>,
    /// Default power limit of the device.
    pub usual_power_limit_watts: Option<u32>,
    pub temperature_celsius: Option<u32>,
    /// Temperature at which it slows down.
    pub slowdown_celsius: Option<u32>,
    /// Names of the reasons why its clocks are throttled.
    pub throttled_by: Vec<String>,
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
