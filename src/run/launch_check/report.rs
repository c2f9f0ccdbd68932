//! What the check of a launch found, as data: for the table, for `--format json`, for the refusal and for the record.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name of the format.
pub const LAUNCH_FORMAT: &str = "commgauge-launch";
/// Raised when something is taken away or changes its meaning.
pub const LAUNCH_VERSION: u32 = 1;

/// What the ranks of a launch have in common, and where they differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LaunchReport {
    /// Always `commgauge-launch`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Ranks, as MPI counts them.
    pub ranks: u32,
    /// What the launcher says of the number of ranks, with the variable in which it does; absent where it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher_says: Option<String>,
    /// Every host, in the order of its first rank.
    pub hosts: Vec<HostRow>,
    /// What is the same on all ranks.
    pub shared: Vec<Shared>,
    /// What is not.
    pub differences: Vec<Difference>,
    /// Why the ranks may not measure together, as sentences; with any of them the exit code is 7.
    pub refusals: Vec<String>,
    /// What speaks against the numbers, as sentences; they go into the record.
    pub warnings: Vec<String>,
    /// What a reader should know and what speaks against no number, as sentences; they go into the record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A host and its limits, which are the lowest of its ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostRow {
    /// Its name, with a number where several hosts have the same.
    pub host: String,
    /// Its ranks, as ranges.
    pub ranks: String,
    /// How many they are.
    pub rank_count: u32,
    /// Processors that its ranks may run on.
    pub processors: u32,
    /// How the ranks lie on them, in a few words.
    pub binding: String,
    /// Whether ranks share processors, so that they have to take turns; absent where each has its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ranks_share_processors: bool,
    /// Memory that a rank may lock; absent where there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_lock_bytes: Option<u64>,
    /// Files that a rank may have open; absent where there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
}

/// A fact that all ranks share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shared {
    /// Which.
    pub what: String,
    /// Its value.
    pub value: String,
}

/// A fact in which ranks differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// Which, or the variable or setting.
    pub what: String,
    /// Whether the launch is refused for it.
    pub refused: bool,
    /// The values, in the order of their first rank.
    pub values: Vec<Value>,
}

/// A value, and the ranks that have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Value {
    /// What they have.
    pub value: String,
    /// The ranks, as ranges.
    pub ranks: String,
    /// How many they are.
    pub rank_count: u32,
}
