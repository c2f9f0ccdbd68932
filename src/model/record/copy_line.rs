//! The line of a copy that every rank made with its own GPU, in one replicate.

use super::outcome::Outcome;
use crate::config::{CopyKind, HostMemory};
use crate::workload::CopyShape;
use commgauge_base::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A copy, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopyLine {
    /// The copy.
    pub copy: CopyFacts,
    /// Which repetition, from 0.
    pub replicate: u32,
    /// What came of it. `verified` means that every byte at the target was compared.
    pub outcome: Outcome,
    /// Copies of each sample, back to back, by whose number its time was divided.
    pub copies_per_sample: u32,
    /// Of each sample, the slowest rank's time of one copy.
    pub slowest_nanoseconds: Vec<u64>,
    /// World rank of the slowest.
    pub slowest_rank: Vec<u32>,
    /// The median of the samples of each rank, in the order of the ranks.
    pub median_nanoseconds: Vec<u64>,
}

/// What is copied, from where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct CopyFacts {
    /// From where to where.
    pub kind: CopyKind,
    /// Memory of the host's end, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_memory: Option<HostMemory>,
    /// How far the other rank is in the order of the ranks of its host, where there is one; behind the last one comes the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_distance: Option<u32>,
    /// Bytes in each direction.
    pub bytes: Bytes,
    /// Whether one rank of each host copied at a time.
    pub alone: bool,
}

impl CopyFacts {
    /// The record form of a copy of the plan.
    pub fn of(shape: &CopyShape) -> CopyFacts {
        let CopyShape { kind, host_memory, peer_distance, bytes, alone } = *shape;
        CopyFacts { kind, host_memory, peer_distance, bytes, alone }
    }

    /// Its name among the rows of a verdict, such as `copy/host-to-device/pinned/268435456/alone`.
    pub fn name(&self) -> String {
        let memory = self.host_memory.map(|memory| memory.name().to_owned());
        let peer = self.peer_distance.map(|distance| format!("+{distance}"));
        let each = if self.alone { "alone" } else { "together" };
        let parts = memory.into_iter().chain(peer).chain([self.bytes.0.to_string(), each.to_owned()]);
        format!("copy/{}/{}", self.kind.name(), parts.collect::<Vec<_>>().join("/"))
    }
}
