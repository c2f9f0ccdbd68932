//! Which ranks are on which node, for work that is about nodes: pairs of them, each within itself, growing groups of them.

use super::{Axis, Groups};

/// The ranks of each node, in rank order; nodes in the order of their first rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    ranks_of: Vec<Vec<u32>>,
}

impl Nodes {
    /// All ranks on one node.
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

    /// Number of nodes.
    pub fn count(&self) -> usize {
        self.ranks_of.len()
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks_of.iter().map(|ranks| ranks.len() as u32).sum()
    }

    /// Ranks of each node.
    pub fn ranks_of(&self) -> &[Vec<u32>] {
        &self.ranks_of
    }

    /// Ranks that every node has: with equal groups the further ranks of larger nodes are idle.
    pub fn ranks_on_each(&self) -> u32 {
        self.ranks_of.iter().map(|ranks| ranks.len() as u32).min().unwrap_or(0)
    }

    /// Each node within itself, with as many ranks as all have.
    pub fn inside(&self) -> Groups {
        self.inside_by(self.ranks_on_each())
    }

    /// Groups of this many neighbouring nodes; remaining nodes are idle.
    pub fn together(&self, nodes: u32) -> Groups {
        self.across(nodes, self.ranks_on_each())
    }

    /// The numbers of nodes in growing groups: 2, 4, 8 and so on, and all of them.
    pub fn growing(&self) -> Vec<u32> {
        let all = self.count() as u32;
        let mut numbers: Vec<u32> =
            std::iter::successors(Some(2u32), |nodes| nodes.checked_mul(2)).take_while(|nodes| *nodes < all).collect();
        if all >= 2 {
            numbers.push(all);
        }
        numbers
    }

    /// Groups of this many neighbouring ranks inside each node, all nodes at once; ranks that are left over are idle.
    pub fn inside_by(&self, ranks: u32) -> Groups {
        let each = self.ranks_on_each() as usize;
        let of_node = |all: &Vec<u32>| all[..each].chunks_exact(ranks.max(1) as usize).map(<[u32]>::to_vec).collect();
        Groups {
            axis: Axis::Node,
            groups: self.ranks_of.iter().flat_map(|all| -> Vec<Vec<u32>> { of_node(all) }).collect(),
        }
    }

    /// Groups over this many neighbouring nodes with `ranks` ranks of each, as replicas lie that have other parallelisms inside
    /// the nodes: a node with four ranks is in two groups of two, its ranks 0 and 2, and 1 and 3.
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

    /// Ranks of a node that can be shared out in equal groups of several: the divisors of all that every node has, from 2 on.
    pub fn group_sizes_inside(&self) -> Vec<u32> {
        let each = self.ranks_on_each();
        (2..=each).filter(|ranks| each.is_multiple_of(*ranks)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_found_for_any_distribution_of_ranks() {
        let dealt = Nodes::of_hosts(&["a", "b", "a", "b", "a"]);
        assert_eq!(dealt.ranks_of(), [vec![0, 2, 4], vec![1, 3]]);
        assert_eq!((dealt.count(), dealt.ranks(), dealt.ranks_on_each()), (2, 5, 2));
        assert_eq!(dealt.inside().groups, [vec![0, 2], vec![1, 3]], "equal groups leave rank 4 aside");
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
        assert_eq!(Nodes::filled(6, 2).together(2).groups, [vec![0, 1, 2, 3]], "the third node stands aside");
    }
}
