//! Many ranks in one process, on a virtual clock, without data: for rehearsing a run before the machine exists.
//!
//! Times follow from a machine file (`config::machine`): from its figure for the call, else from its links by the formulas in
//! `machine_time`; with seeded noise and faults.
//! Every result is synthetic. The cost is proportional to groups for back-to-back calls, and to ranks where ranks
//! start at different times.

mod call;
mod fleet;
mod noise;
mod replay;

use super::{Backend, BackendFacts, Binding, Call, ReplayBinding, Replayer};
use call::{Clocks, MarkLog, SimulatedCall};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_base::variant::Variant;
use commgauge_cost::machine_time::seconds_without_noise;
use commgauge_model::config::Machine;
use commgauge_model::config::machine::{Expectation, ExpectedCall, ExpectedGroup, Limit};
use commgauge_model::layout::{Groups, Locality};
use commgauge_model::workload::{Communicators, ProductShape};
use fleet::{Fleet, Placed};
use noise::{FaultStates, Noise, Work};
use replay::SimulatedReplayer;
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;

/// Virtual time taken by reading the clock, so that a loop that waits for a time to pass ends.
const NANOSECONDS_PER_CLOCK_READING: u64 = 100;

/// All ranks of a simulated machine.
#[derive(Debug)]
pub struct SimulatedBackend {
    machine: Machine,
    fleet: Fleet,
    noise: Noise,
    connected: HashMap<usize, Placed>,
    now: Cell<u64>,
    seed: u64,
}

impl SimulatedBackend {
    /// A fleet of as many nodes as `world_size` ranks need; the last may be partly used.
    ///
    /// # Errors
    /// A usage error if the number of ranks is 0 or absurd, or a fault names a missing rank or node.
    pub fn new(machine: &Machine, world_size: u32, seed: u64) -> Result<SimulatedBackend> {
        Ok(SimulatedBackend {
            machine: machine.clone(),
            fleet: Fleet::new(machine, world_size)?,
            noise: Noise::new(&machine.noise, seed),
            connected: HashMap::new(),
            now: Cell::new(0),
            seed,
        })
    }

    /// Sets the virtual clock to its beginning.
    pub fn restart_clock(&self) {
        self.now.set(0);
    }

    /// The name of a node, as a host name: `node-0007`.
    pub fn host_name(node: u32) -> String {
        format!("node-{node:04}")
    }
}

impl Backend for SimulatedBackend {
    fn facts(&self) -> BackendFacts {
        BackendFacts {
            name: "simulated",
            synthetic: true,
            virtual_clock: true,
            library: format!("commgauge {}, virtual clock", env!("CARGO_PKG_VERSION")),
            transport: Some(format!("none; times from the machine file of {}", self.fleet.machine.name)),
            ..BackendFacts::default()
        }
    }

    fn local_ranks(&self) -> Range<u32> {
        0..self.fleet.ranks
    }

    fn connect(&mut self, number: usize, groups: &Groups) -> Result<()> {
        let placed = Placed::new(groups, &self.fleet)?;
        let takes = Communicators::of_machine(&self.machine).seconds_of(groups);
        self.now.set(self.now.get().saturating_add((takes.0 * 1e9) as u64));
        self.connected.insert(number, placed);
        Ok(())
    }

    fn disconnect(&mut self) -> Result<()> {
        self.connected.clear();
        Ok(())
    }

    fn bytes_needed(&self, _: &Binding) -> Bytes {
        Bytes(0)
    }

    fn bytes_available(&self) -> Bytes {
        Bytes(u64::MAX)
    }

    fn product_skip_reason(&self, _: &ProductShape) -> Option<String> {
        Some("the simulated backend does not compute; machine files have no rate for products".to_owned())
    }

    /// All ranks begin a case at the same moment.
    fn bind<'b>(&'b mut self, binding: &Binding) -> Result<Box<dyn Call + 'b>> {
        let SimulatedBackend { machine, fleet, noise, connected, now, seed } = self;
        let axis = binding.groups.axis;
        let placed = connected
            .get(&binding.groups_number)
            .ok_or_else(|| Error::environment(format!("axis {axis} is not connected; no call can be bound to it")))?;
        let ranks = binding.geometry.ranks();
        if let Some((shape, _)) = placed.shapes.iter().find(|(shape, _)| shape.ranks != ranks) {
            return Err(Error::mismatch(format!(
                "axis {axis}: a group has {} ranks, the call was made for {ranks}",
                shape.ranks
            )));
        }
        let factor = factor(machine, binding, fleet);
        Ok(Box::new(SimulatedCall {
            clocks: Clocks::new(&placed.group_starts, now.get()),
            work: Work::new(binding.op.collective, binding.geometry, placed, fleet).times(factor),
            log: MarkLog::default(),
            noise,
            now,
            late: placed.late_slots(&fleet.late),
            fault_states: FaultStates::new(fleet, *seed, binding, placed, factor),
            corrupt: &fleet.corrupt,
            aborted: false,
            ranks: fleet.ranks,
            placed,
        }))
    }

    fn ensure_replayable(&self, _: &ReplayBinding) -> Result<()> {
        if self.fleet.intermittent.is_empty() {
            return Ok(());
        }
        Err(Error::usage("a replayed step cannot be simulated with intermittent faults; remove them"))
    }

    fn replay_bytes_needed(&self, _: &ReplayBinding) -> Result<Bytes> {
        Ok(Bytes(0))
    }

    fn bind_replay<'b>(&'b mut self, binding: &ReplayBinding<'b>) -> Result<Box<dyn Replayer + 'b>> {
        let SimulatedBackend { fleet, noise, connected, now, .. } = self;
        Ok(Box::new(SimulatedReplayer::new(binding, fleet, connected, noise, now)?))
    }

    /// The latest virtual clock; every reading advances it a little.
    fn now_nanoseconds(&self) -> u64 {
        let now = self.now.get().saturating_add(NANOSECONDS_PER_CLOCK_READING);
        self.now.set(now);
        now
    }

    fn clock_resolution_nanoseconds(&self) -> u64 {
        1
    }
}

// The time of a call according to a machine file. Libraries use algorithms that the simulation does not know (in-switch reductions,
// protocols for small messages), and do not reach the rate of the links: if the file has a figure for a call, the call takes that time.

/// How far a healthy machine is within a limit if no reached value is known.
const WITHIN_LIMIT: f64 = 1.05;

/// The time of a call on a machine that meets its file, divided by the time that its links allow; 1 without an expectation. A fault
/// multiplies the time of the broken links by this factor.
///
/// A library's efficiency over this many nodes holds for other node counts too: groups of several nodes without a figure use the factor of
/// the nearest node count that has one; otherwise they would look slow in comparison.
fn factor(machine: &Machine, binding: &Binding, fleet: &Fleet) -> f64 {
    let (op, geometry) = (binding.op, binding.geometry);
    let covers =
        |expected: &Expectation| expected.table.rows.is_none() && expected.covers(op.collective, op.bytes_total);
    let is_expected = machine.expectations.iter().chain(machine.network.iter().map(|row| &row.of_call)).any(covers);
    if !is_expected || binding.variant != Variant::default() {
        return 1.0;
    }
    let locality_of =
        |place: &dyn Fn(u32) -> u32| Locality::of(binding.groups, &(0..fleet.ranks).map(place).collect::<Vec<u32>>());
    let ranks = geometry.ranks();
    let call = ExpectedCall {
        collective: op.collective,
        group: locality_of(&|rank| fleet.node_of(rank)).group(ranks),
        cadence: binding.cadence,
        placement: binding.placement,
        element_type: op.element,
        bytes: op.bytes_total,
    };
    let machine = &machine.expecting([call], None);
    let is_candidate = |expected: &&Expectation| expected.table.variant.is_empty() && covers(expected);
    let candidates: Vec<&Expectation> = machine.expectations.iter().filter(is_candidate).collect();
    let Some(group) = nearest(&candidates, &call, machine) else { return 1.0 };
    let locality = match group == call.group {
        true => locality_of(&|rank| fleet.domain_of(rank)),
        false => Locality::filled(group.ranks, group.ranks_per_node, 1),
    };
    let by_links = seconds_without_noise(machine, op.collective, group.ranks, op.bytes_total, &locality);
    let Some(by_links) = by_links.filter(|seconds| *seconds > 0.0) else { return 1.0 };
    let moved = geometry.bytes_accounted.0 as f64 * op.collective.bus_factor(group.ranks).unwrap_or(0.0);
    // Figures describe one transfer of a call; a ping-pong has two.
    let by_links = by_links / f64::from(op.collective.transfers_per_call());
    let about = candidates.iter().filter(|expected| expected.is_about(&ExpectedCall { group, ..call }));
    let seconds = about.map(|expected| expected_seconds(expected, moved, by_links));
    seconds.filter(|seconds| *seconds > 0.0).reduce(f64::min).map_or(1.0, |seconds| seconds / by_links)
}

/// The group of a call if the file has an expectation for it, else the group with the same ranks per node over the nearest node count that
/// has one. Racks are not compared with the hosts inside one.
fn nearest(candidates: &[&Expectation], call: &ExpectedCall, machine: &Machine) -> Option<ExpectedGroup> {
    let nodes = call.group.nodes;
    let is_alike = |group: &ExpectedGroup| {
        let other = ExpectedGroup { ranks: call.group.ranks, nodes, ..*group };
        *group == call.group || (machine.hosts_per_node <= 1 && other == call.group && nodes > 1 && group.nodes > 1)
    };
    let groups = candidates
        .iter()
        .filter(|expected| expected.is_about(&ExpectedCall { group: expected.group, ..*call }))
        .map(|expected| expected.group);
    let times_as_many = |group: &ExpectedGroup| f64::from(group.nodes.max(nodes)) / f64::from(group.nodes.min(nodes));
    groups.filter(is_alike).min_by(|a, b| times_as_many(a).total_cmp(&times_as_many(b)))
}

/// As long as the figure says; with only a limit, within it if the links alone would not be.
fn expected_seconds(expected: &Expectation, moved: f64, by_links: f64) -> f64 {
    let seconds = match expected.limit {
        Limit::BusBandwidthFloor(_) => moved / expected.figure(),
        Limit::LatencyCeiling(_) => expected.figure(),
    };
    match expected.table.tolerance {
        Some(_) => seconds,
        None => by_links.min(seconds / WITHIN_LIMIT),
    }
}

#[cfg(test)]
mod fault_tests {
    // The effect of faults (rails, adapters, leaves, scale, intermittent) on simulated times.
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
        // Both ways: 5 us and 1 MB at 1 GB/s; at half the rate 1 ms more. The slow ones of the eight pairs.
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
            let expected: Vec<u64> =
                (0..8).map(|pair| if slow.contains(&pair) { 2_005_000 } else { 1_005_000 }).collect();
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
        let inside =
            times(&machine(&["neighbour:2:rate=0.5"]), &Nodes::filled(16, 2).inside(), Collective::AllReduce, 500);
        assert!(inside.iter().all(|nodes| nodes[2] == nodes[1]));
    }

    #[test]
    fn a_collective_is_as_slow_as_its_worst_rail_and_slow_together_only_where_enough_nodes_are() {
        let nodes = Nodes::filled(16, 2);
        let time = |fault: &[&str], together| {
            times(&machine(fault), &nodes.together(together), Collective::AllGather, 1)[0][0]
        };
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
        assert!(
            (100..400).contains(&share) && changes(&once) == 2 && !once[0],
            "{share} slow, {} changes",
            changes(&once)
        );
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
}

#[cfg(test)]
mod simulated_tests {
    // Guarantees of the simulated backend for the measuring loop.
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
        Groups {
            axis: Axis::Tp,
            groups: firsts.map(|first| (0..ranks).map(|i| first + i * stride).collect()).collect(),
        }
    }

    fn op(collective: Collective, bytes: u64, splits: Splits) -> Op {
        Op { splits, ..Op::new(Style::Sweep, Axis::Tp, collective, ElementType::Uint8, bytes) }
    }

    /// Binds the op and runs a closure on the call; returns its result.
    fn with_call<T>(
        backend: &mut SimulatedBackend,
        groups: &Groups,
        op: &Op,
        work: impl FnOnce(&mut dyn Call) -> T,
    ) -> T {
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
            for (world, ranks, stride) in [
                (4, 2, 1),
                (4, 4, 1),
                (8, 8, 1),
                (16, 16, 1),
                (8, 2, 4),
                (16, 4, 4),
                (8, 4, 2),
                (16, 8, 2),
                (32, 2, 16),
            ] {
                for adapters in [1, 2, 4, 8] {
                    let mut machine = machine("");
                    machine.between_nodes.adapters_per_node = adapters;
                    let groups = groups(world, ranks, stride);
                    let hosts: Vec<u32> = (0..world).map(|rank| rank / 4).collect();
                    let locality = commgauge_model::layout::Locality::of(&groups, &hosts);
                    let bound = machine.bus_bandwidth_bound(
                        collective,
                        locality.nodes_spanned,
                        locality.ranks_per_node,
                        locality.concurrent_groups_per_node,
                    );
                    let Some(bound) = bound else {
                        assert_eq!(collective, Collective::Barrier);
                        continue;
                    };
                    let slowest =
                        ends(&machine, &groups, &op(collective, bytes, Splits::Equal)).into_iter().max().unwrap();
                    let seconds = slowest as f64 * 1e-9 / f64::from(collective.transfers_per_call());
                    let reached = collective.bus_factor(ranks).unwrap() * bytes as f64 / seconds / bound.0;
                    let text =
                        format!("{collective} {ranks} of {world} {stride} apart, {adapters} adapters: {reached}");
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
                    let locality = commgauge_model::layout::Locality::of(&groups, &hosts);
                    let per_node = locality.concurrent_groups_per_node;
                    let bound = machine
                        .bus_bandwidth_bound(op.collective, locality.nodes_spanned, locality.ranks_per_node, per_node)
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
}
