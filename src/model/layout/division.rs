//! Groups that a layout divides once more, into groups of the same number of ranks.

use super::Axis;
use super::degrees::{either, nearest_divisors};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is divided, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Division {
    /// Groups of `dp_cp` into so many copies of each shard, which lies within smaller groups (HSDP).
    ReplicasOfShards,
    /// Groups of shards into inner groups of so many consecutive ranks, those of a node, where they gather in two steps.
    InnerShards,
    /// Groups of cp into inner groups of so many consecutive ranks: the all_to_all of hybrid context parallelism.
    InnerContext,
    /// Groups of ep into inner groups of so many consecutive ranks, those of a node.
    InnerExperts,
    /// Groups of tp into groups of so many consecutive ranks, which share out the tokens of a request while they decode.
    DecodeContext,
}

impl Division {
    /// Every one, those that divide what another makes after it.
    pub(super) const ALL: [Division; 5] = [
        Division::ReplicasOfShards,
        Division::InnerShards,
        Division::InnerContext,
        Division::InnerExperts,
        Division::DecodeContext,
    ];

    /// The axis whose groups are divided.
    fn whole(self) -> Axis {
        match self {
            Division::ReplicasOfShards => Axis::DpCp,
            Division::InnerShards => Axis::DpShard,
            Division::InnerContext => Axis::Cp,
            Division::InnerExperts => Axis::Ep,
            Division::DecodeContext => Axis::Tp,
        }
    }

    /// Says that `parts` do not divide a group of `ranks`.
    fn sentence(self, parts: u32, ranks: u32) -> String {
        match self {
            Division::ReplicasOfShards => {
                format!("{parts} replicas of shards do not divide the {ranks} ranks of dp x cp")
            }
            Division::InnerShards => {
                format!("nodes of {parts} ranks do not divide the {ranks} ranks of a group of shards (gather_inner)")
            }
            Division::InnerContext => format!("inner groups of {parts} ranks do not divide cp = {ranks}"),
            Division::InnerExperts => format!("nodes of {parts} ranks do not divide ep = {ranks} (expert_inner)"),
            Division::DecodeContext => format!("decode_context = {parts} does not divide tp = {ranks}"),
        }
    }
}

/// How each [`Division`] is made; 1 where it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Divisions([u32; 5]);

impl Divisions {
    /// Nothing is divided.
    pub(super) const NONE: Divisions = Divisions([1; 5]);

    pub(super) fn of(&self, division: Division) -> u32 {
        self.0[division as usize]
    }

    /// The same with another division, of groups whose size `group_size` knows.
    ///
    /// # Errors
    /// Where `parts` do not divide them, with what does.
    pub(super) fn with(
        mut self,
        division: Division,
        parts: u32,
        group_size: impl Fn(Axis) -> u32,
    ) -> Result<Divisions, String> {
        let ranks = group_size(division.whole());
        if parts == 0 || !ranks.is_multiple_of(parts) {
            let nearest = either(&nearest_divisors(u64::from(ranks), u64::from(parts)));
            return Err(format!("{}; nearest that do: {nearest}", division.sentence(parts, ranks)));
        }
        self.0[division as usize] = parts;
        Ok(self)
    }
}
