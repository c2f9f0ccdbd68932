//! How the groups of an axis lie on the hosts.

use super::Groups;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;

/// How one group of an axis lies on the hosts (the busiest group where they differ).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

impl Locality {
    /// What an imported record says that names no placement: zeros, which no group on hosts has.
    pub const UNKNOWN: Locality =
        Locality { nodes_spanned: 0, ranks_per_node: 0, stride: 0, concurrent_groups_per_node: 0 };

    /// Whether it says how the group lies.
    pub fn is_known(&self) -> bool {
        self.nodes_spanned > 0
    }

    /// The locality of an axis whose ranks lie on `host_of_rank` (any number that tells hosts apart).
    pub fn of(groups: &Groups, host_of_rank: &[u32]) -> Locality {
        let mut groups_on_host: HashMap<u32, u32> = HashMap::new();
        let (mut nodes_spanned, mut ranks_per_node) = (1, 1);
        for group in &groups.groups {
            let mut ranks_on_host: HashMap<u32, u32> = HashMap::new();
            for rank in group {
                *ranks_on_host.entry(host_of_rank[*rank as usize]).or_default() += 1;
            }
            nodes_spanned = nodes_spanned.max(ranks_on_host.len() as u32);
            ranks_per_node = ranks_per_node.max(ranks_on_host.values().copied().max().unwrap_or(1));
            for host in ranks_on_host.into_keys() {
                *groups_on_host.entry(host).or_default() += 1;
            }
        }
        Locality {
            nodes_spanned,
            ranks_per_node,
            stride: common_stride(groups),
            concurrent_groups_per_node: groups_on_host.values().copied().max().unwrap_or(1),
        }
    }
}

fn common_stride(groups: &Groups) -> u32 {
    let mut strides = groups.groups.iter().flat_map(|group| group.array_windows().map(|[a, b]| b.wrapping_sub(*a)));
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

    #[test]
    fn a_pipeline_of_four_stages_over_two_hosts_spans_both() {
        let groups = Groups {
            axis: Axis::Pp,
            groups: (0..4).map(|first| vec![first, first + 4, first + 8, first + 12]).collect(),
        };
        let hosts: Vec<u32> = (0..16).map(|rank| rank / 8).collect();
        let expected = Locality { nodes_spanned: 2, ranks_per_node: 2, stride: 4, concurrent_groups_per_node: 4 };
        assert_eq!(Locality::of(&groups, &hosts), expected);
    }
}
