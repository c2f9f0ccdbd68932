//! Readings of a rank's device during the calls: its identity, and its state at a moment.

use serde::{Deserialize, Serialize};

/// Identity of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceIdentity {
    /// Name.
    pub name: String,
    /// Unique name.
    pub uuid: String,
    /// PCI address.
    pub pci: String,
    /// NUMA node that it is nearest to.
    pub numa_node: Option<u32>,
    /// Version of the driver.
    pub driver: Option<String>,
    /// The newest CUDA version that the driver supports.
    pub cuda: Option<String>,
    /// Power that it may draw.
    pub power_limit_watts: Option<f64>,
    /// NVLinks that it has.
    pub nvlinks: Option<u32>,
}

/// State of a device at one moment; values that the device does not report are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceState {
    /// Clock of the multiprocessors, MHz.
    pub multiprocessor_clock_mhz: Option<f64>,
    /// Clock of the memory, MHz.
    pub memory_clock_mhz: Option<f64>,
    /// Power drawn.
    pub power_watts: Option<f64>,
    /// Temperature.
    pub temperature_celsius: Option<f64>,
    /// Names of the active throttle reasons.
    pub throttle_reasons: Vec<String>,
    /// True if it has no work, so that its clocks may be low.
    pub is_idle: bool,
    /// NVLinks that are up.
    pub nvlinks_active: Option<u32>,
}

/// Reads a device. Never in the timed loop.
pub trait DeviceReader {
    /// Name and version of the library that answers.
    ///
    /// # Errors
    /// Why no library can be queried, as a sentence.
    fn source(&self) -> Result<String, String>;

    /// Identity of the device; none if it cannot be queried.
    fn identity(&self) -> Option<DeviceIdentity>;

    /// Current state of the device; none if it cannot be queried.
    fn read(&mut self) -> Option<DeviceState>;
}
