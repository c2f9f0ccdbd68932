//! Tests of a run with every kind of work on simulated ranks: the order of its lines, and where a signal and the time
//! limit end it.

use super::*;
use crate::backend::simulated::SimulatedBackend;
use crate::world::SoloWorld;
use commgauge_base::units::Seconds;
use commgauge_model::config::{Machine, Suite};
use commgauge_model::layout::Axis;
use commgauge_model::record::line::{EndStatus, SuiteFacts};
use commgauge_model::record::{Line, Record};
use commgauge_model::workload::replay::ReplayOptions;
use commgauge_model::workload::step::Step;
use commgauge_model::workload::{Interference, StepFacts, WorkPlan};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

const RANKS: u32 = 4;
const MACHINE: &str = "name = 'quiet'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '10GB/s'\n\
    [between_nodes]\nlatency = '5us'\nadapters_per_node = 2\nrate_per_adapter = '1GB/s'\n";
/// Chooses further sizes in several rounds, and has matrix products.
const SUITE: &str = "[measure]\nprecision = 0.05\nminimum_samples = 5\nmaximum_samples = 20\ncase_budget = '1min'\n\
    replicates = 2\ncadences = 'streaming'\n[calibrate]\nuntil_error = 0.02\nmost_sizes = 6\nbudget = '10min'\n\
    [[sweep]]\ncollectives = ['all_reduce']\nbytes = ['1KiB', '32KiB', '1MiB']\nplacements = 'out-of-place'\n\
    [[compute]]\nmodel = { preset = 'llama-3-8b' }\ntp = 4\nsequence = 64\nmicro_batch = 1\n";
const STEP: &str = "[model]\npreset = 'llama-3-8b'\nlayers = 2\n[training]\nsequence = 512\nmicro_batches = 2\n\
    [[layout]]\ntp = 2\npp = 2\n";

/// Inputs of a run, and the folder of its record.
struct Trial {
    folder: tempfile::TempDir,
    suite: Suite,
    step: Suite,
    machine: Machine,
}

/// What happens when the line of this number, counted from 1, is written.
#[derive(Clone, Copy, Debug)]
enum Stop {
    Never,
    Signal(usize),
    TimeLimit(usize),
}

impl Trial {
    fn new() -> Trial {
        let folder = tempfile::tempdir().unwrap();
        let suite = |text: &str| Suite::parse(Path::new("suites/test.toml"), text).unwrap();
        let machine = Machine::parse(MACHINE, Path::new("m.toml")).unwrap();
        Trial { folder, suite: suite(SUITE), step: suite(STEP), machine }
    }

    fn record(&self) -> Record {
        Record::read(&self.folder.path().join("run.jsonl")).unwrap()
    }

    /// Runs, and returns the lines that were written.
    fn run(&self, stop: Stop, resume: Option<Resume>) -> (Vec<Line>, End) {
        let limit = TimeLimit::of(Seconds(3600.0), Instant::now());
        let signals = Signals::default().with_limit(Some(limit.clone()));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let listener = Listener::new({
            let (lines, signals) = (Arc::clone(&lines), signals.clone());
            move |line| {
                let mut lines = lines.lock().unwrap();
                lines.push(line.clone());
                match stop {
                    Stop::Signal(at) if at == lines.len() => {
                        signals.number().store(15, Ordering::Relaxed);
                        signals.raised().store(true, Ordering::Relaxed);
                    }
                    Stop::TimeLimit(at) if at == lines.len() => limit.expire(),
                    _ => {}
                }
            }
        });
        let steps = Step::all_of(&self.step.layouts[0], RANKS).unwrap();
        let mut plan = WorkPlan::from_suite(&self.suite, RANKS).unwrap();
        plan.steps = steps.iter().map(StepFacts::of).collect();
        let options = ReplayOptions { repetitions: 3, warm_up: 1, forward_seconds_per_layer: Seconds(1e-3) };
        let request = Request {
            program: "test",
            run_id: "test".to_owned(),
            suite: SuiteFacts { name: "test".into(), path: None, sha256: String::new(), model: None, layout: None },
            plan,
            settings: self.suite.settings.clone(),
            machine: Some(self.machine.clone()),
            world_size: RANKS,
            record: self.folder.path().join("run.jsonl"),
            resume,
            launch: Default::default(),
            launch_command: None,
            injected: Default::default(),
            watch: Default::default(),
            listener,
            labels: BTreeMap::new(),
            after_plan: AfterPlan {
                interference: Some(Interference::of(&steps[0], 0, [Axis::Tp, Axis::Pp], |_| true).unwrap()),
                replay: Some(ReplayRequest {
                    source: ReplaySource::Steps(Box::new(self.step.layouts[0].clone())),
                    options,
                }),
            },
        };
        let mut backend = SimulatedBackend::new(&self.machine, RANKS, 1).unwrap();
        let end = run(&SoloWorld, &mut backend, &request, &signals).unwrap();
        let lines = std::mem::take(&mut *lines.lock().unwrap());
        (lines, end)
    }
}

fn kind(line: &Line) -> &'static str {
    match line {
        Line::Header(_) => "header",
        Line::Plan(_) => "plan",
        Line::Clock(_) => "clock",
        Line::Case(_) => "case",
        Line::PlanGrowth(_) => "growth",
        Line::Calibration(_) => "calibration",
        Line::Interference(_) => "interference",
        Line::Product(_) => "product",
        Line::Copy(_) => "copy",
        Line::Replay(_) => "replay",
        Line::Resume(_) => "resume",
        Line::End(_) => "end",
        _ => "other",
    }
}

fn kinds(lines: &[Line]) -> Vec<&'static str> {
    lines.iter().map(kind).collect()
}

/// Everything that a run measured, without what differs from launch to launch.
fn essence(record: &Record) -> Vec<String> {
    vec![
        format!("{:#?}", record.chosen),
        format!("{:#?}", record.calibration),
        format!("{:#?}", record.cases),
        format!("{:#?}", record.interference),
        format!("{:#?}", record.products),
        format!("{:#?}", record.replays),
    ]
}

/// Numbers of the lines, from 1, at which the kind of line changes, and those after them.
fn turning_points(kinds: &[&str]) -> Vec<usize> {
    let mut points: Vec<usize> = (1..kinds.len()).filter(|at| kinds[at - 1] != kinds[*at]).collect();
    points.extend(points.clone().iter().map(|at| at + 1));
    points.sort_unstable();
    points.dedup();
    points.retain(|at| *at < kinds.len());
    points
}

#[test]
fn cases_come_first_then_interference_products_and_replays() {
    let trial = Trial::new();
    let (lines, end) = trial.run(Stop::Never, None);
    assert_eq!((end.exit_code, end.error), (0, None));
    let mut order = kinds(&lines);
    let count = |kind: &str| order.iter().filter(|one| **one == kind).count();
    assert!(count("growth") >= 2, "several rounds: {order:?}");
    // Two replicates of both directions.
    let products = trial.record().plan.product_lines as usize;
    assert_eq!((count("interference"), count("product"), count("replay")), (4, products, 1));
    order.dedup();
    let rounds = order.iter().filter(|kind| **kind == "growth").count();
    let expected: Vec<&str> = ["header", "plan", "clock", "case"]
        .into_iter()
        .chain(["growth", "case"].into_iter().cycle().take(2 * rounds))
        .chain(["calibration", "clock", "interference", "product", "replay", "end"])
        .collect();
    assert_eq!(order, expected);
}

#[test]
fn a_signal_ends_the_run_after_the_line_that_is_due_and_the_rest_can_be_measured_later() {
    let whole = Trial::new();
    let (lines, _) = whole.run(Stop::Never, None);
    let (all, expected) = (kinds(&lines), essence(&whole.record()));
    for at in turning_points(&all) {
        let trial = Trial::new();
        let (lines, end) = trial.run(Stop::Signal(at), None);
        let rest: &[&str] = match all[at - 1] {
            // The first case is cut short, which its line says.
            "header" | "plan" | "growth" => &["case", "calibration", "end"],
            "clock" if all[at] == "case" => &["case", "calibration", "end"],
            "case" => &["calibration", "end"],
            "calibration" => &["clock", "end"],
            // The record cannot say that other work was cut short.
            _ => &["end"],
        };
        let rest = if at < 3 { [&all[at..3], rest].concat() } else { rest.to_vec() };
        assert_eq!(kinds(&lines), [&all[..at], &rest].concat(), "signal at line {at}");
        assert_eq!((end.status, end.exit_code), (EndStatus::Interrupted, 143), "signal at line {at}");
        let (_, end) = trial.run(Stop::Never, Some(Resume::default()));
        assert_eq!(end.exit_code, 0);
        assert_eq!(essence(&trial.record()), expected, "signal at line {at}");
    }
}

#[test]
fn no_work_is_begun_for_which_the_time_limit_leaves_no_time() {
    let whole = Trial::new();
    let (lines, _) = whole.run(Stop::Never, None);
    let (all, expected) = (kinds(&lines), essence(&whole.record()));
    for at in turning_points(&all) {
        let trial = Trial::new();
        let (lines, end) = trial.run(Stop::TimeLimit(at), None);
        let first_of_replicate = all[..at].iter().filter(|kind| **kind == "interference").count() % 2 == 1;
        let rest: &[&str] = match all[at - 1] {
            // A round is chosen before its first case is due.
            "case" if all[at] == "growth" => &["growth", "calibration", "end"],
            "case" if all[at] == "calibration" => &["calibration", "clock", "end"],
            "header" | "plan" | "growth" | "case" => &["calibration", "end"],
            "clock" if all[at] == "case" => &["calibration", "end"],
            "calibration" => &["clock", "end"],
            // Both directions are one piece of work.
            "interference" if first_of_replicate => &["interference", "end"],
            _ => &["end"],
        };
        let rest = if at < 3 { [&all[at..3], rest].concat() } else { rest.to_vec() };
        assert_eq!(kinds(&lines), [&all[..at], &rest].concat(), "no time after line {at}");
        let (status, exit_code) =
            if all[at - 1] == "replay" { (EndStatus::Complete, 0) } else { (EndStatus::OutOfTime, OUT_OF_TIME) };
        assert_eq!((end.status, end.exit_code), (status, exit_code), "no time after line {at}");
        if exit_code != 0 {
            let (_, end) = trial.run(Stop::Never, Some(Resume::default()));
            assert_eq!(end.exit_code, 0);
        }
        assert_eq!(essence(&trial.record()), expected, "no time after line {at}");
    }
}
