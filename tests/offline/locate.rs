//! `commgauge simulate` and `commgauge judge`: injected faults are found by class and name, without other suspects; a healthy fleet has no
//! suspects. Rates at random places are counted in `commgauge simulate` itself.

use crate::offline;

use offline::{commgauge, text};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Output;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// 64 nodes of 8 behind leaf switches of 8 nodes, with the noise of the shipped machine.
fn machine(folder: &Path) -> String {
    let shipped = std::fs::read_to_string(Path::new(ROOT).join("suites/machines/h100-nvswitch-ndr.toml")).unwrap();
    let text = shipped.replace("adapters_per_node = 8", "adapters_per_node = 8\nnodes_per_leaf = 8");
    let path = folder.join("leaves.toml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn suite() -> String {
    Path::new(ROOT).join("suites/qualify.toml").display().to_string()
}

/// The faults of a scenario, and the expected suspects.
type Scenario = (&'static str, &'static [&'static str], fn() -> Vec<Value>);

const SCENARIOS: [Scenario; 6] = [
    ("one bad node", &["node:17:rate=0.6"], || vec![json!({ "class": "node", "node": 17 })]),
    ("two bad nodes side by side", &["node:20:rate=0.6", "node:21:rate=0.7"], || {
        vec![json!({ "class": "node", "node": 20 }), json!({ "class": "node", "node": 21 })]
    }),
    ("one bad link", &["link:3-9:rate=0.5"], || vec![json!({ "class": "link", "nodes": [3, 9] })]),
    ("one bad rail", &["rail:2:rate=0.6"], || vec![json!({ "class": "rail", "local_rank": 2 })]),
    ("one bad leaf", &["leaf:1:rate=0.6"], || {
        vec![json!({ "class": "leaf", "leaf": 1, "nodes": [8, 9, 10, 11, 12, 13, 14, 15] })]
    }),
    ("healthy", &[], Vec::new),
];

/// Rehearses a qualification of 64 nodes with this many seeds and returns the answer.
fn rehearsed(faults: &[&str], seeds: u32) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let (machine, suite, seeds) = (machine(folder.path()), suite(), seeds.to_string());
    let mut words =
        vec!["simulate", &suite, "--machine", &machine, "--nodes", "64", "--seeds", &seeds, "--format", "json"];
    faults.iter().for_each(|fault| words.extend(["--fault", fault]));
    let output = commgauge(folder.path(), &words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_class_of_fault_is_named_and_nothing_else_on_64_nodes_of_8() {
    for (name, faults, planted) in SCENARIOS {
        let answer = rehearsed(faults, 1);
        let power = &answer["power"];
        assert_eq!(power["planted"], Value::Array(planted()), "{name}");
        let suspects = &answer["suspects"]["suspects"];
        assert_eq!((&power["right"], &power["others_accused"]), (&json!(1), &json!(0)), "{name}: {suspects:#}");
        assert_eq!(answer["suspects"]["exit_code"], if faults.is_empty() { 3 } else { 1 }, "{name}");
        assert_eq!((&answer["synthetic"], &answer["suspects"]["synthetic"]), (&json!(true), &json!(true)));
        assert_eq!(answer["suspects"]["examined"]["node_pairs_measured"], 2016);
        assert_eq!(answer["pair_rounds"], 63 + 7, "{name}: N - 1 rounds, and those of 8 devices inside");
    }
}

#[test]
fn faults_of_scale_adapters_late_ranks_and_such_that_come_and_go_are_named_too() {
    for (fault, expected, intermittent) in [
        ("scale:8:rate=0.3", json!({ "class": "only_at_scale", "from_nodes": 8 }), false),
        ("adapter:9.3:rate=0.5", json!({ "class": "adapter", "node": 9, "local_rank": 3 }), false),
        ("cable:9.3.send:rate=0.5", json!({ "class": "cable", "node": 9, "local_rank": 3 }), false),
        ("device:9.3:rate=0.5", json!({ "class": "device", "node": 9, "local_rank": 3 }), false),
        ("nvlink:9.3:rate=0.5", json!({ "class": "nvlink", "node": 9, "local_rank": 3 }), false),
        ("nvlink:9.3-1:rate=0.5", json!({ "class": "nvlink", "node": 9, "local_rank": 1, "peer": 3 }), false),
        ("neighbour:11:rate=0.5", json!({ "class": "node", "node": 11 }), true),
        ("rank:5:delay=2ms", json!({ "class": "late_rank", "rank": 5, "node": 0 }), false),
        ("intermittent:0.25/5ms:node:11:rate=0.5", json!({ "class": "node", "node": 11 }), true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (machine, suite) = (machine(folder.path()), suite());
        let words = ["simulate", &suite, "--machine", &machine, "--nodes", "16", "--fault", fault, "--format", "json"];
        let answer: Value = serde_json::from_slice(&commgauge(folder.path(), &words).stdout).unwrap();
        let suspects = answer["suspects"]["suspects"].as_array().unwrap();
        assert_eq!(suspects.len(), 1, "{fault}: {suspects:#?}");
        assert_eq!(
            (&suspects[0]["culprit"], &suspects[0]["intermittent"]),
            (&expected, &json!(intermittent)),
            "{fault}"
        );
    }
}

fn simulate(folder: &Path, more: &[&str]) -> Output {
    let (machine, suite) = (machine(folder), suite());
    let words = [&["simulate", &suite, "--machine", &machine, "--nodes", "8"], more].concat();
    commgauge(folder, &words)
}

#[test]
fn invalid_rehearsals_are_refused_with_what_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    for (more, words) in [
        (&["--fault", "noode:1:rate=0.5"][..], "there is no kind `noode`; accepted: node:17:rate=0.6"),
        (&["--fault", "node:8:rate=0.5"], "faults[0].node: found 8; with 64 ranks the last node is 7"),
        (&["--fault", "rail:8:rate=0.5"], "faults[0].rail: found 8; with 64 ranks the last adapter is 7"),
        (&["--fault", "leaf:1:rate=0.5"], "faults[0].leaf: found 1; with 64 ranks the last leaf is 0"),
        (&["--fault", "scale:9:rate=0.5"], "faults[0].from_nodes: found 8"),
        (&["--seeds", "0"], "0 is not in 1.."),
        (&["-o", "/nowhere/r.jsonl"], "does not exist; create it"),
    ] {
        let output = simulate(folder.path(), more);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{more:?}: {said}");
        assert!(said.contains(words), "{more:?}: {said}");
    }
}

#[test]
fn a_rehearsed_record_is_analysed_like_any_other_and_stays_synthetic() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let output = simulate(at, &["--fault", "node:3:rate=0.5", "-o", "r.jsonl"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let refused = simulate(at, &["-o", "r.jsonl"]);
    assert!(refused.status.code() == Some(2) && text(&refused.stderr).contains("never overwritten"));

    let schema = commgauge(at, &["show", "schema", "suspects"]);
    let validator = jsonschema::validator_for(&serde_json::from_slice(&schema.stdout).unwrap()).unwrap();
    let located = commgauge(at, &["judge", "--part", "suspects", "r.jsonl", "--format", "json"]);
    let document: Value = serde_json::from_slice(&located.stdout).unwrap();
    assert!(validator.is_valid(&document), "{:?}", validator.iter_errors(&document).next());
    assert_eq!((located.status.code(), &document["exit_code"]), (Some(1), &json!(1)));
    assert_eq!(document["suspects"][0]["culprit"], json!({ "class": "node", "node": 3 }));
    assert_eq!((&document["synthetic"], &document["examined"]["nodes_per_leaf"]), (&json!(true), &json!(8)));
    let table = text(&commgauge(at, &["judge", "--part", "suspects", "r.jsonl"]).stdout);
    assert!(table.starts_with("suspect: node 3 (node-0003) (exit code 1)\nSYNTHETIC"), "{table}");
    let markdown = text(&commgauge(at, &["judge", "--part", "suspects", "r.jsonl", "--format", "markdown"]).stdout);
    assert!(
        markdown.contains("| node 3 (node-0003) | node | always |") && markdown.contains("SYNTHETIC"),
        "{markdown}"
    );

    let twice = commgauge(at, &["judge", "--part", "suspects", "r.jsonl", "r.jsonl"]);
    assert!(
        twice.status.code() == Some(2) && text(&twice.stderr).contains("are the same run"),
        "{}",
        text(&twice.stderr)
    );
    let over_itself = commgauge(at, &["judge", "--part", "suspects", "r.jsonl", "-o", "r.jsonl"]);
    assert!(over_itself.status.code() == Some(2) && text(&over_itself.stderr).contains("is one of the inputs"));
}

#[test]
fn a_record_that_lost_a_line_or_has_no_pairs_never_calls_the_machine_good() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    assert_eq!(simulate(at, &["-o", "r.jsonl"]).status.code(), Some(0));
    let whole = std::fs::read_to_string(at.join("r.jsonl")).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    for lost in [1, 5, lines.len() / 2, lines.len() - 1] {
        let kept: Vec<&str> =
            lines.iter().enumerate().filter(|(index, _)| *index != lost).map(|(_, line)| *line).collect();
        std::fs::write(at.join("torn.jsonl"), kept.join("\n") + "\n").unwrap();
        let code = commgauge(at, &["judge", "--part", "suspects", "torn.jsonl"]).status.code();
        assert!(code == Some(7) || code == Some(2), "without line {}: {code:?}", lost + 1);
    }
    let sample = Path::new(ROOT).join("tests/data/sample-record.jsonl").display().to_string();
    let output = commgauge(at, &["judge", "--part", "suspects", "--explain", &sample]);
    assert_eq!(output.status.code(), Some(4), "its data arrived wrong: {}", text(&output.stdout));
    assert!(text(&output.stdout).contains("no two nodes met in pairs"), "{}", text(&output.stdout));
}

#[test]
fn pairs_that_scatter_so_much_that_a_third_of_the_rate_would_not_be_seen_are_not_called_good() {
    let folder = tempfile::tempdir().unwrap();
    // One rank on each host, so that no others of the host smooth its times.
    let shipped = std::fs::read_to_string(Path::new(ROOT).join("suites/machines/two-hosts-1gbit.toml")).unwrap();
    let noisy = shipped.replace("relative_sigma = 0.03", "relative_sigma = 1.0");
    let noisy = noisy.replace("ranks_per_node = 2", "ranks_per_node = 1");
    std::fs::write(folder.path().join("noisy.toml"), noisy).unwrap();
    let words = ["simulate", "qualify", "--machine", "noisy.toml", "--nodes", "6", "--format", "json"];
    let output = commgauge(folder.path(), &words);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let suspects = &answer["suspects"];
    let said = suspects["answer"].as_str().unwrap();
    assert!(
        suspects["exit_code"] == 3 && said.starts_with("undecided: the times of the pairs scatter so much"),
        "{said}"
    );
}
