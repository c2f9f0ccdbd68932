//! What NVML tells of the devices while cases are measured: in the record, in verdicts, and at little cost.

use crate::common;

use common::doubles::{with_doubles, with_nvml, with_old_nvml};
use common::{COMMGAUGE, Ran, SWEEP, launcher, lines, of_kind, record_in, words};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A sweep of two ranks into a record, on devices as they are made by `nvml`.
fn sweep_into(record: &Path, flags: &str, nvml: impl Fn(&mut Command)) -> Vec<Value> {
    let mut command = launcher(2);
    command.arg(SWEEP).args(words(&format!("all_reduce --backend nccl --quiet {flags} --record"))).arg(record);
    with_doubles(&mut command, 2);
    nvml(&mut command);
    Ran::of(&mut command, 60).ended_with(0);
    lines(record)
}

/// By how much a counter rose, or how high it was, summed or the highest over the blocks.
fn told(lines: &[Value], of: &str, counter: &str) -> Vec<u64> {
    let blocks = of_kind(lines, "counters").into_iter().flat_map(|line| line["blocks"].as_array().unwrap().clone());
    blocks.filter_map(|block| block[of][counter].as_u64()).collect()
}

const SMALL: &str = "-b 1K -e 1K -n 2";

#[test]
fn errors_states_and_xids_of_devices_are_in_the_record_with_the_device_as_nvidia_smi_numbers_it() {
    let folder = tempfile::tempdir().unwrap();
    let answers = "4@1=7+1; 144@1=1; 161@0=1+1; down@1=5; xid@0=79; health@0=341; throttled@1=4";
    let lines = sweep_into(&record_in(&folder), SMALL, |command| {
        with_nvml(command, answers);
    });
    let total = |of: &str, counter: &str| told(&lines, of, counter).iter().sum::<u64>();
    let readings = total("errors", "ecc_uncorrected of GPU 1");
    assert!(readings >= 1, "it rises with every reading");
    assert_eq!(total("errors", "nvlink_replays of GPU 0") % 18, 0, "of all NVLinks");
    assert!(total("errors", "nvlink_replays of GPU 0") > 0);
    assert_eq!(total("errors", "nvlinks_down of GPU 1"), 1, "once, as it stays down");
    assert_eq!(total("errors", "xid 79 of GPU 0"), 1);
    assert!(told(&lines, "levels", "row_remap_pending of GPU 1").iter().all(|level| *level == 1));
    assert!(!told(&lines, "levels", "row_remap_pending of GPU 1").is_empty());
    assert!(!told(&lines, "levels", "fabric_unhealthy of GPU 0").is_empty(), "health says so");
    assert!(told(&lines, "levels", "fabric_unhealthy of GPU 1").is_empty());
    let names = of_kind(&lines, "counters").last().unwrap()["on_all_hosts"].to_string();
    for name in ["ecc_uncorrected", "row_remap_failed", "nvlink_crc_errors", "xid", "fabric_unhealthy", "nvlinks_down"]
    {
        assert!(names.contains(&format!("\"{name}\"")), "{name}: {names}");
    }
    assert!(!names.contains("nvlink_effective_errors"), "a field of other devices: {names}");
    let readings = of_kind(&lines, "device_readings")[0].clone();
    assert_eq!(readings["changes"], json!([{"rank": 1, "what": "throttled by power cap"}]), "{readings}");
}

#[test]
fn a_machine_file_refuses_a_faulty_device_and_one_whose_nvml_cannot_tell() {
    let folder = tempfile::tempdir().unwrap();
    let judged = |record: &Path, limit: &str| {
        let machine = folder.path().join("m.toml");
        let text =
            fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/machines/h100-nvswitch-ndr.toml")).unwrap();
        fs::write(&machine, format!("{text}\n[counters]\n{limit}\n")).unwrap();
        let output = Command::new(COMMGAUGE).arg("judge").arg(record).arg("--machine").arg(&machine).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let faulty = folder.path().join("faulty.jsonl");
    sweep_into(&faulty, SMALL, |command| {
        with_nvml(command, "145@0=1");
    });
    let said = judged(&faulty, "row_remap_failed = 0");
    assert!(said.contains("row_remap_failed while cases were measured, more than 0"), "{said}");
    let old = folder.path().join("old.jsonl");
    let lines = sweep_into(&old, SMALL, |command| {
        with_old_nvml(command);
    });
    assert_eq!(of_kind(&lines, "devices")[0]["source"], "NVML 12.570.0 (double)", "the rest is told");
    let said = judged(&old, "row_remap_failed = 0");
    assert!(said.contains("row_remap_failed was not read on every host"), "{said}");
    let said = judged(&old, "nvlinks_down = 0");
    assert!(!said.contains("was not read"), "an old NVML knows its links: {said}");
    let said = judged(&old, "row_remap_lost = 0");
    assert!(said.contains("found the counter `row_remap_lost`; accepted: "), "{said}");
    let said = judged(&old, "cpu_pressure = 5");
    assert!(said.contains("found `cpu_pressure = 5`; less than 10 is not recorded"), "{said}");
}

#[test]
fn counters_of_devices_are_read_for_blocks_of_cases_where_nvml_is_slow() {
    let folder = tempfile::tempdir().unwrap();
    let calls = folder.path().join("calls");
    let record = record_in(&folder);
    let slow = |command: &mut Command| {
        with_nvml(command, "")
            .env("COMMGAUGE_DOUBLE_NVML_MICROSECONDS", "200")
            .env("COMMGAUGE_DOUBLE_NVML_CALLS", &calls);
    };
    let lines = sweep_into(&record, "-b 1K -e 512K -f 2 -n 20 --replicates 3", slow);
    let cases = of_kind(&lines, "case").len() as u64;
    let counts: Vec<u64> = fs::read_to_string(&calls).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(counts.len(), 2, "a line of each rank");
    // Twice a case: the handle, two clocks, power, temperature and the reasons for throttling. Then the beginning and some blocks.
    let most = counts.iter().max().unwrap();
    assert!(*most < 12 * cases + 400, "{most} calls for {cases} cases");
}

#[test]
fn the_launch_check_names_an_ill_fabric_and_cliques_of_a_host_before_anything_runs() {
    let checked = |answers: &str| {
        let mut command = launcher(2);
        command.arg(SWEEP).args(words("all_reduce --backend nccl --check-launch"));
        with_doubles(&mut command, 2);
        with_nvml(&mut command, answers);
        let ran = Ran::of(&mut command, 60).ended_with(0);
        ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let said = checked("health@1=1");
    assert!(said.contains("the GPUs of rank 1 are no healthy members of their NVLink fabric"), "{said}");
    let said = checked("fabric@0=2");
    assert!(said.contains("the GPUs of rank 0 are no healthy members"), "in progress: {said}");
    let said = checked("clique@1=2");
    assert!(said.contains("are not all in one NVLink clique"), "{said}");
    let said = checked("");
    assert!(!said.contains("NVLink"), "{said}");
}
