//! The axes along which ranks are grouped, and the groups of one axis as data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A dimension of the layout, or a combination of dimensions that has groups of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// All ranks in one group.
    World,
    /// Tensor parallel.
    Tp,
    /// Context parallel.
    Cp,
    /// Expert parallel, carved out of the data-parallel ranks.
    Ep,
    /// Tensor parallel inside experts.
    Etp,
    /// Data parallel.
    Dp,
    /// Pipeline parallel.
    Pp,
    /// Model parallel: tensor and pipeline together, all ranks that hold one replica.
    Mp,
    /// Data and context parallel together: the ranks that reduce the gradients of dense layers.
    DpCp,
    /// Data parallel of experts: the ranks that reduce the gradients of the same experts.
    Edp,
    /// Tensor parallel inside experts and expert parallel together: the ranks that exchange tokens.
    EtpEp,
    /// Tensor and context parallel together: the ranks that hold the tokens of one replica's micro-batch.
    TpCp,
    /// All ranks of a stage: tensor, context and data parallel together.
    TpCpDp,
    /// Tensor parallel inside experts, expert and pipeline parallel together: all ranks that hold one replica of the experts.
    ExpertMp,
    /// First and last stage of each pipeline, where they share an embedding. The other ranks are in no group.
    Embedding,
    /// Within `dp_cp`: the ranks that parameters are sharded over, where shards are replicated.
    DpShard,
    /// Within `dp_cp`: the ranks that hold the same shard.
    DpReplicate,
    /// Within `dp_shard`: the ranks of a node, which gather last.
    DpShardInner,
    /// Within `dp_shard`: the ranks of the same place on each node, which gather first.
    DpShardOuter,
    /// Within `cp`: the ranks of the inner all_to_all of hybrid context parallelism.
    CpInner,
    /// Within `cp`: the ranks of the outer ring of hybrid context parallelism.
    CpOuter,
    /// Disjoint pairs of ranks, one round of a tournament.
    Pair,
    /// The ranks of each node.
    Node,
    /// Groups of neighbouring nodes.
    Nodes,
    /// Within `ep`: the ranks of a node, or of a domain of NVLink.
    EpInner,
    /// Within `ep`: the ranks of the same place on each node.
    EpOuter,
    /// Within `dp`, of which the first half prefills and the second decodes: a rank, and the one of the same place in the other half.
    PrefillDecode,
    /// Within `tp`: the ranks that share out the tokens of the same keys and values while they decode.
    Dcp,
}

impl Axis {
    /// Every axis.
    pub const ALL: [Axis; 28] = [
        Axis::World,
        Axis::Tp,
        Axis::Cp,
        Axis::Ep,
        Axis::Etp,
        Axis::Dp,
        Axis::Pp,
        Axis::Mp,
        Axis::DpCp,
        Axis::Edp,
        Axis::EtpEp,
        Axis::TpCp,
        Axis::TpCpDp,
        Axis::ExpertMp,
        Axis::Embedding,
        Axis::DpShard,
        Axis::DpReplicate,
        Axis::DpShardInner,
        Axis::DpShardOuter,
        Axis::CpInner,
        Axis::CpOuter,
        Axis::Pair,
        Axis::Node,
        Axis::Nodes,
        Axis::EpInner,
        Axis::EpOuter,
        Axis::PrefillDecode,
        Axis::Dcp,
    ];

    /// The name in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Axis::World => "world",
            Axis::Tp => "tp",
            Axis::Cp => "cp",
            Axis::Ep => "ep",
            Axis::Etp => "etp",
            Axis::Dp => "dp",
            Axis::Pp => "pp",
            Axis::Mp => "mp",
            Axis::DpCp => "dp_cp",
            Axis::Edp => "edp",
            Axis::EtpEp => "etp_ep",
            Axis::TpCp => "tp_cp",
            Axis::TpCpDp => "tp_cp_dp",
            Axis::ExpertMp => "expert_mp",
            Axis::Embedding => "embedding",
            Axis::DpShard => "dp_shard",
            Axis::DpReplicate => "dp_replicate",
            Axis::DpShardInner => "dp_shard_inner",
            Axis::DpShardOuter => "dp_shard_outer",
            Axis::CpInner => "cp_inner",
            Axis::CpOuter => "cp_outer",
            Axis::Pair => "pair",
            Axis::Node => "node",
            Axis::Nodes => "nodes",
            Axis::EpInner => "ep_inner",
            Axis::EpOuter => "ep_outer",
            Axis::PrefillDecode => "prefill_decode",
            Axis::Dcp => "dcp",
        }
    }

    /// The axis of that name.
    pub fn named(name: &str) -> Option<Axis> {
        Axis::ALL.into_iter().find(|axis| axis.name() == name)
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The process groups of one axis. A rank is in at most one of them; only the ranks of [`Axis::Embedding`],
/// [`Axis::Pair`], [`Axis::Node`] and [`Axis::Nodes`], and of groups that were picked out, leave some without.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Groups {
    /// The axis.
    pub axis: Axis,
    /// World ranks of each group, in group-rank order.
    pub groups: Vec<Vec<u32>>,
}

/// A rank's place in the groups of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Index of its group.
    pub group: usize,
    /// Its rank within the group.
    pub rank_in_group: u32,
}

impl Groups {
    /// The whole world as one group.
    pub fn world(ranks: u32) -> Groups {
        Groups { axis: Axis::World, groups: vec![(0..ranks).collect()] }
    }

    /// Ranks in each group; the groups of an axis are equally large.
    pub fn group_size(&self) -> u32 {
        self.groups.first().map_or(0, |group| group.len() as u32)
    }

    /// Where a world rank is; `None` if it is in no group.
    pub fn place_of(&self, world_rank: u32) -> Option<Membership> {
        self.groups.iter().enumerate().find_map(|(group, members)| {
            let position = members.iter().position(|rank| *rank == world_rank)?;
            Some(Membership { group, rank_in_group: position as u32 })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_as_its_axis() {
        for axis in Axis::ALL {
            assert_eq!(Axis::named(axis.name()), Some(axis));
            assert_eq!(serde_json::to_value(axis).unwrap(), axis.name());
        }
    }
}
