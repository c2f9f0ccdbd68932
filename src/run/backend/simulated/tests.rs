//! Guarantees of the simulated backend for the measuring loop.

use super::*;
use crate::backend::Marks;
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::element::ElementType;
use commgauge_base::geometry::Splits;
use commgauge_base::sample::Cadence;
use commgauge_model::layout::Axis;
use commgauge_model::workload::{Op, Style};
use std::path::Path;
use std::time::Duration;

/// Four ranks per node, 1 us and 10 GB/s within; 5 us and four adapters of 1 GB/s between.
fn machine(more: &str) -> Machine {
    let text = format!(
        "name = 'm'\nranks_per_node = 4\n[within_node]\nlatency = '1us'\nrate = '10GB/s'\n\
         [between_nodes]\nlatency = '5us'\nadapters_per_node = 4\nrate_per_adapter = '1GB/s'\n{more}"
    );
    Machine::parse(&text, Path::new("m.toml")).unwrap()
}

/// Groups of ranks `stride` apart, as in the axes of a layout.
fn groups(world: u32, ranks: u32, stride: u32) -> Groups {
    let firsts = (0..world).filter(|rank| (rank / stride).is_multiple_of(ranks));
    Groups { axis: Axis::Tp, groups: firsts.map(|first| (0..ranks).map(|i| first + i * stride).collect()).collect() }
}

fn op(collective: Collective, bytes: u64, splits: Splits) -> Op {
    Op { splits, ..Op::new(Style::Sweep, Axis::Tp, collective, ElementType::Uint8, bytes) }
}

/// Binds the op and runs a closure on the call; returns its result.
fn with_call<T>(backend: &mut SimulatedBackend, groups: &Groups, op: &Op, work: impl FnOnce(&mut dyn Call) -> T) -> T {
    let geometry = op.geometry(groups.group_size()).unwrap();
    backend.connect(0, groups).unwrap();
    let binding = Binding {
        variant: Default::default(),
        cadence: Cadence::Streaming,
        op,
        placement: Placement::OutOfPlace,
        groups,
        groups_number: 0,
        geometry: &geometry,
        seed: 1,
        warm_buffers: true,
        rotation_within: None,
    };
    work(&mut *backend.bind(&binding).unwrap())
}

/// The marks of isolated iterations, two for each: arrival and end, from the start.
fn isolated(backend: &mut SimulatedBackend, groups: &Groups, op: &Op, iterations: usize) -> Vec<[Vec<u64>; 2]> {
    const LEAD: u64 = 1_000_000_000;
    let mut start = backend.now_nanoseconds() + LEAD;
    with_call(backend, groups, op, |call| {
        let mut marks = Marks::default();
        let mut results = Vec::new();
        for _ in 0..iterations {
            call.reserve_marks(2);
            assert!(call.hold_until(start), "a start {LEAD} ns ahead is in time");
            call.mark();
            call.enqueue().unwrap();
            call.mark();
            call.complete(Duration::from_secs(1)).unwrap();
            call.read_marks(&mut marks);
            let row = |mark| (0..marks.local_ranks).map(|rank| marks.at(mark, rank) - start).collect();
            results.push([row(0), row(1)]);
            start = marks.nanoseconds.iter().max().unwrap() + LEAD;
        }
        results
    })
}

/// Ends of one call on a fresh machine, by rank, in nanoseconds after the start.
fn ends(machine: &Machine, groups: &Groups, op: &Op) -> Vec<u64> {
    let world = groups.groups.concat().len() as u32;
    let mut backend = SimulatedBackend::new(machine, world, 1).unwrap();
    isolated(&mut backend, groups, op, 1).remove(0)[1].clone()
}

fn fault(text: &str) -> Machine {
    machine(&format!("[[faults]]\n{text}"))
}

#[test]
fn calls_take_the_times_worked_out_by_hand() {
    use Collective::*;
    // (collective, group size, stride, bytes, expected nanoseconds of rank 0) in a world of 8 ranks on 2 nodes.
    for (collective, ranks, stride, bytes, expected) in [
        (AllReduce, 2, 1, 1_000_000, 2_000 + 100_000),
        (AllReduce, 4, 1, 1_000_000, 6_000 + 150_000),
        // Two nodes with four ranks each: 2 * (1 * 5 us + 500 kB / (4 GB/s) + 3 * 1 us + 750 kB / (10 GB/s)).
        (AllReduce, 8, 1, 1_000_000, 2 * (5_000 + 125_000 + 3_000 + 75_000)),
        // Four groups with a rank on each node, each with its own adapter.
        (AllReduce, 2, 4, 1_000_000, 2 * (5_000 + 500_000)),
        (AllToAll, 4, 1, 1_000_000, 3 * (1_000 + 25_000)),
        (Broadcast, 4, 1, 1_000_000, 2 * (1_000 + 100_000)),
        (Barrier, 8, 1, 0, 5_000 + 2 * 1_000),
        (PingPong, 2, 1, 1_000_000, 2 * (1_000 + 100_000)),
        (PingPong, 2, 4, 1_000_000, 2 * (5_000 + 1_000_000)),
        (Bidirectional, 2, 4, 1_000_000, 5_000 + 1_000_000),
        // Rank 0 waits for rank 7's message over the network.
        (SendRecv, 8, 1, 1_000_000, 5_000 + 1_000_000),
        (SendRecvChain, 8, 1, 1_000_000, 1_000 + 100_000),
        (AllReduce, 1, 1, 1_000_000, 1_000 + 100_000),
    ] {
        let got = ends(&machine(""), &groups(8, ranks, stride), &op(collective, bytes, Splits::Equal))[0];
        assert_eq!(got, expected, "{collective} of {ranks} ranks {stride} apart");
    }
}

#[test]
fn uneven_blocks_cost_what_the_busiest_rank_moves() {
    let splits = Splits::Given(vec![7, 1, 1, 1]);
    for (collective, expected) in [
        // Rank 1 receives all but its own tenth.
        (Collective::AllGatherV, 3_000 + 90_000),
        // Rank 0 receives 700 kB from each of three.
        (Collective::AllToAllV, 3 * (1_000 + 70_000)),
    ] {
        let got = ends(&machine(""), &groups(4, 4, 1), &op(collective, 1_000_000, splits.clone()))[0];
        assert_eq!(got, expected, "{collective}");
    }
}

#[test]
fn groups_that_work_at_the_same_time_share_the_adapters() {
    let mut one_adapter = machine("");
    one_adapter.between_nodes.adapters_per_node = 1;
    let pairs = op(Collective::Bidirectional, 1_000_000, Splits::Equal);
    assert_eq!(ends(&one_adapter, &groups(8, 2, 4), &pairs)[0], 5_000 + 4_000_000);
    let gather = op(Collective::AllGather, 1_000_000, Splits::Equal);
    assert_eq!(ends(&one_adapter, &groups(8, 2, 4), &gather)[0], 5_000 + 2_000_000);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let noisy = machine("[noise]\nrelative_sigma = 0.05\narrival_jitter = '10us'\n");
    let run = |seed| {
        let mut backend = SimulatedBackend::new(&noisy, 8, seed).unwrap();
        isolated(&mut backend, &groups(8, 2, 1), &op(Collective::AllReduce, 1 << 20, Splits::Equal), 20)
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn a_delayed_rank_is_the_last_to_arrive_by_exactly_its_delay() {
    let mut backend = SimulatedBackend::new(&fault("kind = 'rank'\nrank = 5\ndelay = '2ms'\n"), 8, 1).unwrap();
    for [arrivals, ends] in
        isolated(&mut backend, &groups(8, 8, 1), &op(Collective::AllReduce, 1 << 10, Splits::Equal), 3)
    {
        assert_eq!(arrivals, [0, 0, 0, 0, 0, 2_000_000, 0, 0]);
        assert!(ends.iter().all(|end| *end == ends[0] && *end > 2_000_000), "{ends:?}");
    }
}

#[test]
fn a_late_rank_holds_up_its_own_group_only() {
    let late = fault("kind = 'rank'\nrank = 2\ndelay = '2ms'\n");
    let ends = ends(&late, &groups(8, 2, 1), &op(Collective::AllReduce, 1_000_000, Splits::Equal));
    let (usual, held_up) = (102_000, 2_102_000);
    assert_eq!(ends, [usual, usual, held_up, held_up, usual, usual, usual, usual]);
}

#[test]
fn a_slow_node_or_link_slows_the_groups_that_touch_it() {
    // Groups with a rank on each of two of three nodes: (0, 4), (1, 5), .. then pairs within node 2.
    let world = Groups {
        axis: Axis::Tp,
        groups: vec![vec![0, 4], vec![1, 8], vec![2, 3], vec![5, 6], vec![7, 9], vec![10, 11]],
    };
    let gather = op(Collective::AllGather, 1_000_000, Splits::Equal);
    let healthy = ends(&machine(""), &world, &gather);
    for (broken, slower) in [
        ("kind = 'node'\nnode = 0\nrate_factor = 0.5\n", [0, 1, 2]),
        ("kind = 'node'\nnode = 2\nrate_factor = 0.5\n", [1, 7, 10]),
        ("kind = 'link'\nnodes = [1, 0]\nrate_factor = 0.5\n", [0, 4, 0]),
    ] {
        let ends = ends(&fault(broken), &world, &gather);
        for group in &world.groups {
            let hit = slower.contains(&group[0]);
            let (now, before) = (ends[group[0] as usize], healthy[group[0] as usize]);
            assert_eq!(now > before, hit, "{broken} group {group:?}: {before} ns, then {now} ns");
        }
    }
}

#[test]
fn a_fault_outside_the_world_is_refused_with_file_and_key() {
    for (broken, words) in [
        (
            "kind = 'rank'\nrank = 8\ndelay = '2ms'\n",
            "m.toml: faults[0].rank: found 8; with 8 ranks the last rank is 7",
        ),
        (
            "kind = 'node'\nnode = 2\nrate_factor = 0.5\n",
            "m.toml: faults[0].node: found 2; with 8 ranks the last node is 1",
        ),
        ("kind = 'link'\nnodes = [0, 9]\nrate_factor = 0.5\n", "m.toml: faults[0].nodes: found 9;"),
        ("kind = 'corrupt'\nrank = 9\nprobability = 1\n", "m.toml: faults[0].rank: found 9;"),
    ] {
        let error = SimulatedBackend::new(&fault(broken), 8, 1).unwrap_err();
        assert!(error.to_string().starts_with(words), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
    for ranks in [0, u32::MAX] {
        assert_eq!(SimulatedBackend::new(&machine(""), ranks, 1).unwrap_err().exit_code(), 2, "{ranks} ranks");
    }
}

#[test]
fn groups_with_a_duplicate_or_unknown_rank_are_refused() {
    let mut backend = SimulatedBackend::new(&machine(""), 4, 1).unwrap();
    for (ranks, words) in [
        (vec![vec![0, 1], vec![2, 4]], "rank 4 in a world of 4"),
        (vec![vec![0, 1], vec![1, 2]], "rank 1 is in 2 groups"),
    ] {
        let error = backend.connect(0, &Groups { axis: Axis::Tp, groups: ranks }).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_corrupt_rank_is_found_as_often_as_asked_and_a_healthy_one_never() {
    let count = |machine: &Machine| {
        let mut backend = SimulatedBackend::new(machine, 4, 1).unwrap();
        with_call(&mut backend, &groups(4, 4, 1), &op(Collective::AllGather, 1024, Splits::Equal), |call| {
            assert!(!call.verifies());
            let found = (0..1000).filter_map(|_| call.check().unwrap()).collect::<Vec<_>>();
            assert!(found.iter().all(|mismatch| mismatch.rank == 3));
            found.len()
        })
    };
    assert_eq!(count(&machine("")), 0);
    assert_eq!(count(&fault("kind = 'corrupt'\nrank = 3\nprobability = 1\n")), 1000);
    let half = count(&fault("kind = 'corrupt'\nrank = 3\nprobability = 0.5\n"));
    assert!((450..550).contains(&half), "{half} of 1000");
}

#[test]
fn a_missed_start_is_reported_and_the_clock_advances() {
    let mut backend = SimulatedBackend::new(&machine(""), 4, 1).unwrap();
    let before = backend.now_nanoseconds();
    assert!(backend.now_nanoseconds() > before, "reading the clock takes time");
    with_call(&mut backend, &groups(4, 4, 1), &op(Collective::AllReduce, 1024, Splits::Equal), |call| {
        call.enqueue().unwrap();
        assert!(!call.hold_until(before));
        call.abort();
        assert_eq!(call.complete(Duration::ZERO).unwrap_err().exit_code(), 6);
    });
    assert!(backend.now_nanoseconds() > before + 6_000, "the backend's clock follows the calls");
}

#[test]
fn a_call_on_an_axis_that_is_not_connected_is_an_error() {
    let mut backend = SimulatedBackend::new(&machine(""), 4, 1).unwrap();
    let (groups, op) = (groups(4, 4, 1), op(Collective::AllReduce, 1024, Splits::Equal));
    let geometry = op.geometry(4).unwrap();
    let binding = Binding {
        variant: Default::default(),
        cadence: Cadence::Streaming,
        op: &op,
        placement: Placement::InPlace,
        groups: &groups,
        groups_number: 0,
        geometry: &geometry,
        seed: 1,
        warm_buffers: true,
        rotation_within: None,
    };
    backend.connect(0, &groups).unwrap();
    backend.disconnect().unwrap();
    let error = backend.bind(&binding).err().unwrap();
    assert!(error.to_string().contains("axis tp is not connected"), "{error}");
}

#[test]
fn no_simulated_time_beats_the_bound_of_its_links_and_rings_come_near() {
    let bytes = 1 << 30;
    for collective in Collective::ALL {
        for (world, ranks, stride) in
            [(4, 2, 1), (4, 4, 1), (8, 8, 1), (16, 16, 1), (8, 2, 4), (16, 4, 4), (8, 4, 2), (16, 8, 2), (32, 2, 16)]
        {
            for adapters in [1, 2, 4, 8] {
                let mut machine = machine("");
                machine.between_nodes.adapters_per_node = adapters;
                let groups = groups(world, ranks, stride);
                let hosts: Vec<u32> = (0..world).map(|rank| rank / 4).collect();
                let lies = commgauge_model::layout::Locality::of(&groups, &hosts);
                let bound = machine.bus_bandwidth_bound(
                    collective,
                    lies.nodes_spanned,
                    lies.ranks_per_node,
                    lies.concurrent_groups_per_node,
                );
                let Some(bound) = bound else {
                    assert_eq!(collective, Collective::Barrier);
                    continue;
                };
                let slowest = ends(&machine, &groups, &op(collective, bytes, Splits::Equal)).into_iter().max().unwrap();
                let seconds = slowest as f64 * 1e-9 / f64::from(collective.transfers_per_call());
                let reached = collective.bus_factor(ranks).unwrap() * bytes as f64 / seconds / bound.0;
                let text = format!("{collective} {ranks} of {world} {stride} apart, {adapters} adapters: {reached}");
                assert!(reached < 1.001, "{text}");
                let is_ring =
                    matches!(collective, Collective::AllReduce | Collective::AllGather | Collective::SendRecv);
                assert!(!is_ring || reached > 0.45, "{text}");
            }
        }
    }
}

#[test]
fn routed_exchanges_take_what_the_busiest_rank_moves_and_stay_below_the_bound() {
    use commgauge_base::geometry::{Routed, Routing};
    let routed = |routing, back| {
        let (capacity_factor, seed) = (None, 3);
        Splits::Routed(Routed {
            experts: 8,
            experts_per_token: 1,
            elements_per_token: 1,
            routing,
            capacity_factor,
            seed,
            back,
        })
    };
    // The first of 4 ranks receives 560 kB of the hot expert and a seventh of the rest from each of three.
    let hot = |back| op(Collective::AllToAllV, 700_000, routed(Routing::Hot(0.8), back));
    for back in [false, true] {
        assert_eq!(ends(&machine(""), &groups(4, 4, 1), &hot(back))[0], 3 * (1_000 + 58_000), "back {back}");
    }
    for routing in [Routing::Uniform, Routing::Zipf(1.0), Routing::Hot(0.8), Routing::Random] {
        for (world, ranks, stride) in [(4, 4, 1), (8, 8, 1), (8, 2, 4), (16, 8, 2)] {
            for back in [false, true] {
                let (machine, groups) = (machine(""), groups(world, ranks, stride));
                let op = op(Collective::AllToAllV, 1 << 26, routed(routing, back));
                let hosts: Vec<u32> = (0..world).map(|rank| rank / 4).collect();
                let lies = commgauge_model::layout::Locality::of(&groups, &hosts);
                let per_node = lies.concurrent_groups_per_node;
                let bound = machine
                    .bus_bandwidth_bound(op.collective, lies.nodes_spanned, lies.ranks_per_node, per_node)
                    .unwrap();
                let seconds = ends(&machine, &groups, &op).into_iter().max().unwrap() as f64 * 1e-9;
                let accounted = op.geometry(ranks).unwrap().bytes_accounted.0 as f64;
                let reached = op.collective.bus_factor(ranks).unwrap() * accounted / seconds / bound.0;
                assert!(reached < 1.001, "{routing} on {ranks} of {world} {stride} apart, back {back}: {reached}");
                assert!(reached > 0.2, "{routing} on {ranks} of {world} {stride} apart, back {back}: {reached}");
            }
        }
    }
}

#[test]
fn ranks_in_no_group_are_idle_while_the_others_move_their_bytes() {
    let mut backend = SimulatedBackend::new(&machine(""), 8, 1).unwrap();
    let ends = Groups { axis: Axis::Embedding, groups: vec![vec![6, 1]] };
    let all_reduce = op(Collective::AllReduce, 1_000_000, Splits::Equal);
    for [arrivals, times] in isolated_of(&mut backend, &ends, &all_reduce, &[1, 6]) {
        assert_eq!(arrivals, [0, 0]);
        assert!(times[0] > 1_000_000 && times[0] == times[1], "{times:?}");
    }
    with_call(&mut backend, &ends, &all_reduce, |call| {
        let idle_ranks: Vec<usize> = (0..8).filter(|rank| call.is_idle_rank(*rank)).collect();
        assert_eq!(idle_ranks, [0, 2, 3, 4, 5, 7]);
    });
}

/// As [`isolated`], of some ranks only.
fn isolated_of(backend: &mut SimulatedBackend, groups: &Groups, op: &Op, ranks: &[usize]) -> Vec<[Vec<u64>; 2]> {
    const LEAD: u64 = 1_000_000_000;
    let start = backend.now_nanoseconds() + LEAD;
    with_call(backend, groups, op, |call| {
        let mut marks = Marks::default();
        call.reserve_marks(2);
        assert!(call.hold_until(start));
        call.mark();
        call.enqueue().unwrap();
        call.mark();
        call.read_marks(&mut marks);
        assert_eq!(marks.local_ranks, 8);
        vec![[0, 1].map(|mark| ranks.iter().map(|rank| marks.at(mark, *rank) - start).collect())]
    })
}
