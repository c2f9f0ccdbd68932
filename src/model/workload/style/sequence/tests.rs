//! Known answers: arXiv 2205.05198 section 4.2.2 and Megatron-LM's linears (six all_gathers and four reduce_scatters in a
//! dense layer), and parameters of published models.

use crate::layout::Axis;
use crate::workload::Style;
use crate::workload::style::testing::{calls_of, refusal, rows, suite_of, training, wire, with_steps};
use crate::workload::when::{Overlap, Pass};
use commgauge_base::collective::Collective::{AllGather, AllReduce, ReduceScatter};
use serde_json::json;

const PARALLEL: &str = "sequence = 8192\nmicro_batches = 3\nsequence_parallel = true";
/// E b s h of llama-3-8b: 2 x 8192 x 4096.
const HIDDEN: u64 = 67_108_864;

#[test]
fn a_sequence_that_does_not_come_out_even_is_refused_with_the_nearest_that_do() {
    let written = "sequence = 4100\nmicro_batches = 1\nsequence_parallel = true";
    let message = refusal(&training("llama-3-8b", written, "tp = 8\ncp = 2"), 16);
    assert!(message.contains("4100 / cp 2 = 2050 tokens by tp = 8"), "{message}");
    assert!(message.contains("nearest sequences that do: 4096, 4112"), "{message}");
}

#[test]
fn six_gathers_and_four_reduce_scatters_in_every_layer_of_which_four_are_hidden() {
    let (forward, backward) = (Some(Pass::Forward), Some(Pass::Backward));
    for (recompute, expected) in [
        (
            "selective",
            vec![
                (AllGather, forward, HIDDEN, 2, Overlap::Exposed),
                (AllGather, backward, HIDDEN, 2, Overlap::InputGradient),
                (ReduceScatter, backward, HIDDEN, 2, Overlap::WeightGradient),
                (ReduceScatter, forward, HIDDEN, 2, Overlap::Exposed),
                (AllGather, backward, HIDDEN, 2, Overlap::Exposed),
            ],
        ),
        (
            "full",
            vec![
                (AllGather, forward, HIDDEN, 2, Overlap::Exposed),
                (AllGather, Some(Pass::Recompute), HIDDEN, 2, Overlap::Exposed),
                (AllGather, backward, HIDDEN, 2, Overlap::InputGradient),
                (ReduceScatter, backward, HIDDEN, 2, Overlap::WeightGradient),
                (ReduceScatter, forward, HIDDEN, 2, Overlap::Exposed),
                (ReduceScatter, Some(Pass::Recompute), HIDDEN, 2, Overlap::Exposed),
                (AllGather, backward, HIDDEN, 2, Overlap::Exposed),
            ],
        ),
    ] {
        let suite = training("llama-3-8b", &format!("{PARALLEL}\nrecompute = '{recompute}'"), "tp = 8");
        with_steps(&suite, 8, |step| {
            let rows = rows(step, 0, Style::Sequence);
            let (in_layers, once): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.pass.is_some());
            assert_eq!(in_layers.iter().map(|row| row.short()).collect::<Vec<_>>(), expected, "{recompute}");
            assert!(in_layers.iter().all(|row| row.calls_per_step == 2 * 32 * 3));
            // Two norms in each of 32 layers and one behind them, 4096 wide, gradients of 4 B.
            assert_eq!(once.iter().map(|row| (row.bytes, row.calls)).collect::<Vec<_>>(), [(65 * 4096 * 4, 1)]);
            assert!(super::super::testing::rows(step, 0, Style::Tensor).is_empty());
        });
    }
}

#[test]
fn a_quarter_more_bytes_than_without_and_the_same_exposed() {
    let layers = |written: &str, style| {
        let mut found = (0, 0);
        with_steps(&training("llama-3-8b", written, "tp = 8\npp = 4"), 32, |step| {
            // The coalesced all_reduce of a middle stage: 8 layers of two norms, 2 (t-1)/t of their bytes.
            let norms = if style == Style::Sequence { 2 * 7 * (8 * 2 * 4096 * 4) / 8 } else { 0 };
            let (all, exposed) = wire(step, 1, style, Axis::Tp);
            found = (all - norms, exposed - norms);
        });
        found
    };
    let plain = layers("sequence = 8192\nmicro_batches = 3", Style::Tensor);
    let divided = layers(PARALLEL, Style::Sequence);
    let one = 8192 * 4096 * 7 / 8 * 8 * 3;
    assert_eq!(plain, (16 * one, 8 * one));
    assert_eq!(divided, (20 * one, 12 * one));
    // Forward alone: a gather and a reduce_scatter are an all_reduce.
    assert_eq!(divided.0 * 4, plain.0 * 5);
}

#[test]
fn gradients_of_replicated_parameters_are_reduced_once_in_a_step() {
    let gpt = "sequence = 2048\nmicro_batches = 1\nsequence_parallel = true";
    let half = format!("{gpt}\ngradient_element_type = 'bfloat16'");
    // GPT-3: two norms with bias and two biases of row-parallel linears in each of 8 layers, 12288 wide.
    let in_layers = 8 * 6 * 12_288;
    for (written, stage, bytes) in
        [(gpt, 0, in_layers * 4), (gpt, 11, (in_layers + 2 * 12_288) * 4), (half.as_str(), 5, in_layers * 2)]
    {
        with_steps(&training("gpt3-175b", written, "tp = 8\npp = 12"), 96, |step| {
            let rows = rows(step, stage, Style::Sequence);
            let once: Vec<_> = rows.iter().filter(|row| row.pass.is_none()).map(|row| row.short()).collect();
            assert_eq!(once, [(AllReduce, None, bytes, 1, Overlap::Exposed)], "{written} {stage}");
        });
    }
}

#[test]
fn one_rank_sends_nothing() {
    with_steps(&training("llama-3-8b", PARALLEL, "dp = 2"), 2, |step| {
        assert!(rows(step, 0, Style::Sequence).is_empty());
    });
}

#[test]
fn layers_of_routed_experts_have_the_linears_of_attention_only() {
    let written = "sequence = 4096\nmicro_batches = 1\nsequence_parallel = true";
    with_steps(&training("mixtral-8x7b", written, "tp = 2"), 2, |step| {
        let rows = rows(step, 0, Style::Sequence);
        assert_eq!(calls_of(&rows), [1, 3, 2]);
        // Two norms and a router of 8 experts in each of 32 layers, and the last norm.
        let once = rows.iter().find(|row| row.pass.is_none()).unwrap();
        assert_eq!(once.bytes, (32 * (2 + 8) + 1) * 4096 * 4);
    });
}

/// Layers with and without shared experts, and dense ones, of one model.
#[test]
fn dense_layers_and_shared_experts_are_divided_routed_experts_are_not() {
    let config = |shared: u64| {
        json!({"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
        "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_attention_heads": 128,
        "num_key_value_heads": 128, "vocab_size": 129280, "max_position_embeddings": 163840,
        "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": shared, "first_k_dense_replace": 3,
        "moe_layer_freq": 1, "n_group": 8, "topk_group": 4, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "tie_word_embeddings": false})
    };
    let text = "[training]\nsequence = 4096\nmicro_batches = 1\nsequence_parallel = true\n[layout]\ntp = 8";
    let hidden = 2 * 4096 * 7168;
    for (shared, expected) in [(1, (2 * 61, 2 * 61, 61)), (0, (61 + 3, 61 + 3, 3))] {
        with_steps(&suite_of(&config(shared), text), 8, |step| {
            let rows = rows(step, 0, Style::Sequence);
            let calls = |collective, pass| -> u64 {
                let of = |row: &&super::super::testing::Row| {
                    row.bytes == hidden && (row.collective, row.pass) == (collective, Some(pass))
                };
                rows.iter().filter(of).filter(|row| row.overlap == Overlap::Exposed).map(|row| row.calls_per_step).sum()
            };
            let found = (
                calls(ReduceScatter, Pass::Forward),
                calls(AllGather, Pass::Backward),
                calls(AllGather, Pass::Forward),
            );
            assert_eq!(found, expected, "{shared} shared experts");
        });
    }
    with_steps(&suite_of(&config(1), text), 8, |step| {
        let rows = rows(step, 0, Style::Sequence);
        // Instead of the hidden state: 1536 of queries, 512 of keys and values, 64 rotated.
        for (width, expected) in [(1536, [0, 2, 1]), (512, [0, 2, 1]), (64, [0, 1, 1])] {
            let of_width: Vec<_> = rows.iter().filter(|row| row.bytes == 2 * 4096 * width).cloned().collect();
            assert_eq!(calls_of(&of_width), expected, "width {width}");
        }
        // Norms, both projections to the compressed width with their norms; routers of 58 layers; the last norm.
        let each = 2 * 7168 + (7168 * 1536 + 1536) + (7168 * (512 + 64) + 512);
        let once = rows.iter().find(|row| row.pass.is_none()).unwrap();
        assert_eq!(once.bytes, (61 * each + 58 * 7168 * 256 + 7168) * 4);
    });
}

#[test]
fn inputs_that_are_stored_whole_need_four_gathers_and_four_reduce_scatters() {
    let (forward, backward) = (Some(Pass::Forward), Some(Pass::Backward));
    let gathered = (AllGather, forward, HIDDEN, 2, Overlap::Exposed);
    let scattered = (ReduceScatter, forward, HIDDEN, 2, Overlap::Exposed);
    let back = [
        (ReduceScatter, backward, HIDDEN, 2, Overlap::WeightGradient),
        (AllGather, backward, HIDDEN, 2, Overlap::Exposed),
    ];
    // Checkpointing gathers both inputs again, and stops before the last sum (torch/utils/checkpoint.py).
    let again = [
        (AllGather, Some(Pass::Recompute), HIDDEN, 2, Overlap::Exposed),
        (ReduceScatter, Some(Pass::Recompute), HIDDEN, 1, Overlap::Exposed),
    ];
    for (recompute, expected) in [
        ("none", vec![gathered, back[0], scattered, back[1]]),
        ("full", vec![gathered, again[0], back[0], scattered, again[1], back[1]]),
    ] {
        let written =
            format!("sequence = 8192\nmicro_batches = 3\nframework = 'torchtitan'\nrecompute = '{recompute}'");
        with_steps(&training("llama-3-8b", &written, "tp = 8"), 8, |step| {
            let found: Vec<_> = rows(step, 0, Style::Sequence).iter().map(|row| row.short()).collect();
            assert_eq!(found[..expected.len()], expected, "{recompute}");
        });
    }
}

/// Calls of a layer of llama-3-8b, tp 8: collective, pass, bytes, calls, what hides them.
fn in_layers(written: &str) -> Vec<(commgauge_base::collective::Collective, Option<Pass>, u64, u64, Overlap)> {
    let mut found = Vec::new();
    with_steps(&training("llama-3-8b", &format!("{PARALLEL}\n{written}"), "tp = 8"), 8, |step| {
        let rows = rows(step, 0, Style::Sequence);
        found = rows.iter().filter(|row| row.pass.is_some()).map(|row| row.short()).collect();
    });
    found
}

#[test]
fn transformer_engine_gathers_in_8_bits_and_reduces_in_16() {
    let (forward, backward) = (Some(Pass::Forward), Some(Pass::Backward));
    // 8192 x 4096 bytes, and their scales: one for 32.
    let (data, scales) = (HIDDEN / 2, HIDDEN / 2 / 32);
    let current = [
        (AllReduce, forward, 4, 2, Overlap::Exposed),
        (AllGather, forward, data, 2, Overlap::Exposed),
        (AllGather, backward, data, 2, Overlap::InputGradient),
        (ReduceScatter, backward, HIDDEN, 2, Overlap::WeightGradient),
        (ReduceScatter, forward, HIDDEN, 2, Overlap::Exposed),
        (AllReduce, backward, 4, 2, Overlap::Exposed),
        (AllGather, backward, data, 2, Overlap::Exposed),
    ];
    assert_eq!(in_layers("gather_recipe = 'fp8_current'"), current);
    let blocks = [
        (AllGather, forward, scales, 2, Overlap::Exposed),
        (AllGather, forward, data, 2, Overlap::Exposed),
        (AllGather, backward, scales, 2, Overlap::InputGradient),
        (AllGather, backward, data, 2, Overlap::InputGradient),
        (ReduceScatter, backward, HIDDEN, 2, Overlap::WeightGradient),
        (ReduceScatter, forward, HIDDEN, 2, Overlap::Exposed),
        // Rows for the gradient of the input and columns for that of the weights: more than in 16 bits.
        (AllGather, backward, scales, 2, Overlap::Exposed),
        (AllGather, backward, data, 2, Overlap::Exposed),
        (AllGather, backward, scales, 2, Overlap::Exposed),
        (AllGather, backward, data, 2, Overlap::Exposed),
    ];
    assert_eq!(in_layers("gather_recipe = 'mxfp8'"), blocks);
    assert!(2 * (data + scales) > HIDDEN);
}

#[test]
fn products_in_pieces_hide_all_calls_of_the_linears_but_move_the_same() {
    let plain = in_layers("");
    let pieces = in_layers("product_overlap = 'pieces'");
    let moved = |calls: &[(commgauge_base::collective::Collective, Option<Pass>, u64, u64, Overlap)]| {
        calls.iter().map(|call| (call.0, call.1, call.2, call.3)).collect::<Vec<_>>()
    };
    assert_eq!(moved(&plain), moved(&pieces));
    let hidden: Vec<Overlap> = pieces.iter().map(|call| call.4).collect();
    use Overlap::{InputGradient, Pieces, WeightGradient};
    assert_eq!(hidden, [Pieces, InputGradient, WeightGradient, Pieces, Pieces]);
    // The largest element is known before the gather begins.
    assert_eq!(in_layers("product_overlap = 'pieces'\ngather_recipe = 'fp8_current'")[0].4, Overlap::Exposed);
    // Scales go by themselves before, and the second gather of a gradient beside the product of the first.
    let blocks = in_layers("product_overlap = 'pieces'\ngather_recipe = 'mxfp8'");
    assert_eq!(moved(&in_layers("gather_recipe = 'mxfp8'")), moved(&blocks));
    let hidden: Vec<Overlap> = blocks.iter().map(|call| call.4).collect();
    use Overlap::Exposed;
    let (forward, again) = ([Exposed, Pieces], [Exposed, InputGradient]);
    let scattered = [WeightGradient, Pieces];
    assert_eq!(hidden, [&forward[..], &again, &scattered, &forward, &again].concat());
    assert!(
        in_layers("product_overlap = 'pieces'\noverlap_tensor = false").iter().all(|call| call.4 == Overlap::Exposed)
    );
}

#[test]
fn recipes_and_pieces_are_refused_where_nothing_is_gathered_so() {
    for (written, expected) in [
        ("sequence = 8192\nmicro_batches = 1\ngather_recipe = 'mxfp8'", "accepted: with sequence_parallel = true"),
        (
            "sequence = 8192\nmicro_batches = 1\nproduct_overlap = 'pieces'",
            "product_overlap = pieces is of the calls of sequence",
        ),
        (
            "sequence = 8192\nmicro_batches = 1\nsequence_parallel = true\ntensor_style = 'dtensor'\ngather_recipe = 'fp8_current'",
            "tensor_style = dtensor; accepted: tensor_style = megatron",
        ),
        (
            "sequence = 64\nmicro_batches = 1\nsequence_parallel = true\ngather_recipe = 'mxfp8'",
            "needs 8 tokens of a rank",
        ),
        (
            "sequence = 512\nmicro_batches = 1\nsequence_parallel = true\ngather_recipe = 'mxfp8'\nproduct_overlap = 'pieces'",
            "with product_overlap = pieces needs 64 tokens of a rank and 4096 elements of a token in multiples of 128 and 32",
        ),
    ] {
        let message = refusal(&training("llama-3-8b", written, "tp = 8"), 8);
        assert!(message.contains(expected), "{written}: {message}");
    }
}
