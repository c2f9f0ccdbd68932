//! Process groups as PyTorch lists them (`pg_config_info` of torch/distributed/distributed_c10d.py).

use crate::trace::trace_file::TracedGroup;
use serde::Deserialize;

/// A process group of a job.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct TorchGroup {
    #[serde(default)]
    pub pg_name: String,
    /// The handle by which versions before 2.4 name the group in their calls.
    #[serde(default)]
    pub backend_id: Option<u64>,
    #[serde(default, alias = "group_size")]
    pub pg_size: Option<u32>,
    /// Empty where all ranks of the job are in it.
    #[serde(default)]
    pub ranks: Vec<u32>,
}

impl TorchGroup {
    /// World ranks, where they are known.
    pub(super) fn world_ranks(&self) -> Option<Vec<u32>> {
        match &self.ranks[..] {
            [] => self.pg_size.map(|size| (0..size).collect()),
            ranks => Some(ranks.to_vec()),
        }
    }

    /// As a group of a trace.
    pub(super) fn traced(&self) -> TracedGroup {
        let ranks = self.world_ranks();
        let size = ranks.as_ref().map(|ranks| ranks.len() as u32);
        TracedGroup { name: self.pg_name.clone(), ranks, size }
    }
}

/// The ranks of a job, as the group that has all of them says.
pub(super) fn world(groups: &[TorchGroup]) -> Option<u32> {
    groups.iter().filter(|group| group.ranks.is_empty()).filter_map(|group| group.pg_size).max()
}
