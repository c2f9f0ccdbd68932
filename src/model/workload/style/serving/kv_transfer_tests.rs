//! Known answers: what a prompt leaves in the caches of Llama-3, of DeepSeek's latent attention and of hybrid models, counted by hand.

use super::tests::phase;
use crate::config::Suite;
use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::style::testing::{refusal, serving, suite_of_class, with_steps};
use crate::workload::when::Overlap;
use commgauge_base::collective::Collective::SendRecvChain;
use commgauge_base::element::ElementType;

/// Bytes, calls in a pass, type and cover of the messages to the ranks that decode.
type Sent = (u64, u64, ElementType, Overlap);

/// What a rank of the first stage sends in a prefill.
fn sent(suite: &Suite, ranks: u32) -> Vec<Sent> {
    let mut all = Vec::new();
    with_steps(suite, ranks, |step| {
        let ops = step.ops_of_stage(0).unwrap();
        let to_decode = ops.iter().filter(|op| op.axis == Axis::PrefillDecode);
        let calls = |op: &Op| op.when.count_per_step(step.micro_batches()).unwrap();
        all = to_decode.map(|op| (op.bytes_total.0, calls(op), op.element, op.overlap)).collect();
    });
    all
}

fn prefill(preset: &str, written: &str, layout: &str, ranks: u32) -> Vec<Sent> {
    sent(&serving(preset, &format!("{written}\nphases = ['prefill']"), layout), ranks)
}

fn prefill_of_class(model_type: &str, written: &str, layout: &str, ranks: u32) -> Vec<Sent> {
    sent(&suite_of_class(model_type, &format!("[serving]\n{written}\nphases = ['prefill']\n[layout]\n{layout}")), ranks)
}

#[test]
fn llama_3_70b_sends_671_megabytes_for_a_prompt_of_2048_tokens() {
    use ElementType::{Bfloat16, Fp8E4m3};
    // 2 x 2 B x 2048 x 1 head x 128 on each of eight ranks, in 80 layers: 83,886,080 B, of all ranks 671,088,640 B.
    let (layer, stages) = (2 * 2 * 2048 * 128, 2);
    let of = |written: &str, layout, ranks| {
        prefill("llama-3-70b", &format!("batch = 4\nprompt_tokens = 2048\n{written}"), layout, ranks)
    };
    let one = of("kv_transfer = 'layer'", "tp = 8\ndp = 2", 16);
    assert_eq!(one, [(layer, 4 * 80, Bfloat16, Overlap::NextLayers)]);
    let whole = of("kv_transfer = 'request'", "tp = 8\ndp = 2", 16);
    assert_eq!(whole, [(80 * layer, 4, Bfloat16, Overlap::Exposed)]);
    assert_eq!(8 * 80 * layer, 671_088_640);
    let staged = of("kv_transfer = 'request'\nmicro_batches = 2", "tp = 8\npp = 2\ndp = 4", 64);
    assert_eq!(staged, [(80 / stages * layer, 4, Bfloat16, Overlap::Exposed)]);
    let eight_bits = of("kv_transfer = 'layer'\nkv_element_type = 'fp8_e4m3'", "tp = 8\ndp = 2", 16);
    assert_eq!(eight_bits, [(layer / 2, 4 * 80, Fp8E4m3, Overlap::NextLayers)]);
    // Sixteen ranks share eight heads: each sends the one that it has.
    assert_eq!(of("kv_transfer = 'layer'", "tp = 16\ndp = 2", 32), one);
}

#[test]
fn halves_of_different_degrees_send_parts_of_heads_or_whole_ones() {
    let of = |preset: &str, decoding: u32, layout: &str, ranks| {
        let written = format!("batch = 4\nprompt_tokens = 2048\nkv_transfer = 'layer'\nkv_decode_tp = {decoding}");
        prefill(preset, &written, layout, ranks)
            .into_iter()
            .map(|(bytes, calls, ..)| (bytes, calls))
            .collect::<Vec<_>>()
    };
    // Llama 3 70B, 8 heads on 4 ranks that prefill: two of 2 x 2 B x 2048 x 128 on each, for two of 8 ranks that decode; 80 layers, 4 requests.
    let head = 2 * 2 * 2048 * 128;
    assert_eq!(of("llama-3-70b", 8, "tp = 4\ndp = 4", 16), [(head, 2 * 4 * 80)]);
    // On 16 ranks that decode, two have the same head each: four parts of each rank are whole heads.
    assert_eq!(of("llama-3-70b", 16, "tp = 4\ndp = 8", 32), [(head, 4 * 4 * 80)]);
    // On 2 ranks that decode come the two heads of either of two that prefill, whole.
    assert_eq!(of("llama-3-70b", 2, "tp = 4\ndp = 4", 16), [(2 * head, 4 * 80)]);
    assert_eq!(of("llama-3-70b", 4, "tp = 4\ndp = 4", 16), [(2 * head, 4 * 80)]);
    // Latent keys are whole on every rank: each of the two that read gets all.
    assert_eq!(of("deepseek-v3", 16, "tp = 8\nep = 16\netp = 1\ndp = 4", 32), [(2 * 2048 * 576, 2 * 4 * 61)]);
}

#[test]
fn what_each_kind_of_layer_stores_is_sent() {
    let written = "batch = 2\nprompt_tokens = 1000\nkv_transfer = 'request'";
    // 61 layers of 512 + 64 numbers a token, whole on every rank.
    let latent = 61 * 2 * 1000 * 576;
    let expected = [(latent, 2, ElementType::Bfloat16, Overlap::Exposed)];
    assert_eq!(prefill("deepseek-v3", written, "tp = 8\netp = 1\nep = 8\ndp = 2", 16), expected);
    // The indexer's keys: 128 B and a scale.
    let keys = 61 * 1000 * 132;
    let expected = [(latent + keys, 2, ElementType::Uint8, Overlap::Exposed)];
    assert_eq!(prefill_of_class("deepseek_v32", written, "tp = 8\netp = 1\nep = 8\ndp = 2", 16), expected);
    // qwen3_next: 12 of 48 layers with 2 heads of 256, 36 with a state of 32 heads of 128 x 128 and 3 inputs of 8192 channels.
    let attention = 12 * 2 * 2 * 1000 * 2 * 256;
    let linear = 36 * 2 * (32 * 128 * 128 + 3 * 8192);
    let expected = [(attention + linear, 2, ElementType::Bfloat16, Overlap::Exposed)];
    assert_eq!(prefill_of_class("qwen3_next", written, "dp = 2", 2), expected);
    // The layer that drafts stores keys and values too.
    let drafting = format!("{written}\ndrafted_tokens = 1\ndrafter = 'eagle'");
    let expected = [(33 * 2 * 2 * 1000 * 8 * 128, 2, ElementType::Bfloat16, Overlap::Exposed)];
    assert_eq!(prefill("llama-3-8b", &drafting, "dp = 2", 2), expected);
}

#[test]
fn a_decode_receives_nothing_more_and_experts_stay_in_their_half() {
    let written = "batch = 4\nkv_transfer = 'layer'";
    assert_eq!(phase("llama-3-8b", written, "dp = 2", 2, "decode", 0), []);
    // Two replicas of which one prefills: the experts of ep = 2 and their tokens are those of one replica.
    let experts = phase(
        "mixtral-8x7b",
        "batch = 4\nkv_transfer = 'layer'\ndispatcher = 'all_gather'",
        "tp = 2\nep = 2\netp = 1\ndp = 2",
        4,
        "decode",
        0,
    );
    assert!(experts.iter().all(|(_, axis, _, _)| *axis == Axis::Tp), "{experts:?}");
    assert!(experts.iter().all(|(collective, ..)| *collective != SendRecvChain));
}

#[test]
fn replicas_that_cannot_be_halved_are_refused() {
    for (preset, written, layout, ranks, expected) in [
        (
            "llama-3-8b",
            "kv_transfer = 'layer'",
            "dp = 3",
            3,
            "kv_transfer = layer with dp = 3: one half of the replicas prefills for the other; accepted: an even dp",
        ),
        ("llama-3-8b", "kv_transfer = 'layer'", "tp = 2", 2, "with dp = 1"),
        (
            "llama-3-8b",
            "kv_transfer = 'layer'\nkv_decode_tp = 3\nphases = ['prefill']",
            "tp = 2\ndp = 2",
            4,
            "kv_decode_tp = 3 with tp = 2 and 2 ranks in each half; accepted: a divisor or a multiple of 2 that divides 2",
        ),
        (
            "llama-3-8b",
            "kv_transfer = 'layer'\nkv_decode_tp = 4\nphases = ['prefill']",
            "tp = 2\ndp = 2",
            4,
            "with tp = 2 and 2 ranks in each half",
        ),
        (
            "mixtral-8x7b",
            "kv_transfer = 'request'",
            "dp = 4\nep = 4",
            4,
            "ep = 4 reaches over the replicas that prefill and those that decode, which have tp x dp / 2 = 2",
        ),
        (
            "llama-3-8b",
            "kv_transfer = 'layer'\nfeed_forward_ranks = 'stage'",
            "dp = 2",
            2,
            "feed_forward_ranks = stage ties replicas together",
        ),
        (
            "llama-3-8b",
            "kv_transfer = 'layer'\nbatch_agreement = true",
            "dp = 2",
            2,
            "accepted: false with kv_transfer",
        ),
    ] {
        let message = refusal(&serving(preset, &format!("batch = 4\n{written}"), layout), ranks);
        assert!(message.contains(expected), "{layout}: {message}");
    }
}
