//! Whatever stops a launch (Ctrl-C, a killed rank, a panic) ends all ranks within seconds, stores what was measured,
//! and leaves nothing behind. Needs the launcher of the MPI that was built with.

use crate::common;

use common::{
    COMMGAUGE, Ran, SWEEP, Started, beside, count_so_far, ending, launcher, lines, pids, record_in, shared_memory_of,
    signal, start, still_running, wait_until, words,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

/// A sweep that would run for minutes.
const LONG: &str = "name = \"long\"\n[measure]\nprecision = 1e-6\nminimum_samples = 10\nmaximum_samples = 1_000_000\ncase_budget = \"200ms\"\nreplicates = 40\n[[sweep]]\ncollectives = [\"all_reduce\", \"broadcast\"]\nbytes = [\"64B\", \"1KiB\"]\n";

/// `commgauge run` of a long suite.
fn long_run(folder: &Path, record: &Path) -> Started {
    let suite = folder.join("long.toml");
    std::fs::write(&suite, LONG).unwrap();
    let mut command = Command::new(COMMGAUGE);
    command.env("NO_COLOR", "1").stdin(Stdio::null()).current_dir(env!("CARGO_MANIFEST_DIR"));
    start(command.arg("run").arg(suite).args(["-n", "4", "--record"]).arg(record))
}

/// Waits for the third case line.
fn wait_for_cases(record: &Path) {
    wait_until(40, "three cases are measured", || count_so_far(record, "case") >= 3);
}

#[track_caller]
fn assert_reads_and_nothing_is_left(record: &Path, ranks: &[u32], shared: &BTreeSet<String>) {
    wait_until(3, "no rank runs", || still_running(ranks).is_empty());
    let left: Vec<&String> = shared.iter().filter(|path| Path::new(path).exists()).collect();
    assert_eq!(left, Vec::<&String>::new());
    assert!(count_so_far(record, "case") >= 3);
    let report = Command::new(COMMGAUGE).arg("report").arg(record).output().unwrap();
    assert!(String::from_utf8_lossy(&report.stdout).contains("all_reduce"), "{report:?}");
}

#[test]
fn ctrl_c_ends_commgauge_run_with_130_and_keeps_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let _beside = beside();
    let child = long_run(folder.path(), &record);
    wait_for_cases(&record);
    let ranks = pids(&record);
    let shared = shared_memory_of(&ranks);
    signal(child.id(), "INT");
    let ran =
        ending(child, 15).ended_with(130).printed_error("stopped by SIGINT").printed_error("measured cases are kept");
    assert!(ran.stdout.contains(" verified, 0 failed"), "the summary is shown: {}", ran.stdout);
    assert_reads_and_nothing_is_left(&record, &ranks, &shared);
    let last = lines(&record).pop().unwrap();
    if last["line"] == "end" {
        assert_eq!(last["status"], "interrupted", "{last}");
    } else {
        assert!(ran.stdout.contains("cut off"), "{}", ran.stdout);
    }
}

#[test]
fn ctrl_c_at_a_launcher_keeps_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let _beside = beside();
    let flags = "all_reduce -b 64 -e 4K -f 2 --precision 0.0001 --budget 200ms --replicates 40 --quiet";
    let mut command = launcher(3);
    let child = start(command.arg(SWEEP).args(words(flags)).arg("--record").arg(&record));
    wait_for_cases(&record);
    let ranks = pids(&record);
    let shared = shared_memory_of(&ranks);
    signal(child.id(), "INT");
    let ran = ending(child, 15);
    assert_ne!(ran.code, Some(0), "{}", ran.stderr);
    wait_until(5, "no rank runs", || still_running(&ranks).is_empty());
    assert_reads_and_nothing_is_left(&record, &ranks, &shared);
}

#[test]
fn a_killed_rank_is_named_with_its_host_and_the_others_end() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let _beside = beside();
    let child = long_run(folder.path(), &record);
    wait_for_cases(&record);
    let ranks = pids(&record);
    signal(ranks[2], "KILL");
    let ran = ending(child, 15).ended_with(6);
    let host = lines(&record)[0]["ranks"][2]["host"].as_str().unwrap().to_owned();
    ran.printed_error(&format!("rank 2 (process {} on {host}) was killed by SIGKILL", ranks[2]));
    wait_until(3, "no rank runs", || still_running(&ranks).is_empty());
    assert!(count_so_far(&record, "case") >= 3);
}

#[test]
fn a_panicking_rank_ends_the_launch_and_is_named_with_its_host() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let mut run = Command::new(COMMGAUGE);
    run.env("NO_COLOR", "1").current_dir(env!("CARGO_MANIFEST_DIR"));
    run.args(["run", "suites/smoke.toml", "-n", "4", "--record"]).arg(&record).args(["--", "--inject-panic", "2"]);
    let ran = Ran::of(&mut run, 20).ended_with(6);
    let host = lines(&record)[0]["ranks"][2]["host"].as_str().unwrap().to_owned();
    let ran = ran.printed_error(&format!("commgauge: rank 2: a broken assumption on host {host}"));
    ran.printed_error("requested by --inject-panic");
    // The launcher ends when it has signalled them; the system needs a moment to reap them.
    wait_until(3, "no rank runs", || still_running(&pids(&record)).is_empty());

    let mut direct = launcher(4);
    direct.arg(SWEEP).args(words("all_reduce -b 8 -e 8 --inject-panic 0 --record"));
    let ran = Ran::of(direct.arg(folder.path().join("direct.jsonl")), 20).ended_with(6);
    ran.printed_error("rank 0: a broken assumption on host");
}
