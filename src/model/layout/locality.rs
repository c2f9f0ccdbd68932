//! Placement of the groups of an axis on the hosts.

use super::Groups;
use crate::config::machine::ExpectedGroup;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// How one group of an axis lies on the hosts (the busiest group where they differ).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Locality {
    /// Hosts that the group touches.
    pub nodes_spanned: u32,
    /// Most ranks of the group on one host.
    pub ranks_per_node: u32,
    /// Distance between neighbouring ranks of the group, 0 where it is not constant.
    pub stride: u32,
    /// Most groups of this axis that have a rank on the same host.
    pub concurrent_groups_per_node: u32,
}

/// Counters of one host.
#[derive(Clone, Copy, Default)]
struct Host {
    /// The last group, counted from 1, that had a rank here.
    last_group: usize,
    ranks_of_last_group: u32,
    groups: u32,
}

impl Locality {
    /// The locality of an imported record without placement: zeros, which no group on hosts has.
    pub const UNKNOWN: Locality =
        Locality { nodes_spanned: 0, ranks_per_node: 0, stride: 0, concurrent_groups_per_node: 0 };

    /// Groups of this many ranks next to each other on hosts that are filled one after another, all `groups` of them at once.
    pub fn filled(ranks: u32, ranks_per_node: u32, groups: u32) -> Locality {
        let ranks_per_node = ranks_per_node.max(1);
        Locality {
            nodes_spanned: ranks.div_ceil(ranks_per_node).max(1),
            ranks_per_node: ranks.min(ranks_per_node),
            stride: 1,
            concurrent_groups_per_node: (ranks_per_node / ranks.max(1)).clamp(1, groups.max(1)),
        }
    }

    /// Groups of so many ranks that lie like this, as machine files describe them.
    pub fn group(&self, ranks: u32) -> ExpectedGroup {
        ExpectedGroup {
            ranks,
            ranks_per_node: self.ranks_per_node,
            nodes: self.nodes_spanned,
            groups_per_node: self.concurrent_groups_per_node,
        }
    }

    /// Whether the placement is known.
    pub fn is_known(&self) -> bool {
        self.nodes_spanned > 0
    }

    /// The locality of an axis whose ranks are on `host_of_rank` (any number that identifies a host). Time and memory
    /// are linear in the ranks.
    pub fn of(groups: &Groups, host_of_rank: &[u32]) -> Locality {
        let host_of_rank = small_numbers(host_of_rank);
        let mut hosts = vec![Host::default(); host_of_rank.len()];
        let mut locality = Locality {
            nodes_spanned: 1,
            ranks_per_node: 1,
            stride: common_stride(groups),
            concurrent_groups_per_node: 1,
        };
        for (index, group) in groups.groups.iter().enumerate() {
            let mut spanned = 0;
            for rank in group {
                let host = &mut hosts[host_of_rank[*rank as usize] as usize];
                if host.last_group != index + 1 {
                    *host = Host { last_group: index + 1, ranks_of_last_group: 0, groups: host.groups + 1 };
                    spanned += 1;
                    locality.concurrent_groups_per_node = locality.concurrent_groups_per_node.max(host.groups);
                }
                host.ranks_of_last_group += 1;
                locality.ranks_per_node = locality.ranks_per_node.max(host.ranks_of_last_group);
            }
            locality.nodes_spanned = locality.nodes_spanned.max(spanned);
        }
        locality
    }
}

/// Hosts numbered by less than the number of ranks, so that they can be the index of a list.
fn small_numbers(host_of_rank: &[u32]) -> Cow<'_, [u32]> {
    if host_of_rank.iter().all(|host| (*host as usize) < host_of_rank.len()) {
        return Cow::Borrowed(host_of_rank);
    }
    let mut hosts = host_of_rank.to_vec();
    hosts.sort_unstable();
    hosts.dedup();
    // Every host is among them, so its place is its number either way.
    Cow::Owned(host_of_rank.iter().map(|host| hosts.partition_point(|other| other < host) as u32).collect())
}

/// 1 if no group has two ranks; 0 also if ranks descend, which only a manual mapping can do.
fn common_stride(groups: &Groups) -> u32 {
    let mut strides = groups.groups.iter().flat_map(|group| group.array_windows().map(|[a, b]| b.saturating_sub(*a)));
    let first = strides.next().unwrap_or(1);
    if strides.all(|stride| stride == first) { first } else { 0 }
}

impl fmt::Display for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_known() {
            f.pad(&format!("{} x {}", self.nodes_spanned, self.ranks_per_node))
        } else {
            f.pad("unknown")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Axis;

    fn groups(groups: Vec<Vec<u32>>) -> Groups {
        Groups { axis: Axis::Pp, groups }
    }

    fn locality_of(nodes_spanned: u32, ranks_per_node: u32, stride: u32, concurrent_groups_per_node: u32) -> Locality {
        Locality { nodes_spanned, ranks_per_node, stride, concurrent_groups_per_node }
    }

    #[test]
    fn a_pipeline_of_four_stages_over_two_hosts_spans_both() {
        let pipelines = groups((0..4).map(|first| vec![first, first + 4, first + 8, first + 12]).collect());
        let hosts: Vec<u32> = (0..16).map(|rank| rank / 8).collect();
        assert_eq!(Locality::of(&pipelines, &hosts), locality_of(2, 2, 4, 4));
        let named: Vec<u32> = hosts.iter().map(|host| u32::MAX - host).collect();
        assert_eq!(Locality::of(&pipelines, &named), locality_of(2, 2, 4, 4), "hosts may have any number");
    }

    #[test]
    fn the_busiest_group_counts_and_differing_strides_give_no_stride() {
        for (ranks, hosts, expected) in [
            (vec![vec![0, 1, 3], vec![2]], vec![0, 0, 0, 1], locality_of(2, 2, 0, 2)),
            (vec![vec![1, 0], vec![3, 2]], vec![0, 0, 1, 1], locality_of(1, 2, 0, 1)),
            (vec![vec![0], vec![1]], vec![0, 1], locality_of(1, 1, 1, 1)),
            (vec![vec![0, 1, 2]], vec![0, 1, 0], locality_of(2, 2, 1, 1)),
            (vec![], vec![], locality_of(1, 1, 1, 1)),
        ] {
            assert_eq!(Locality::of(&groups(ranks.clone()), &hosts), expected, "{ranks:?}");
        }
    }
}
