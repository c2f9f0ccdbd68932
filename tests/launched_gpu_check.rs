//! scripts/gpu-check through the stand-ins: one report, which says what it was made on and never passes there; wrong data and what
//! found no time are named. Needs python3 and the launcher of the MPI that was built with.

#![cfg(feature = "mpi")]

mod common;

use common::doubles::with_doubles;
use common::{COMMGAUGE, Ran, skipped};
use std::path::Path;
use std::process::Command;

const SWEEP: &str = "[measure]\niterations = 2\nwarm_up_iterations = 0\nreplicates = 1\nwarm_buffers = true\ncadences = ['streaming']\n\
                     [[sweep]]\nbytes = ['1003B']\n";

/// What each suite of the check has in this test, beside the lines above.
const SUITES: [(&str, &str); 5] = [
    (
        "data",
        "collectives = ['all_reduce']\nreduce_ops = 'all'\nelement_types = ['int8', 'uint8', 'int32', 'uint32', 'int64', 'uint64', \
         'float16', 'bfloat16', 'float32', 'float64']\n[[sweep]]\nbytes = ['1003B']\ncollectives = ['all_to_all']\nelement_types = \
         'all'\n",
    ),
    ("times", "collectives = ['all_reduce']\n"),
    (
        "variants",
        "collectives = ['all_reduce']\nbuffers = ['plain', 'registered', 'symmetric']\nsubmit = ['stream', 'graph']\naggregate = [1, 4]\n",
    ),
    ("copy", "collectives = ['all_reduce']\n"),
    ("peers", "collectives = ['all_reduce']\nelement_types = ['float32']\n"),
];

/// The check on 1 and 2 ranks of a host with two devices that are none: how it ended, and its report.
fn checked(flags: &[&str], faults: &str) -> Option<(Ran, String)> {
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        skipped("gpu_check", "there is no python3");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let (suites, report) = (folder.path().join("suites"), folder.path().join("report"));
    std::fs::create_dir(&suites).unwrap();
    for (name, more) in SUITES {
        std::fs::write(suites.join(format!("{name}.toml")), format!("name = 'gpu-check-{name}'\n{SWEEP}{more}"))
            .unwrap();
    }
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/gpu-check"));
    command.args(["--ranks", "1,2", "--commgauge", COMMGAUGE, "--suites"]).arg(&suites).arg("--report").arg(&report);
    command.args(flags).env("COMMGAUGE_DOUBLE_FAULTS", faults).env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    let ran = Ran::of(with_doubles(&mut command, 2), 100);
    let text = std::fs::read_to_string(report.join("report.md")).unwrap_or_default();
    Some((ran, text))
}

fn assert_says(report: &str, words: &[&str]) {
    for words in words {
        assert!(report.contains(words), "`{words}` is not in\n{report}");
    }
}

#[test]
fn what_stand_ins_carried_out_is_whole_and_does_not_pass() {
    let Some((ran, report)) = checked(&[], "") else { return };
    ran.ended_with(3);
    assert_says(
        &report,
        &["# gpu-check: NOT PASSED: not proven (exit code 3)", "carried out by stand-ins", "2 GPUs; ranks 1, 2."],
    );
    for part in
        ["doctor", "data, 1 ranks", "data, 2 ranks", "times, 2 ranks", "graphs, groups and kinds of buffers, 2 ranks"]
    {
        assert_says(&report, &[&format!("| {part} | ok |")]);
    }
    assert_says(&report, &["GB/s read and written, all_reduce at", "not compared with nccl-tests: no all_reduce_perf"]);
}

#[test]
fn wrong_data_is_the_gravest_and_named() {
    let Some((ran, report)) = checked(&[], "corrupt rank=1 call=all_reduce") else { return };
    ran.ended_with(4);
    assert_says(&report, &["# gpu-check: NOT PASSED: wrong data (exit code 4)", "wrong data at rank 1, element"]);
}

#[test]
fn what_found_no_time_is_missing_and_so_is_a_pass() {
    let Some((ran, report)) = checked(&["--budget", "6"], "") else { return };
    assert!(ran.elapsed.as_secs() < 12, "{:?}", ran.elapsed);
    ran.ended_with(7);
    assert_says(
        &report,
        &["NOT PASSED: something is missing (exit code 7)", "times, 2 ranks: no time was left for it"],
    );
}
