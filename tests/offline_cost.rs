//! `commgauge import`, `fit` and `predict` as a user starts them, one after the other. Needs nothing.

#[path = "common/offline.rs"]
mod offline;

use offline::{commgauge, text};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A folder with `h100.csv`, `h100.jsonl` and `fit.json`.
fn fitted() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nccl/h100_sxm-nccl-2.29.2.csv");
    fs::copy(source, folder.path().join("h100.csv")).expect("copied");
    for arguments in [
        &["import", "--from", "csv", "h100.csv", "-o", "h100.jsonl"][..],
        &["fit", "h100.jsonl", "-o", "fit.json", "--resamples", "40"],
    ] {
        let output = commgauge(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    }
    folder
}

#[test]
fn a_mistake_is_told_on_stderr_and_ends_with_2() {
    let folder = fitted();
    let at = |name: &str| folder.path().join(name);
    let heading = "collective,dtype,ranks,bytes_total,latency_us\n";
    fs::write(at("bad.csv"), format!("{heading}all_reduce,half,2,512,1\nall_reduce,half,2,1024,NaN\n"))
        .expect("written");
    fs::write(at("lacking.csv"), "collective,ranks\nall_reduce,2\n").expect("written");
    fs::write(at("q.csv"), "collective,ranks,bytes_total\nall_reduce,2,1MiB\n").expect("written");
    fs::write(at("one.csv"), format!("{heading}all_reduce,half,2,512,1\n")).expect("written");
    fs::write(at("newer.json"), r#"{"format": "commgauge-fit", "version": 99}"#).expect("written");
    assert!(commgauge(folder.path(), &["import", "--from", "csv", "one.csv", "-o", "one.jsonl"]).status.success());
    for (arguments, expected) in [
        (&["import", "--from", "csv", "bad.csv", "-o", "r.jsonl"][..], "bad.csv:3: latency_us: found `NaN`"),
        (&["import", "--from", "csv", "lacking.csv", "-o", "r.jsonl"], "no column `dtype`"),
        (&["import", "--from", "csv", "absent.csv", "-o", "r.jsonl"], "absent.csv"),
        (&["import", "--from", "csv", "h100.csv", "-o", "h100.jsonl"], "h100.jsonl"),
        (&["import", "--from", "poem", "h100.csv", "-o", "r.jsonl"], "[possible values: nccl-tests, osu, imb, csv"),
        (&["fit", "h100.csv"], "is not a commgauge record"),
        (&["fit", "one.jsonl"], "1 size measured, a curve needs two"),
        (&["fit", "h100.jsonl", "-o", "h100.jsonl"], "is a record; name another file"),
        (&["predict", "--fit", "h100.jsonl", "--queries", "q.csv"], "is not a commgauge fit"),
        (&["predict", "--fit", "newer.json", "--queries", "q.csv"], "version 99; this commgauge reads version 1"),
        (&["predict", "--fit", "fit.json", "--queries", "q.csv"], "line 2: bytes_total: found `1MiB`"),
        (&["predict", "--fit", "fit.json", "--collective", "all_reduce"], "--ranks"),
        (&["predict", "--fit", "fit.json", "--collective", "poem", "--ranks", "2", "--bytes", "1"], "all_gather"),
    ] {
        let output = commgauge(folder.path(), arguments);
        let (out, told) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(expected) && out.is_empty(), "{arguments:?}: {told}\n{out}");
    }
    assert!(!at("r.jsonl").exists(), "nothing is written where a line cannot be read");
}

#[test]
fn lines_that_are_left_out_when_asked_are_listed_in_the_record() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows = "collective,dtype,ranks,bytes_total,latency_us\nall_reduce,half,2,512,1\nall_reduce,half,2,1024,-3\n";
    fs::write(folder.path().join("bad.csv"), rows).expect("written");
    let arguments = ["import", "--from", "csv", "bad.csv", "-o", "r.jsonl", "--skip-bad-lines"];
    let output = commgauge(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let record = fs::read_to_string(folder.path().join("r.jsonl")).expect("readable");
    assert!(record.contains("left out: bad.csv:3: latency_us: found `-3`"), "{record}");
}

#[test]
fn an_imported_record_fits_the_published_schema_and_keeps_the_labels() {
    let folder = fitted();
    let schema: Value = serde_json::from_slice(&commgauge(folder.path(), &["schema"]).stdout).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let record = fs::read_to_string(folder.path().join("h100.jsonl")).expect("readable");
    for line in record.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let errors: Vec<String> = validator.iter_errors(&line).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
    assert!(
        record.contains(r#""labels":{"device":"NVIDIA H100 80GB HBM3","nccl_version":"2.29.2","system":"h100_sxm"}"#)
    );
}

#[test]
fn predictions_stand_beside_the_columns_of_their_queries() {
    let folder = fitted();
    let queries = "collective,ranks,bytes_total,dtype,note\n\
                   all_reduce,8,1048576,half,measured\n\
                   alltoall,6,3000000,,between\n\
                   all_reduce,8,100,int8,below\n\
                   all_reduce,8,4096,,two types\n";
    fs::write(folder.path().join("q.csv"), queries).expect("written");
    let ask = |format: &str| {
        let output =
            commgauge(folder.path(), &["predict", "--fit", "fit.json", "--queries", "q.csv", "--format", format]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let out = ask("csv");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "collective,ranks,bytes_total,dtype,note,seconds,low,high,status");
    for (line, begin, end) in [
        (lines[1], "all_reduce,8,1048576,half,measured,2.5", ",interpolated"),
        (lines[2], "alltoall,6,3000000,,between,", ",transferred"),
        (lines[3], "all_reduce,8,100,int8,below,1.5", ",extrapolated"),
        (lines[4], "all_reduce,8,4096,,two types,,,,", "refused"),
    ] {
        assert!(line.starts_with(begin) && line.ends_with(end), "{line}");
    }
    let document: Value = serde_json::from_str(&ask("json")).expect("JSON");
    let predictions = document["predictions"].as_array().expect("a list");
    assert_eq!(predictions.len(), 4);
    assert_eq!(predictions[1]["status"], "transferred");
    assert!(predictions[3]["reason"].as_str().expect("a reason").contains("say which: int8"));
    assert_eq!(document["synthetic"], false);
}

#[test]
fn a_single_call_that_is_refused_ends_with_7() {
    let folder = fitted();
    let ask = |ranks: &str| {
        let call = ["--collective", "all_gather", "--ranks", ranks, "--bytes", "1MiB"];
        commgauge(folder.path(), &[&["predict", "--fit", "fit.json"][..], &call].concat())
    };
    assert_eq!(ask("8").status.code(), Some(0));
    let refused = ask("64");
    assert_eq!(refused.status.code(), Some(7));
    assert!(text(&refused.stdout).contains("refused: groups of 64 ranks"));
}
