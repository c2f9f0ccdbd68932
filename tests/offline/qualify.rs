//! The shipped qualification is judged by every shipped machine file that expects anything: `gate --plan` says so before it is run,
//! and a suite that measures something else is told apart.

use crate::offline::{commgauge, text};
use commgauge::config::{Machine, Shipped};
use std::path::Path;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Exit code and output of a plan on so many nodes.
fn planned(suite: &str, machine: &str, nodes: u32) -> (Option<i32>, String) {
    let output = commgauge(here(), &["gate", "--plan", suite, "--machine", machine, "--nodes", &nodes.to_string()]);
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
        assert!(machine.judged_runs.is_some(), "{name} has no [applies_to]");
        let hosts = coverage.nodes.iter().copied().max().unwrap_or(1);
        let (code, shown) = planned("qualify-gpu", &name, hosts.div_ceil(machine.hosts_per_node));
        assert!(code == Some(0) && shown.contains("a run of it can pass"), "{name}: {shown}");
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
            &["0 of 29 thresholds will be judged", "[coverage] asks for 10", "replicates; a bound of 95 % needs 5"][..],
        ),
        ("qualify", 2, &["nothing judged of", "all_gather", "cannot pass"]),
    ] {
        let (code, shown) = planned(suite, "h100-nvswitch-ndr", nodes);
        assert_eq!(code, Some(3), "{shown}");
        for word in words {
            assert!(shown.contains(word), "{word} is not in:\n{shown}");
        }
    }
    for wrong in [
        &["gate", "--plan", "qualify-gpu"][..],
        &["gate", "run.jsonl", "--plan", "qualify-gpu", "--machine", "h100-nvswitch-ndr"],
        &["gate", "run.jsonl", "--machine", "h100-nvswitch-ndr", "--nodes", "2"],
        &["gate", "--plan", "nothing", "--machine", "h100-nvswitch-ndr"],
    ] {
        assert_eq!(commgauge(here(), wrong).status.code(), Some(2), "{wrong:?}");
    }
}
