//! Known answers of what an optimizer of whole matrices, as Muon, shares out and sends; counted by hand for Llama 3 8B.

use super::framework_tests::calls;
use super::tests::with_step;
use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::step::Step;
use commgauge_base::collective::Collective::{AllGather, AllReduce, ReduceScatter};
use commgauge_base::element::ElementType;

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
