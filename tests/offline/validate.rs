//! `commgauge plan validate` as a user starts it, with runs of their own. Needs nothing.

use crate::offline;

use offline::{commgauge, text};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn validate(folder: &Path, flags: &str) -> (Option<i32>, String, String) {
    let arguments: Vec<&str> = ["plan", "validate"].into_iter().chain(flags.split_whitespace()).collect();
    let output = commgauge(folder, &arguments);
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

const HEADING: &str = "model,gpus,tp,dp,sequence,micro_batch,global_batch,recompute,fused_attention,step_seconds\n";
const GOOD: &str = "megatron-3.6b,64,4,16,2048,16,512,full,false,4.49\nmegatron-3.6b,64,8,8,2048,16,512,full,false,5.02\n\
                    megatron-18.4b,256,8,32,2048,8,1024,full,false,9.60\n";

#[test]
fn own_runs_are_replayed_from_the_columns_of_the_template() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, template, _) = validate(folder.path(), "--template");
    assert!(code == Some(0) && template.starts_with("model,variant,gpus,tp,"), "{template}");
    fs::write(folder.path().join("runs.csv"), format!("{HEADING}{GOOD}")).expect("written");
    let flags = "--runs runs.csv --machine azure-ndv4-a100";
    let (code, out, message) = validate(folder.path(), &format!("{flags} --format json"));
    assert_eq!(code, Some(0), "{message}");
    let document: Value = serde_json::from_str(&out).expect("JSON");
    crate::common::fits_schema("validation", &document);
    let set = &document["sets"][0];
    assert_eq!((set["source"].as_str(), set["runs"].as_array().map(Vec::len)), (Some("runs.csv"), Some(3)));
    assert!(set["left_out"]["mean_percent"].as_f64() < Some(15.0), "{out}");
    let (_, table, _) = validate(folder.path(), flags);
    assert!(table.contains("megatron-18.4b") && table.contains("model left out"), "{table}");
}

#[test]
fn every_choice_of_a_training_may_be_a_column() {
    let folder = tempfile::tempdir().expect("a folder");
    let error_percent = |columns: &str, values: &str| {
        let heading = HEADING.trim_end();
        let rows: String = GOOD.lines().map(|row| format!("{row},{values}\n")).collect();
        fs::write(folder.path().join("runs.csv"), format!("{heading},{columns}\n{rows}")).expect("written");
        let (code, out, message) = validate(folder.path(), "--runs runs.csv --machine azure-ndv4-a100 --format json");
        assert_eq!(code, Some(0), "{columns}: {message}");
        let document: Value = serde_json::from_str(&out).expect("JSON");
        document["sets"][0]["runs"][0]["error_percent"].as_f64().expect("an error")
    };
    let plain = error_percent("variant", "");
    assert!(error_percent("batch_broadcast", "fields_and_mask").total_cmp(&plain).is_ne());
    let separate = error_percent("framework,data_style", "hf,ddp");
    assert!(separate > error_percent("framework,data_style,fused_kernels", "hf,ddp,true"));
}

#[test]
fn a_wrong_row_is_named_with_its_column() {
    let folder = tempfile::tempdir().expect("a folder");
    for (row, expected) in [
        ("megatron-3.6b,64,4,16,2048,16,512,full,false,0.2", "line 5: step_seconds: 0.2 s would be"),
        ("megatron-3.6b,64,4,16,2048,16,512,full,false,4490", "line 5: step_seconds: 4490 s would be"),
        ("megatron-3.6b,64,4,16,2048,16,512,full,false,4.5s", "line 5: step_seconds: found `4.5s`"),
        ("megatron-3.6b,32,4,16,2048,16,512,full,false,4.5", "line 5: gpus: found 32"),
        ("megatron-3.6b,64,4,16,2048,16,512,half,false,4.5", "line 5: recompute: "),
    ] {
        fs::write(folder.path().join("runs.csv"), format!("{HEADING}{GOOD}{row}\n")).expect("written");
        let (code, out, message) = validate(folder.path(), "--runs runs.csv --machine azure-ndv4-a100");
        assert!(code == Some(2) && out.is_empty() && message.contains(expected), "{row}: {message}");
    }
    fs::write(folder.path().join("runs.csv"), format!("{HEADING}{GOOD}")).expect("written");
    let (code, _, message) = validate(folder.path(), "--runs runs.csv");
    assert!(code == Some(2) && message.contains("--machine FILE"), "{message}");
    let (code, _, message) = validate(folder.path(), "--runs absent.csv --machine azure-ndv4-a100");
    assert!(code == Some(2) && message.contains("absent.csv: cannot be read"), "{message}");
}
