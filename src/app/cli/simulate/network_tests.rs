//! A cluster whose network is slow never passes: every shipped machine file, from two nodes on, with each fault of a network. Rehearsals are
//! given the marks of measured runs, since nothing simulated ever passes.

use super::super::suite::{SuiteWork, suite_work};
use super::{gated, loaded};
use commgauge_analysis::verdict::locate::{LocateOptions, locate};
use commgauge_analysis::verdict::{located_code, most_severe};
use commgauge_model::config::machine::Fault;
use commgauge_model::config::{Machine, Shipped};
use commgauge_model::layout::Nodes;
use commgauge_model::record::line::Outcome;
use commgauge_model::record::{Line, Seal};
use commgauge_run::session::{Rehearsal, Request};
use rayon::prelude::*;
use std::path::Path;

/// The calls of `qualify-gpu` that are judged on some machine, in as few replicates as bound a median.
const SUITE: &str = r#"
name = "network"
[measure]
replicates = 5
cadences = ["streaming"]
[[sweep]]
axis = "node"
collectives = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
bytes = ["512MiB"]
element_types = ["float16"]
placements = "out-of-place"
[pairs]
between = "nodes"
inside_nodes = true
latency_bytes = "8B"
bandwidth_bytes = "64MiB"
[[sweep]]
axis = "nodes"
collectives = ["all_gather"]
bytes = ["1GiB"]
element_types = ["float32"]
placements = "out-of-place"
"#;
/// What the file of a rack asks for besides.
const RACK: &str = r#"
[[sweep]]
axis = "nodes"
collectives = ["all_reduce"]
bytes = ["512MiB", "1GiB", "2GiB", "4GiB", "8GiB"]
element_types = ["float32"]
placements = "out-of-place"
"#;

/// What is broken, by its name and as faults of a machine.
type Broken = (&'static str, fn(&Machine) -> Vec<String>);

const NETWORK: [Broken; 6] = [
    ("a link at a tenth", |_| vec!["link:0-1:rate=0.1".to_owned()]),
    ("a link at half", |_| vec!["link:0-1:rate=0.5".to_owned()]),
    ("an adapter at half", |_| vec!["adapter:1.0:rate=0.5".to_owned()]),
    ("all adapters at a tenth", |machine| rails(machine, 0.1)),
    ("GPUDirect off", |machine| rails(machine, 0.3)),
    HALF_NVLINK,
];
const HALF_NVLINK: Broken = ("NVLink of a node at half", |machine| {
    (0..machine.ranks_per_host()).map(|device| format!("nvlink:1.{device}:rate=0.5")).collect()
});

fn rails(machine: &Machine, rate: f64) -> Vec<String> {
    (0..machine.between_nodes.adapters_per_node).map(|rail| format!("rail:{rail}:rate={rate}")).collect()
}

/// The machine files by which runs of ours can be judged.
fn machines(are_racks: bool) -> Vec<Machine> {
    let all = Shipped::Machine.embedded_names().into_iter();
    let loaded = all.map(|name| Machine::load(Path::new(&format!("embedded:suites/machines/{name}.toml"))).unwrap());
    let is_judging = |machine: &Machine| {
        let native = machine.judged_runs.as_ref().is_some_and(|runs| !runs.imported_only);
        native && machine.required_coverage.is_some() && (machine.hosts_per_node > 1) == are_racks
    };
    loaded.filter(is_judging).collect()
}

/// The exit code of `commgauge judge` on a run of this many nodes, and what it suspects.
fn judged(machine: &Machine, nodes: u32, faults: &[String]) -> (i32, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let suite = folder.path().join("network.toml");
    let rack = if machine.hosts_per_node > 1 { RACK } else { "" };
    std::fs::write(&suite, SUITE.to_owned() + rack).unwrap();
    let ranks = nodes * machine.ranks_per_node;
    let lies = Nodes::filled(ranks, machine.ranks_per_host());
    let SuiteWork { plan, settings, facts } = suite_work(&suite, None, &lies).unwrap();
    let mut broken = machine.clone();
    // Times that repeat to the last digit are taken for copies.
    broken.noise.relative_sigma = 0.01;
    broken.faults = faults.iter().map(|fault| fault.parse::<Fault>().unwrap()).collect();
    let request = Request::simulated("network".to_owned(), facts, plan, settings, &broken, ranks);
    let mut lines = Rehearsal::new(&request).unwrap().lines(7).unwrap().0;
    lines.iter_mut().for_each(|line| mark_as_measured(line, machine));
    let mut run = loaded(None, lines).unwrap();
    run.record.file.seal = Seal::Whole;
    let verdict = gated(&run, machine).unwrap();
    let suspects = locate(&[run], &LocateOptions::of_machine(machine)).unwrap();
    let code = most_severe([verdict.exit_code, located_code(&suspects, Some(&verdict))]);
    let why = verdict.troubles.into_iter().map(|trouble| trouble.text);
    (code, suspects.suspects.into_iter().map(|suspect| suspect.name).chain(why).collect())
}

fn mark_as_measured(line: &mut Line, machine: &Machine) {
    match line {
        Line::Header(header) => {
            let judged = machine.judged_runs.as_ref().unwrap();
            header.warnings.clear();
            (header.backend.synthetic, header.backend.name) = (false, judged.backend.clone());
            header.backend.library = "NCCL 99.0".to_owned();
            let device = judged.devices.first().map(|device| format!("NVIDIA {device}"));
            header.ranks.iter_mut().for_each(|rank| rank.device.clone_from(&device));
        }
        Line::Case(case) => {
            if let Outcome::Measured { verified } = &mut case.outcome {
                *verified = true;
            }
        }
        _ => {}
    }
}

/// Which of these runs end otherwise than they must: a healthy one passes, and one with a fault fails.
fn wrong(runs: Vec<(Machine, u32, Option<Broken>)>) -> Vec<String> {
    let one = |(machine, nodes, broken): (Machine, u32, Option<Broken>)| {
        let (name, faults) = broken.map_or(("nothing", Vec::new()), |(name, faults)| (name, faults(&machine)));
        let (code, said) = judged(&machine, nodes, &faults);
        let is_right = code == i32::from(broken.is_some());
        (!is_right).then(|| format!("{} on {nodes} nodes, {name} is broken: exit code {code}, {said:?}", machine.name))
    };
    runs.into_par_iter().filter_map(one).collect()
}

#[test]
fn a_slow_network_of_two_or_three_nodes_fails_on_every_machine_file_and_a_healthy_one_passes() {
    let runs = machines(false).into_iter().enumerate().flat_map(|(turn, machine)| {
        // Faults in turn; the table below has all of them.
        let nodes = 2 + turn as u32 % 2;
        let broken = [None, Some(NETWORK[turn % NETWORK.len()])];
        broken.map(|broken| (machine.clone(), nodes, broken))
    });
    assert_eq!(wrong(runs.collect()), Vec::<String>::new());
    let racks = machines(true)
        .into_iter()
        .flat_map(|machine| [None, Some(HALF_NVLINK)].map(|broken| (machine.clone(), 1, broken)));
    assert_eq!(wrong(racks.collect()), Vec::<String>::new());
}

/// In `scripts/test --all`: half a minute of processor time.
#[test]
fn every_fault_of_a_network_fails_on_every_machine_file_from_2_to_64_nodes() {
    let broken = || std::iter::once(None).chain(NETWORK.map(Some));
    let mut runs = Vec::new();
    for machine in machines(false) {
        // Machines differ in rates alone, so that one of them stands for all where runs are long.
        let sizes = if machine.name == "h100-nvswitch-ndr" { &[2, 3, 4, 8, 64][..] } else { &[2, 3, 4, 8] };
        runs.extend(sizes.iter().flat_map(|nodes| broken().map(|broken| (machine.clone(), *nodes, broken))));
    }
    assert_eq!(wrong(runs), Vec::<String>::new());
}
