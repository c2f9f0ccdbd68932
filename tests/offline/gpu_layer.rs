//! What `plan` says of computing, held against layers that PyTorch computed on an H100 (tests/data/h100).

use crate::common;

use common::{COMMGAUGE, Ran};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/h100").join(name)
}

/// Milliseconds that `plan` gives the forward and backward passes of Llama 3 8B with this many layers, on one GPU.
fn planned_milliseconds(folder: &Path, layers: u32, sequence: u32, more: &[&str]) -> f64 {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites/models/llama-3-8b/config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(source).unwrap()).unwrap();
    config["num_hidden_layers"] = layers.into();
    let model = folder.join(format!("layers-{layers}.json"));
    std::fs::write(&model, config.to_string()).unwrap();
    let mut command = Command::new(COMMGAUGE);
    command.args(["plan", "--gpus", "1", "--gpu-memory", "80GB", "--global-batch", "1", "--format", "json"]);
    command
        .args(["--machine", "h100-nvswitch-ndr", "--sequence", &sequence.to_string(), "--model"])
        .arg(model)
        .args(more);
    let said: Value = serde_json::from_str(&Ran::of(&mut command, 60).ended_with(0).stdout).unwrap();
    let layouts = said["layouts"].as_array().unwrap();
    let whole = layouts.iter().find(|layout| layout["recompute"] == "none").unwrap();
    1e3 * whole["compute_seconds"].as_f64().unwrap()
}

/// Products, attention, and norms, rotations and gates that PyTorch runs as several kernels each: fused, as Megatron has them, a layer takes less.
/// The level of published steps makes both longer than the products of A100 do.
#[test]
fn a_layer_alone_is_planned_as_long_as_pytorch_runs_it_by_the_level_of_whole_steps() {
    let measured: Value = serde_json::from_slice(&std::fs::read(data("pytorch-layers.json")).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let products = data("products.jsonl");
    let alone = ["--efficiency", "0.79"];
    let with_products = ["--efficiency", "measured", "--products", products.to_str().unwrap()];
    for sequence in [2048, 4096, 8192] {
        let of = |layers: u32| measured[format!("{sequence}/{layers}")]["forward_backward_ms"].as_f64().unwrap();
        let pytorch = (of(3) - of(1)) / 2.0;
        for (efficiency, unfused, errors) in [
            (&alone[..], &["--unfused-kernels"][..], -0.13..-0.05),
            (&alone, &[], -0.27..-0.19),
            (&[], &["--unfused-kernels"], -0.03..0.07),
            (&[], &[], -0.17..-0.06),
            (&with_products, &["--unfused-kernels"], -0.1..0.0),
            (&with_products, &[], -0.24..-0.14),
        ] {
            let more = [efficiency, unfused].concat();
            let planned = |layers| planned_milliseconds(folder.path(), layers, sequence, &more);
            let error = (planned(3) - planned(1)) / 2.0 / pytorch - 1.0;
            assert!(errors.contains(&error), "{sequence} tokens, {more:?}: {error:.3}");
        }
    }
    // The head and the loss, which are products and logits in fp32 alike.
    let head = measured["head_and_one_layer_ms"].as_f64().unwrap()
        - measured["8192/1"]["forward_backward_ms"].as_f64().unwrap();
    let planned = |layers| planned_milliseconds(folder.path(), layers, 8192, &alone);
    let error = (1.5 * planned(1) - 0.5 * planned(3)) / head - 1.0;
    assert!(error.abs() < 0.05, "head: {error:.3}");
}
