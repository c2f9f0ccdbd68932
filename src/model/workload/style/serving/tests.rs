//! Known answers: Llama-3-70B on eight ranks, counted by hand, and the exchange of experts of arXiv 2006.16668 for Mixtral.

use crate::layout::Axis;
use crate::workload::step::Step;
use crate::workload::style::testing::{refusal, rows, serving, with_steps};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective::{
    self, AllGather, AllReduce, AllToAllV, Broadcast, ReduceScatter, SendRecv, SendRecvChain,
};
use commgauge_base::geometry::Splits;

pub(super) type Found = (Collective, Axis, u64, u64);

/// Collective, axis, bytes and calls in a pass.
fn found(step: &Step, stage: u32) -> Vec<Found> {
    let rows = rows(step, stage, Style::Serving);
    assert!(rows.iter().all(|row| row.overlap.is_exposed()));
    rows.iter().map(|row| (row.collective, row.axis, row.bytes, row.calls_per_step)).collect()
}

/// Ops of a phase on a stage of a layout.
pub(super) fn phase(preset: &str, written: &str, layout: &str, ranks: u32, phase: &str, stage: u32) -> Vec<Found> {
    let mut all = Vec::new();
    with_steps(&serving(preset, written, layout), ranks, |step| {
        if step.phase_name() == phase {
            all = found(step, stage);
        }
    });
    all
}

#[test]
fn divisions_not_supported_for_serving_are_refused() {
    for (preset, layout, ranks, expected) in [
        ("llama-3-8b", "cp = 2", 2, "a model that serves keeps the keys and values of a request"),
        ("llama-3-8b", "tp = 3", 3, "tp = 3 does not divide the 32 query heads"),
        ("mixtral-8x7b", "tp = 2\nep = 2\ndp = 2", 4, "etp = 2 with tp = 2 and ep = 2"),
        ("mixtral-8x7b", "tp = 2\netp = 1", 2, "etp = 1 with tp = 2 and ep = 1"),
    ] {
        let message = refusal(&serving(preset, "batch = 4", layout), ranks);
        assert!(message.contains(expected), "{layout}: {message}");
        assert!(message.contains("accepted") || message.contains("nearest"), "{message}");
    }
}

#[test]
fn llama_3_70b_decodes_16_requests_with_160_small_reductions() {
    // 2 B x 16 requests x 8192; logits of 129024 padded words.
    let decode = [
        (AllReduce, Axis::Tp, 262_144, 1),
        (AllReduce, Axis::Tp, 262_144, 160),
        (AllGather, Axis::Tp, 2 * 16 * 129_024, 1),
    ];
    let prefill = [
        (AllReduce, Axis::Tp, 262_144 * 2048, 1),
        (AllReduce, Axis::Tp, 262_144 * 2048, 160),
        (AllGather, Axis::Tp, 2 * 16 * 129_024, 1),
    ];
    for context in [2048, 100_000] {
        let written = format!("batch = 16\nprompt_tokens = 2048\ncontext_tokens = {context}");
        assert_eq!(phase("llama-3-70b", &written, "tp = 8", 8, "decode", 0), decode, "{context}");
        assert_eq!(phase("llama-3-70b", &written, "tp = 8", 8, "prefill", 0), prefill, "{context}");
    }
}

#[test]
fn stages_pass_activations_on_and_the_last_gives_the_tokens_back() {
    // Four micro-batches of four requests; 2 B x 4 x 8192.
    let written = "batch = 16\nmicro_batches = 4\nphases = ['decode']";
    let (hidden, tokens, counts) = (65_536, (Broadcast, Axis::Pp, 8 * 4, 4), (Broadcast, Axis::Pp, 4 * 2 * 4, 4));
    let reductions = (AllReduce, Axis::Tp, hidden, 2 * 40 * 4);
    let first = [(AllReduce, Axis::Tp, hidden, 4), reductions, (SendRecvChain, Axis::Pp, hidden, 4), tokens, counts];
    assert_eq!(phase("llama-3-70b", written, "tp = 8\npp = 2", 16, "decode", 0), first);
    let last = [reductions, (AllGather, Axis::Tp, 2 * 4 * 129_024, 4), tokens, counts];
    assert_eq!(phase("llama-3-70b", written, "tp = 8\npp = 2", 16, "decode", 1), last);
    with_steps(&serving("llama-3-70b", written, "tp = 8\npp = 2"), 16, |step| {
        let ops = step.ops_of_stage(0).unwrap();
        let roots: Vec<_> = ops.iter().filter(|op| op.collective == Broadcast).map(|op| op.root).collect();
        assert_eq!(roots, [1, 1]);
    });
}

#[test]
fn one_rank_serves_alone() {
    assert!(phase("llama-3-8b", "batch = 4", "dp = 2", 2, "decode", 0).is_empty());
}

#[test]
fn experts_that_tp_divides_are_reduced_like_a_feed_forward() {
    let hidden = 2 * 16 * 4096;
    let logits = (AllGather, Axis::Tp, 2 * 16 * 32_000, 1);
    let expected = [(AllReduce, Axis::Tp, hidden, 1), (AllReduce, Axis::Tp, hidden, 64), logits];
    assert_eq!(phase("mixtral-8x7b", "batch = 16", "tp = 2", 2, "decode", 0), expected);
}

#[test]
fn undivided_experts_receive_their_tokens_and_return_them() {
    // 16 requests, 2 experts each: 32 times 2 B x 4096 out and back, and the counts of 8 experts from each of 8 ranks.
    let exchange = |sent: u64| {
        [
            (AllGather, Axis::Ep, 8 * 8 * 8, 32),
            (AllToAllV, Axis::Ep, sent * 2 * 4096, 32),
            (AllToAllV, Axis::Ep, sent * 4, 32),
            (AllToAllV, Axis::Ep, sent * 2 * 4096, 32),
        ]
    };
    let alone = phase("mixtral-8x7b", "batch = 16", "dp = 8\nep = 8", 8, "decode", 0);
    assert_eq!(alone, exchange(32));
    // Each of two ranks of tp sends its half, and gathers the other's results.
    let hidden = 2 * 16 * 4096;
    let mut expected = vec![(AllReduce, Axis::Tp, hidden, 1), (AllReduce, Axis::Tp, hidden, 32)];
    expected.extend(exchange(16));
    expected.push((AllGather, Axis::Tp, hidden, 32));
    expected.push((AllGather, Axis::Tp, 2 * 16 * 32_000, 1));
    let layout = "tp = 2\ndp = 4\nep = 8\netp = 1";
    assert_eq!(phase("mixtral-8x7b", "batch = 16", layout, 8, "decode", 0), expected);
}

#[test]
fn fewer_tokens_than_ranks_reach_only_some() {
    with_steps(&serving("mixtral-8x7b", "batch = 1\nphases = ['decode']", "dp = 8\nep = 8"), 8, |step| {
        let ops = step.ops_of_stage(0).unwrap();
        let sent: Vec<&Op> = ops.iter().filter(|op| op.collective == AllToAllV).collect();
        assert_eq!(sent.len(), 3);
        for op in sent {
            assert_eq!(op.splits, Splits::Given(vec![1, 1, 0, 0, 0, 0, 0, 0]));
            let geometry = op.geometry(8).unwrap();
            assert_eq!(geometry.bytes_total, op.bytes_total);
        }
    });
}

#[test]
fn vllm_gathers_the_tokens_of_all_ranks_and_scatters_the_sums() {
    // 16 requests on each of 8 ranks: 2 B x 16 x 8 x 4096 in and out, and 2 choices a token of 4 B each.
    let exchange = |tokens: u64| {
        [
            (AllGather, Axis::Ep, 2 * tokens * 8 * 4096, 32),
            (AllGather, Axis::Ep, 4 * tokens * 8 * 2, 32),
            (AllGather, Axis::Ep, 4 * tokens * 8 * 2, 32),
            (ReduceScatter, Axis::Ep, 2 * tokens * 8 * 4096, 32),
        ]
    };
    let written = "framework = 'vllm'\nbatch = 16";
    assert_eq!(phase("mixtral-8x7b", written, "dp = 8\nep = 8", 8, "decode", 0), exchange(16));
    // Two ranks of tp have the same tokens: each gathers its half, and the other's results.
    let hidden = 2 * 16 * 4096;
    let mut expected = vec![(AllReduce, Axis::Tp, hidden, 1), (AllReduce, Axis::Tp, hidden, 32)];
    expected.extend(exchange(8));
    expected.push((AllGather, Axis::Tp, hidden, 32));
    expected.push((AllGather, Axis::Tp, 2 * 16 * 32_000, 1));
    let layout = "tp = 2\ndp = 4\nep = 8\netp = 1";
    let parts = format!("{written}\nexpert_tokens = 'parts'");
    assert_eq!(phase("mixtral-8x7b", &parts, layout, 8, "decode", 0), expected);
    // One replica alone has nothing to gather.
    let alone = [
        (AllReduce, Axis::Tp, hidden, 1),
        (AllReduce, Axis::Tp, hidden, 64),
        (AllGather, Axis::Tp, 2 * 16 * 32_000, 1),
    ];
    for framework in ["vllm", "sglang", "trt-llm"] {
        let written = format!("framework = '{framework}'\nbatch = 16");
        assert_eq!(phase("mixtral-8x7b", &written, "tp = 2\nep = 2\netp = 1", 2, "decode", 0), alone, "{framework}");
    }
    let sglang = serving("mixtral-8x7b", "framework = 'sglang'\nbatch = 16", "dp = 8\nep = 8");
    assert!(refusal(&sglang, 8).contains("dispatcher all_reduce with ep = 8 and tp = 1"));
}

#[test]
fn gathering_moves_e_over_k_times_what_sending_tokens_to_their_experts_does() {
    // DeepSeek-V3: 8 of 256 experts a token; ep 64 moves 8 times as much, ep 4 half.
    let wire = |dispatcher: &str, ep: u32| {
        let written = format!("batch = 64\nphases = ['decode']\ndispatcher = '{dispatcher}'");
        let layout = format!("dp = {ep}\nep = {ep}");
        let mut sum = 0;
        with_steps(&serving("deepseek-v3", &written, &layout), ep, |step| {
            let ops = step.ops_of_stage(0).unwrap();
            let large = ops.iter().filter(|op| op.axis == Axis::Ep && op.bytes_total.0 > 1 << 18);
            sum = large.map(|op| op.wire_bytes(ep, 1).unwrap()).sum::<u64>();
        });
        sum as f64
    };
    assert_eq!(wire("all_gather", 64) / wire("all_to_all", 64), 8.0);
    assert_eq!(wire("all_gather", 4) / wire("all_to_all", 4), 0.5);
}

#[test]
fn stages_of_vllm_pass_two_tensors_in_parts_and_gather_them() {
    // Four micro-batches of four requests; 2 B x 4 x 8192, of which a rank of tp 8 sends an eighth, twice.
    let written = "framework = 'vllm'\nbatch = 16\nmicro_batches = 4\nphases = ['decode']";
    let (hidden, tokens, counts) = (65_536, (Broadcast, Axis::Pp, 8 * 4, 4), (Broadcast, Axis::Pp, 4 * 2 * 4, 4));
    let reductions = (AllReduce, Axis::Tp, hidden, 2 * 40 * 4);
    let first =
        [(AllReduce, Axis::Tp, hidden, 4), reductions, (SendRecvChain, Axis::Pp, hidden / 8, 8), tokens, counts];
    assert_eq!(phase("llama-3-70b", written, "tp = 8\npp = 2", 16, "decode", 0), first);
    // 128,256 words are a multiple of 64, and no padding is sent.
    let logits = (AllGather, Axis::Tp, 2 * 4 * 128_256, 4);
    let last = [reductions, logits, (AllGather, Axis::Tp, hidden, 8), tokens, counts];
    assert_eq!(phase("llama-3-70b", written, "tp = 8\npp = 2", 16, "decode", 1), last);
}

#[test]
fn models_of_vllm_that_do_not_part_tokens_gather_all_of_each_replica() {
    // Mixtral: 16 requests of each of 4 replicas to experts of all 8 ranks, and sums over tp of attention and experts in 32 layers.
    let hidden = 2 * 16 * 4096;
    let of = |written: &str, layout: &str| {
        let written = format!("framework = 'vllm'\nbatch = 16\nphases = ['decode']\n{written}");
        phase("mixtral-8x7b", &written, layout, 8, "decode", 0)
    };
    let layout = "tp = 2\ndp = 4\nep = 8\netp = 1";
    let expected = [
        (AllReduce, Axis::Tp, hidden, 1),
        (AllReduce, Axis::Tp, hidden, 64),
        (AllGather, Axis::Dp, 4 * hidden, 32),
        (AllGather, Axis::Dp, 4 * 16 * 4 * 2, 32),
        (AllGather, Axis::Dp, 4 * 16 * 4 * 2, 32),
        (ReduceScatter, Axis::Dp, 4 * hidden, 32),
        (AllGather, Axis::Tp, 2 * 16 * 32_000, 1),
    ];
    assert_eq!(of("", layout), expected);
    assert_eq!(of("expert_tokens = 'whole'", layout), expected);
    let parts = of("expert_tokens = 'parts'", layout);
    assert_eq!(parts[2], (AllGather, Axis::Ep, 8 * 8 * 2 * 4096, 32));
    for (written, layout, expected) in [
        ("", "tp = 2\ndp = 4\nep = 4\netp = 1", "accepted: ep = tp x dp = 8, or expert_tokens = parts"),
        ("expert_tokens = 'whole'", "dp = 8\nep = 8", "expert_tokens = whole changes nothing"),
        ("expert_tokens = 'parts'", "tp = 2\ndp = 4", "expert_tokens = parts changes nothing"),
    ] {
        let written = format!("framework = 'vllm'\nbatch = 16\n{written}");
        let message = refusal(&serving("mixtral-8x7b", &written, layout), 8);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn stages_of_sglang_pass_sampled_tokens_around_in_a_ring() {
    // 4 B of each of 16 requests: an eighth of them from each rank of tp 8, and all together again.
    let ring = |layout: &str, batch: u64| {
        let written = format!("framework = 'sglang'\nbatch = {batch}\nphases = ['decode']");
        let of_stage = |stage: u32| phase("llama-3-70b", &written, layout, 16, "decode", stage);
        let tokens = |found: Vec<Found>| found.into_iter().filter(|call| call.2 <= 4 * batch).collect::<Vec<_>>();
        assert_eq!(tokens(of_stage(0)), tokens(of_stage(1)), "every stage sends and receives");
        tokens(of_stage(0))
    };
    assert_eq!(ring("tp = 8\npp = 2", 16), [(SendRecv, Axis::Pp, 8, 1), (AllGather, Axis::Tp, 64, 1)]);
    assert_eq!(ring("tp = 8\npp = 2", 12), [(SendRecv, Axis::Pp, 48, 1)], "12 requests are not divided by 8");
    assert_eq!(ring("pp = 2\ndp = 8", 16), [(SendRecv, Axis::Pp, 64, 1)], "one rank sends all");
    let drafting = "framework = 'sglang'\nbatch = 16\ndrafted_tokens = 3\ndrafter = 'eagle'";
    let message = refusal(&serving("llama-3-70b", drafting, "tp = 8\npp = 2"), 16);
    assert!(message.contains("accepted: no drafter, pp = 1, or sampled_tokens = broadcast"), "{message}");
}

#[test]
fn deepep_sends_tokens_by_way_of_nodes_or_straight_to_their_experts() {
    use Axis::{Ep, EpInner, EpOuter};
    let of = |written: &str, which: &str| {
        let written = format!("batch = 128\nprompt_tokens = 32\n{written}");
        let all = phase("deepseek-v3", &written, "ep = 64\ndp = 64", 64, which, 0);
        // 58 of 61 layers have experts.
        all.into_iter()
            .filter(|call| call.3 == 58)
            .map(|(collective, axis, bytes, _)| (collective, axis, bytes))
            .collect::<Vec<_>>()
    };
    let fp8 = "dispatch_element_type = 'fp8_e4m3'";
    // 128 tokens of 8 experts: 16 + 7168 + 4 x 56 bytes there and 2 x 7168 back (DeepEP's README measures just these).
    let low_latency =
        [(AllToAllV, Ep, 1024 * 7408), (Collective::AllToAll, Ep, 4 * 256), (AllToAllV, Ep, 1024 * 14_336)];
    assert_eq!(of(&format!("dispatcher = 'deepep_low_latency'\n{fp8}"), "decode"), low_latency);
    assert_eq!(of("dispatcher = 'deepep_low_latency'", "decode")[0].2, 1024 * (16 + 14_336));
    // 4096 tokens of a prompt, as in training (expert/tests.rs).
    let by_node = [
        (Collective::AllToAll, EpOuter, 1312),
        (Collective::AllToAll, EpInner, 384),
        (AllToAllV, EpOuter, 8 * 1858 * 7472),
        (AllToAllV, EpInner, 8 * 3768 * 7472),
        (AllToAllV, EpInner, 8 * 3768 * 14_352),
        (AllToAllV, EpOuter, 8 * 1858 * 14_352),
    ];
    assert_eq!(of(&format!("dispatcher = 'deepep'\n{fp8}"), "prefill"), by_node);
    for (written, expected) in [
        ("expert_inner = 8", "expert_inner changes nothing with dispatcher all_to_all"),
        (fp8, "dispatch_element_type = fp8_e4m3 with dispatcher all_to_all"),
        ("dispatcher = 'deepep'\nexpert_inner = 5", "nodes of 5 ranks do not divide ep = 64"),
    ] {
        let message = refusal(&serving("deepseek-v3", &format!("batch = 128\n{written}"), "ep = 64\ndp = 64"), 64);
        assert!(message.contains(expected), "{written}: {message}");
    }
}

#[test]
fn sums_of_few_bits_are_exchanged_and_gathered() {
    // 16 requests of 8192 numbers: 4096 blocks of 32, of which each of eight ranks adds up 512.
    let written = "batch = 16\nreduction_bits = 8";
    let quantised = 8 * 512 * 34;
    let expected = [
        (Collective::AllToAll, Axis::Tp, quantised, 1),
        (AllGather, Axis::Tp, quantised, 1),
        (Collective::AllToAll, Axis::Tp, quantised, 160),
        (AllGather, Axis::Tp, quantised, 160),
        (AllGather, Axis::Tp, 2 * 16 * 129_024, 1),
    ];
    assert_eq!(phase("llama-3-70b", written, "tp = 8", 8, "decode", 0), expected);
    for (bits, block) in [(4, 18), (6, 26)] {
        let written = format!("batch = 16\nreduction_bits = {bits}");
        assert_eq!(phase("llama-3-70b", &written, "tp = 8", 8, "decode", 0)[0].2, 8 * 512 * block, "{bits}");
    }
    let message = refusal(&serving("llama-3-8b", written, "dp = 2"), 2);
    assert!(message.contains("reduction_bits = 8 changes nothing"), "{message}");
}
