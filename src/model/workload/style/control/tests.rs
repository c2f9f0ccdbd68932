//! Known answers: the calls of Megatron-LM's finalize_model_grads, optimizer step and train_step, counted by hand.

use crate::layout::Axis;
use crate::workload::Style;
use crate::workload::style::testing::{rows, training, with_steps};
use commgauge_base::collective::Collective::{AllReduce, Broadcast};

#[test]
fn a_step_ends_with_a_few_calls_of_four_or_eight_bytes() {
    let ddp = "sequence = 1024\nmicro_batches = 7";
    let zero = format!("{ddp}\ndata_style = 'zero1'");
    let common = [(Broadcast, Axis::Pp, 4), (AllReduce, Axis::Dp, 4)];
    let updated = [(AllReduce, Axis::Mp, 4), (AllReduce, Axis::Mp, 4)];
    let statistics = |axis| [(AllReduce, axis, 4), (AllReduce, axis, 4)];
    let loss = [(AllReduce, Axis::Dp, 8)];
    let all = |axis, loss: &[_]| [&common[..], &statistics(axis), &updated, loss].concat();
    for (written, layout, ranks, stage, expected) in [
        (ddp, "tp = 2\npp = 2\ndp = 2", 8, 0, all(Axis::Mp, &[])),
        (ddp, "tp = 2\npp = 2\ndp = 2", 8, 1, all(Axis::Mp, &loss)),
        (zero.as_str(), "tp = 2\npp = 2\ndp = 2", 8, 1, all(Axis::World, &loss)),
        (ddp, "dp = 2", 2, 0, vec![(AllReduce, Axis::Dp, 4), (AllReduce, Axis::Dp, 8)]),
        (ddp, "cp = 2", 2, 0, vec![(AllReduce, Axis::DpCp, 4), (AllReduce, Axis::DpCp, 8)]),
        (ddp, "tp = 2", 2, 0, [statistics(Axis::Mp), updated].concat()),
    ] {
        with_steps(&training("llama-3-8b", written, layout), ranks, |step| {
            let rows = rows(step, stage, Style::Control);
            let found: Vec<_> = rows.iter().map(|row| (row.collective, row.axis, row.bytes)).collect();
            assert_eq!(found, expected, "{written} {layout} {stage}");
            assert!(rows.iter().all(|row| row.calls_per_step == 1 && row.overlap.is_exposed()));
        });
    }
}

#[test]
fn the_last_stage_sends_its_token_count_to_the_others() {
    with_steps(&training("llama-3-8b", "sequence = 1024\nmicro_batches = 4", "pp = 4"), 4, |step| {
        for stage in 0..4 {
            let ops = step.ops_of_stage(stage).unwrap();
            let root = ops.iter().find(|op| op.collective == Broadcast).map(|op| op.root);
            assert_eq!(root, Some(3), "{stage}");
        }
    });
}

#[test]
fn only_the_small_calls_that_a_step_has_are_listed() {
    let bytes = |written: &str, layout: &str, ranks| {
        let written = format!("sequence = 1024\nmicro_batches = 4\n{written}");
        let mut found = Vec::new();
        with_steps(&training("llama-3-8b", &written, layout), ranks, |step| {
            found = rows(step, 0, Style::Control).iter().map(|row| (row.axis, row.bytes)).collect();
        });
        found
    };
    assert_eq!(bytes("small_calls = 'none'", "tp = 2\ndp = 2", 4), []);
    assert_eq!(bytes("small_calls = ['norm']", "tp = 2\ndp = 2", 4), [(Axis::Mp, 4)]);
    assert_eq!(bytes("small_calls = ['loss', 'norm']", "dp = 2", 2), [(Axis::Dp, 8)]);
    // Megatron-LM with --bf16 and without --calculate-per-token-loss.
    assert_eq!(
        bytes("framework = 'megatron'", "tp = 2\ndp = 2", 4),
        [(Axis::Mp, 4), (Axis::Mp, 4), (Axis::Mp, 4), (Axis::Dp, 8)]
    );
    assert_eq!(bytes("framework = 'fsdp2'", "dp = 2", 2), []);
    // A float for each of 32 x 9 + 3 tensors.
    assert_eq!(bytes("framework = 'hf'\ndata_style = 'fsdp'", "dp = 2", 2), [(Axis::Dp, 4 * 291)]);
    assert_eq!(bytes("framework = 'deepspeed'\ndata_style = 'zero3'", "dp = 2", 2), [(Axis::World, 8)]);
    // An int64 before the step, and the norm; the loss is logged every tenth step.
    assert_eq!(bytes("framework = 'torchtitan'", "dp = 2", 2), [(Axis::Dp, 8), (Axis::World, 4)]);
}

#[test]
fn a_layer_wise_optimizer_and_that_of_the_rest_sum_a_norm_each() {
    let written =
        "sequence = 1024\nmicro_batches = 4\nframework = 'megatron'\ndata_style = 'zero1'\nbucket_rule = 'layer_wise'";
    with_steps(&training("llama-3-8b", &format!("{written}\nsmall_calls = ['norm']"), "dp = 2"), 2, |step| {
        let calls: Vec<_> = rows(step, 0, Style::Control).iter().map(|row| (row.axis, row.bytes, row.calls)).collect();
        assert_eq!(calls, [(Axis::World, 4, 2)]);
    });
}

#[test]
fn with_muon_and_experts_three_optimizers_sum_a_norm_each() {
    let muon = "sequence = 1024\nmicro_batches = 4\nsequence_parallel = true\nsmall_calls = ['norm']\nmuon_tp_mode";
    for (written, preset, layout, expected) in [
        ("'duplicated'", "mixtral-8x7b", "tp = 2\netp = 1\nep = 2\ndp = 2", vec![(Axis::Mp, 2), (Axis::ExpertMp, 1)]),
        ("'blockwise'", "mixtral-8x7b", "tp = 2\netp = 1\nep = 2\ndp = 2", vec![(Axis::Mp, 1), (Axis::ExpertMp, 1)]),
        ("'duplicated'", "llama-3-8b", "tp = 2\ndp = 2", vec![(Axis::Mp, 1)]),
    ] {
        with_steps(&training(preset, &format!("{muon} = {written}"), layout), 4, |step| {
            let calls: Vec<_> = rows(step, 0, Style::Control).iter().map(|row| (row.axis, row.calls)).collect();
            assert_eq!(calls, expected, "{preset} {written}");
        });
    }
}
