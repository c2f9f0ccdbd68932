//! Data parallelism: the gradients and parameters that the replicas of a stage exchange in an optimizer step.
//!
//! `tensors` lists the parameters of a rank, `buckets` cuts them (for Megatron-FSDP and layer-wise optimizers too), `zero` has the styles
//! on buckets (DDP, ZeRO-1, ZeRO-2), on whole matrices, and Muon's messages between the parts of a matrix, `fsdp` the styles that gather
//! parameters for every use (ZeRO-3, FSDP, HSDP) and the quantised calls of ZeRO++, `modules` ZeRO-3 as in DeepSpeed, with its gathers at
//! each module.

mod buckets;
mod fsdp;
mod modules;
mod tensors;
mod zero;

#[cfg(test)]
mod data_tests;

use crate::config::step::{BucketRule, DataStyle, UnitRule};
use crate::workload::Op;
use crate::workload::step::{RankParameters, TrainingStep};
use commgauge_base::error::Result;
use tensors::Order;

/// Number of parameter tensors on a rank of a stage, as defined by transformers' modules.
pub(super) fn tensors_of_stage(step: &TrainingStep, stage: u32) -> u64 {
    let of_chunk = |chunk| tensors::of_chunk(step, stage, chunk, Order::Definition).len() as u64;
    (0..step.stages.chunks()).map(of_chunk).sum()
}

impl TrainingStep<'_> {
    /// Parameters on a rank of a stage that are trained: all, those of the last layers, or those of adapters.
    pub fn trained_parameters(&self, stage: u32) -> RankParameters {
        if !self.training.data.trained.is_part() {
            return self.rank_parameters(stage);
        }
        let order =
            if self.training.data.bucket_rule == BucketRule::PyTorch { Order::PyTorch } else { Order::Megatron };
        let of_chunk = |chunk| tensors::of_chunk(self, stage, chunk, order);
        tensors::parameters_of((0..self.stages.chunks()).flat_map(of_chunk))
    }
}

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let mut ops = match step.training.data.style {
        DataStyle::Zero3 if step.training.data.units.rule == UnitRule::Modules => modules::ops(step, stage)?,
        DataStyle::Ddp | DataStyle::Zero1 | DataStyle::Zero2 => zero::ops(step, stage),
        DataStyle::Zero3 | DataStyle::Fsdp | DataStyle::Hsdp => fsdp::ops(step, stage),
    };
    for part in tensors::parts(step) {
        ops.extend(zero::orthogonalised_ops(step, stage, &part));
    }
    Ok(ops)
}

#[cfg(test)]
mod framework_tests {
    // Traffic of data parallelism as sent by frameworks: known answers, and choices without effect in a style.
    use super::data_tests::{data_ops, wire_on, with_step};
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
                "the head alone exceeds the limit"
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
    fn megatron_gathers_linears_in_eight_bits_and_embedding_head_and_norms_in_sixteen() {
        use Collective::{AllGather, ReduceScatter};
        // Llama 3 8B: queries, keys, values, output and three projections of 32 layers; 128,256 x 4096 twice and 65 norms.
        let linears = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14_336);
        let others = 2 * 128_256 * 4096 + 65 * 4096;
        let training =
            "micro_batches = 2\nframework = 'megatron'\ndata_style = 'zero1'\nparameter_element_type = 'fp8_e4m3'";
        let of = |training: &str| with_step("llama-3-8b", "dp=8", training, 8, |step| calls(step, Axis::Dp)).unwrap();
        let once = of(&format!("{training}\noverlap_gradients = false"));
        let expected = [
            (ReduceScatter, 1, 4 * linears),
            (AllGather, 1, linears),
            (ReduceScatter, 1, 4 * others),
            (AllGather, 1, 2 * others),
        ];
        assert_eq!(once, expected);
        let sum = |found: &[(Collective, u64, u64)], of| {
            found.iter().filter(|call| call.0 == of).map(|(_, calls, bytes)| calls * bytes).sum::<u64>()
        };
        let overlapped = of(&format!("{training}\noverlap_gradients = true"));
        assert_eq!(sum(&overlapped, AllGather), linears + 2 * others);
        assert_eq!(sum(&overlapped, ReduceScatter), 4 * (linears + others));
        // The down projections of low-rank attention are linears too, routers are not.
        let parameters = with_step("deepseek-v3", "dp=8", training, 8, |step| {
            let gathered = calls(step, Axis::Dp);
            let words = 2 * 129_280 * 7168;
            let routers = 58 * 256 * 7168;
            (sum(&gathered, AllGather), step.rank_parameters(0).total() + words + routers)
        });
        let (gathered, at_least) = parameters.unwrap();
        assert!((at_least..at_least + at_least / 1000).contains(&gathered), "{gathered}, not {at_least}");
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
            with_step("llama-3-8b", "dp=8", &format!("{training}\n{secondary}"), 8, |step| wire_on(step, 0, axis))
                .unwrap()
        };
        let (inside, outside) = (of("secondary_shards = 2", Axis::DpShard), of("secondary_shards = 2", Axis::Dp));
        let whole = of("", Axis::Dp);
        assert!(inside > 0.0 && outside < whole, "{inside} {outside} {whole}");
        // Traffic across nodes falls by the ratio of what a rank of two and a rank of eight receives: 1/2 for 7/8.
        assert!(((whole - outside) / inside - 7.0 / 4.0).abs() < 1e-9, "{inside} {outside} {whole}");
    }

    #[test]
    fn secondary_shards_without_parameters_or_groups_for_them_are_refused() {
        for (preset, layout, ranks, training, expected) in [
            ("llama-3-8b", "dp=8", 8, "data_style = 'zero3'", "with data_style zero3 and 2 micro-batches"),
            (
                "llama-3-8b",
                "dp=8",
                8,
                "data_style = 'zero2'",
                "needs data_style = zero3 or fsdp; found data_style = zero2",
            ),
            (
                "llama-3-8b",
                "dp=8",
                8,
                "data_style = 'fsdp'\nreshard_after_forward = false",
                "needs reshard_after_forward = true",
            ),
            (
                "llama-3-8b",
                "dp=6\ntp=4",
                24,
                "data_style = 'fsdp'",
                "does not divide the 6 ranks of dp x cp; accepted: 2, 3",
            ),
            ("llama-3-8b", "dp=4", 4, "data_style = 'fsdp'", "does not divide the 4 ranks of dp x cp; accepted: 2"),
            ("llama-3-8b", "tp=4", 4, "data_style = 'fsdp'", "accepted: none"),
            ("mixtral-8x7b", "dp=8\nep=2", 8, "data_style = 'fsdp'", "experts would need separate groups"),
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
        // tensors, dealt in alternating direction. Each kind of 32 is even except for its start.
        let blocks = ops[1].geometry(4).unwrap().blocks;
        assert_eq!(blocks.iter().sum::<u64>(), parameters);
        assert!(blocks.iter().all(|block| block.abs_diff(parameters / 4) < words), "{blocks:?}");
        assert_ne!(blocks.iter().min(), blocks.iter().max());
        let refused = |more: &str| of(&format!("{training}\n{more}")).unwrap_err().to_string();
        for (more, expected) in [
            ("gradient_reduction = 'reduce_scatter'", "gather_shares needs gradient_reduction = all_reduce; found"),
            ("replicas_of_shards = 2", "gather_shares needs replicas_of_shards = 1; found"),
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
        assert!(
            found.contains(&(AllGather, 2 * 32 + 1, 2 * 4096)),
            "two norms of each layer and the last stay: {found:?}"
        );
        let sum = |of: Collective| found.iter().filter(|call| call.0 == of).map(|call| call.1 * call.2).sum::<u64>();
        assert_eq!(sum(ReduceScatter), 4 * 2 * 8_030_261_248, "every gradient in every micro-batch, in bfloat16");
        // Once forward and once backward, except parameters that are used again soon.
        let (once, twice) = (4 * 2 * 8_030_261_248, 2 * 4 * 2 * 8_030_261_248);
        assert!((once..twice).contains(&sum(AllGather)), "{found:?}");
        assert!(found.iter().filter(|call| call.0 == ReduceScatter).all(|call| call.2 <= 2 * 525_336_576), "{found:?}");
    }

    #[test]
    fn choices_that_change_nothing_with_a_style_are_refused() {
        for (choice, expected) in [
            (
                "unit_rule = 'root_kept'",
                "unit_rule = root_kept needs data_style = zero3, fsdp or hsdp; found data_style = ddp",
            ),
            (
                "gradient_accumulation = 'unsharded'",
                "gradient_accumulation = unsharded needs data_style = fsdp or hsdp; found data_style = ddp",
            ),
            ("gradient_reduction = 'all_reduce'", "gradient_reduction = all_reduce needs data_style = zero1 or zero2"),
            ("replica_reduction = 'micro_batch'", "replica_reduction = micro_batch needs data_style = hsdp"),
            (
                "parameter_return = 'broadcast'",
                "parameter_return = broadcast needs data_style = zero1; found data_style = ddp",
            ),
            (
                "data_style = 'fsdp'\nunit_rule = 'modules'",
                "unit_rule = modules needs data_style = zero3; found data_style = fsdp",
            ),
            (
                "data_style = 'zero3'\nprefetch_bucket = 1",
                "prefetch_bucket = 1 needs unit_rule = modules; found unit_rule = layers",
            ),
            (
                "data_style = 'zero3'\nshard_buffers = 'listed'",
                "shard_buffers = listed needs unit_rule = modules; found unit_rule = layers",
            ),
            (
                "data_style = 'fsdp'\nbroadcast_buffers = 'rotary'",
                "broadcast_buffers = rotary needs data_style = ddp or zero1; found data_style = fsdp",
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
                let of =
                    |collective| ops.iter().filter(move |op| (op.collective, op.bytes_total.0) == (collective, inner));
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
            ("ddp", "tp=2 dp=2", "divides a model only by dp, found tp 2"),
            ("fsdp1", "dp=2 pp=2", "divides a model only by dp, found pp 2"),
            ("hf", "dp=2 pp=2", "divides a model only by tp, cp, dp, found pp 2"),
        ] {
            let training = format!("micro_batches = 8\nframework = '{framework}'");
            assert!(with_step("llama-3-8b", "dp=4", &training, 4, |_| ()).is_ok(), "{framework}");
            let error = with_step("llama-3-8b", layout, &training, 4, |_| ()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

#[cfg(test)]
mod levels_tests {
    // Known answers of shards in two levels and of Megatron-FSDP's buffers; counted by hand for Llama 3 8B.
    use super::data_tests::{data_ops, wire_on, with_step};
    use super::framework_tests::calls;
    use super::shards_tests::sent;
    use crate::layout::Axis;
    use commgauge_base::collective::Collective::{AllGather, AllReduce, ReduceScatter};
    use commgauge_base::element::ElementType::{self, Bfloat16, Float32};

    #[test]
    fn megatron_fsdp_gathers_layers_for_each_pass_and_the_rest_once() {
        let of = |more: &str| {
            let training = format!("micro_batches = 2\nframework = 'megatron'\ndata_style = 'fsdp'\n{more}");
            with_step("llama-3-8b", "dp=8", &training, 8, |step| calls(step, Axis::Dp)).unwrap()
        };
        // A layer of 218,112,000 parameters in 951 times 8 chunks of 28,672: `bucket_layout` has its numbers.
        let layer = 951 * 8 * 28_672;
        let layers = [(AllGather, 64, 2 * layer), (AllGather, 64, 2 * layer), (ReduceScatter, 64, 2 * layer)];
        // Embedding, head and norm are 32,064.125 times 8 rows of 4096.
        let rest = 32_065 * 8 * 4096;
        assert_eq!(of(""), [&layers[..], &[(AllGather, 1, 2 * rest), (ReduceScatter, 2, 2 * rest)]].concat());
        // With a limit the embedding is a bucket, of 16,032 times 8 rows, and norm and head another, of 16,032.125.
        let (embedding, head) = (16_032 * 8 * 4096, 16_033 * 8 * 4096);
        let buckets = [
            (AllGather, 1, 2 * embedding),
            (ReduceScatter, 2, 2 * embedding),
            (AllGather, 1, 2 * head),
            (ReduceScatter, 2, 2 * head),
        ];
        assert_eq!(of("bucket_parameters = 40000000"), [&layers[..], &buckets].concat());
    }

    #[test]
    fn megatron_fsdp_gathers_weights_in_eight_bits_apart_from_norms() {
        let training =
            "micro_batches = 2\nframework = 'megatron'\ndata_style = 'fsdp'\nparameter_element_type = 'fp8_e4m3'";
        let rows = sent("dp=8", 8, training);
        // The matrices of a layer are 218,103,808 parameters, 950.86 times 8 chunks of 28,672; its two norms 8192.
        let (matrices, norms) = (951 * 8 * 28_672, 8192);
        for (element, bytes) in [(ElementType::Fp8E4m3, matrices), (Bfloat16, 2 * norms)] {
            let gathered = rows.iter().filter(|row| (row.1, row.2, row.3) == (AllGather, element, bytes));
            assert_eq!(gathered.map(|row| row.4).sum::<u64>(), 2 * 2 * 32, "{rows:?}");
        }
        for bytes in [2 * matrices, 2 * norms] {
            assert!(rows.contains(&(Axis::Dp, ReduceScatter, Bfloat16, bytes, 64)), "gradients stay wide: {rows:?}");
        }
        assert!(
            rows.contains(&(Axis::Dp, AllGather, Bfloat16, 2 * 32_065 * 8 * 4096, 1)),
            "and embedding and head: {rows:?}"
        );
        // Queries with keys and values, output, gate with up, down: the largest elements of 4 weights of a layer.
        assert!(rows.contains(&(Axis::Dp, AllReduce, Float32, 4 * 4 * 32, 1)), "{rows:?}");
        // Of low-rank attention five weights: down and up for queries, for keys and values, and the output; of a dense layer two more.
        let of_latent = with_step("deepseek-v3", "dp=8", training, 8, |step| {
            let weights =
                data_ops(step, 0).into_iter().find(|op| op.why.contains("largest element")).unwrap().bytes_total.0 / 4;
            weights - 58 * 2 * 256
        });
        assert_eq!(of_latent.unwrap(), 61 * (5 + 2));
    }

    #[test]
    fn megatron_fsdp_with_replicas_adds_up_shards_once_in_a_step() {
        let training = "micro_batches = 2\nframework = 'megatron'\ndata_style = 'hsdp'\nreplicas_of_shards = 2";
        with_step("llama-3-8b", "dp=16", training, 16, |step| {
            let layer = 951 * 28_672;
            assert_eq!(calls(step, Axis::DpReplicate), [(AllReduce, 32, 2 * layer), (AllReduce, 1, 2 * 32_065 * 4096)]);
        })
        .unwrap();
        // With sharding, optimizer state is on 16 ranks: a layer has 476 times 16 chunks, and each of two groups half of the shard's.
        with_step("llama-3-8b", "dp=16", &format!("{training}\nouter_sharding = 'optim'"), 16, |step| {
            let (layer, rest) = (476 * 2 * 28_672, 16_033 * 2 * 4096);
            let of_layers = [(ReduceScatter, 32, 2 * layer), (AllGather, 64, 2 * layer)];
            let of_rest = [(ReduceScatter, 1, 2 * rest), (AllGather, 1, 2 * rest)];
            assert_eq!(calls(step, Axis::DpReplicate), [of_layers, of_rest].concat());
            assert!(calls(step, Axis::DpShard).contains(&(AllGather, 64, 8 * 2 * layer)));
        })
        .unwrap();
        for (choice, expected) in [
            (
                "data_style = 'hsdp'\nreplicas_of_shards = 2\nouter_sharding = 'optim'",
                "outer_sharding = optim needs unit_rule = buckets; found unit_rule = layers",
            ),
            (
                "data_style = 'zero3'\nunit_rule = 'buckets'",
                "unit_rule = buckets needs data_style = fsdp or hsdp; found data_style = zero3",
            ),
            (
                "data_style = 'fsdp'\nunit_rule = 'buckets'\nreshard_after_forward = false",
                "buckets needs reshard_after_forward = true; found",
            ),
            ("data_style = 'fsdp'\nunit_rule = 'buckets'\ngradient_accumulation = 'unsharded'", "accepted: sharded"),
            (
                "framework = 'megatron'\ndata_style = 'fsdp'\nunit_rule = 'layers'",
                "megatron offers no other unit_rule than buckets",
            ),
        ] {
            let training = format!("micro_batches = 2\n{choice}");
            let message = with_step("llama-3-8b", "dp=4", &training, 4, |_| ()).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn mics_is_hsdp_with_its_second_hop_once_in_a_step() {
        // arXiv 2205.00119 sections 3.2 and 3.4: partition groups of 8 of 64 ranks; all_gather twice and reduce_scatter of each of 4
        // micro-batches within them, and all_reduce of the shard over 8 groups when all gradients are added up.
        let training = "micro_batches = 4\ndata_style = 'hsdp'\nreplicas_of_shards = 8\ngradient_element_type = 'bf16'";
        with_step("llama-3-8b", "dp=64", training, 64, |step| {
            let bytes = 2.0 * step.rank_parameters(0).total() as f64;
            assert_eq!(wire_on(step, 0, Axis::DpShard), 4.0 * 3.0 * bytes * 7.0 / 8.0);
            assert_eq!(wire_on(step, 0, Axis::DpReplicate), 2.0 * 7.0 / 8.0 * bytes / 8.0);
        })
        .unwrap();
    }
}

#[cfg(test)]
mod matrices_tests {
    // Known answers of an optimizer of whole matrices, such as Muon; counted by hand for Llama 3 8B.
    use super::data_tests::with_step;
    use super::framework_tests::calls;
    use crate::layout::Axis;
    use crate::workload::Op;
    use crate::workload::step::Step;
    use commgauge_base::collective::Collective::{AllGather, AllReduce, ReduceScatter};
    use commgauge_base::element::ElementType;

    #[test]
    fn whole_matrices_lie_in_buckets_as_long_as_their_fullest_shard() {
        let of = |dp: u32| {
            let training =
                "micro_batches = 2\nframework = 'megatron'\ndata_style = 'zero1'\nbucket_rule = 'layer_wise'";
            with_step("llama-3-8b", &format!("dp={dp}"), training, dp, |step| calls(step, Axis::Dp)).unwrap()
        };
        let rows = |matrices: u64, others: u64| {
            [
                (ReduceScatter, 1, 4 * matrices),
                (AllGather, 1, 2 * matrices),
                (ReduceScatter, 1, 4 * others),
                (AllGather, 1, 2 * others),
            ]
        };
        // In units of 4096 x 4096 each of 32 layers has matrices of 7, 3.5, 1.5 and 1. On 8 ranks four of each kind go to every rank. Embedding,
        // head and 65 norms are a multiple of 128.
        let (unit, others) = (4096 * 4096, 2 * 128_256 * 4096 + 65 * 4096);
        assert_eq!(of(8), rows(32 * 13 * unit, others));
        // On 3 ranks: 11, 11 and 10 of 7; two of 3.5 to the third, and ten to each; ten of 1.5 to each, and one to the first two: 128.5,
        // 128.5 and 127; 32 of 1 to the shard with the least: 138.5, 138.5 and 139. The rest is not a multiple of 3 x 128.
        assert_eq!(of(3), rows(3 * 139 * unit, others.next_multiple_of(384)));
    }

    #[test]
    fn muon_gathers_divided_matrices_or_adds_up_their_products() {
        use ElementType::{Bfloat16, Float32};
        let of = |layout: &str, ranks, training: &str| {
            let training = format!("micro_batches = 2\nframework = 'megatron'\n{training}");
            with_step("llama-3-8b", layout, &training, ranks, |step| {
                let ops = Step::Training(step.clone()).ops_of_stage(0).unwrap();
                let of_muon = ops.iter().filter(|op| op.why.contains("muon_tp_mode"));
                let row = |op: &Op| {
                    let calls = op.when.count_per_step(step.micro_batches).unwrap();
                    (op.axis, op.collective, op.element, op.bytes_total.0, calls)
                };
                of_muon.map(row).collect::<Vec<_>>()
            })
            .unwrap_or_else(|error| panic!("{error}"))
        };
        let gathered = |layers: u64| {
            let row = |elements: u64, calls| (Axis::Tp, AllGather, Float32, 4 * elements, calls * layers);
            // Keys and values of 1024 x 4096; queries and outputs of 4096 x 4096; down; gate and up in one.
            [row(1024 * 4096, 2), row(4096 * 4096, 2), row(14_336 * 4096, 1), row(28_672 * 4096, 1)]
        };
        let duplicated = "muon_tp_mode = 'duplicated'";
        assert_eq!(of("tp=2", 2, duplicated), gathered(32));
        // Queries, keys and values separately, output, gate with up, and down: 6 matrices of a layer, each 4096 wide where it is not
        // divided.
        let distributed = [(AllReduce, Float32, 4, 32 * 6), (AllReduce, Bfloat16, 2 * 4096 * 4096, 32 * 6 * 5)]
            .map(|(collective, element, bytes, calls)| (Axis::Tp, collective, element, bytes, calls));
        assert_eq!(of("tp=4", 4, "muon_tp_mode = 'distributed'"), distributed);
        // Of 8 replicas each updates the matrices of four layers.
        let shared = "muon_tp_mode = 'duplicated'\ndata_style = 'zero1'\nbucket_rule = 'layer_wise'";
        assert_eq!(of("tp=2 dp=8", 16, shared), gathered(4));
        assert!(of("tp=2 dp=2", 4, "data_style = 'ddp'").is_empty(), "each rank its part");
    }

    #[test]
    fn muon_with_parts_of_matrices_is_refused() {
        for (layout, ranks, training, expected) in [
            ("tp=2 dp=2", 4, "data_style = 'zero1'", "with data_style zero1, whose ranks have parts of matrices"),
            ("tp=2 dp=2", 4, "data_style = 'fsdp'", "needs data_style = ddp or zero1; found data_style = fsdp"),
            ("dp=2", 2, "data_style = 'ddp'", "has no effect with tp = 1"),
            ("tp=16", 16, "data_style = 'ddp'", "accepted: tp up to 8"),
        ] {
            let training = format!("micro_batches = 2\nmuon_tp_mode = 'distributed'\n{training}");
            let message = with_step("llama-3-8b", layout, &training, ranks, |_| ()).unwrap_err().to_string();
            assert!(message.contains("muon_tp_mode = distributed") && message.contains(expected), "{message}");
        }
    }

    #[test]
    fn whole_matrices_go_with_sharded_gradients_alone() {
        for (choice, expected) in [
            ("data_style = 'ddp'", "bucket_rule = layer_wise needs data_style = zero1; found data_style = ddp"),
            (
                "data_style = 'zero1'\ngradient_reduction = 'all_reduce'",
                "layer_wise needs gradient_reduction = reduce_scatter",
            ),
            (
                "data_style = 'zero1'\nparameter_return = 'broadcast'",
                "needs parameter_return = all_gather or each_optimizer",
            ),
            ("data_style = 'zero1'\nreplicas_of_shards = 2", "layer_wise needs replicas_of_shards = 1"),
        ] {
            let training = format!("micro_batches = 2\nbucket_rule = 'layer_wise'\n{choice}");
            let message = with_step("llama-3-8b", "dp=4", &training, 4, |_| ()).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        let training = "micro_batches = 2\ndata_style = 'zero1'\nbucket_rule = 'layer_wise'";
        let message = with_step("gpt-oss-120b", "dp=4", training, 4, |_| ()).unwrap_err().to_string();
        assert!(message.contains("accepted: experts without biases, or parameter_return = gather_shares"), "{message}");
    }

    #[test]
    fn experts_of_a_layer_wise_optimizer_are_gathered_once_and_the_rest_by_its_one_distributed_optimizer() {
        // Mixtral has no biases: its experts are only matrices, so one distributed optimizer has all other parameters.
        let training = "micro_batches = 2\nframework = 'megatron'\ndata_style = 'zero1'\nbucket_rule = 'layer_wise'";
        let gathers = |axis| {
            let rows = with_step("mixtral-8x7b", "dp=4 ep=2", training, 4, |step| calls(step, axis)).unwrap();
            rows.into_iter()
                .filter(|(collective, ..)| *collective == AllGather)
                .map(|(_, calls, _)| calls)
                .collect::<Vec<_>>()
        };
        assert_eq!(gathers(Axis::Dp), [1, 1]);
        assert_eq!(gathers(Axis::Edp), [1]);
    }
}

#[cfg(test)]
mod shards_tests {
    // Known answers of ZeRO++'s quantised gathers and reductions; counted by hand for Llama 3 8B.
    use super::data_tests::{data_ops, with_step};
    use crate::layout::Axis;
    use commgauge_base::collective::Collective::{self, AllGather, AllToAll, ReduceScatter};
    use commgauge_base::element::ElementType::{self, Bfloat16, Float32, Int8};

    /// Every tensor of 100,000 parameters and more alone, when its module needs it.
    const ALONE: &str = "micro_batches = 1\nframework = 'deepspeed'\ndata_style = 'zero3'\nprefetch_bucket = 0\nlive_parameters = 0\nreuse_distance = 0";

    /// Axis, collective, element type, bytes and calls in a step.
    pub(super) fn sent(layout: &str, ranks: u32, training: &str) -> Vec<(Axis, Collective, ElementType, u64, u64)> {
        let rows = with_step("llama-3-8b", layout, training, ranks, |step| {
            let row = |op: &crate::workload::Op| {
                let calls = op.when.count_per_step(step.micro_batches).unwrap();
                (op.axis, op.collective, op.element, op.bytes_total.0, calls)
            };
            data_ops(step, 0).iter().map(row).collect()
        });
        rows.unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn zero_plus_plus_gathers_eight_bits_and_a_scale_for_each_block() {
        // 16 ranks: of an embedding of 525,336,576 each has 32,833,536 in blocks of 6144, of a matrix of 4096 x 4096 1,048,576 in 256 blocks.
        // Twice in a micro-batch, for the forward and for the backward pass.
        let all = sent("dp=16", 16, &format!("{ALONE}\nquantised_parameters = true"));
        let pass: Vec<_> = all.iter().filter(|(_, collective, ..)| *collective == AllGather).copied().collect();
        for (elements, scales, calls) in [
            (128_256 * 4096, 16 * 5344, 2),
            (4096 * 4096, 16 * 256, 64),
            (1024 * 4096, 16 * 64, 64),
            (14_336 * 4096, 16 * 512, 96),
        ] {
            let values = pass.iter().filter(|row| (row.0, row.2, row.3) == (Axis::Dp, Int8, elements));
            assert_eq!(values.map(|row| row.4).sum::<u64>(), 2 * calls, "{elements}");
            let of_scales = pass.iter().filter(|row| (row.0, row.2, row.3) == (Axis::Dp, Float32, 4 * scales));
            assert_eq!(of_scales.map(|row| row.4).sum::<u64>(), 2 * calls, "{elements}: {scales} scales");
        }
        // Norms of 4096 stay on every rank, and return unquantised after the optimizer.
        let norms: Vec<_> = pass.iter().filter(|row| row.2 == Bfloat16).collect();
        assert_eq!(norms, [&(Axis::Dp, AllGather, Bfloat16, 2 * 4096, 65)]);
    }

    #[test]
    fn secondary_shards_of_quantised_parameters_have_blocks_of_their_own() {
        let all = sent("dp=16", 16, &format!("{ALONE}\nquantised_parameters = true\nsecondary_shards = 8"));
        let of = |axis| {
            let here = all.iter().filter(move |row| row.0 == axis && row.1 == AllGather && row.2 == Int8);
            here.map(|row| row.3 * row.4).sum::<u64>()
        };
        // All but 65 norms, once per pass.
        assert_eq!((of(Axis::Dp), of(Axis::DpShard)), (8_030_261_248 - 65 * 4096, 8_030_261_248 - 65 * 4096));
        // 4,194,304 parameters on 8 ranks: 524,288 in 128 blocks, on 16 ranks in 64.
        let scales = |axis| all.iter().any(|row| (row.0, row.2, row.3) == (axis, Float32, 4 * 1024));
        assert!(scales(Axis::Dp) && scales(Axis::DpShard));
    }

    #[test]
    fn zero_plus_plus_reduces_matrices_in_four_calls_and_norms_in_one() {
        let all = sent("dp=16", 16, &format!("{ALONE}\nquantised_gradients = 8"));
        let reduced: Vec<_> = all.into_iter().filter(|row| row.1 != AllGather).collect();
        // Half a byte per number; as many scales as the longer side has; between the two nodes an eighth of both.
        let of_matrix = |elements: u64, blocks: u64, calls: u64| {
            [
                (Axis::DpShard, AllToAll, Int8, elements / 2, calls),
                (Axis::DpShard, AllToAll, Float32, 4 * blocks, calls),
                (Axis::DpReplicate, AllToAll, Int8, elements / 16, calls),
                (Axis::DpReplicate, AllToAll, Float32, 4 * blocks / 8, calls),
            ]
        };
        let mut expected = [
            of_matrix(128_256 * 4096, 128_256, 2).to_vec(),
            of_matrix(14_336 * 4096, 14_336, 96).to_vec(),
            of_matrix(4096 * 4096, 4096, 64).to_vec(),
            // Keys and values: 1024 x 4096, whose longer side makes the scales of both equal calls.
            vec![
                (Axis::DpShard, AllToAll, Int8, 1024 * 4096 / 2, 64),
                (Axis::DpReplicate, AllToAll, Int8, 1024 * 4096 / 16, 64),
            ],
            vec![(Axis::Dp, ReduceScatter, Bfloat16, 2 * 4096, 65)],
        ]
        .concat();
        for row in &mut expected {
            row.4 += if row.2 == Float32 && matches!(row.3, 16_384 | 2048) { 64 } else { 0 };
        }
        let mut reduced = reduced;
        reduced.sort_unstable();
        expected.sort_unstable();
        assert_eq!(reduced, expected);
    }

    #[test]
    fn experts_of_a_layer_are_one_tensor_whose_scales_are_those_of_an_expert_s_rows() {
        let training = format!("{ALONE}\nquantised_gradients = 8");
        let rows = with_step("mixtral-8x7b", "dp=16", &training, 16, |step| {
            let row = |op: &crate::workload::Op| {
                (op.axis, op.element, op.bytes_total.0, op.when.count_per_step(step.micro_batches).unwrap())
            };
            data_ops(step, 0).iter().filter(|op| op.collective == AllToAll).map(row).collect::<Vec<_>>()
        })
        .unwrap();
        // In each of 32 layers 8 experts of 2 x 14336 x 4096 and of 4096 x 14336: one tensor of each, with 28,672 and 4096 scales.
        let (first, second) = (8 * 2 * 14_336 * 4096, 8 * 4096 * 14_336);
        for expected in [
            (Axis::DpShard, Int8, first / 2, 32),
            (Axis::DpShard, Float32, 4 * 28_672, 32),
            (Axis::DpReplicate, Int8, first / 16, 32),
            (Axis::DpShard, Int8, second / 2, 32),
            (Axis::DpReplicate, Int8, second / 16, 32),
        ] {
            assert!(rows.contains(&expected), "{expected:?}: {rows:?}");
        }
        // The router of 8 x 4096 has 4096 scales, as have the second projections, queries and outputs, and keys and values: 1 + 1 + 2 + 2.
        assert!(rows.contains(&(Axis::DpShard, Float32, 4 * 4096, 32 * 6)), "{rows:?}");
    }

    #[test]
    fn quantised_calls_that_do_not_fit_are_refused_with_what_would() {
        for (layout, ranks, more, expected) in [
            (
                "dp=16",
                16,
                "quantised_gradients = 3",
                "quantised_gradients = 3 does not divide the 16 ranks of dp x cp; accepted: 2, 4, 8",
            ),
            ("dp=16", 16, "quantised_gradients = 16", "accepted: 2, 4, 8"),
            (
                "dp=16",
                16,
                "quantised_gradients = 4\nsecondary_shards = 8",
                "both are the ranks of a node; accepted: the same number",
            ),
            ("dp=8 tp=2", 16, "quantised_gradients = 4", "through the nodes of all ranks"),
            (
                "dp=16",
                16,
                "quantised_gradients = 4\nunit_rule = 'layers'",
                "deepspeed offers no other unit_rule than modules",
            ),
            // 128,256 scales of the embedding are 64 x 2004.
            (
                "dp=512",
                512,
                "quantised_gradients = 8",
                "the 128256 scales of a matrix of 128256 x 4096 do not divide among 8 ranks",
            ),
            // A persistence threshold of nothing gathers norms too: 4096 / 1024 = 4 parameters on a rank.
            (
                "dp=1024",
                1024,
                "quantised_parameters = true\npersistent_parameters = 0",
                "4 parameters on each of 1024 ranks are not a multiple of 8",
            ),
        ] {
            let training = format!("{ALONE}\n{more}");
            let error = with_step("llama-3-8b", layout, &training, ranks, |step| {
                crate::workload::step::Step::Training(step.clone()).ops_of_stage(0).map(|ops| ops.len())
            });
            let message = error.and_then(|ops| ops).unwrap_err();
            assert_eq!(message.exit_code(), 2, "{message}");
            assert!(message.to_string().contains(expected), "{more}: {message}");
        }
        for (training, expected) in [
            (
                "data_style = 'fsdp'\nquantised_parameters = true",
                "quantised_parameters = true needs unit_rule = modules; found unit_rule = layers",
            ),
            ("data_style = 'fsdp'\nquantised_gradients = 4", "needs unit_rule = modules; found unit_rule = layers"),
        ] {
            let training = format!("micro_batches = 1\n{training}");
            let message = with_step("llama-3-8b", "dp=16", &training, 16, |_| ()).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        let experts = "micro_batches = 1\ndata_style = 'zero3'\nunit_rule = 'modules'\nquantised_gradients = 2";
        let message = with_step("mixtral-8x7b", "dp=4 ep=2", experts, 4, |_| ()).unwrap_err().to_string();
        assert!(message.contains("DeepSpeed's ZeRO-3 has no groups of experts"), "{message}");
    }
}
