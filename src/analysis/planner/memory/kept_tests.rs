//! What layers keep, against the tensors that transformers' own layers save for their backward pass
//! (`scripts/check-frameworks` records them in tests/data/transformers/kept.json).

use super::*;
use crate::planner::kernels::Kernels;
use crate::planner::testing::with_step;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Deserialize)]
struct Recorded {
    sequence: u64,
    kept: Vec<KeptByLayer>,
    /// The config.json of each model, of two layers.
    configs: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct KeptByLayer {
    model: String,
    attention: String,
    computed: String,
    bytes: u64,
}

fn recorded() -> Recorded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/transformers/kept.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Bytes that one of the two layers of a model keeps.
fn kept(config: &Value, computed: &str, sequence: u64, kernels: Kernels) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    std::fs::write(&path, config.to_string()).unwrap();
    let types = match computed {
        "autocast" => "activation_element_type = 'bfloat16'\ngradient_element_type = 'float32'".to_owned(),
        element => format!("activation_element_type = '{element}'\ngradient_element_type = '{element}'"),
    };
    let training = format!("framework = 'hf'\ndata_style = 'ddp'\nsequence = {sequence}\n{types}");
    let choices = MemoryChoices::with(kernels);
    let all = with_step(path.to_str().unwrap(), &training, "tp = 1", 1, |step| choices.memory(step, 0).activations);
    all.0 as f64 / 2.0
}

#[test]
fn layers_keep_what_those_of_transformers_save() {
    let Recorded { sequence, kept: rows, configs } = recorded();
    assert!(rows.len() >= 85 && configs.len() >= 16);
    for row in rows {
        let kernels = Kernels { fused_attention: row.attention == "sdpa", fused_elementwise: false };
        let found = kept(&configs[&row.model], &row.computed, sequence, kernels);
        let error = found / row.bytes as f64 - 1.0;
        assert!(error.abs() < 0.01, "{} {} {}: {:+.1} %", row.model, row.attention, row.computed, 100.0 * error);
    }
}

#[test]
fn fused_kernels_keep_less_in_every_model() {
    let Recorded { sequence, configs, .. } = recorded();
    for (model, config) in configs {
        let of = |kernels| kept(&config, "bfloat16", sequence, kernels);
        let separate = Kernels { fused_attention: true, fused_elementwise: false };
        // LayerNorm and GELU are one kernel of PyTorch, and gpt2 asks for GELU by operations.
        assert!(of(Kernels::FUSED) < of(separate), "{model}");
        assert!(of(separate) < of(Kernels { fused_attention: false, ..separate }), "{model}");
    }
}
