//! What can be read of a rank's device beside the calls: what it is, and how it is at a moment.

use serde::{Deserialize, Serialize};

/// What a device is.
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
    /// The newest CUDA that the driver serves.
    pub cuda: Option<String>,
    /// Power that it may draw.
    pub power_limit_watts: Option<f64>,
    /// NVLinks that it has.
    pub nvlinks: Option<u32>,
}

/// How a device is at a moment; absent is what it does not tell.
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
    /// Why it is held back, by name.
    pub throttle_reasons: Vec<String>,
    /// True where it has nothing to do, so that its clocks may be low.
    pub is_idle: bool,
    /// NVLinks that are up.
    pub nvlinks_active: Option<u32>,
}

/// Reads a device. Never in the timed loop.
pub trait DeviceReader {
    /// What is asked, and its version.
    ///
    /// # Errors
    /// Why nothing can be asked, as a sentence.
    fn source(&self) -> Result<String, String>;

    /// What the device is; none where it cannot be asked.
    fn identity(&self) -> Option<DeviceIdentity>;

    /// How it is now; none where it cannot be asked.
    fn read(&mut self) -> Option<DeviceState>;
}
