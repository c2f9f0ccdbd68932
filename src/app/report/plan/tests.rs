//! What a plan looks like.

use super::*;
use commgauge_analysis::planner::explain::Comparison;
use commgauge_analysis::planner::plan_document::{FORMAT, OrderOfBest, OrderVerdict, PlannedMemory, Reason, VERSION};
use commgauge_model::config::step::{Framework, FrameworkChoices, FrameworkDefault, Recompute, ScheduleKind};

fn layout(tp: u32, bubble: f64) -> PlannedLayout {
    PlannedLayout {
        name: format!(
            "tp={tp},cp=1,ep=1,pp=4,virtual_stages=2,dp=8,zero_stage=1,micro_batch=2,recompute=selective,order=tp-cp-ep-dp-pp"
        ),
        gpus: 256,
        tp,
        cp: 1,
        ep: 1,
        pp: 4,
        etp: tp,
        schedule: ScheduleKind::Interleaved,
        stage_layers: (tp == 8).then(|| vec![3, 4, 4, 4, 4, 4, 4, 3]),
        virtual_stages: 2,
        dp: 8,
        zero_stage: 1,
        micro_batch: 2,
        micro_batches: 16,
        recompute: Recompute::Selective,
        order: "tp-cp-ep-dp-pp".to_owned(),
        orders_alike: 1,
        memory_bytes: 61_500_000_000,
        memory: vec![PlannedMemory { part: "parameters".into(), bytes: 61_500_000_000, why: "2 B x 30.75e9".into() }],
        fits: tp < 8,
        step_seconds: 10.0 + bubble,
        step_seconds_low: 9.0,
        step_seconds_high: 12.0,
        compute_seconds: 8.0,
        host_seconds: 0.0,
        bubble_seconds: bubble,
        exposed_communication_seconds: Exposed { tp: 1.5, dp: 0.25, ..Exposed::default() },
        optimizer_seconds: 0.25,
        limited_by: "tp exposed (15.0 % of the step)".to_owned(),
        untrusted: if tp == 8 { vec!["all_reduce of float32 on 2 ranks".to_owned()] } else { Vec::new() },
    }
}

fn document() -> PlanDocument {
    PlanDocument {
        format: FORMAT.to_owned(),
        version: VERSION,
        model: "gpt2".to_owned(),
        gpus: 64,
        ranks_per_node: 8,
        gpu_memory_bytes: 80_000_000_000,
        global_batch: 256,
        sequence: 1024,
        framework: Some(FrameworkChoices {
            framework: Framework::Ddp,
            version: "torch 2.15".into(),
            defaults: vec![FrameworkDefault {
                key: "bucket_rule".into(),
                value: "pytorch".into(),
                source: "torch/nn/parallel/distributed.py bucket_cap_mb".into(),
            }],
        }),
        rates: "fit.json".to_owned(),
        computing: "989 TFLOP/s (given) x 0.5 (given)".to_owned(),
        not_validated: None,
        calibrated: true,
        synthetic: true,
        considered: 1000,
        feasible: 400,
        priced: 20,
        elapsed_seconds: 0.0123,
        illegal: vec![Reason { reason: "pp does not divide the layers".to_owned(), count: 3 }],
        unpriced: vec![Reason { reason: "reduce_scatter was not measured".to_owned(), count: 12 }],
        order: OrderOfBest { verdict: OrderVerdict::Tie, probability: Some(0.7), relative_difference: Some(0.05) },
        layouts: vec![layout(4, 0.5), layout(8, 1.0)],
        gpus_compared: Vec::new(),
        what_if: Vec::new(),
        notes: Vec::new(),
    }
}

#[test]
fn a_plan_reads_at_80_and_at_140_columns_and_says_what_is_synthetic() {
    for width in [80, 140] {
        let text = text(&document(), width);
        assert!(text.contains("SYNTHETIC") && text.contains("WITHOUT A PRICE") && text.contains("TOO MUCH"));
        insta::assert_snapshot!(format!("table at {width}"), text);
    }
}

#[test]
fn lines_of_csv_carry_the_marks() {
    insta::assert_snapshot!("csv", csv(&document()).unwrap());
}

#[test]
fn json_has_the_fields_that_others_build_on() {
    let value = serde_json::to_value(document()).unwrap();
    for field in ["considered", "feasible", "elapsed_seconds", "calibrated", "layouts"] {
        assert!(!value[field].is_null(), "{field}");
    }
    for field in [
        "tp",
        "cp",
        "ep",
        "pp",
        "virtual_stages",
        "dp",
        "zero_stage",
        "micro_batch",
        "recompute",
        "order",
        "memory_bytes",
        "step_seconds",
        "compute_seconds",
        "bubble_seconds",
    ] {
        assert!(!value["layouts"][0][field].is_null(), "{field}");
    }
    assert_eq!(value["layouts"][0]["exposed_communication_seconds"]["tp"], 1.5);
    insta::assert_snapshot!("json", serde_json::to_string_pretty(&value).unwrap());
}

#[test]
fn two_layouts_are_compared_with_the_largest_difference_first() {
    let comparison = Comparison::new(layout(4, 0.5), layout(8, 1.0), Some(0.99));
    insta::assert_snapshot!("explain", explain_text(&comparison, 100));
}
