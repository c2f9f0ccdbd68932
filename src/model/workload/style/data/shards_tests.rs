//! Known answers of ZeRO++'s quantised gathers and reductions; counted by hand for Llama 3 8B.

use super::tests::{data_ops, with_step};
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
    // Norms of 4096 stay on every rank, and come back as they are when the optimizer is done.
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
    // All but 65 norms, once in either pass.
    assert_eq!((of(Axis::Dp), of(Axis::DpShard)), (8_030_261_248 - 65 * 4096, 8_030_261_248 - 65 * 4096));
    // 4,194,304 parameters on 8 ranks: 524,288 in 128 blocks, on 16 ranks in 64.
    let scales = |axis| all.iter().any(|row| (row.0, row.2, row.3) == (axis, Float32, 4 * 1024));
    assert!(scales(Axis::Dp) && scales(Axis::DpShard));
}

#[test]
fn zero_plus_plus_reduces_matrices_in_four_calls_and_norms_in_one() {
    let all = sent("dp=16", 16, &format!("{ALONE}\nquantised_gradients = 8"));
    let reduced: Vec<_> = all.into_iter().filter(|row| row.1 != AllGather).collect();
    // Half a byte for each number; as many scales as the longer side has; between the two nodes an eighth of both.
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
            "quantised_gradients = 3 are no part of the 16 ranks of dp x cp; accepted: 2, 4, 8",
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
            "4 parameters on each of 1024 ranks are no multiple of 8",
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
            "quantised_parameters change nothing with unit_rule layers",
        ),
        (
            "data_style = 'fsdp'\nquantised_gradients = 4",
            "changes nothing with unit_rule layers; accepted: with unit_rule = modules",
        ),
    ] {
        let training = format!("micro_batches = 1\n{training}");
        let message = with_step("llama-3-8b", "dp=16", &training, 16, |_| ()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let experts = "micro_batches = 1\ndata_style = 'zero3'\nunit_rule = 'modules'\nquantised_gradients = 2";
    let message = with_step("mixtral-8x7b", "dp=4 ep=2", experts, 4, |_| ()).unwrap_err().to_string();
    assert!(message.contains("DeepSpeed's ZeRO-3 has no groups of experts"), "{message}");
}
