//! Traffic of data parallelism as frameworks send it: known answers, and choices that a style has no use for.

use super::tests::{data_ops, wire_on, with_step};
use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::step::TrainingStep;
use commgauge_base::collective::Collective;

#[test]
fn deepspeed_sends_for_llama_3_8b_what_it_was_seen_to_send() {
    // dp 64, 8 micro-batches, bfloat16: 269 GB with zero2, in buckets of 500e6 parameters at most.
    let training = "micro_batches = 8\nframework = 'deepspeed'\ndata_style = 'zero2'";
    with_step("llama-3-8b", "dp=64", training, 64, |step| {
        assert_eq!((wire_on(step, 0, Axis::Dp) / 1e9).round(), 269.0);
        let ops = data_ops(step, 0);
        let sent = |collective| ops.iter().filter(move |op| op.collective == collective);
        assert!(
            sent(Collective::AllReduce).all(|op| op.bytes_total.0 <= 2 * 525_336_576),
            "the head alone passes the limit"
        );
        assert_eq!(sent(Collective::ReduceScatter).count(), 0);
        let gathered: Vec<_> = sent(Collective::AllGather).map(|op| op.bytes_total.0).collect();
        assert_eq!(gathered, [2 * 8_030_261_248]);
    })
    .unwrap();
}

/// Collective, calls in a step and bytes of the ops on an axis.
fn calls(step: &TrainingStep, axis: Axis) -> Vec<(Collective, u64, u64)> {
    let count = |op: &Op| op.when.count_per_step(step.micro_batches).unwrap();
    data_ops(step, 0)
        .iter()
        .filter(|op| op.axis == axis)
        .map(|op| (op.collective, count(op), op.bytes_total.0))
        .collect()
}

#[test]
fn pytorch_gathers_its_root_once_and_torchtitan_the_head_once() {
    use Collective::{AllGather, ReduceScatter};
    // Llama 3 8B: 218,112,000 parameters of a layer, 128,256 x 4096 of the embedding and of the head.
    let (layer, words) = (218_112_000, 128_256 * 4096);
    let of = |framework: &str| {
        let training = format!("micro_batches = 2\nframework = '{framework}'\nparameter_element_type = 'bf16'");
        with_step("llama-3-8b", "dp=4", &training, 4, |step| calls(step, Axis::Dp)).unwrap()
    };
    let layers = [(AllGather, 64, 2 * layer), (AllGather, 64, 2 * layer), (ReduceScatter, 64, 4 * layer)];
    let root = 2 * words + 4096;
    let pytorch = [&layers[..], &[(AllGather, 2, 2 * root), (ReduceScatter, 2, 4 * root)]].concat();
    assert_eq!(of("fsdp1"), pytorch);
    assert_eq!(of("fsdp2"), pytorch);
    let head = words + 4096;
    let ends = [
        (AllGather, 2, 2 * words),
        (AllGather, 2, 2 * words),
        (ReduceScatter, 2, 4 * words),
        (AllGather, 2, 2 * head),
        (ReduceScatter, 2, 4 * head),
    ];
    assert_eq!(of("torchtitan"), [&layers[..], &ends].concat());
}

#[test]
fn pytorch_reduces_replicas_of_shards_in_every_micro_batch() {
    let of = |replicas: &str| {
        let training = format!("micro_batches = 8\ndata_style = 'hsdp'\nreplicas_of_shards = 2\n{replicas}");
        with_step("llama-3-8b", "dp=8", &training, 8, |step| wire_on(step, 0, Axis::DpReplicate)).unwrap()
    };
    let (once, every) = (of(""), of("replica_reduction = 'micro_batch'"));
    assert_eq!(every, 8.0 * once);
    assert_eq!(of("framework = 'fsdp2'"), every);
}

#[test]
fn gradients_that_are_added_up_whole_are_reduced_once_in_a_step() {
    use Collective::{AllGather, ReduceScatter};
    let (layer, root) = (218_112_000, 2 * 128_256 * 4096 + 4096);
    let of = |training: &str, axis| {
        let training = format!("micro_batches = 4\n{training}");
        with_step("llama-3-8b", "dp=4", &training, 4, |step| calls(step, axis)).unwrap()
    };
    let expected = [
        (AllGather, 4 * 32, 2 * layer),
        (AllGather, 4 * 32, 2 * layer),
        (ReduceScatter, 32, 4 * layer),
        (AllGather, 4, 2 * root),
        (ReduceScatter, 1, 4 * root),
    ];
    let unsharded = "gradient_accumulation = 'unsharded'";
    let fsdp2 = format!("framework = 'fsdp2'\nparameter_element_type = 'bf16'\n{unsharded}");
    assert_eq!(of(&fsdp2, Axis::Dp), expected);
    assert_eq!(of("framework = 'hf'\ndata_style = 'fsdp'", Axis::Dp), expected, "as the trainer does");
    let replicas = format!("{fsdp2}\ndata_style = 'hsdp'\nreplicas_of_shards = 2");
    let once = [(Collective::AllReduce, 32, 4 * layer / 2), (Collective::AllReduce, 1, 4 * root / 2)];
    assert_eq!(of(&replicas, Axis::DpReplicate), once, "replicas wait for it");
}

#[test]
fn choices_that_change_nothing_with_a_style_are_refused() {
    for (choice, expected) in [
        ("unit_rule = 'root_kept'", "unit_rule = root_kept changes nothing with data_style ddp; accepted: with zero3"),
        (
            "gradient_accumulation = 'unsharded'",
            "gradient_accumulation = unsharded changes nothing with data_style ddp; accepted: with fsdp and hsdp",
        ),
        ("gradient_reduction = 'all_reduce'", "gradient_reduction = all_reduce changes nothing with data_style ddp"),
        ("replica_reduction = 'micro_batch'", "replica_reduction = micro_batch changes nothing with data_style ddp"),
    ] {
        let training = format!("micro_batches = 8\n{choice}");
        let message = with_step("llama-3-8b", "dp=8", &training, 8, |_| ()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn an_axis_that_a_framework_does_not_divide_by_is_refused() {
    for (framework, layout, expected) in [
        ("ddp", "tp=2 dp=2", "divides a model by dp alone, found tp 2"),
        ("fsdp1", "dp=2 pp=2", "divides a model by dp alone, found pp 2"),
        ("hf", "dp=2 pp=2", "divides a model by tp, cp, dp alone, found pp 2"),
    ] {
        let training = format!("micro_batches = 8\nframework = '{framework}'");
        assert!(with_step("llama-3-8b", "dp=4", &training, 4, |_| ()).is_ok(), "{framework}");
        let error = with_step("llama-3-8b", layout, &training, 4, |_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
