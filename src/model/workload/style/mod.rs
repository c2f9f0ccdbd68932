//! The communication of each parallel style, one file each. To add a style, add its file and one line here.

mod context;
mod control;
mod data;
mod deep_ep;
mod expert;
mod product;
mod replicated;
mod sequence;
pub(super) mod serving;

use super::Op;
use super::step::TrainingStep;
use crate::layout::Axis;
use crate::workload::Style;
use crate::workload::op::{End, Overlap, Pass, When};
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;

/// The calls of a style of one rank of a stage. A style returns nothing if its choices need no calls.
type Ops = fn(&TrainingStep, u32) -> Result<Vec<Op>>;

/// Styles whose calls carry activations in the passes of micro-batches.
const OF_ACTIVATIONS: [Ops; 5] =
    [replicated::tensor_ops, sequence::ops, product::vocabulary_ops, context::ops, expert::ops];

/// The other styles of a training step.
const OF_A_STEP: [Ops; 3] = [data::ops, ops, control::ops];

fn of_styles<'a>(styles: impl IntoIterator<Item = &'a Ops>, step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let mut all = Vec::new();
    for style in styles {
        all.extend(style(step, stage)?);
    }
    Ok(all)
}

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn training_ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    of_styles(OF_ACTIVATIONS.iter().chain(&OF_A_STEP), step, stage)
}

/// The calls in the passes of micro-batches that carry activations.
pub(super) fn activation_ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    of_styles(&OF_ACTIVATIONS, step, stage)
}

// Pipeline parallelism: messages across the boundaries between neighbouring stages.
//
// Their number follows from the schedule (`workload::schedule`, through `Messages`); their size does not depend on it.

/// The calls of one rank of a stage in an optimizer step.
fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let messages = step.messages[stage as usize];
    let mut ops = Vec::new();
    for (pass, all, exposed) in [
        (Pass::Forward, messages.forward, messages.forward_exposed),
        (Pass::Backward, messages.backward, messages.backward_exposed),
    ] {
        ops.push(boundary(step, pass, exposed, Overlap::Exposed));
        ops.push(boundary(step, pass, all - exposed, Overlap::SteadyState));
    }
    if step.training.pipeline.scatter_gather && !step.training.tensor.sequence_parallel {
        ops.extend([gather(step, stage, Pass::Forward), gather(step, stage, Pass::Backward)]);
    }
    ops.retain(|op| op.when.count_per_step(step.micro_batches) != Some(0));
    Ok(ops)
}

fn boundary(step: &TrainingStep, pass: Pass, sends_per_step: u64, overlap: Overlap) -> Op {
    let choices = &step.training.pipeline;
    let (whole, formula) = step.activation_bytes();
    let t = u64::from(step.layout.degrees.tp);
    let (bytes, formula) = match step.training.tensor.sequence_parallel || choices.scatter_gather {
        true if t > 1 => (whole / t, format!("{formula}, /t = {t}: {} B", whole / t)),
        _ => (whole, formula),
    };
    let (what, phase) = match (pass, overlap) {
        (Pass::Forward, Overlap::Exposed) => ("activations to the next stage", "while the pipeline fills"),
        (Pass::Forward, _) => ("activations to the next stage", "in the steady state"),
        (_, Overlap::Exposed) => ("gradients to the stage before", "while the pipeline drains"),
        _ => ("gradients to the stage before", "in the steady state"),
    };
    // The last stage's first chunk is followed by the first stage's second.
    let wraps = choices.schedule.goes_round();
    let collective = if wraps { Collective::SendRecv } else { Collective::SendRecvChain };
    Op {
        when: When::Boundary { pass, sends_per_step },
        overlap,
        why: format!(
            "{formula}: {what} {phase}, {} with m = {} micro-batches: {sends_per_step} of a step (arXiv 2104.04473 section \
             2.2; Megatron-LM core/pipeline_parallel/schedules.py, get_tensor_shapes)",
            choices.schedule, step.micro_batches
        ),
        ..Op::new(Style::Pipeline, Axis::Pp, collective, step.activation(), bytes)
    }
}

/// Gathers within the tensor-parallel group a message that was received in parts.
fn gather(step: &TrainingStep, stage: u32, pass: Pass) -> Op {
    let (bytes, formula) = step.activation_bytes();
    let stages = step.stages.count();
    let of = |stage: u32| step.messages.get(stage as usize).copied().unwrap_or_default();
    // The receives of a stage are the sends of its neighbours: with chunks the ring closes.
    let wraps = step.training.pipeline.schedule.goes_round();
    let received = match pass {
        Pass::Forward if stage > 0 => of(stage - 1).forward,
        Pass::Forward if wraps => of(stages - 1).forward,
        Pass::Backward if stage + 1 < stages => of(stage + 1).backward,
        Pass::Backward if wraps => of(0).backward,
        _ => 0,
    };
    Op {
        when: When::MicroBatch { pass, end: End::Whole, calls: received / step.micro_batches, one_in: 1 },
        why: format!(
            "{formula}: the parts received by the ranks of tp, gathered (scatter/gather, arXiv 2104.04473 section 4.1)"
        ),
        ..Op::new(Style::Pipeline, Axis::Tp, Collective::AllGather, step.activation(), bytes)
    }
}

#[cfg(test)]
mod hybrid_tests {
    // Known answers of hybrid models, counted by hand: Qwen3-Next-80B-A3B, with gated DeltaNet in 36 of 48 layers, and Nemotron-H-8B, with
    // 24 Mamba-2, 4 attention and 24 feed-forward layers.
    use super::testing::{refusal, rows, suite_of_class, with_steps};
    use crate::config::Suite;
    use crate::layout::Axis;
    use crate::workload::Style;
    use crate::workload::op::{LayerKind, Pass, When};
    use crate::workload::step::Step;
    use commgauge_base::collective::Collective::{self, AllGather, AllReduce, AllToAllV, ReduceScatter};

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
            ("qwen3_next", "cp = 2", 2, "gated DeltaNet), whose state passes"),
            (
                "nemotron_h",
                "cp = 2",
                2,
                "with cp = 2 it crosses the ranks, which frameworks do in different ways and is not modelled",
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
            std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../tests/data/transformers/qwen3_next/config.json"),
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
    fn layers_of_experts_alone_have_a_pair_of_linears_for_their_shared_expert_and_an_exchange() {
        // Nemotron 3 Nano: 23 Mamba-2, 6 attention and 23 layers of experts, 6 of 128 for each of 4096 tokens of 2688.
        let (forward, hidden) = (Some(Pass::Forward), 2 * 4096 * 2688);
        with_steps(&training("nemotron-3-nano", "sequence_parallel = true", "tp = 2"), 2, |step| {
            let linears = in_layers(step, Style::Sequence);
            assert_eq!(linears.first(), Some(&(AllGather, forward, hidden, 1, 52 * 2)), "{linears:?}");
        });
        with_steps(&training("nemotron-3-nano", "", "dp = 2\nep = 2"), 2, |step| {
            let ops = step.ops_of_stage(0).unwrap();
            let exchanges = ops.iter().filter(|op| op.style == Style::Expert && op.collective == AllToAllV);
            let exchanged: Vec<_> =
                exchanges.map(|op| (op.bytes_total.0, op.when.count_per_step(2).unwrap())).collect();
            assert!(exchanged.contains(&(6 * hidden, 23 * 2)), "{exchanged:?}");
        });
        with_steps(&serving("nemotron-3-nano", "", "tp = 2"), 2, |step| {
            let calls = in_layers(step, Style::Serving);
            assert!(calls.iter().any(|row| (row.0, row.3, row.4) == (AllReduce, 1, 52)), "{calls:?}");
        });
        // Experts that each replica reduces among all ranks: only the embedding and mixers reduce on tp.
        with_steps(&serving("nemotron-3-nano", "", "tp = 2\ndp = 2\nep = 4\netp = 1"), 4, |step| {
            let ops = step.ops_of_stage(0).unwrap();
            let reduced = ops.iter().filter(|op| op.axis == Axis::Tp && op.collective == AllReduce);
            let kinds: Vec<_> = reduced.map(|op| op.when.count_per_micro_batch().unwrap()).collect();
            assert_eq!(kinds, [1, 6, 23], "{:?}", ops.iter().map(|op| &op.why).collect::<Vec<_>>());
        });
    }

    #[test]
    fn steps_of_models_whose_traffic_is_not_known_are_refused_with_the_reason() {
        for (model, expected) in [
            ("glm-5.2", "(glm_moe_dsa) has no list of calls: several of its layers share an indexer"),
            ("deepseek-v4-pro", "(deepseek_v4) has no list of calls: its residual stream has several lanes"),
            ("nemotron-3-super", "its experts work in a width of 1024 (moe_latent_size)"),
        ] {
            assert!(refusal(&serving(model, "", "tp = 2"), 2).contains(expected), "{model}");
        }
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
                "prediction_layers = 1 with layers that are only a mixer or a feed-forward",
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
            let says = of_layers.why.contains("keys and values, and states of linear attention, stay with their heads");
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
            with_steps(
                &training(model, "data_style = 'fsdp'\nparameter_element_type = 'bfloat16'", "dp = 2"),
                2,
                |step| {
                    let ops = step.ops_of_stage(0).unwrap();
                    let gathers = ops.iter().filter(|op| op.style == Style::Data && op.collective == AllGather);
                    found.extend(gathers.filter_map(|op| match op.when {
                        When::Layer { pass: Pass::Forward, kind, layers, .. } => {
                            Some((kind, layers, op.bytes_total.0 / 2))
                        }
                        _ => None,
                    }));
                },
            );
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
        // Projections to 10304 of 2688, 6144 filters of 4 with a bias, three numbers for each of 64 heads, and a norm of 4096.
        let mamba = 2688 + 2688 * 10_304 + 6144 * 5 + 3 * 64 + 4096 + 4096 * 2688;
        let attention = 2688 + 2688 * (2 * 4096 + 2 * 256);
        let experts = 2688 + 128 * 2688 + 2 * 2688 * (128 * 1856 + 3712);
        assert_eq!(
            units("nemotron-3-nano"),
            [
                (LayerKind::AttentionAlone, 6, attention),
                (LayerKind::LinearAlone, 23, mamba),
                (LayerKind::Experts, 23, experts),
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
}

#[cfg(test)]
mod testing {
    // Test helpers of styles: a suite's text -> the ops of a stage as rows of a table, with their source and bytes from
    // `why`.
    use crate::config::Suite;
    use crate::layout::Axis;
    use crate::workload::op::{Overlap, Pass, When};
    use crate::workload::step::Step;
    use crate::workload::{Op, Style};
    use commgauge_base::collective::Collective::{self, AllGather, AllReduce, ReduceScatter};
    use std::path::Path;

    /// Reads a suite in the folder of the shipped ones, so that it finds their models.
    pub(super) fn suite(text: &str) -> Suite {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
        Suite::parse(&path, text).unwrap_or_else(|error| panic!("{text}\n{error}"))
    }

    /// A suite that names the one model whose config.json is given.
    pub(super) fn suite_of(config: &serde_json::Value, text: &str) -> Suite {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let text = format!("[model]\nconfig = 'config.json'\n{text}");
        Suite::parse(&folder.path().join("test.toml"), &text).unwrap_or_else(|error| panic!("{text}\n{error}"))
    }

    /// A suite that names the defaults of a class of transformers.
    pub(super) fn suite_of_class(model_type: &str, text: &str) -> Suite {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/transformers").join(model_type);
        suite(&format!("[model]\nconfig = {:?}\n{text}", folder.join("config.json").display()))
    }

    /// A suite of one training step.
    pub(super) fn training(preset: &str, training: &str, layout: &str) -> Suite {
        suite(&format!("[model]\npreset = '{preset}'\n[training]\n{training}\n[layout]\n{layout}\n"))
    }

    /// A suite of a prefill and a decode.
    pub(super) fn serving(preset: &str, serving: &str, layout: &str) -> Suite {
        suite(&format!("[model]\npreset = '{preset}'\n[serving]\n{serving}\n[layout]\n{layout}\n"))
    }

    /// Calls `check` with every step of the suite's layout, which must be valid.
    pub(super) fn with_steps(suite: &Suite, ranks: u32, mut check: impl FnMut(&Step)) {
        let steps = Step::all_of(&suite.layouts[0], ranks).unwrap_or_else(|error| panic!("{error}"));
        assert!(!steps.is_empty());
        steps.iter().for_each(&mut check);
    }

    /// Why the suite's layout is refused.
    pub(super) fn refusal(suite: &Suite, ranks: u32) -> String {
        let error = Step::all_of(&suite.layouts[0], ranks).map(|steps| steps.len()).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
        error.to_string()
    }

    /// The ops of a style on a stage, each as a row; counts are per layer (per micro-batch outside layers) and per step.
    pub(super) fn rows(step: &Step, stage: u32, style: Style) -> Vec<Row> {
        let ops = step.ops_of_stage(stage).unwrap_or_else(|error| panic!("{error}"));
        let m = step.micro_batches();
        ops.iter().filter(|op| op.style == style).map(|op| Row::of(op, m)).collect()
    }

    /// The columns of an op in tables of communications.
    #[derive(Clone, Debug, PartialEq)]
    pub(super) struct Row {
        pub axis: Axis,
        pub collective: Collective,
        pub pass: Option<Pass>,
        pub bytes: u64,
        /// Calls in a layer, in a micro-batch outside of layers, or in a step.
        pub calls: u64,
        pub calls_per_step: u64,
        pub overlap: Overlap,
    }

    impl Row {
        fn of(op: &Op, micro_batches: u64) -> Row {
            let (pass, calls) = match op.when {
                When::Layer { pass, calls_per_layer, .. } => (Some(pass), calls_per_layer),
                When::MicroBatch { pass, calls, .. } => (Some(pass), calls),
                When::Boundary { pass, sends_per_step } => (Some(pass), sends_per_step),
                When::Step { calls, .. } => (None, calls),
                When::Outside => panic!("an op of a step is outside it: {op:?}"),
            };
            let sources = [
                "Megatron-LM ",
                "torchtitan ",
                "vLLM ",
                "vLLM-Ascend ",
                "SGLang ",
                "arXiv ",
                "Transformer Engine ",
                "DeepEP ",
            ];
            let sourced = sources.iter().any(|source| op.why.contains(source));
            assert!(sourced && op.why.contains(&format!("= {} B", op.bytes_total.0)), "{}", op.why);
            Row {
                axis: op.axis,
                collective: op.collective,
                pass,
                bytes: op.bytes_total.0,
                calls,
                calls_per_step: op.when.count_per_step(micro_batches).unwrap(),
                overlap: op.overlap,
            }
        }

        /// Collective, pass, bytes, calls and overlap, for comparison with a table's row.
        pub fn short(&self) -> (Collective, Option<Pass>, u64, u64, Overlap) {
            (self.collective, self.pass, self.bytes, self.calls, self.overlap)
        }
    }

    /// Wire bytes of a style on an axis in a step, all and exposed.
    pub(super) fn wire(step: &Step, stage: u32, style: Style, axis: Axis) -> (u64, u64) {
        let of = |op: &Op| {
            op.wire_bytes(step.group_size(axis), op.when.count_per_step(step.micro_batches()).unwrap()).unwrap()
        };
        let ops = step.ops_of_stage(stage).unwrap();
        let ops: Vec<&Op> = ops.iter().filter(|op| op.style == style && op.axis == axis).collect();
        let exposed = ops.iter().filter(|op| op.overlap.is_exposed()).map(|op| of(op)).sum();
        (ops.iter().map(|op| of(op)).sum(), exposed)
    }

    /// Number of calls of each of the three collectives of tensor parallelism.
    pub(super) fn calls_of(rows: &[Row]) -> [u64; 3] {
        let of = |collective| rows.iter().filter(|row| row.collective == collective).map(|row| row.calls).sum();
        [of(AllReduce), of(AllGather), of(ReduceScatter)]
    }
}
