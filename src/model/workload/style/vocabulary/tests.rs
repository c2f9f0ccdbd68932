//! Known answers: Megatron-LM's vocabulary-parallel embedding, output layer and cross entropy, shapes of published models.

use crate::layout::Axis;
use crate::workload::Style;
use crate::workload::style::testing::{Row, refusal, rows, training, with_steps};
use crate::workload::when::{Overlap, Pass};
use commgauge_base::collective::Collective::{AllGather, AllReduce, ReduceScatter};
use commgauge_base::collective::ReduceOp;

const PLAIN: &str = "sequence = 8192\nmicro_batches = 3";
/// E b s h of llama-3-8b: 2 x 8192 x 4096.
const HIDDEN: u64 = 67_108_864;
const FORWARD: Option<Pass> = Some(Pass::Forward);
const BACKWARD: Option<Pass> = Some(Pass::Backward);

#[test]
fn the_ends_of_the_model_lie_on_their_stages() {
    let loss = (AllReduce, FORWARD, 4 * 8192, 1, Overlap::Exposed);
    let head = (AllReduce, BACKWARD, HIDDEN, 1, Overlap::WeightGradient);
    let embedding = (AllReduce, FORWARD, HIDDEN, 1, Overlap::Exposed);
    let parallel = format!("{PLAIN}\nsequence_parallel = true");
    let fused = format!("{PLAIN}\nfused_cross_entropy = true");
    let gathered = (AllGather, FORWARD, HIDDEN, 1, Overlap::Exposed);
    let again = (AllGather, BACKWARD, HIDDEN, 1, Overlap::InputGradient);
    let scattered = (ReduceScatter, BACKWARD, HIDDEN, 1, Overlap::WeightGradient);
    for (written, stage, expected) in [
        (PLAIN, 0, vec![embedding]),
        (PLAIN, 1, vec![]),
        (PLAIN, 3, vec![head, loss, loss, loss]),
        (&fused, 3, vec![head, loss, (AllReduce, FORWARD, 8 * 8192, 1, Overlap::Exposed)]),
        (
            &parallel,
            0,
            vec![
                (ReduceScatter, FORWARD, HIDDEN, 1, Overlap::Exposed),
                (AllGather, BACKWARD, HIDDEN, 1, Overlap::Exposed),
            ],
        ),
        (&parallel, 3, vec![gathered, again, scattered, loss, loss, loss]),
    ] {
        with_steps(&training("llama-3-8b", written, "tp = 8\npp = 4"), 32, |step| {
            let rows = rows(step, stage, Style::Vocabulary);
            assert_eq!(rows.iter().map(|row| row.short()).collect::<Vec<_>>(), expected, "{written} {stage}");
            assert!(rows.iter().all(|row| row.axis == Axis::Tp && row.calls_per_step == 3), "{rows:?}");
        });
    }
}

#[test]
fn the_largest_logit_is_a_maximum_and_the_others_are_sums() {
    with_steps(&training("llama-3-8b", PLAIN, "tp = 8"), 8, |step| {
        let ops = step.ops_of_stage(0).unwrap();
        let reductions: Vec<_> = ops
            .iter()
            .filter(|op| op.style == Style::Vocabulary && op.bytes_total.0 == 4 * 8192)
            .map(|op| op.reduce_op)
            .collect();
        assert_eq!(reductions, [Some(ReduceOp::Max), Some(ReduceOp::Sum), Some(ReduceOp::Sum)]);
    });
}

#[test]
fn context_parallelism_divides_the_tokens_of_the_loss() {
    with_steps(&training("llama-3-8b", PLAIN, "tp = 2\ncp = 4"), 8, |step| {
        let bytes: Vec<_> = rows(step, 0, Style::Vocabulary).iter().map(|row| row.bytes).collect();
        assert_eq!(bytes, [HIDDEN / 4, HIDDEN / 4, 8192, 8192, 8192]);
    });
}

#[test]
fn learned_positions_are_added_to_whole_sequences() {
    let written = "sequence = 2048\nmicro_batches = 1\nsequence_parallel = true";
    with_steps(&training("gpt3-175b", written, "tp = 8\npp = 12"), 96, |step| {
        let rows = rows(step, 0, Style::Vocabulary);
        let on_tp: Vec<_> = rows.iter().filter(|row| row.axis == Axis::Tp).map(|row| row.short()).collect();
        let hidden = 2 * 2048 * 12_288;
        let forward = (AllReduce, FORWARD, hidden, 1, Overlap::Exposed);
        assert_eq!(on_tp, [forward, (AllGather, BACKWARD, hidden, 1, Overlap::Exposed)]);
    });
}

#[test]
fn a_word_embedding_of_two_stages_is_reduced_once_in_a_step() {
    let gpt = "sequence = 1024\nmicro_batches = 4";
    let half = format!("{gpt}\ngradient_element_type = 'bfloat16'");
    let schedule = |name: &str| format!("{gpt}\nschedule = '{name}'");
    let (v_shaped, mirrored) = (schedule("zb-v"), schedule("dualpipe"));
    // GPT-2's 50257 words, padded to 50304 for one rank of tp and to 50432 for two.
    let whole = 4 * 50_304 * 768;
    for (preset, written, layout, ranks, stage, expected) in [
        ("gpt2", gpt, "pp = 2", 2, 0, Some(whole)),
        ("gpt2", gpt, "pp = 2", 2, 1, Some(whole)),
        ("gpt2", gpt, "pp = 3", 3, 1, None),
        ("gpt2", gpt, "tp = 2\npp = 2", 4, 0, Some(4 * 50_432 / 2 * 768)),
        ("gpt2", half.as_str(), "pp = 2", 2, 1, Some(whole / 2)),
        ("gpt2", gpt, "tp = 2", 2, 0, None),
        ("gpt2", v_shaped.as_str(), "pp = 2", 2, 0, None),
        ("gpt2", mirrored.as_str(), "pp = 2", 2, 0, Some(whole)),
        ("llama-3-8b", gpt, "pp = 2", 2, 0, None),
        // 51200 words x 12288 / 8 ranks x 4 B.
        ("gpt3-175b", gpt, "tp = 8\npp = 12", 96, 11, Some(314_572_800)),
    ] {
        with_steps(&training(preset, written, layout), ranks, |step| {
            let rows = rows(step, stage, Style::Vocabulary);
            let shared: Vec<_> = rows.iter().filter(|row| row.axis == Axis::Embedding).map(|row| row.short()).collect();
            let expected: Vec<_> =
                expected.iter().map(|bytes| (AllReduce, None, *bytes, 1, Overlap::Exposed)).collect();
            assert_eq!(shared, expected, "{preset} {written} {layout} {stage}");
        });
    }
}

#[test]
fn gathered_logits_leave_no_sums_to_the_loss() {
    // Hugging Face: 2 B x 8192 tokens x 128,256 words, and sums of 2 B x 8192 x 4096 of the embedding and of the input gradient.
    let written = "sequence = 8192\nmicro_batches = 3\nframework = 'hf'";
    with_steps(&training("llama-3-8b", written, "tp = 8"), 8, |step| {
        let found: Vec<_> =
            rows(step, 0, Style::Vocabulary).iter().map(|row| (row.collective, row.bytes, row.calls)).collect();
        let hidden = (AllReduce, 2 * 8192 * 4096, 1);
        assert_eq!(found, [hidden, (AllGather, 2 * 8192 * 128_256, 1), hidden]);
    });
}

#[test]
fn layers_that_predict_further_tokens_have_an_embedding_a_projection_and_a_loss_on_the_last_stage() {
    let of_stage = |further: &str, stage| {
        let mut found = Vec::new();
        let written = format!("{PLAIN}\n{further}");
        with_steps(&training("llama-3-8b", &written, "tp = 8\npp = 4"), 32, |step| {
            found = rows(step, stage, Style::Vocabulary)
        });
        found
    };
    let further = "prediction_layers = 2";
    let on_tp =
        |rows: &[Row]| rows.iter().filter(|row| row.axis == Axis::Tp).map(|row| row.calls_per_step).sum::<u64>();
    // Embedding, projection and its input gradient, head, three sums of the loss and two for the log, in 3 micro-batches.
    assert_eq!(on_tp(&of_stage(further, 3)) - on_tp(&of_stage("", 3)), 2 * 3 * (1 + 2 + 1 + 3 + 2));
    for stage in [0, 3] {
        let shared: Vec<_> = of_stage(further, stage).into_iter().filter(|row| row.axis == Axis::Embedding).collect();
        assert_eq!(shared.iter().map(|row| row.bytes).collect::<Vec<_>>(), [4 * 129_024 / 8 * 4096], "stage {stage}");
    }
    assert!(of_stage("", 0).iter().all(|row| row.axis != Axis::Embedding), "words are not shared without them");
}

#[test]
fn layers_that_predict_further_tokens_are_refused_where_nobody_lists_them() {
    for (written, layout, expected) in [
        ("", "cp = 2", "prediction_layers = 1 with cp = 2"),
        ("data_style = 'fsdp'", "dp = 2", "prediction_layers = 1 with data_style fsdp"),
        ("tensor_style = 'dtensor'", "tp = 2", "linears that are not divided as Megatron-LM does"),
        ("vocabulary_style = 'gathered'", "tp = 2", "prediction_layers = 1 with gathered logits"),
    ] {
        let suite = training("llama-3-8b", &format!("{PLAIN}\nprediction_layers = 1\n{written}"), layout);
        let message = refusal(&suite, 2);
        assert!(message.contains(expected), "{message}");
    }
}
