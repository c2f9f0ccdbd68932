//! The time of a call from the rates of a machine file, without noise and faults.
//!
//! The simulated backend adds these; the planner uses the times as they are.

use commgauge_base::collective::{Algorithm, Collective, Motion};
use commgauge_base::units::Bytes;
use commgauge_model::config::Machine;
use commgauge_model::layout::Locality;

// The time of one call on a machine without noise and faults, from the placement of its groups: for planning, without
// a fleet.
//
// Uses the formulas of the simulation; if groups differ, the busiest one counts.

/// Seconds of a call in groups of `ranks` ranks with this locality, all active at the same time. `None` for fewer than two ranks, or if the
/// locality is unknown.
///
/// In a chain or ring of messages, one rank of each group on a node sends over its adapters; in a collective all its
/// ranks do.
pub fn seconds_without_noise(
    machine: &Machine,
    collective: Collective,
    ranks: u32,
    bytes_total: Bytes,
    locality: &Locality,
) -> Option<f64> {
    if ranks < 2 || !locality.is_known() {
        return None;
    }
    let shape = shape(ranks, locality);
    let bytes = bytes_total.0 as f64;
    Some(match collective.motion() {
        Motion::Together(algorithm) => {
            let block = bytes / f64::from(ranks);
            let volume = Volume {
                all_bytes: bytes,
                least_block_bytes: block,
                largest_block_bytes: block,
                least_node_bytes: block * f64::from(shape.ranks_per_node_least),
            };
            collective_seconds(algorithm, &shape, &paths(machine, &shape, locality), &volume)
        }
        Motion::Ring | Motion::Chain => message_seconds(slowest_hop(machine, &shape, senders(locality, 1)), bytes),
        Motion::Pairs { messages_in_turn } => {
            // Ranks half a group apart: once the group spans nodes, all pairs do.
            let hop = slowest_hop(machine, &shape, senders(locality, shape.ranks_per_node_most));
            f64::from(messages_in_turn) * message_seconds(hop, bytes)
        }
    })
}

fn shape(ranks: u32, locality: &Locality) -> Shape {
    let nodes = locality.nodes_spanned.min(ranks);
    let most = locality.ranks_per_node.clamp(ranks.div_ceil(nodes), ranks);
    let least = ranks.saturating_sub(most.saturating_mul(nodes - 1)).clamp(1, most);
    Shape { ranks, nodes, ranks_per_node_most: most, ranks_per_node_least: least }
}

fn senders(locality: &Locality, of_each_group: u32) -> u32 {
    locality.concurrent_groups_per_node.max(1).saturating_mul(of_each_group)
}

fn paths(machine: &Machine, shape: &Shape, locality: &Locality) -> Paths {
    let network = &machine.between_nodes;
    let share = machine.adapter_rate_per_rank(senders(locality, shape.ranks_per_node_most)).0;
    Paths {
        within: within(machine),
        between: Hop { latency_seconds: network.latency.0, rate: share },
        node_exit_rate: f64::from(shape.ranks_per_node_least) * share,
        // The other ranks of its group yield their share to the leader, as far as its own adapters allow.
        leader_rate: (f64::from(shape.ranks_per_node_least) * share).min(machine.adapter_rate_per_rank(1).0),
    }
}

fn within(machine: &Machine) -> Hop {
    Hop { latency_seconds: machine.within_node.latency.0, rate: machine.within_node.rate.0 }
}

fn slowest_hop(machine: &Machine, shape: &Shape, senders: u32) -> Hop {
    if shape.nodes == 1 {
        return within(machine);
    }
    let rate = machine.adapter_rate_per_rank(senders).0;
    Hop { latency_seconds: machine.between_nodes.latency.0, rate }
}

// How long a collective takes without noise, from latencies and rates: pure functions, one algorithm for each.
//
// Every time is alpha-beta (R. W. Hockney, 1994): steps times latency plus bytes times the inverse rate. The step and
// byte counts of ring, pairwise, tree and dissemination algorithms are those of R. Thakur, R. Rabenseifner and
// W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005. A group that spans nodes works in
// phases that follow each other: within the nodes, between them along the ranks of equal place in their node, and within
// again (hierarchical all_reduce = reduce_scatter in the node + all_reduce between + all_gather in the node).
// Libraries overlap these phases partly; the time here is on the safe side of the bounds in the machine file.
// Reducing costs nothing, and the buffers' placement makes no difference.

/// A hop of messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hop {
    /// Time of a message without bytes.
    pub latency_seconds: f64,
    /// Bytes per second of one rank, one direction.
    pub rate: f64,
}

/// Placement of a group on the nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Ranks of the group.
    pub ranks: u32,
    /// Nodes that it spans.
    pub nodes: u32,
    /// Ranks on the node with most ranks of the group.
    pub ranks_per_node_most: u32,
    /// Ranks on the node with fewest.
    pub ranks_per_node_least: u32,
}

/// Rates and latencies available to a group, on its slowest paths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paths {
    /// Within a node.
    pub within: Hop,
    /// Between nodes, with the adapters' share of one rank.
    pub between: Hop,
    /// Bytes per second at which all ranks of the group on a node together leave it.
    pub node_exit_rate: f64,
    /// Bytes per second of the rank that sends for its node in a tree.
    pub leader_rate: f64,
}

/// The bytes to move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Volume {
    /// Bytes of all blocks together: the size argument.
    pub all_bytes: f64,
    /// Bytes of the smallest block of a rank.
    pub least_block_bytes: f64,
    pub largest_block_bytes: f64,
    /// Bytes of the blocks of the node with fewest ranks.
    pub least_node_bytes: f64,
}

/// Time of one message: latency plus transfer.
pub fn message_seconds(hop: Hop, bytes: f64) -> f64 {
    hop.latency_seconds + bytes / hop.rate
}

/// Seconds from the last arrival to the common end.
pub fn collective_seconds(algorithm: Algorithm, shape: &Shape, paths: &Paths, volume: &Volume) -> f64 {
    if shape.ranks == 1 {
        return message_seconds(paths.within, volume.all_bytes); // a copy
    }
    match algorithm {
        Algorithm::RingAllReduce => 2.0 * ring_all_gather(shape, paths, volume),
        Algorithm::RingAllGather => ring_all_gather(shape, paths, volume),
        Algorithm::PairwiseAllToAll => pairwise_all_to_all(shape, paths, volume),
        Algorithm::BinomialTree => binomial_tree(shape, paths, volume),
        Algorithm::BinomialGather => binomial_gather(shape, paths, volume),
        Algorithm::Dissemination => tree_latency(shape, paths),
    }
}

/// All_gather, and reduce_scatter as its mirror image; both in a row are the ring all_reduce with its 2 (n-1) steps.
///
/// Between nodes, the busiest node receives all blocks but its own. The ranks of equal place (one on each of k nodes)
/// then have k blocks each, and within the node the busiest rank receives the rest. On one node that is all but its
/// own block in n-1 steps; on n nodes with one rank each there is nothing left to do within.
fn ring_all_gather(shape: &Shape, paths: &Paths, volume: &Volume) -> f64 {
    let nodes = f64::from(shape.nodes);
    let mut seconds = 0.0;
    if shape.nodes > 1 {
        seconds += (nodes - 1.0) * paths.between.latency_seconds
            + (volume.all_bytes - volume.least_node_bytes) / paths.node_exit_rate;
    }
    if shape.ranks_per_node_most > 1 {
        seconds += f64::from(shape.ranks_per_node_most - 1) * paths.within.latency_seconds
            + (volume.all_bytes - nodes * volume.least_block_bytes) / paths.within.rate;
    }
    seconds
}

/// n-1 steps, each with another partner: the neighbours in the node, then the ranks on other nodes.
fn pairwise_all_to_all(shape: &Shape, paths: &Paths, volume: &Volume) -> f64 {
    let neighbours = f64::from(shape.ranks_per_node_most - 1);
    let remote_peers = f64::from(shape.ranks - shape.ranks_per_node_least);
    let mut seconds = neighbours * message_seconds(paths.within, volume.largest_block_bytes);
    if shape.nodes > 1 {
        seconds += remote_peers * message_seconds(paths.between, volume.largest_block_bytes);
    }
    seconds
}

/// Broadcast, and reduce as its mirror image: the whole buffer down a tree over the nodes, then down one in each node.
fn binomial_tree(shape: &Shape, paths: &Paths, volume: &Volume) -> f64 {
    let leaders = Hop { rate: paths.leader_rate, ..paths.between };
    rounds(shape.nodes) * message_seconds(leaders, volume.all_bytes)
        + rounds(shape.ranks_per_node_most) * message_seconds(paths.within, volume.all_bytes)
}

/// Gather, and scatter as its mirror image: to one rank in each node, then to the root, which receives everything from
/// outside.
fn binomial_gather(shape: &Shape, paths: &Paths, volume: &Volume) -> f64 {
    let block = volume.all_bytes / f64::from(shape.ranks);
    let mut seconds = tree_latency(shape, paths);
    seconds += f64::from(shape.ranks_per_node_most - 1) * block / paths.within.rate;
    if shape.nodes > 1 {
        seconds += f64::from(shape.ranks - shape.ranks_per_node_least) * block / paths.leader_rate;
    }
    seconds
}

/// Dissemination barrier, and the latency of any tree: the number of ranks reached doubles in each round.
fn tree_latency(shape: &Shape, paths: &Paths) -> f64 {
    rounds(shape.nodes) * paths.between.latency_seconds
        + rounds(shape.ranks_per_node_most) * paths.within.latency_seconds
}

/// The logarithm to base 2, rounded up.
fn rounds(members: u32) -> f64 {
    f64::from(members.next_power_of_two().trailing_zeros())
}

#[cfg(test)]
mod call_tests {

    use super::*;
    use Collective::*;
    use std::path::Path;

    /// 1 us and 10 GB/s within; 5 us and 4 adapters of 1 GB/s between.
    fn machine() -> Machine {
        let text = "name = 'm'\nranks_per_node = 4\n[within_node]\nlatency = '1us'\nrate = '10GB/s'\n\
                    [between_nodes]\nlatency = '5us'\nadapters_per_node = 4\nrate_per_adapter = '1GB/s'\n";
        Machine::parse(text, Path::new("m.toml")).unwrap()
    }

    fn placed(nodes: u32, per_node: u32, groups: u32) -> Locality {
        Locality { nodes_spanned: nodes, ranks_per_node: per_node, stride: 1, concurrent_groups_per_node: groups }
    }

    #[test]
    fn unknown_locality_or_a_single_rank_has_no_time() {
        let seconds =
            |ranks, locality: &Locality| seconds_without_noise(&machine(), AllReduce, ranks, Bytes(1), locality);
        assert_eq!(seconds(4, &Locality::UNKNOWN), None);
        assert_eq!(seconds(1, &placed(1, 1, 4)), None);
    }

    #[test]
    fn times_are_those_worked_out_by_hand() {
        // (call, ranks, nodes, ranks per node, groups, microseconds for 8 MB)
        for (collective, ranks, nodes, per_node, groups, expected) in [
            // 2 (n-1) = 6 steps of 1 us; 2 * 3/4 * 8 MB = 12 MB at 10 GB/s.
            (AllReduce, 4, 1, 4, 1, 6.0 + 1200.0),
            // Between: 1 step of 5 us, half of 8 MB at 4 GB/s; within: 3 steps, 3/4 of 8 MB at 10 GB/s; twice.
            (AllReduce, 8, 2, 4, 1, 2.0 * (5.0 + 1000.0 + 3.0 + 600.0)),
            // One rank per node, four groups on four adapters: a flat ring, 1 GB/s each.
            (AllGather, 4, 4, 1, 4, 15.0 + 6000.0),
            // Eight groups share four adapters.
            (AllGather, 4, 4, 1, 8, 15.0 + 12000.0),
            (SendRecvChain, 4, 1, 4, 1, 1.0 + 800.0),
            (SendRecvChain, 4, 2, 2, 2, 5.0 + 8000.0),
            (PingPong, 2, 1, 2, 1, 2.0 * (1.0 + 800.0)),
        ] {
            let locality = placed(nodes, per_node, groups);
            let found = seconds_without_noise(&machine(), collective, ranks, Bytes(8_000_000), &locality).unwrap();
            assert!((found * 1e6 - expected).abs() < 1e-6, "{collective} {ranks}: {} us, {expected}", found * 1e6);
        }
    }

    #[test]
    fn a_group_of_unequal_nodes_is_priced_by_its_fullest_and_its_emptiest_node() {
        let shape = shape(5, &placed(2, 4, 1));
        assert_eq!((shape.ranks_per_node_most, shape.ranks_per_node_least), (4, 1));
    }
}

#[cfg(test)]
mod formulas_tests {

    use super::*;
    use Algorithm::*;

    /// 1 us and 10 GB/s within; 5 us and 1 GB/s per rank between.
    fn seconds(algorithm: Algorithm, nodes: u32, per_node: u32, megabytes: f64) -> f64 {
        let shape =
            Shape { ranks: nodes * per_node, nodes, ranks_per_node_most: per_node, ranks_per_node_least: per_node };
        let paths = Paths {
            within: Hop { latency_seconds: 1e-6, rate: 10e9 },
            between: Hop { latency_seconds: 5e-6, rate: 1e9 },
            node_exit_rate: f64::from(per_node) * 1e9,
            leader_rate: 1e9,
        };
        let all_bytes = megabytes * 1e6;
        let block = all_bytes / f64::from(shape.ranks);
        let volume = Volume {
            all_bytes,
            least_block_bytes: block,
            largest_block_bytes: block,
            least_node_bytes: block * f64::from(per_node),
        };
        collective_seconds(algorithm, &shape, &paths, &volume)
    }

    #[test]
    fn times_are_those_worked_out_by_hand() {
        // (algorithm, nodes, ranks per node, MB, microseconds)
        for (algorithm, nodes, per_node, megabytes, expected) in [
            // 2 (n-1) = 14 steps of 1 us; 2 * 7/8 * 8 MB = 14 MB at 10 GB/s.
            (RingAllReduce, 1, 8, 8.0, 14.0 + 1400.0),
            (RingAllReduce, 1, 2, 8.0, 2.0 + 800.0),
            (RingAllGather, 1, 4, 8.0, 3.0 + 600.0),
            // A flat ring over the network: 3 steps of 5 us; 3/4 * 8 MB at 1 GB/s.
            (RingAllGather, 4, 1, 8.0, 15.0 + 6000.0),
            // Between: 1 step, half of 8 MB out of a node at 4 GB/s. Within: 3 steps, 3/4 of 8 MB at 10 GB/s. Twice.
            (RingAllReduce, 2, 4, 8.0, 2.0 * (5.0 + 1000.0 + 3.0 + 600.0)),
            // 3 neighbours with 1 MB each at 10 GB/s, 4 remote ranks with 1 MB each at 1 GB/s.
            (PairwiseAllToAll, 2, 4, 8.0, 3.0 + 300.0 + 20.0 + 4000.0),
            (PairwiseAllToAll, 1, 2, 8.0, 1.0 + 400.0),
            // log2(8) = 3 rounds of the whole buffer; with 2 nodes one of them over the network.
            (BinomialTree, 1, 8, 8.0, 3.0 * (1.0 + 800.0)),
            (BinomialTree, 2, 4, 8.0, 5.0 + 8000.0 + 2.0 * (1.0 + 800.0)),
            // Three blocks of 1 MB in the node, four from the other.
            (BinomialGather, 2, 4, 8.0, 5.0 + 2.0 + 300.0 + 4000.0),
            (Dissemination, 1, 8, 0.0, 3.0),
            (Dissemination, 2, 4, 0.0, 5.0 + 2.0),
            (Dissemination, 1, 5, 0.0, 3.0),
            // One rank: a copy.
            (RingAllReduce, 1, 1, 8.0, 1.0 + 800.0),
        ] {
            let got = seconds(algorithm, nodes, per_node, megabytes) * 1e6;
            assert!((got - expected).abs() < 1e-6, "{algorithm:?} {nodes} x {per_node}: {got} us, expected {expected}");
        }
    }
}
