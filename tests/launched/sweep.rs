//! Output and end of a sweep: rows during the run, a budget for all cases, and the launch that `commgauge run` builds
//! for it. Needs the launcher of the MPI that was built with. No test depends on how long anything took.

use crate::common;

use common::{COMMGAUGE, Ran, SWEEP, count_so_far, launcher, lines, of_kind, record_in, signal, words};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Rows of a printed table, without the star of those that are not precise.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines
        .filter(|row| {
            row.first().is_some_and(|word| ["all_reduce", "all_gather"].contains(word))
                && row.len() > 6
                && !row.iter().any(|word| ["-b", "at", "of"].contains(word))
        })
        .collect()
}

/// Every case has a line, and every line carries right data.
#[track_caller]
fn assert_every_case_is_verified(record: &Path) -> Vec<Value> {
    let lines = lines(record);
    let planned = of_kind(&lines, "plan")[0]["cases"].as_array().unwrap().clone();
    let mut replicates: BTreeMap<u64, u32> = BTreeMap::new();
    for case in of_kind(&lines, "case") {
        assert_eq!(case["outcome"]["verified"], true, "{case}");
        *replicates.entry(case["case"].as_u64().unwrap()).or_default() += 1;
    }
    assert_eq!(replicates.len(), planned.len(), "every case was measured");
    assert_eq!(lines.last().unwrap()["status"], "complete");
    lines
}

/// The calls of these rows that are verified: a row has those in place and out of place.
fn verified(rows: &[Vec<&str>]) -> usize {
    rows.iter().flatten().filter(|cell| **cell == "verified").count()
}

#[test]
fn however_short_the_time_is_every_case_has_a_row_that_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let flags = "all_reduce all_gather -b 8 -e 64K -f 8 --within 10ms --record";
    let ran = Ran::of(launcher(2).arg(SWEEP).args(words(flags)).arg(&record), 90).ended_with(0);
    let lines = assert_every_case_is_verified(&record);
    assert_eq!(of_kind(&lines, "header")[0]["settings"]["within_seconds"], 0.01);
    let rows = rows(&ran.stdout);
    assert_eq!(verified(&rows), of_kind(&lines, "plan")[0]["cases"].as_array().unwrap().len(), "{}", ran.stdout);
    assert!(rows.iter().all(|row| row.last() == Some(&"verified")), "{}", ran.stdout);
    // A row states its precision, and whether that is the requested one.
    assert!(rows.iter().any(|row| row.iter().any(|cell| cell.ends_with('*'))), "{}", ran.stdout);
    assert!(ran.stdout.contains("did not reach +-2.00 % within 10.0 ms"), "{}", ran.stdout);
    // Behind the table and not in the other stream, which the launcher could put into its middle.
    assert!(ran.stdout.ends_with(&format!("\nrecord: {}\n", record.display())), "{}", ran.stdout);
}

#[test]
fn like_osu_and_imb_start_each_call_after_a_barrier_and_a_flag_wins() {
    for (flags, start) in [
        ("--like osu", "barrier"),
        ("--like imb", "barrier"),
        ("--like osu --start synchronised", "synchronised"),
        ("--cadence isolated -n 5", "synchronised"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let record = record_in(&folder);
        let mut command = launcher(2);
        command.arg(SWEEP).args(words("all_reduce -b 8 -e 8 --quiet")).args(words(flags)).arg("--record").arg(&record);
        Ran::of(&mut command, 90).ended_with(0);
        let lines = lines(&record);
        let methods: Vec<&Value> = of_kind(&lines, "clock").iter().map(|clock| &clock["method"]).collect();
        // On a busy machine clocks may not be comparable, and calls start after a barrier unasked.
        assert!(start != "barrier" || methods.iter().all(|method| *method == "barrier"), "{flags}: {methods:?}");
        let requested = of_kind(&lines, "header")[0]["settings"]["start"].as_str();
        assert_eq!(requested.unwrap_or("synchronised"), start, "{flags}");
    }
}

#[test]
fn with_time_enough_cases_get_a_second_replicate_and_longer_ones_stand_in_for_short_ones() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let flags = "all_reduce -b 8 -e 1K -f 8 --cadence streaming --within 4s --precision 0.1% --quiet --record";
    Ran::of(launcher(2).arg(SWEEP).args(words(flags)).arg(&record), 90).ended_with(0);
    let lines = assert_every_case_is_verified(&record);
    let samples = |case: &Value| case["samples"]["slowest_nanoseconds"].as_array().unwrap().len();
    let second: Vec<&Value> = of_kind(&lines, "case").into_iter().filter(|case| case["replicate"] == 1).collect();
    for case in &second {
        let first = of_kind(&lines, "case").into_iter().find(|other| other["case"] == case["case"]).unwrap();
        let replaces = case["replaces"].as_array().is_some_and(|replaced| replaced.contains(&Value::from(0)));
        let is_short = first["stop"] == "budget" && samples(first) < samples(case);
        assert_eq!(replaces, is_short, "{} then {} samples", samples(first), samples(case));
    }
    let text =
        Ran::of(Command::new(COMMGAUGE).args(["report", "--format", "csv"]).arg(&record), 20).ended_with(0).stdout;
    assert_eq!(text.lines().count(), 1 + of_kind(&lines, "plan")[0]["cases"].as_array().unwrap().len(), "{text}");
}

#[test]
fn time_that_is_left_goes_to_rows_that_are_not_precise_and_a_run_that_ends_early_says_why_they_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let flags = "all_reduce -b 8 -e 64K -f 8 --within 3s --precision 0.5% --record";
    let ran = Ran::of(launcher(2).arg(SWEEP).args(words(flags)).arg(&record), 90).ended_with(0);
    let lines = assert_every_case_is_verified(&record);
    for further in of_kind(&lines, "case").into_iter().filter(|case| case["replicate"].as_u64() > Some(1)) {
        let before = of_kind(&lines, "case").into_iter().filter(|other| {
            other["case"] == further["case"] && other["replicate"].as_u64() < further["replicate"].as_u64()
        });
        assert!(before.into_iter().any(|case| case["stop"] == "budget"), "a precise row was measured again: {further}");
    }
    let ended_early = lines.last().unwrap()["elapsed_seconds"].as_f64().unwrap() < 2.7;
    let said = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let has_reason =
        ["the rest is too short", "the most samples that a replicate takes"].iter().any(|why| said.contains(why));
    assert!(!said.contains("(marked *)") || !ended_early || has_reason, "{}", ran.stdout);
}

#[test]
fn rows_appear_during_the_sweep() {
    for (format, row) in [("table", "all_reduce"), ("nccl-tests", "           8  ")] {
        let folder = tempfile::tempdir().unwrap();
        let record = record_in(&folder);
        // The second size would take minutes, so the rows of the first appear before the end however busy this machine
        // is.
        let flags = "all_reduce -b 8 -e 32M -f 4194304 -n 20000 -w 0 --replicates 1 --cadence streaming --placement out --format";
        let _concurrent = common::concurrent();
        let mut command = launcher(2);
        command.arg(SWEEP).args(words(flags)).arg(format).arg("--record").arg(&record);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
        let mut seen: Vec<String> = Vec::new();
        while !seen.last().is_some_and(|line| line.starts_with(row)) {
            seen.push(lines.next().expect("the row comes before the end"));
        }
        let ends = count_so_far(&record, "end");
        signal(child.id(), "TERM");
        child.wait().unwrap();
        assert!(seen.iter().any(|line| line.contains("busbw")), "{format}: the header comes first: {seen:?}");
        assert_eq!(ends, 0, "{format}: the row came with the end");
    }
}

#[test]
fn a_table_that_came_row_by_row_is_the_table_of_its_record() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let flags = "all_reduce all_gather -b 8 -e 512 -f 8 -n 20 -w 2 --replicates 2 --width 160 --record";
    let ran = Ran::of(launcher(2).arg(SWEEP).args(words(flags)).arg(&record), 90).ended_with(0);
    let report = Ran::of(Command::new(COMMGAUGE).args(["report", "--width", "160"]).arg(&record), 20).ended_with(0);
    // Column widths are decided before the first row there, and by all rows here; a rule is as long as they are.
    let content = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.filter(|line| !line.starts_with("---")).collect()
    };
    let table = ran.stdout.strip_suffix(&format!("record: {}\n", record.display())).unwrap();
    assert_eq!(content(table), content(&report.stdout));
}

#[test]
fn commgauge_run_builds_the_launch_of_a_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let run = |more: &[&str]| {
        let mut command = Command::new(COMMGAUGE);
        command.env("NO_COLOR", "1").args(["run", "--sweep", "all_reduce all_gather"]);
        command
            .args(words("-b 8 -e 64 -f 8 -n 2 --iters 20 -w 2 --replicates 1 --warm-buffers --record"))
            .arg(&record)
            .args(more);
        command
    };
    let dry = Ran::of(&mut run(&["--dry-run"]), 20).ended_with(0);
    let shown = dry.stdout.lines().next().unwrap();
    assert!(
        shown.contains("commgauge-sweep all_reduce all_gather -b 8 -e 64 -f 8") && shown.contains("-n 20"),
        "{shown}"
    );
    assert!(!record.exists());
    let ran = Ran::of(&mut run(&[]), 60).ended_with(0);
    let lines = assert_every_case_is_verified(&record);
    assert_eq!(verified(&rows(&ran.stdout)), of_kind(&lines, "case").len(), "{}", ran.stdout);
    assert_eq!(of_kind(&lines, "header")[0]["program"], "commgauge-sweep");
    ran.printed_error(&format!("record: {}", record.display()));
    let both = Command::new(COMMGAUGE).args(["run", "suites/quick.toml", "--sweep", "all_reduce"]).output().unwrap();
    assert_eq!(both.status.code(), Some(2));
}
