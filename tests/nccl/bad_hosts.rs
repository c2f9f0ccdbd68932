//! Hosts on which GPUs or NCCL cannot be used as they are: what is found is said in one line with rank, host, device and fix, before anything
//! is timed. Needs the launcher of the MPI that was built with, and cc.

use crate::common;

use common::doubles::{NCCL_VERSION, with_doubles, with_nccl};
use common::{COMMGAUGE, Ran, SWEEP, launcher, lines, of_kind, record_in, words};
use std::path::{Path, PathBuf};
use std::process::Command;

const SMALL: &str =
    "all_reduce -b 1K -e 1K -n 2 -w 0 --replicates 1 --cadence streaming --warm-buffers --placement out --timeout 20";

fn sweep(flags: &str, record: &Path) -> Command {
    let mut command = launcher(2);
    command
        .arg(SWEEP)
        .args(words(SMALL))
        .args(words(flags))
        .args(["--backend", "nccl", "--quiet", "--record"])
        .arg(record);
    command
}

#[test]
fn a_device_or_a_driver_that_does_not_serve_is_named_with_its_fix() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    const PLACE: &str = "rank 1: --backend nccl: host ";
    const DEVICE: &str = "device 1 (commgauge double (no GPU), 0000:20:00.0): ";
    for (fault, said) in [
        // In exclusive mode, and another process has it.
        ("context rank=1", ["CUDA_ERROR_DEVICE_UNAVAILABLE", "nvidia-smi -q -d COMPUTE"]),
        ("context rank=1 code=214", ["CUDA_ERROR_ECC_UNCORRECTABLE", "nvidia-smi -q -d ECC,ROW_REMAPPER"]),
        ("context rank=1 code=802", ["failed with error 802", "systemctl status nvidia-fabricmanager"]),
        ("module rank=1", ["failed with error 222", "the driver is too old for commgauge's kernels"]),
    ] {
        let ran =
            Ran::of(with_doubles(&mut sweep("", &record), 2).env("COMMGAUGE_DOUBLE_FAULTS", fault), 60).ended_with(6);
        let line = ran.stderr.lines().find(|line| line.contains(PLACE)).unwrap_or_default();
        assert!(line.contains(DEVICE) && said.iter().all(|words| line.contains(words)), "{fault}: {}", ran.stderr);
        assert!(!record.exists(), "{fault}: nothing was measured");
    }
}

#[test]
fn parts_of_one_gpu_are_refused_with_an_nccl_to_which_they_are_one_and_marked_with_others() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let parts = |version: &str| {
        let mut command = sweep("", &record);
        Ran::of(with_nccl(&mut command, 2, version).env("COMMGAUGE_DOUBLE_PARTS", "2"), 60)
    };
    let refused = parts("2.27.3").ended_with(7);
    refused
        .printed_error("ranks 0 and 1 of host ")
        .printed_error("are on MIG partitions of one GPU (0000:10:00.0, MIG-")
        .printed_error("NCCL before 2.30 treats these as one device, found NCCL 2.27.3");
    parts(NCCL_VERSION).ended_with(0);
    let lines = lines(&record);
    let warnings = of_kind(&lines, "header")[0]["warnings"].to_string();
    assert!(warnings.contains("ranks use MIG partitions"), "{warnings}");
    assert!(of_kind(&lines, "case").iter().all(|case| case["outcome"]["verified"] == true));
}

/// A library with the functions by which RCCL is known, under NCCL's name.
fn rccl_renamed(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("rccl.c"), folder.join("libnccl.so.2"));
    let text =
        "int ncclGetVersion(int *version) { *version = 22203; return 0; }\nint ncclAllToAllv(void) { return 5; }\n";
    std::fs::write(&source, text).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(built.is_ok_and(|status| status.success()), "cc builds a library");
    library
}

#[test]
fn rccl_is_known_by_its_functions_whatever_it_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let (library, record) = (rccl_renamed(folder.path()), record_in(&folder));
    let mut command = sweep("", &record);
    with_doubles(&mut command, 2).arg("--nccl-library").arg(&library);
    Ran::of(&mut command, 60)
        .ended_with(2)
        .printed_error(
            "libnccl.so.2 is RCCL: it has NCCL's functions and types but takes HIP streams, memory and kernels",
        )
        .printed_error("judges them, and --backend mpi measures their hosts");
    let mut doctor = Command::new(COMMGAUGE);
    doctor.arg("doctor").arg("--nccl-library").arg(&library);
    let ran = Ran::of(with_doubles(&mut doctor, 2), 60).ended_with(0);
    assert!(ran.stdout.contains("this is RCCL"), "{}", ran.stdout);
}

/// Every version of the stand-ins carries out what it has, and says which version the rest would need.
#[test]
fn each_version_of_nccl_measures_what_it_has_and_names_what_the_rest_needs() {
    let folder = tempfile::tempdir().unwrap();
    const NEEDS: [(&str, (u32, &str)); 4] = [
        ("at most", (17, "limits on thread blocks need NCCL 2.17 (ncclConfig_t)")),
        ("allocated", (19, "allocated buffers need NCCL 2.19 (ncclMemAlloc)")),
        ("registered", (19, "registered buffers need NCCL 2.19 (ncclCommRegister)")),
        ("symmetric", (27, "symmetric buffers need NCCL 2.27 (ncclCommWindowRegister)")),
    ];
    for version in ["2.16.2", "2.18.1", "2.20.5", "2.25.1", "2.27.3", NCCL_VERSION] {
        let minor: u32 = version.split('.').nth(1).unwrap().parse().unwrap();
        let record = folder.path().join(format!("{version}.jsonl"));
        let mut command = sweep("--buffers plain,allocated,registered,symmetric --max-ctas any,4", &record);
        Ran::of(with_nccl(&mut command, 2, version), 60).ended_with(0);
        let lines = lines(&record);
        let plan = of_kind(&lines, "plan")[0]["cases"].as_array().unwrap().clone();
        let cases = of_kind(&lines, "case");
        assert_eq!(cases.len(), 8, "{version}");
        for case in cases {
            let labels = &plan[case["case"].as_u64().unwrap() as usize]["labels"];
            let wanted = [labels["buffers"].as_str(), labels["max_ctas"].as_str().map(|_| "at most")];
            let missing = NEEDS.iter().filter(|(what, (since, _))| wanted.contains(&Some(*what)) && minor < *since);
            let missing: Vec<&str> = missing.map(|(_, (_, words))| *words).collect();
            let outcome = &case["outcome"];
            let reason = outcome["reason"].as_str().unwrap_or_default();
            assert_eq!(missing.is_empty(), outcome["verified"] == true, "{version}: {case}");
            assert!(missing.is_empty() || missing.iter().any(|words| reason.contains(words)), "{version}: {reason}");
            assert!(missing.is_empty() || reason.contains(&format!("found {version}")), "{version}: {reason}");
        }
    }
}
