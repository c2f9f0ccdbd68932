//! Known answers of hybrid models, counted by hand: Qwen3-Next-80B-A3B, of whose 48 layers 36 have gated DeltaNet, and Nemotron-H-8B, of
//! whose 52 layers 24 are Mamba-2, 4 attention and 24 a feed-forward.

use super::testing::{refusal, rows, suite_of_class, with_steps};
use crate::config::Suite;
use crate::layout::Axis;
use crate::workload::Style;
use crate::workload::step::Step;
use crate::workload::when::{LayerKind, Pass, When};
use commgauge_base::collective::Collective::{self, AllGather, AllReduce, ReduceScatter};

/// E b s h of 4096 tokens: 2 x 4096 x 2048, and x 4096.
const QWEN_HIDDEN: u64 = 16_777_216;
const NEMOTRON_HIDDEN: u64 = 33_554_432;

fn training(model_type: &str, training: &str, layout: &str) -> Suite {
    let text = format!("[training]\nsequence = 4096\nmicro_batches = 2\n{training}\n[layout]\n{layout}\n");
    suite_of_class(model_type, &text)
}

fn serving(model_type: &str, serving: &str, layout: &str) -> Suite {
    suite_of_class(model_type, &format!("[serving]\nbatch = 16\n{serving}\n[layout]\n{layout}\n"))
}

/// Collective, pass, bytes, calls in a layer and in a step, of calls in layers.
fn in_layers(step: &Step, style: Style) -> Vec<(Collective, Option<Pass>, u64, u64, u64)> {
    let all = rows(step, 0, style);
    let in_layers = all.iter().filter(|row| row.pass.is_some());
    in_layers.map(|row| (row.collective, row.pass, row.bytes, row.calls, row.calls_per_step)).collect()
}

#[test]
fn axes_that_do_not_divide_linear_attention_are_refused_with_what_does() {
    for (model, layout, ranks, expected) in [
        ("qwen3_next", "cp = 2", 2, "gated DeltaNet), whose state follows the sequence"),
        (
            "nemotron_h",
            "cp = 2",
            2,
            "with cp = 2 it crosses the ranks, which frameworks do in different ways and no list here has",
        ),
        ("nemotron_h", "tp = 16", 16, "tp = 16 does not divide the 8 key heads of linear attention"),
        ("nemotron_h", "tp = 16", 16, "(n_groups); nearest that do: 8"),
        ("qwen3_next", "tp = 32", 32, "tp = 32 does not divide the 16 query heads"),
    ] {
        let message = refusal(&training(model, "sequence_parallel = true", layout), ranks);
        assert!(message.contains(expected), "{model} {layout}: {message}");
        assert!(message.contains("accepted: cp = 1") || message.contains("nearest that do"), "{message}");
    }
    // More query heads than heads of linear attention.
    let config = std::fs::read_to_string(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/transformers/qwen3_next/config.json"),
    );
    let mut config: serde_json::Value = serde_json::from_str(&config.unwrap()).unwrap();
    config["linear_num_key_heads"] = 4.into();
    let text = "[training]\nsequence = 4096\nmicro_batches = 2\nsequence_parallel = true\n[layout]\ntp = 8\n";
    let message = refusal(&super::testing::suite_of(&config, text), 8);
    assert!(
        message.contains("the 4 key heads of linear attention") && message.contains("linear_num_key_heads"),
        "{message}"
    );
    assert!(message.contains("nearest that do: 4"), "{message}");
}

#[test]
fn choices_that_divide_linear_attention_otherwise_are_refused() {
    for (model, written, expected) in [
        (
            "qwen3_next",
            "sequence_parallel = true\ntensor_style = 'dtensor'",
            "accepted: tensor_style = megatron, or tp = 1",
        ),
        ("nemotron_h", "linears = 'column'", "accepted: linears = pair, or tp = 1"),
        (
            "nemotron_h",
            "prediction_layers = 1",
            "prediction_layers = 1 with layers that are a mixer or a feed-forward alone",
        ),
    ] {
        let message = refusal(&training(model, written, "tp = 2"), 2);
        assert!(message.contains(expected), "{model} {written}: {message}");
    }
    let joined = serving("nemotron_h", "feed_forward_ranks = 'stage'", "tp = 2\ndp = 2");
    let message = refusal(&joined, 4);
    assert!(message.contains("accepted: feed_forward_ranks = replica"), "{message}");
}

#[test]
fn a_layer_with_linear_attention_has_the_calls_of_one_with_attention() {
    // Every layer has experts with a shared one: two pairs of linears in each of 48 layers, in 2 micro-batches.
    let (forward, backward) = (Some(Pass::Forward), Some(Pass::Backward));
    with_steps(&training("qwen3_next", "sequence_parallel = true", "tp = 2"), 2, |step| {
        assert_eq!(
            in_layers(step, Style::Sequence),
            [
                (AllGather, forward, QWEN_HIDDEN, 2, 2 * 48 * 2),
                (AllGather, backward, QWEN_HIDDEN, 2, 2 * 48 * 2),
                (ReduceScatter, backward, QWEN_HIDDEN, 2, 2 * 48 * 2),
                (ReduceScatter, forward, QWEN_HIDDEN, 2, 2 * 48 * 2),
                (AllGather, backward, QWEN_HIDDEN, 2, 2 * 48 * 2),
            ]
        );
    });
}

#[test]
fn layers_of_one_block_have_one_pair_of_linears() {
    let (forward, backward) = (Some(Pass::Forward), Some(Pass::Backward));
    with_steps(&training("nemotron_h", "", "tp = 2"), 2, |step| {
        let expected =
            [(AllReduce, forward, NEMOTRON_HIDDEN, 1, 52 * 2), (AllReduce, backward, NEMOTRON_HIDDEN, 1, 52 * 2)];
        assert_eq!(in_layers(step, Style::Tensor), expected);
    });
    with_steps(&training("nemotron_h", "sequence_parallel = true", "tp = 2"), 2, |step| {
        let calls: Vec<_> = in_layers(step, Style::Sequence).into_iter().map(|row| (row.0, row.3)).collect();
        assert_eq!(calls, [(AllGather, 1), (AllGather, 1), (ReduceScatter, 1), (ReduceScatter, 1), (AllGather, 1)]);
    });
    with_steps(&serving("nemotron_h", "prompt_tokens = 256", "tp = 2"), 2, |step| {
        let calls = in_layers(step, Style::Serving);
        assert!(calls.iter().any(|row| (row.0, row.3, row.4) == (AllReduce, 1, 52)), "{calls:?}");
        let ops = step.ops_of_stage(0).unwrap();
        let of_layers = ops.iter().find(|op| matches!(op.when, When::Layer { .. })).unwrap();
        let says =
            of_layers.why.contains("keys and values, and states of linear attention, stay where their heads are");
        assert_eq!(says, step.phase_name() == "decode", "{}", of_layers.why);
    });
}

#[test]
fn what_every_rank_of_tp_holds_whole_is_reduced_once() {
    let once = |model: &str| -> Vec<u64> {
        let mut found = Vec::new();
        with_steps(&training(model, "sequence_parallel = true", "tp = 2"), 2, |step| {
            let all = rows(step, 0, Style::Sequence);
            found.extend(all.iter().filter(|row| row.pass.is_none()).map(|row| row.bytes / 4));
        });
        found
    };
    // 97 norms of 2048; in each layer a router of 512 x 2048 and the gate of the shared expert; in 12 layers two norms of heads of 256,
    // in 36 one of heads of 128.
    assert_eq!(once("qwen3_next"), [97 * 2048 + 48 * (512 * 2048 + 2048) + 12 * 2 * 256 + 36 * 128]);
    // 53 norms of 4096; the norms of Mamba-2 are divided.
    assert_eq!(once("nemotron_h"), [53 * 4096]);
}

#[test]
fn shards_are_gathered_by_kind_of_layer() {
    let units = |model: &str| -> Vec<(LayerKind, u64, u64)> {
        let mut found = Vec::new();
        with_steps(&training(model, "data_style = 'fsdp'\nparameter_element_type = 'bfloat16'", "dp = 2"), 2, |step| {
            let ops = step.ops_of_stage(0).unwrap();
            let gathers = ops.iter().filter(|op| op.style == Style::Data && op.collective == AllGather);
            found.extend(gathers.filter_map(|op| match op.when {
                When::Layer { pass: Pass::Forward, kind, layers, .. } => Some((kind, layers, op.bytes_total.0 / 2)),
                _ => None,
            }));
        });
        found
    };
    // A Mamba-2 layer: norm 4096, three numbers for each of 128 heads, 10240 filters of 4 with a bias, projections 4096 x 18560 and
    // 8192 x 4096, and a norm of 8192.
    let mamba = 4096 + 3 * 128 + 10_240 * 5 + 4096 * 18_560 + 8192 * 4096 + 8192;
    let attention = 4096 + 4096 * (2 * 4096 + 2 * 1024);
    let feed_forward = 4096 + 2 * 4096 * 21_504;
    assert_eq!(
        units("nemotron_h"),
        [
            (LayerKind::AttentionAlone, 4, attention),
            (LayerKind::LinearAlone, 24, mamba),
            (LayerKind::Dense, 24, feed_forward),
        ]
    );
    // Projections to 12288 + 64 of 2048, 8192 filters of 4, two numbers for each of 32 heads, a norm of 128, and back from 4096.
    let delta = 2048 * (12_288 + 64) + 8192 * 4 + 2 * 32 + 128 + 4096 * 2048;
    let gated = 2048 * (2 * 4096 + 2 * 512) + 4096 * 2048 + 2 * 256;
    let rest = 2 * 2048 + 513 * 3 * 2048 * 512 + 512 * 2048 + 2048;
    assert_eq!(
        units("qwen3_next"),
        [(LayerKind::AttentionAndExperts, 12, gated + rest), (LayerKind::LinearAndExperts, 36, delta + rest)]
    );
}

#[test]
fn a_layer_that_drafts_for_a_hybrid_model_has_attention_and_a_feed_forward() {
    with_steps(&serving("nemotron_h", "drafted_tokens = 1\ndrafter = 'eagle'", "tp = 2"), 2, |step| {
        let ops = step.ops_of_stage(0).unwrap();
        let drafting = ops.iter().filter(|op| op.axis == Axis::Tp && op.why.starts_with("drafting: "));
        let calls: Vec<_> = drafting.map(|op| (op.collective, op.when.count_per_micro_batch().unwrap())).collect();
        assert_eq!(calls, [(AllReduce, 1), (AllReduce, 2), (AllGather, 1)]);
    });
}
