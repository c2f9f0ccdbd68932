//! Measures a whole step repeatedly: checked, warmed up, then timed from a common start, with the time that ranks
//! waited for each axis.

use super::cadence::largest;
use super::sampling::median_of;
use super::timeline;
use crate::backend::{AxisTimes, HiddenCall, RankTimes, Replayer};
use crate::world::{World, decided, from_lowest, gather_all};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::units::Bytes;
use commgauge_model::layout::{Axis, Groups};
use commgauge_model::record::line::Outcome;
use commgauge_model::record::work_lines::{HiddenCalls, ReplayAxis, ReplayLine};
use commgauge_model::workload::replay::{ReplayOptions, ReplayPlan};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// The parts of the run's context that measuring a step needs.
pub struct ReplayContext<'a> {
    pub world: &'a dyn World,
    pub local_ranks: Range<u32>,
    /// Whether to check data.
    pub verify: bool,
    /// Set by a signal; only process 0 reads it and broadcasts it.
    pub interrupted: &'a AtomicBool,
}

/// Traffic of the busiest rank of a stage on an axis.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Moved {
    stage: u32,
    axis: Axis,
    calls: u64,
    payload_bytes: u64,
    wire_bytes: u64,
}

/// Replays a bound step. Data gathered from the ranks (medians of each, bytes) is on process 0 only.
///
/// # Errors
/// An error of the library inside a step; it cannot be recovered, and the caller ends the launch.
pub fn measure_replay(
    context: &ReplayContext,
    replayer: &mut dyn Replayer,
    plan: &ReplayPlan,
    options: &ReplayOptions,
    step: u32,
) -> Result<ReplayLine> {
    let mut line = line_without_numbers(plan, options, step, Outcome::Measured { verified: false });
    if let Some(corrupt) = check(context, replayer)? {
        line.outcome = corrupt;
        return Ok(line);
    }
    line.outcome = Outcome::Measured { verified: context.verify && replayer.verifies() };
    while line.warm_up_repetitions < options.warm_up && !interrupted(context)? {
        run_once(context, replayer)?;
        line.warm_up_repetitions += 1;
    }
    let mut own = vec![Vec::with_capacity(options.repetitions as usize); context.local_ranks.len()];
    let mut slowest: Vec<RankTimes> = Vec::new();
    let mut hidden_calls = Hidden::new(plan);
    while (slowest.len() as u32) < options.repetitions && !interrupted(context)? {
        run_once(context, replayer)?;
        for (own, times) in own.iter_mut().zip(replayer.times()) {
            own.push(times.total_nanoseconds);
        }
        let (rank, times) = slowest_of_all(context, replayer.times())?;
        line.slowest_nanoseconds.push(times.total_nanoseconds);
        line.slowest_rank.push(rank);
        slowest.push(times);
        hidden_calls.add(context.world, context.local_ranks.clone(), replayer, plan)?;
    }
    if slowest.is_empty() {
        return Ok(line);
    }
    let moved = gather_moved(context, replayer, plan)?;
    line.rank_nanoseconds_median = gather_medians(context, &own)?;
    line.timeline = Some(timeline::gather(context.world, context.local_ranks.clone(), replayer, plan)?);
    line.bytes_as_listed = as_listed(plan, &moved);
    let of_slowest = |value: &dyn Fn(&RankTimes) -> u64| median_of(slowest.iter().map(value));
    line.computing_nanoseconds_median = of_slowest(&|times| times.computing_nanoseconds);
    line.axes = (0..plan.groups.len())
        .map(|index| {
            let medians = AxisTimes {
                waiting_nanoseconds: of_slowest(&|times| times.axes[index].waiting_nanoseconds),
                in_flight_nanoseconds: of_slowest(&|times| times.axes[index].in_flight_nanoseconds),
            };
            let hidden_calls = hidden_calls.of_slowest(index);
            ReplayAxis { hidden_calls, ..axis_line(plan, plan.groups[index].axis, &moved, medians) }
        })
        .collect();
    let hidden = line.axes.iter().filter(|axis| axis.axis != Axis::Pp);
    let (waiting, in_flight) = hidden.fold((0, 0), |(waiting, in_flight), axis| {
        (waiting + axis.waiting_nanoseconds_median, in_flight + axis.under_way_nanoseconds_median)
    });
    line.overlap_efficiency = efficiency(waiting, in_flight);
    Ok(line)
}

/// The line of a replay without measurements.
pub fn line_without_numbers(plan: &ReplayPlan, options: &ReplayOptions, step: u32, outcome: Outcome) -> ReplayLine {
    ReplayLine {
        step,
        schedule: plan.schedule.clone(),
        forward_seconds_per_layer: options.forward_seconds_per_layer,
        outcome,
        warm_up_repetitions: 0,
        slowest_nanoseconds: Vec::new(),
        slowest_rank: Vec::new(),
        computing_nanoseconds_median: 0,
        axes: Vec::new(),
        overlap_efficiency: None,
        rank_nanoseconds_median: Vec::new(),
        timeline: None,
        job_nanoseconds: plan.job_nanoseconds,
        bytes_as_listed: false,
    }
}

pub(super) fn run_once(context: &ReplayContext, replayer: &mut dyn Replayer) -> Result<()> {
    context.world.barrier()?;
    replayer.run()
}

fn interrupted(context: &ReplayContext) -> Result<bool> {
    decided(context.world, context.interrupted.load(Ordering::Relaxed))
}

/// Every process gets the same result: the mismatch of the lowest rank.
pub(super) fn check(context: &ReplayContext, replayer: &mut dyn Replayer) -> Result<Option<Outcome>> {
    if !context.verify {
        return Ok(None);
    }
    Ok(from_lowest(context.world, replayer.check()?)?.map(|wrong| wrong.outcome("before")))
}

/// The slowest rank and its times: located first, then broadcast by its process.
fn slowest_of_all(context: &ReplayContext, times: &[RankTimes]) -> Result<(u32, RankTimes)> {
    let first = context.local_ranks.start;
    let totals = times.iter().map(|times| times.total_nanoseconds as f64);
    let mut slowest = [largest(first, totals)];
    context.world.all_max(&mut slowest)?;
    let rank = slowest[0].rank as u32;
    let mine = context.local_ranks.contains(&rank).then(|| times[(rank - first) as usize]);
    Ok((rank, from_lowest(context.world, mine)?.unwrap_or_default()))
}

/// Gathers each rank's median time on process 0.
fn gather_medians(context: &ReplayContext, own: &[Vec<u64>]) -> Result<Vec<u64>> {
    let mine: Vec<u64> = own.iter().map(|times| median_of(times.iter().copied())).collect();
    Ok(gather_all::<Vec<u64>>(context.world, &mine)?.concat())
}

/// Gathers the traffic of the busiest rank of each stage on each axis on process 0.
fn gather_moved(context: &ReplayContext, replayer: &dyn Replayer, plan: &ReplayPlan) -> Result<Vec<Moved>> {
    let mut mine: Vec<Moved> = Vec::new();
    for (local, rank) in context.local_ranks.clone().enumerate() {
        let stage = plan.stage_of_rank.get(rank as usize).copied().unwrap_or(0);
        for bytes in replayer.moved(local)? {
            let (axis, calls, payload_bytes, wire_bytes) = (bytes.axis, bytes.calls, bytes.payload.0, bytes.wire.0);
            merge_maximum(&mut mine, Moved { stage, axis, calls, payload_bytes, wire_bytes });
        }
    }
    let mut all = Vec::new();
    for moved in gather_all::<Vec<Moved>>(context.world, &mine)?.concat() {
        merge_maximum(&mut all, moved);
    }
    Ok(all)
}

fn merge_maximum(all: &mut Vec<Moved>, new: Moved) {
    match all.iter_mut().find(|known| (known.stage, known.axis) == (new.stage, new.axis)) {
        Some(known) => {
            known.calls = known.calls.max(new.calls);
            known.payload_bytes = known.payload_bytes.max(new.payload_bytes);
            known.wire_bytes = known.wire_bytes.max(new.wire_bytes);
        }
        None => all.push(new),
    }
}

fn as_listed(plan: &ReplayPlan, moved: &[Moved]) -> bool {
    let listed: Vec<_> = plan
        .listed
        .iter()
        .flatten()
        .map(|totals| (totals.stage, totals.axis, totals.payload_bytes_per_step.0, totals.wire_bytes_per_step.0))
        .collect();
    let counted: Vec<_> =
        moved.iter().map(|moved| (moved.stage, moved.axis, moved.payload_bytes, moved.wire_bytes)).collect();
    listed.len() == counted.len() && listed.iter().all(|totals| counted.contains(totals))
}

fn axis_line(plan: &ReplayPlan, axis: Axis, moved: &[Moved], medians: AxisTimes) -> ReplayAxis {
    let AxisTimes { waiting_nanoseconds, in_flight_nanoseconds } = medians;
    let counted =
        |value: &dyn Fn(&Moved) -> u64| moved.iter().filter(|moved| moved.axis == axis).map(value).max().unwrap_or(0);
    let listed = || plan.listed.iter().flatten().filter(|totals| totals.axis == axis);
    ReplayAxis {
        axis,
        waiting_nanoseconds_median: waiting_nanoseconds,
        under_way_nanoseconds_median: in_flight_nanoseconds,
        overlap_efficiency: efficiency(waiting_nanoseconds, in_flight_nanoseconds),
        calls_counted: counted(&|moved| moved.calls),
        payload_bytes_counted: Bytes(counted(&|moved| moved.payload_bytes)),
        payload_bytes_listed: listed().map(|totals| totals.payload_bytes_per_step).max().unwrap_or_default(),
        wire_bytes_counted: Bytes(counted(&|moved| moved.wire_bytes)),
        wire_bytes_listed: listed().map(|totals| totals.wire_bytes_per_step).max().unwrap_or_default(),
        hidden_calls: Vec::new(),
    }
}

/// Share of the active time that was not spent waiting.
fn efficiency(waiting: u64, in_flight: u64) -> Option<f64> {
    (in_flight > 0).then(|| (1.0 - waiting as f64 / in_flight as f64).clamp(0.0, 1.0))
}

// Durations of hidden collectives: each as long as on the rank of its group that came last.
//
// The other ranks started it earlier and saw it in progress while they waited for that rank, which says nothing about the call: a call of a
// few bytes overlapping with a pass of 20 ms would seem thousands of times slower than alone. No two clocks are compared.

/// What distinguishes calls of a group.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Kind {
    collective: Collective,
    element_type: ElementType,
    bytes_total: Bytes,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Calls {
    kind: usize,
    calls: u64,
    nanoseconds: u64,
}

/// Index of the plan's groups, and the group among them.
type Place = (usize, usize);

/// The hidden calls of a group in one repetition, in the order of their starts.
#[derive(Default, Serialize, Deserialize)]
struct OfGroup {
    kinds: Vec<Kind>,
    calls: Vec<Calls>,
}

/// The calls of all groups, in all repetitions so far. On process 0 only.
pub(super) struct Hidden {
    /// By groups of the plan and rank: the rank's group.
    group_of_rank: Vec<Vec<usize>>,
    repeated: BTreeMap<Place, Vec<Repeated>>,
}

/// Calls of a kind in a group: their time in each repetition.
struct Repeated {
    kind: Kind,
    calls: u64,
    nanoseconds: Vec<u64>,
}

impl Hidden {
    /// Empty.
    pub fn new(plan: &ReplayPlan) -> Hidden {
        let of_ranks = |groups: &Groups| {
            let mut group_of_rank = vec![usize::MAX; plan.stage_of_rank.len()];
            for (group, ranks) in groups.groups.iter().enumerate() {
                ranks.iter().for_each(|rank| group_of_rank[*rank as usize] = group);
            }
            group_of_rank
        };
        Hidden { group_of_rank: plan.groups.iter().map(of_ranks).collect(), repeated: BTreeMap::new() }
    }

    /// Adds the last repetition. Called by all processes.
    pub fn add(
        &mut self,
        world: &dyn World,
        local_ranks: Range<u32>,
        replayer: &dyn Replayer,
        plan: &ReplayPlan,
    ) -> Result<()> {
        let mut mine: BTreeMap<Place, OfGroup> = BTreeMap::new();
        for (local, rank) in local_ranks.enumerate() {
            merge_shortest(&mut mine, self.of_rank(plan, &replayer.hidden_calls(local), rank));
        }
        let mut all: BTreeMap<Place, OfGroup> = BTreeMap::new();
        for of_process in gather_all(world, &mine.into_iter().collect::<Vec<_>>())? {
            merge_shortest(&mut all, of_process);
        }
        all.iter().for_each(|(place, of_group)| self.add_group(*place, of_group));
        Ok(())
    }

    /// A rank's view of the hidden calls of each of its groups.
    fn of_rank(&self, plan: &ReplayPlan, calls: &[HiddenCall], rank: u32) -> Vec<(Place, OfGroup)> {
        let Some(program) = plan.program_of_rank(rank) else { return Vec::new() };
        let mut found: BTreeMap<Place, OfGroup> = BTreeMap::new();
        for call in calls {
            let (op, groups) = (&program.ops[call.op], program.groups[call.op]);
            let kind = Kind { collective: op.collective, element_type: op.element, bytes_total: op.bytes_total };
            let of_group = found.entry((groups, self.group_of_rank[groups][rank as usize])).or_default();
            let kind = of_group.kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
                of_group.kinds.push(kind);
                of_group.kinds.len() - 1
            });
            of_group.calls.push(Calls { kind, calls: call.calls, nanoseconds: call.nanoseconds });
        }
        found.into_iter().collect()
    }

    fn add_group(&mut self, place: Place, of_group: &OfGroup) {
        let known = self.repeated.entry(place).or_default();
        for (index, kind) in of_group.kinds.iter().enumerate() {
            let own = of_group.calls.iter().filter(|calls| calls.kind == index);
            let (calls, nanoseconds) = own.fold((0, 0), |(calls, sum), own| (calls + own.calls, sum + own.nanoseconds));
            match known.iter_mut().find(|known| known.kind == *kind) {
                Some(known) => known.nanoseconds.push(nanoseconds),
                None => known.push(Repeated { kind: *kind, calls, nanoseconds: vec![nanoseconds] }),
            }
        }
    }

    /// The hidden calls of the group of an axis that spent most time on them.
    pub fn of_slowest(&self, groups: usize) -> Vec<HiddenCalls> {
        let of_group = |repeated: &Vec<Repeated>| -> Vec<HiddenCalls> {
            repeated
                .iter()
                .map(|Repeated { kind, calls, nanoseconds }| HiddenCalls {
                    collective: kind.collective,
                    element_type: kind.element_type,
                    bytes_total: kind.bytes_total,
                    calls: *calls,
                    nanoseconds_median: median_of(nanoseconds.iter().copied()),
                })
                .collect()
        };
        let total = |calls: &Vec<HiddenCalls>| calls.iter().map(|calls| calls.nanoseconds_median).sum::<u64>();
        let of_axis = self.repeated.range((groups, 0)..(groups + 1, 0)).map(|(_, repeated)| of_group(repeated));
        of_axis.max_by_key(total).unwrap_or_default()
    }
}

/// Each call of a group with its shortest time on any of its ranks, which all have the same calls in the same order.
fn merge_shortest(all: &mut BTreeMap<Place, OfGroup>, more: Vec<(Place, OfGroup)>) {
    for (place, new) in more {
        match all.entry(place) {
            Entry::Occupied(mut known) => {
                for (known, new) in known.get_mut().calls.iter_mut().zip(&new.calls) {
                    known.nanoseconds = known.nanoseconds.min(new.nanoseconds);
                }
            }
            Entry::Vacant(free) => {
                free.insert(new);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    // Tests of measuring a step, with scripted rank times.
    use super::super::fakes::on_threads;
    use super::*;
    use crate::backend::{AxisBytes, AxisTimes, HiddenCall, Mismatch, Span, SpanKind};
    use crate::world::SoloWorld;
    use commgauge_base::collective::Collective;
    use commgauge_base::element::ElementType;
    use commgauge_base::units::Seconds;
    use commgauge_model::layout::Groups;
    use commgauge_model::record::work_lines::HiddenCalls;
    use commgauge_model::workload::op::Overlap;
    use commgauge_model::workload::replay::ReplayProgram;
    use commgauge_model::workload::step::AxisTotals;
    use commgauge_model::workload::{Op, Style};

    const OPTIONS: ReplayOptions =
        ReplayOptions { repetitions: 5, warm_up: 2, forward_seconds_per_layer: Seconds(1e-3) };

    /// A program of which only the ops matter: one that the last backward pass hides.
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
            times.axes[0] = AxisTimes { waiting_nanoseconds: 100_000, in_flight_nanoseconds: 400_000 };
            self.times = [times];
            Ok(())
        }
        fn times(&self) -> &[RankTimes] {
            &self.times
        }
        fn hidden_calls(&self, _: usize) -> Vec<HiddenCall> {
            self.hidden.clone()
        }
        fn spans(&self, _: usize) -> Vec<Span> {
            vec![Span { kind: SpanKind::Computing, begin: 10, end: 10 + u64::from(self.runs) }]
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
            assert!(
                matches!(line.outcome, Outcome::Corrupt { rank: 2, element: 7, count: 2, .. }),
                "{:?}",
                line.outcome
            );
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
                let ranks = line.timeline.unwrap().ranks;
                assert_eq!(ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 1, 2]);
                assert_eq!(ranks[2].spans[0].begin_and_length, [(10, 7)], "of the last of 7 runs");
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
}
