//! The communications of a model that serves requests: one forward pass over the prompts of a batch, or over one
//! further token of every request.
//!
//! No size depends on the length of the context: a rank stores the keys and values of its own heads, and the states of its own heads of
//! linear attention; attention over them sends nothing, and ranks that shard a context exchange the outputs of each token. `forward` has
//! the pass through a stage, exchanges of experts, drafts, sampled tokens and sums of few bits; `attention` has sharded contexts,
//! data-parallel attention and the transfer of keys and values to decoding replicas.

mod attention;
mod forward;

use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::op::{End, Pass, When};
use crate::workload::step::ServingStep;
use attention::{activations, at_end, op, times_at_end};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

/// The calls of one rank of a stage in a forward pass.
pub(in crate::workload) fn ops(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let mut ops: Vec<Op> = agreement(step).into_iter().collect();
    ops.extend(forward::ops(step, stage)?);
    ops.extend(forward::drafts_ops(step, stage)?);
    ops.extend(attention::kv_transfer_ops(step, stage)?);
    if step.layout.degrees.pp > 1 {
        ops.extend(boundary(step, stage)?);
        ops.extend(forward::sampled_ops(step)?);
    }
    Ok(ops)
}

/// Tokens, padded tokens, and two flags of every replica.
fn agreement(step: &ServingStep) -> Option<Op> {
    let (element, replicas) = (ElementType::Int32, u64::from(step.layout.degrees.dp));
    let bytes = 4 * element.size() * replicas;
    let why = format!(
        "4*4 B*d = 4*4 B*{replicas} = {bytes} B: tokens of each replica with and without padding, and how it runs them (vLLM \
         v1/worker/dp_utils.py _run_ar; over NCCL only without disable_nccl_for_dp_synchronization)"
    );
    step.serving
        .batch_agreement
        .then(|| Op { element, ..op(step, Axis::Dp, Collective::AllReduce, bytes, at_end(End::Whole), why) })
}

/// Messages to the next stage, and the gathers of the receivers if each rank of tp only sends its part.
fn boundary(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let (whole, formula) = activations(step)?;
    let (t, tensors) = (u64::from(step.layout.degrees.tp), step.serving.boundary.tensors);
    // A tensor that tp does not divide is sent whole.
    let elements = whole / step.serving.activation_element_type.size();
    let cut = step.serving.boundary.scatter_gather && t > 1 && elements.is_multiple_of(t);
    let bytes = if cut { whole / t } else { whole };
    let sends = if stage + 1 < step.stages.count() { step.serving.micro_batches * tensors } else { 0 };
    let what = match (tensors, cut) {
        (1, false) => "activations to the next stage".to_owned(),
        (1, true) => format!("activations to the next stage, of which each of {t} ranks sends a part = {bytes} B"),
        (_, false) => "hidden state, and residual, to the next stage".to_owned(),
        (_, true) => format!(
            "hidden state, and residual, to the next stage, of which each of {t} ranks sends a part = {bytes} B"
        ),
    };
    let source = "vLLM distributed/parallel_state.py send_tensor_dict; arXiv 2104.04473 section 2.2";
    let why = format!("{formula}: {what}, {} micro-batches in a pass ({source})", step.serving.micro_batches);
    let when = When::Boundary { pass: Pass::Forward, sends_per_step: sends };
    let mut ops = vec![op(step, Axis::Pp, Collective::SendRecvChain, bytes, when, why)];
    if cut && stage > 0 {
        let what = "parts received by the ranks of tp, gathered";
        let why = format!("{formula}: {what} (vLLM distributed/parallel_state.py recv_tensor_dict, all_gather_group)");
        ops.push(op(step, Axis::Tp, Collective::AllGather, whole, times_at_end(tensors, End::Whole), why));
    }
    Ok(ops)
}

#[cfg(test)]
mod context_tests {
    // Known answers of sharded contexts and prompts, counted by hand.
    use super::serving_tests::phase;
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
            assert!(
                phase("llama-3-70b", &written, "tp = 16", 16, "prefill", 0).iter().all(|(_, axis, ..)| *axis == Tp)
            );
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
    fn contexts_that_cannot_be_divided_are_refused_with_what_could() {
        for (preset, written, layout, ranks, expected) in [
            ("llama-3-70b", "decode_context = 3", "tp = 8", 8, "decode_context = 3 does not divide tp = 8"),
            (
                "llama-3-70b",
                "decode_context = 2",
                "tp = 8",
                8,
                "which hold the same keys and values of llama-3-70b on 1 of them; accepted: a divisor of 1",
            ),
            ("llama-3-70b", "decode_context = 2\nkv_transfer = true", "tp = 16\ndp = 2", 32, "decode_context = 2 with"),
            ("llama-3-8b", "", "cp = 2", 2, "accepted: cp = 1, or phases = prefill; decode_context shards"),
            (
                "llama-3-8b",
                "phases = ['prefill']\nprompt_tokens = 1001",
                "cp = 2",
                2,
                "a multiple of 2 x cp = 4, such as 1004",
            ),
            ("llama-3-8b", "phases = ['prefill']\nkv_transfer = true", "cp = 2\ndp = 2", 4, "cp = 2 with"),
        ] {
            let message = refusal(&serving(preset, &format!("batch = 4\n{written}"), layout), ranks);
            assert!(message.contains(expected), "{layout}: {message}");
        }
    }
}

#[cfg(test)]
mod drafts_tests {
    // Known answers of speculative decoding, counted by hand: Llama-3-70B and DeepSeek-V3.
    use super::serving_tests::{Found, phase};
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

    /// The embedding, the two sums of a layer, and the logits of 16 tokens, in this many passes of this many times 16 tokens.
    fn drafting(tokens: u64, passes: u64) -> [Found; 3] {
        [
            (AllReduce, Tp, HIDDEN * tokens, passes),
            (AllReduce, Tp, HIDDEN * tokens, 2 * passes),
            (AllGather, Tp, LOGITS, passes),
        ]
    }

    #[test]
    fn drafted_tokens_are_verified_together_with_the_token_before_them() {
        let verifying =
            [(AllReduce, Tp, 4 * HIDDEN, 1), (AllReduce, Tp, 4 * HIDDEN, 160), (AllGather, Tp, 4 * LOGITS, 1)];
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
        let broadcasts =
            [(Broadcast, Pp, 8 * 16 * 4, 1), (Broadcast, Pp, 4 * 2 * 16, 1), (Broadcast, Pp, 8 * 16 * 3, 1)];
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
        assert!(
            message.contains("no prediction layer (num_nextn_predict_layers); accepted: drafter = eagle"),
            "{message}"
        );
    }
}

#[cfg(test)]
mod kv_transfer_tests {
    // Known answers: the cached state of a prompt in Llama-3, in DeepSeek's latent attention and in hybrid models, counted by hand.
    use super::serving_tests::phase;
    use crate::config::Suite;
    use crate::layout::Axis;
    use crate::workload::Op;
    use crate::workload::op::Overlap;
    use crate::workload::style::testing::{refusal, serving, suite_of_class, with_steps};
    use commgauge_base::collective::Collective::SendRecvChain;
    use commgauge_base::element::ElementType;

    /// Bytes, calls in a pass, type and cover of the messages to the decoding ranks.
    type Sent = (u64, u64, ElementType, Overlap);

    /// The messages of a rank of the first stage in a prefill.
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
        sent(
            &suite_of_class(model_type, &format!("[serving]\n{written}\nphases = ['prefill']\n[layout]\n{layout}")),
            ranks,
        )
    }

    #[test]
    fn llama_3_70b_sends_671_megabytes_for_a_prompt_of_2048_tokens() {
        use ElementType::{Bfloat16, Fp8E4m3};
        // 2 x 2 B x 2048 x 1 head x 128 on each of eight ranks, in 80 layers: 83,886,080 B, of all ranks 671,088,640 B.
        let (layers, stages) = (80 * 2 * 2 * 2048 * 128, 2);
        let of = |written: &str, layout, ranks| {
            prefill("llama-3-70b", &format!("batch = 4\nprompt_tokens = 2048\n{written}"), layout, ranks)
        };
        let one = of("kv_transfer = true", "tp = 8\ndp = 2", 16);
        assert_eq!(one, [(layers, 4, Bfloat16, Overlap::Exposed)]);
        assert_eq!(8 * layers, 671_088_640);
        let staged = of("kv_transfer = true\nmicro_batches = 2", "tp = 8\npp = 2\ndp = 4", 64);
        assert_eq!(staged, [(layers / stages, 4, Bfloat16, Overlap::Exposed)]);
        let eight_bits = of("kv_transfer = true\nkv_element_type = 'fp8_e4m3'", "tp = 8\ndp = 2", 16);
        assert_eq!(eight_bits, [(layers / 2, 4, Fp8E4m3, Overlap::Exposed)]);
        // Sixteen ranks share eight heads: each sends the one that it has.
        assert_eq!(of("kv_transfer = true", "tp = 16\ndp = 2", 32), one);
    }

    #[test]
    fn halves_of_different_degrees_send_parts_of_heads_or_whole_ones() {
        let of = |preset: &str, decoding: u32, layout: &str, ranks| {
            let written = format!("batch = 4\nprompt_tokens = 2048\nkv_transfer = true\nkv_decode_tp = {decoding}");
            prefill(preset, &written, layout, ranks)
                .into_iter()
                .map(|(bytes, calls, ..)| (bytes, calls))
                .collect::<Vec<_>>()
        };
        // Llama 3 70B, 8 heads on 4 ranks that prefill: two of 2 x 2 B x 2048 x 128 on each, for two of 8 ranks that decode; 80 layers, 4 requests.
        let head = 80 * 2 * 2 * 2048 * 128;
        assert_eq!(of("llama-3-70b", 8, "tp = 4\ndp = 4", 16), [(head, 2 * 4)]);
        // On 16 ranks that decode, two have the same head each: four parts of each rank are whole heads.
        assert_eq!(of("llama-3-70b", 16, "tp = 4\ndp = 8", 32), [(head, 4 * 4)]);
        // On 2 ranks that decode come the two heads of either of two that prefill, whole.
        assert_eq!(of("llama-3-70b", 2, "tp = 4\ndp = 4", 16), [(2 * head, 4)]);
        assert_eq!(of("llama-3-70b", 4, "tp = 4\ndp = 4", 16), [(2 * head, 4)]);
        // Latent keys are whole on every rank: each of the two that read gets all.
        assert_eq!(of("deepseek-v3", 16, "tp = 8\nep = 16\netp = 1\ndp = 4", 32), [(61 * 2 * 2048 * 576, 2 * 4)]);
    }

    #[test]
    fn what_each_kind_of_layer_stores_is_sent() {
        let written = "batch = 2\nprompt_tokens = 1000\nkv_transfer = true";
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
        let written = "batch = 4\nkv_transfer = true";
        assert_eq!(phase("llama-3-8b", written, "dp = 2", 2, "decode", 0), []);
        // Two replicas of which one prefills: the experts of ep = 2 and their tokens are those of one replica.
        let experts = phase(
            "mixtral-8x7b",
            "batch = 4\nkv_transfer = true\ndispatcher = 'all_gather'",
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
                "kv_transfer = true",
                "dp = 3",
                3,
                "kv_transfer with dp = 3: one half of the replicas prefills for the other; accepted: an even dp",
            ),
            ("llama-3-8b", "kv_transfer = true", "tp = 2", 2, "with dp = 1"),
            (
                "llama-3-8b",
                "kv_transfer = true\nkv_decode_tp = 3\nphases = ['prefill']",
                "tp = 2\ndp = 2",
                4,
                "kv_decode_tp = 3 with tp = 2 and 2 ranks in each half; accepted: a divisor or a multiple of 2 that divides 2",
            ),
            (
                "llama-3-8b",
                "kv_transfer = true\nkv_decode_tp = 4\nphases = ['prefill']",
                "tp = 2\ndp = 2",
                4,
                "with tp = 2 and 2 ranks in each half",
            ),
            (
                "mixtral-8x7b",
                "kv_transfer = true",
                "dp = 4\nep = 4",
                4,
                "ep = 4 reaches over the replicas that prefill and those that decode, which have tp x dp / 2 = 2",
            ),
            (
                "llama-3-8b",
                "kv_transfer = true\nfeed_forward_ranks = 'stage'",
                "dp = 2",
                2,
                "feed_forward_ranks = stage joins replicas",
            ),
            (
                "llama-3-8b",
                "kv_transfer = true\nbatch_agreement = true",
                "dp = 2",
                2,
                "accepted: false with kv_transfer",
            ),
        ] {
            let message = refusal(&serving(preset, &format!("batch = 4\n{written}"), layout), ranks);
            assert!(message.contains(expected), "{layout}: {message}");
        }
    }
}

#[cfg(test)]
mod serving_tests {
    // Known answers: Llama-3-70B on eight ranks, counted by hand, and the exchange of experts of arXiv 2006.16668 for Mixtral.
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
            ("llama-3-8b", "cp = 2", 2, "which keeps the keys and values of a request"),
            ("llama-3-8b", "tp = 3", 3, "tp = 3 does not divide the 32 query heads"),
            ("mixtral-8x7b", "tp = 2\nep = 2\ndp = 2\netp = 2", 4, "etp = 2 with tp = 2 and ep = 2"),
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
        let first =
            [(AllReduce, Axis::Tp, hidden, 4), reductions, (SendRecvChain, Axis::Pp, hidden, 4), tokens, counts];
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
            assert_eq!(
                phase("mixtral-8x7b", &written, "tp = 2\nep = 2\netp = 1", 2, "decode", 0),
                alone,
                "{framework}"
            );
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
        // 128,256 words are a multiple of 64, so no padding is sent.
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
            ("expert_tokens = 'whole'", "dp = 8\nep = 8", "expert_tokens = whole has no effect"),
            ("expert_tokens = 'parts'", "tp = 2\ndp = 4", "expert_tokens = parts has no effect"),
        ] {
            let written = format!("framework = 'vllm'\nbatch = 16\n{written}");
            let message = refusal(&serving("mixtral-8x7b", &written, layout), 8);
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn stages_of_sglang_pass_sampled_tokens_around_in_a_ring() {
        // 4 B of each of 16 requests: an eighth of them from each rank of tp 8, and all of them gathered again.
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
        // 128 tokens of 8 experts: 16 + 7168 + 4 x 56 bytes out and 2 x 7168 back (as measured in DeepEP's README).
        let low_latency =
            [(AllToAllV, Ep, 1024 * 7408), (Collective::AllToAll, Ep, 4 * 256), (AllToAllV, Ep, 1024 * 14_336)];
        assert_eq!(of(&format!("dispatcher = 'deepep_low_latency'\n{fp8}"), "decode"), low_latency);
        assert_eq!(of("dispatcher = 'deepep_low_latency'", "decode")[0].2, 1024 * (16 + 14_336));
        // 4096 tokens of a prompt, as in training (deep_ep.rs).
        let on_8 = |tokens: f64, message: u64| 8 * (tokens * message as f64).round() as u64;
        let (across, inside) = (1_858.053_593_306, 3_767.997_480_315);
        let by_node = [
            (Collective::AllToAll, EpOuter, 1312),
            (Collective::AllToAll, EpInner, 384),
            (AllToAllV, EpOuter, on_8(across, 7472)),
            (AllToAllV, EpInner, on_8(inside, 7472)),
            (AllToAllV, EpInner, on_8(inside, 14_352)),
            (AllToAllV, EpOuter, on_8(across, 14_352)),
        ];
        assert_eq!(of(&format!("dispatcher = 'deepep'\n{fp8}"), "prefill"), by_node);
        let uneven = serving("deepseek-v3", "batch = 128\ndispatcher = 'deepep'\nexpert_inner = 5", "ep = 64\ndp = 64");
        assert!(refusal(&uneven, 64).contains("nodes of 5 ranks do not divide ep = 64"));
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
        assert!(message.contains("reduction_bits = 8 has no effect"), "{message}");
    }
}
