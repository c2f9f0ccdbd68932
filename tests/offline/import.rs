//! `commgauge import` of other tools' files as a user starts it, and of commgauge's own nccl-tests report. Needs nothing.

use crate::offline;

use offline::{commgauge, text};
use std::fs;
use std::path::Path;

fn data(name: &str) -> String {
    format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Exit code of a report on calls whose data arrived wrong.
const WRONG: i32 = 4;

/// The rows of a report in the columns of nccl-tests, without its comments.
fn rows(folder: &Path, record: &str) -> Vec<String> {
    let output = commgauge(folder, &["report", record, "--format", "nccl-tests"]);
    // 4: a call of the sample arrived wrong.
    assert!(matches!(output.status.code(), Some(0 | 4)), "{}", text(&output.stderr));
    let rows =
        text(&output.stdout).lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
    assert!(!rows.is_empty());
    rows
}

#[test]
fn our_own_nccl_tests_report_reads_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let sample = data("sample-record.jsonl");
    let report = commgauge(folder, &["report", &sample, "--format", "nccl-tests"]);
    fs::write(folder.join("report.txt"), &report.stdout).expect("written");
    let import = ["import", "--from", "nccl-tests", "report.txt", "--skip-bad-lines", "-o", "back.jsonl"];
    let output = commgauge(folder, &import);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // A row without a time (not run, or wrong) is reported and left out.
    let timed =
        |row: &String| row.split_whitespace().nth(5) != Some("N/A") || row.split_whitespace().nth(9) != Some("N/A");
    let before: Vec<String> = rows(folder, &sample).into_iter().filter(timed).collect();
    assert_eq!(rows(folder, "back.jsonl"), before);
    let record = fs::read_to_string(folder.join("back.jsonl")).expect("written");
    let synthetic = text(&report.stdout).contains("SYNTHETIC");
    assert!(record.contains(&format!("\"synthetic\":{synthetic}")));
}

#[test]
fn other_tools_files_become_records_that_reports_read() {
    let folder = tempfile::tempdir().expect("a folder");
    for (from, file, more, left_out) in [
        ("nccl-tests", "nccl-tests-2.11-all_reduce.txt", &[][..], 0),
        ("nccl-tests", "nccl-tests-2.13-two-hosts.txt", &[], 0),
        ("nccl-tests", "nccl-tests-2.17-log.txt", &[], 1),
        ("nccl-tests", "nccl-tests.json", &[], 1),
        ("osu", "osu-5.6.txt", &["--ranks", "4"], 1),
        ("osu", "osu-7.5.txt", &[], 2),
        ("imb", "imb-2021.txt", &[], 3),
    ] {
        let (source, record) = (data(&format!("foreign/{file}")), format!("{file}.jsonl"));
        let mut arguments = vec!["import", "--from", from, source.as_str(), "-o", record.as_str()];
        arguments.extend(more);
        let refused = commgauge(folder.path(), &arguments);
        assert_eq!(refused.status.code(), Some(if left_out > 0 { 2 } else { 0 }), "{file}: {}", text(&refused.stderr));
        if left_out > 0 {
            assert!(text(&refused.stderr).contains(&format!("{left_out} of ")), "{file}: {}", text(&refused.stderr));
            arguments.push("--skip-bad-lines");
            let output = commgauge(folder.path(), &arguments);
            assert_eq!(output.status.code(), Some(0), "{file}: {}", text(&output.stderr));
        }
        let report = commgauge(folder.path(), &["report", &record]);
        // Their tools found wrong data in one row each.
        let has_wrong = ["nccl-tests-2.13-two-hosts.txt", "osu-7.5.txt", "imb-2021.txt"].contains(&file);
        let expected = if has_wrong { WRONG } else { 0 };
        assert_eq!(report.status.code(), Some(expected), "{file}: {}", text(&report.stderr));
        assert!(!report.stdout.is_empty());
    }
}

#[test]
fn a_mistake_is_reported_and_nothing_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| data(&format!("foreign/{name}"));
    let (osu, imb, json) = (file("osu-5.6.txt"), file("imb-2021.txt"), file("nccl-tests.json"));
    for (arguments, expected) in [
        (["--from", "nccl-tests", &osu].to_vec(), "read it with --from osu"),
        (["--from", "osu", &imb].to_vec(), "read it with --from imb"),
        (["--from", "imb", &json].to_vec(), "read it with --from nccl-tests"),
        (["--from", "osu", &osu].to_vec(), "give it with --ranks"),
        (["--from", "imb", &imb, "--ranks", "4"].to_vec(), "--ranks: is for --from osu and nccl-tests"),
        (["--from", "osu", "absent.txt"].to_vec(), "cannot read absent.txt"),
    ] {
        let output = commgauge(folder.path(), &[&["import", "-o", "r.jsonl"][..], &arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {}", text(&output.stderr));
        assert!(!folder.path().join("r.jsonl").exists());
    }
}

/// Three of the sample's lines broken, and its last one torn.
fn broken_record() -> String {
    let sample = include_str!("../data/sample-record.jsonl");
    let mut lines: Vec<String> = sample.lines().map(str::to_owned).collect();
    lines[6] = "poem".to_owned();
    lines.join("\n") + "\n{\"line\":\"ca"
}

#[test]
fn records_of_commgauge_are_converted_and_bad_lines_reported_by_number() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let sample = include_str!("../data/sample-record.jsonl");
    fs::write(at("a.jsonl"), sample).expect("written");
    fs::write(at("b.jsonl"), sample).expect("written");
    fs::write(at("broken.jsonl"), broken_record()).expect("written");
    fs::write(at("newer.jsonl"), sample.replacen("\"version\":1", "\"version\":9", 1)).expect("written");
    for (arguments, expected) in [
        (&["newer.jsonl", "-o", "out.jsonl"][..], "is a record of version 9"),
        (&["broken.jsonl", "-o", "out.jsonl"], "broken.jsonl:7: broken: "),
        (&["a.jsonl", "broken.jsonl", "-o", "out"], "2 of "),
        (&["a.jsonl", "a.jsonl", "-o", "out"], "two records are called a.jsonl"),
        (&["a.jsonl", "b.jsonl", "-o", "a.jsonl"], "is a file; several records go into a folder"),
        (&["a.jsonl", "-o", "b.jsonl"], "b.jsonl"),
    ] {
        let output = commgauge(folder.path(), &[&["import", "--from", "commgauge"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let message = text(&output.stderr);
        assert!(message.contains(expected), "{arguments:?}: {message}");
        assert!(!at("out").exists() && !at("out.jsonl").exists(), "{arguments:?}");
    }
    for arguments in
        [&["a.jsonl", "b.jsonl", "-o", "out"][..], &["broken.jsonl", "--skip-bad-lines", "-o", "fixed.jsonl"]]
    {
        let output = commgauge(folder.path(), &[&["import", "--from", "commgauge"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    }
    let lines = |path: &Path| -> Vec<serde_json::Value> {
        let text = fs::read_to_string(path).expect("written");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let again = commgauge(folder.path(), &["import", "--from", "commgauge", "out/b.jsonl", "-o", "again.jsonl"]);
    assert!(again.status.success());
    let read = |name: &str| fs::read_to_string(at(name)).expect("written");
    assert!(read("again.jsonl") == read("out/b.jsonl"), "a current record stays what it is");
    let report = |name: &str| text(&commgauge(folder.path(), &["report", name, "--format", "csv"]).stdout);
    assert!(report("out/b.jsonl") == report("b.jsonl") && report("b.jsonl").lines().count() > 10);
    let fixed = lines(&at("fixed.jsonl"));
    let warnings = fixed[0]["warnings"].to_string();
    assert!(warnings.contains("left out: broken.jsonl:7: broken") && warnings.contains("torn"), "{warnings}");
    assert_eq!(fixed.len(), sample.lines().count() - 1);
}

#[test]
fn a_record_of_a_log_says_only_what_the_log_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = |wrong: &str| {
        format!(
            "# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 1 iters: 1 agg iters: 1 validation: 1 graph: 0\n\
             # Collective test starting: all_reduce_perf\n\
             #  Rank  0 Group  0 Pid 1 on h device  0 [0x07] X\n#  Rank  1 Group  0 Pid 1 on h device  1 [0x08] X\n\
             #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
             1048576 262144 float sum -1 10.0 104.86 104.86 {wrong} 10.0 104.86 104.86 {wrong}\n\
             # Out of bounds values : 0 OK\n# Avg bus bandwidth    : 104.86\n"
        )
    };
    for (name, wrong) in [("checked.txt", "0"), ("unchecked.txt", "N/A")] {
        fs::write(folder.path().join(name), log(wrong)).expect("written");
    }
    let foreign = |name: &str| data(&format!("foreign/{name}"));
    for (from, file, started, verified) in [
        ("nccl-tests", "checked.txt".to_owned(), "started not stated (its newest file is of 2", Some(true)),
        ("nccl-tests", "unchecked.txt".to_owned(), "started not stated", Some(false)),
        ("nccl-tests", foreign("nccl-tests.json"), "started 2025-08-01T", None),
        ("imb", foreign("imb-2021.txt"), "started 2026-03-02T", None),
        ("csv", data("nccl/h100_sxm-nccl-2.29.2.csv"), "started not stated", Some(false)),
    ] {
        let _ = fs::remove_file(folder.path().join("r.jsonl"));
        let import = ["import", "--from", from, &file, "--skip-bad-lines", "-o", "r.jsonl"];
        let output = commgauge(folder.path(), &import);
        assert_eq!(output.status.code(), Some(0), "{file}: {}", text(&output.stderr));
        let report = |more: &[&str]| text(&commgauge(folder.path(), &[&["report", "r.jsonl"], more].concat()).stdout);
        let shown = report(&["--format", "markdown"]);
        let flat = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(started), "{file}: {shown}");
        assert!(flat.contains("buffers, precision, samples and seed are not stated"), "{file}: {shown}");
        for claim in ["cold buffers", "seed 0", "precision of 0 %", "data not checked"] {
            assert!(!flat.contains(claim), "{file}: {claim}: {shown}");
        }
        if let Some(verified) = verified {
            let rows = report(&["--format", "csv"]);
            assert_eq!(rows.contains(",not verified,"), !verified, "{file}: {rows}");
            assert_eq!(rows.contains(",verified,"), verified, "{file}: {rows}");
        }
    }
}
