//! A rank, as a record describes it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A rank and where it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankFacts {
    /// World rank.
    pub rank: u32,
    /// Ranks that this entry stands for, from `rank` on (1 but when simulated).
    pub ranks: u32,
    /// Host name, as the host gives it.
    pub host: String,
    /// Number of the host in order of first appearance.
    pub node: u32,
    /// Process id.
    pub pid: u32,
    /// Processors that the rank may run on, as a list of ranges.
    pub cores: String,
    /// NUMA nodes of those processors, as a list of ranges.
    pub numa_nodes: String,
    /// Processor name.
    pub processor: String,
    /// Operating system kernel.
    pub kernel: String,
    /// Device, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Network adapters nearest to the device, all that are equally near, such as `mlx5_0 (same PCIe switch, 400 Gb/sec (4X NDR))`; behind
    /// them those at least as near of which no port is active, such as `mlx5_1 (same PCIe switch) is down`. Empty where there are none, or
    /// the system does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adapters: Vec<String>,
}
