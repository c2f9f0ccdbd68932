//! `[[copy]]` on GPUs, on stand-ins for CUDA: every kind moves the right bytes, rates are by rank, and whatever cannot be or fails is named.
//! Needs the launcher of the MPI that was built with.

use crate::common;

use common::doubles::{with_doubles, with_nvml};
use common::{COMMGAUGE, Ran, SUITE, launcher, lines, of_kind};
use std::path::Path;
use std::process::Command;

/// A launch of copies on three ranks with a device each.
fn copies(folder: &Path, table: &str) -> Command {
    let suite = folder.join("copies.toml");
    let text = format!("name = 'copies'\n[measure]\ncase_budget = '1ms'\nreplicates = 2\n[[copy]]\n{table}\n");
    std::fs::write(&suite, text).unwrap();
    let mut command = launcher(3);
    command
        .arg(SUITE)
        .arg(&suite)
        .args(["--backend", "nccl", "--quiet", "--timeout", "20", "--record"])
        .arg(record_of(folder));
    with_doubles(&mut command, 3);
    command
}

fn record_of(folder: &Path) -> std::path::PathBuf {
    folder.join("run.jsonl")
}

#[test]
fn every_kind_of_copy_comes_out_right_alone_and_together_and_is_in_every_report() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_of(folder.path());
    Ran::of(&mut copies(folder.path(), "bytes = ['1003B', '1MiB']\nhost_memory = ['pinned', 'pageable']"), 60)
        .ended_with(0);
    let written = lines(&record);
    let measured = of_kind(&written, "copy");
    // To and from the host on two kinds of memory, both ways and by kernels on one, within, with all peers in four ways, and to, from and both
    // ways with two peers by engines and kernels; in two sizes, alone and together, twice. Latencies have one size.
    assert_eq!(measured.len(), ((2 * 2 + 1 + 3 + 1 + 2 * 4 + 2 * (5 + 4)) * 2 + 1 + 2) * 2 * 2);
    for line in &measured {
        assert_eq!(line["outcome"]["verified"], true, "{line}");
        let of_rank = line["median_nanoseconds"].as_array().unwrap();
        assert!(of_rank.len() == 3 && of_rank.iter().all(|time| time.as_u64() > Some(0)), "{line}");
        let is_latency = line["copy"]["kind"].as_str().unwrap().ends_with("_latency_sm");
        assert_eq!((line["copies_per_sample"] == 4096, line["copy"]["bytes"] == 8), (is_latency, is_latency), "{line}");
        assert!(is_latency || line["copies_per_sample"] == 16, "{line}");
    }
    assert_eq!(of_kind(&written, "plan")[0]["product_lines"], measured.len());
    assert_eq!(of_kind(&written, "end")[0]["exit_code"], 0);
    for (format, words) in [
        ("table", "peer-both-ways"),
        ("table", "146 copies: 146 synthetic"),
        ("json", "\"seconds_median_of_rank\""),
        ("json", "\"nvbandwidth\": \"all_to_one_read_ce\""),
        ("markdown", "host-to-device"),
        ("json", "\"nvbandwidth\": \"device_to_device_latency_sm\""),
        ("json", "\"nvbandwidth\": \"all_to_one_write_sm\""),
        ("markdown", "host\\_to\\_all\\_memcpy\\_ce"),
    ] {
        let mut report = Command::new(COMMGAUGE);
        report.env("NO_COLOR", "1").arg("report").arg(&record).args(["--format", format]);
        let ran = Ran::of(&mut report, 60).ended_with(0);
        assert!(ran.stdout.contains(words), "{format}: {}", ran.stdout);
    }
    let page = folder.path().join("page.html");
    let mut report = Command::new(COMMGAUGE);
    Ran::of(report.arg("report").arg(&record).arg("-o").arg(&page), 60).ended_with(0);
    assert!(std::fs::read_to_string(&page).unwrap().contains("Copies between hosts and GPUs"));
}

#[test]
fn what_cannot_be_copied_is_skipped_with_its_reason_and_the_rest_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_of(folder.path());
    // Of a device of 272 MiB, 256 stay free; and each rank sees its own device alone.
    let table = "kinds = ['host-to-device', 'within-device', 'to-peer']\nbytes = ['1KiB', '10MiB']\neach = 'together'";
    let suite = folder.path().join("copies.toml");
    copies(folder.path(), table);
    let mut command = launcher(2);
    let shown = r#"CUDA_VISIBLE_DEVICES=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:?}} exec "$@""#;
    command
        .args(["sh", "-c", shown, "sh", SUITE])
        .arg(&suite)
        .args(["--backend", "nccl", "--quiet", "--record"])
        .arg(&record);
    Ran::of(with_doubles(&mut command, 2).env("COMMGAUGE_DOUBLE_MEMORY", "285212672"), 60).ended_with(0);
    let written = lines(&record);
    for line in of_kind(&written, "copy") {
        let (kind, bytes) = (line["copy"]["kind"].as_str().unwrap(), line["copy"]["bytes"].as_u64().unwrap());
        let reason = line["outcome"]["reason"].as_str().unwrap_or_default();
        let wanted = match (kind, bytes) {
            ("to_peer", _) => "to rank 1: this process does not see the other GPU (GPU-",
            ("within_device", 1024) | ("host_to_device", _) => "",
            _ => "needs 20 MiB of device memory, ",
        };
        assert!(reason.contains(wanted) && (wanted.is_empty() == reason.is_empty()), "{line}");
    }
}

#[test]
fn with_all_peers_a_rank_without_a_way_to_one_of_them_skips_the_copy_and_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let table = "kinds = ['to-all-peers', 'all-peers-from-one', 'host-latency-sm']\nbytes = '1KiB'\neach = 'alone'";
    // Two of three ranks share a device.
    let mut command = copies(folder.path(), table);
    Ran::of(with_doubles(command.arg("--share-gpu"), 2), 60).ended_with(0);
    let written = lines(&record_of(folder.path()));
    let measured = of_kind(&written, "copy");
    assert_eq!(measured.len(), 3 * 2);
    for line in measured {
        let reason = line["outcome"]["reason"].as_str().unwrap_or_default();
        match line["copy"]["kind"].as_str().unwrap() {
            "host_latency_sm" => assert_eq!(line["outcome"]["verified"], true, "{line}"),
            _ => assert!(reason.contains("both ranks are on one GPU"), "{line}"),
        }
    }
}

/// A false tree of `nodes` NUMA nodes, of which node 0 is real, with all GPUs near to node `near`.
fn false_nodes(sysfs: &Path, nodes: u32, near: i32) {
    let write = |file: String, text: &str| {
        let file = sysfs.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    let all = (0..nodes).map(|node| node.to_string()).collect::<Vec<_>>().join(",");
    for list in ["online", "has_cpu", "has_memory"] {
        write(format!("node/{list}"), &all);
    }
    let processors = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    for node in 0..nodes {
        let distances = (0..nodes).map(|other| (10 + 10 * node.abs_diff(other)).to_string()).collect::<Vec<_>>();
        write(format!("node/node{node}/cpulist"), &processors);
        write(format!("node/node{node}/distance"), &distances.join(" "));
    }
    for bus in 0..=255 {
        write(format!("devices/0000:{bus:02x}:00.0/numa_node"), &near.to_string());
    }
}

/// The record of copies with far memory on such a host, and its report; `None` where this machine cannot show processes another tree.
fn far_copies(folder: &Path, nodes: u32, near: i32) -> Option<(Vec<serde_json::Value>, String)> {
    let sysfs = folder.join("sysfs");
    false_nodes(&sysfs, nodes, near);
    let shows = r#"mount --bind "$0/node" /sys/devices/system/node && mount --bind "$0/devices" /sys/bus/pci/devices"#;
    let showing = |script: String| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c"]).arg(script).arg(&sysfs);
        command
    };
    if !showing(shows.to_owned()).status().is_ok_and(|ended| ended.success()) {
        common::skipped("copies with far memory", "no mount namespace can be made");
        return None;
    }
    let table = "kinds = ['host-to-device', 'host-both-ways-sm', 'within-device']\nbytes = ['1KiB', '1MiB']\neach = 'alone'\n\
                 host_memory = ['pinned', 'pinned_far', 'pageable_far']";
    let mut launched = copies(folder, table);
    with_nvml(&mut launched, "clock=1000");
    let mut command = showing(format!("{shows} && exec \"$@\""));
    command.arg(launched.get_program()).args(launched.get_args()).current_dir(env!("CARGO_MANIFEST_DIR"));
    command.envs(launched.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Ran::of(&mut command, 60);
    let mut report = Command::new(COMMGAUGE);
    report.env("NO_COLOR", "1").arg("report").arg(record_of(folder)).args(["--format", "markdown"]);
    Some((lines(&record_of(folder)), Ran::of(&mut report, 60).stdout))
}

#[test]
fn on_host_memory_and_in_simulations_copies_are_skipped_by_name() {
    let folder = tempfile::tempdir().unwrap();
    copies(folder.path(), "bytes = '1KiB'\nkinds = 'host-to-device'\neach = 'alone'");
    let record = record_of(folder.path());
    let mut run = Command::new(COMMGAUGE);
    run.current_dir(env!("CARGO_MANIFEST_DIR")).arg("run").arg(folder.path().join("copies.toml"));
    run.args(["--backend", "simulated", "--machine", "two-hosts-1gbit", "-n", "4", "--record"]).arg(&record);
    Ran::of(&mut run, 60).ended_with(7);
    let written = lines(&record);
    let skipped = of_kind(&written, "copy");
    assert!(!skipped.is_empty());
    for line in skipped {
        let reason = line["outcome"]["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("copies between hosts and GPUs need --backend nccl"), "{line}");
    }
}

fn is_far(line: &serde_json::Value) -> bool {
    line["copy"]["host_memory"].as_str().is_some_and(|memory| memory.ends_with("_far"))
}

#[test]
fn far_memory_is_on_the_node_farthest_from_the_gpu_and_near_memory_is_measured_too() {
    let folder = tempfile::tempdir().unwrap();
    // Node 0, the real one, is the farthest from node 2.
    let Some((written, report)) = far_copies(folder.path(), 3, 2) else { return };
    let devices = &of_kind(&written, "devices")[0]["devices"];
    assert_eq!((&devices[0]["numa_node"], &devices[0]["far_numa_node"]), (&2.into(), &0.into()), "{devices}");
    let lines = of_kind(&written, "copy");
    assert_eq!(report.matches("host-to-device, far NUMA node | ").count(), 2 * 2, "{report}");
    // Pinned and far memory one way and both ways, pageable far memory one way, and within the device.
    assert_eq!(lines.len(), (2 + 2 + 1 + 1) * 2 * 2);
    assert_eq!(lines.iter().filter(|line| is_far(line)).count(), 3 * 2 * 2);
    for line in lines {
        assert_eq!(line["outcome"]["verified"], true, "{line}");
    }
}

#[test]
fn far_memory_that_cannot_be_had_is_never_replaced_by_near_memory() {
    for (nodes, near, status, reason) in [
        (1, 0, "skipped", "the host has one NUMA node, so none is far"),
        (2, -1, "skipped", "the system does not say which NUMA node is near to 0000:"),
        // Node 1 has no memory of its own, so that the system takes that of node 0.
        (2, 0, "failed", "NUMA node 1 has 0 B of a buffer of "),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let Some((written, report)) = far_copies(folder.path(), nodes, near) else { return };
        // Once in the table, and "as above" for the rest.
        let said = if status == "skipped" { 1 } else { 6 };
        assert_eq!(report.matches(reason).count(), said, "{report}");
        assert_eq!(report.matches("skipped, as above").count(), 6 - said, "{report}");
        for line in of_kind(&written, "copy") {
            let (outcome, found) = (&line["outcome"], line["outcome"]["reason"].as_str().unwrap_or_default());
            let wanted = if is_far(line) { (status, reason) } else { ("measured", "") };
            assert!(outcome["status"] == wanted.0 && found.contains(wanted.1), "{line}");
        }
    }
}
