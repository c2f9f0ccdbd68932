//! What people expect of a tool for NCCL: times as nccl-tests takes them, policies and switches of NCCL, several unique ids, and a library
//! that is found where it is installed. Between real ranks on stand-ins for CUDA and NCCL. Needs the launcher of the MPI that was built with.

use crate::common;

use common::doubles::{folder, with_doubles, with_nccl};
use common::{COMMGAUGE, Ran, SWEEP, launcher, lines, of_kind, record_in, words};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const QUICKLY: &str = "-n 2 -w 0 --replicates 1 --cadence streaming --warm-buffers";

fn nccl(ranks: u32, flags: &str, record: &Path) -> Command {
    let mut command = launcher(ranks);
    command.arg(SWEEP).args(words(flags)).args(["--backend", "nccl", "--quiet", "--record"]).arg(record);
    with_doubles(&mut command, ranks);
    command
}

#[test]
fn like_nccl_tests_times_all_calls_of_a_size_at_once_and_walks_through_the_buffers_of_the_largest() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    Ran::of(&mut nccl(2, "all_reduce -b 1K -e 16K -f 4 --like nccl-tests", &record), 60).ended_with(0);
    let lines = lines(&record);
    assert_eq!(lines[0]["settings"]["timing"], "whole");
    let plan = of_kind(&lines, "plan")[0]["cases"].as_array().unwrap().clone();
    let cases = of_kind(&lines, "case");
    assert_eq!(cases.len(), 6);
    for case in cases {
        let facts = &plan[case["case"].as_u64().unwrap() as usize];
        let bytes = facts["bytes_total"].as_u64().unwrap();
        assert_eq!((&case["calls_per_sample"], &case["outcome"]["verified"]), (&20.into(), &true.into()), "{case}");
        assert_eq!(case["samples"]["slowest_nanoseconds"].as_array().unwrap().len(), 1, "{case}");
        assert_eq!(case["buffer_copies"], 16_384 / bytes, "{case}");
    }
    let environment = &lines[0]["environment"];
    assert_eq!(environment["NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE"], "1");
    assert!(environment["NCCL_P2P_MAX_PEERS"].is_null(), "its all_reduce leaves that to NCCL: {environment}");
    // Its columns have the mean over the ranks.
    let output = Command::new(COMMGAUGE).args(["report", "--format", "nccl-tests"]).arg(&record).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = shown.lines().find(|line| line.trim_start().starts_with("16384 ")).unwrap_or_else(|| panic!("{shown}"));
    let words: Vec<&str> = row.split_whitespace().collect();
    let [out_of_place, in_place] = [5, 9].map(|column| words[column].parse::<f64>().unwrap());
    for (time, placement) in [(out_of_place, "out_of_place"), (in_place, "in_place")] {
        let of_case = |case: &&&Value| {
            let facts = &plan[case["case"].as_u64().unwrap() as usize];
            facts["bytes_total"] == 16_384 && facts["placement"] == placement
        };
        let cases = of_kind(&lines, "case");
        let slowest = cases.iter().find(of_case).unwrap()["samples"]["slowest_nanoseconds"][0].as_f64().unwrap() / 20e3;
        assert!(time > 0.0 && time <= slowest * 1.01, "{row}: the slowest rank took {slowest}");
    }
}

/// nccl-tests has buffers of ncclMemAlloc since its `-R`, where NCCL has it. Rows keep their names, so that its own figures in machine files and
/// its logs meet them.
#[test]
fn like_nccl_tests_allocates_and_sends_as_nccl_tests_does_with_each_version_and_labels_no_row() {
    for (version, is_there) in [("2.30.7", true), ("2.18.5", false)] {
        let folder = tempfile::tempdir().unwrap();
        let record = record_in(&folder);
        let mut command = nccl(2, "send_recv -b 1K -e 1K --placement out --like nccl-tests", &record);
        Ran::of(with_nccl(&mut command, 2, version), 60).ended_with(0);
        let lines = lines(&record);
        let header = &lines[0];
        assert_eq!(header["environment"]["NCCL_P2P_MAX_PEERS"], "2", "{version}");
        assert_eq!(
            header["backend"]["notes"].to_string().contains("buffers are of ncclMemAlloc"),
            is_there,
            "{header}"
        );
        let plan = of_kind(&lines, "plan")[0];
        assert!(plan["cases"][0]["labels"].is_null(), "{plan}");
        assert_eq!(of_kind(&lines, "case")[0]["outcome"]["verified"], true, "{version}");
    }
}

#[test]
fn policies_and_switches_of_nccl_are_variables_and_labels_and_copy_engines_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let flags = format!(
        "all_gather all_reduce -b 1K -e 1K --placement out --buffers symmetric --cta-policy zero --nvls off --gpudirect on \
         --record-algorithm {QUICKLY}"
    );
    Ran::of(&mut nccl(2, &flags, &record), 60).ended_with(0);
    let lines = lines(&record);
    let environment = &lines[0]["environment"];
    for (variable, value) in [("NCCL_CTA_POLICY", "2"), ("NCCL_NVLS_ENABLE", "0"), ("NCCL_NET_GDR_LEVEL", "SYS")] {
        assert_eq!(environment[variable], value, "{environment}");
    }
    let plan = of_kind(&lines, "plan")[0]["cases"].as_array().unwrap().clone();
    for case in of_kind(&lines, "case") {
        let facts = &plan[case["case"].as_u64().unwrap() as usize];
        let labels = ["cta_policy", "nvls", "gpudirect"].map(|name| facts["labels"][name].as_str().unwrap_or_default());
        assert_eq!(labels, ["zero", "off", "on"]);
        let expected = if facts["collective"] == "all_gather" { "copy-engine" } else { "tree" };
        assert_eq!(case["library_choice"]["algorithm"], expected, "{case}");
    }
    let sweep = |flags: &str| format!("all_reduce -b 1K -e 1K {flags} {QUICKLY}");
    let mut command = nccl(2, &sweep("-x 2"), &folder.path().join("old.jsonl"));
    Ran::of(with_nccl(&mut command, 2, "2.27.3"), 60)
        .ended_with(2)
        .printed_error("--cta-policy needs NCCL 2.28 (NCCL_CTA_POLICY=2), found 2.27.3");
    let mut command = nccl(2, &sweep("--nvls on"), &folder.path().join("set.jsonl"));
    Ran::of(command.env("NCCL_NVLS_ENABLE", "0"), 60)
        .ended_with(2)
        .printed_error("--nvls requests 1, the environment NCCL_NVLS_ENABLE=0");
}

#[test]
fn a_large_world_is_connected_by_several_ids_where_nccl_takes_them() {
    let folder = tempfile::tempdir().unwrap();
    for (version, ranks_per_id, fault, said) in [
        ("2.30.7", 1, "", ""),
        ("2.30.7", 2, "init_error rank=1 communicator=1", "ncclCommInitRankScalable failed with ncclSystemError"),
        ("2.30.7", 3, "init_error rank=1 communicator=1", "ncclCommInitRankConfig failed with ncclSystemError"),
        ("2.20.5", 1, "", ""),
    ] {
        let record = folder.path().join(format!("{version}-{ranks_per_id}.jsonl"));
        let flags = format!("all_reduce -b 1K -e 1K --placement out --ranks-per-id {ranks_per_id} {QUICKLY}");
        let mut command = nccl(3, &flags, &record);
        with_nccl(&mut command, 3, version).env("COMMGAUGE_DOUBLE_FAULTS", fault);
        let ran = Ran::of(&mut command, 60);
        if fault.is_empty() {
            ran.ended_with(0);
            assert_eq!(of_kind(&lines(&record), "case")[0]["outcome"]["verified"], true, "{version}");
        } else {
            ran.ended_with(6).printed_error(said);
        }
    }
}

#[test]
fn the_nccl_of_the_active_python_environment_is_found_and_the_doctor_says_why() {
    let environment = tempfile::tempdir().unwrap();
    let (path, packages) =
        (environment.path().join("driver"), environment.path().join("lib/python3.12/site-packages/nvidia/nccl/lib"));
    for folder in [&path, &packages] {
        std::fs::create_dir_all(folder).unwrap();
    }
    std::os::unix::fs::symlink(folder().join("libcuda.so.1"), path.join("libcuda.so.1")).unwrap();
    std::os::unix::fs::symlink(folder().join("libnccl.so.2"), packages.join("libnccl.so.2")).unwrap();
    let mut paths = vec![path];
    paths.extend(std::env::split_paths(&std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default()));
    let paths = std::env::join_paths(paths).unwrap();
    let doctor = |variable: Option<&Path>| {
        let mut command = Command::new(COMMGAUGE);
        command.args(["doctor", "--backend", "nccl", "--width", "400"]).env("LD_LIBRARY_PATH", &paths);
        command.env_remove("VIRTUAL_ENV").env_remove("CONDA_PREFIX").env("HOME", "/nowhere").env("NO_COLOR", "1");
        variable.map(|variable| command.env("VIRTUAL_ENV", variable));
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let without = doctor(None);
    if !without.contains("NCCL cannot be loaded") {
        return common::skipped("nccl", "this host has an NCCL of its own");
    }
    let found = doctor(Some(environment.path()));
    let why = format!("from the active environment {} (VIRTUAL_ENV)", environment.path().display());
    assert!(found.contains(&why) && found.contains("NCCL 2.30.7"), "{found}");
    let record = environment.path().join("a.jsonl");
    let mut command = nccl(1, &format!("all_reduce -b 1K -e 1K --expect-ranks 1 {QUICKLY}"), &record);
    command.env("LD_LIBRARY_PATH", &paths).env("VIRTUAL_ENV", environment.path());
    Ran::of(&mut command, 60).ended_with(0);
    let library = lines(&record)[0]["backend"]["library"].to_string();
    assert!(library.contains("NCCL 2.30.7"), "{library}");
    assert!(of_kind(&lines(&record), "case").iter().all(|case: &&Value| case["outcome"]["status"] == "measured"));
}
