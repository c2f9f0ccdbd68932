//! Tests of measuring a step, with ranks whose times are scripted.

use super::super::fakes::on_threads;
use super::*;
use crate::backend::{AxisBytes, AxisTimes, HiddenCall};
use crate::world::SoloWorld;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::units::Seconds;
use commgauge_model::layout::Groups;
use commgauge_model::record::replay_line::HiddenCalls;
use commgauge_model::workload::replay::ReplayProgram;
use commgauge_model::workload::step::AxisTotals;
use commgauge_model::workload::when::Overlap;
use commgauge_model::workload::{Op, Style};

const OPTIONS: ReplayOptions = ReplayOptions { repetitions: 5, warm_up: 2, forward_seconds_per_layer: Seconds(1e-3) };

/// A program of which only the ops are looked at: one that the last backward pass hides.
fn program() -> ReplayProgram {
    let hidden = Op::new(Style::Data, Axis::World, Collective::AllReduce, ElementType::Float32, 400);
    ReplayProgram {
        stage: 0,
        ops: vec![Op { overlap: Overlap::LastBackward, ..hidden }],
        own_ops: 1,
        geometries: Vec::new(),
        groups: vec![0],
        slots: Vec::new(),
        actions: Vec::new(),
        at_once: Vec::new(),
        check_order: Vec::new(),
    }
}

/// A plan of one stage, in which every rank sends 300 of 400 bytes.
fn plan(ranks: u32) -> ReplayPlan {
    let totals = AxisTotals {
        axis: Axis::World,
        stage: 0,
        payload_bytes_per_step: Bytes(400),
        wire_bytes_per_step: Bytes(300),
        exposed_wire_bytes_per_step: Bytes(0),
    };
    ReplayPlan {
        schedule: "1f1b".to_owned(),
        groups: vec![Groups::world(ranks)],
        stage_of_rank: vec![0; ranks as usize],
        programs: vec![Some(program())],
        listed: vec![vec![totals]],
        job_nanoseconds: None,
    }
}

/// A rank whose time is a millisecond times its number, and longer in the first runs.
struct Scripted {
    times: [RankTimes; 1],
    rank: u32,
    runs: u32,
    wire: u64,
    wrong: bool,
    hidden: Vec<HiddenCall>,
}

impl Scripted {
    fn new(rank: u32) -> Scripted {
        Scripted { times: [RankTimes::default()], rank, runs: 0, wire: 300, wrong: false, hidden: Vec::new() }
    }
}

impl Replayer for Scripted {
    fn check(&mut self) -> Result<Option<Mismatch>> {
        let (rank, expected, got) = (self.rank, "3".to_owned(), "4".to_owned());
        Ok(self.wrong.then_some(Mismatch { rank, element: 7, expected, got, count: 2, call: None }))
    }
    fn verifies(&self) -> bool {
        true
    }
    fn run(&mut self) -> Result<()> {
        self.runs += 1;
        let warming_up = if self.runs <= OPTIONS.warm_up { 1_000_000_000 } else { 0 };
        let total_nanoseconds = 1_000_000 * u64::from(self.rank + 1) + u64::from(self.runs) + warming_up;
        let mut times = RankTimes { total_nanoseconds, computing_nanoseconds: 600_000, ..RankTimes::default() };
        times.axes[0] = AxisTimes { waiting_nanoseconds: 100_000, under_way_nanoseconds: 400_000 };
        self.times = [times];
        Ok(())
    }
    fn times(&self) -> &[RankTimes] {
        &self.times
    }
    fn hidden_calls(&self, _: usize) -> Vec<HiddenCall> {
        self.hidden.clone()
    }
    fn moved(&self, _: usize) -> Result<Vec<AxisBytes>> {
        Ok(vec![AxisBytes { axis: Axis::World, calls: 9, payload: Bytes(400), wire: Bytes(self.wire) }])
    }
}

fn measured(world: &dyn World, replayer: &mut Scripted, verify: bool, interrupted: bool) -> ReplayLine {
    let interrupted = AtomicBool::new(interrupted);
    let me = world.process();
    let context = ReplayContext { world, local_ranks: me..me + 1, verify, interrupted: &interrupted };
    measure_replay(&context, replayer, &plan(world.processes()), &OPTIONS, 3).unwrap()
}

#[test]
fn wrong_data_withholds_the_numbers_on_every_process_and_names_the_lowest_rank() {
    on_threads(4, |world| {
        let me = world.process();
        let mut replayer = Scripted { wrong: me >= 2, ..Scripted::new(me) };
        let line = measured(world, &mut replayer, true, false);
        assert!(matches!(line.outcome, Outcome::Corrupt { rank: 2, element: 7, count: 2, .. }), "{:?}", line.outcome);
        assert_eq!((replayer.runs, line.slowest_nanoseconds.len()), (0, 0));
    });
}

#[test]
fn the_slowest_rank_is_found_with_its_waiting_times_and_warm_up_is_discarded() {
    on_threads(3, |world| {
        let me = world.process();
        let line = measured(world, &mut Scripted::new(me), true, false);
        assert_eq!(line.outcome, Outcome::Measured { verified: true });
        assert_eq!((line.warm_up_repetitions, line.step), (2, 3));
        assert_eq!(line.slowest_rank, [2; 5]);
        assert_eq!(line.slowest_nanoseconds, [3_000_003, 3_000_004, 3_000_005, 3_000_006, 3_000_007]);
        assert_eq!((line.computing_nanoseconds_median, line.overlap_efficiency), (600_000, Some(0.75)));
        assert_eq!(line.axes[0].waiting_nanoseconds_median, 100_000);
        if me == 0 {
            assert!(line.bytes_as_listed);
            assert_eq!(line.rank_nanoseconds_median, [1_000_005, 2_000_005, 3_000_005]);
            assert_eq!((line.axes[0].calls_counted, line.axes[0].wire_bytes_counted), (9, Bytes(300)));
        }
    });
}

#[test]
fn a_hidden_call_takes_what_the_rank_that_came_last_saw_of_it() {
    on_threads(3, |world| {
        let me = world.process();
        // The first call waits for rank 0, the second for rank 1.
        let seen = [[10, 20_000_000], [20_000_000, 30], [20_000_000, 20_000_000]][me as usize];
        let hidden = seen.map(|nanoseconds| HiddenCall { op: 0, calls: 1, nanoseconds }).to_vec();
        let line = measured(world, &mut Scripted { hidden, ..Scripted::new(me) }, true, false);
        if me == 0 {
            let two = HiddenCalls {
                collective: Collective::AllReduce,
                element_type: ElementType::Float32,
                bytes_total: Bytes(400),
                calls: 2,
                nanoseconds_median: 40,
            };
            assert_eq!(line.axes[0].hidden_calls, [two]);
        }
    });
}

#[test]
fn bytes_that_differ_from_the_list_are_reported() {
    let mut replayer = Scripted { wire: 301, ..Scripted::new(0) };
    let line = measured(&SoloWorld, &mut replayer, false, false);
    assert_eq!(line.outcome, Outcome::Measured { verified: false });
    assert!(!line.bytes_as_listed);
    assert_eq!((line.axes[0].wire_bytes_counted, line.axes[0].wire_bytes_listed), (Bytes(301), Bytes(300)));
}

#[test]
fn a_signal_ends_it_before_the_next_repetition() {
    let mut replayer = Scripted::new(0);
    let line = measured(&SoloWorld, &mut replayer, true, true);
    assert_eq!((replayer.runs, line.slowest_nanoseconds.len(), line.warm_up_repetitions), (0, 0, 0));
}
