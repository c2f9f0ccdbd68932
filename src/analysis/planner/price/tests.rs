//! Prices against figures computed by hand, and properties of any price.

use super::passes::ChunkPasses;
use super::*;
use crate::planner::rates::{Published, RatedCall};
use commgauge_model::config::{Machine, Suite};
use commgauge_model::layout::Locality;
use commgauge_model::workload::schedule::ScheduleKind;
use commgauge_model::workload::step::Step;
use std::path::Path;

/// 1 us and `within` GB/s within a node of 4, 5 us and 4 adapters of `between` GB/s.
fn machine(within: f64, between: f64) -> Machine {
    let text = format!(
        "name = 'm'\nranks_per_node = 4\n[within_node]\nlatency = '1us'\nrate = '{within}GB/s'\n\
         [between_nodes]\nlatency = '5us'\nadapters_per_node = 4\nrate_per_adapter = '{between}GB/s'\n"
    );
    Machine::parse(&text, Path::new("m.toml")).unwrap()
}

/// Prices a step on nodes of 4 ranks at 100 TFLOP/s.
fn priced(model: &str, training: &str, layout: &str, ranks: u32, machine: &Machine) -> Result<StepPrice, Unpriced> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
    let text = format!("[model]\npreset = '{model}'\n[training]\n{training}\n[layout]\n{layout}\n");
    let suite = Suite::parse(&path, &text).unwrap();
    let steps = Step::all_of(&suite.layouts[0], ranks).unwrap();
    let Step::Training(step) = &steps[0] else { unreachable!() };
    price(step, &Compute::constant(100e12, 1.0), &Published::new(machine), 4)
}

/// Rates that know nothing.
struct NoRates;

impl Rates for NoRates {
    fn price(&self, _: &RatedCall) -> crate::cost::Prediction {
        crate::cost::Prediction {
            seconds: None,
            low: None,
            high: None,
            status: crate::cost::Status::Refused,
            reason: Some("nothing was measured".to_owned()),
            untrusted: false,
        }
    }
    fn ground(&self, _: &RatedCall) -> String {
        String::new()
    }
    fn calibrated(&self) -> bool {
        true
    }
    fn synthetic(&self) -> bool {
        false
    }
    fn name(&self) -> String {
        "silent".to_owned()
    }
}

#[test]
fn a_step_with_an_untimed_call_has_no_price() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
    let text = "[model]\npreset = 'llama-3-8b'\n[training]\nsequence = 2048\nglobal_batch = 8\n[layout]\ntp = 2\n";
    let suite = Suite::parse(&path, text).unwrap();
    let steps = Step::all_of(&suite.layouts[0], 2).unwrap();
    let Step::Training(step) = &steps[0] else { unreachable!() };
    let unpriced = price(step, &Compute::constant(1e14, 0.5), &NoRates, 8).unwrap_err();
    assert!(unpriced.to_string().ends_with("on tp of 2 ranks: nothing was measured"), "{unpriced}");
}

#[test]
fn one_rank_computes_without_waiting() {
    let price = priced("llama-3-8b", "sequence = 2048\nglobal_batch = 8", "tp = 1", 1, &machine(10.0, 1.0)).unwrap();
    assert_eq!((price.exposed.total(), price.bubble_seconds, price.optimizer_seconds), (0.0, 0.0, 0.0));
    // 6 operations per parameter and token, without the embedding (0.525e9), and 6 s h each layer for causal attention
    // (arXiv 2104.04473, appendix): 16384 tokens x (6 x 7.504e9 + 6 x 2048 x 4096 x 32) at 1e14.
    let expected = 16384.0 * (6.0 * 7.504e9 + 6.0 * 2048.0 * 4096.0 * 32.0) / 1e14;
    assert!((price.step_seconds / expected - 1.0).abs() < 0.01, "{} {expected}", price.step_seconds);
}

#[test]
fn tensor_parallelism_waits_for_what_no_product_hides() {
    let text = "sequence = 2048\nglobal_batch = 1";
    let alone = priced("llama-3-8b", text, "tp = 1", 1, &machine(10.0, 1.0)).unwrap();
    let price = priced("llama-3-8b", text, "tp = 4", 4, &machine(10.0, 1.0)).unwrap();
    assert!((price.compute_seconds / (alone.compute_seconds / 4.0) - 1.0).abs() < 0.01);
    // One all_reduce of 2 x 2048 x 4096 B on 4 ranks: 6 us + 1.5 x 16.8 MB at 10 GB/s. Two forward in each of 32
    // layers, one for the embedding, are exposed; two backward run beside weight gradients of 2 x 2048 x 218e6 / 4 /
    // 1e14 s.
    let call = 6e-6 + 1.5 * 16_777_216.0 / 10e9;
    let beside = 2.0 * 2048.0 * 218_103_808.0 / 4.0 / 1e14;
    let expected = 65.0 * call + 32.0 * (2.0 * call - beside);
    assert!((price.exposed.tp / expected - 1.0).abs() < 0.02, "{} {expected}", price.exposed.tp);
}

#[test]
fn the_parts_add_up_and_faster_links_never_slow_a_step() {
    for (training, layout, ranks) in [
        ("sequence = 2048\nglobal_batch = 32\ndata_style = 'zero1'", "tp = 2\npp = 2", 8),
        ("sequence = 2048\nglobal_batch = 32\ndata_style = 'fsdp'\nsequence_parallel = true", "tp = 2", 8),
        ("sequence = 4096\nglobal_batch = 16\ndata_style = 'zero2'\nrecompute = 'full'", "cp = 2\npp = 2", 8),
        ("sequence = 2048\nglobal_batch = 32\nvirtual_stages = 4\ndata_style = 'ddp'", "pp = 4", 8),
        ("sequence = 2048\nglobal_batch = 64\nschedule = 'zb-h1'", "pp = 4", 8),
    ] {
        let mut before = f64::INFINITY;
        for (within, between) in [(1.0, 0.1), (10.0, 0.1), (10.0, 1.0), (100.0, 10.0)] {
            let price = priced("llama-3-8b", training, layout, ranks, &machine(within, between)).unwrap();
            let parts = [price.compute_seconds, price.host_seconds, price.bubble_seconds, price.optimizer_seconds];
            assert!(parts.iter().chain(&price.exposed.values()).all(|part| *part >= 0.0), "{price:?}");
            let sum: f64 = parts.iter().sum::<f64>() + price.exposed.total();
            assert!((sum / price.step_seconds - 1.0).abs() < 1e-9, "{training} {price:?}");
            assert!(price.step_seconds <= before * (1.0 + 1e-12), "{training}");
            before = price.step_seconds;
        }
    }
}

#[test]
fn a_pipeline_of_equal_stages_has_the_bubble_of_the_paper() {
    let chunk = ChunkPasses { forward: 1.0, backward: 2.0, ..ChunkPasses::default() };
    let stage = Passes { chunks: vec![chunk], ..Passes::default() };
    for (p, m) in [(4usize, 8u64), (4, 1000), (8, 4), (2, 100_003)] {
        let pipeline = Pipeline {
            kind: ScheduleKind::OneForwardOneBackward,
            virtual_stages: 1,
            micro_batches: m,
            stages: vec![&stage; p],
            message_forward: 0.0,
            message_backward: 0.0,
        };
        let span = pipeline.span().unwrap();
        // arXiv 2104.04473 section 2.2.1: (m + p - 1)(F + B).
        let expected = 3.0 * (m as f64 + p as f64 - 1.0);
        assert!((span.makespan - expected).abs() < 1e-6, "{p} {m}: {}", span.makespan);
    }
}

/// Relative error of extrapolating from some rounds, against simulating them all.
fn carrying_error(forwards: &[f64], backward: f64, message: f64, rounds: u64, rest: u64, virtual_stages: u32) -> f64 {
    let p = forwards.len() as u64;
    let m = rounds * p + if virtual_stages > 1 { 0 } else { rest % p };
    let passes = |forward: &f64| {
        let chunk = ChunkPasses { forward: *forward, backward: backward * forward, ..ChunkPasses::default() };
        Passes { chunks: vec![chunk; virtual_stages as usize], ..Passes::default() }
    };
    let stages: Vec<Passes> = forwards.iter().map(passes).collect();
    let kind = if virtual_stages > 1 { ScheduleKind::Interleaved } else { ScheduleKind::OneForwardOneBackward };
    let pipeline = Pipeline {
        kind,
        virtual_stages,
        micro_batches: m,
        stages: stages.iter().collect(),
        message_forward: message,
        message_backward: message,
    };
    let carried = pipeline.span().unwrap().makespan;
    let whole = pipeline.run(m as u32).unwrap().makespan;
    (carried / whole - 1.0).abs()
}

proptest::proptest! {
    #[test]
    fn rounds_that_are_carried_on_come_to_what_running_them_all_does(
        forwards in proptest::collection::vec(1.0f64..1.5, 2..6), backward in 1.0f64..3.0, message in 0.0f64..0.5,
        rounds in 5u64..80, rest in 0u64..5, virtual_stages in 1u32..3,
    ) {
        let error = carrying_error(&forwards, backward, message, rounds, rest, virtual_stages);
        proptest::prop_assert!(error < 0.02, "{}", error);
    }

    /// Stages of which one takes four times as long as another, which no distribution of layers gives.
    #[test]
    fn very_uneven_stages_are_carried_on_nearly_as_well(
        forwards in proptest::collection::vec(0.5f64..2.0, 2..6), backward in 1.0f64..3.0, message in 0.0f64..1.0,
        rounds in 5u64..80, rest in 0u64..5, virtual_stages in 1u32..3,
    ) {
        let error = carrying_error(&forwards, backward, message, rounds, rest, virtual_stages);
        proptest::prop_assert!(error < 0.04, "{}", error);
    }
}

#[test]
fn a_place_is_the_layouts_own() {
    let lies = Locality { nodes_spanned: 1, ranks_per_node: 2, stride: 1, concurrent_groups_per_node: 2 };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
    let text = "[model]\npreset = 'llama-3-8b'\n[training]\nsequence = 2048\nglobal_batch = 8\n[layout]\ntp = 2\n";
    let suite = Suite::parse(&path, text).unwrap();
    let steps = Step::all_of(&suite.layouts[0], 8).unwrap();
    assert_eq!(steps[0].layout().locality(commgauge_model::layout::Axis::Tp, 4), lies);
}
