//! The machine file: the link rates of a machine, for bounds of bus bandwidth and for the simulated backend, and its
//! expected performance, for verdicts.
//!
//! Rates are those of the links, per direction. The rates that a library reaches over them have to be measured.

mod description;
mod expect;
mod fault;
mod level;
mod lint;
mod own_work;
mod read;

pub use description::{
    Computing, Expectation, ExpectedCall, ExpectedGroup, JudgedRuns, Limit, Machine, Network, NetworkExpectation,
    NodeLinks, Noise, Reached, RequiredCoverage, Version,
};
pub use fault::{Direction, Fault};
pub use level::{ANY_GPU, LayerKind, Level};
pub use lint::{Finding, lint};
pub use own_work::{ExpectedWork, OwnWorkExpectation};

use crate::config::document::Place;
use crate::config::shipped::{Shipped, read_text};
use commgauge_base::collective::{Algorithm, Collective, Motion};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Rate;
use std::path::Path;

impl Machine {
    /// Reads and checks a machine file, given by path or name, as [`Shipped::find`] finds it.
    ///
    /// # Errors
    /// A usage error where there is none, an environment error where it cannot be read, else as [`Machine::parse`].
    pub fn load(requested: &Path) -> Result<Machine> {
        let path = Shipped::Machine.find(requested).ok_or_else(|| Error::usage(Shipped::Machine.unknown(requested)))?;
        Machine::parse(&read_text(&path, &Place::flag("--machine"))?, &path)
    }

    /// Checks the text of a machine file; `path` is for the messages.
    ///
    /// # Errors
    /// A usage error that names file, line and key: not TOML, an unknown key, a missing or impossible value.
    pub fn parse(text: &str, path: &Path) -> Result<Machine> {
        read::parse(text, path)
    }

    /// Rate at which one rank can send to `ranks` ranks of its node, including itself: over all its links, or those to
    /// its peers.
    pub fn within_rate_per_rank(&self, ranks: u32) -> Rate {
        let peers = f64::from(ranks.saturating_sub(1).max(1));
        let links = self.within_node.rate_per_peer.map_or(f64::INFINITY, |rate| rate.0 * peers);
        Rate(self.within_node.rate.0.min(links))
    }

    /// What one rank can send over the network while `active_ranks` ranks of its node do so.
    ///
    /// A rank drives the adapters that are its own: with fewer ranks than adapters several, otherwise one. That is how
    /// libraries bind ranks to adapters; one that lets a rank send over its neighbours' adapters could be faster.
    pub fn adapter_rate_per_rank(&self, active_ranks: u32) -> Rate {
        let adapters = f64::from(self.between_nodes.adapters_per_node);
        let own = (adapters / f64::from(self.ranks_per_node)).max(1.0);
        Rate(own.min(adapters / f64::from(active_ranks.max(1))) * self.between_nodes.rate_per_adapter.0)
    }
}

// The highest bus bandwidth that the links of a machine allow.
//
// Every bound counts the bytes that must cross the busiest link in one direction, whatever the algorithm, as long as
// ranks do the sending and reducing. Symbols: k nodes with m ranks each, n = k m ranks in the group, S the size argument,
// r the rate of a rank's links within the node, a the rate of the adapters that one rank can use (shared with the
// other ranks of its node that use the network at the same time), e = m a what the group gets out of or into a node,
// B = f S / t the bus bandwidth with the factor f of [`Collective::bus_factor`].
//
// * all_gather: the adapters bring S (k-1)/k into each node and the links the rest of S (n-1)/n to each rank. From
//   t >= S (k-1)/k / e follows B <= a (n-1)/(k-1); from t >= S (n-k)/n / r follows B <= r (n-1)/(n-k). reduce_scatter is
//   its mirror image and all_reduce both one after the other. The rule "adapter rate = busbw (k-1)/(n-1)" is that of
//   S. Bekman, ml-engineering, `network/README.md`.
// * all_to_all: each rank sends S (n-m)/n over its adapter and S (m-1)/n within the node: B <= a (n-1)/(n-m) and
//   B <= r (n-1)/(m-1). With many ranks per node the first is near a k/(k-1), the answer in nccl-tests issue 130; SimAI has
//   the same in `calbusbw.cc`.
// * broadcast, reduce: S crosses the links of the root, and the adapters of every other node: B <= e and B <= r.
// * gather, scatter: S (n-m)/n crosses the adapters of the root's node, S (n-1)/n the root's links and its own adapter.
// * point-to-point: one message crosses one link; how many share the adapters depends on the pattern.
//
// Hosts whose ranks are joined by the links within a node (NVL72) count as that node. Where each pair of ranks has a link of
// its own instead of a switch (`rate_per_peer`), r is that of the links to the ranks of the group.
//
// Switches that reduce or copy by themselves (NVLS, SHARP) move fewer bytes and may exceed these bounds.

impl Machine {
    /// The highest bus bandwidth that the links allow for the groups of an expectation.
    fn bound_of(&self, expected: &Expectation) -> Option<Rate> {
        let ExpectedGroup { nodes, ranks_per_node, groups_per_node, .. } = expected.group;
        self.bus_bandwidth_bound(expected.collective, nodes, ranks_per_node, groups_per_node)
    }

    /// The highest bus bandwidth that the links allow for a group with `ranks_per_node` ranks on each of
    /// `nodes_spanned` nodes, while `concurrent_groups_per_node` such groups share the adapters of a node.
    ///
    /// `None` where nothing crosses a link (one rank, barrier) and where every rate in question is only assumed. If
    /// nodes have different numbers of the group's ranks, pass the largest: the bound is then looser, but still valid.
    /// The ranks of a node must be neighbours within the group.
    pub fn bus_bandwidth_bound(
        &self,
        collective: Collective,
        nodes_spanned: u32,
        ranks_per_node: u32,
        concurrent_groups_per_node: u32,
    ) -> Option<Rate> {
        let (nodes_spanned, ranks_per_node) = self.as_nodes(nodes_spanned, ranks_per_node);
        let concurrent_groups_per_node = concurrent_groups_per_node.max(1);
        let (k, m) = (f64::from(nodes_spanned), f64::from(ranks_per_node));
        let n = k * m;
        if n < 2.0 {
            return None;
        }
        let within = self.within_bound(ranks_per_node);
        // Adapters per rank when all ranks of the group use the network, and when one rank of each group on a node does.
        let all = self.network_rate(ranks_per_node.saturating_mul(concurrent_groups_per_node));
        let single = self.network_rate(concurrent_groups_per_node);
        let crosses = nodes_spanned > 1;
        // For bounds that apply only to groups with several ranks on a node, and only to those that span nodes.
        let inside = |rate: f64| if ranks_per_node > 1 { rate } else { f64::INFINITY };
        let outside = |rate: f64| if crosses { rate } else { f64::INFINITY };
        let bound = match collective.motion() {
            Motion::Together(Algorithm::Dissemination) => return None,
            Motion::Together(Algorithm::RingAllReduce | Algorithm::RingAllGather) => {
                outside(all * (n - 1.0) / (k - 1.0)).min(inside(within * (n - 1.0) / (n - k)))
            }
            Motion::Together(Algorithm::PairwiseAllToAll) => {
                // Where blocks differ, the busiest rank may find the adapters idle that its neighbours hardly use.
                let adapters = if collective.has_splits() { single } else { all };
                outside(adapters * (n - 1.0) / (n - m)).min(inside(within * (n - 1.0) / (m - 1.0)))
            }
            Motion::Together(Algorithm::BinomialTree) => outside(all * m).min(inside(within)),
            Motion::Together(Algorithm::BinomialGather) if crosses => {
                let root_links = single + if ranks_per_node > 1 { within } else { 0.0 };
                (all * m * (n - 1.0) / (n - m)).min(root_links)
            }
            Motion::Together(Algorithm::BinomialGather) => within,
            // Around a ring or down a chain, one rank of each group sends to the next node.
            Motion::Ring | Motion::Chain => outside(single).min(inside(within)),
            // Ranks half a group apart: all pairs join two nodes as soon as the group spans two.
            Motion::Pairs { .. } if crosses => all,
            // Each rank has one partner.
            Motion::Pairs { .. } => self.within_bound(2),
        };
        bound.is_finite().then_some(Rate(bound))
    }

    /// The machine with what its `[[expect_network]]` require of these calls as expectations like any others. Those that are about none of
    /// them stay as they are. A library may give a pair of ranks fewer channels than its adapter could fill: `most_of_a_pair`.
    pub fn expecting(&self, calls: impl IntoIterator<Item = ExpectedCall>, most_of_a_pair: Option<Rate>) -> Machine {
        let mut machine = self.clone();
        let mut is_used = vec![false; self.network.len()];
        for call in calls {
            let Some(carried) = self.network_bound(call.collective, &call.group) else { continue };
            let is_pair = matches!(call.collective.motion(), Motion::Pairs { .. });
            let library = most_of_a_pair.filter(|_| is_pair).map_or(f64::INFINITY, |rate| rate.0);
            for (row, is_used) in self.network.iter().zip(&mut is_used) {
                let Some(expected) = row.of(&call, Rate((carried.0 * row.share).min(library))) else { continue };
                *is_used = true;
                if !machine.expectations.contains(&expected) {
                    machine.expectations.push(expected);
                }
            }
        }
        let mut used = is_used.into_iter();
        machine.network.retain(|_| used.next() == Some(false));
        machine
    }

    /// The bus bandwidth that the adapters of a node carry for a group. Rings leave a node over all adapters of its ranks, on two nodes as on
    /// many; the bound of the links is higher there, since trees move less over the network. None inside a node.
    fn network_bound(&self, collective: Collective, group: &ExpectedGroup) -> Option<Rate> {
        let (nodes, ranks) = self.as_nodes(group.nodes, group.ranks_per_node);
        if nodes < 2 || self.between_nodes.assumed {
            return None;
        }
        let bound = self.bus_bandwidth_bound(collective, nodes, ranks, group.groups_per_node)?;
        let adapters = self.network_rate(ranks.saturating_mul(group.groups_per_node)) * f64::from(ranks);
        let is_ring =
            matches!(collective.motion(), Motion::Together(Algorithm::RingAllReduce | Algorithm::RingAllGather));
        Some(if is_ring { Rate(bound.0.min(adapters)) } else { bound })
    }

    /// Hosts of a group, and its ranks on each, as nodes of this file. As few nodes as possible: the bound is then
    /// looser, but still valid. A group that is already described by nodes has more ranks on each than a host has, or
    /// is on one host.
    fn as_nodes(&self, hosts: u32, ranks_per_host: u32) -> (u32, u32) {
        let joined = self.hosts_per_node;
        if hosts <= 1 || ranks_per_host > self.ranks_per_node / joined {
            return (hosts, ranks_per_host);
        }
        (hosts.div_ceil(joined), ranks_per_host.saturating_mul(hosts.min(joined)))
    }

    fn within_bound(&self, ranks: u32) -> f64 {
        if self.within_node.assumed { f64::INFINITY } else { self.within_rate_per_rank(ranks).0 }
    }

    fn network_rate(&self, active_ranks: u32) -> f64 {
        if self.between_nodes.assumed { f64::INFINITY } else { self.adapter_rate_per_rank(active_ranks).0 }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use Collective::*;
    use std::path::Path;

    fn machine(assumed: &str) -> Machine {
        let text = format!(
            "name = 'm'\nranks_per_node = 8\n\
             [within_node]\nlatency = '3us'\nrate = '450GB/s'\n{assumed}\n\
             [between_nodes]\nlatency = '14us'\nadapters_per_node = 8\nrate_per_adapter = '50GB/s'\n"
        );
        Machine::parse(&text, Path::new("m.toml")).unwrap()
    }

    #[test]
    fn bounds_match_the_published_rules_of_thumb() {
        // (collective, nodes, ranks per node, concurrent groups, GB/s)
        for (collective, nodes, ranks, groups, expected) in [
            (AllReduce, 1, 8, 1, 450.0),
            (AllToAll, 1, 8, 1, 450.0),
            (Broadcast, 1, 4, 2, 450.0),
            (PingPong, 1, 2, 4, 450.0),
            // 50 GB/s per rank times (n-1)/(k-1), where that is below what NVLink leaves: 255/31 * 50.
            (AllReduce, 32, 8, 1, 50.0 * 255.0 / 31.0),
            // Two nodes inflate the figure until NVLink bounds it: 450 * 15/14.
            (AllGather, 2, 8, 1, 450.0 * 15.0 / 14.0),
            // One rank per node: a flat ring over the network, each with its own adapter, alone or eight at a time.
            (AllReduce, 4, 1, 8, 50.0),
            (AllReduce, 4, 1, 1, 50.0),
            // nccl-tests issue 130: k/(k-1) times the adapter, here (n-1)/(n-m) exactly.
            (AllToAll, 2, 8, 1, 50.0 * 15.0 / 8.0),
            (Broadcast, 4, 8, 1, 400.0),
            (SendRecv, 4, 8, 1, 50.0),
            (Bidirectional, 2, 8, 1, 50.0),
            (PingPong, 2, 1, 16, 25.0),
            (Gather, 2, 1, 1, 50.0),
        ] {
            let bound = machine("").bus_bandwidth_bound(collective, nodes, ranks, groups).unwrap();
            let difference = (bound.gigabytes_per_second() - expected).abs();
            assert!(difference < 1e-6, "{collective} on {nodes} x {ranks}: {bound}, expected {expected}");
        }
    }

    #[test]
    fn barriers_single_ranks_and_assumed_links_have_no_bound() {
        assert_eq!(machine("").bus_bandwidth_bound(Barrier, 2, 8, 1), None);
        assert_eq!(machine("").bus_bandwidth_bound(AllReduce, 1, 1, 8), None);
        let guessed = machine("assumed = true");
        assert_eq!(guessed.bus_bandwidth_bound(AllReduce, 1, 8, 1), None);
        assert_eq!(guessed.bus_bandwidth_bound(Gather, 2, 2, 1), Some(Rate(2.0 * 50e9 * 3.0 / 2.0)));
    }

    #[test]
    fn links_to_each_peer_bound_small_groups_and_hosts_of_one_node_are_no_network() {
        // MI300X: seven links of 64 GB/s; two of its GPUs have one between them.
        let mut mesh = machine("rate_per_peer = '64GB/s'");
        mesh.within_node.rate = Rate(448e9);
        for (collective, ranks, expected) in
            [(AllReduce, 8, 448e9), (AllReduce, 2, 64e9), (AllGather, 4, 192e9), (PingPong, 8, 64e9)]
        {
            assert_eq!(mesh.bus_bandwidth_bound(collective, 1, ranks, 1), Some(Rate(expected)), "{collective} {ranks}");
        }
        // NVL72: 18 hosts of 4 ranks are one node, 36 are two.
        let mut rack = machine("");
        (rack.ranks_per_node, rack.hosts_per_node, rack.between_nodes.adapters_per_node) = (72, 18, 72);
        assert_eq!(rack.bus_bandwidth_bound(AllReduce, 18, 4, 1), Some(Rate(450e9)));
        assert_eq!(rack.bus_bandwidth_bound(AllReduce, 36, 4, 1), rack.bus_bandwidth_bound(AllReduce, 2, 72, 1));
    }

    #[test]
    fn groups_that_outnumber_the_adapters_share_them() {
        let mut machine = machine("");
        machine.between_nodes.adapters_per_node = 2;
        for (groups, expected) in [(1, 50e9), (2, 50e9), (4, 25e9), (8, 12.5e9)] {
            assert_eq!(machine.bus_bandwidth_bound(AllReduce, 2, 1, groups), Some(Rate(expected)), "{groups} groups");
        }
    }
}
