//! A cluster that reaches what its machine file expects passes its qualification, and one with a fault does not, and is told which:
//! over all shipped machine files and faults. The runs are simulated by those files as they are, and are given the marks of measured ones,
//! since nothing simulated ever passes.

use crate::offline::{commgauge, text};
use crate::records;
use commgauge::config::{Machine, Shipped};
use commgauge::record::Line;
use commgauge::record::line::{Header, Outcome};
use std::path::Path;

/// Number of nodes, enough that an outlier among them can be named.
const NODES: u32 = 4;

/// Hosts that are one node, as in a rack, do not use their adapters among themselves.
const RAIL: &str = "rail:0:rate=0.5";

/// A fault, and what of it must be named.
const FAULTS: [(&str, &str); 5] = [
    ("node:2:rate=0.5", "node 2"),
    ("link:1-3:rate=0.4", "link between node 1"),
    (RAIL, "rail 0"),
    ("device:2.1:rate=0.5", "device of local rank 1 of node 2"),
    ("nvlink:2.0-1:rate=0.5", "link between local ranks 0 and 1 inside node 2"),
];

/// The machine file with times that scatter: those that repeat to the last digit are taken for copies.
fn scattering(text: &str) -> String {
    let noise = if text.contains("[noise]") { "" } else { "\n[noise]\nrelative_sigma = 0.01\n" };
    text.to_owned() + noise
}

/// A simulated run as the machine's own devices and library would have recorded it.
pub fn as_measured(record: &Path, machine: &Machine, change: impl Fn(&mut Header)) {
    let judged = machine.judged_runs.as_ref().expect("[applies_to]");
    let text = std::fs::read_to_string(record).expect("a record");
    let mut lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
    for line in &mut lines {
        match line {
            Line::Header(header) => {
                mark(header, judged);
                change(header);
            }
            Line::Case(case) => {
                if let Outcome::Measured { verified } = &mut case.outcome {
                    *verified = true;
                }
                case.warnings.retain(|warning| !warning.starts_with("synthetic"));
            }
            _ => {}
        }
    }
    records::write(record, &lines);
}

fn mark(header: &mut Header, judged: &commgauge::config::machine::JudgedRuns) {
    header.backend.synthetic = false;
    header.warnings.clear();
    header.backend.name.clone_from(&judged.backend);
    header.backend.library = format!("{} 99.0", judged.library.as_deref().unwrap_or("NCCL"));
    for rank in &mut header.ranks {
        rank.device = judged.devices.first().map(|device| format!("NVIDIA {device}"));
    }
}

/// Exit code and output of a judgement on a run with a fault, or without any.
fn judged(name: &str, fault: Option<&str>) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = shipped(name);
    let shown = text(&commgauge(folder.path(), &["show", "machine", name]).stdout);
    std::fs::write(folder.path().join("machine.toml"), scattering(&shown)).expect("written");
    let covered = machine.required_coverage.as_ref().and_then(|coverage| coverage.nodes.iter().max());
    let hosts = covered.map_or(NODES, |covered| NODES.max(*covered));
    let nodes = hosts.div_ceil(machine.hosts_per_node).to_string();
    let mut words = vec!["simulate", "qualify-gpu", "--machine", "machine.toml", "--nodes", &nodes, "-o", "run.jsonl"];
    words.extend(fault.into_iter().flat_map(|fault| ["--fault", fault]));
    let ran = commgauge(folder.path(), &words);
    assert_eq!(ran.status.code(), Some(0), "{name}: {}", text(&ran.stderr));
    as_measured(&folder.path().join("run.jsonl"), &machine, |_| {});
    let ran = commgauge(folder.path(), &["judge", "run.jsonl", "--machine", name, "--width", "200"]);
    (ran.status.code(), text(&ran.stdout) + &text(&ran.stderr))
}

fn shipped(name: &str) -> Machine {
    Machine::load(Path::new(&format!("embedded:suites/machines/{name}.toml"))).expect("a machine")
}

/// All machine files that expect anything of runs that are ours.
fn machines() -> Vec<String> {
    let expects = |name: &String| {
        let machine = shipped(name);
        !machine.expectations.is_empty() && machine.judged_runs.is_some_and(|runs| !runs.imported_only)
    };
    Shipped::Machine.embedded_names().into_iter().filter(expects).collect()
}

/// What can be broken in one node of a machine, or between several.
fn faults(name: &str) -> Vec<(&'static str, &'static str)> {
    let is_rack = shipped(name).hosts_per_node > 1;
    FAULTS.into_iter().filter(|(fault, _)| !is_rack || *fault != RAIL).collect()
}

#[track_caller]
fn passes(name: &str) {
    let (code, said) = judged(name, None);
    assert!(code == Some(0) && said.starts_with("judge: PASS"), "{name}: {said}");
    assert!(said.contains("no suspects"), "{name}: {said}");
}

#[track_caller]
fn fails(name: &str, (fault, expected): (&str, &str)) {
    let (code, said) = judged(name, Some(fault));
    assert!(code == Some(1) && said.starts_with("judge: FAIL"), "{name}, {fault}: {said}");
    let suspect = said.lines().find(|line| line.starts_with("suspect: ")).unwrap_or_default();
    assert!(suspect.starts_with(&format!("suspect: {expected}")), "{name}, {fault}: {suspect}");
}

/// A healthy run of the qualification of hosts, or one with a fault, as if it had been measured.
fn qualification_of_hosts(folder: &Path, record: &str, fault: &[&str]) {
    let simulate = ["simulate", "qualify-host", "--machine", MACHINE, "--nodes", "8", "-o", record];
    let ran = commgauge(folder, &[&simulate[..], fault].concat());
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    as_measured(&folder.join(record), &shipped(MACHINE), |_| {});
}

const MACHINE: &str = "h100-nvswitch-ndr";

#[test]
fn the_qualification_of_hosts_is_judged_by_limits_that_were_learned_from_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    qualification_of_hosts(folder, "first.jsonl", &[]);
    qualification_of_hosts(folder, "healthy.jsonl", &[]);
    qualification_of_hosts(folder, "slow.jsonl", &["--fault", "node:2:rate=0.5"]);
    let learn = ["expect", "learn", "first.jsonl", "--like", MACHINE, "--name", MACHINE, "-o", "ours.toml"];
    let plan = |suite| ["judge", "--plan", suite, "--machine", "ours.toml", "--nodes", "8"];
    for (words, code, said) in [
        (&learn[..], 0, "expectations from 1 run"),
        (&plan("qualify-host"), 0, "a run of it can pass"),
        (&plan("qualify"), 3, "3 replicates; a bound of 95 % needs 5"),
        (&["judge", "healthy.jsonl", "--machine", "ours.toml"], 0, "judge: PASS"),
        (&["judge", "slow.jsonl", "--machine", "ours.toml"], 1, "judge: FAIL"),
    ] {
        let ran = commgauge(folder, words);
        let shown = text(&ran.stdout) + &text(&ran.stderr);
        assert!(ran.status.code() == Some(code) && shown.contains(said), "{words:?}: {:?} {shown}", ran.status);
    }
}

#[test]
fn every_shipped_machine_at_its_thresholds_passes_and_with_a_fault_fails_naming_it() {
    // Faults in turn; the test below plants every fault in every machine.
    for (turn, name) in machines().iter().enumerate() {
        let faults = faults(name);
        passes(name);
        fails(name, faults[turn % faults.len()]);
    }
}

#[test]
fn a_fleet_larger_than_that_of_a_published_figure_is_not_slow_at_scale() {
    // The figures of the machine are of 8 nodes, with sums in switches.
    let folder = tempfile::tempdir().expect("a folder");
    let simulate = ["simulate", "qualify-gpu", "--machine", MACHINE, "--nodes", "12"];
    let ran = commgauge(folder.path(), &simulate);
    let said = text(&ran.stdout);
    assert!(said.contains("no suspects"), "{said}");
}

#[test]
#[ignore = "minutes: cargo test --release --test offline qualified:: -- --ignored"]
fn every_fault_in_every_shipped_machine_is_named() {
    machines().iter().for_each(|name| faults(name).into_iter().for_each(|fault| fails(name, fault)));
}
