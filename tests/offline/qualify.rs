//! The shipped qualification is judged by every shipped machine file that expects anything: `judge --plan` says so before it is run,
//! and a suite that measures something else is told apart.

use crate::offline::{commgauge, text};
use commgauge::config::{Machine, Shipped};
use std::path::Path;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Exit code and output of a plan on this many nodes.
fn planned(suite: &str, machine: &str, nodes: u32) -> (Option<i32>, String) {
    let output = commgauge(here(), &["judge", "--plan", suite, "--machine", machine, "--nodes", &nodes.to_string()]);
    (output.status.code(), text(&output.stdout))
}

#[test]
fn the_qualification_can_pass_on_every_shipped_machine_that_expects_anything() {
    let mut judged = 0;
    for name in Shipped::Machine.embedded_names() {
        let machine = Machine::load(Path::new(&format!("embedded:suites/machines/{name}.toml"))).expect("a machine");
        let Some(coverage) = machine.required_coverage.as_ref() else {
            assert!(machine.expectations.is_empty(), "{name} expects something and has no [coverage]");
            continue;
        };
        let runs = machine.judged_runs.as_ref().unwrap_or_else(|| panic!("{name} has no [applies_to]"));
        if runs.imported_only {
            let (code, shown) = planned("qualify-gpu", &name, 1);
            let said = "only logs of rccl-tests can be judged";
            assert!(code == Some(3) && shown.contains(said), "{name}: {shown}");
            continue;
        }
        let hosts = coverage.nodes.iter().copied().max().unwrap_or(1);
        let (code, shown) = planned("qualify-gpu", &name, hosts.div_ceil(machine.hosts_per_node));
        assert!(code == Some(0) && shown.contains("a run of it can pass"), "{name}: {shown}");
        assert!(shown.contains("network: not judged; the run has one node"), "{name}: {shown}");
        // An odd number of nodes too; a rack is qualified by itself.
        for nodes in [2, 3, 64].into_iter().filter(|_| machine.hosts_per_node == 1) {
            let (code, shown) = planned("qualify-gpu", &name, nodes);
            assert!(code == Some(0) && shown.contains(" between nodes will be judged"), "{name}, {nodes}: {shown}");
        }
        judged += 1;
    }
    assert!(judged > 10, "{judged} machine files were planned for");
}

#[test]
fn a_plan_of_which_no_run_can_pass_says_why() {
    for (suite, nodes, words) in [
        (
            "quick",
            1,
            &["0 of 33 thresholds will be judged", "[coverage] requires 4", "replicates; a bound of 95 % needs 5"][..],
        ),
        (
            "qualify",
            2,
            &[
                "nothing judged of",
                "all_gather",
                "cannot pass: no row of 1 MiB or more between the 2 nodes was judged, so the network is unknown",
                "not measured: all_reduce of 512 MiB, streaming on 8 ranks of 1 node (",
            ],
        ),
    ] {
        let (code, shown) = planned(suite, "h100-nvswitch-ndr", nodes);
        assert_eq!(code, Some(3), "{shown}");
        for word in words {
            assert!(shown.contains(word), "{word} is not in:\n{shown}");
        }
    }
    for wrong in [
        &["judge", "--plan", "qualify-gpu"][..],
        &["judge", "run.jsonl", "--plan", "qualify-gpu", "--machine", "h100-nvswitch-ndr"],
        &["judge", "run.jsonl", "--machine", "h100-nvswitch-ndr", "--nodes", "2"],
        &["judge", "--plan", "nothing", "--machine", "h100-nvswitch-ndr"],
    ] {
        assert_eq!(commgauge(here(), wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_cluster_of_several_racks_is_to_be_qualified_rack_by_rack() {
    let (code, shown) = planned("qualify-gpu", "gb200-nvl72", 2);
    assert_eq!(code, Some(3), "{shown}");
    assert!(shown.contains("a node of gb200-nvl72 is 18 hosts: qualify node by node (--nodes 1)"), "{shown}");
}

#[test]
fn the_plan_of_copies_says_how_many_thresholds_of_copies_it_meets() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = text(&commgauge(folder.path(), &["show", "machine", "h100-nvswitch-ndr"]).stdout);
    let (links, _) = machine.split_once("# What must be judged before a run can pass").expect("what it asks for");
    let copies = "[coverage]\nexpectations = 1\n[[expect_copy]]\nkind = 'host-to-device'\nbytes = '64MiB'\nvalue = '50GB/s'\nsource = 's'\n\
        date = '2026'\n[[expect_copy]]\nkind = 'to-peer'\nbytes = '1GiB'\nvalue = '350GB/s'\nsource = 's'\ndate = '2026'\n";
    std::fs::write(folder.path().join("m.toml"), format!("{links}{copies}")).expect("written");
    let output = commgauge(folder.path(), &["judge", "--plan", "copies", "--machine", "m.toml"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{shown}");
    for words in ["1 of 2 thresholds will be judged", "expect_copy[1]", "3 replicates; a bound of 95 % needs 5"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

#[test]
fn a_rehearsal_reaches_the_figures_of_its_machine_file_and_what_is_broken_misses_them() {
    let simulated = |words: &[&str]| {
        let output = commgauge(here(), &[&["simulate", "qualify-gpu", "--format", "json", "--nodes"], words].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        ["rows_judged", "rows_that_would_meet", "rows_failed", "rows_failed_healthy"]
            .map(|key| document["gate"][key].as_u64().expect("a count"))
    };
    // Figures of sums in switches and of small messages, and those of a rack of 18 hosts.
    for machine in ["h100-nvswitch-ndr", "gb200-nvl72"] {
        let [judged, meet, failed, healthy] = simulated(&["1", "--machine", machine]);
        assert!(judged > 0 && meet == judged && (failed, healthy) == (0, 0), "{machine}: {judged} {meet} {failed}");
        let [_, _, failed, healthy] = simulated(&["1", "--machine", machine, "--fault", "node:0:rate=0.5"]);
        assert!(failed > 0 && healthy == 0, "{machine}: {failed} {healthy}");
    }
}
