//! The time of one call on a machine without noise and faults, from the placement of its groups: for planning, without
//! a fleet.
//!
//! Uses the formulas of the simulation; if groups differ, the busiest one counts.

use super::formulas::{Hop, Paths, Shape, Volume, collective_seconds, message_seconds};
use commgauge_base::collective::{Collective, Motion};
use commgauge_base::units::Bytes;
use commgauge_model::config::Machine;
use commgauge_model::layout::Locality;

/// Seconds of a call in groups of `ranks` ranks with this locality, all active at the same time. `None` for fewer than
/// two ranks, or if the locality is not known.
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
            // Ranks half a group apart: as soon as the group spans nodes, all pairs do.
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
        // The other ranks of its group leave their share to the leader, as far as its own adapters allow.
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

#[cfg(test)]
mod tests {
    use super::*;
    use Collective::*;
    use std::path::Path;

    /// 1 us and 10 GB/s within; 5 us and 4 adapters of 1 GB/s between.
    fn machine() -> Machine {
        let text = "name = 'm'\nranks_per_node = 4\n[within_node]\nlatency = '1us'\nrate = '10GB/s'\n\
                    [between_nodes]\nlatency = '5us'\nadapters_per_node = 4\nrate_per_adapter = '1GB/s'\n";
        Machine::parse(text, Path::new("m.toml")).unwrap()
    }

    fn lies(nodes: u32, per_node: u32, groups: u32) -> Locality {
        Locality { nodes_spanned: nodes, ranks_per_node: per_node, stride: 1, concurrent_groups_per_node: groups }
    }

    #[test]
    fn unknown_locality_or_a_single_rank_has_no_time() {
        let seconds =
            |ranks, locality: &Locality| seconds_without_noise(&machine(), AllReduce, ranks, Bytes(1), locality);
        assert_eq!(seconds(4, &Locality::UNKNOWN), None);
        assert_eq!(seconds(1, &lies(1, 1, 4)), None);
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
            let locality = lies(nodes, per_node, groups);
            let found = seconds_without_noise(&machine(), collective, ranks, Bytes(8_000_000), &locality).unwrap();
            assert!((found * 1e6 - expected).abs() < 1e-6, "{collective} {ranks}: {} us, {expected}", found * 1e6);
        }
    }

    #[test]
    fn a_group_of_unequal_nodes_is_priced_by_its_fullest_and_its_emptiest_node() {
        let shape = shape(5, &lies(2, 4, 1));
        assert_eq!((shape.ranks_per_node_most, shape.ranks_per_node_least), (4, 1));
    }
}
