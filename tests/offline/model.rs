//! `commgauge show model` as a user starts it: from any directory, into a pipe, with a wrong argument. Needs nothing.

use crate::offline;

use offline::{commgauge, text};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_mistake_is_reported_on_stderr_and_ends_with_2() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("lacking.json"), r#"{"model_type": "llama", "hidden_size": 64}"#)
        .expect("written");
    for (arguments, expected) in [
        (&["show", "model"][..], "<MODEL>"),
        (&["show", "model", "lama-3-8b"], "there is no model `lama-3-8b`"),
        (&["show", "model", "lacking.json"], "lacking.json: num_attention_heads: is missing; also accepted: n_head"),
        (&["show", "model", "absent/config.json"], "there is no file `absent/config.json`"),
        (&["show", "model", "gpt2", "--format", "yaml"], "table, json"),
        (&["show", "schema", "poem"], "record, model"),
    ] {
        let output = commgauge(folder.path(), arguments);
        let (out, message) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected) && out.is_empty(), "{arguments:?}: {message}\n{out}");
    }
}

#[test]
fn a_preset_is_shown_from_any_directory() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = commgauge(folder.path(), &["show", "model", "llama-3-8b", "--width", "80"]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(out.starts_with("llama-3-8b  (llama, ") && out.contains("8,030,261,248"), "{out}");
    assert!(output.stderr.is_empty());
}

#[test]
fn the_json_that_is_printed_fits_the_schema_that_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let schema = commgauge(root, &["show", "schema", "model"]);
    let schema: Value = serde_json::from_slice(&schema.stdout).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let data = |name: &str| format!("tests/data/transformers/{name}");
    let (experts_alone, formulas) = (data("nemotron-3-super"), data("deepseek-v4-pro"));
    for model in
        ["llama-3-8b", "suites/models/gpt-oss-20b", "suites/models/deepseek-v3/config.json", &experts_alone, &formulas]
    {
        let output = commgauge(root, &["show", "model", model, "--format", "json"]);
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{model}: {errors:?}");
        assert_eq!((&document["format"], &document["version"]), (&"commgauge-model".into(), &1.into()));
    }
    let output = commgauge(root, &["show", "model", "gpt2", "--format", "json"]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for (field, expected) in [
        ("parameters_total", 124_439_808u64),
        ("parameters_active", 124_439_808),
        ("parameters_per_layer", 7_087_872),
        ("parameters_embedding", (50_257 + 1024) * 768),
        ("parameters_output_projection", 0),
    ] {
        assert_eq!(document[field], expected, "{field}");
    }
}

#[test]
fn a_reader_that_closes_the_pipe_early_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_commgauge"))
        .args(["show", "model", "gpt2"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("commgauge starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn steps_without_a_list_of_calls_are_refused_and_scaled_positions_have_a_warning() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ops = |model: &str, further: &[&str]| {
        let step = ["ops", "--ranks", "8", "--global-batch", "8", "--model", model];
        let output = commgauge(root, &[&step, further].concat());
        (output.status.code(), text(&output.stderr))
    };
    let (code, message) = ops("tests/data/transformers/glm-5.2", &["--sequence", "4096"]);
    assert!(code == Some(2) && message.contains("several of its layers share an indexer"), "{message}");
    let (code, message) = ops("llama-3-8b", &["--sequence", "16384"]);
    assert!(code == Some(2) && message.contains("llama-3-8b allows up to 8192 (max_position_embeddings)"), "{message}");
    let (code, message) = ops("tests/data/models/scaled-positions", &["--sequence", "262144"]);
    assert_eq!(code, Some(0), "{message}");
    assert_eq!(
        message.matches("warning: a sequence of 262144; scaled-positions allows up to 131072").count(),
        1,
        "{message}"
    );
}
