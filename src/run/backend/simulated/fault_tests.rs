//! The effect of faults of rails, adapters, leaves, of scale, and of intermittent faults on simulated times.

use super::*;
use crate::backend::Marks;
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use commgauge_model::layout::{Axis, Nodes};
use commgauge_model::workload::{Op, Style};
use std::path::Path;
use std::time::Duration;

/// Two ranks per node, each with an adapter of 1 GB/s; two nodes behind each leaf.
fn machine(faults: &[&str]) -> Machine {
    let text = "name = 'm'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '10GB/s'\n[between_nodes]\n\
         latency = '5us'\nadapters_per_node = 2\nnodes_per_leaf = 2\nrate_per_adapter = '1GB/s'\n";
    let mut machine = Machine::parse(text, Path::new("m.toml")).unwrap();
    machine.faults = faults.iter().map(|fault| fault.parse().unwrap()).collect();
    machine
}

/// Nanoseconds of each of `calls` calls, by group.
fn times(machine: &Machine, groups: &Groups, collective: Collective, calls: usize) -> Vec<Vec<u64>> {
    let op = Op::new(Style::Sweep, groups.axis, collective, ElementType::Uint8, 1_000_000);
    let geometry = op.geometry(groups.group_size()).unwrap();
    let mut backend = SimulatedBackend::new(machine, 16, 1).unwrap();
    backend.connect(0, groups).unwrap();
    let placement = Placement::OutOfPlace;
    let binding = Binding {
        op: &op,
        placement,
        variant: Default::default(),
        cadence: Cadence::Streaming,
        groups,
        groups_number: 0,
        geometry: &geometry,
        seed: 1,
        warm_buffers: true,
        rotation_within: None,
    };
    let mut call = backend.bind(&binding).unwrap();
    call.reserve_marks(calls + 1);
    call.mark();
    for _ in 0..calls {
        call.enqueue().unwrap();
        call.mark();
    }
    call.complete(Duration::from_secs(1)).unwrap();
    let mut marks = Marks::default();
    call.read_marks(&mut marks);
    let first = |group: &Vec<u32>| group[0] as usize;
    (0..calls)
        .map(|at| groups.groups.iter().map(|g| marks.at(at + 1, first(g)) - marks.at(at, first(g))).collect())
        .collect()
}

/// Every rank of nodes 0, 2, 4, 6 with the rank of the same place on the next node.
fn pairs(shift: u32) -> Groups {
    let groups = (0..8).filter(|node| node % 2 == 0).flat_map(|node| {
        let other = (node + shift) % 8;
        (0..2).map(move |local| vec![2 * node + local, 2 * other + local])
    });
    Groups { axis: Axis::Pair, groups: groups.collect() }
}

#[test]
fn a_fault_slows_what_it_is_about_and_nothing_else() {
    // Both ways: 5 us and 1 MB at 1 GB/s; at half the rate 1 ms more. Which of the eight pairs are slow.
    for (fault, shift, slow) in [
        ("rail:1:rate=0.5", 1, &[1, 3, 5, 7][..]),
        ("adapter:2.1:rate=0.5", 1, &[3]),
        ("node:3:rate=0.5", 1, &[2, 3]),
        ("device:3.1:rate=0.5", 1, &[3]),
        ("cable:2.1.send:rate=0.5", 1, &[3]),
        ("cable:3.1.send:rate=0.5", 1, &[3]),
        ("nvlink:3.1:rate=0.5", 1, &[]),
        ("leaf:1:rate=0.5", 1, &[2, 3]),
        // Nodes 0-3, 2-5, 4-7, 6-1: two of them have an end behind leaf 1.
        ("leaf:1:rate=0.5", 3, &[0, 1, 2, 3]),
        ("link:3-2:rate=0.5", 1, &[2, 3]),
        ("link:3-2:rate=0.5", 3, &[]),
        ("scale:3:rate=0.5", 1, &[]),
        ("scale:2:rate=0.5", 1, &[0, 1, 2, 3, 4, 5, 6, 7]),
    ] {
        let found = times(&machine(&[fault]), &pairs(shift), Collective::Bidirectional, 1).remove(0);
        let expected: Vec<u64> = (0..8).map(|pair| if slow.contains(&pair) { 2_005_000 } else { 1_005_000 }).collect();
        assert_eq!(found, expected, "{fault}, partners {shift} apart");
    }
}

#[test]
fn one_slow_direction_of_a_cable_costs_half_as_much_where_messages_go_back_and_forth() {
    let excess = |fault: &str, collective| {
        let time = |faults: &[&str]| times(&machine(faults), &pairs(1), collective, 1)[0][2];
        time(&[fault]) - time(&[])
    };
    for fault in ["cable:2.0.send:rate=0.5", "cable:2.0.receive:rate=0.5", "cable:3.0.receive:rate=0.5"] {
        assert_eq!(excess(fault, Collective::PingPong), 1_000_000, "{fault}");
        assert_eq!(excess(fault, Collective::Bidirectional), 1_000_000, "{fault}");
    }
    assert_eq!(excess("adapter:2.0:rate=0.5", Collective::PingPong), 2_000_000);
}

#[test]
fn links_inside_a_node_slow_its_pairs_and_collectives_and_not_the_network() {
    let inside = |fault: &str, collective| times(&machine(&[fault]), &Nodes::filled(16, 2).inside(), collective, 1);
    for (fault, slow) in [
        ("nvlink:3.1:rate=0.5", &[3][..]),
        ("nvlink:3.0-1:rate=0.5", &[3]),
        ("device:3.1:rate=0.5", &[3]),
        ("adapter:3.1:rate=0.5", &[]),
    ] {
        // 1 us and 1 MB at 10 GB/s.
        let expected: Vec<u64> = (0..8).map(|node| if slow.contains(&node) { 201_000 } else { 101_000 }).collect();
        assert_eq!(inside(fault, Collective::Bidirectional)[0], expected, "{fault}");
        let time = &inside(fault, Collective::AllReduce)[0];
        assert_eq!(time[3] > time[2], slow.contains(&3), "{fault}");
    }
}

#[test]
fn a_neighbour_takes_the_network_of_its_node_in_bursts_and_leaves_the_inside_alone() {
    let calls = times(&machine(&["neighbour:2:rate=0.5"]), &pairs(1), Collective::Bidirectional, 2000);
    let slow = |pair: usize| calls.iter().filter(|groups| groups[pair] > 1_005_000).count();
    assert!((300..900).contains(&slow(2)) && slow(0) == 0, "{} and {}", slow(2), slow(0));
    let inside = times(&machine(&["neighbour:2:rate=0.5"]), &Nodes::filled(16, 2).inside(), Collective::AllReduce, 500);
    assert!(inside.iter().all(|nodes| nodes[2] == nodes[1]));
}

#[test]
fn a_collective_is_as_slow_as_its_worst_rail_and_slow_together_only_where_enough_nodes_are() {
    let nodes = Nodes::filled(16, 2);
    let time =
        |fault: &[&str], together| times(&machine(fault), &nodes.together(together), Collective::AllGather, 1)[0][0];
    for (fault, together, slower) in [
        ("scale:4:rate=0.5", 2, false),
        ("scale:4:rate=0.5", 4, true),
        ("scale:4:rate=0.5", 8, true),
        ("rail:1:rate=0.5", 2, true),
        ("leaf:0:rate=0.5", 2, true),
        ("leaf:3:rate=0.5", 2, false),
    ] {
        assert_eq!(time(&[fault], together) > time(&[], together), slower, "{fault} on {together} nodes");
    }
}

#[test]
fn intermittent_faults_are_active_in_their_share_of_calls_or_windows() {
    let slow = |fault: &str| -> Vec<bool> {
        let all = times(&machine(&[fault]), &pairs(1), Collective::Bidirectional, 1000);
        all.iter().map(|groups| groups[2] > 1_005_000).collect()
    };
    let changes = |calls: &[bool]| calls.array_windows().filter(|[a, b]| a != b).count();
    let calls = slow("intermittent:0.3:node:2:rate=0.5");
    let share = calls.iter().filter(|slow| **slow).count();
    assert!((250..350).contains(&share) && changes(&calls) > 300, "{share} slow, {} changes", changes(&calls));
    // Windows of about twenty calls.
    let windows = slow("intermittent:0.3/20ms:node:2:rate=0.5");
    let share = windows.iter().filter(|slow| **slow).count();
    assert!((150..600).contains(&share) && changes(&windows) < 80, "{share} slow, {} changes", changes(&windows));
    let once = slow("while:0.2s-0.5s:node:2:rate=0.5");
    let share = once.iter().filter(|slow| **slow).count();
    assert!((100..400).contains(&share) && changes(&once) == 2 && !once[0], "{share} slow, {} changes", changes(&once));
}

#[test]
fn faults_of_what_is_not_there_are_refused() {
    for (fault, words) in [
        ("rail:2:rate=0.5", "faults[0].rail: found 2; with 16 ranks the last adapter is 1"),
        ("adapter:8.0:rate=0.5", "faults[0].node: found 8"),
        ("device:1.2:rate=0.5", "faults[0].device: found 2; with 16 ranks the last device of a node is 1"),
        ("nvlink:1.0-2:rate=0.5", "faults[0].peer: found 2"),
        ("cable:1.2.send:rate=0.5", "faults[0].adapter: found 2"),
        ("neighbour:8:rate=0.5", "faults[0].node: found 8"),
        ("leaf:4:rate=0.5", "faults[0].leaf: found 4; with 16 ranks the last leaf is 3"),
        ("intermittent:0.5:link:0-8:rate=0.5", "faults[0].nodes: found 8"),
    ] {
        let error = SimulatedBackend::new(&machine(&[fault]), 16, 1).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains(words), "{fault}: {error}");
    }
    let mut flat = machine(&["leaf:0:rate=0.5"]);
    flat.between_nodes.nodes_per_leaf = None;
    let error = SimulatedBackend::new(&flat, 16, 1).unwrap_err().to_string();
    assert!(error.contains("a leaf needs between_nodes.nodes_per_leaf"), "{error}");
}
