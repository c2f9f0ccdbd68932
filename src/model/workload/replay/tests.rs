//! Properties of programs: the bytes of the list of ops, no deadlock, and no conflicting use of buffers.

use super::deadlock::carry_out;
use super::*;
use crate::config::Suite;
use crate::layout::Axis;
use crate::workload::step::Step;
use commgauge_base::error::Result;
use commgauge_base::units::Seconds;
use std::path::Path;

const OPTIONS: ReplayOptions = ReplayOptions { repetitions: 1, warm_up: 0, forward_seconds_per_layer: Seconds(1e-3) };

/// A suite in the folder of the shipped ones, so that it finds their models.
fn suite(model: &str, training: &str, layout: &str) -> Suite {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
    let text = format!("[model]\n{model}\n[training]\nsequence = 64\n{training}\n[[layout]]\n{layout}\n");
    Suite::parse(&path, &text).unwrap()
}

fn plan_of(suite: &Suite, ranks: u32) -> Result<ReplayPlan> {
    let steps = Step::all_of(&suite.layouts[0], ranks)?;
    ReplayPlan::new(&steps[0], &timetable(&steps[0])?, &OPTIONS, |_| true)
}

fn timetable(step: &Step) -> Result<Timetable> {
    let Step::Training(training) = step else { panic!("the suite trains") };
    Timetable::of(training)
}

/// The timetable of 1F1B in a step of this many micro-batches.
fn of_micro_batches(micro_batches: u32) -> Timetable {
    let suite = suite(SMALL, &format!("micro_batches = {micro_batches}"), "tp = 2\npp = 2");
    timetable(&Step::all_of(&suite.layouts[0], 4).unwrap()[0]).unwrap()
}

const SMALL: &str = "preset = 'llama-3-8b'\nlayers = 4";
const EIGHT: &str = "preset = 'llama-3-8b'\nlayers = 8";
const LINEAR_AND_EXPERTS: &str = "config = '../tests/data/transformers/qwen3_next/config.json'\nlayers = 8";
const ONE_BLOCK_EACH: &str = "config = '../tests/data/transformers/nemotron_h/config.json'\nlayers = 10";
const EXPERTS: &str = "preset = 'mixtral-8x7b'\nlayers = 4";

#[test]
fn every_listed_call_is_replayed_as_often_as_listed_without_deadlock() {
    for (model, training, layout, ranks) in [
        (SMALL, "micro_batches = 4", "tp = 2\npp = 2", 4),
        (SMALL, "micro_batches = 3", "tp = 2\npp = 2", 8),
        (SMALL, "micro_batches = 1", "pp = 4", 4),
        (SMALL, "micro_batches = 2", "tp = 2", 4),
        (SMALL, "micro_batches = 2\nrecompute = 'full'", "tp = 2\npp = 2", 4),
        (SMALL, "micro_batches = 2\nsequence_parallel = true", "tp = 2\npp = 2\ncp = 2", 8),
        (SMALL, "micro_batches = 2\nstage_layers = [1, 3]", "tp = 2\npp = 2", 4),
        (SMALL, "micro_batches = 2\nbucket_parameters = 1000000", "dp = 2\npp = 2", 4),
        (SMALL, "micro_batches = 2\ndata_style = 'fsdp'", "dp = 4", 4),
        (SMALL, "micro_batches = 2\ndata_style = 'fsdp'\nreshard_after_forward = false", "dp = 2\npp = 2", 4),
        (SMALL, "micro_batches = 2\ndata_style = 'hsdp'\nreplicas_of_shards = 2", "dp = 4", 4),
        (SMALL, "micro_batches = 2\ndata_style = 'zero1'", "dp = 2\npp = 2", 4),
        (SMALL, "micro_batches = 2\ndata_style = 'zero2'", "dp = 2\npp = 2", 4),
        (SMALL, "micro_batches = 2\ncontext_style = 'all_to_all'", "cp = 2\npp = 2", 4),
        (SMALL, "micro_batches = 2\ncontext_style = 'hybrid'\ncontext_inner = 2", "cp = 4\npp = 2", 8),
        (SMALL, "micro_batches = 4\nschedule = 'naive'", "tp = 2\npp = 2", 4),
        (SMALL, "micro_batches = 4\nschedule = 'gpipe'", "tp = 2\npp = 4", 8),
        (SMALL, "micro_batches = 8\nschedule = 'zb-h1'", "tp = 2\npp = 4", 8),
        (SMALL, "micro_batches = 8\nschedule = 'zb-1p'", "tp = 2\npp = 4", 8),
        (SMALL, "micro_batches = 8\nschedule = 'zb-2p'\nrecompute = 'full'", "tp = 2\npp = 4", 8),
        (EIGHT, "micro_batches = 8\nvirtual_stages = 2", "tp = 2\npp = 4", 8),
        (EIGHT, "micro_batches = 4\nvirtual_stages = 4\ndata_style = 'zero1'", "dp = 2\npp = 2", 4),
        (EIGHT, "micro_batches = 8\nschedule = 'zb-v'", "tp = 2\npp = 4", 8),
        (EIGHT, "micro_batches = 8\nschedule = 'v-half'", "dp = 2\npp = 4", 8),
        (EIGHT, "micro_batches = 8\nschedule = 'v-min'\nsequence_parallel = true", "tp = 2\npp = 4", 8),
        (EIGHT, "micro_batches = 8\nschedule = 'dualpipe-v'", "tp = 2\npp = 4", 8),
        (EIGHT, "micro_batches = 8\nschedule = 'dualpipe'", "dp = 2\npp = 4", 8),
        (EIGHT, "micro_batches = 8\nschedule = 'dualpipe'", "tp = 2\npp = 4", 8),
        (EIGHT, "micro_batches = 8\nschedule = 'dualpipe'\nsequence_parallel = true", "tp = 2\npp = 2", 4),
        (SMALL, "micro_batches = 4\nscatter_gather = true", "tp = 2\npp = 4", 8),
        (EXPERTS, "micro_batches = 2", "dp = 4\nep = 4", 4),
        (EXPERTS, "micro_batches = 2\nrouting = 'random'\nrecompute = 'full'", "dp = 4\nep = 4\npp = 2", 8),
        ("preset = 'deepseek-v3'\nlayers = 6", "micro_batches = 2", "dp = 4\nep = 4\npp = 2", 8),
        (EXPERTS, "micro_batches = 2\nsequence_parallel = true", "tp = 2\ndp = 4\nep = 2\netp = 1\npp = 2", 16),
        (SMALL, "micro_batches = 2\nsequence_parallel = true\ngather_recipe = 'fp8_current'", "tp = 2\npp = 2", 4),
        (SMALL, "micro_batches = 2\nsequence_parallel = true\ngather_recipe = 'mxfp8'", "tp = 2", 2),
        (SMALL, "micro_batches = 2\nsequence_parallel = true\nproduct_overlap = 'pieces'", "tp = 2\npp = 2", 4),
        (EXPERTS, "micro_batches = 2\ndispatcher = 'deepep'\nexpert_inner = 2", "dp = 4\nep = 4\npp = 2", 8),
        (EXPERTS, "micro_batches = 2\ndispatcher = 'hybrid_ep'\nrecompute = 'full'", "dp = 4\nep = 4", 4),
        (SMALL, "micro_batches = 4\ndata_style = 'fsdp'\nschedule = 'zb-h1'", "dp = 2\npp = 4", 8),
        (SMALL, "micro_batches = 2\ndata_style = 'zero2'\nschedule = 'zb-h1'", "dp = 2\npp = 2\ncp = 2", 8),
        (SMALL, "micro_batches = 2\ndata_style = 'zero3'\nrecompute = 'full'", "dp = 2\npp = 2\ntp = 2", 8),
        (SMALL, "micro_batches = 2\ndata_style = 'zero1'\nreplicas_of_shards = 2", "dp = 4", 4),
        (SMALL, "micro_batches = 2\ndata_style = 'zero1'\nbucket_rule = 'layer_wise'", "dp = 2\npp = 2", 4),
        (EXPERTS, "micro_batches = 2\ndata_style = 'zero1'\nbucket_rule = 'layer_wise'", "dp = 4\nep = 2", 4),
        (SMALL, "micro_batches = 2\ndata_style = 'fsdp'\nunit_rule = 'buckets'", "tp = 2\ndp = 2\npp = 2", 8),
        (
            EIGHT,
            "micro_batches = 4\nvirtual_stages = 2\ndata_style = 'fsdp'\nunit_rule = 'buckets'",
            "dp = 2\npp = 2",
            4,
        ),
        (EXPERTS, "micro_batches = 2\ndata_style = 'fsdp'\nunit_rule = 'buckets'", "dp = 4\nep = 2", 4),
        (
            SMALL,
            "micro_batches = 2\ndata_style = 'hsdp'\nunit_rule = 'buckets'\nreplicas_of_shards = 2\nbucket_parameters = 1000000",
            "dp = 4",
            4,
        ),
        (
            SMALL,
            "micro_batches = 2\ndata_style = 'zero3'\nunit_rule = 'modules'\nquantised_parameters = true",
            "dp = 4",
            4,
        ),
        (
            SMALL,
            "micro_batches = 1\ndata_style = 'zero3'\nunit_rule = 'modules'\nquantised_parameters = true\nquantised_gradients = 2\n\
             secondary_shards = 2",
            "dp = 4",
            4,
        ),
        (
            EXPERTS,
            "micro_batches = 1\ndata_style = 'zero3'\nunit_rule = 'modules'\nquantised_gradients = 2",
            "dp = 4",
            4,
        ),
        (SMALL, "micro_batches = 2\ndata_style = 'fsdp'\ngather_inner = 2\nrecompute = 'full'", "dp = 4\npp = 2", 8),
        (SMALL, "micro_batches = 2\ndata_style = 'hsdp'\nreplicas_of_shards = 2\ngather_inner = 2", "dp = 8", 8),
        (
            SMALL,
            "micro_batches = 2\ndata_style = 'hsdp'\nunit_rule = 'buckets'\nreplicas_of_shards = 2\nouter_sharding = 'optim'",
            "dp = 4",
            4,
        ),
        (
            SMALL,
            "micro_batches = 2\ndata_style = 'fsdp'\nunit_rule = 'buckets'\nparameter_element_type = 'fp8_e4m3'",
            "dp = 4",
            4,
        ),
        (SMALL, "micro_batches = 2\nmuon_tp_mode = 'duplicated'", "tp = 2\npp = 2", 4),
        (SMALL, "micro_batches = 4\nbatch_broadcast = 'fields_and_mask'\nvirtual_stages = 2", "tp = 2\npp = 2", 4),
        (SMALL, "micro_batches = 4\nbatch_broadcast = 'fields'\nschedule = 'dualpipe'", "tp = 2\npp = 2", 4),
        (
            SMALL,
            "micro_batches = 2\ndata_style = 'zero1'\nbucket_rule = 'layer_wise'\nmuon_tp_mode = 'distributed'",
            "tp = 2\ndp = 2\npp = 2",
            8,
        ),
        (SMALL, "micro_batches = 2\noverlap_gradients = false", "dp = 2\npp = 2", 4),
        (SMALL, "micro_batches = 2\nbucket_rule = 'pytorch'", "dp = 2\npp = 2", 4),
        (SMALL, "micro_batches = 2\nlinears = 'column'\nfused_cross_entropy = true", "tp = 2\npp = 2", 4),
        ("preset = 'gpt-7.5b'\nlayers = 4", "micro_batches = 2\nsequence_parallel = true", "tp = 2\npp = 4", 8),
        (
            LINEAR_AND_EXPERTS,
            "micro_batches = 2\nsequence_parallel = true\ndata_style = 'fsdp'",
            "tp = 2\nep = 4\npp = 2",
            16,
        ),
        (ONE_BLOCK_EACH, "micro_batches = 2\ndata_style = 'fsdp'", "tp = 2\ndp = 2\npp = 2", 8),
    ] {
        let plan = plan_of(&suite(model, training, layout), ranks).unwrap();
        carry_out(&plan);
        for (program, listed) in plan.programs.iter().flatten().zip(&plan.listed) {
            let starts = program.starts_per_op();
            for totals in listed {
                let own = program.ops[..program.own_ops].iter().zip(&starts).filter(|(op, _)| op.axis == totals.axis);
                let payload: u64 = own.map(|(op, starts)| op.bytes_total.0 * starts).sum();
                assert_eq!(payload, totals.payload_bytes_per_step.0, "{training} {layout} {}", totals.axis);
            }
            assert!(!listed.is_empty(), "{layout}: nothing is replayed");
        }
    }
}

#[test]
fn calls_under_way_together_never_write_to_the_same_bytes() {
    let buckets = "micro_batches = 2\nbucket_parameters = 100000000";
    let plan = plan_of(&suite(SMALL, buckets, "tp = 2\ndp = 2\npp = 2"), 8).unwrap();
    let mut together_at_most = 0;
    for (rank, stage) in plan.stage_of_rank.iter().enumerate() {
        let program = plan.programs[*stage as usize].as_ref().unwrap();
        let place = |groups: usize| {
            let place = plan.groups[groups].place_of(rank as u32)?;
            Some((plan.groups[groups].groups[place.group].as_slice(), place.rank_in_group))
        };
        let regions = Regions::of(program, place).unwrap();
        let mut written: Vec<(u32, Region)> = Vec::new();
        for action in &program.actions {
            match action {
                Action::Start { slot } => {
                    let new = regions.receive[*slot as usize];
                    assert!(new.offset + new.bytes <= regions.receive_bytes);
                    for (other, old) in &written {
                        let apart = new.offset + new.bytes <= old.offset || old.offset + old.bytes <= new.offset;
                        assert!(apart || new.bytes == 0 || old.bytes == 0, "slots {slot} and {other}");
                    }
                    written.push((*slot, new));
                    together_at_most = together_at_most.max(written.len());
                }
                Action::Wait { slot } => written.retain(|(other, _)| other != slot),
                Action::Compute { .. } => {}
            }
        }
        let every: u64 = regions.receive.iter().map(|region| region.bytes).sum();
        assert!(regions.receive_bytes < every, "buffers are shared where that is safe");
    }
    assert!(together_at_most > 4, "{together_at_most}");
}

#[test]
fn overlapped_calls_are_started_and_exposed_calls_are_waited_for_at_once() {
    let plan = plan_of(&suite(SMALL, "micro_batches = 2", "tp = 2\ndp = 2\npp = 2"), 8).unwrap();
    for program in plan.programs.iter().flatten() {
        for (slot, at_once) in program.slots.iter().zip(program.at_once.clone()) {
            let op = program.op_of(slot);
            let in_layer = matches!(op.when, crate::workload::when::When::Layer { .. });
            match slot.movement {
                Movement::Together if op.overlap.is_exposed() => assert!(at_once, "{op:?}"),
                // At the ends of the model there is no computing that could hide a call.
                Movement::Together => assert!(!(at_once && in_layer && op.axis == Axis::Tp), "{op:?}"),
                Movement::Send { .. } | Movement::Receive { .. } => assert!(!at_once, "{op:?}"),
            }
        }
    }
}

#[test]
fn the_computing_of_a_step_is_that_of_its_layers() {
    let plan = plan_of(&suite(SMALL, "micro_batches = 4", "tp = 2\npp = 2"), 4).unwrap();
    for program in plan.programs.iter().flatten() {
        // Two layers, four micro-batches, 1 ms forward and 2 ms backward.
        assert_eq!(program.compute_nanoseconds(), 2 * 4 * 3_000_000);
    }
    let again = plan_of(&suite(SMALL, "micro_batches = 4\nrecompute = 'full'", "tp = 2\npp = 2"), 4).unwrap();
    assert_eq!(again.programs[0].as_ref().unwrap().compute_nanoseconds(), 2 * 4 * 4_000_000);
}

#[test]
fn invalid_options_are_refused() {
    let suite = suite(SMALL, "micro_batches = 2", "tp = 2\npp = 2");
    let steps = Step::all_of(&suite.layouts[0], 4).unwrap();
    let timetable = of_micro_batches(2);
    for (options, expected) in [
        (ReplayOptions { repetitions: 0, ..OPTIONS }, "repetitions of a replay: found 0"),
        (ReplayOptions { forward_seconds_per_layer: Seconds(f64::NAN), ..OPTIONS }, "found NaN; accepted: 0"),
        (ReplayOptions { forward_seconds_per_layer: Seconds(-1.0), ..OPTIONS }, "found -1; accepted: 0"),
    ] {
        let error = ReplayPlan::new(&steps[0], &timetable, &options, |_| true).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let short = of_micro_batches(1);
    let error = ReplayPlan::new(&steps[0], &short, &OPTIONS, |_| true).unwrap_err();
    assert!(error.to_string().contains("times in a step, the list of ops says"), "{error}");
    let other = Timetable { events: timetable.events[..1].to_vec(), ..timetable };
    assert!(ReplayPlan::new(&steps[0], &other, &OPTIONS, |_| true).is_err());
}

#[test]
fn a_schedule_with_an_unmatched_send_is_refused() {
    let mut events = of_micro_batches(2).events;
    events[1].swap(0, 2);
    let error = Timetable::checked("odd".to_owned(), events).unwrap_err();
    assert!(error.to_string().contains("stage 0 sends the micro-batches [0, 1], stage 1 waits for [1, 0]"), "{error}");
}

#[test]
fn a_process_makes_the_programs_of_its_own_ranks_only() {
    let suite = suite(SMALL, "micro_batches = 2", "tp = 2\npp = 2");
    let steps = Step::all_of(&suite.layouts[0], 4).unwrap();
    let plan = ReplayPlan::new(&steps[0], &of_micro_batches(2), &OPTIONS, |rank| rank == 3).unwrap();
    assert_eq!(plan.stage_of_rank, [0, 0, 1, 1]);
    assert!(plan.programs[0].is_none() && plan.program_of_rank(3).is_some());
    assert_eq!(plan.listed.len(), 2);
}

#[test]
fn the_quick_suite_can_be_replayed_layout_by_layout() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/quick.toml");
    let quick = Suite::load(&path).unwrap();
    let mut replayed = 0;
    for table in &quick.layouts {
        for step in Step::all_of(table, 4).unwrap().iter().filter(|step| matches!(step, Step::Training(_))) {
            let plan = ReplayPlan::new(step, &timetable(step).unwrap(), &OPTIONS, |_| true);
            carry_out(&plan.unwrap_or_else(|error| panic!("{}: {error}", step.layout().degrees.name())));
            replayed += 1;
        }
    }
    assert!(replayed > 1, "{replayed}");
}

#[test]
fn every_schedule_with_every_data_style_is_replayed_as_listed() {
    use crate::config::step::{DataStyle, ScheduleKind};
    let mut replayed = 0;
    for &schedule in ScheduleKind::ALL {
        for style in DataStyle::ALL {
            for (others, layout, ranks) in [
                ("recompute = 'full'\n", "tp = 2\npp = 4", 16),
                ("sequence_parallel = true\nbucket_parameters = 50000000\n", "tp = 2\ncp = 2\npp = 2", 16),
                ("", "pp = 4", 8),
            ] {
                let chunks = if schedule.goes_round() { "virtual_stages = 2\n" } else { "" };
                let training = format!(
                    "micro_batches = 8\nschedule = '{schedule}'\n{chunks}data_style = '{style}'\n{others}{}",
                    if *style == DataStyle::Hsdp { "replicas_of_shards = 2\n" } else { "" }
                );
                match plan_of(&suite(EIGHT, &training, layout), ranks) {
                    Ok(plan) => {
                        carry_out(&plan);
                        replayed += 1;
                    }
                    Err(error) => {
                        let text = error.to_string();
                        let rules = ["pass different layers of a stage cannot be replayed", "is not offered for"];
                        let known = rules.iter().any(|rule| text.contains(rule));
                        assert!(known && schedule == ScheduleKind::DualPipe, "{training}{layout}: {text}");
                    }
                }
            }
        }
    }
    assert!(replayed >= 200, "{replayed}");
}
