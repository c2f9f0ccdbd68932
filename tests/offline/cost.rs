//! `commgauge import`, `fit` and `predict` as a user starts them, one after the other. Needs nothing.

use crate::offline;

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
        &["calibrate", "h100.jsonl", "-o", "fit.json", "--resamples", "40"],
    ] {
        let output = commgauge(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    }
    folder
}

#[test]
fn a_mistake_is_reported_on_stderr_and_ends_with_2() {
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
        (&["calibrate", "h100.csv"], "is not a commgauge record"),
        (&["calibrate", "h100.jsonl", "-o", "h100.jsonl"], "is one of the inputs; name another file"),
        (&["rank", "call", "--fit", "h100.jsonl", "--queries", "q.csv"], "is not a commgauge fit"),
        (
            &["rank", "call", "--fit", "newer.json", "--queries", "q.csv"],
            "version 99; this commgauge reads up to version 2",
        ),
        (&["rank", "call", "--fit", "fit.json", "--queries", "q.csv"], "line 2: bytes_total: found `1MiB`"),
        (&["rank", "call", "--fit", "fit.json", "--collective", "all_reduce"], "--ranks"),
        (&["rank", "call", "--fit", "fit.json", "--collective", "poem", "--ranks", "2", "--bytes", "1"], "all_gather"),
    ] {
        let output = commgauge(folder.path(), arguments);
        let (out, message) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected) && out.is_empty(), "{arguments:?}: {message}\n{out}");
    }
    assert!(!at("r.jsonl").exists(), "nothing is written where a line cannot be read");
}

#[test]
fn a_call_measured_at_one_size_answers_for_that_size_with_an_interval_from_its_replicates() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows =
        "all_reduce,8,33554432,bfloat16,300\nall_reduce,8,33554432,bfloat16,310\nall_reduce,8,33554432,bfloat16,305\n";
    let csv = format!("collective,ranks,bytes_total,dtype,latency_us\n{rows}");
    fs::write(folder.path().join("one.csv"), csv).expect("written");
    let run = |arguments: &str| {
        let output = commgauge(folder.path(), &arguments.split_whitespace().collect::<Vec<_>>());
        (output.status.code(), text(&output.stdout))
    };
    assert_eq!(run("import --from csv one.csv -o one.jsonl").0, Some(0));
    let (code, fitted) = run("calibrate one.jsonl -o one.json");
    assert!(code == Some(0) && fitted.contains("1 size measured, a curve needs two"), "{fitted}");
    let call = "rank call --fit one.json --collective all_reduce --ranks 8 --format json --bytes";
    let (code, answer) = run(&format!("{call} 32MiB"));
    let document: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    let found = &document["predictions"][0];
    let seconds = |end: &str| found[end].as_f64().expect("seconds");
    assert_eq!((code, found["status"].as_str()), (Some(0), Some("measured")), "{answer}");
    assert!(seconds("low") < 300e-6 && seconds("high") > 310e-6, "{answer}");
    let (code, answer) = run(&format!("{call} 16MiB"));
    assert!(code == Some(7) && answer.contains("only single sizes were measured: 32 MiB on 8 ranks"), "{answer}");
    // Of a step, calls of that very size have a time; an axis without any has none, rather than more than nothing.
    let step =
        "rank --fit one.json --unknown-locality 1n --ranks-per-node 8 --model llama-3-8b --tp 8 --global-batch 8";
    let (code, ranked) = run(&format!("{step} --sequence 4096"));
    assert!(code == Some(0) && ranked.contains("4 measured, 3 REFUSED") && !ranked.contains("> 0.000"), "{ranked}");
    let (code, ranked) = run(&format!("{step} --sequence 2048"));
    assert!(code == Some(0) && ranked.contains("REFUSED") && !ranked.contains("0.000 ns"), "{ranked}");
}

#[test]
fn lines_left_out_on_request_are_listed_in_the_record() {
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
    let schema: Value = serde_json::from_slice(&commgauge(folder.path(), &["show", "schema"]).stdout).expect("JSON");
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
fn predictions_follow_the_columns_of_their_queries() {
    let folder = fitted();
    let queries = "collective,ranks,bytes_total,dtype,note\n\
                   all_reduce,8,1048576,half,measured\n\
                   alltoall,6,3000000,,between\n\
                   all_reduce,8,100,int8,below\n\
                   all_reduce,8,4096,,two types\n";
    fs::write(folder.path().join("q.csv"), queries).expect("written");
    let ask = |format: &str| {
        let output =
            commgauge(folder.path(), &["rank", "call", "--fit", "fit.json", "--queries", "q.csv", "--format", format]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let out = ask("csv");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "collective,ranks,bytes_total,dtype,note,seconds,low,high,status,untrusted,reason");
    for (line, begin, end) in [
        (lines[1], "all_reduce,8,1048576,half,measured,2.5", ",interpolated,false,"),
        (lines[2], "alltoall,6,3000000,,between,", ",transferred,false,"),
        (lines[3], "all_reduce,8,100,int8,below,1.5", ",extrapolated,false,"),
        (lines[4], "all_reduce,8,4096,,two types,,,,refused,false,", "specify the dtype: float16 or int8"),
    ] {
        assert!(line.starts_with(begin) && line.ends_with(end), "{line}");
    }
    let document: Value = serde_json::from_str(&ask("json")).expect("JSON");
    let predictions = document["predictions"].as_array().expect("a list");
    assert_eq!(predictions.len(), 4);
    assert_eq!(predictions[1]["status"], "transferred");
    assert!(predictions[3]["reason"].as_str().expect("a reason").contains("specify the dtype: float16 or int8"));
    assert_eq!(document["synthetic"], false);
}

#[test]
fn a_single_call_that_is_refused_ends_with_7() {
    let folder = fitted();
    let ask = |ranks: &str| {
        let call = ["--collective", "all_gather", "--ranks", ranks, "--bytes", "1MiB"];
        commgauge(folder.path(), &[&["rank", "call", "--fit", "fit.json"][..], &call].concat())
    };
    assert_eq!(ask("8").status.code(), Some(0));
    let refused = ask("64");
    assert_eq!(refused.status.code(), Some(7));
    assert!(text(&refused.stdout).contains("on 64 ranks: groups of 64 ranks"));
}

/// A record and a fit of rows of CSV; returns the output of `fit`.
fn fit_of(folder: &Path, rows: &str, flags: &[&str]) -> (Option<i32>, String) {
    fs::write(folder.join("rows.csv"), rows).expect("written");
    let _ = fs::remove_file(folder.join("rows.jsonl"));
    let imported = commgauge(folder, &["import", "--from", "csv", "rows.csv", "-o", "rows.jsonl"]);
    assert_eq!(imported.status.code(), Some(0), "{}", text(&imported.stderr));
    let output = commgauge(folder, &[&["calibrate", "rows.jsonl", "-o", "fit.json"][..], flags].concat());
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

fn predicted(folder: &Path, call: &[&str]) -> (Option<i32>, String) {
    let output = commgauge(folder, &[&["rank", "call", "--fit", "fit.json"][..], call].concat());
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// Rows of a call of two ranks, 1 KiB to 16 MiB, each in a locality and slower by this factor.
fn rows(of: &[(&str, f64)]) -> String {
    let mut text = "collective,dtype,ranks,bytes_total,latency_us,locality\n".to_owned();
    for (locality, slower) in of {
        for power in 10..25 {
            let bytes = 1u64 << power;
            text += &format!("all_gather,half,2,{bytes},{},{locality}\n", 20.0 + slower * bytes as f64 * 1e-4);
        }
    }
    text
}

#[test]
fn facts_missing_in_a_record_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let heading = "collective,dtype,ranks,bytes_total,latency_us\n";
    let equal: String = (10..20).map(|power| format!("all_gather,half,8,{},7\n", 1u64 << power)).collect();
    let (code, message) = fit_of(folder.path(), &(heading.to_owned() + &equal), &["--width", "200"]);
    assert_eq!(code, Some(0), "{message}");
    assert!(message.contains("more bytes do not take longer, so its bandwidth is unknown"), "{message}");
    let call = |ranks: &'static str| ["--collective", "all_gather", "--ranks", ranks, "--bytes", "64KiB"];
    let (code, message) = predicted(folder.path(), &call("4"));
    assert_eq!(code, Some(7));
    assert!(message.contains("only groups of 8 ranks were measured"), "{message}");
    let (code, message) = predicted(folder.path(), &["--collective", "all_gather", "--ranks", "8", "--bytes", "4MiB"]);
    assert!(code == Some(0) && message.contains("extrapolated"), "{message}");
}

#[test]
fn a_synthetic_record_is_marked_in_the_fit_and_in_every_prediction() {
    let folder = tempfile::tempdir().expect("a folder");
    fit_of(folder.path(), &rows(&[("1n", 1.0)]), &[]);
    let record = fs::read_to_string(folder.path().join("rows.jsonl")).expect("readable");
    assert!(record.contains(r#""synthetic":false"#));
    fs::write(folder.path().join("rows.jsonl"), record.replacen(r#""synthetic":false"#, r#""synthetic":true"#, 1))
        .expect("written");
    let output = commgauge(folder.path(), &["calibrate", "rows.jsonl", "-o", "fit.json"]);
    assert!(text(&output.stdout).starts_with("SYNTHETIC"), "{}", text(&output.stdout));
    let call = ["--collective", "all_gather", "--ranks", "2", "--bytes", "64KiB", "--format"];
    for (format, mark) in [("table", "SYNTHETIC"), ("csv", "synthetic: the fit"), ("json", r#""synthetic": true"#)] {
        let (_, message) = predicted(folder.path(), &[&call[..], &[format]].concat());
        assert!(message.contains(mark), "{format}: {message}");
    }
}

#[test]
fn another_number_of_concurrent_groups_is_answered_by_the_fitted_contention() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, message) = fit_of(folder.path(), &rows(&[("2n/1g/s8", 1.0), ("2n/4g/s8", 4.0)]), &["--width", "140"]);
    assert_eq!(code, Some(0), "{message}");
    assert!(
        message.contains("Contention") && message.contains("across nodes") && message.contains("1..4 groups"),
        "{message}"
    );
    let call = |locality: &'static str| {
        ["--collective", "all_gather", "--ranks", "2", "--bytes", "16MiB", "--locality", locality]
    };
    let (code, message) = predicted(folder.path(), &call("2n/2g/s8"));
    assert!(
        code == Some(0) && message.contains("transferred") && message.contains("on 2 ranks: from locality 2n/"),
        "{message}"
    );
    let (code, message) = predicted(folder.path(), &call("2n/64g/s8"));
    assert!(code == Some(7) && message.contains("64 concurrent groups"), "{message}");
}

#[test]
fn a_fit_of_version_1_is_still_read() {
    let folder = tempfile::tempdir().expect("a folder");
    fit_of(folder.path(), &rows(&[("1n", 1.0)]), &[]);
    let path = folder.path().join("fit.json");
    let mut fit: Value = serde_json::from_str(&fs::read_to_string(&path).expect("readable")).expect("JSON");
    fit["version"] = 1.into();
    let curve = fit["families"][0]["curves"][0].as_object_mut().expect("a curve");
    curve.remove("breakpoints");
    for point in curve["points"].as_array_mut().expect("points") {
        point.as_object_mut().expect("a point").remove("left_out_error");
    }
    fs::write(&path, fit.to_string()).expect("written");
    let (code, message) = predicted(folder.path(), &["--collective", "all_gather", "--ranks", "2", "--bytes", "64KiB"]);
    assert!(code == Some(0) && message.contains("interpolated"), "{message}");
}

#[test]
fn predictions_fit_their_published_schema() {
    let folder = fitted();
    let schema: Value =
        serde_json::from_slice(&commgauge(folder.path(), &["show", "schema", "predictions"]).stdout).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    fs::write(folder.path().join("q.csv"), "collective,ranks,bytes_total\nall_gather,8,4096\nall_gather,99,4096\n")
        .expect("written");
    let (_, answer) = predicted(folder.path(), &["--queries", "q.csv", "--format", "json"]);
    let document: Value = serde_json::from_str(&answer).expect("JSON");
    let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(document["predictions"][1]["status"], "refused");
}

#[test]
fn every_family_is_drawn_into_the_folder_that_was_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, message) = fit_of(folder.path(), &rows(&[("1n", 1.0)]), &["--plots", "plots"]);
    assert_eq!(code, Some(0), "{message}");
    let picture = fs::read_to_string(folder.path().join("plots/001-all_gather-any-1n-1g-s1-streaming.svg"));
    assert!(picture.expect("a picture").contains("Sizes left out: predicted against measured"));
}
