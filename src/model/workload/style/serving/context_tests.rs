//! Known answers of contexts and prompts that ranks share out, counted by hand.

use super::tests::phase;
use crate::layout::Axis::{Cp, Dcp, Tp};
use crate::workload::style::testing::{refusal, serving};
use commgauge_base::collective::Collective::{AllGather, AllReduce, AllToAll, ReduceScatter};

#[test]
fn a_decode_gathers_queries_and_adds_up_what_each_part_of_the_context_gives() {
    // Of 64 heads 4 on each of 16 ranks, with 8 heads of keys and values each on two: 16 tokens of 8 heads of 128.
    let queries = 2 * 16 * 8 * 128;
    let expected =
        [(AllGather, Dcp, queries, 80), (AllGather, Dcp, 4 * 16 * 8 * 2, 80), (ReduceScatter, Dcp, queries, 80)];
    for context in [100, 1_000_000] {
        let written = format!("batch = 16\ndecode_context = 2\ncontext_tokens = {context}");
        let all = phase("llama-3-70b", &written, "tp = 16", 16, "decode", 0);
        assert_eq!(all[..3], expected);
        assert!(all[3..].iter().all(|(_, axis, ..)| *axis == Tp));
        assert!(phase("llama-3-70b", &written, "tp = 16", 16, "prefill", 0).iter().all(|(_, axis, ..)| *axis == Tp));
    }
    // Latent attention: 16 of 128 heads on each of 8 ranks; queries of 512 + 64, outputs of 512.
    let all = phase("deepseek-v3", "batch = 16\ndecode_context = 8", "tp = 8\nep = 8\netp = 1", 8, "decode", 0);
    let expected = [
        (AllGather, Dcp, 2 * 16 * 128 * 576, 61),
        (AllGather, Dcp, 4 * 16 * 128 * 8, 61),
        (ReduceScatter, Dcp, 2 * 16 * 128 * 512, 61),
    ];
    assert_eq!(all[..3], expected);
}

#[test]
fn parts_of_a_context_are_put_together_as_each_framework_does() {
    let of = |preset: &str, layout: &str, ranks: u32, written: &str| {
        let all = phase(preset, &format!("batch = 16\n{written}"), layout, ranks, "decode", 0);
        all.into_iter()
            .filter(|(_, axis, ..)| *axis == Dcp)
            .map(|(call, _, bytes, _)| (call, bytes))
            .collect::<Vec<_>>()
    };
    // 16 tokens of 8 heads of 128 on two ranks, and of 128 heads with latent keys of 512 + 64 and values of 512 on eight.
    let plain = |how: &str| of("llama-3-70b", "tp = 16", 16, &format!("decode_context = 2\n{how}"));
    let latent = |how: &str| of("deepseek-v3", "tp = 8\nep = 8\netp = 1", 8, &format!("decode_context = 8\n{how}"));
    let (heads, wide) = (16 * 8, 16 * 128);
    let exchange = |name: &str| format!("decode_context_exchange = '{name}'");
    assert_eq!(
        plain(&exchange("all_to_all")),
        [(AllGather, 2 * heads * 128), (AllToAll, 2 * heads * 128), (AllToAll, 4 * heads)]
    );
    assert_eq!(
        latent(&exchange("all_to_all")),
        [(AllGather, 2 * wide * 576), (AllToAll, 2 * wide * 512), (AllToAll, 4 * wide)]
    );
    // A sum of four bytes is two numbers of two bytes.
    assert_eq!(plain(&exchange("packed")), [(AllGather, 2 * heads * 128), (AllToAll, 2 * heads * 130)]);
    assert_eq!(latent(&exchange("packed")), [(AllGather, 2 * wide * 576), (AllToAll, 2 * wide * 514)]);
    let sums = [(AllGather, 2 * heads * 128), (AllGather, 4 * heads * 2), (AllReduce, 2 * heads * 128)];
    assert_eq!(plain(&exchange("head_sums")), sums);
    assert_eq!(plain("framework = 'sglang'"), sums);
    assert_eq!(
        latent("framework = 'sglang'"),
        [(AllGather, 2 * wide * 576), (AllGather, 4 * wide * 8), (ReduceScatter, 4 * wide * 512)]
    );
}

#[test]
fn a_prefill_gathers_keys_and_values_and_works_on_its_own_tokens() {
    // Four prompts of 1024 tokens, half of each on either rank of cp; 4 of 8 heads of keys and values.
    let (whole, own) = (4 * 1024, 4 * 512);
    let expected = [
        (AllGather, Cp, 2 * 2 * whole * 4 * 128, 32),
        (AllReduce, Tp, 2 * own * 4096, 1),
        (AllReduce, Tp, 2 * own * 4096, 64),
        (AllGather, Cp, 2 * whole * 4096, 1),
        (AllGather, Tp, 2 * 4 * 128_256, 1),
    ];
    let written = "batch = 4\nphases = ['prefill']";
    assert_eq!(phase("llama-3-8b", written, "tp = 2\ncp = 2", 4, "prefill", 0), expected);
    let latent = phase("deepseek-v3", written, "cp = 2\nep = 2", 2, "prefill", 0);
    assert_eq!(latent[0], (AllGather, Cp, 2 * whole * 576, 61));
}

#[test]
fn contexts_that_cannot_be_shared_out_are_refused_with_what_could() {
    for (preset, written, layout, ranks, expected) in [
        ("llama-3-70b", "decode_context = 3", "tp = 8", 8, "decode_context = 3 does not divide tp = 8"),
        (
            "llama-3-70b",
            "decode_context = 2",
            "tp = 8",
            8,
            "where the same keys and values of llama-3-70b are on 1 of them; accepted: a divisor of 1",
        ),
        (
            "llama-3-70b",
            "decode_context = 2\nkv_transfer = 'layer'",
            "tp = 16\ndp = 2",
            32,
            "decode_context = 2 beside",
        ),
        ("llama-3-8b", "", "cp = 2", 2, "accepted: cp = 1, or phases = prefill; decode_context shares out"),
        (
            "llama-3-8b",
            "phases = ['prefill']\nprompt_tokens = 1001",
            "cp = 2",
            2,
            "a multiple of 2 x cp = 4, such as 1004",
        ),
        ("llama-3-8b", "phases = ['prefill']\nkv_transfer = 'layer'", "cp = 2\ndp = 2", 4, "cp = 2 beside"),
    ] {
        let message = refusal(&serving(preset, &format!("batch = 4\n{written}"), layout), ranks);
        assert!(message.contains(expected), "{layout}: {message}");
    }
}
