//! Which parallelism should be inside a host: the placement predicted to be faster from bytes and rates is the one
//! measured to be faster, even if the rule of thumb differs. Needs virtual hosts; skipped without.

use crate::common;

use common::hosts::VirtualCluster;
use common::{Ran, STEP, SWEEP, lines, of_kind, record_in, words};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// 1 Gbit/s, shared by the groups of the axis across the hosts, as two ranks of each host send at a time.
const BETWEEN_HOSTS: f64 = 0.125e9;
const GROUPS_AT_ONCE: f64 = 2.0;

/// One layer, with gradients of 16 MB on a rank of two.
const MODEL: &str = r#"{"model_type": "llama", "hidden_size": 768, "num_attention_heads": 8, "num_hidden_layers": 1,
    "intermediate_size": 2112, "vocab_size": 512, "max_position_embeddings": 512}"#;
/// Activations of 32 bits, which MPI adds up itself: 16 bits would be added up by this build, which is not
/// optimized. Nor is the data checked, which would take it longer than the rest.
const STEP_FLAGS: &str = "--tp 2 --dp 2 --sequence 160 --activation-type fp32 -n 4 -w 1 --replicates 1 --warm-buffers \
    --check 0 --format json";

/// Bytes that a rank sends in a step on one axis, and how long that takes.
struct Axis {
    wire_bytes: f64,
    seconds: f64,
}

/// A step with one of the two axes inside the hosts and the other across them.
struct Placement {
    inside: Axis,
    across: Axis,
}

impl Placement {
    fn measured(&self) -> f64 {
        self.inside.seconds + self.across.seconds
    }

    fn predicted(&self, rate_inside: f64) -> f64 {
        self.inside.wire_bytes / rate_inside + self.across.wire_bytes * GROUPS_AT_ONCE / BETWEEN_HOSTS
    }
}

fn report(command: &mut Command) -> Value {
    let ran = Ran::alone(command, 120).ended_with(0);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {}", ran.stdout))
}

/// Measures a step with one axis inside the hosts and the other across, and checks the placement.
fn placed(cluster: &VirtualCluster, model: &Path, micro_batches: u32, inside: &str, across: &str) -> Placement {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let record = record_in(&folder);
    let mut command = cluster.command(4, 2, STEP);
    command.args(words(STEP_FLAGS)).arg("--model").arg(model).arg("--record").arg(&record);
    command.args(["--micro-batches", &micro_batches.to_string(), "--order", &format!("{inside}-{across}")]);
    let report = report(&mut command);
    for case in of_kind(&lines(&record), "plan")[0]["cases"].as_array().expect("cases") {
        let nodes_spanned = match case["axis"].as_str() {
            Some(axis) if axis == inside => 1,
            Some(axis) if axis == across => 2,
            _ => continue,
        };
        assert_eq!(case["locality"]["nodes_spanned"], nodes_spanned, "{}", case["name"]);
    }
    let axis = |name: &str| {
        let axes = report["steps"][0]["axes"].as_array().expect("axes");
        let axis = axes.iter().find(|axis| axis["name"] == name).unwrap_or_else(|| panic!("no {name}: {axes:?}"));
        assert_eq!(axis["ops_without_a_time"], 0, "{axis}");
        let number = |key: &str| axis[key].as_f64().unwrap_or_else(|| panic!("no {key}: {axis}"));
        Axis { wire_bytes: number("wire_bytes_per_step"), seconds: number("seconds_per_step_median") }
    };
    Placement { inside: axis(inside), across: axis(across) }
}

/// Bytes per second between two ranks of a host.
fn rate_inside_a_host(cluster: &VirtualCluster, folder: &Path) -> f64 {
    let mut command = cluster.command(2, 2, SWEEP);
    command.args(words("ping_pong -b 4M -e 4M --iters 6 --warmup_iters 1 --replicates 1 --warm-buffers --format json"));
    let report = report(command.arg("--record").arg(folder.join("inside.jsonl")));
    report["rows"][0]["busbw_bytes_per_second"].as_f64().expect("a rate")
}

#[test]
fn the_placement_that_bytes_and_rates_predict_to_be_quicker_is_quicker() {
    let Some(cluster) = VirtualCluster::up_for_ranks("placement", 2, "1gbit", &[]) else { return };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let model = folder.path().join("config.json");
    std::fs::write(&model, MODEL).unwrap();
    let rate_inside = rate_inside_a_host(&cluster, folder.path());
    eprintln!("inside a host: {:.3} GB/s", rate_inside / 1e9);
    // TP moves 2 MB in every micro-batch, DP 16 MB in a step. The rule of thumb has TP inside in both.
    for (micro_batches, belongs_inside) in [(64, "tp"), (1, "dp")] {
        let tensor_inside = placed(&cluster, &model, micro_batches, "tp", "dp");
        let data_inside = placed(&cluster, &model, micro_batches, "dp", "tp");
        // How many times as long the step communicates with DP inside.
        let predicted = data_inside.predicted(rate_inside) / tensor_inside.predicted(rate_inside);
        let measured = data_inside.measured() / tensor_inside.measured();
        eprintln!(
            "{micro_batches} micro-batches: TP {:.1} MB, DP {:.1} MB; DP inside over TP inside: \
             predicted {predicted:.3}, measured {measured:.3} ({:.0} ms over {:.0} ms)",
            tensor_inside.inside.wire_bytes / 1e6,
            tensor_inside.across.wire_bytes / 1e6,
            data_inside.measured() * 1e3,
            tensor_inside.measured() * 1e3,
        );
        let (predicted, measured) =
            if belongs_inside == "tp" { (predicted, measured) } else { (1.0 / predicted, 1.0 / measured) };
        assert!(predicted >= 2.0, "{micro_batches} micro-batches: {predicted} leaves too little to tell them apart");
        assert!(
            measured > 1.0,
            "{micro_batches} micro-batches: {belongs_inside} inside is not the quicker: {measured}"
        );
    }
}
