//! Programs on several hosts with links of a known rate: where the ranks are is found, and so is what the links carry.
//! Needs the launcher of the MPI that was built with, and the right to make namespaces; skipped without.

use crate::common;

use common::hosts::VirtualCluster;
use common::{Ran, SUITE, SWEEP, lines, of_kind, record_in, words};
use serde_json::Value;
use std::ops::RangeInclusive;
use std::process::Command;
use std::time::Duration;

const GIGABIT: f64 = 0.125e9;

/// A folder that all hosts see.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The rows of a run, as the JSON report has them, all with the status that is expected.
fn rows(command: &mut Command, flags: &str, status: &str) -> Vec<Value> {
    let folder = folder();
    command.args(words(flags)).args(["--format", "json", "--record"]).arg(record_in(&folder));
    let ran = Ran::alone(command, 120).ended_with(0);
    let report: Value = serde_json::from_str(&ran.stdout).expect("one JSON document");
    let rows = report["rows"].as_array().expect("rows").clone();
    assert!(!rows.is_empty() && rows.iter().all(|row| row["status"] == status), "{}", ran.stdout);
    rows
}

fn bus_bandwidth(row: &Value) -> f64 {
    row["busbw_bytes_per_second"].as_f64().expect("a rate")
}

/// Bytes per second of a ping-pong. One message takes 134 ms on a link of the expected rate: long enough that the few
/// ms for which a rank of a busy machine waits for a processor, at both ends of each message, do not count. The data
/// is not checked, since in a build without optimization that takes longer than the rest.
fn ping_pong(mut command: Command, expected: f64) -> f64 {
    let bytes = (16 << 20) as f64 * (expected / GIGABIT);
    let flags = "ping_pong --iters 3 --warmup_iters 1 --replicates 1 --cadence streaming --warm-buffers --check 0";
    bus_bandwidth(&rows(&mut command, &format!("{flags} -b {bytes} -e {bytes}"), "not verified")[0])
}

/// Fails the test unless a rate is within limits. Other load on this machine takes processors from the ranks and from
/// the kernel that simulates the network, and makes links slower, never faster. So a wrong rate is measured again,
/// five times in all, after pauses of up to 8 s in which other load may end.
#[track_caller]
fn assert_found(what: &str, limits: RangeInclusive<f64>, measure: impl Fn() -> f64) -> f64 {
    let mut found = Vec::new();
    for pause_seconds in [0, 1, 2, 4, 8] {
        std::thread::sleep(Duration::from_secs(pause_seconds));
        let seen = measure();
        eprintln!("{what}: {:.4} GB/s; {:.4} to {:.4} expected", seen / 1e9, limits.start() / 1e9, limits.end() / 1e9);
        if limits.contains(&seen) {
            return seen;
        }
        found.push(seen);
    }
    panic!("{what}: {found:?} B/s, not within {limits:?} B/s");
}

fn within_a_tenth(rate: f64) -> RangeInclusive<f64> {
    0.9 * rate..=1.1 * rate
}

/// Whether each case is on that many nodes, with that many of its group's ranks on each.
#[track_caller]
fn assert_localities(record: &[Value], axis: &str, nodes_spanned: u64, ranks_per_node: u64) {
    let plan = of_kind(record, "plan")[0]["cases"].as_array().expect("cases");
    let of_axis: Vec<&Value> = plan.iter().filter(|case| case["axis"] == axis).collect();
    assert!(!of_axis.is_empty(), "no case of {axis}");
    for case in of_axis {
        let locality = &case["locality"];
        let found = (locality["nodes_spanned"].as_u64(), locality["ranks_per_node"].as_u64());
        assert_eq!(found, (Some(nodes_spanned), Some(ranks_per_node)), "{axis}: {}", case["name"]);
    }
}

#[track_caller]
fn assert_two_hosts_of_two_ranks(record: &[Value]) {
    let ranks = record[0]["ranks"].as_array().expect("a rank map");
    let hosts: Vec<(&str, u64)> =
        ranks.iter().map(|rank| (rank["host"].as_str().unwrap(), rank["node"].as_u64().unwrap())).collect();
    assert_eq!(hosts, [("host0", 0), ("host0", 0), ("host1", 1), ("host1", 1)]);
}

#[test]
fn localities_are_found_from_the_launch() {
    let Some(cluster) = VirtualCluster::up_for_ranks("localities", 2, "1gbit", &[]) else { return };
    let folder = folder();
    let record = record_in(&folder);
    let mut command = cluster.command(4, 2, SWEEP);
    command.args(words("all_reduce -b 4K -e 4K --iters 5 --replicates 1 --record")).arg(&record);
    Ran::of(&mut command, 60).ended_with(0);
    assert_two_hosts_of_two_ranks(&lines(&record));
    assert_localities(&lines(&record), "world", 2, 2);
}

#[test]
fn tensor_groups_inside_hosts_and_data_groups_across_them_are_distinguished() {
    const SUITE_TEXT: &str = "name = \"axes\"\n[measure]\niterations = 5\nreplicates = 1\n[layout]\ntp = 2\n\
        [[sweep]]\ncollectives = \"all_reduce\"\nbytes = \"4KiB\"\naxis = \"tp\"\n\
        [[sweep]]\ncollectives = \"all_reduce\"\nbytes = \"4KiB\"\naxis = \"dp\"\n";
    let Some(cluster) = VirtualCluster::up_for_ranks("axes", 2, "1gbit", &[]) else { return };
    let folder = folder();
    let (suite, record) = (folder.path().join("axes.toml"), record_in(&folder));
    std::fs::write(&suite, SUITE_TEXT).unwrap();
    Ran::of(cluster.command(4, 2, SUITE).arg(&suite).arg("--record").arg(&record), 60).ended_with(0);
    assert_two_hosts_of_two_ranks(&lines(&record));
    assert_localities(&lines(&record), "tp", 1, 2);
    assert_localities(&lines(&record), "dp", 2, 1);
}

#[test]
fn a_ping_pong_between_hosts_finds_the_rate_of_the_link() {
    let Some(cluster) = VirtualCluster::up_for_ranks("rate", 2, "1gbit", &[]) else { return };
    // Of 1514 bytes of a packet that the shaper counts, TCP and IP leave 1448 for data: at most 0.1196 GB/s.
    let across =
        assert_found("between hosts", within_a_tenth(GIGABIT), || ping_pong(cluster.command(2, 1, SWEEP), GIGABIT));
    let inside = 5.0 * across..=f64::INFINITY;
    assert_found("inside a host", inside, || ping_pong(cluster.command(2, 2, SWEEP), GIGABIT));
}

#[test]
fn a_link_slowed_to_a_quarter_shows_and_the_others_keep_their_rate() {
    let Some(cluster) = VirtualCluster::up_for_ranks("slow-link", 3, "1gbit", &["0-1=250mbit"]) else { return };
    let expect = |what: &str, hosts: &str, rate: f64| {
        assert_found(what, within_a_tenth(rate), || ping_pong(cluster.one_rank_on_each(hosts, SWEEP), rate));
    };
    expect("the slow link", "host0,host1", GIGABIT / 4.0);
    expect("from its one end", "host0,host2", GIGABIT);
    expect("from its other end", "host2,host1", GIGABIT);
    cluster.link("0-1", "1gbit");
    expect("the link that was fixed", "host1,host0", GIGABIT);
}

#[test]
fn the_bound_of_a_machine_file_is_shown_and_not_exceeded() {
    let Some(cluster) = VirtualCluster::up_for_ranks("bound", 2, "1gbit", &[]) else { return };
    let flags = "-b 4M -e 4M --iters 6 --warmup_iters 1 --replicates 1 --cadence streaming \
        --machine suites/machines/two-hosts-1gbit.toml";
    for (ranks_per_host, collective) in [(1, "ping_pong"), (2, "all_reduce")] {
        let mut command = cluster.command(2 * ranks_per_host, ranks_per_host, SWEEP);
        for row in rows(command.arg(collective), flags, "verified") {
            let bound = row["bound_bytes_per_second"].as_f64().unwrap_or_else(|| panic!("no bound: {row}"));
            let share = bus_bandwidth(&row) / bound;
            eprintln!("{}: {:.4} of {:.4} GB/s", row["case"]["name"], bus_bandwidth(&row) / 1e9, bound / 1e9);
            assert!(share > 0.1 && share <= 1.0, "{row}");
        }
    }
}

#[test]
fn a_configuration_file_of_nccl_on_one_host_alone_is_refused() {
    let Some(cluster) = VirtualCluster::up_for_ranks("nccl-conf", 2, "1gbit", &[]) else { return };
    // The /tmp of each host is its own.
    Ran::of(cluster.on("host1", "sh").args(["-c", "echo NCCL_ALGO=Tree >/tmp/nccl.conf"]), 10).ended_with(0);
    let folder = folder();
    let mut command = cluster.command(2, 1, SWEEP);
    command.args(words("all_reduce -b 1K -e 1K -n 2 --record")).arg(record_in(&folder));
    let ran = Ran::of(command.env("NCCL_CONF_FILE", "/tmp/nccl.conf"), 60).ended_with(7);
    assert!(ran.stderr.contains("NCCL_ALGO"), "{}", ran.stderr);
}
