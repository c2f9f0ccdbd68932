//! `commgauge rank` as a user starts it, from public measurements and from a machine file. Needs nothing.

use crate::offline;

use offline::{commgauge, text};
use serde_json::Value;
use std::fs;
use std::path::Path;

const STEP: &str = "--model llama-3-8b --tp 8 --sequence 8192 --global-batch 16";

/// A folder with `fit.json`, of one node without the placement of its groups, and `machine.toml`.
fn fitted() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::copy(root.join("tests/data/nccl/h100_sxm-nccl-2.29.2.csv"), folder.path().join("h100.csv")).expect("copied");
    fs::copy(root.join("suites/machines/h100-nvswitch-ndr.toml"), folder.path().join("machine.toml")).expect("copied");
    for arguments in [
        &["import", "--from", "csv", "h100.csv", "-o", "h100.jsonl"][..],
        &["calibrate", "h100.jsonl", "-o", "fit.json", "--resamples", "0"],
    ] {
        let output = commgauge(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    }
    folder
}

fn rank(folder: &Path, flags: &str) -> (Option<i32>, String, String) {
    let arguments: Vec<&str> = std::iter::once("rank").chain(flags.split_whitespace()).collect();
    let output = commgauge(folder, &arguments);
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_mistake_is_reported_on_stderr_and_ends_with_2() {
    let folder = fitted();
    fs::write(folder.path().join("newer.json"), r#"{"format": "commgauge-fit", "version": 99}"#).expect("written");
    for (flags, expected) in [
        (STEP.to_owned(), "<--fit <FILE>|--machine <FILE>>"),
        (format!("{STEP} --fit absent.json"), "absent.json: cannot read the fit"),
        (format!("{STEP} --fit newer.json"), "version 99; this commgauge reads"),
        (format!("{STEP} --fit fit.json"), "--ranks-per-node is missing; a fit does not say"),
        (format!("{STEP} --fit fit.json --ranks-per-node 0"), "--ranks-per-node: found 0; accepted: 1 or more"),
        (format!("{STEP} --fit fit.json --unknown-locality here"), "found locality `here`"),
        (format!("{STEP} --machine machine.toml --unknown-locality 1n"), "--fit <FILE>"),
        (format!("{STEP} --machine fit.json"), "fit.json"),
        (format!("{STEP} --machine machine.toml --ranks 9"), "8 ranks, but there are 9"),
        (format!("{STEP} --machine machine.toml --resamples 1"), "1 is not in 100..=1000000"),
        ("--machine machine.toml --model poem --tp 8 --sequence 8192 --micro-batches 1".to_owned(), "poem"),
        (
            "--machine machine.toml --model llama-3-8b --tp 8 --serve prefill,decode --batch 8".to_owned(),
            "one phase can be ranked at a time",
        ),
    ] {
        let (code, out, message) = rank(folder.path(), &flags);
        assert_eq!(code, Some(2), "{flags}: {message}");
        assert!(message.contains(expected) && out.is_empty(), "{flags}: {message}\n{out}");
    }
}

#[test]
fn queries_outside_the_fit_are_refused_and_never_invented() {
    let folder = fitted();
    let flags = format!("{STEP} --fit fit.json --ranks-per-node 8 --format json");
    let (code, out, message) = rank(folder.path(), &flags);
    assert_eq!(code, Some(0), "{message}");
    let document: Value = serde_json::from_str(&out).expect("JSON");
    let axis = &document["axes"][0];
    assert_eq!((&axis["axis"], &axis["seconds_per_step"]["value"]), (&"tp".into(), &0.0.into()));
    assert!(axis["grounds"]["refused"].as_u64() > Some(0), "{axis}");
    assert!(axis["grounds"]["reason"].as_str().expect("a reason").contains("--unknown-locality"), "{axis}");
}

#[test]
fn a_user_stated_place_is_priced_and_the_rest_comes_from_the_named_machine() {
    let folder = fitted();
    let vouched = format!("{STEP} --fit fit.json --unknown-locality 1n --ranks-per-node 8 --format json");
    let (_, out, _) = rank(folder.path(), &vouched);
    let document: Value = serde_json::from_str(&out).expect("JSON");
    let tensor = &document["axes"][0];
    assert!(document["calibrated"] == true && tensor["grounds"]["refused"] == 0, "{tensor}");
    let seconds = &tensor["seconds_per_step"];
    assert!(
        seconds["low"].as_f64() < seconds["value"].as_f64() && seconds["value"].as_f64() < seconds["high"].as_f64()
    );
    let both = format!(
        "{} --pp 2 --fit fit.json --unknown-locality 1n --machine machine.toml --format json",
        STEP.replace("--sequence", "--dp 2 --sequence")
    );
    let (_, out, _) = rank(folder.path(), &both);
    let document: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(document["calibrated"], false);
    let grounds: Vec<&str> =
        document["axes"].as_array().expect("axes").iter().filter_map(|axis| axis["ground"].as_str()).collect();
    assert!(grounds.iter().any(|ground| ground.starts_with("all_reduce of float16 on 8 ranks")), "{grounds:?}");
    assert!(grounds.iter().any(|ground| ground.contains("not calibrated (the fit: send_recv_chain")), "{grounds:?}");
}

#[test]
fn the_printed_document_fits_the_published_schema_and_comes_out_the_same_twice() {
    let folder = fitted();
    let schema = commgauge(folder.path(), &["show", "schema", "rank"]);
    let schema: Value = serde_json::from_slice(&schema.stdout).expect("a schema");
    let validator = jsonschema::validator_for(&schema).expect("a valid schema");
    for flags in [
        format!("{STEP} --fit fit.json --ranks-per-node 8 --format json"),
        format!("{STEP} --fit fit.json --unknown-locality 1n --ranks-per-node 8 --format json"),
        "--machine machine.toml --model mixtral-8x7b --ep 8 --dp 16 --sequence 4096 --micro-batches 2 --format json"
            .to_owned(),
        "--machine machine.toml --model llama-3-8b --tp 4 --serve decode --batch 16 --format json".to_owned(),
        "--machine machine.toml --model llama-3-8b --sequence 8192 --global-batch 1 --format json".to_owned(),
    ] {
        let (code, out, message) = rank(folder.path(), &flags);
        assert_eq!(code, Some(0), "{flags}: {message}");
        let document: Value = serde_json::from_str(&out).expect("JSON");
        let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{flags}: {errors:?}");
        assert_eq!(out, rank(folder.path(), &flags).1, "{flags}");
    }
}

#[test]
fn the_comma_separated_form_has_one_line_for_each_axis() {
    let folder = fitted();
    let (_, out, _) = rank(folder.path(), &format!("{STEP} --dp 2 --machine machine.toml --format csv"));
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("axis,parallelism,group_size,stage,nodes_spanned"), "{out}");
    assert!(lines[1..].iter().all(|line| line.ends_with("false,false")) && lines.len() == 4, "{out}");
    assert!(lines.iter().any(|line| line.starts_with("tp,TP,8,0,1,1,1,")), "{out}");
}

#[test]
fn the_step_is_priced_by_the_model_of_plan() {
    let folder = fitted();
    let step =
        "--model llama-3-8b --tp 2 --dp 4 --sequence 4096 --global-batch 16 --sequence-parallel --data-style zero1";
    let (code, out, message) = rank(folder.path(), &format!("{step} --machine machine.toml --format json"));
    assert_eq!(code, Some(0), "{message}");
    let document: Value = serde_json::from_str(&out).expect("JSON");
    let price = &document["step"]["price"];
    let seconds = |key: &str| price[key].as_f64().expect("seconds");
    let plan = "plan --machine machine.toml --model llama-3-8b --gpus 8 --gpu-memory 80GB --global-batch 16 --sequence 4096 --only \
                tp=2,cp=1,pp=1,dp=4,zero_stage=1,micro_batch=1,recompute=none,order=tp-cp-ep-dp-pp --format json";
    let planned = commgauge(folder.path(), &plan.split_whitespace().collect::<Vec<_>>());
    let planned: Value = serde_json::from_slice(&planned.stdout).expect("JSON");
    let best = &planned["layouts"][0];
    for key in ["step_seconds", "step_seconds_low", "step_seconds_high", "compute_seconds", "optimizer_seconds"] {
        let expected = best[key].as_f64().expect("seconds");
        assert!((seconds(key) / expected - 1.0).abs() < 1e-9, "{key}: {price} {best}");
    }
    let (_, table, _) = rank(folder.path(), &format!("{step} --machine machine.toml"));
    assert!(table.contains("the step") && table.contains("95 of 100 such steps take"), "{table}");
    let (_, table, _) =
        rank(folder.path(), "--model llama-3-8b --tp 8 --serve decode --batch 8 --machine machine.toml");
    assert!(!table.contains("95 of 100 such steps"), "{table}");
}
