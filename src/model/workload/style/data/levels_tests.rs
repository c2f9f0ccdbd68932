//! Known answers of shards in two levels and of Megatron-FSDP's buffers; counted by hand for Llama 3 8B.

use super::framework_tests::calls;
use super::shards_tests::sent;
use super::tests::{wire_on, with_step};
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
