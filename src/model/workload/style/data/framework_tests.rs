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
pub(super) fn calls(step: &TrainingStep, axis: Axis) -> Vec<(Collective, u64, u64)> {
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
fn secondary_shards_keep_the_backward_gathers_within_their_ranks() {
    use Collective::{AllGather, ReduceScatter};
    let layer = 2 * 218_112_000;
    for (training, micro_batches, again) in
        [("data_style = 'fsdp'", 2, 1), ("data_style = 'zero3'\nrecompute = 'full'", 1, 2)]
    {
        let training = format!("micro_batches = {micro_batches}\nsecondary_shards = 8\n{training}");
        let count = 32 * micro_batches;
        let of_layers = |step: &TrainingStep, axis| {
            calls(step, axis).into_iter().filter(|(_, calls, _)| *calls == count).collect::<Vec<_>>()
        };
        let (all, inside) = with_step("llama-3-8b", "dp=64", &training, 64, |step| {
            assert_eq!(step.layout.group_size(Axis::DpShard), 8);
            (of_layers(step, Axis::Dp), of_layers(step, Axis::DpShard))
        })
        .unwrap();
        assert_eq!(all, [(AllGather, count, layer), (ReduceScatter, count, 2 * layer)], "{training}");
        assert_eq!(inside, vec![(AllGather, count, layer); again], "{training}");
    }
    // DeepSpeed's modules: what is gathered forward and what is gathered backward.
    let training = "micro_batches = 1\nframework = 'deepspeed'\ndata_style = 'zero3'\npersistent_parameters = 100";
    let of = |secondary: &str, axis| {
        with_step("llama-3-8b", "dp=8", &format!("{training}\n{secondary}"), 8, |step| wire_on(step, 0, axis)).unwrap()
    };
    let (inside, outside) = (of("secondary_shards = 2", Axis::DpShard), of("secondary_shards = 2", Axis::Dp));
    let whole = of("", Axis::Dp);
    assert!(inside > 0.0 && outside < whole, "{inside} {outside} {whole}");
    // What crosses is less by what a rank of two receives instead of a rank of eight: 1/2 for 7/8.
    assert!(((whole - outside) / inside - 7.0 / 4.0).abs() < 1e-9, "{inside} {outside} {whole}");
}

#[test]
fn secondary_shards_without_parameters_or_groups_for_them_are_refused() {
    for (preset, layout, ranks, training, expected) in [
        ("llama-3-8b", "dp=8", 8, "data_style = 'zero3'", "with data_style zero3 and 2 micro-batches"),
        ("llama-3-8b", "dp=8", 8, "data_style = 'zero2'", "with data_style zero2; accepted: with zero3 and fsdp"),
        ("llama-3-8b", "dp=8", 8, "data_style = 'fsdp'\nreshard_after_forward = false", "where parameters stay whole"),
        ("llama-3-8b", "dp=6\ntp=4", 24, "data_style = 'fsdp'", "no part of the 6 ranks of dp x cp; accepted: 2, 3"),
        ("llama-3-8b", "dp=4", 4, "data_style = 'fsdp'", "no part of the 4 ranks of dp x cp; accepted: 2"),
        ("llama-3-8b", "tp=4", 4, "data_style = 'fsdp'", "accepted: none"),
        ("mixtral-8x7b", "dp=8\nep=2", 8, "data_style = 'fsdp'", "experts would need groups of their own"),
    ] {
        let training = format!("micro_batches = 2\nsecondary_shards = 4\n{training}");
        let message = with_step(preset, layout, &training, ranks, |_| ()).unwrap_err().to_string();
        assert!(message.contains("secondary_shards = 4") && message.contains(expected), "{training}: {message}");
    }
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
    let trainer = "framework = 'hf'\ndata_style = 'fsdp'\nunit_rule = 'root_kept'";
    assert_eq!(of(trainer, Axis::Dp), expected, "as the trainer does");
    let replicas = format!("{fsdp2}\ndata_style = 'hsdp'\nreplicas_of_shards = 2");
    let once = [(Collective::AllReduce, 32, 4 * layer / 2), (Collective::AllReduce, 1, 4 * root / 2)];
    assert_eq!(of(&replicas, Axis::DpReplicate), once, "replicas wait for it");
}

#[test]
fn experts_with_an_optimizer_of_their_own_are_gathered_twice_where_nothing_overlaps() {
    let gathers = |training: &str, layout: &str| {
        let training = format!("micro_batches = 2\ndata_style = 'zero1'\n{training}");
        with_step("mixtral-8x7b", layout, &training, 8, |step| {
            let ops = data_ops(step, 0);
            let gathers = ops.iter().filter(|op| op.collective == Collective::AllGather);
            gathers.map(|op| (op.axis, op.when.count_per_step(2).unwrap())).collect::<Vec<_>>()
        })
        .unwrap()
    };
    let twice = "framework = 'megatron'";
    assert_eq!(gathers(twice, "ep=4"), [(Axis::Dp, 2), (Axis::Edp, 2)]);
    assert_eq!(gathers(twice, "dp=8"), [(Axis::Dp, 1)], "experts are among the dense parameters");
    let once = "framework = 'megatron'\nparameter_return = 'all_gather'";
    assert_eq!(gathers(once, "ep=4"), [(Axis::Dp, 1), (Axis::Edp, 1)]);
    let overlapped = "parameter_return = 'each_optimizer'\nbucket_parameters = 100000000000";
    assert_eq!(gathers(overlapped, "ep=4"), [(Axis::Dp, 1), (Axis::Edp, 1)], "while the next step begins");
}

#[test]
fn a_layer_wise_optimizer_reduces_all_gradients_and_gathers_whole_tensors_unevenly() {
    use Collective::{AllGatherV, AllReduce};
    let (layer, words) = (218_112_000, 128_256 * 4096);
    let parameters = 32 * layer + 2 * words + 4096;
    assert_eq!(parameters, 8_030_261_248);
    let training =
        "micro_batches = 2\nframework = 'megatron'\ndata_style = 'zero1'\nparameter_return = 'gather_shares'";
    let of = |training: &str| with_step("llama-3-8b", "dp=4", training, 4, |step| data_ops(step, 0));
    let ops = of(training).unwrap();
    let found: Vec<_> =
        ops.iter().map(|op| (op.collective, op.bytes_total.0, op.when.count_per_step(2).unwrap())).collect();
    // One bucket without padding, since nothing overlaps.
    assert_eq!(found, [(AllReduce, 4 * parameters, 1), (AllGatherV, 2 * parameters, 1)]);
    // Sorted by size there are 65 norms, 32 each of output, queries with keys and values, down, gate with up, and 2 of words: 195
    // tensors, dealt out there and back. Each kind of 32 is even but for where it begins.
    let blocks = ops[1].geometry(4).unwrap().blocks;
    assert_eq!(blocks.iter().sum::<u64>(), parameters);
    assert!(blocks.iter().all(|block| block.abs_diff(parameters / 4) < words), "{blocks:?}");
    assert_ne!(blocks.iter().min(), blocks.iter().max());
    let refused = |more: &str| of(&format!("{training}\n{more}")).unwrap_err().to_string();
    for (more, expected) in [
        ("gradient_reduction = 'reduce_scatter'", "accepted: gradient_reduction = all_reduce"),
        ("replicas_of_shards = 2", "a layer-wise optimizer has no instances"),
    ] {
        let problem = refused(more);
        assert!(problem.contains(expected), "{problem}");
    }
}

#[test]
fn stages_of_a_pipeline_keep_their_parameters_and_reduce_once() {
    use Collective::{AllGather, ReduceScatter};
    // 16 of Llama 3 8B's layers and its embedding.
    let (layer, words) = (218_112_000, 128_256 * 4096);
    let training = "micro_batches = 8\nframework = 'torchtitan'";
    let found = with_step("llama-3-8b", "pp=2 dp=2", training, 4, |step| calls(step, Axis::Dp)).unwrap();
    let layers = [(AllGather, 16, 2 * layer), (ReduceScatter, 16, 4 * layer)];
    assert_eq!(found, [&layers[..], &[(AllGather, 1, 2 * words), (ReduceScatter, 1, 4 * words)]].concat());
}

#[test]
fn deepspeed_gathers_llama_3_8b_by_module_and_keeps_its_norms() {
    use Collective::{AllGather, ReduceScatter};
    let training = "micro_batches = 4\nframework = 'deepspeed'\ndata_style = 'zero3'";
    let found = with_step("llama-3-8b", "dp=8", training, 8, |step| calls(step, Axis::Dp)).unwrap();
    assert!(found.contains(&(AllGather, 2 * 32 + 1, 2 * 4096)), "two norms of each layer and the last stay: {found:?}");
    let sum = |of: Collective| found.iter().filter(|call| call.0 == of).map(|call| call.1 * call.2).sum::<u64>();
    assert_eq!(sum(ReduceScatter), 4 * 2 * 8_030_261_248, "every gradient in every micro-batch, in bfloat16");
    // Once forward and once backward, less what is used again soon.
    let (once, twice) = (4 * 2 * 8_030_261_248, 2 * 4 * 2 * 8_030_261_248);
    assert!((once..twice).contains(&sum(AllGather)), "{found:?}");
    assert!(found.iter().filter(|call| call.0 == ReduceScatter).all(|call| call.2 <= 2 * 525_336_576), "{found:?}");
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
        (
            "parameter_return = 'broadcast'",
            "parameter_return = broadcast changes nothing with data_style ddp; accepted: with zero1",
        ),
        (
            "data_style = 'fsdp'\nunit_rule = 'modules'",
            "unit_rule = modules changes nothing with data_style fsdp; accepted: with zero3",
        ),
        (
            "data_style = 'zero3'\nprefetch_bucket = 1",
            "change nothing with unit_rule layers; accepted: with unit_rule = modules",
        ),
        (
            "data_style = 'zero3'\nshard_buffers = 'listed'",
            "shard_buffers = listed changes nothing with data_style zero3; accepted: with zero3 and unit_rule = modules",
        ),
        (
            "data_style = 'fsdp'\nbroadcast_buffers = 'rotary'",
            "broadcast_buffers = rotary changes nothing with data_style fsdp; accepted: with ddp and zero1",
        ),
    ] {
        let training = format!("micro_batches = 8\n{choice}");
        let message = with_step("llama-3-8b", "dp=8", &training, 8, |_| ()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn recomputed_modules_are_gathered_again_and_listed_shards_are_copied_one_by_one() {
    // Each of the 96 layers has two tensors of 4 h^2 parameters, h being 12288.
    let (inner, alone) = (2 * 4 * 12_288 * 12_288, "prefetch_bucket = 0\nreuse_distance = 0");
    for (more, gathers, copies) in [
        ("recompute = 'none'", 2, [0, 0]),
        ("recompute = 'full'", 3, [0, 0]),
        ("recompute = 'full'\nshard_buffers = 'listed'", 3, [2 * 8, 8]),
    ] {
        let training = format!("micro_batches = 1\nframework = 'deepspeed'\ndata_style = 'zero3'\n{alone}\n{more}");
        with_step("gpt3-175b", "dp=8", &training, 8, |step| {
            let ops = data_ops(step, 0);
            let of = |collective| ops.iter().filter(move |op| (op.collective, op.bytes_total.0) == (collective, inner));
            let gathered: u64 = of(Collective::AllGather).map(|op| op.when.count_per_step(1).unwrap()).sum();
            assert_eq!(gathered, gathers * 2 * 96, "{more}");
            let found = [Collective::AllGather, Collective::ReduceScatter].map(|collective| {
                let all: Vec<u64> = of(collective).map(|op| op.copies_per_call).collect();
                assert!(all.iter().all(|copies| *copies == all[0]), "{more}: {all:?}");
                all[0]
            });
            assert_eq!(found, copies, "{more}: twice where parts are gathered, once where they are scattered");
        })
        .unwrap();
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
