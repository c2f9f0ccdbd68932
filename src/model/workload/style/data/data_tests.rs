//! Traffic of data parallelism: known answers by style, the counter-examples to "TP > DP > PP", buckets, and refusals.

use super::buckets::{self, Run};
use super::tensors::{Order, Part, of_chunk, parts};
use crate::config::Suite;
use crate::layout::Axis;
use crate::workload::op::{Moment, Pass};
use crate::workload::step::{Step, TrainingStep};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;
use std::path::{Path, PathBuf};

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml")
}

/// The training step of a preset, or of a config.json; `training` and `layout` are lines of the tables of those names.
pub(super) fn with_step<T>(
    model: &str,
    layout: &str,
    training: &str,
    ranks: u32,
    look: impl FnOnce(&TrainingStep) -> T,
) -> Result<T> {
    let key = if model.ends_with(".json") { "config" } else { "preset" };
    let text = format!(
        "[model]\n{key} = '{model}'\n[training]\nsequence = 1024\n{training}\n[layout]\n{}\n",
        layout.replace(' ', "\n").replace('=', " = ")
    );
    let suite = Suite::parse(&shipped(), &text)?;
    let steps = Step::all_of(&suite.layouts[0], ranks)?;
    let Some(Step::Training(step)) = steps.first() else { unreachable!("a training was requested") };
    Ok(look(step))
}

pub(super) fn data_ops(step: &TrainingStep, stage: u32) -> Vec<Op> {
    let ops = Step::Training(step.clone()).ops_of_stage(stage).unwrap();
    ops.into_iter().filter(|op| op.style == Style::Data).collect()
}

fn wire(step: &TrainingStep, op: &Op) -> f64 {
    let count = op.when.count_per_step(step.micro_batches).unwrap();
    op.wire_bytes(step.layout.group_size(op.axis), count).unwrap() as f64
}

pub(super) fn wire_on(step: &TrainingStep, stage: u32, axis: Axis) -> f64 {
    data_ops(step, stage).iter().filter(|op| op.axis == axis).map(|op| wire(step, op)).sum()
}

/// Padding adds a little, and nothing is missing.
fn assert_padded(found: f64, parameters: f64, what: &str) {
    assert!(found >= parameters - 64.0 && found <= parameters * 1.0001 + 64.0, "{what}: {found}, not {parameters}");
}

#[test]
fn each_style_moves_what_its_formula_says() {
    // Bytes that a rank sends in a step for each parameter, with n = 4, m = 8: arXiv 1910.02054 section 7; for element types
    // Megatron-LM training/arguments.py (accumulate_allreduce_grads_in_fp32) and docs/source/api-guide/dist_optimizer.md.
    let (n, m) = (4.0, 8.0);
    let part = (n - 1.0) / n;
    for (training, expected) in [
        ("data_style = 'ddp'", part * 8.0),
        ("data_style = 'ddp'\ngradient_element_type = 'bf16'", part * 4.0),
        ("data_style = 'ddp'\nbucket_rule = 'pytorch'", part * 8.0),
        ("data_style = 'ddp'\nbucket_parameters = 6_553_600", part * 8.0),
        ("data_style = 'ddp'\noverlap_gradients = false", part * 8.0),
        ("data_style = 'zero1'", part * 6.0),
        ("data_style = 'zero1'\nbucket_rule = 'pytorch'\nparameter_element_type = 'fp8_e4m3'", part * 5.0),
        ("data_style = 'zero1'\nbucket_rule = 'pytorch'", part * 6.0),
        ("data_style = 'zero2'", part * (m * 4.0 + 2.0)),
        ("data_style = 'zero3'", part * m * 8.0),
        ("data_style = 'fsdp'", part * m * 8.0),
        ("data_style = 'fsdp'\nrecompute = 'full'", part * m * 8.0),
        ("data_style = 'fsdp'\ngradient_element_type = 'bf16'", part * m * 6.0),
        ("data_style = 'fsdp'\nreshard_after_forward = false", part * (2.0 + m * 4.0)),
        // torch distributed/fsdp/_fully_shard: released after every backward pass, and so gathered for every forward pass.
        ("data_style = 'fsdp'\nreshard_after_forward = false\nreshard_after_backward = true", part * m * 6.0),
        // DeepSpeed runtime/zero/stage_1_and_2.py average_tensor.
        ("data_style = 'zero2'\ngradient_reduction = 'all_reduce'", part * (m * 8.0 + 2.0)),
        ("framework = 'deepspeed'\ndata_style = 'zero1'", part * 6.0),
        ("framework = 'deepspeed'\ndata_style = 'zero2'", part * (m * 4.0 + 2.0)),
        ("framework = 'deepspeed'", part * 4.0),
        ("framework = 'ddp'", part * 8.0),
        ("framework = 'megatron'", part * 8.0),
        ("framework = 'fsdp2'\nreshard_after_forward = false", part * m * 8.0),
    ] {
        let training = format!("micro_batches = 8\n{training}");
        with_step("llama-3-8b", "dp=4", &training, 4, |step| {
            let on_rank = step.rank_parameters(0).total() as f64;
            assert_padded(wire_on(step, 0, Axis::Dp), on_rank * expected, &training);
            let of_parameters = |op: &Op| op.why.contains("P_r = ") || op.why.contains("_sync_buffers");
            assert!(data_ops(step, 0).iter().all(of_parameters), "{training}");
        })
        .unwrap();
    }
}

#[test]
fn replicated_shards_are_reduced_over_both_groups() {
    // q = 2 groups of n/q = 4 ranks: inside as FSDP or ZeRO-1 on 4 ranks, between 2(q-1)/q Eg of 1/4 (arXiv 2304.11277 section
    // 3.2.2; Megatron-LM num_distributed_optimizer_instances).
    for (style, inside) in [("hsdp", 8.0 * 8.0), ("zero1", 6.0)] {
        let training = format!("micro_batches = 8\ndata_style = '{style}'\nreplicas_of_shards = 2");
        with_step("llama-3-8b", "dp=8", &training, 8, |step| {
            let on_rank = step.rank_parameters(0).total() as f64;
            assert_padded(wire_on(step, 0, Axis::DpShard), on_rank * inside * 0.75, style);
            assert_padded(wire_on(step, 0, Axis::DpReplicate), on_rank * 4.0 / 4.0, style);
            assert_eq!(wire_on(step, 0, Axis::Dp), 0.0);
        })
        .unwrap();
    }
}

#[test]
fn recomputation_gathers_once_more_under_zero_3() {
    // arXiv 2104.07857 section 4.1. The root is not recomputed.
    let training = "micro_batches = 8\ndata_style = 'zero3'\nrecompute = 'full'";
    with_step("llama-3-8b", "dp=4", training, 4, |step| {
        let (all, layers) = (step.rank_parameters(0).total() as f64, step.rank_layer_parameters(0).total() as f64);
        assert_padded(wire_on(step, 0, Axis::Dp), 0.75 * 8.0 * (8.0 * all + 2.0 * layers), training);
    })
    .unwrap();
}

#[test]
fn zero_3_with_eight_micro_batches_moves_10_7_times_what_zero_1_does() {
    let of = |style: &str| {
        let training = format!("micro_batches = 8\ndata_style = '{style}'");
        with_step("llama-3-70b", "tp=8 dp=8", &training, 64, |step| wire_on(step, 0, Axis::Dp)).unwrap()
    };
    assert_eq!(format!("{:.1}", of("zero3") / of("zero1")), "10.7");
}

#[test]
fn the_counter_examples_have_their_data_parallel_bytes() {
    // GB that a GPU sends per step, of transformer layers only and averaged over the stages. Sources of the layouts: arXiv 2104.04473 table
    // 2 and its 1T run; arXiv 2407.21783 table 4; MLPerf Training v4.0 GPT-3 on 10,752 H100; vTrain (arXiv 2312.12391); Llama 2 and Llama 3
    // model cards.
    let zero1 = "data_style = 'zero1'";
    let half = "gradient_element_type = 'float16'";
    for (model, layout, training, ranks, expected) in [
        ("gpt3-175b", "tp=8 pp=12 dp=16", "", 1536, "13.6"),
        ("llama-3-405b", "tp=8 pp=16 dp=128", zero1, 16_384, "18.7"),
        ("gpt3-175b", "tp=4 pp=6 dp=448", "data_style = 'zero1'\nvirtual_stages = 8", 10_752, "43.4"),
        ("llama-2-7b", "tp=2 dp=512", zero1, 1024, "19.4"),
        ("llama-2-7b", "tp=2 dp=64", zero1, 128, "19.1"),
        ("llama-3-70b", "tp=8 dp=8", zero1, 64, "44.9"),
        ("gpt3-175b", "tp=8 pp=32 dp=2", half, 512, "1.4"),
        ("megatron-1t", "tp=8 pp=64 dp=6", "", 3072, "13.1"),
        ("gpt-7.5b", "tp=2 pp=4 dp=2", "", 16, "3.6"),
        ("llama-3.1-405b", "tp=8 pp=16 cp=16 dp=8", zero1, 16_384, "18.7"),
    ] {
        let training = format!("micro_batches = 48\n{training}");
        let gigabytes = with_step(model, layout, &training, ranks, |step| {
            let axis = if step.layout.degrees.cp > 1 { Axis::DpCp } else { Axis::Dp };
            let stages = 0..step.stages.count();
            let of_layers = stages.map(|stage| {
                let share =
                    step.rank_layer_parameters(stage).total() as f64 / step.rank_parameters(stage).total() as f64;
                wire_on(step, stage, axis) * share
            });
            of_layers.sum::<f64>() / f64::from(step.stages.count()) * 1e-9
        })
        .unwrap();
        assert_eq!(format!("{gigabytes:.1}"), expected, "{model} {layout}");
    }
}

#[test]
fn units_are_gathered_twice_and_scattered_once_in_every_micro_batch() {
    with_step("llama-3-8b", "dp=4", "micro_batches = 8\ndata_style = 'fsdp'", 4, |step| {
        let calls = |collective| -> u64 {
            let ops = data_ops(step, 0).into_iter().filter(|op| op.collective == collective);
            ops.map(|op| op.when.count_per_micro_batch().unwrap()).sum()
        };
        // 32 layers and the root.
        assert_eq!((calls(Collective::AllGather), calls(Collective::ReduceScatter)), (2 * 32 + 2, 32 + 1));
        let layer = data_ops(step, 0).into_iter().find(|op| op.collective == Collective::AllGather).unwrap();
        assert_eq!(layer.bytes_total.0, 2 * 218_112_000, "Ep times the 218,112,000 parameters of a layer");
    })
    .unwrap();
}

#[test]
fn expert_gradients_are_reduced_among_replicas_of_the_expert() {
    for (layout, ranks, replicas) in [("ep=4", 8, 2), ("ep=8", 8, 1), ("tp=2 ep=2", 8, 2), ("tp=2 ep=2 etp=1", 8, 4)] {
        with_step("mixtral-8x7b", layout, "micro_batches = 1\nsequence_parallel = true", ranks, |step| {
            let (on_rank, n) = (step.rank_parameters(0), f64::from(step.layout.group_size(Axis::Dp)));
            let of_experts = on_rank.experts as f64 * 8.0 * (f64::from(replicas) - 1.0) / f64::from(replicas);
            assert_eq!(step.layout.group_size(Axis::Edp), replicas, "{layout}");
            assert_padded(wire_on(step, 0, Axis::Edp), of_experts, layout);
            assert_padded(wire_on(step, 0, Axis::Dp), on_rank.dense as f64 * 8.0 * (n - 1.0) / n, layout);
        })
        .unwrap();
    }
}

#[test]
fn tensor_sizes_add_up_to_the_parameters_of_a_rank() {
    for (model, layout, ranks) in [
        ("gpt2", "tp=4 pp=2", 8),
        ("gpt-neox-20b", "tp=2", 2),
        ("llama-3-8b", "tp=16", 16),
        ("qwen2.5-0.5b", "tp=2", 2),
        ("qwen3-0.6b", "tp=2", 2),
        ("mixtral-8x7b", "tp=2 ep=4", 8),
        ("qwen3-30b-a3b", "tp=4 ep=4 etp=2", 8),
        ("qwen1.5-moe-a2.7b", "tp=2 ep=4", 8),
        ("gpt-oss-20b", "tp=2 ep=2", 4),
        ("deepseek-v3", "tp=2 ep=8 etp=1", 8),
        ("../tests/data/transformers/qwen3_next/config.json", "tp=2 ep=4", 8),
        ("../tests/data/transformers/nemotron_h/config.json", "tp=4 pp=2", 8),
    ] {
        for further in ["", "prediction_layers = 2"] {
            if model.contains("nemotron_h") && !further.is_empty() {
                continue;
            }
            let training = format!("micro_batches = 8\nsequence_parallel = true\n{further}");
            with_step(model, layout, &training, ranks, |step| {
                for order in [Order::Megatron, Order::PyTorch, Order::Definition] {
                    for stage in 0..step.stages.count() {
                        let list = of_chunk(step, stage, 0, order);
                        let sum =
                            |expert| list.iter().filter(|t| t.is_expert() == expert).map(|t| t.elements).sum::<u64>();
                        let on_rank = step.rank_parameters(stage);
                        assert_eq!(
                            (sum(false), sum(true)),
                            (on_rank.dense, on_rank.experts),
                            "{model} {order:?} {stage}"
                        );
                        assert!(list.iter().all(|tensor| tensor.elements > 0));
                    }
                }
            })
            .unwrap();
        }
    }
}

fn first_part_buckets(step: &TrainingStep, stage: u32) -> Vec<Run> {
    let part: Part = parts(step)[0];
    buckets::of(step, stage, &part).swap_remove(0).runs
}

#[test]
fn buckets_close_where_the_rule_says() {
    let run = |elements, buckets, last| Run { elements, buckets, last };
    // Llama 3 8B on tp 2: the head of 262,668,288 alone; then the last norm with fc2 and fc1; then for each layer fc1 alone or norms,
    // queries, keys, values, output and the fc2 below (param_and_grad_buffer.py: a bucket closes when 40e6 are reached).
    let (head, fc1, fc2) = (262_668_288, 58_720_256, 29_360_128);
    let attention = 4096 + 12_582_912 + 4096 + 8_388_608;
    let expected = vec![
        run(head, 1, false),
        run(4096 + fc2 + fc1, 1, false),
        run(attention + fc2, 31, false),
        run(fc1, 31, false),
        run(attention + head, 1, true),
    ];
    with_step("llama-3-8b", "tp=2 dp=2", "micro_batches = 8", 4, |step| {
        assert_eq!(first_part_buckets(step, 0), expected);
    })
    .unwrap();
    // Qwen3 0.6B by PyTorch's rule, float32: the last norm and the down projection of 3072 x 1024 pass 1 MiB; then up, gate, the norm
    // and the output projection of 2048 x 1024 pass 25 MiB.
    with_step("qwen3-0.6b", "dp=2", "micro_batches = 8\nbucket_rule = 'pytorch'", 2, |step| {
        let runs = first_part_buckets(step, 0);
        assert_eq!(runs[0], run(1024 + 3_145_728, 1, false));
        assert_eq!(runs[1].elements, 2 * 3_145_728 + 1024 + 2_097_152);
    })
    .unwrap();
}

#[test]
fn later_stages_and_later_chunks_have_one_bucket_each() {
    for (training, stage, expected) in [
        ("", 1, 1),
        ("virtual_stages = 4", 1, 4),
        ("data_style = 'zero1'\nvirtual_stages = 4", 1, 4),
        ("bucket_parameters = 1_000_000_000", 0, 5),
        ("overlap_gradients = false", 0, 1),
    ] {
        let training = format!("micro_batches = 8\n{training}");
        with_step("llama-3-8b", "pp=2 dp=2", &training, 4, |step| {
            let runs = first_part_buckets(step, stage);
            assert_eq!(runs.iter().map(|run| run.buckets).sum::<u64>(), expected, "{training}");
            let last = data_ops(step, stage).into_iter().filter(|op| op.overlap.is_exposed()).collect::<Vec<_>>();
            assert!(last.iter().any(|op| op.why.contains("the last bucket")), "{training}");
        })
        .unwrap();
    }
}

#[test]
fn nothing_is_hidden_without_overlap() {
    for style in ["ddp", "zero1", "zero2"] {
        let training = format!("micro_batches = 8\noverlap_gradients = false\ndata_style = '{style}'");
        with_step("llama-3-8b", "dp=2", &training, 2, |step| {
            assert!(data_ops(step, 0).iter().all(|op| op.overlap.is_exposed()), "{style}");
        })
        .unwrap();
    }
}

#[test]
fn the_last_bucket_waits_for_the_end_of_the_backward_pass() {
    with_step("llama-3-8b", "tp=2 dp=2", "micro_batches = 8", 4, |step| {
        let ops = data_ops(step, 0);
        let moments: Vec<_> = ops.iter().map(|op| (op.when, op.overlap.is_exposed())).collect();
        let exposed = ops.iter().filter(|op| op.overlap.is_exposed()).count();
        assert_eq!(exposed, 1, "{moments:?}");
        let crate::workload::op::When::Step { moment, calls } = ops[ops.len() - 1].when else { unreachable!() };
        assert_eq!((moment, calls), (Moment::AfterBackward, 1));
    })
    .unwrap();
}

#[test]
fn choices_that_do_not_go_together_are_refused_with_what_does() {
    for (model, layout, training, expected) in [
        (
            "llama-3-8b",
            "dp=8",
            "data_style = 'hsdp'",
            "replicas_of_shards is 1; accepted: 2, 4, 8 (the divisors of dp x cp = 8)",
        ),
        (
            "llama-3-8b",
            "dp=8",
            "replicas_of_shards = 2",
            "replicas_of_shards = 2 needs data_style = zero1 or hsdp; found data_style = ddp",
        ),
        (
            "llama-3-8b",
            "dp=8",
            "data_style = 'hsdp'\nreplicas_of_shards = 3",
            "3 replicas of shards do not divide the 8 ranks",
        ),
        (
            "llama-3-8b",
            "dp=8",
            "data_style = 'fsdp'\nreplicas_of_shards = 2",
            "needs data_style = zero1 or hsdp; found data_style = fsdp",
        ),
        (
            "llama-3-8b",
            "dp=8",
            "reshard_after_forward = false",
            "reshard_after_forward = false needs data_style = fsdp or hsdp",
        ),
        ("mixtral-8x7b", "ep=2", "data_style = 'hsdp'\nreplicas_of_shards = 2", "replicas_of_shards = 2 with ep = 2"),
        ("llama-3-8b", "dp=8", "recompute_modules = ['mlp', 'moe_act']", "moe_act has no effect: llama-3-8b has none"),
        (
            "mixtral-8x7b",
            "ep=2",
            "recompute_modules = ['mla_up_proj']",
            "mla_up_proj has no effect: mixtral-8x7b has none",
        ),
        (
            "llama-3-8b",
            "pp=2",
            "data_style = 'zero3'\nschedule = 'dualpipe'",
            "schedule dualpipe stores every layer twice",
        ),
        ("llama-3-8b", "dp=8", "data_style = 'zero4'", "accepted: ddp, zero1, zero2, zero3, fsdp, hsdp"),
    ] {
        let error = with_step(model, layout, &format!("micro_batches = 8\n{training}"), 8, |_| ()).unwrap_err();
        assert!(error.to_string().contains(expected), "{training}: {error}");
        assert_eq!(error.exit_code(), 2);
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]
    #[test]
    fn buckets_partition_the_parameters(
        bucket in 1u64..1 << 34,
        style in proptest::sample::select(vec!["ddp", "zero1", "zero2"]),
        rule in proptest::sample::select(vec!["bucket_rule = 'megatron'", "bucket_rule = 'pytorch'", "given"]),
        (tp, dp, pp) in (0u32..4, 1u32..5, 0u32..3),
        model in proptest::sample::select(vec!["llama-3-8b", "qwen3-0.6b", "mixtral-8x7b"]),
    ) {
        let (tp, dp, pp) = (1 << tp, if model == "mixtral-8x7b" { 4 } else { dp }, 1 << pp);
        let given = format!("bucket_parameters = {bucket}");
        let rule = if rule == "given" { &given } else { rule };
        // Experts under tensor parallelism need sequence parallelism.
        let sequence_parallel = model == "mixtral-8x7b";
        let training =
            format!("micro_batches = 4\nsequence_parallel = {sequence_parallel}\ndata_style = '{style}'\n{rule}");
        with_step(model, &format!("tp={tp} dp={dp} pp={pp}"), &training, tp * dp * pp, |step| {
            for stage in 0..step.stages.count() {
                let on_rank = step.rank_parameters(stage);
                let mut parameters = 0;
                for part in parts(step) {
                    for buckets in buckets::of(step, stage, &part) {
                        let wire: u64 = buckets.runs.iter().map(|run| run.elements * run.buckets).sum();
                        let count: u64 = buckets.runs.iter().map(|run| run.buckets).sum();
                        assert!(wire >= buckets.parameters && (style != "ddp" || wire == buckets.parameters));
                        let even = |run: &Run| style == "ddp" || run.elements.is_multiple_of(part.ranks);
                        assert!(buckets.runs.iter().all(even));
                        assert!(buckets.runs.iter().filter(|run| run.last).count() <= 1);
                        assert!(count > 0 || buckets.parameters == 0);
                        parameters += buckets.parameters;
                    }
                }
                assert_eq!(parameters, on_rank.total());
            }
        }).unwrap();
    }
}

#[test]
fn adapters_alone_are_reduced_and_their_layers_gathered_whole() {
    use commgauge_base::collective::Collective::{AllGather, AllReduce, ReduceScatter};
    let of = |training: &str| {
        with_step("llama-3-8b", "dp=8", &format!("micro_batches = 1\nlora_rank = 16\n{training}"), 8, |step| {
            let ops = data_ops(step, 0).into_iter();
            ops.map(|op| (op.collective, op.bytes_total.0 * op.when.count_per_step(1).unwrap())).collect::<Vec<_>>()
        })
    };
    let sum = |training: &str, collective| -> u64 {
        of(training).unwrap().iter().filter(|(of, _)| *of == collective).map(|(_, bytes)| bytes).sum()
    };
    // 41,943,040 parameters, as transformers' peft counts them.
    assert_eq!(sum("framework = 'ddp'", AllReduce), 4 * 41_943_040);
    let fsdp = "framework = 'fsdp2'\nparameter_element_type = 'bf16'\ngradient_element_type = 'float32'";
    assert_eq!(sum(fsdp, ReduceScatter), 4 * 41_943_040);
    assert!(sum(fsdp, AllGather) > 2 * 8_000_000_000);
    let refused = of("framework = 'deepspeed'\ndata_style = 'zero3'").unwrap_err().to_string();
    assert!(refused.contains("lora_rank = 16 needs unit_rule = layers, root_kept or ends_apart; found"), "{refused}");
}

/// Collective, calls and bytes of all calls of data parallelism of llama-3-8b on 8 replicas, a micro-batch each.
fn of_a_part(training: &str) -> Result<Vec<(Collective, u64, u64)>> {
    let training = format!("micro_batches = 1\n{training}");
    with_step("llama-3-8b", "dp=8", &training, 8, |step| {
        let count = |op: &Op| op.when.count_per_step(1).unwrap();
        data_ops(step, 0).iter().map(|op| (op.collective, count(op), op.bytes_total.0)).collect()
    })
}

#[test]
fn only_the_layers_that_are_trained_are_reduced_and_gathered_for_a_backward_pass() {
    use Collective::{AllGather, AllReduce, ReduceScatter};
    let (layer, words) = (218_112_000, 128_256 * 4096);
    let reduced = of_a_part("framework = 'ddp'\ntrainable_layers = 3").unwrap();
    let reduced = reduced.iter().filter(|(collective, ..)| *collective == AllReduce);
    assert_eq!(reduced.map(|(_, calls, bytes)| calls * bytes).sum::<u64>(), 4 * 3 * layer);
    let types = "parameter_element_type = 'bf16'\ngradient_element_type = 'float32'\ntrainable_layers = 3";
    let layers = [(AllGather, 32, 2 * layer), (AllGather, 3, 2 * layer), (ReduceScatter, 3, 4 * layer)];
    let root = [(AllGather, 1, 2 * (2 * words + 4096))];
    assert_eq!(of_a_part(&format!("framework = 'fsdp2'\n{types}")).unwrap(), [&layers[..], &root].concat());
    // The embedding has no backward pass; the head is kept for its own.
    let ends = [(AllGather, 1, 2 * words), (AllGather, 1, 2 * (words + 4096))];
    assert_eq!(of_a_part(&format!("framework = 'torchtitan'\n{types}")).unwrap(), [&layers[..], &ends].concat());
    let once = of_a_part(&format!("framework = 'fsdp2'\ngradient_accumulation = 'unsharded'\n{types}")).unwrap();
    assert_eq!(once[2], (ReduceScatter, 3, 4 * layer), "once in a step");
    // Adapters of rank 16 on them: 16 x (inputs + outputs) of seven linears.
    let adapters = 41_943_040 / 32;
    let both = of_a_part(&format!("framework = 'fsdp2'\nlora_rank = 16\n{types}")).unwrap();
    assert_eq!(both[2], (ReduceScatter, 3, 4 * adapters));
}

#[test]
fn adapters_are_on_the_linears_that_are_named() {
    let of = |modules: &str| {
        let training = format!("framework = 'ddp'\nlora_rank = 16\nlora_modules = {modules}");
        of_a_part(&training).unwrap().iter().map(|(_, calls, bytes)| calls * bytes / 4 / 32 / 16).sum::<u64>()
    };
    let [qkv, proj, fc1, fc2] = [3 * 4096 + 4096 + 2 * 1024, 2 * 4096, 2 * (4096 + 14_336), 14_336 + 4096];
    for (modules, expected) in [
        ("['qkv']", qkv),
        ("['proj', 'fc2']", proj + fc2),
        ("['fc1']", fc1),
        ("['qkv', 'proj', 'fc1', 'fc2']", 41_943_040 / 32 / 16),
    ] {
        assert_eq!(of(modules), expected, "{modules}");
    }
}

#[test]
fn parts_that_a_model_or_a_layout_cannot_train_are_refused_with_what_they_can() {
    for (layout, training, expected) in [
        ("dp=8", "trainable_layers = 0", "found 0; accepted: a whole number from 1"),
        ("dp=8", "trainable_layers = 33", "trainable_layers = 33 of the 32 layers of llama-3-8b; accepted: 1 to 32"),
        ("dp=8", "trainable_layers = -2", "trainable_layers"),
        ("pp=8", "trainable_layers = 2", "with pp = 8: stages without a backward pass are not modelled; accepted: pp"),
        (
            "dp=8",
            "data_style = 'zero3'\nunit_rule = 'modules'\ntrainable_layers = 2",
            "needs unit_rule = layers, root_kept",
        ),
        ("dp=8", "lora_modules = ['qkv']", "lora_modules = qkv needs lora_rank"),
        ("dp=8", "lora_rank = 8\nlora_modules = ['q_proj']", "found module `q_proj`; accepted: qkv, proj, fc1, fc2"),
        ("dp=8", "lora_rank = 8\nlora_modules = []", "lora_modules"),
    ] {
        let refused = with_step("llama-3-8b", layout, &format!("micro_batches = 8\n{training}"), 8, |_| ());
        let problem = refused.unwrap_err();
        assert!(problem.to_string().contains(expected) && problem.exit_code() == 2, "{training}: {problem}");
    }
}

#[test]
fn frozen_layers_send_nothing_backward_on_tp_and_cp() {
    let of = |training: &str| {
        let training = format!("micro_batches = 1\nsequence_parallel = true\n{training}");
        with_step("llama-3-8b", "tp=2\ncp=2", &training, 4, |step| {
            let mut backward: Vec<(Axis, u64)> = Vec::new();
            for op in step.ops_of_stage(0).unwrap() {
                if op.when.pass() == Some(Pass::Backward) {
                    backward.push((op.axis, op.when.count_per_step(1).unwrap()));
                }
            }
            backward
        })
        .unwrap()
    };
    let (all, four) = (of(""), of("trainable_layers = 4"));
    let sum = |calls: &[(Axis, u64)], axis| calls.iter().filter(|(of, _)| *of == axis).map(|(_, n)| n).sum::<u64>();
    // Three for each of two pairs in a layer; for the ends of the whole model three, of which the frozen head needs the last.
    assert_eq!([sum(&all, Axis::Tp), sum(&four, Axis::Tp)], [6 * 32 + 3, 6 * 4 + 1]);
    assert_eq!(sum(&four, Axis::Cp) * 8, sum(&all, Axis::Cp));
}
