//! Pairs measure their link and not the channels that NCCL leaves them, which are fewer the more ranks there are. On stand-ins whose messages
//! are as slow as their links and channels make them, on hosts that are names on this machine. Messages take at least the time that these
//! allow, and longer where other work keeps the processors.

use crate::common;

use common::doubles::{NCCL_VERSION, with_nccl};
use common::{PAIRS, Ran, launcher, lines, of_kind, record_in, skipped, words};
use serde_json::Value;
use std::process::Command;

/// 400 Gbit/s are played as 4 MB/s: 64 KiB take 16 ms, far longer than a machine needs to move them.
const LINK_BYTES_PER_SECOND: f64 = 4e6;

/// World ranks of a pair, and the bytes per second one way.
type Rate = ([u64; 2], f64);

/// Bytes per second of every pair one way by messages of this size, on this many hosts of `per_host` ranks, and the channels that the record names; `None` where hosts
/// cannot be named.
fn measured(bytes: &str, [hosts, per_host]: [u32; 2], version: &str, fault: &str) -> Option<(Vec<Rate>, Value)> {
    if !Command::new("unshare").args(["--uts", "true"]).status().is_ok_and(|status| status.success()) {
        skipped("pairs on several hosts", "this user may not make host names of its own");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let host = format!(
        r#"rank=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}; exec unshare --uts sh -c 'hostname "$0"; exec "$@"' host$((rank / {per_host})) "$@""#
    );
    let mut command = launcher(hosts * per_host);
    command
        .args(["sh", "-c", &host, "sh", PAIRS])
        .args(words("--backend nccl --replicates 1 -n 2 -w 1 --timeout 60 --format json"));
    command.args(["--bandwidth-bytes", bytes, "--record"]);
    with_nccl(command.arg(&record), per_host, version)
        .env("COMMGAUGE_DOUBLE_NETWORK", LINK_BYTES_PER_SECOND.to_string())
        .env("COMMGAUGE_DOUBLE_RANKS", "256")
        .env("COMMGAUGE_DOUBLE_FAULTS", fault);
    let ran = Ran::of(&mut command, 180).ended_with(0);
    let answer: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {}", ran.stdout));
    let pair = |pair: &Value| {
        let rank = |end| pair[end].as_u64().unwrap();
        ([rank("rank_a"), rank("rank_b")], pair["bandwidth_bytes_per_second"].as_f64().unwrap())
    };
    let rates = answer["pairs"]["pairs"].as_array().unwrap().iter().map(pair).collect();
    Some((rates, of_kind(&lines(&record), "header")[0]["backend"]["pair_channels"].clone()))
}

#[test]
fn a_link_at_half_its_rate_is_slow_and_the_others_are_as_fast_as_their_adapters_at_any_scale() {
    for version in [NCCL_VERSION, "2.27.3"] {
        let Some((rates, channels)) = measured("64KiB", [4, 1], version, "slow_link rank=1 peer=3") else { return };
        assert_eq!((rates.len(), channels.as_u64()), (6, Some(8)), "{version}");
        let fastest = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let (_, slow) = rates.iter().find(|(ranks, _)| *ranks == [1, 3]).unwrap();
        // One channel, which is what NCCL leaves a pair of 256 ranks, carries 14 of 50 GB/s.
        assert!(fastest > 0.6 * LINK_BYTES_PER_SECOND, "{version}: {rates:?}");
        assert!(*slow <= 0.5 * LINK_BYTES_PER_SECOND, "{version}: {rates:?}");
    }
}

#[test]
fn a_gpu_with_half_its_nvlinks_is_slow_within_its_host_although_other_hosts_are_there() {
    let Some((rates, _)) = measured("256KiB", [2, 3], NCCL_VERSION, "slow_nvlink rank=4") else { return };
    let within = |of: &dyn Fn(&[u64; 2]) -> bool| {
        let inside = rates.iter().filter(|(ranks, _)| ranks[0] / 3 == ranks[1] / 3 && of(ranks));
        inside.map(|(_, rate)| *rate).fold(0.0, f64::max) / LINK_BYTES_PER_SECOND
    };
    let (slow, others) = (within(&|ranks| ranks.contains(&4)), within(&|ranks| !ranks.contains(&4)));
    // Nine links and half of that; eight channels, which is what pairs between hosts have, carry 3.2 links.
    assert!(slow <= 4.5 && others > 5.0, "{slow} and {others} links: {rates:?}");
}
