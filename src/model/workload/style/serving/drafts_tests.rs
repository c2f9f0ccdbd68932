//! Known answers of speculative decoding, counted by hand: Llama-3-70B and DeepSeek-V3.

use super::tests::{Found, phase};
use crate::layout::Axis::{Ep, Pp, Tp};
use crate::workload::style::testing::{refusal, serving};
use commgauge_base::collective::Collective::{AllGather, AllReduce, AllToAllV, Broadcast, SendRecvChain};

/// Bytes of 16 tokens of Llama-3-70B, and of the logits of 16 tokens: 2 B x 16 x 8192 and x 129,024 words.
const HIDDEN: u64 = 262_144;
const LOGITS: u64 = 2 * 16 * 129_024;

fn llama(written: &str, which: &str, layout: &str, ranks: u32, stage: u32) -> Vec<Found> {
    let written = format!("batch = 16\nprompt_tokens = 2048\ndrafted_tokens = 3\n{written}");
    phase("llama-3-70b", &written, layout, ranks, which, stage)
}

/// The embedding, the two sums of a layer, and the logits of 16 tokens, in so many passes of so many times 16 tokens.
fn drafting(tokens: u64, passes: u64) -> [Found; 3] {
    [
        (AllReduce, Tp, HIDDEN * tokens, passes),
        (AllReduce, Tp, HIDDEN * tokens, 2 * passes),
        (AllGather, Tp, LOGITS, passes),
    ]
}

#[test]
fn drafted_tokens_are_verified_together_with_the_token_before_them() {
    let verifying = [(AllReduce, Tp, 4 * HIDDEN, 1), (AllReduce, Tp, 4 * HIDDEN, 160), (AllGather, Tp, 4 * LOGITS, 1)];
    assert_eq!(llama("drafter = 'ngram'", "decode", "tp = 8", 8, 0), verifying);
    let eagle = [&verifying[..], &drafting(4, 1), &drafting(1, 2)].concat();
    assert_eq!(llama("drafter = 'eagle'", "decode", "tp = 8", 8, 0), eagle);
}

#[test]
fn a_prompt_is_followed_by_drafts_and_verifies_none() {
    let prompt = 2048 * HIDDEN;
    let prefill = [(AllReduce, Tp, prompt, 1), (AllReduce, Tp, prompt, 160), (AllGather, Tp, LOGITS, 1)];
    assert_eq!(llama("drafter = 'ngram'", "prefill", "tp = 8", 8, 0), prefill);
    let eagle = [&prefill[..], &drafting(2048, 1), &drafting(1, 2)].concat();
    assert_eq!(llama("drafter = 'eagle'", "prefill", "tp = 8", 8, 0), eagle);
}

#[test]
fn the_last_stage_drafts_and_tells_the_others() {
    // int64: 4 sampled and 3 drafted tokens of 16 requests; int32: two counts of each.
    let broadcasts = [(Broadcast, Pp, 8 * 16 * 4, 1), (Broadcast, Pp, 4 * 2 * 16, 1), (Broadcast, Pp, 8 * 16 * 3, 1)];
    let hidden = 4 * HIDDEN;
    let begin = [(AllReduce, Tp, hidden, 1), (AllReduce, Tp, hidden, 80), (SendRecvChain, Pp, hidden, 1)];
    let first = [&begin[..], &broadcasts].concat();
    assert_eq!(llama("drafter = 'eagle'", "decode", "tp = 8\npp = 2", 16, 0), first);
    let end = [(AllReduce, Tp, hidden, 80), (AllGather, Tp, 4 * LOGITS, 1)];
    let last = [&end[..], &drafting(4, 1), &drafting(1, 2), &broadcasts].concat();
    assert_eq!(llama("drafter = 'eagle'", "decode", "tp = 8\npp = 2", 16, 1), last);
}

#[test]
fn a_prediction_layer_of_deepseek_v3_sends_tokens_to_its_experts_and_a_layer_of_eagle_has_none() {
    // 8 experts a token, 2 B x 7168 each; 16 requests, with 2 drafted tokens 48 tokens.
    let exchange = |tokens: u64, calls: u64| {
        [
            (AllGather, Ep, 8 * 256 * 8, calls),
            (AllToAllV, Ep, tokens * 8 * 2 * 7168, calls),
            (AllToAllV, Ep, tokens * 8 * 4, calls),
            (AllToAllV, Ep, tokens * 8 * 2 * 7168, calls),
        ]
    };
    let of = |drafter: &str| {
        let written = format!("batch = 16\ndrafted_tokens = 2\ndrafter = '{drafter}'");
        phase("deepseek-v3", &written, "dp = 8\nep = 8", 8, "decode", 0)
    };
    assert_eq!(of("mtp"), [exchange(48, 58), exchange(48, 1), exchange(16, 1)].concat());
    assert_eq!(of("eagle"), exchange(48, 58));
}

#[test]
fn a_model_without_a_prediction_layer_drafts_with_none() {
    let suite = serving("llama-3-8b", "batch = 4\ndrafted_tokens = 3\ndrafter = 'mtp'", "tp = 2");
    let message = refusal(&suite, 2);
    assert!(message.contains("no prediction layer (num_nextn_predict_layers); accepted: drafter = eagle"), "{message}");
}
