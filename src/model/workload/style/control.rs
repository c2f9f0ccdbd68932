//! Small blocking calls around a step: token counts, overflow flag, gradient norm, loss.
//!
//! They move 4 or 8 bytes, so that only their latency counts, but no stage continues before they are complete: the
//! zero-bubble schedules validate afterwards instead (arXiv 2401.10241 section 4).

use crate::config::step::SmallCall::{
    BatchTokens, Loss, Norm, NormDouble, NormTensors, Overflow, OverflowByte, Status, Tokens,
};
use crate::config::step::{BucketRule, DataStyle, MuonTensorMode};
use crate::layout::Axis;
use crate::workload::op::{Moment, When};
use crate::workload::step::TrainingStep;
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective::{AllReduce, Broadcast};
use commgauge_base::collective::ReduceOp::{Max, Min, Sum};
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType::{self, Float32, Float64, Int32, Int64, Uint8};
use commgauge_base::error::Result;

// Where frameworks make these calls.

const VALID_TOKENS: &str = "torchtitan train.py train_step global_valid_tokens";
const FINALIZE: &str = "Megatron-LM core/distributed/finalize_model_grads.py, with --calculate-per-token-loss";
const OVERFLOW: &str =
    "Megatron-LM core/optimizer/optimizer.py _unscale_main_grads_and_check_for_nan; absent without a loss scale";
const OVERFLOW_BYTE: &str = "DeepSpeed runtime/zero/stage_1_and_2.py has_overflow; arXiv 1910.02054";
const NORM: &str = "Megatron-LM core/optimizer/clip_grads.py get_grad_norm_fp32";
const NORM_OF_EXPERTS: &str = "Megatron-LM core/optimizer/optimizer.py ChainedOptimizer";
const NORM_DOUBLE: &str = "DeepSpeed runtime/zero/stage3.py get_grad_norm_direct; arXiv 1910.02054";
const NORM_OF_TENSORS: &str = "torch/nn/utils/clip_grad.py get_total_norm; arXiv 2304.11277";
const TRAIN_STEP: &str = "Megatron-LM training/training.py train_step, training/utils.py";

/// The calls of one rank of a stage in an optimizer step, in order.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let (statistics, over) = statistics_axis(step);
    let replicas = if step.layout.degrees.cp > 1 { Axis::DpCp } else { Axis::Dp };
    let tokens = format!("tokens of all replicas, which divide the loss ({VALID_TOKENS})");
    let tokens_of_stage = format!("tokens counted by the last stage ({FINALIZE})");
    let tokens_of_replicas = format!("tokens of all replicas, which divide the gradients ({FINALIZE})");
    let overflow = |source| format!("whether a gradient overflowed, over {over} ({source})");
    let norm = |source| format!("square of the gradient norm, over {over} ({source})");
    let norm_of_experts = format!(
        "square of the norm of the experts' gradients, over the ranks of one replica of them, which have a separate optimizer \
         ({NORM_OF_EXPERTS})"
    );
    let updated =
        format!("whether every part of the model was updated ({TRAIN_STEP} logical_and_across_model_parallel_group)");
    let logged = format!("gradient norm for the log ({TRAIN_STEP} reduce_max_stat_across_model_parallel_group)");
    let losses = format!("sum of losses and number of tokens, for the mean loss ({TRAIN_STEP})");
    let norms = When::Step { moment: Moment::Optimizer, calls: norms(step) };
    let calls = [
        (
            BatchTokens,
            Op { reduce_op: Some(Sum), ..small(Axis::Dp, AllReduce, Int64, 1, Moment::FirstForward, &tokens) },
        ),
        (
            Tokens,
            Op {
                root: step.layout.degrees.pp - 1,
                ..small(Axis::Pp, Broadcast, Int32, 1, Moment::AfterBackward, &tokens_of_stage)
            },
        ),
        (Tokens, small(replicas, AllReduce, Int32, 1, Moment::AfterBackward, &tokens_of_replicas)),
        (Overflow, all_reduce(statistics, Max, Float32, 1, &overflow(OVERFLOW))),
        (OverflowByte, all_reduce(statistics, Max, Uint8, 1, &overflow(OVERFLOW_BYTE))),
        (Norm, Op { when: norms, ..all_reduce(statistics, Sum, Float32, 1, &norm(NORM)) }),
        (Norm, all_reduce(Axis::ExpertMp, Sum, Float32, 1, &norm_of_experts)),
        (NormDouble, all_reduce(statistics, Sum, Float64, 1, &norm(NORM_DOUBLE))),
        (NormTensors, norms_of_tensors(step, stage)),
        (Status, all_reduce(Axis::Mp, Min, Int32, 1, &updated)),
        (Status, all_reduce(Axis::Mp, Max, Float32, 1, &logged)),
        (Loss, all_reduce(replicas, Sum, Float32, 2, &losses)),
    ];
    let listed = |(kind, op): (_, Op)| {
        let is_made = match kind {
            Loss => step.stages.has_output(stage),
            _ => op.axis != Axis::ExpertMp || experts_are_apart(step),
        };
        (is_made && step.training.small_calls.contains(&kind)).then_some(op)
    };
    Ok(calls.into_iter().filter_map(listed).collect())
}

/// Number of optimizers that sum the norm of their updates over these ranks: a layer-wise one, and one for the rest; Muon and one for the
/// rest if experts have a third, for which others sum (Megatron-LM core/optimizer/__init__.py _get_megatron_emerging_optimizer,
/// optimizer.py ChainedOptimizer.get_grad_norm).
fn norms(step: &TrainingStep) -> u64 {
    let is_layer_wise = step.training.data.bucket_rule == BucketRule::LayerWise;
    let is_muon = step.training.tensor.muon_tp_mode != MuonTensorMode::Blockwise;
    if is_layer_wise || (is_muon && experts_are_apart(step)) { 2 } else { 1 }
}

/// The ranks that together have every gradient once: those of one replica if all replicas have the same gradients, all
/// ranks if gradients are sharded over replicas.
fn statistics_axis(step: &TrainingStep) -> (Axis, &'static str) {
    let d = &step.layout.degrees;
    match step.training.data.style {
        // With tp or pp no axis has the parts of a model together with the shards of one group.
        _ if step.training.data.shards.replicas > 1 && d.tp * d.pp == 1 => {
            (Axis::DpShard, "the ranks of a group of shards, with equal gradients in each")
        }
        DataStyle::Ddp => (Axis::Mp, "the ranks of one replica"),
        DataStyle::Zero1 | DataStyle::Zero2 | DataStyle::Zero3 | DataStyle::Fsdp | DataStyle::Hsdp => {
            (Axis::World, "all ranks, as gradients are sharded over replicas")
        }
    }
}

/// A number per tensor, over the ranks that have its shards.
fn norms_of_tensors(step: &TrainingStep, stage: u32) -> Op {
    let axis = match (step.training.data.shards.replicas, step.layout.degrees.cp) {
        (1, 1) => Axis::Dp,
        (1, _) => Axis::DpCp,
        _ => Axis::DpShard,
    };
    let what =
        format!("square of the norm of each tensor's gradient, over the ranks of its shards ({NORM_OF_TENSORS})");
    let tensors = super::data::tensors_of_stage(step, stage);
    all_reduce(axis, Sum, Float32, tensors, &what)
}

/// Whether experts are reduced in other groups than the rest. Ranks of stages without experts join the sum too (Megatron-LM
/// core/optimizer/__init__.py gathers the parameter groups of all ranks); with sharded gradients one sum has both.
fn experts_are_apart(step: &TrainingStep) -> bool {
    let has_experts = |stage| step.stages.layers_stored(stage).any(|layer| step.model.has_experts_in(layer));
    step.layout.degrees.divides_experts()
        && step.training.data.style == DataStyle::Ddp
        && (0..step.stages.count()).any(has_experts)
}

fn all_reduce(axis: Axis, reduce_op: ReduceOp, element: ElementType, numbers: u64, what: &str) -> Op {
    let call = small(axis, AllReduce, element, numbers, Moment::Optimizer, what);
    Op { reduce_op: Some(reduce_op), ..call }
}

fn small(axis: Axis, collective: Collective, element: ElementType, numbers: u64, moment: Moment, what: &str) -> Op {
    let bytes = element.size() * numbers;
    Op {
        when: When::Step { moment, calls: 1 },
        why: format!("{numbers}*{} B = {bytes} B: {what}", element.size()),
        ..Op::new(Style::Control, axis, collective, element, bytes)
    }
}

#[cfg(test)]
mod tests {
    // Known answers: the calls of Megatron-LM's finalize_model_grads, optimizer step and train_step, counted by hand.
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
        let written = "sequence = 1024\nmicro_batches = 4\nframework = 'megatron'\ndata_style = 'zero1'\nbucket_rule = 'layer_wise'";
        with_steps(&training("llama-3-8b", &format!("{written}\nsmall_calls = ['norm']"), "dp = 2"), 2, |step| {
            let calls: Vec<_> =
                rows(step, 0, Style::Control).iter().map(|row| (row.axis, row.bytes, row.calls)).collect();
            assert_eq!(calls, [(Axis::World, 4, 2)]);
        });
    }

    #[test]
    fn with_muon_and_experts_three_optimizers_sum_a_norm_each() {
        let muon = "sequence = 1024\nmicro_batches = 4\nsequence_parallel = true\nsmall_calls = ['norm']\nmuon_tp_mode";
        for (written, preset, layout, expected) in [
            (
                "'duplicated'",
                "mixtral-8x7b",
                "tp = 2\netp = 1\nep = 2\ndp = 2",
                vec![(Axis::Mp, 2), (Axis::ExpertMp, 1)],
            ),
            (
                "'blockwise'",
                "mixtral-8x7b",
                "tp = 2\netp = 1\nep = 2\ndp = 2",
                vec![(Axis::Mp, 1), (Axis::ExpertMp, 1)],
            ),
            ("'duplicated'", "llama-3-8b", "tp = 2\ndp = 2", vec![(Axis::Mp, 1)]),
        ] {
            with_steps(&training(preset, &format!("{muon} = {written}"), layout), 4, |step| {
                let calls: Vec<_> = rows(step, 0, Style::Control).iter().map(|row| (row.axis, row.calls)).collect();
                assert_eq!(calls, expected, "{preset} {written}");
            });
        }
    }
}
