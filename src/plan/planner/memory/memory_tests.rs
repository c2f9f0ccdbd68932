//! The memory model against published figures.

use super::*;
use crate::planner::testing::{NEMOTRON_H, QWEN3_NEXT, with_step};

/// Attention as in 2022, with stored matrices.
const UNFUSED: Kernels = Kernels::WITH_ATTENTION_MATRICES;

/// A model of arXiv 2205.05198 table 3, and its division.
struct Trained {
    preset: &'static str,
    micro_batch: u64,
    stages: u32,
    chunks: u32,
    layers: u64,
    hidden: u64,
    micro_batches: u64,
}

/// Degree of tensor parallelism of all of them.
const TENSOR: u32 = 8;

const fn trained(
    preset: &'static str,
    micro_batch: u64,
    [stages, chunks]: [u32; 2],
    layers: u64,
    hidden: u64,
) -> Trained {
    let micro_batches = if stages == 1 { 1 } else { 8 * stages as u64 };
    Trained { preset, micro_batch, stages, chunks, layers, hidden, micro_batches }
}

const MODELS: [Trained; 4] = [
    trained("megatron-22b", 4, [1, 1], 48, 6144),
    trained("gpt3-175b", 1, [8, 3], 96, 12288),
    trained("mt-nlg-530b", 1, [35, 3], 105, 20480),
    trained("megatron-1t", 1, [64, 1], 128, 25600),
];

/// The most loaded stage of one of these models, which is the first in the figures of the paper.
fn first_stage<T>(index: usize, choices: &str, check: impl FnOnce(&TrainingStep) -> T) -> T {
    let Trained { preset, micro_batch, stages, chunks, micro_batches, .. } = MODELS[index];
    let training = format!(
        "micro_batch = {micro_batch}\nmicro_batches = {micro_batches}\nvirtual_stages = {chunks}\n\
         activation_element_type = 'float16'\n{choices}"
    );
    with_step(preset, &training, &format!("tp = {TENSOR}\npp = {stages}"), TENSOR * stages, check)
}

fn gibibytes(bytes: Bytes) -> f64 {
    bytes.0 as f64 / f64::from(1 << 30)
}

/// Figure 1 of arXiv 2205.05198 in GiB: parameters with optimizer, activations without recomputation, and with sequence parallelism and
/// selective recomputation. The digits are those of Calculon's copy of the figure.
#[test]
fn parameters_and_activations_of_figure_1_come_out_exactly() {
    let expected = [
        (45.5625, 59.25, 9.5625),
        (45.5625, 66.84375, 12.3515625),
        (31.640625, 114.0234375, 23.076171875),
        (32.958984375, 131.25, 26.5625),
    ];
    for (index, (state, none, selective)) in expected.into_iter().enumerate() {
        let Trained { preset, stages, layers, hidden: h, .. } = MODELS[index];
        let (p, t) = (u64::from(stages), u64::from(TENSOR));
        let found = first_stage(index, "", |step| {
            // The figure counts 12 L h^2 parameters: without biases, norms and the ends of the model.
            let figure = 12 * layers * h * h * 18 / (p * t);
            let replicated = layers / p * (7 * h / t + 6 * h) + step.rank_end_parameters(0).total();
            assert_eq!(UNFUSED.memory(step, 0).state(), Bytes(figure + 18 * replicated), "{preset}");
            (gibibytes(Bytes(figure)), gibibytes(UNFUSED.memory(step, 0).activations))
        });
        assert_eq!(found, (state, none), "{preset}");
        let sparing = "sequence_parallel = true\nrecompute = 'selective'";
        let found = first_stage(index, sparing, |step| gibibytes(UNFUSED.memory(step, 0).activations));
        assert_eq!(found, selective, "{preset}");
    }
}

/// Figure 7 of arXiv 2205.05198, read off the drawing: percent of tensor parallelism alone.
#[test]
fn the_bars_of_figure_7_come_out_within_the_width_of_a_line() {
    let bars = [
        [66.84, 49.42, 16.18, 7.64],
        [62.04, 56.53, 18.49, 8.71],
        [58.31, 62.04, 20.27, 9.42],
        [58.31, 62.04, 20.27, 9.42],
    ];
    let choices = [
        "sequence_parallel = true",
        "recompute = 'selective'",
        "sequence_parallel = true\nrecompute = 'selective'",
        "recompute = 'full'",
    ];
    for (index, bars) in bars.into_iter().enumerate() {
        let activations =
            |choices: &str| first_stage(index, choices, |step| UNFUSED.memory(step, 0).activations.0 as f64);
        let whole = activations("");
        for (choices, bar) in choices.into_iter().zip(bars) {
            let percent = 100.0 * activations(choices) / whole;
            assert!((percent - bar).abs() < 0.2, "{} {choices}: {percent} against {bar}", MODELS[index].preset);
        }
    }
}

/// arXiv 2205.05198 equations 1 to 6: sbh(34 + 5as/h), sbh(10 + 24/t + 5as/(ht)), sbh/t(34 + 5as/h), 34sbh/t and 2sbh, for a
/// layer of GPT-3 with s = 2048.
#[test]
fn a_layer_of_gpt_keeps_what_the_paper_counts() {
    let (s, h, a, layers) = (2048u64, 12288u64, 96u64, 96u64);
    let (sbh, matrices) = (s * h, 5 * a * s * s);
    for (tp, choices, per_layer) in [
        (1, "", 34 * sbh + matrices),
        (8, "", 10 * sbh + (24 * sbh + matrices) / 8),
        (8, "sequence_parallel = true", (34 * sbh + matrices) / 8),
        (8, "sequence_parallel = true\nrecompute = 'selective'", 34 * sbh / 8),
        (8, "recompute = 'full'", 2 * sbh),
        (8, "recompute = 'full'\nsequence_parallel = true", 2 * sbh / 8),
    ] {
        with_step("gpt3-175b", choices, &format!("tp = {tp}"), tp, |step| {
            assert_eq!(UNFUSED.memory(step, 0).activations, Bytes(layers * per_layer), "tp {tp} {choices}");
        });
    }
}

#[test]
fn a_fused_kernel_keeps_what_selective_recomputation_keeps_and_a_sum_for_each_head() {
    let sums = 4 * 96 / 8 * 2048 * 96;
    for recompute in ["none", "selective"] {
        let fused = with_step("gpt3-175b", &format!("recompute = '{recompute}'"), "tp = 8", 8, |step| memory(step, 0));
        let selective = with_step("gpt3-175b", "recompute = 'selective'", "tp = 8", 8, |step| UNFUSED.memory(step, 0));
        assert_eq!(fused.activations.0, selective.activations.0 + sums, "{recompute}");
        assert_eq!((fused.recomputation, selective.recomputation), (Bytes(0), Bytes(5 * 96 * 2048 * 2048 / 8)));
    }
}

/// Bytes for each parameter of a rank: parameters, gradients, optimizer.
fn bytes_per_parameter(training: &str, dp: u32, choices: Kernels) -> f64 {
    let layout = format!("dp = {dp}");
    with_step("gpt-7.5b", training, &layout, dp, |step| {
        choices.memory(step, 0).state().0 as f64 / step.rank_parameters(0).total() as f64
    })
}

/// Megatron-LM docs/source/api-guide/dist_optimizer.md (d = 8), and arXiv 1910.02054 section 5 (K = 12, N = 64).
#[test]
fn a_parameter_takes_the_bytes_that_megatron_and_zero_say() {
    let fp16 = "gradient_element_type = 'float16'\nparameter_element_type = 'float16'";
    let fp32 = "parameter_element_type = 'float32'";
    let (d, n) = (8.0, 64.0);
    for (training, dp, choices, expected) in [
        ("".to_owned(), 8, UNFUSED, 18.0),
        ("data_style = 'zero1'".to_owned(), 8, UNFUSED, 6.0 + 12.0 / d),
        (fp32.to_owned(), 8, UNFUSED, 16.0),
        (format!("{fp32}\ndata_style = 'zero1'"), 8, UNFUSED, 8.0 + 8.0 / d),
        (fp16.to_owned(), 64, Kernels::FUSED, 16.0),
        (format!("{fp16}\ndata_style = 'zero1'"), 64, Kernels::FUSED, 4.0 + 12.0 / n),
        (format!("{fp16}\ndata_style = 'zero2'"), 64, Kernels::FUSED, 2.0 + 14.0 / n),
        (format!("{fp16}\ndata_style = 'zero3'"), 64, Kernels::FUSED, 16.0 / n),
        (format!("{fp16}\ndata_style = 'fsdp'"), 64, Kernels::FUSED, 16.0 / n),
        // BF16_Optimizer: 16-bit gradients, their sums in fp32, and the rest in shards.
        (
            "framework = 'deepspeed'\ndata_style = 'zero1'\ngradient_element_type = 'float32'".to_owned(),
            8,
            Kernels::FUSED,
            2.0 + (2.0 + 4.0) + 12.0 / d,
        ),
    ] {
        let found = bytes_per_parameter(&training, dp, choices);
        assert!((found - expected).abs() < 1e-6, "{training}: {found} against {expected}");
    }
}

#[test]
fn layers_that_are_repeated_together_or_in_part_keep_what_is_not_dropped() {
    let of = |training: &str| with_step("llama-3-8b", training, "tp = 1", 1, |step| Kernels::FUSED.memory(step, 0));
    let (none, full) = (of(""), of("recompute = 'full'"));
    let (layer, input) = (none.activations.0 / 32, 2 * 2048 * 4096);
    assert_eq!((full.activations.0, full.recomputation.0), (32 * input, layer));
    let together = of("recompute_layers = 4");
    assert_eq!((together.activations.0, together.recomputation.0), (8 * input, 4 * layer));
    let some = of("recompute_layers = 8\nrecompute_method = 'block'");
    assert_eq!((some.activations.0, some.recomputation.0), (24 * layer + 8 * input, layer));
    let parts = of("recompute_modules = ['mlp', 'layernorm']");
    // Gate, up and their product of 14336, and the inputs of both blocks.
    let dropped = 2 * 2048 * (3 * 14336 + 2 * 4096);
    assert_eq!((none.activations.0 - parts.activations.0, parts.recomputation.0), (32 * dropped, dropped));
}

#[test]
fn adapters_alone_have_gradients_and_an_optimizer() {
    let training = "framework = 'ddp'\nlora_rank = 16";
    with_step("llama-3-8b", training, "tp = 1", 1, |step| {
        // Counted by hand: 16 (m + n) for each linear of Llama 3 8B, in 32 layers.
        assert_eq!(step.trained_parameters(0).total(), 41_943_040);
        let used = Kernels::FUSED.memory(step, 0);
        assert_eq!((used.gradients.0, used.optimizer.0), (4 * 41_943_040, 8 * 41_943_040));
    });
    // Shards in full precision hold all parameters, of which the update touches the adapters alone.
    let each = with_step("llama-3-8b", "data_style = 'fsdp'\nlora_rank = 16", "dp = 8", 8, |step| {
        updated_bytes(step, 0) as f64 * 8.0 / 41_943_040.0
    });
    assert!((10.0..14.0).contains(&each), "{each} bytes of each trained parameter");
}

#[test]
fn frozen_layers_keep_nothing_and_linears_without_adapters_no_input() {
    let of = |training: &str| {
        let training = format!("framework = 'megatron'\n{training}");
        with_step("llama-3-8b", &training, "tp = 1", 1, |step| {
            (Kernels::FUSED.memory(step, 0), step.trained_parameters(0).total())
        })
    };
    let (all, parameters) = of("");
    let (last, trained) = of("trainable_layers = 4");
    assert_eq!((last.parameters, trained), (all.parameters, 4 * 218_112_000));
    assert_eq!(last.activations.0 * 8, all.activations.0);
    let share = |bytes: u64| u128::from(bytes) * u128::from(trained) / u128::from(parameters);
    assert_eq!(u128::from(last.optimizer.0), share(all.optimizer.0));
    assert_eq!(u128::from(last.gradients.0), share(all.gradients.0));
    // Without adapters on them, the product of gate and up, and the input of both, are not kept.
    let kept = |modules: &str| of(&format!("lora_rank = 16\nlora_modules = {modules}")).0.activations.0;
    let whole = of("lora_rank = 16").0.activations.0;
    assert_eq!(whole - kept("['qkv', 'proj', 'fc1']"), 32 * 2 * 2048 * 14_336);
    assert_eq!(whole - kept("['qkv', 'proj']"), 32 * 2 * 2048 * (14_336 + 4096));
}

/// Bytes per parameter held by two ranks of PyTorch 2.15 and DeepSpeed 0.19.8 on the CPU between the backward pass and the update
/// (`scripts/check-frameworks`).
#[test]
fn a_rank_holds_the_state_that_ranks_of_pytorch_and_deepspeed_held() {
    for (training, expected) in [
        ("framework = 'ddp'", 20.0),
        ("framework = 'ddp'\ngradient_element_type = 'bfloat16'", 10.0),
        ("framework = 'hf'\ndata_style = 'ddp'", 20.0),
        ("framework = 'ddp'\ndata_style = 'zero1'", 16.0),
        ("framework = 'fsdp1'", 8.0),
        ("framework = 'fsdp2'", 8.0),
        ("framework = 'deepspeed'", 16.0),
        ("framework = 'deepspeed'\ndata_style = 'zero2'", 9.0),
        ("framework = 'deepspeed'\ndata_style = 'zero3'", 8.0),
    ] {
        let found = bytes_per_parameter(training, 2, Kernels::FUSED);
        assert!((found - expected).abs() < 1e-6, "{training}: {found} against {expected}");
    }
    // One rank reduces nothing, and has no buckets.
    assert!((bytes_per_parameter("framework = 'ddp'", 1, Kernels::FUSED) - 16.0).abs() < 1e-6);
}

/// DeepSpeed's buffer of 500 million gradients, and parameters kept because the backward pass uses them again soon.
#[test]
fn deepspeed_holds_a_bucket_and_what_it_uses_again_soon() {
    let of = |training: &str| with_step("llama-3-8b", training, "dp = 8", 8, |step| Kernels::FUSED.memory(step, 0));
    for (training, expected) in [
        ("framework = 'deepspeed'\ndata_style = 'zero2'", 1_000_000_000),
        ("framework = 'deepspeed'\ndata_style = 'zero3'\nbucket_parameters = 1000", 2000),
        ("framework = 'deepspeed'", 0),
        ("data_style = 'zero2'", 0),
    ] {
        assert_eq!(of(training).buffers, Bytes(expected), "{training}");
    }
    let near = of("framework = 'deepspeed'\ndata_style = 'zero3'\nreuse_distance = 0").unsharded.0;
    let usual = of("framework = 'deepspeed'\ndata_style = 'zero3'").unsharded.0;
    // Half of a distance of a billion, instead of two layers of 218112000 parameters.
    assert_eq!(usual - near, 2 * (500_000_000 - 2 * 218_112_000));
}

/// arXiv 1910.02054 figure 1: 120 GB, 31.4, 16.6 and 1.9 GB of a model of 7.5 B parameters on 64 GPUs.
#[test]
fn seven_and_a_half_billion_parameters_on_64_gpus_take_what_zero_printed() {
    let fp16 = "gradient_element_type = 'float16'\nparameter_element_type = 'float16'";
    for (style, expected) in [("ddp", "120.0"), ("zero1", "31.4"), ("zero2", "16.6"), ("zero3", "1.9")] {
        let each = bytes_per_parameter(&format!("{fp16}\ndata_style = '{style}'"), 64, Kernels::FUSED);
        assert_eq!(format!("{:.1}", 7.5 * each), expected, "{style}");
    }
}

/// A 70B on tp 8 x dp 8, a 180B on tp 8 x pp 4 x dp 4 (5.625 B parameters on each rank), computed by hand.
#[test]
fn shares_of_the_state_multiply_only_where_everything_is_sharded() {
    for (style, dp, parameters_on_rank, expected) in [
        ("zero3", 8, 70.0 / 8.0, 70.0 * 18.0 / 64.0),
        ("zero2", 8, 70.0 / 8.0, 70.0 * 2.0 / 8.0 + 70.0 * 16.0 / 64.0),
        ("zero1", 4, 5.625, 50.625),
        ("zero2", 4, 5.625, 33.75),
    ] {
        let each = bytes_per_parameter(&format!("data_style = '{style}'"), dp, Kernels::FUSED);
        assert!((each * parameters_on_rank - expected).abs() < 1e-4, "{style} {dp}: {}", each * parameters_on_rank);
    }
    with_step("gpt-180b", "", "tp = 8\npp = 4\ndp = 4", 128, |step| {
        let used = memory(step, 1);
        assert!((used.parameters.0 as f64 * 1e-9 - 11.25).abs() < 0.2, "{used:?}");
    });
    // Llama 3 405B: 2 bytes of weights and 12 of optimizer for each of 405.853 B parameters.
    with_step("llama-3-405b", "", "tp = 1", 1, |step| {
        let used = memory(step, 0);
        assert_eq!((used.parameters.0, used.optimizer.0), (2 * 405_853_388_800, 12 * 405_853_388_800));
    });
    // Of the 8.03 B parameters of Llama 3 8B, 2 x 128,256 x 4,096 of embedding and head and the last norm stay in 16 bits.
    let in_8_bits = "data_style = 'zero1'\nparameter_element_type = 'fp8_e4m3'";
    with_step("llama-3-8b", in_8_bits, "dp = 8", 8, |step| {
        assert_eq!(memory(step, 0).parameters.0, 8_030_261_248 + 1_050_677_248);
    });
}

#[test]
fn sharded_parameters_are_gathered_two_units_ahead_with_the_gradients_of_one() {
    with_step("llama-3-8b", "data_style = 'fsdp'", "dp = 8", 8, |step| {
        let layer = step.parameters_of_layer(0).total();
        let root = step.rank_end_parameters(0).total();
        assert_eq!(memory(step, 0).unsharded, Bytes(2 * (3 * layer + root) + 4 * layer));
    });
    with_step("llama-3-8b", "data_style = 'fsdp'\nreshard_after_forward = false", "dp = 8", 8, |step| {
        assert_eq!(
            memory(step, 0).unsharded,
            Bytes(2 * step.rank_parameters(0).total() + (2 + 4) * step.parameters_of_layer(0).total())
        );
    });
    with_step("llama-3-8b", "data_style = 'zero2'", "dp = 8", 8, |step| {
        assert_eq!(memory(step, 0).unsharded, Bytes(0));
    });
}

#[test]
fn whole_gradients_and_the_shards_that_another_stream_allocates_both_count() {
    let gradients = |more: &str, micro_batches: u32| {
        let training = format!("data_style = 'fsdp'\nmicro_batches = {micro_batches}\n{more}");
        with_step("llama-3-8b", &training, "dp = 8", 8, |step| memory(step, 0).gradients.0)
    };
    let whole = with_step("llama-3-8b", "", "dp = 8", 8, |step| memory(step, 0).gradients.0);
    let unsharded = "gradient_accumulation = 'unsharded'";
    let shards = whole.div_ceil(8);
    assert_eq!((gradients(unsharded, 2), gradients("", 2)), (whole + shards, shards));
    assert_eq!(gradients(unsharded, 1), shards, "a single micro-batch accumulates nothing");
}

#[test]
fn experts_are_divided_by_ep_and_their_optimizer_by_their_own_replicas() {
    let training = "data_style = 'zero1'";
    with_step("mixtral-8x7b", training, "dp = 8\nep = 4", 8, |step| {
        let (counts, used) = (step.rank_parameters(0), memory(step, 0));
        assert_eq!(counts.experts, 32 * 8 / 4 * 3 * 4096 * 14336);
        assert_eq!(used.parameters, Bytes(2 * counts.total()));
        assert_eq!(used.optimizer, Bytes(12 * (counts.dense.div_ceil(8) + counts.experts / 2)));
    });
}

#[test]
fn context_parallelism_divides_the_sequence_and_shares_the_optimizer_out() {
    let training = "sequence = 8192\ndata_style = 'zero1'";
    let one = with_step("llama-3-8b", training, "tp = 1", 1, |step| memory(step, 0));
    let four = with_step("llama-3-8b", training, "cp = 4", 4, |step| memory(step, 0));
    for (whole, part) in
        [(one.activations, four.activations), (one.logits, four.logits), (one.optimizer, four.optimizer)]
    {
        assert_eq!(whole.0, 4 * part.0);
    }
    assert_eq!(one.parameters, four.parameters);
}

#[test]
fn heads_that_share_keys_and_a_gate_are_counted_as_they_are() {
    // Llama 3 8B: h 4096, 32 heads and 8 of keys and values, each 128 wide, f 14336; 2 bytes for each element, no dropout.
    with_step("llama-3-8b", "", "tp = 1", 1, |step| {
        let width = 4 * 4096 + 128 * (2 * 32 + 2 * 8) + 3 * 14336;
        assert_eq!(memory(step, 0).activations, Bytes(32 * 2048 * (2 * width + 4 * 32)));
        // 4sbV in fp32, V padded to a multiple of 128.
        assert_eq!(memory(step, 0).logits, Bytes(4 * 2048 * 128_256));
    });
    // 8 heads of keys and values on 16 ranks: each stores a whole one.
    let stored = |tp: u32| with_step("llama-3-8b", "", &format!("tp = {tp}"), tp, |step| memory(step, 0).activations.0);
    assert_eq!(2 * (stored(16) - 32 * 2048 * 8 * 4096) - (stored(8) - 32 * 2048 * 8 * 4096), 32 * 2048 * 2 * 2 * 128);
}

#[test]
fn logits_are_those_of_the_padded_vocabulary_on_the_last_stage_only() {
    with_step("gpt2", "sequence = 512\nmicro_batches = 4", "tp = 4\npp = 2", 8, |step| {
        assert_eq!((memory(step, 0).logits, memory(step, 1).logits), (Bytes(0), Bytes(4 * 512 * 50_688 / 4)));
    });
}

#[test]
fn the_schedule_decides_how_many_micro_batches_are_in_flight() {
    use commgauge_model::workload::schedule::{Schedule, ScheduleKind};
    let layers = |schedule: &str, stage: u32, m: u64| {
        let training = format!("schedule = '{schedule}'\nmicro_batches = {m}");
        with_step("llama-3-8b", &training, "pp = 4", 4, |step| {
            memory(step, stage).activations.0
                / with_step("llama-3-8b", "", "pp = 4", 4, |one| memory(one, stage).activations.0)
        })
    };
    for (schedule, m, expected) in [
        ("naive", 16, [1, 1, 1, 1]),
        ("gpipe", 16, [16, 16, 16, 16]),
        ("1f1b", 16, [4, 3, 2, 1]),
        ("1f1b", 2, [2, 2, 2, 1]),
        ("zb-h1", 16, [4, 4, 4, 4]),
    ] {
        let found = [0, 1, 2, 3].map(|stage| layers(schedule, stage, m));
        assert_eq!(found, expected, "{schedule} of {m}");
    }
    // The closed forms against the lists of events.
    for (schedule, kind, v) in [
        ("1f1b", ScheduleKind::OneForwardOneBackward, 1),
        ("gpipe", ScheduleKind::GPipe, 1),
        ("naive", ScheduleKind::Naive, 1),
        ("interleaved", ScheduleKind::Interleaved, 2),
        ("interleaved", ScheduleKind::Interleaved, 4),
    ] {
        for m in [4, 8, 20] {
            let listed = Schedule::new(kind, 4, v, m).unwrap();
            let training = format!("schedule = '{schedule}'\nvirtual_stages = {v}\nmicro_batches = {m}");
            let found = with_step("llama-3-8b", &training, "pp = 4", 4, |step| {
                assert_eq!((0..4).map(|stage| super::chunks(step, stage)).collect::<Vec<_>>(), super::of_stages(step));
                super::of_stages(step)
            });
            let expected: Vec<u64> = (0..4).map(|stage| u64::from(listed.peak_activation_chunks(stage))).collect();
            assert_eq!(found, expected, "{schedule} v {v} m {m}");
        }
    }
}

#[test]
fn the_most_loaded_stage_is_the_one_with_most_and_not_always_the_first() {
    // 126 layers on 16 stages: 7 on the first, 8 on the second; the second has one micro-batch less in flight.
    let training = "sequence = 8192\nmicro_batches = 16\ndata_style = 'zero1'\nsequence_parallel = true";
    with_step("llama-3-405b", training, "tp = 8\npp = 16", 128, |step| {
        let (stage, used) = most_loaded(step);
        let all: Vec<u64> = (0..16).map(|stage| memory(step, stage).total().0).collect();
        assert_eq!(Some(&used.total().0), all.iter().max());
        assert_eq!(all[stage as usize], used.total().0);
        assert_eq!(stage, 1, "{all:?}");
        assert_eq!(memory(step, 16), MemoryUse::default(), "a stage that does not exist");
    });
}

#[test]
fn the_parts_add_up_to_the_total_and_a_sum_past_64_bits_is_the_largest_number() {
    let used = MemoryUse { parameters: Bytes(3), logits: Bytes(4), ..MemoryUse::default() };
    assert_eq!(used.total(), Bytes(7));
    assert_eq!(MemoryUse { buffers: Bytes(u64::MAX), ..used }.total(), Bytes(u64::MAX));
}

#[test]
fn every_part_says_where_it_comes_from() {
    let why = |preset: &str, training: &str, layout: &str, ranks: u32| {
        with_step(preset, training, layout, ranks, |step| {
            let parts = Kernels::FUSED.explain(step, 0);
            let sum: u64 = parts.iter().map(|part| part.bytes.0).sum();
            assert_eq!(Bytes(sum), memory(step, 0).total(), "nothing is missing");
            assert!(Kernels::FUSED.explain(step, 99).is_empty());
            parts.iter().map(|part| format!("{}: {}", part.name, part.why)).collect::<Vec<_>>().join("\n")
        })
    };
    let training =
        "sequence = 8192\nmicro_batches = 16\ndata_style = 'zero1'\nsequence_parallel = true\nvirtual_stages = 2";
    insta::assert_snapshot!("every_part_of_llama_3_70b", why("llama-3-70b", training, "tp = 8\npp = 4\ndp = 4", 128));
    let training = "data_style = 'fsdp'\nrecompute = 'full'";
    insta::assert_snapshot!("every_part_of_mixtral_8x7b", why("mixtral-8x7b", training, "dp = 8\nep = 4", 8));
}

#[test]
fn linear_attention_keeps_neither_keys_and_values_nor_matrices_of_tokens_by_tokens() {
    let (s, e) = (2048u64, 2u64);
    // Nemotron-H-8B: 24 Mamba-2 layers keep the output of their projection and three times their values, 4 keep attention's queries, keys,
    // values, outputs and softmax, 24 the inner width twice. Each keeps the inputs of its norm and of its block.
    let around = 2 * e * s * 4096;
    let (mamba, attention) = (e * s * (18_560 + 3 * 8192), e * s * 2 * 128 * (32 + 8) + e * 32 * s * s);
    let expected = 52 * around + 24 * mamba + 4 * attention + 24 * 2 * e * s * 21_504;
    with_step(NEMOTRON_H, "", "tp = 1", 1, |step| {
        assert_eq!(UNFUSED.memory(step, 0).activations, Bytes(expected));
    });
    // With longer sequences only attention keeps more than in proportion.
    let kept = |model: &str, sequence: u64, layout: &str, ranks: u32| {
        let training = format!("sequence = {sequence}\nsequence_parallel = true");
        with_step(model, &training, layout, ranks, |step| Kernels::FUSED.memory(step, 0).activations.0)
    };
    for (model, tp, experts) in [(NEMOTRON_H, 8, ""), (QWEN3_NEXT, 2, "\nep = 2\netp = 1")] {
        assert_eq!(kept(model, 4096, "tp = 1", 1), 4 * kept(model, 1024, "tp = 1", 1), "{model}");
        let (whole, divided) = (kept(model, 2048, "tp = 1", 1), kept(model, 2048, &format!("tp = {tp}{experts}"), tp));
        assert_eq!(divided * u64::from(tp), whole, "{model}: all is divided by tp");
    }
}
