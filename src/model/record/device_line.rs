//! The lines about the devices of the ranks: what they are, and their state before and after each case. Written only
//! where ranks have devices that can be queried.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The devices of all ranks, once, before the first case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DevicesLine {
    /// What was asked, and its version, such as `NVML 13.580.95.05`; absent where no rank could ask anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Why nothing could be asked, with the first rank where it was so; absent where all could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
    /// One entry for each rank whose device answered.
    pub devices: Vec<DeviceFacts>,
}

/// A device, as far as it says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceFacts {
    /// World rank that has it.
    pub rank: u32,
    /// Name.
    pub name: String,
    /// Unique name.
    pub uuid: String,
    /// PCI address, as `0000:3b:00.0`.
    pub pci: String,
    /// NUMA node that it is nearest to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Version of the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The newest CUDA that the driver serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// Power that it may draw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_limit_watts: Option<f64>,
    /// NVLinks that are up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvlinks_active: Option<u32>,
    /// NVLinks that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvlinks: Option<u32>,
}

/// The devices before and after a case of a replicate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceReadingsLine {
    /// Index of the case in the plan.
    pub case: u32,
    /// Which repetition, from 0.
    pub replicate: u32,
    /// Ranks whose devices were read.
    pub ranks_read: u32,
    /// Over all of them, before.
    pub before: DeviceSpread,
    /// Over all of them, after.
    pub after: DeviceSpread,
    /// Ranks whose device changed in a way that speaks against the times.
    pub ranks_changed: u32,
    /// The first of them, and how.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<DeviceChange>,
}

/// Lowest and highest of each reading over the ranks; absent where no device tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceSpread {
    /// Clock of the multiprocessors, MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiprocessor_clock_mhz: Option<(f64, f64)>,
    /// Clock of the memory, MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_clock_mhz: Option<(f64, f64)>,
    /// Power drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<(f64, f64)>,
    /// Temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<(f64, f64)>,
    /// Why any of them was throttled, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttle_reasons: Vec<String>,
}

/// What changed on a rank's device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceChange {
    /// World rank.
    pub rank: u32,
    /// How, as a phrase.
    pub what: String,
}
