//! The watchdog of a host was lost while a run went on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// From here on nobody watches the ranks of a host: a hang is ended by the deadline of each rank, and not explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnwatchedLine {
    /// The host.
    pub host: String,
    /// A rank on it that noticed.
    pub rank: u32,
}

impl UnwatchedLine {
    /// What follows from it, in one sentence without full stop.
    pub fn sentence(&self) -> String {
        format!(
            "the watchdog of host {} was lost during the run (noticed by rank {}): from then on the run was unwatched",
            self.host, self.rank
        )
    }
}
