//! Properties of plans: the cases of a suite on a number of ranks, and what is refused.

use super::*;
use crate::workload::Style;
use proptest::strategy::Strategy;
use std::collections::HashSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn shipped(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites").join(file)
}

/// A suite in the folder of the shipped ones, so that it finds their models.
fn suite(text: &str) -> Suite {
    Suite::parse(&shipped("test.toml"), text).unwrap()
}

fn llama(layout: &str) -> Suite {
    suite(&format!(
        "[model]\npreset = 'llama-3-8b'\n[training]\nsequence = 8192\nglobal_batch = 16\n[layout]\n{layout}\n"
    ))
}

fn table(plan: &WorkPlan) -> String {
    let mut text = format!("model {:?}, layout {:?}\n", plan.model, plan.layout);
    for case in plan.cases.iter().filter(|case| case.cadence == Cadence::Streaming) {
        let groups = plan.groups_of(case);
        writeln!(text, "\n{}", case.name()).unwrap();
        writeln!(text, "  groups {:?}", groups.groups).unwrap();
        for used in &case.uses {
            let (count, hidden) = (used.count_per_step, used.overlap.name());
            writeln!(text, "  {} x {count} per step, {hidden}: {}", used.style.name(), used.why).unwrap();
        }
    }
    text
}

#[test]
fn degrees_that_do_not_fit_are_refused_with_the_nearest_that_do() {
    for (layout, ranks, expected) in [
        ("tp = 2\ndp = 4", 4, "layout: tp 2 x cp 1 x dp 4 x pp 1 = 8 ranks, but there are 4; start 8, or write dp = 2"),
        ("tp = 2\ndp = 4", 5, "= 8 ranks, but there are 5; start 8"),
        ("tp = 2\npp = 2", 6, "dp (what is left) x pp 2 needs a multiple of 4 ranks, but there are 6; nearest: 4 or 8"),
        ("tp = 2\npp = 2", 2, "needs a multiple of 4 ranks, but there are 2; nearest: 4"),
        (
            "tp = 3",
            3,
            "tp = 3 does not divide the 32 query heads of llama-3-8b (num_attention_heads); nearest that do: 2, 4",
        ),
        (
            "pp = 3",
            3,
            "llama-3-8b: pp = 3 does not divide the 32 layers (num_hidden_layers), nor 34 with embedding and output projection counted as a layer each; nearest that do: 2, 4",
        ),
        ("dp = 3", 3, "16 samples are no multiple of micro-batch 1 x 3 replicas = 3; nearest: 15, 18"),
        ("dp = 1", 1, "on 1 ranks of 1 nodes there is nothing to run"),
    ] {
        let error = WorkPlan::from_suite(&llama(layout), ranks).unwrap_err();
        assert!(error.to_string().contains(expected), "{layout}: {error}");
        assert!(error.to_string().contains("test.toml"), "{error}");
        assert_eq!(error.exit_code(), 2, "{error}");
    }
}

#[test]
fn axes_whose_calls_no_list_has_are_refused_for_the_architectures_that_need_them() {
    for (kind, layout, expected) in [
        ("olmo3", "tp = 2", "span all heads, and with tp = 2 their sums cross the ranks"),
        ("minimax_m2", "tp = 2", "accepted: tp = 1"),
        ("deepseek_v32", "cp = 2", "and what cp = 2 sends for that no list here has; accepted: cp = 1"),
    ] {
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/transformers").join(kind);
        let config = config.join("config.json");
        let training = "[training]\nsequence = 2048\nmicro_batches = 2\n[layout]";
        let plan = |layout: &str| {
            let suite = suite(&format!("[model]\nconfig = {:?}\n{training}\n{layout}\n", config.display()));
            WorkPlan::from_suite(&suite, 2)
        };
        let error = plan(layout).unwrap_err();
        assert!(error.to_string().contains(expected) && error.exit_code() == 2, "{kind} {layout}: {error}");
        assert!(!plan("dp = 2").unwrap().cases.is_empty(), "{kind}");
    }
}

#[test]
fn layouts_with_different_groups_of_one_axis_get_separate_cases() {
    let text = "[model]\npreset = 'llama-2-7b'\n[training]\nsequence = 512\nmicro_batches = 2\n[[layout]]\ntp = 2\n[[layout]]\ntp = 4\nstyles = ['tensor']\n";
    let plan = WorkPlan::from_suite(&suite(text), 8).unwrap();
    assert_eq!(plan.layout.as_deref(), Some("tp 2 x dp 4; tp 4 x dp 2"));
    let tensor: Vec<_> = plan.cases.iter().filter(|case| case.op.style == Style::Tensor).collect();
    let sizes: Vec<_> = tensor.iter().map(|case| plan.groups_of(case).group_size()).collect();
    assert_eq!(sizes, [2, 2, 4, 4]);
    assert!(tensor[2].name().starts_with("tp/tp4-dp2/all_reduce/"), "{}", tensor[2].name());
}

#[test]
fn a_call_shared_by_two_steps_is_measured_once_and_lists_both() {
    let text = "[model]\npreset = 'llama-2-7b'\n[training]\nsequence = 512\nmicro_batches = 2\n[[layout]]\ntp = 2\n[[layout]]\ntp = 2\npp = 4\nstyles = ['tensor']\n";
    let plan = WorkPlan::from_suite(&suite(text), 8).unwrap();
    let tensor = plan.cases.iter().find(|case| case.op.style == Style::Tensor).unwrap();
    let steps: Vec<_> = tensor.uses.iter().map(|used| used.step).collect();
    assert_eq!((steps.first(), steps.last()), (Some(&0), Some(&1)));
}

#[test]
fn the_ops_of_llama_3_8b_under_tp_2_and_dp_2() {
    insta::assert_snapshot!(table(&WorkPlan::from_suite(&llama("tp = 2\ndp = 2"), 4).unwrap()));
}

#[test]
fn the_ops_of_llama_3_8b_under_tp_2_and_pp_2() {
    insta::assert_snapshot!(table(&WorkPlan::from_suite(&llama("tp = 2\npp = 2"), 4).unwrap()));
}

#[test]
fn a_reduced_model_of_a_suite_is_named_as_such() {
    let text =
        "[model]\npreset = 'llama-3-8b'\nlayers = 2\n[training]\nsequence = 512\nmicro_batches = 2\n[layout]\ntp = 2\n";
    let plan = WorkPlan::from_suite(&suite(text), 4).unwrap();
    assert_eq!(plan.model.as_deref(), Some("llama-3-8b (num_hidden_layers 2 of 32)"));
    assert_eq!(plan.cases[0].uses[0].count_per_step, 2 * 2 * 2);
}

#[test]
fn a_sweep_of_an_axis_runs_on_the_groups_of_the_layout() {
    let sweep = "[[sweep]]\naxis = 'pp'\ncollectives = ['send_recv_chain', 'barrier']\nbytes = '1KiB'\n";
    let plan = WorkPlan::from_suite(&suite(&format!("[layout]\npp = 2\n{sweep}")), 4).unwrap();
    assert_eq!(plan.groups_of(&plan.cases[0]).groups, [[0, 2], [1, 3]]);
    assert_eq!(plan.cases.len(), 4);
    let message = WorkPlan::from_suite(&suite(sweep), 4).unwrap_err().to_string();
    assert!(message.contains("sweep[0]: axis pp needs a [[layout]]"), "{message}");
}

/// Ranks on which a shipped suite must run.
fn ranks_of(name: &str) -> &'static [u32] {
    match name {
        "180b-128gpu" => &[128],
        "70b-64gpu" => &[64],
        "codegeex" => &[16, 1536],
        "deepseek-v3" => &[2048],
        "gpt-7.5b-16gpu" => &[16],
        "llama-3-405b-16k" => &[16_384],
        "llama-3-8b" | "serving" | "qualify" | "qualify-host" | "qualify-gpu" => &[4, 8, 64],
        _ => &[2, 4, 8, 64, 16_384],
    }
}

#[test]
fn every_shipped_suite_loads_and_plans_with_unique_names() {
    let mut found = 0;
    for entry in std::fs::read_dir(shipped("")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        found += 1;
        let suite = Suite::load(&path).unwrap();
        for ranks in ranks_of(&suite.name) {
            let plan = WorkPlan::from_suite(&suite, *ranks).unwrap();
            let names: HashSet<_> = plan.cases.iter().map(Case::name).collect();
            assert_eq!(names.len(), plan.cases.len(), "{} on {ranks}", path.display());
            assert!(plan.cases.iter().all(|case| plan.groups_of(case).group_size() > 0));
        }
    }
    assert!(found >= 10);
}

#[test]
fn the_quick_suite_stays_quick_and_small() {
    let suite = Suite::load(&shipped("quick.toml")).unwrap();
    let plan = WorkPlan::from_suite(&suite, 4).unwrap();
    let estimate = plan.estimated_seconds(&suite.settings);
    assert!(estimate.0 < 45.0, "{estimate}");
    assert_eq!(plan.largest_bytes(), commgauge_base::units::Bytes(25 << 20));
    assert_eq!(plan.layout.as_deref(), Some("tp 2 x dp 2; dp 2 x pp 2; cp 2 x dp 2; dp 4 x ep 2"));
    assert!(WorkPlan::from_suite(&suite, 16_384).is_ok());
    let styles: HashSet<_> = plan.cases.iter().flat_map(|case| case.uses.iter().map(|used| used.style)).collect();
    assert!(Style::OF_A_STEP.iter().all(|style| styles.contains(style)), "every style is in it: {styles:?}");
    let message = WorkPlan::from_suite(&suite, 3).unwrap_err().to_string();
    assert!(message.contains("needs a multiple of 2 ranks, but there are 3; nearest: 2 or 4"), "{message}");
}

#[test]
fn the_examples_of_the_readme_make_a_suite() {
    let readme = std::fs::read_to_string(shipped("README.md")).unwrap();
    let blocks = readme.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let plan = WorkPlan::from_suite(&suite(&blocks.collect::<String>()), 4).unwrap();
    assert!(plan.cases.len() > 100 && plan.model.as_deref() == Some("llama-3-8b"), "{}", plan.cases.len());
}

proptest::proptest! {
    #[test]
    fn any_numbers_give_a_plan_or_an_error_message(
        degrees in proptest::collection::vec((0u32..4).prop_map(|bits| 1u64 << bits), 4),
        numbers in proptest::collection::vec((0u32..63).prop_map(|bits| 1u64 << bits), 4),
        sequence in 1u64..5000,
    ) {
        let ([tp, dp, pp, cp], [micro, batch, bucket, huge]) = (&degrees[..], &numbers[..]) else { unreachable!() };
        for (cp, tp) in [(&1, tp), (&1, huge), (cp, tp)] {
            let text = format!(
                "[model]\npreset = 'llama-2-7b'\n[layout]\ntp = {tp}\ncp = {cp}\npp = {pp}\n[training]\nsequence = \
                 {sequence}\nmicro_batch = {micro}\nmicro_batches = {batch}\nbucket_parameters = {bucket}\n"
            );
            let suite = Suite::parse(&shipped("test.toml"), &text);
            let plan = suite.and_then(|suite| WorkPlan::from_suite(&suite, tp.saturating_mul(cp * pp * dp).min(4096) as u32));
            proptest::prop_assert!(plan.is_ok() || plan.unwrap_err().exit_code() == 2);
        }
    }


    #[test]
    fn case_names_are_unique_and_groups_are_there(
        collectives in proptest::sample::subsequence(Collective::ALL.to_vec(), 1..6),
        sizes in proptest::collection::vec(1u64..1 << 20, 1..6),
        ranks in 1u32..9,
    ) {
        let names: Vec<_> = collectives.iter().map(|collective| format!("'{collective}'")).collect();
        let one = format!("[[sweep]]\ncollectives = [{}]\nbytes = {sizes:?}\n", names.join(", "));
        let plan = WorkPlan::from_suite(&suite(&format!("{one}{one}")), ranks).unwrap();
        let unique: HashSet<_> = plan.cases.iter().map(Case::name).collect();
        proptest::prop_assert_eq!(unique.len(), plan.cases.len());
    }
}
