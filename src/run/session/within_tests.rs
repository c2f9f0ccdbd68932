//! Tests of a budget for all cases on the simulated backend, whose clock is virtual.

use super::*;
use crate::backend::simulated::SimulatedBackend;
use crate::world::SoloWorld;
use commgauge_base::units::Seconds;
use commgauge_model::config::Suite;
use commgauge_model::config::{Machine, Rounds, RunSettings};
use commgauge_model::record::line::{StopReason, SuiteFacts};
use commgauge_model::record::{Line, Record};
use commgauge_model::workload::WorkPlan;
use std::collections::BTreeMap;
use std::path::Path;

const SUITE: &str =
    "[[sweep]]\ncollectives = ['all_reduce', 'all_gather']\nbytes = ['8B', '1KiB', '64KiB', '4MiB', '64MiB']\n";
const RANKS: u32 = 4;

fn request(within: f64, precision: f64, folder: &Path) -> Request {
    let suite = Suite::parse(Path::new("test.toml"), SUITE).unwrap();
    let settings =
        RunSettings { precision, case_budget: Seconds(within), rounds: Rounds::LastInOrder, ..RunSettings::default() };
    let settings = RunSettings { replicates: 2, ..settings.divided(Seconds(within)).unwrap() };
    Request {
        program: "test",
        run_id: "test".to_owned(),
        suite: SuiteFacts { name: "test".into(), path: None, sha256: String::new(), model: None, layout: None },
        plan: WorkPlan::from_suite(&suite, RANKS).unwrap(),
        settings,
        machine: Some(Machine::load(Path::new("embedded:suites/machines/azure-ndv5-h100.toml")).unwrap()),
        world_size: RANKS,
        record: folder.join("run.jsonl"),
        resume: None,
        launch: Default::default(),
        launch_command: None,
        injected: Default::default(),
        watch: Default::default(),
        listener: Default::default(),
        labels: BTreeMap::new(),
        after_plan: Default::default(),
    }
}

fn measured(within: f64, precision: f64) -> (Record, Vec<Line>) {
    let folder = tempfile::tempdir().unwrap();
    let received = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let request = Request {
        listener: Listener::new({
            let received = std::sync::Arc::clone(&received);
            move |line| received.lock().unwrap().push(line.clone())
        }),
        ..request(within, precision, folder.path())
    };
    let mut backend = SimulatedBackend::new(request.machine.as_ref().unwrap(), RANKS, 1).unwrap();
    let end = run(&SoloWorld, &mut backend, &request, &Signals::default()).unwrap();
    assert_eq!(end.exit_code, 0);
    drop(request.listener);
    let lines = std::mem::take(&mut *received.lock().unwrap());
    (Record::read(&request.record).unwrap(), lines)
}

#[test]
fn every_case_is_measured_in_any_time_and_longer_replicates_replace_shorter_ones() {
    for (within, precision) in [(1e-9, 0.02), (0.5, 1e-6), (5.0, 0.02)] {
        let (record, lines) = measured(within, precision);
        let mut replicates = vec![Vec::new(); record.plan.cases.len()];
        for line in &record.cases {
            replicates[line.case as usize].push(line.replicate);
        }
        assert!(replicates.iter().all(|replicates| !replicates.is_empty()), "within {within} s: {replicates:?}");
        for line in lines.iter().filter_map(|line| if let Line::Case(case) = line { Some(case) } else { None }) {
            let is_replaced =
                !record.cases.iter().any(|other| (other.case, other.replicate) == (line.case, line.replicate));
            assert!(
                !is_replaced || line.stop == Some(commgauge_model::record::line::StopReason::Budget),
                "only what was cut short is replaced"
            );
        }
        assert_eq!(record.plan.case_lines, record.plan.cases.len() as u64);
    }
}

#[test]
fn a_listener_receives_every_line_of_the_record_in_order() {
    let (record, lines) = measured(0.2, 0.02);
    assert!(matches!(lines[..2], [Line::Header(_), Line::Plan(_)]) && matches!(lines.last(), Some(Line::End(_))));
    assert_eq!(Record::from_lines(lines).unwrap().cases, record.cases);
}

#[test]
fn the_last_round_goes_in_the_order_of_the_rows() {
    let (_, lines) = measured(20.0, 0.02);
    let last: Vec<(bool, u32)> = lines
        .iter()
        .filter_map(|line| if let Line::Case(case) = line { Some(case) } else { None })
        .filter(|case| case.replicate == 1)
        .map(|case| (case.name.contains("isolated"), case.case))
        .collect();
    // Both cadences of a call are adjacent in the plan, and in two different tables.
    assert!(last.len() > 1 && last.is_sorted(), "{last:?}");
}

#[test]
fn with_time_enough_every_row_is_precise_at_the_end() {
    for precision in [0.01, 0.002] {
        let (record, lines) = measured(200.0, precision);
        let wide = record.cases.iter().find(|line| line.stop == Some(StopReason::Budget));
        assert!(wide.is_none(), "+-{precision}: {:?} of {} lines", wide.map(|line| &line.name), lines.len());
    }
}
