//! Bytes and counts of expert parallelism against numbers computed by hand from published models, and refusals.

use crate::config::Suite;
use crate::layout::Axis;
use crate::workload::op::{Overlap, Pass, When};
use crate::workload::step::Step;
use crate::workload::{Op, Style, WorkPlan};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::geometry::Splits;
use proptest::prelude::*;
use std::path::Path;

/// DeepSeek-V3 (deepseek-ai/DeepSeek-V3 config.json), reduced to the fields that the model reader needs.
const DEEPSEEK_V3: &str = r#"{"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
    "intermediate_size": 18432, "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280,
    "max_position_embeddings": 163840, "tie_word_embeddings": false, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "n_shared_experts": 1, "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "moe_layer_freq": 1, "n_group": 8,
    "topk_group": 4, "attention_bias": false, "hidden_act": "silu"}"#;

fn suite(model: &str, training: &str, layout: &str) -> commgauge_base::error::Result<Suite> {
    suite_of(model, 4096, training, layout)
}

fn suite_of(model: &str, sequence: u64, training: &str, layout: &str) -> commgauge_base::error::Result<Suite> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("deepseek-v3")).unwrap();
    std::fs::write(folder.path().join("deepseek-v3/config.json"), DEEPSEEK_V3).unwrap();
    let which = match model {
        "deepseek-v3" => format!("config = '{}'", folder.path().join("deepseek-v3/config.json").display()),
        preset => format!("preset = '{preset}'"),
    };
    let training = match training.contains("micro_batches") {
        true => training.to_owned(),
        false => format!("micro_batches = 2\n{training}"),
    };
    let text = format!(
        "[model]\n{which}\n[training]\nsequence = {sequence}\n{training}\n\n[layout]\nstyles = ['expert']\n{layout}\n"
    );
    Suite::parse(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml"), &text)
}

fn with_ops<T>(
    model: &str,
    training: &str,
    layout: &str,
    ranks: u32,
    work: impl Fn(&Step, Vec<Op>) -> T,
) -> commgauge_base::error::Result<T> {
    let suite = suite(model, training, layout)?;
    let step = Step::all_of(&suite.layouts[0], ranks)?.remove(0);
    let ops = step.ops_of_stage(0)?.into_iter().filter(|op| op.style == Style::Expert).collect();
    Ok(work(&step, ops))
}

/// Key of a call: pass, axis, collective, element, bytes.
type Facts = (Pass, Axis, Collective, ElementType, u64);

fn facts(op: &Op) -> Facts {
    let When::Layer { pass, .. } = op.when else { panic!("calls of experts come in layers: {:?}", op.when) };
    (pass, op.axis, op.collective, op.element, op.bytes_total.0)
}

#[track_caller]
fn assert_calls(model: &str, training: &str, layout: &str, ranks: u32, expected: &[Facts]) {
    let calls = with_ops(model, training, layout, ranks, |_, ops| ops.iter().map(facts).collect::<Vec<_>>()).unwrap();
    assert_eq!(calls, expected, "{training} {layout}");
}

use Axis::{Ep, Etp, EtpEp};
use Collective::{AllGather, AllToAll, AllToAllV, ReduceScatter};
use ElementType::{Bfloat16, Float32, Fp8E4m3, Int64, Uint8};
use Pass::{Backward, Forward, Recompute};

#[test]
fn mixtral_on_8_ranks_of_experts_exchanges_two_copies_of_every_token() {
    // N = 4096, K = 2, h = 4096, E = 2: 64 MiB for each exchange of tokens.
    let forward = |pass| {
        [
            (pass, Ep, AllGather, Int64, 8 * 8 * 8),
            (pass, Ep, AllToAllV, Bfloat16, 64 << 20),
            (pass, Ep, AllToAllV, Float32, 4096 * 2 * 4),
            (pass, Ep, AllToAllV, Bfloat16, 64 << 20),
        ]
    };
    let backward = [
        (Backward, Ep, AllToAllV, Bfloat16, 64 << 20),
        (Backward, Ep, AllToAllV, Bfloat16, 64 << 20),
        (Backward, Ep, AllToAllV, Float32, 4096 * 2 * 4),
    ];
    let plain: Vec<_> = forward(Forward).into_iter().chain(backward).collect();
    assert_calls("mixtral-8x7b", "", "ep = 8", 8, &plain);
    assert_calls("mixtral-8x7b", "recompute = 'selective'", "ep = 8", 8, &plain);
    let full: Vec<_> = forward(Forward).into_iter().chain(forward(Recompute)).chain(backward).collect();
    assert_calls("mixtral-8x7b", "recompute = 'full'", "ep = 8", 8, &full);
    // All 32 layers have experts; a balanced exchange is plain, and 7/8 of it leaves the rank.
    with_ops("mixtral-8x7b", "", "ep = 8", 8, |step, ops| {
        for op in ops {
            assert_eq!(op.when.count_per_step(step.micro_batches()), Some(32 * 2));
            assert_eq!((&op.splits, op.overlap), (&Splits::Equal, Overlap::Exposed));
            if op.collective == AllToAllV {
                assert_eq!(op.wire_bytes(8, 1), Some(op.bytes_total.0 / 8 * 7), "{}", op.why);
            }
        }
    })
    .unwrap();
}

#[test]
fn torchtitan_sends_counts_to_their_experts_and_no_probabilities() {
    // As above; every rank sends one int64 for each of the 8 experts.
    let expected = [
        (Forward, Ep, AllToAll, Int64, 8 * 8),
        (Forward, Ep, AllToAllV, Bfloat16, 64 << 20),
        (Forward, Ep, AllToAllV, Bfloat16, 64 << 20),
        (Backward, Ep, AllToAllV, Bfloat16, 64 << 20),
        (Backward, Ep, AllToAllV, Bfloat16, 64 << 20),
    ];
    assert_calls("mixtral-8x7b", "framework = 'torchtitan'", "ep = 8", 8, &expected);
}

#[test]
fn deepseek_v3_on_64_ranks_of_experts_dispatches_in_8_bits_and_combines_in_16() {
    // N = 4096, K = 8, h = 7168: 234,881,024 elements; 56 scales for each copy (arXiv 2412.19437 sections 3.3.2, 3.3.3).
    let (tokens, scales) = (234_881_024, 32_768 * 56 * 4);
    let probabilities = 32_768 * 4;
    let expected = [
        (Forward, Ep, AllGather, Int64, 8 * 256 * 64),
        (Forward, Ep, AllToAllV, Fp8E4m3, tokens),
        (Forward, Ep, AllToAllV, Float32, scales),
        (Forward, Ep, AllToAllV, Float32, probabilities),
        (Forward, Ep, AllToAllV, Bfloat16, 2 * tokens),
        (Backward, Ep, AllToAllV, Fp8E4m3, tokens),
        (Backward, Ep, AllToAllV, Float32, scales),
        (Backward, Ep, AllToAllV, Bfloat16, 2 * tokens),
        (Backward, Ep, AllToAllV, Float32, probabilities),
    ];
    let training = "dispatch_element_type = 'fp8_e4m3'";
    assert_calls("deepseek-v3", training, "ep = 64", 64, &expected);
    with_ops("deepseek-v3", training, "ep = 64", 64, |step, ops| {
        // 58 of 61 layers have experts.
        assert!(ops.iter().all(|op| op.when.count_per_step(step.micro_batches()) == Some(58 * 2)));
        assert_eq!(ops[1].wire_bytes(64, 1), Some(tokens / 64 * 63));
        assert!(ops[1].why.starts_with("N*K*h*E = 4096*8*7168*1 B = 234881024 B: dispatch"), "{}", ops[1].why);
    })
    .unwrap();
}

#[test]
fn experts_that_are_divided_gather_what_they_received_and_reduce_in_the_type_of_the_probabilities() {
    // tp 2 with sequence parallelism halves the tokens: N = 2048; K N = 4096 copies on each of 2 parts of an expert.
    let layout = "tp = 2\netp = 2\nep = 4";
    let expected = [
        (Forward, EtpEp, AllGather, Int64, 8 * 8 * 8),
        (Forward, Ep, AllToAllV, Bfloat16, 4096 * 4096 * 2),
        (Forward, Ep, AllToAllV, Float32, 4096 * 4),
        (Forward, Etp, AllGather, Bfloat16, 2 * 4096 * 4096 * 2),
        (Forward, Etp, AllGather, Float32, 2 * 4096 * 4),
        (Forward, Etp, ReduceScatter, Float32, 2 * 4096 * 4096 * 4),
        (Forward, Ep, AllToAllV, Bfloat16, 4096 * 4096 * 2),
        (Backward, Ep, AllToAllV, Bfloat16, 4096 * 4096 * 2),
        (Backward, Etp, AllGather, Float32, 2 * 4096 * 4096 * 4),
        (Backward, Etp, ReduceScatter, Bfloat16, 2 * 4096 * 4096 * 2),
        (Backward, Etp, ReduceScatter, Float32, 2 * 4096 * 4),
        (Backward, Ep, AllToAllV, Bfloat16, 4096 * 4096 * 2),
        (Backward, Ep, AllToAllV, Float32, 4096 * 4),
    ];
    assert_calls("mixtral-8x7b", "sequence_parallel = true", layout, 8, &expected);
    // Without divided experts nothing is gathered, and without ranks of experts nothing is exchanged.
    with_ops("mixtral-8x7b", "sequence_parallel = true", "tp = 2\netp = 1\nep = 8", 8, |_, ops| {
        assert!(ops.iter().all(|op| op.axis != Etp));
    })
    .unwrap();
    with_ops("mixtral-8x7b", "sequence_parallel = true", "tp = 2", 8, |_, ops| {
        assert!(ops.iter().all(|op| op.axis == Etp) && !ops.is_empty());
    })
    .unwrap();
}

#[test]
fn gathering_dispatchers_move_all_tokens_whatever_the_routing() {
    let (choices, tokens) = (4096 * 8 * 8, 4096 * 8 * 4096);
    let expected = [
        (Forward, Ep, AllGather, Uint8, choices),
        (Forward, Ep, AllGather, Float32, 4 * choices),
        (Forward, Ep, AllGather, Bfloat16, 2 * tokens),
        (Forward, Ep, ReduceScatter, Float32, 4 * tokens),
        (Backward, Ep, AllGather, Float32, 4 * tokens),
        (Backward, Ep, ReduceScatter, Bfloat16, 2 * tokens),
        (Backward, Ep, ReduceScatter, Float32, 4 * choices),
    ];
    assert_calls("mixtral-8x7b", "dispatcher = 'all_gather'", "ep = 8", 8, &expected);
    // Divided experts: the same ranks, half of which have each token.
    let training = "dispatcher = 'all_gather'\nsequence_parallel = true";
    with_ops("mixtral-8x7b", training, "tp = 2\netp = 2\nep = 4", 8, |_, ops| {
        assert_eq!(facts(&ops[2]), (Forward, EtpEp, AllGather, Bfloat16, 2048 * 2 * 4 * 4096 * 2));
    })
    .unwrap();
}

#[test]
fn deepep_sends_a_token_once_to_each_node_and_forwards_it_there() {
    use Axis::{EpInner, EpOuter};
    use Collective::AllToAll;
    use ElementType::Int32;
    // Tokens to each of 8 nodes, and to each of 8 ranks of a node (style/deep_ep.rs).
    let across = |message: u64| 8 * (1_858.053_593_306 * message as f64).round() as u64;
    let inside = |message: u64| 8 * (3_767.997_480_315 * message as f64).round() as u64;
    let expected = [
        (Forward, EpOuter, AllToAll, Int32, 4 * 8 * (8 + 32 + 1)),
        (Forward, EpInner, AllToAll, Int32, 4 * 8 * (8 + 4)),
        (Forward, EpOuter, AllToAllV, Uint8, across(7472)),
        (Forward, EpInner, AllToAllV, Uint8, inside(7472)),
        (Forward, EpInner, AllToAllV, Uint8, inside(14_352)),
        (Forward, EpOuter, AllToAllV, Uint8, across(14_352)),
        // 7168 + 224 of scales + 8 of source, up to a multiple of 16; and 14336 + 8 + 32 of gradients of the weights.
        (Backward, EpOuter, AllToAllV, Uint8, across(7408)),
        (Backward, EpInner, AllToAllV, Uint8, inside(7408)),
        (Backward, EpInner, AllToAllV, Uint8, inside(14_384)),
        (Backward, EpOuter, AllToAllV, Uint8, across(14_384)),
    ];
    let training = "dispatcher = 'deepep'\ndispatch_element_type = 'fp8_e4m3'";
    assert_calls("deepseek-v3", training, "dp = 64\nep = 64", 64, &expected);
    with_ops("deepseek-v3", training, "dp = 64\nep = 64", 64, |step, ops| {
        assert_eq!((step.group_size(EpOuter), step.group_size(EpInner)), (8, 8));
        assert_eq!(ops[2].wire_bytes(8, 1), Some(across(7472) / 8 * 7), "tokens that stay on the node are not sent");
    })
    .unwrap();
    // NVLink domains as large as ep: nothing crosses, and every rank knows the destination of all tokens.
    with_ops("deepseek-v3", "dispatcher = 'hybrid_ep'\nexpert_inner = 64", "dp = 64\nep = 64", 64, |_, ops| {
        assert!(ops.iter().all(|op| op.axis == Ep));
        assert_eq!(facts(&ops[0]), (Forward, Ep, AllGather, Uint8, 4096 * 64 * 256));
        // An eighth of the tokens of a node to each rank, with the weights of all 256 experts.
        let on_64 = |message: u64| 64 * (470.999_685_039 * message as f64).round() as u64;
        assert_eq!(facts(&ops[1]), (Forward, Ep, AllToAllV, Uint8, on_64(14_336 + 1024)));
        assert_eq!(facts(&ops[2]), (Forward, Ep, AllToAllV, Uint8, on_64(14_336)));
    })
    .unwrap();
}

#[test]
fn skew_loads_the_rank_of_the_hot_expert_and_capacity_limits_it() {
    // 8192 copies from each of 8 ranks, half of them for the first expert: 4096 each, from 7 others.
    let busiest = |training: &str| {
        with_ops("mixtral-8x7b", training, "ep = 8", 8, |_, ops| {
            let exchanges: Vec<_> = ops.iter().filter(|op| op.element == Bfloat16).collect();
            let wire: Vec<_> = exchanges.iter().map(|op| op.wire_bytes(8, 1).unwrap()).collect();
            assert!(wire.iter().all(|bytes| *bytes == wire[0]), "there and back {wire:?}");
            assert!(exchanges.iter().all(|op| op.bytes_total.0 == 64 << 20));
            wire[0] / (4096 * 2)
        })
        .unwrap()
    };
    assert_eq!(busiest(""), 7 * 1024);
    assert_eq!(busiest("routing = 'hot:0.5'"), 7 * 4096);
    // ceil(8192 / 8 x 1.25) = 1280 from each.
    assert_eq!(busiest("routing = 'hot:0.5'\ncapacity_factor = 1.25"), 7 * 1280);
    assert_eq!(busiest("capacity_factor = 1.0"), 7 * 1024);
    assert_eq!(busiest("capacity_factor = 0.5"), 7 * 512);
    let random = busiest("routing = 'random'\nrouting_seed = 3");
    assert!((7 * 1024..7 * 1024 + 400).contains(&random), "{random}");
    with_ops("mixtral-8x7b", "routing = 'hot:0.5'", "ep = 8", 8, |_, ops| {
        let load = "routing hot:0.5, so that the busiest of 8 ranks sends to others or receives from others 234881024 B, against 58720256 B";
        assert!(ops[1].why.contains(load), "{}", ops[1].why);
    })
    .unwrap();
}

#[test]
fn only_passes_that_pair_micro_batches_hide_the_exchange() {
    for (schedule, hidden) in [
        ("1f1b", false),
        ("zb-v", false),
        ("dualpipe", true),
        ("dualpipe-v", true),
        ("1f1b'\noverlap_exchange = true\ndispatcher = 'hybrid_ep", true),
    ] {
        let training = format!("micro_batches = 4\nschedule = '{schedule}'");
        with_ops("mixtral-8x7b", &training, "ep = 2\npp = 2\ndp = 2", 4, |_, ops| {
            for op in ops {
                let expected =
                    if hidden && op.collective == AllToAllV { Overlap::SteadyState } else { Overlap::Exposed };
                assert_eq!(op.overlap, expected, "{schedule}: {}", op.why);
            }
        })
        .unwrap();
    }
}

#[test]
fn layouts_that_do_not_fit_the_experts_are_refused_with_the_rule() {
    for (training, layout, expected) in [
        (
            "",
            "ep = 3\ndp = 3",
            "ep = 3 does not divide the 8 experts of mixtral-8x7b (num_experts); nearest that do: 2, 4",
        ),
        ("", "etp = 3\ndp = 3", "etp = 3 does not divide the 14336 inner width of an expert of mixtral-8x7b"),
        ("routing = 'hot:0.6'", "ep = 2\ndp = 2", "up to 1/2 of all choices"),
        (
            "dispatcher = 'all_gather'\ncapacity_factor = 1.0",
            "ep = 2\ndp = 2",
            "capacity_factor = 1 needs dispatcher = all_to_all; found dispatcher = all_gather",
        ),
        (
            "dispatcher = 'all_gather'\nrouting = 'random'",
            "ep = 2\ndp = 2",
            "needs dispatcher = all_to_all; found dispatcher = all_gather",
        ),
        (
            "dispatcher = 'all_gather'\ndispatch_element_type = 'fp8_e4m3'",
            "ep = 2\ndp = 2",
            "needs dispatcher = all_to_all, deepep or hybrid_ep",
        ),
        (
            "dispatcher = 'deepep'\nrouting = 'random'",
            "ep = 2\ndp = 2",
            "routing = random needs dispatcher = all_to_all; found dispatcher = deepep",
        ),
        (
            "dispatcher = 'hybrid_ep'\ncapacity_factor = 1.0",
            "ep = 2\ndp = 2",
            "needs dispatcher = all_to_all; found dispatcher = hybrid_ep",
        ),
        (
            "dispatcher = 'deepep'\nsequence_parallel = true",
            "tp = 2\nep = 2\netp = 2\ndp = 2",
            "etp = 2 with dispatcher deepep: each rank has whole experts here; accepted: etp = 1",
        ),
        (
            "dispatcher = 'deepep'\nexpert_inner = 3",
            "ep = 2\ndp = 2",
            "nodes of 3 ranks do not divide ep = 2 (expert_inner)",
        ),
        (
            "expert_inner = 2",
            "ep = 2\ndp = 2",
            "expert_inner = 2 needs dispatcher = deepep or hybrid_ep; found dispatcher = all_to_all",
        ),
    ] {
        let ranks = if layout.contains('3') {
            3
        } else if layout.contains("tp = 2\nep") {
            4
        } else {
            2
        };
        let error = with_ops("mixtral-8x7b", training, layout, ranks, |_, _| ()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.to_string().contains("test.toml"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}

#[test]
fn cases_of_every_routing_have_names_of_their_own() {
    let mut names = std::collections::HashSet::new();
    let routings = ["uniform", "random", "zipf:1", "zipf:1.5", "hot:0.2", "hot:0.25"];
    for routing in routings {
        for more in ["", "capacity_factor = 1.25", "routing_seed = 9"] {
            let training = format!("routing = '{routing}'\n{more}");
            let plan = WorkPlan::from_suite(&suite("mixtral-8x7b", &training, "ep = 8").unwrap(), 8).unwrap();
            let cases = plan.cases.iter().filter(|case| case.op.collective == AllToAllV);
            // The two directions differ if the routing is uneven.
            let unique: std::collections::HashSet<_> = cases.map(|case| case.name()).collect();
            assert_eq!(unique.len(), if routing == "uniform" { 4 } else { 8 }, "{unique:?}");
            names.extend(unique);
        }
    }
    // Uniform: capacity and seed have no effect. Random: all three differ. Others: the seed has no effect.
    assert_eq!(names.len(), 4 + 3 * 8 + 4 * 2 * 8);
    let name =
        "ep/all_to_all_v/routed-random-experts8-k2-hidden4096-seed9-back/bfloat16/67108864/out-of-place/streaming";
    assert!(names.contains(name), "{names:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn any_numbers_give_ops_or_an_error_message(
        sequence in prop_oneof![(0u32..16).prop_map(|power| 1u64 << power), 1u64..40_000],
        micro_batch in prop_oneof![1u64..8, 1u64..u64::from(u32::MAX)],
        routing in prop_oneof![Just("uniform"), Just("random"), Just("zipf:8"), Just("zipf:0.1"), Just("hot:0.5"), Just("hot:0.001")],
        dispatcher in prop_oneof![Just("all_to_all"), Just("all_gather")],
        capacity in prop_oneof![Just(""), Just("capacity_factor = 0.000001"), Just("capacity_factor = 1e6")],
        powers in (0u32..3, 0u32..4, 0u32..3),
    ) {
        let (tp, ep, etp) = (1 << powers.0, 1 << powers.1, 1 << powers.2);
        let training = format!(
            "micro_batch = {micro_batch}\nrouting = '{routing}'\ndispatcher = '{dispatcher}'\n{capacity}\nsequence_parallel = true"
        );
        let ranks: u32 = tp * ep * etp;
        let text = format!("tp = {tp}\nep = {ep}\netp = {etp}");
        let of_sequence = |suite: Suite| -> commgauge_base::error::Result<()> {
            let layout = &suite.layouts[0];
            for step in Step::all_of(layout, ranks)? {
                for op in step.ops_of_stage(0)?.iter().filter(|op| op.style == Style::Expert) {
                    let group = step.group_size(op.axis);
                    assert!(op.wire_bytes(group, 1).is_some(), "{op:?}");
                    if let Ok(geometry) = op.geometry(group) {
                        assert!(geometry.bytes_total <= op.bytes_total, "{op:?}");
                    }
                }
            }
            Ok(())
        };
        let suite = suite_of("mixtral-8x7b", sequence, &training, &text);
        if let Err(error) = suite.and_then(of_sequence) {
             prop_assert_eq!(error.exit_code(), 2, "{}", error);
        }
    }
}

#[test]
fn probabilities_travel_in_the_type_of_the_router() {
    // Megatron-LM moe_router_dtype None: the type of the activations.
    for (written, router) in [
        ("", ElementType::Float32),
        ("router_element_type = 'bf16'", ElementType::Bfloat16),
        ("router_element_type = 'activations'", ElementType::Bfloat16),
        ("framework = 'megatron'\ndispatcher = 'all_to_all'", ElementType::Bfloat16),
    ] {
        let found = with_ops("mixtral-8x7b", written, "ep = 8\ndp = 8", 8, |_, ops| {
            let sent = ops.iter().filter(|op| op.collective == Collective::AllToAllV);
            sent.min_by_key(|op| op.bytes_total).map(|op| (op.element, op.bytes_total.0)).unwrap()
        });
        assert_eq!(found.unwrap(), (router, 4096 * 2 * router.size()), "{written}");
    }
}

#[test]
fn counts_that_balance_experts_are_added_up_over_those_who_have_other_tokens() {
    let balance = |training: &str| {
        let training = format!("sequence_parallel = true\n{training}");
        with_ops("mixtral-8x7b", &training, "tp = 2\nep = 4\ndp = 4\netp = 1", 8, |step, ops| {
            let counts = ops.into_iter().filter(|op| op.collective == Collective::AllReduce);
            let m = step.micro_batches();
            counts
                .map(|op| (op.axis, op.element, op.bytes_total.0, op.when.count_per_step(m).unwrap()))
                .collect::<Vec<_>>()
        })
        .unwrap()
    };
    assert_eq!(balance(""), []);
    // 8 experts in each of 32 layers, 2 micro-batches.
    assert_eq!(balance("balance_loss = 'micro_batch'"), [(Axis::TpCp, Int64, 64, 64)]);
    assert_eq!(
        balance("balance_loss = 'micro_batch'\nrecompute = 'full'"),
        [(Axis::TpCp, Int64, 64, 64)],
        "the second time only"
    );
    assert_eq!(balance("balance_loss = 'global'"), [(Axis::TpCpDp, Int64, 64, 64)]);
    assert_eq!(balance("expert_bias_update = true"), [(Axis::TpCpDp, Bfloat16, 2 * 32 * 8, 1)]);
}
