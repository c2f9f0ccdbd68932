//! Known answers: table 1 of the communications of arXiv 1909.08053 (two all_reduces forward, two backward in every
//! layer), and bytes per step computed for published runs.

use crate::layout::Axis;
use crate::workload::Style;
use crate::workload::style::testing::{refusal, rows, suite_of, training, wire, with_steps};
use crate::workload::when::{Overlap, Pass};
use commgauge_base::collective::Collective::{AllGather, AllReduce};
use serde_json::json;

const EIGHT_B: &str = "sequence = 8192\nmicro_batches = 3";
/// E b s h of llama-3-8b: 2 x 8192 x 4096.
const HIDDEN: u64 = 67_108_864;

#[test]
fn indivisible_layers_are_refused() {
    let mixtral = "sequence = 4096\nmicro_batches = 1";
    let alone = format!("{EIGHT_B}\nlinears = 'column'");
    let beside = format!("{alone}\nsequence_parallel = true");
    for (preset, written, layout, ranks, expected) in [
        ("mixtral-8x7b", mixtral, "tp = 2", 2, "tp = 2 with the experts of mixtral-8x7b needs sequence parallelism"),
        ("llama-3-8b", beside.as_str(), "tp = 2", 2, "linears = column cannot be combined with sequence_parallel"),
        ("llama-3-8b", EIGHT_B, "tp = 5", 5, "tp = 5 does not divide the 32 query heads of llama-3-8b"),
        ("llama-3-8b", EIGHT_B, "tp = 64", 64, "tp = 64 does not divide the 32 query heads of llama-3-8b"),
        ("qwen2.5-0.5b", EIGHT_B, "tp = 7", 7, "tp = 7 does not divide the 4864 inner width of qwen2.5-0.5b"),
    ] {
        let message = refusal(&training(preset, written, layout), ranks);
        assert!(message.contains(expected), "{preset} {layout}: {message}");
    }
}

#[test]
fn heads_that_neither_divide_nor_are_divided_are_refused() {
    let config = json!({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 12, "num_key_value_heads": 3,
        "num_hidden_layers": 2, "head_dim": 16, "intermediate_size": 144, "vocab_size": 256, "max_position_embeddings": 512});
    let text = |linears: &str| {
        format!("[training]\nsequence = 128\nmicro_batches = 1\nlinears = '{linears}'\n[layout]\ntp = 2")
    };
    let message = refusal(&suite_of(&config, &text("pair")), 2);
    assert!(message.contains("tp = 2 neither divides the 3 key and value heads"), "{message}");
    let message = refusal(&suite_of(&config, &text("row").replace("tp = 2", "tp = 3")), 3);
    assert!(message.contains("linears = row: tp = 3 does not divide the 64 hidden width"), "{message}");
}

#[test]
fn the_pair_reduces_twice_forward_and_twice_backward_in_every_layer() {
    let forward = (AllReduce, Some(Pass::Forward), HIDDEN, 2, Overlap::Exposed);
    let again = (AllReduce, Some(Pass::Recompute), HIDDEN, 2, Overlap::Exposed);
    let backward = (AllReduce, Some(Pass::Backward), HIDDEN, 2, Overlap::WeightGradient);
    for (recompute, expected) in [
        ("none", vec![forward, backward]),
        ("selective", vec![forward, backward]),
        ("full", vec![forward, again, backward]),
    ] {
        let suite = training("llama-3-8b", &format!("{EIGHT_B}\nrecompute = '{recompute}'"), "tp = 8\npp = 2");
        with_steps(&suite, 16, |step| {
            let rows = rows(step, 1, Style::Tensor);
            assert_eq!(rows.iter().map(|row| row.short()).collect::<Vec<_>>(), expected, "{recompute}");
            // Sixteen layers of the stage, three micro-batches.
            assert!(rows.iter().all(|row| row.axis == Axis::Tp && row.calls_per_step == 2 * 16 * 3), "{rows:?}");
        });
    }
}

#[test]
fn context_parallelism_and_larger_micro_batches_change_the_bytes() {
    for (written, layout, ranks, expected) in [
        ("sequence = 8192\nmicro_batches = 1", "tp = 2\ncp = 4", 8, HIDDEN / 4),
        ("sequence = 8192\nmicro_batches = 1\nmicro_batch = 3", "tp = 2", 2, HIDDEN * 3),
        ("sequence = 8192\nmicro_batches = 1\nactivation_element_type = 'float32'", "tp = 2", 2, HIDDEN * 2),
    ] {
        with_steps(&training("llama-3-8b", written, layout), ranks, |step| {
            assert!(rows(step, 0, Style::Tensor).iter().all(|row| row.bytes == expected), "{written} {layout}");
        });
    }
}

#[test]
fn published_runs_have_their_published_bytes_per_step() {
    // GB that one rank sends: 16 (t-1)/t T_d h L/p in bfloat16, half as much again if every layer is recomputed.
    for (preset, written, layout, ranks, expected) in [
        // arXiv 2104.04473 table 2: GPT-3 175B on 1536 A100.
        (
            "gpt3-175b",
            "sequence = 2048\nglobal_batch = 1536\nrecompute = 'full'",
            "tp = 8\npp = 12\ndp = 16",
            1536,
            "405.9",
        ),
        ("llama-3-70b", "sequence = 2048\nglobal_batch = 8", "tp = 8\ndp = 8", 64, "18.8"),
        ("llama-3-70b", "sequence = 8192\nglobal_batch = 64", "tp = 8\ndp = 8", 64, "601.3"),
        ("llama-2-7b", "sequence = 4096\nglobal_batch = 1024", "tp = 2\ndp = 512", 1024, "8.6"),
        ("llama-2-7b", "sequence = 4096\nglobal_batch = 1024", "tp = 2\ndp = 64", 128, "68.7"),
    ] {
        with_steps(&training(preset, written, layout), ranks, |step| {
            let stage = step.stages().count() / 2;
            let (all, exposed) = wire(step, stage, Style::Tensor, Axis::Tp);
            assert_eq!(format!("{:.1}", all as f64 * 1e-9), expected, "{preset} {layout}");
            // Forward, and again in a recomputation.
            let hidden = if written.contains("full") { 3 } else { 2 };
            assert_eq!(exposed * hidden, all * (hidden - 1), "{preset} {layout}");
        });
    }
}

#[test]
fn linears_alone_gather_or_reduce_their_own_output() {
    // 2 B x 8192 tokens, times widths of llama-3-8b: QKV 128 (32 + 2 x 8), both inputs of the gated feed-forward 2 x 14336.
    let (qkv, fc1, inner) = (16_384 * 6144, 16_384 * 28_672, 16_384 * 14_336);
    let (forward, backward) = (Some(Pass::Forward), Some(Pass::Backward));
    let (exposed, beside) = (Overlap::Exposed, Overlap::WeightGradient);
    for (linears, expected) in [
        (
            "column",
            vec![
                (AllGather, forward, qkv, 1, exposed),
                (AllReduce, backward, HIDDEN, 1, beside),
                (AllGather, forward, HIDDEN, 1, exposed),
                (AllReduce, backward, HIDDEN, 1, beside),
                (AllGather, forward, fc1, 1, exposed),
                (AllReduce, backward, HIDDEN, 1, beside),
                (AllGather, forward, HIDDEN, 1, exposed),
                (AllReduce, backward, inner, 1, beside),
            ],
        ),
        (
            "row",
            vec![
                (AllReduce, forward, qkv, 1, exposed),
                (AllGather, backward, HIDDEN, 1, exposed),
                (AllReduce, forward, HIDDEN, 1, exposed),
                (AllGather, backward, HIDDEN, 1, exposed),
                (AllReduce, forward, fc1, 1, exposed),
                (AllGather, backward, HIDDEN, 1, exposed),
                (AllReduce, forward, HIDDEN, 1, exposed),
                (AllGather, backward, inner, 1, exposed),
            ],
        ),
    ] {
        let suite = training("llama-3-8b", &format!("{EIGHT_B}\nlinears = '{linears}'"), "tp = 8");
        with_steps(&suite, 8, |step| {
            let rows = rows(step, 0, Style::Tensor);
            assert_eq!(rows.iter().map(|row| row.short()).collect::<Vec<_>>(), expected, "{linears}");
        });
    }
}

#[test]
fn linears_alone_repeat_their_forward_calls_under_full_recomputation() {
    for linears in ["column", "row"] {
        let suite = training("llama-3-8b", &format!("{EIGHT_B}\nlinears = '{linears}'\nrecompute = 'full'"), "tp = 8");
        with_steps(&suite, 8, |step| {
            let rows = rows(step, 0, Style::Tensor);
            let of =
                |pass| -> Vec<u64> { rows.iter().filter(|row| row.pass == Some(pass)).map(|row| row.bytes).collect() };
            assert_eq!((of(Pass::Forward), rows.len()), (of(Pass::Recompute), 12), "{linears}");
        });
    }
}

#[test]
fn replicated_key_and_value_heads_widen_the_gathered_output() {
    // 8 key and value heads: 16 ranks gather 16, of which 8 are copies. Row-parallel weights are cut elsewhere.
    for (linears, tp, width) in [("column", 8, 6144), ("column", 16, 8192), ("row", 16, 6144)] {
        let suite = training("llama-3-8b", &format!("{EIGHT_B}\nlinears = '{linears}'"), &format!("tp = {tp}"));
        with_steps(&suite, tp, |step| {
            assert_eq!(rows(step, 0, Style::Tensor)[0].bytes, 16_384 * width, "{linears} {tp}");
        });
    }
}

#[test]
fn norms_of_queries_and_keys_are_reduced_once_in_a_step() {
    // Qwen3-0.6B: 28 layers, two norms as wide as a head of 128, gradients of 4 B.
    let config = json!({"model_type": "qwen3", "num_hidden_layers": 28, "hidden_size": 1024, "head_dim": 128,
        "intermediate_size": 3072, "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 151936,
        "tie_word_embeddings": true, "attention_bias": false, "max_position_embeddings": 40960});
    let suite = suite_of(&config, "[training]\nsequence = 4096\nmicro_batches = 5\n[layout]\ntp = 2");
    with_steps(&suite, 2, |step| {
        let rows = rows(step, 0, Style::Tensor);
        let norms = rows.iter().find(|row| row.pass.is_none()).unwrap();
        assert_eq!((norms.bytes, norms.calls_per_step, norms.overlap), (28 * 256 * 4, 1, Overlap::Exposed));
    });
}

#[test]
fn a_parallel_residual_is_reduced_once_forward() {
    let suite = training("gpt-neox-20b", "sequence = 2048\nmicro_batches = 1", "tp = 2");
    with_steps(&suite, 2, |step| {
        let rows = rows(step, 0, Style::Tensor);
        let calls: Vec<_> = rows.iter().map(|row| (row.pass, row.calls)).collect();
        assert_eq!(calls, [(Some(Pass::Forward), 1), (Some(Pass::Backward), 2)]);
    });
}

#[test]
fn linears_that_are_divided_alone_reduce_their_input_gradients_alone() {
    // q, k, v, gate and up: five sums backward where Megatron-LM has two (transformers base_model_tp_plan).
    let forward = (AllReduce, Some(Pass::Forward), HIDDEN, 2, Overlap::Exposed);
    let backward = (AllReduce, Some(Pass::Backward), HIDDEN, 5, Overlap::WeightGradient);
    for written in ["tensor_style = 'dtensor'", "framework = 'hf'"] {
        let suite = training("llama-3-8b", &format!("{EIGHT_B}\n{written}"), "tp = 8");
        with_steps(&suite, 8, |step| {
            let rows = rows(step, 0, Style::Tensor);
            assert_eq!(rows.iter().map(|row| row.short()).collect::<Vec<_>>(), [forward, backward], "{written}");
        });
    }
}
