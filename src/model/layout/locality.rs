//! Placement of the groups of an axis on the hosts.

use super::axes::Grid;
use super::{Axis, Division, Groups, Layout};
use crate::config::machine::ExpectedGroup;
use commgauge_base::writing::ascending;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// Placement of one group of an axis on the hosts (the busiest group if they differ).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Locality {
    /// Hosts that the group touches.
    pub nodes_spanned: u32,
    /// Maximum ranks of the group on one host.
    pub ranks_per_node: u32,
    /// Distance between neighbouring ranks of the group, 0 if it is not constant.
    pub stride: u32,
    /// Maximum number of groups of this axis with a rank on the same host.
    pub concurrent_groups_per_node: u32,
}

#[derive(Clone, Copy, Default)]
struct Host {
    /// The last group, counted from 1, that had a rank here.
    last_group: usize,
    ranks_of_last_group: u32,
    groups: u32,
}

impl Locality {
    /// The locality of an imported record without placement: zeros, which no placed group has.
    pub const UNKNOWN: Locality =
        Locality { nodes_spanned: 0, ranks_per_node: 0, stride: 0, concurrent_groups_per_node: 0 };

    /// Groups of this many neighbouring ranks on hosts that are filled one after another, all `groups` of them at once.
    pub fn filled(ranks: u32, ranks_per_node: u32, groups: u32) -> Locality {
        let ranks_per_node = ranks_per_node.max(1);
        Locality {
            nodes_spanned: ranks.div_ceil(ranks_per_node).max(1),
            ranks_per_node: ranks.min(ranks_per_node),
            stride: 1,
            concurrent_groups_per_node: (ranks_per_node / ranks.max(1)).clamp(1, groups.max(1)),
        }
    }

    /// Groups of this many ranks with this placement, as described in machine files.
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

/// Hosts numbered below the number of ranks, so that they can index a list.
fn small_numbers(host_of_rank: &[u32]) -> Cow<'_, [u32]> {
    if host_of_rank.iter().all(|host| (*host as usize) < host_of_rank.len()) {
        return Cow::Borrowed(host_of_rank);
    }
    let hosts = ascending(host_of_rank.iter().copied());
    // All hosts occur, so a host's place is its number either way.
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

// Which ranks are on which node, for work on nodes: pairs of them, each one alone, growing groups of them.

/// The ranks of each node, in rank order; nodes in the order of their first rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    pub ranks_of: Vec<Vec<u32>>,
}

impl Nodes {
    pub fn single(ranks: u32) -> Nodes {
        Nodes { ranks_of: vec![(0..ranks).collect()] }
    }

    /// Nodes filled one after the other; the last may have fewer ranks.
    pub fn filled(ranks: u32, ranks_per_node: u32) -> Nodes {
        let all: Vec<u32> = (0..ranks).collect();
        Nodes { ranks_of: all.chunks(ranks_per_node.max(1) as usize).map(<[u32]>::to_vec).collect() }
    }

    /// The nodes of ranks on these hosts, by anything that identifies a host.
    pub fn of_hosts<Host: PartialEq>(host_of_rank: &[Host]) -> Nodes {
        let mut hosts: Vec<&Host> = Vec::new();
        let mut ranks_of: Vec<Vec<u32>> = Vec::new();
        for (rank, host) in (0u32..).zip(host_of_rank) {
            // Ranks of a host are mostly neighbours, so the last host is checked first.
            match hosts.iter().rposition(|known| *known == host) {
                Some(node) => ranks_of[node].push(rank),
                None => {
                    hosts.push(host);
                    ranks_of.push(vec![rank]);
                }
            }
        }
        Nodes { ranks_of }
    }

    pub fn count(&self) -> usize {
        self.ranks_of.len()
    }

    pub fn ranks(&self) -> u32 {
        self.ranks_of.iter().map(|ranks| ranks.len() as u32).sum()
    }

    /// Ranks that every node has: with equal groups the further ranks of larger nodes are idle.
    pub fn ranks_on_each(&self) -> u32 {
        self.ranks_of.iter().map(|ranks| ranks.len() as u32).min().unwrap_or(0)
    }

    /// Each node alone, with as many ranks as every node has.
    pub fn inside(&self) -> Groups {
        self.inside_by(self.ranks_on_each())
    }

    /// Groups of this many neighbouring nodes; remaining nodes are idle.
    pub fn together(&self, nodes: u32) -> Groups {
        self.across(nodes, self.ranks_on_each())
    }

    /// The numbers of nodes in growing groups: 2, 4, 8 and so on, and finally all of them.
    pub fn growing(&self) -> Vec<u32> {
        let all = self.count() as u32;
        let mut numbers: Vec<u32> =
            std::iter::successors(Some(2u32), |nodes| nodes.checked_mul(2)).take_while(|nodes| *nodes < all).collect();
        if all >= 2 {
            numbers.push(all);
        }
        numbers
    }

    /// Groups of this many neighbouring ranks inside each node, all nodes at once; remaining ranks are idle.
    pub fn inside_by(&self, ranks: u32) -> Groups {
        let each = self.ranks_on_each() as usize;
        let of_node = |all: &Vec<u32>| all[..each].chunks_exact(ranks.max(1) as usize).map(<[u32]>::to_vec).collect();
        Groups {
            axis: Axis::Node,
            groups: self.ranks_of.iter().flat_map(|all| -> Vec<Vec<u32>> { of_node(all) }).collect(),
        }
    }

    /// Groups over this many neighbouring nodes with `ranks` ranks of each, like replicas with other parallelisms inside the nodes: a node
    /// with four ranks is in two groups of two, its ranks 0 and 2, and 1 and 3.
    pub fn across(&self, nodes: u32, ranks: u32) -> Groups {
        let stride = (self.ranks_on_each() / ranks.max(1)) as usize;
        let of_block = |block: &[Vec<u32>], first: usize| {
            let of_node =
                |all: &Vec<u32>| (0..ranks as usize).map(|index| all[first + index * stride]).collect::<Vec<_>>();
            block.iter().flat_map(of_node).collect()
        };
        let whole = self.ranks_of.chunks_exact(nodes.max(1) as usize);
        let groups =
            whole.flat_map(|block| (0..stride).map(|first| of_block(block, first)).collect::<Vec<_>>()).collect();
        Groups { axis: Axis::Nodes, groups }
    }

    /// Numbers of equal groups of several ranks into which the ranks common to all nodes divide, from 2 on.
    pub fn group_sizes_inside(&self) -> Vec<u32> {
        let each = self.ranks_on_each();
        (2..=each).filter(|ranks| each.is_multiple_of(*ranks)).collect()
    }
}

// Placement of the groups of an axis on nodes of equally many neighbouring ranks, computed from degrees and strides.
//
// The result equals [`Locality::of`] on the listed groups, which a test checks, but without listing all ranks, so that a planner can
// compute it for thousands of layouts. If nodes cut the grid unevenly, the groups are listed.

#[derive(Clone, Copy)]
struct GridAxis {
    degree: u32,
    /// The distance of neighbours along it, in ranks.
    stride: u32,
}

impl Layout {
    /// Placement of the groups of an axis on nodes of this many ranks each, neighbours in world rank.
    ///
    /// # Panics
    /// For [`Axis::Pair`], as [`Layout::groups`].
    pub fn locality(&self, axis: Axis, ranks_per_node: u32) -> Locality {
        let world = self.group_size(Axis::World);
        let node = ranks_per_node.clamp(1, world.max(1));
        let regular = match (self.is_placed_by_hand(), axis) {
            (true, _) => None,
            (false, Axis::Embedding) => self.ends_of_pipelines(world, node),
            (false, _) => self.members(axis).and_then(|members| regular(&members, world, node)),
        };
        regular.unwrap_or_else(|| listed(&self.groups(axis), world, node))
    }

    /// First and last stage of each pipeline, where nodes cut the grid evenly.
    fn ends_of_pipelines(&self, world: u32, node: u32) -> Option<Locality> {
        let (pp, stride) = (self.degrees.pp, Grid::Dense.stride(&self.degrees, self.order(), Axis::Pp));
        let block = stride.checked_mul(pp)?;
        if pp < 2 || !world.is_multiple_of(node) {
            return None;
        }
        let locality_of = |nodes_spanned, ranks_per_node, concurrent_groups_per_node| {
            Some(Locality { nodes_spanned, ranks_per_node, stride: (pp - 1) * stride, concurrent_groups_per_node })
        };
        if node.is_multiple_of(block) {
            locality_of(1, 2, node / pp)
        } else if stride.is_multiple_of(node) {
            locality_of(2, 1, node)
        } else if node.is_multiple_of(stride) && block.is_multiple_of(node) {
            locality_of(2, 1, stride)
        } else {
            None
        }
    }

    /// The axes along which the members of a group differ, the fastest first, without those of degree 1; `None` for groups that are not a
    /// product of axes.
    fn members(&self, axis: Axis) -> Option<Vec<GridAxis>> {
        let experts = if self.degrees.divides_experts() { Grid::Experts } else { Grid::Dense };
        let (grid, axes): (Grid, &[Axis]) = match axis {
            Axis::World => (Grid::Dense, &[Axis::Tp, Axis::Cp, Axis::Dp, Axis::Pp]),
            Axis::Tp => (Grid::Dense, &[Axis::Tp]),
            Axis::Cp => (Grid::Dense, &[Axis::Cp]),
            Axis::Dp => (Grid::Dense, &[Axis::Dp]),
            Axis::Pp => (Grid::Dense, &[Axis::Pp]),
            Axis::Mp => (Grid::Dense, &[Axis::Tp, Axis::Pp]),
            Axis::DpCp => (Grid::Dense, &[Axis::Dp, Axis::Cp]),
            Axis::Ep => (experts, &[Axis::Ep]),
            Axis::Etp => (experts, &[Axis::Tp]),
            Axis::Edp => (experts, &[Axis::Dp, Axis::Cp]),
            Axis::EtpEp => (experts, &[Axis::Tp, Axis::Ep]),
            Axis::TpCp => (Grid::Dense, &[Axis::Tp, Axis::Cp]),
            Axis::TpCpDp => (Grid::Dense, &[Axis::Tp, Axis::Cp, Axis::Dp]),
            Axis::ExpertMp => (experts, &[Axis::Tp, Axis::Ep, Axis::Pp]),
            Axis::CpInner | Axis::CpOuter => return self.parts(axis, Axis::Cp, Division::InnerContext),
            Axis::EpInner | Axis::EpOuter => return self.parts(axis, Axis::Ep, Division::InnerExperts),
            Axis::Dcp => return self.parts(axis, Axis::Tp, Division::DecodeContext),
            Axis::Embedding | Axis::DpShard | Axis::DpReplicate | Axis::DpShardInner | Axis::DpShardOuter => {
                return None;
            }
            Axis::PrefillDecode => return None,
            Axis::Pair | Axis::Node | Axis::Nodes => return None,
        };
        let chosen = self.order().iter().filter(|axis| axes.contains(axis));
        let members = chosen.map(|axis| GridAxis {
            degree: grid.degree(&self.degrees, *axis),
            stride: grid.stride(&self.degrees, self.order(), *axis),
        });
        Some(members.filter(|member| member.degree > 1).collect())
    }

    /// The same for an axis that a division makes of another one: of consecutive members, or of one member of each part.
    fn parts(&self, axis: Axis, whole: Axis, division: Division) -> Option<Vec<GridAxis>> {
        let members = self.members(whole)?;
        let [GridAxis { degree, stride }] = *members.as_slice() else { return None };
        let inner = self.parts_of(division);
        let part = match axis {
            Axis::CpOuter | Axis::EpOuter => GridAxis { degree: degree / inner, stride: stride.checked_mul(inner)? },
            _ => GridAxis { degree: inner, stride },
        };
        Some([part].into_iter().filter(|part| part.degree > 1).collect())
    }
}

/// For nodes that contain whole blocks of every axis, or are contained in one.
fn regular(members: &[GridAxis], world: u32, node: u32) -> Option<Locality> {
    if !world.is_multiple_of(node) {
        return None;
    }
    let mut on_one_node = 1;
    let mut all = 1;
    for GridAxis { degree, stride } in members {
        let block = stride.checked_mul(*degree)?;
        on_one_node *= if stride.is_multiple_of(node) {
            1
        } else if node.is_multiple_of(block) {
            *degree
        } else if node.is_multiple_of(*stride) && block.is_multiple_of(node) {
            node / stride
        } else {
            return None;
        };
        all *= degree;
    }
    Some(Locality {
        nodes_spanned: all / on_one_node,
        ranks_per_node: on_one_node,
        stride: common_regular_stride(members),
        concurrent_groups_per_node: node / on_one_node,
    })
}

/// The distance of neighbours, if it is the same within an axis and from its end to the next one.
fn common_regular_stride(members: &[GridAxis]) -> u32 {
    let follows =
        |pair: &[GridAxis]| u64::from(pair[1].stride) == u64::from(pair[0].degree) * u64::from(pair[0].stride);
    match members.first() {
        None => 1,
        Some(first) if members.windows(2).all(follows) => first.stride,
        Some(_) => 0,
    }
}

fn listed(groups: &Groups, world: u32, node: u32) -> Locality {
    let nodes: Vec<u32> = (0..world).map(|rank| rank / node).collect();
    Locality::of(groups, &nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Axis, DEFAULT_ORDER, Degrees};
    use proptest::strategy::{Just, Strategy};

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

    #[test]
    fn nodes_are_found_for_any_distribution_of_ranks() {
        let dealt = Nodes::of_hosts(&["a", "b", "a", "b", "a"]);
        assert_eq!(dealt.ranks_of, [vec![0, 2, 4], vec![1, 3]]);
        assert_eq!((dealt.count(), dealt.ranks(), dealt.ranks_on_each()), (2, 5, 2));
        assert_eq!(dealt.inside().groups, [vec![0, 2], vec![1, 3]], "equal groups leave rank 4 idle");
        assert_eq!(Nodes::filled(5, 2), Nodes::of_hosts(&[0, 0, 1, 1, 2]));
    }

    #[test]
    fn groups_of_every_size_lie_inside_nodes_and_across_them() {
        let nodes = Nodes::filled(8, 4);
        assert_eq!(nodes.group_sizes_inside(), [2, 4]);
        assert_eq!(nodes.inside_by(2).groups, [[0, 1], [2, 3], [4, 5], [6, 7]]);
        assert_eq!(nodes.across(2, 1).groups, [[0, 4], [1, 5], [2, 6], [3, 7]]);
        assert_eq!(nodes.across(2, 2).groups, [[0, 2, 4, 6], [1, 3, 5, 7]]);
        assert_eq!(nodes.across(2, 4).groups, [(0..8).collect::<Vec<u32>>()]);
        assert_eq!(Nodes::filled(6, 3).group_sizes_inside(), [3]);
        assert_eq!(
            Nodes::filled(5, 3).inside_by(2).groups,
            [[0, 1], [3, 4]],
            "the third rank of the larger node is idle"
        );
    }

    #[test]
    fn growing_groups_double_and_end_with_all_nodes() {
        for (ranks, expected) in
            [(2, vec![]), (4, vec![2]), (6, vec![2, 3]), (16, vec![2, 4, 8]), (20, vec![2, 4, 8, 10])]
        {
            assert_eq!(Nodes::filled(ranks, 2).growing(), expected, "{ranks} ranks");
        }
        assert_eq!(Nodes::filled(6, 2).together(2).groups, [vec![0, 1, 2, 3]], "the third node is idle");
    }

    #[test]
    fn sixteen_thousand_ranks_lie_as_the_llama_3_paper_has_them() {
        let order = [Axis::Tp, Axis::Cp, Axis::Pp, Axis::Dp];
        let layout = Layout::new(Degrees::dense(8, 1, 128, 16), &order).unwrap();
        let locality_of = |axis| layout.locality(axis, 8);
        assert_eq!(
            locality_of(Axis::Tp),
            Locality { nodes_spanned: 1, ranks_per_node: 8, stride: 1, concurrent_groups_per_node: 1 }
        );
        assert_eq!(
            locality_of(Axis::Pp),
            Locality { nodes_spanned: 16, ranks_per_node: 1, stride: 8, concurrent_groups_per_node: 8 }
        );
        assert_eq!(locality_of(Axis::Dp).stride, 128);
    }

    proptest::proptest! {
        #[test]
        fn equals_the_locality_of_the_listed_groups(
            tp in 1u32..5, cp in 1u32..5, dp in 1u32..7, pp in 1u32..4, ep in 1u32..9, own in proptest::bool::ANY,
            node in 1u32..13, parts in 1u32..5, order in Just(DEFAULT_ORDER.to_vec()).prop_shuffle(),
        ) {
            let degrees = Degrees { tp, cp, dp, pp, ep, etp: if own { 1 } else { tp } };
            let Ok(layout) = Layout::new(degrees, &order) else { return Ok(()) };
            let divisions = [Division::InnerContext, Division::InnerExperts, Division::DecodeContext];
            let layout = divisions.into_iter().fold(layout, |layout, division| {
                layout.clone().divided(division, parts).unwrap_or(layout)
            });
            let world = layout.group_size(Axis::World);
            let not_of_a_layout = [Axis::Pair, Axis::Node, Axis::Nodes];
            for axis in Axis::ALL.into_iter().filter(|axis| !not_of_a_layout.contains(axis)) {
                let expected = listed(&layout.groups(axis), world, node);
                proptest::prop_assert_eq!(layout.locality(axis, node), expected, "{} {:?} {}", axis, degrees, node);
            }
        }
    }
}
