//! `commgauge-pairs` under a real launcher: every pair once, and on hosts with a slow link exactly that pair.

use crate::common;

use common::{COMMGAUGE, PAIRS, Ran, alone, hosts::VirtualCluster, launcher, lines, of_kind, record_in, words};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The report of a record as JSON.
fn report(record: &Path) -> Value {
    let ran = Ran::of(Command::new(COMMGAUGE).arg("report").arg(record).args(["--format", "json"]), 20);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {}{}", ran.stdout, ran.stderr))
}

fn ranks_of(pair: &Value) -> (u64, u64) {
    (pair["rank_a"].as_u64().unwrap(), pair["rank_b"].as_u64().unwrap())
}

fn all_pairs(ranks: u64) -> BTreeSet<(u64, u64)> {
    (0..ranks).flat_map(|a| (a + 1..ranks).map(move |b| (a, b))).collect()
}

#[test]
fn a_single_rank_and_senseless_messages_are_refused() {
    for (ranks, flags, expected) in [
        (1, "--expect-ranks 1", "a pair needs two ranks; this launch has 1"),
        (2, "--bandwidth-bytes 4", "--latency-bytes 8 is not below --bandwidth-bytes 4"),
        (2, "--rank-stride 2", "--rank-stride 2 leaves one of 2 ranks"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let record = record_in(&folder);
        let mut command = launcher(ranks);
        command.arg(PAIRS).arg("--record").arg(&record).args(words(flags));
        Ran::of(&mut command, 20).ended_with(2).printed_error(expected);
        assert!(!record.exists(), "{flags}: nothing was measured, so there is no record");
    }
}

#[test]
fn every_pair_of_two_three_and_four_ranks_is_measured_with_verified_data() {
    for (ranks, more) in [(2u64, ""), (3, ""), (4, ""), (4, " --one-at-a-time")] {
        let folder = tempfile::tempdir().unwrap();
        let record = record_in(&folder);
        let mut command = launcher(ranks as u32);
        command.arg(PAIRS).arg("--record").arg(&record);
        command.args(words(&format!("--bandwidth-bytes 64K -n 20 -w 2 --replicates 2 --warm-buffers{more}")));
        let ran = Ran::alone(&mut command, 30).ended_with(0);
        let pairs = ranks * (ranks - 1) / 2;
        assert!(ran.stdout.contains(&format!("{pairs} of {pairs} pairs of {ranks} ranks on 1 host")), "{}", ran.stdout);
        assert!(ran.stdout.contains("verified"), "{}", ran.stdout);

        let report = report(&record);
        let found = report["pairs"]["pairs"].as_array().unwrap();
        assert_eq!(found.len() as u64, pairs);
        assert_eq!(found.iter().map(ranks_of).collect::<BTreeSet<_>>(), all_pairs(ranks));
        for pair in found {
            assert_eq!(pair["locality"], "same_host");
            let latency = pair["latency_seconds"].as_f64().unwrap();
            assert!(latency > 1e-8 && latency < 0.05, "{pair}");
            for rate in ["bandwidth_bytes_per_second", "bidirectional_bandwidth_bytes_per_second"] {
                assert!(pair[rate].as_f64().unwrap() > 1e6, "{rate}: {pair}");
            }
            // Three measures, two replicates, 20 calls each, of which several may make a sample.
            assert_eq!(pair["replicates"], 2);
            assert!((6..=120).contains(&pair["samples"].as_u64().unwrap()), "{pair}");
        }
        for case in of_kind(&lines(&record), "case") {
            let at_once = if more.is_empty() { ranks / 2 } else { 1 };
            assert_eq!(case["pairs"]["rank_a"].as_array().unwrap().len() as u64, at_once);
            assert_eq!(case["histograms"].as_array().unwrap().len(), 0, "the pairs have them");
        }
    }
}

#[test]
fn commgauge_run_starts_it_and_hands_on_its_flags() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let mut command = Command::new(COMMGAUGE);
    command.env("NO_COLOR", "1").args(["run", "--pairs", "-n", "3", "--format", "csv", "--record"]).arg(&record);
    command.args(words("-- --bandwidth-bytes 64K -n 10 -w 1 --replicates 1 --warm-buffers"));
    let ran = Ran::of(&mut command, 30).ended_with(0);
    let rows: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(rows.len(), 1 + 3, "{}", ran.stdout);
    assert!(rows[0].starts_with("rank_a,rank_b,host_a,host_b,locality,latency_seconds,"), "{}", rows[0]);
    assert!(rows[3].starts_with("1,2,"), "{}", rows[3]);
}

#[test]
fn four_hosts_with_one_link_at_a_quarter_show_exactly_that_pair() {
    let Some(cluster) = VirtualCluster::up_for_ranks("pairs", 4, "200mbit", &["1-3=50mbit"]) else { return };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    common::in_three_attempts(|attempt| slow_link_is_found(&cluster, &folder.path().join(format!("{attempt}.jsonl"))));
}

/// What is wrong with what was found: other work on the machine can slow a link for a while. The link's rate bounds the bandwidth one
/// way; the latency of 8 bytes, and both ways at once, depend on when each rank gets a core.
fn slow_link_is_found(cluster: &VirtualCluster, record: &Path) -> Result<(), String> {
    let mut command = cluster.command(4, 1, PAIRS);
    command
        .arg("--record")
        .arg(record)
        .args(words("--bandwidth-bytes 512K -n 6 -w 1 --replicates 2 --warm-buffers --quiet"));
    {
        let _alone = alone();
        let output = command.output().expect("bash is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let report = report(record);
    let pairs = &report["pairs"];
    let slow = pairs["slow"].as_array().unwrap().iter().filter(|pair| pair["measure"] == "bandwidth");
    let slow: BTreeSet<(u64, u64)> = slow.map(ranks_of).collect();
    if slow != BTreeSet::from([(1, 3)]) {
        return Err(format!("{slow:?}: {pairs:#}"));
    }
    for pair in pairs["pairs"].as_array().unwrap() {
        assert_eq!(pair["locality"], "different_hosts");
        let percent = pair["bandwidth_percent_of_locality_median"].as_f64().unwrap();
        let expected = if ranks_of(pair) == (1, 3) { 18.0..35.0 } else { 70.0..130.0 };
        if !expected.contains(&percent) {
            return Err(format!("{pair:#}"));
        }
    }
    let finding =
        report["findings"].as_array().unwrap().iter().find(|text| text.as_str().unwrap().contains("ranks 1 and 3"));
    assert!(finding.is_some_and(|text| text.as_str().unwrap().contains("on host1 and host3")), "{report:#}");
    Ok(())
}
