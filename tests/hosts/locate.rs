//! On several hosts: a slowed host and a slowed link are distinguished from one real run each. Needs the launcher of the MPI that was
//! built with, and the right to make namespaces; skipped without.

use crate::common;

use common::hosts::VirtualCluster;
use common::{COMMGAUGE, Ran, SUITE, record_in};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Every two hosts, at rates so low that other load on this machine hardly counts: 1 MiB takes 42 ms at 200 Mbit/s.
const PAIRS_OF_HOSTS: &str = "name = \"pairs-of-hosts\"\n[measure]\niterations = 3\nwarm_up_iterations = 1\nreplicates = 3\n\
    verify = false\nwarm_buffers = true\n[pairs]\nbetween = \"nodes\"\nbandwidth_bytes = \"1MiB\"\n";

/// Suspects of `judge` for a record, as a document and as text, and its exit code.
fn located(record: &Path) -> (Value, String, i32) {
    let locate = |format: &str| {
        let mut command = Command::new(COMMGAUGE);
        Ran::of(command.args(["judge", "--part", "suspects"]).arg(record).args(["--format", format]), 30)
    };
    let json = locate("json");
    let document = serde_json::from_str(&json.stdout).unwrap_or_else(|cause| panic!("{cause}: {}", json.stderr));
    (document, locate("table").stdout, json.code.unwrap_or(-1))
}

/// Runs the pairs on 4 hosts and checks the suspects: exactly this one, or none.
#[track_caller]
fn assert_suspects(cluster: &VirtualCluster, expected: &[Value]) -> Value {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (suite, record) = (folder.path().join("pairs.toml"), record_in(&folder));
    std::fs::write(&suite, PAIRS_OF_HOSTS).unwrap();
    let mut command = cluster.command(4, 1, SUITE);
    Ran::of(command.arg(&suite).arg("--record").arg(&record).arg("--quiet"), 180).ended_with(0);
    let (document, text, code) = located(&record);
    eprintln!("{text}");
    let suspects = document["suspects"].as_array().expect("suspects");
    let suspected: Vec<Value> = suspects.iter().map(|suspect| suspect["culprit"].clone()).collect();
    assert_eq!(suspected, expected, "{text}");
    // Without a suspect, a measure that differed alone is enough to prevent the answer "good".
    assert!(if expected.is_empty() { code == 0 || code == 3 } else { code == 1 }, "{code}: {text}");
    document
}

#[test]
fn a_slowed_host_and_a_lossy_link_are_distinguished_and_healthy_hosts_give_no_suspect() {
    let Some(cluster) = VirtualCluster::up_for_ranks("locate", 4, "200mbit", &[]) else { return };
    assert_suspects(&cluster, &[]);
    cluster.link("2", "50mbit");
    assert_suspects(&cluster, &[json!({ "class": "node", "node": 2 })]);
    cluster.link("2", "200mbit");
    cluster.link("0-3", "50mbit");
    cluster.link("0-3", "lossy");
    let document = assert_suspects(&cluster, &[json!({ "class": "link", "nodes": [0, 3] })]);
    let evidence = document["suspects"][0]["evidence"].to_string();
    let ends = ["RetransSegs of Tcp on host0 rose by", "RetransSegs of Tcp on host3 rose by"];
    assert!(ends.iter().all(|end| evidence.contains(end)), "retransmissions name the ends of the link: {evidence}");
}
