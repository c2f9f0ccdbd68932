//! The part of the header that describes the backend, and the machine according to its machine file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackendLine {
    /// `mpi`, `nccl` or `simulated`; `imported` where another tool measured.
    pub name: String,
    /// True where no data moved and no real time passed.
    pub synthetic: bool,
    /// Library and version.
    pub library: String,
    /// What the library says of its transports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// How it carries out and times what it does, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The machine file that bounds (or, simulated, the times) come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Nodes behind each leaf switch according to the machine file, counted from node 0; absent where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_per_leaf: Option<u32>,
}
