//! Known answers of what ranks share out in further ways: quantised gathers and reductions of ZeRO++, whole matrices of a layer-wise
//! optimizer, buffers of Megatron-FSDP, partitions of MiCS; counted by hand for Llama 3 8B.

use super::framework_tests::calls;
use super::tests::{data_ops, wire_on, with_step};
use crate::layout::Axis;
use commgauge_base::collective::Collective::{self, AllGather, AllReduce, AllToAll, ReduceScatter};
use commgauge_base::element::ElementType::{self, Bfloat16, Float32, Int8};

/// Every tensor of 100,000 parameters and more alone, when its module needs it.
const ALONE: &str = "micro_batches = 1\nframework = 'deepspeed'\ndata_style = 'zero3'\nprefetch_bucket = 0\nlive_parameters = 0\nreuse_distance = 0";

/// Axis, collective, element type, bytes and calls in a step.
fn sent(layout: &str, ranks: u32, training: &str) -> Vec<(Axis, Collective, ElementType, u64, u64)> {
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

#[test]
fn whole_matrices_lie_in_buckets_as_long_as_their_fullest_shard() {
    let of = |dp: u32| {
        let training = "micro_batches = 2\nframework = 'megatron'\ndata_style = 'zero1'\nbucket_rule = 'layer_wise'";
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
    // On 3 ranks: 11, 11 and 10 of 7; two of 3.5 to the third, and ten to each; ten of 1.5 to each, and one to the first two: 128.5, 128.5
    // and 127; 32 of 1 to where least is: 138.5, 138.5 and 139. The rest is no multiple of 3 x 128.
    assert_eq!(of(3), rows(3 * 139 * unit, others.next_multiple_of(384)));
}

#[test]
fn muon_gathers_divided_matrices_or_adds_up_their_products() {
    use ElementType::{Bfloat16, Float32};
    let of = |layout: &str, ranks, training: &str| {
        let training = format!("micro_batches = 2\nframework = 'megatron'\n{training}");
        with_step("llama-3-8b", layout, &training, ranks, |step| {
            let ops = crate::workload::step::Step::Training(step.clone()).ops_of_stage(0).unwrap();
            let of_muon = ops.iter().filter(|op| op.why.contains("muon_tp_mode"));
            let row = |op: &crate::workload::Op| {
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
    // Queries, keys and values apart, output, gate with up, and down: 6 matrices of a layer, each 4096 wide where it is not divided.
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
        ("tp=2 dp=2", 4, "data_style = 'fsdp'", "accepted: ddp, or zero1 with bucket_rule = layer_wise"),
        ("dp=2", 2, "data_style = 'ddp'", "changes nothing with tp = 1"),
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
        ("data_style = 'ddp'", "bucket_rule = layer_wise with data_style ddp; accepted: with zero1"),
        ("data_style = 'zero1'\ngradient_reduction = 'all_reduce'", "accepted: reduce_scatter, to the rank"),
        ("data_style = 'zero1'\nparameter_return = 'broadcast'", "accepted: all_gather, each_optimizer"),
        ("data_style = 'zero1'\nreplicas_of_shards = 2", "a layer-wise optimizer has no instances"),
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
    // Mixtral has no biases: its experts are matrices alone, so that one distributed optimizer has all that is none.
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
    let message = with_step("deepseek-v3", "dp=8", training, 8, |_| ()).unwrap_err().to_string();
    assert!(message.contains("no list here knows which weights are in 8 bits"), "{message}");
}

#[test]
fn megatron_fsdp_with_replicas_adds_up_shards_once_in_a_step() {
    let training = "micro_batches = 2\nframework = 'megatron'\ndata_style = 'hsdp'\nreplicas_of_shards = 2";
    with_step("llama-3-8b", "dp=16", training, 16, |step| {
        let layer = 951 * 28_672;
        assert_eq!(calls(step, Axis::DpReplicate), [(AllReduce, 32, 2 * layer), (AllReduce, 1, 2 * 32_065 * 4096)]);
    })
    .unwrap();
    // Shared out, optimizer state is on 16 ranks: a layer has 476 times 16 chunks, and each of two groups half of the shard's.
    with_step("llama-3-8b", "dp=16", &format!("{training}\nouter_sharding = 'optim'"), 16, |step| {
        let (layer, rest) = (476 * 2 * 28_672, 16_033 * 2 * 4096);
        let of_layers = [(ReduceScatter, 32, 2 * layer), (AllGather, 64, 2 * layer)];
        let of_rest = [(ReduceScatter, 1, 2 * rest), (AllGather, 1, 2 * rest)];
        assert_eq!(calls(step, Axis::DpReplicate), [of_layers, of_rest].concat());
        assert!(calls(step, Axis::DpShard).contains(&(AllGather, 64, 8 * 2 * layer)));
    })
    .unwrap();
    for (choice, expected) in [
        ("data_style = 'hsdp'\nreplicas_of_shards = 2\nouter_sharding = 'optim'", "accepted: with hsdp and buckets"),
        ("data_style = 'zero3'\nunit_rule = 'buckets'", "with data_style zero3; accepted: with fsdp and hsdp"),
        (
            "data_style = 'fsdp'\nunit_rule = 'buckets'\nreshard_after_forward = false",
            "accepted: reshard_after_forward = true",
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

#[test]
fn groups_of_shards_wider_than_a_node_gather_between_nodes_and_then_within_each() {
    // 16 ranks of 2 nodes in each of 4 groups. A layer of Llama 3 8B: 218,112,000 parameters, of which the ranks of the same place on each
    // node hold an eighth.
    let training = "micro_batches = 4\ndata_style = 'hsdp'\nreplicas_of_shards = 4\ngather_inner = 8";
    let layer = 2 * 218_112_000;
    with_step("llama-3-8b", "dp=64", training, 64, |step| {
        assert_eq!([Axis::DpShardOuter, Axis::DpShardInner].map(|axis| step.layout.group_size(axis)), [2, 8]);
        let root = 2 * (2 * 128_256 * 4096 + 4096);
        let twice = |bytes: u64, calls| [(AllGather, calls, bytes), (AllGather, calls, bytes)];
        assert_eq!(calls(step, Axis::DpShardOuter), [twice(layer / 8, 128), twice(root / 8, 4)].concat());
        assert_eq!(calls(step, Axis::DpShardInner), [twice(layer, 128), twice(root, 4)].concat());
        // Between nodes (2-1)/2 of an eighth instead of what crosses in a ring of 16; gradients go at once.
        assert_eq!(calls(step, Axis::DpShard), [(ReduceScatter, 128, 2 * layer), (ReduceScatter, 4, 2 * root)]);
    })
    .unwrap();
    for (choice, expected) in [
        (
            "data_style = 'zero1'\ngather_inner = 2",
            "changes nothing with data_style zero1; accepted: with zero3, fsdp and hsdp",
        ),
        ("data_style = 'fsdp'\ngather_inner = 3", "do not divide the 8 ranks of a group of shards"),
        (
            "data_style = 'fsdp'\ngather_inner = 8",
            "makes no two steps of the 8 ranks of a group of shards; accepted: 2, 4",
        ),
        ("data_style = 'fsdp'\nsecondary_shards = 4\ngather_inner = 2", "accepted: unit_rule = layers, root_kept"),
        ("framework = 'fsdp2'\ngather_inner = 2", "fsdp2 does not use gather_inner"),
    ] {
        let training = format!("micro_batches = 2\n{choice}");
        let message = with_step("llama-3-8b", "dp=8", &training, 8, |_| ()).unwrap_err().to_string();
        assert!(message.contains(expected), "{choice}: {message}");
    }
}
