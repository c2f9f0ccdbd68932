//! `commgauge history` and `commgauge compare` of one record as a user sees them: missing folders, unusable records,
//! runs that changed.

use crate::offline;

use crate::nccl_log::NcclLog;
use offline::{commgauge, text};
use serde_json::Value;
use std::path::Path;

/// The sample record as one of many runs: with another name and day, and every sample scaled by the factor. Warnings
/// and errors are removed, so that all rows count.
pub fn run(day: u32, factor: f64) -> String {
    let sample = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample-record.jsonl"));
    let mut lines = String::new();
    for line in sample.expect("the sample record").lines() {
        let mut line: Value = serde_json::from_str(line).expect("JSON");
        change(&mut line, day, factor);
        lines += &format!("{line}\n");
    }
    lines
}

fn change(value: &mut Value, day: u32, factor: f64) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match key.as_str() {
                    "run_id" => *value = format!("run-{day:02}").into(),
                    "started_at" => *value = format!("2026-11-{day:02}T03:00:00+00:00").into(),
                    "warnings" => *value = Value::Array(Vec::new()),
                    "slowest_nanoseconds" => scale(value, factor),
                    _ => change(value, day, factor),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| change(value, day, factor)),
        _ => {}
    }
}

fn scale(samples: &mut Value, factor: f64) {
    for sample in samples.as_array_mut().expect("samples") {
        *sample = ((sample.as_f64().expect("a number") * factor) as u64).into();
    }
}

#[test]
fn a_mistake_is_reported_on_stderr_and_ends_with_2() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("empty")).expect("made");
    std::fs::write(folder.path().join("run.jsonl"), run(1, 1.0)).expect("written");
    for (arguments, expected) in [
        (&["history"][..], "<DIR>"),
        (&["history", "nowhere"], "nowhere is no folder and no file"),
        (&["history", "empty"], "no record (*.jsonl) is in empty"),
        (&["history", "empty", "--relevant", "0"], "0.1 to 100"),
        (&["history", "run.jsonl", "--plots", "run.jsonl/p"], "--plots: cannot make run.jsonl/p"),
        (&["compare", "--consistency", "nowhere.jsonl"], "nowhere.jsonl"),
        (&["compare", "--consistency", "run.jsonl", "--output", "run.jsonl"], "is one of the inputs"),
        // A variable that is empty leaves no word behind, or an empty one.
        (&["compare", "run.jsonl"], "`commgauge compare --consistency run.jsonl`"),
        (&["compare", "run.jsonl", "--relevant", "5"], "NEW is missing"),
        (&["compare", "run.jsonl", "--more-base", "run.jsonl"], "NEW is missing"),
        (&["compare", "run.jsonl", "--more-new", "run.jsonl"], "NEW is missing"),
        (&["compare", "run.jsonl", ""], "a value is required"),
        (&["compare", "", "run.jsonl"], "a value is required"),
        (&["compare", "--consistency", ""], "a value is required"),
        (&["compare", "--consistency", "run.jsonl", "run.jsonl"], "cannot be used with"),
        (&["compare", "--consistency", "run.jsonl", "--more-new", "run.jsonl"], "cannot be used with"),
        (&["compare", "--consistency", "run.jsonl", "--relevant", "5"], "cannot be used with"),
        (&["report", "run.jsonl", "-o", "x.html", "--base", ""], "a value is required"),
        (&["judge", "--part", "thresholds", ""], "a value is required"),
        (&["judge", ""], "a value is required"),
    ] {
        let output = commgauge(folder.path(), arguments);
        let (out, message) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected) && out.is_empty(), "{arguments:?}: {message}\n{out}");
    }
}

#[test]
fn runs_that_became_slower_end_with_1_and_unusable_files_are_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    let runs = folder.path().join("runs");
    std::fs::create_dir(&runs).expect("made");
    for day in 1..=12u32 {
        let slow = if day > 7 { 1.3 } else { 1.0 };
        let scatter = 1.0 + f64::from(day * 7 % 11) * 0.001;
        std::fs::write(runs.join(format!("{day:02}.jsonl")), run(day, slow * scatter)).expect("written");
    }
    std::fs::write(runs.join("again.jsonl"), run(3, 1.0)).expect("written");
    std::fs::write(runs.join("torn.jsonl"), "{\"kind\":").expect("written");
    std::fs::write(runs.join("notes.txt"), "no record").expect("written");
    let output = commgauge(folder.path(), &["history", "runs", "--plots", "pictures"]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}{}", text(&output.stderr));
    for words in ["! from run run-08-", "Left out: 2 files", "again.jsonl: is the same run as", "torn.jsonl"] {
        assert!(out.contains(words), "{words}: {out}");
    }
    assert!(std::fs::read_dir(folder.path().join("pictures")).expect("made").count() > 0);
    let few = commgauge(folder.path(), &["history", "runs/01.jsonl", "runs/02.jsonl", "--format", "csv"]);
    assert_eq!(few.status.code(), Some(3), "two runs can show nothing");
    assert!(text(&few.stdout).starts_with("suite,place,case,"));
}

#[test]
fn a_single_record_is_checked_against_itself_where_that_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("run.jsonl"), run(1, 1.0)).expect("written");
    let output = commgauge(folder.path(), &["compare", "--consistency", "run.jsonl", "--format", "json"]);
    let verdict: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(verdict["question"], "consistency");
    assert_eq!(output.status.code().map(i64::from), verdict["exit_code"].as_i64());
}

/// What nccl-tests prints of a night: rows that take this many times as long, by a version of NCCL.
fn log_of_night(night: u32, nccl: u32, times: f64) -> String {
    let rows = (0..8).map(|power| {
        let scatter = 1.0 + f64::from((night * 7 + power * 5) % 11) * 0.001;
        let time = (40.0 + f64::from(power)) * times * scatter;
        (1024 << power, [time, 1.01 * time])
    });
    NcclLog { gpus: 2, nccl, ..NcclLog::of(rows.collect()) }.text()
}

#[test]
fn a_new_version_of_the_library_does_not_break_the_history_of_imported_logs() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("runs")).expect("made");
    for night in 0..12u32 {
        let (version, times) = if night < 6 { (22703, 1.0) } else { (22809, 1.12) };
        let (log, record) = (format!("{night}.txt"), format!("runs/{night}.jsonl"));
        let path = folder.path().join(&log);
        std::fs::write(&path, log_of_night(night, version, times)).expect("written");
        let time =
            std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_hours(24 * (20_000 + u64::from(night)));
        std::fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(time)).expect("dated");
        let output = commgauge(folder.path(), &["import", "--from", "nccl-tests", &log, "-o", &record]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    let output = commgauge(folder.path(), &["history", "runs", "--width", "80"]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}");
    for words in ["rows 16", "slower 16, faster 0", "NCCL 2.27.3 before, NCCL 2.28.9 now", "1 KiB float32, in place"] {
        assert!(out.split_whitespace().collect::<Vec<_>>().join(" ").contains(words), "{words}: {out}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
}

#[test]
fn a_log_that_is_imported_every_night_is_one_run_also_as_a_copy_with_a_new_date() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/foreign/nccl-tests-2.11-all_reduce.txt");
    let log = std::fs::read_to_string(source).expect("the log");
    let write = |name: &str, text: &str, day: u64| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(86_400 * day);
        std::fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(time)).expect("dated");
    };
    write("all_reduce.txt", &log, 20_000);
    write("all_reduce-copy.txt", &log, 20_001);
    // Another night has other times.
    write("all_reduce-later.txt", &log.replace("1.20 ", "1.30 "), 20_002);
    std::fs::create_dir(folder.path().join("runs")).expect("made");
    for (log, record) in [
        ("all_reduce.txt", "runs/monday.jsonl"),
        ("all_reduce.txt", "runs/tuesday.jsonl"),
        ("all_reduce-copy.txt", "runs/wednesday.jsonl"),
        ("all_reduce-later.txt", "runs/thursday.jsonl"),
    ] {
        let output = commgauge(folder.path(), &["import", "--from", "nccl-tests", log, "-o", record]);
        assert_eq!(output.status.code(), Some(0), "{log}: {}", text(&output.stderr));
    }
    let output = commgauge(folder.path(), &["history", "runs", "--format", "json"]);
    let history: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let runs: Vec<&str> = (history["lineages"].as_array().expect("lineages").iter())
        .flat_map(|lineage| lineage["runs"].as_array().expect("runs"))
        .map(|run| run["path"].as_str().expect("a path"))
        .collect();
    assert_eq!(runs, ["runs/monday.jsonl", "runs/thursday.jsonl"], "{history:#}");
    let left_out = history["left_out"].to_string();
    for words in [
        "is the same run as runs/monday.jsonl",
        "comes from the same log as runs/monday.jsonl, with the same times in all",
    ] {
        assert!(left_out.contains(words), "{words}: {left_out}");
    }
}
