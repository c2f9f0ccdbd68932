//! Measures a whole step repeatedly: checked, warmed up, then timed from a common start, with the time that ranks
//! waited for each axis.

use super::gathered::{decoded, encoded, median_of};
use super::hidden_calls::Hidden;
use crate::backend::{AxisTimes, Mismatch, RankTimes, Replayer};
use crate::world::{Located, World};
use commgauge_base::error::Result;
use commgauge_base::units::Bytes;
use commgauge_model::layout::Axis;
use commgauge_model::record::line::Outcome;
use commgauge_model::record::replay_line::{ReplayAxis, ReplayLine};
use commgauge_model::workload::replay::{ReplayOptions, ReplayPlan};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// The parts of the run's context that measuring a step needs.
pub struct ReplayContext<'a> {
    /// The processes.
    pub world: &'a dyn World,
    /// World ranks of this process.
    pub local_ranks: Range<u32>,
    /// Whether data is to be checked.
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
        let (rank, times) = slowest_of_all(context, replayer.times(), plan.groups.len())?;
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
    line.bytes_as_listed = as_listed(plan, &moved);
    let of_slowest = |value: &dyn Fn(&RankTimes) -> u64| median_of(slowest.iter().map(value));
    line.computing_nanoseconds_median = of_slowest(&|times| times.computing_nanoseconds);
    line.axes = (0..plan.groups.len())
        .map(|index| {
            let medians = AxisTimes {
                waiting_nanoseconds: of_slowest(&|times| times.axes[index].waiting_nanoseconds),
                under_way_nanoseconds: of_slowest(&|times| times.axes[index].under_way_nanoseconds),
            };
            let hidden_calls = hidden_calls.of_slowest(index);
            ReplayAxis { hidden_calls, ..axis_line(plan, plan.groups[index].axis, &moved, medians) }
        })
        .collect();
    let hidden = line.axes.iter().filter(|axis| axis.axis != Axis::Pp);
    let (waiting, under_way) = hidden.fold((0, 0), |(waiting, under_way), axis| {
        (waiting + axis.waiting_nanoseconds_median, under_way + axis.under_way_nanoseconds_median)
    });
    line.overlap_efficiency = efficiency(waiting, under_way);
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
        job_nanoseconds: plan.job_nanoseconds,
        bytes_as_listed: false,
    }
}

pub(super) fn run_once(context: &ReplayContext, replayer: &mut dyn Replayer) -> Result<()> {
    context.world.barrier()?;
    replayer.run()
}

fn interrupted(context: &ReplayContext) -> Result<bool> {
    let mut shared = [u64::from(context.interrupted.load(Ordering::Relaxed))];
    context.world.broadcast_u64(&mut shared)?;
    Ok(shared[0] != 0)
}

/// Every process gets the same result: the mismatch of the lowest rank.
pub(super) fn check(context: &ReplayContext, replayer: &mut dyn Replayer) -> Result<Option<Outcome>> {
    if !context.verify {
        return Ok(None);
    }
    let mine = replayer.check()?;
    let lowest = mine.as_ref().map_or(f64::INFINITY, |mismatch| f64::from(mismatch.rank));
    let mut lowest = [Located { value: lowest, rank: context.world.process() as i32 }];
    context.world.all_min(&mut lowest)?;
    if lowest[0].value == f64::INFINITY {
        return Ok(None);
    }
    let parts = mine.map(|m: Mismatch| (m.rank, m.element, m.expected, m.got, m.count));
    let mut found = encoded(&parts)?;
    found = context.world.gather(&found)?.into_iter().nth(lowest[0].rank as usize).unwrap_or_default();
    context.world.broadcast(&mut found)?;
    let (rank, element, expected, got, count) = decoded(&found)?;
    Ok(Some(Outcome::Corrupt { when: "before".to_owned(), rank, element, expected, got, count, call: None }))
}

/// The slowest rank of all and its times: located first, then broadcast by its process.
fn slowest_of_all(context: &ReplayContext, times: &[RankTimes], axes: usize) -> Result<(u32, RankTimes)> {
    let first = context.local_ranks.start;
    let mut slowest = [Located { value: f64::NEG_INFINITY, rank: first as i32 }];
    for (rank, times) in (first..).zip(times) {
        if times.total_nanoseconds as f64 > slowest[0].value {
            slowest[0] = Located { value: times.total_nanoseconds as f64, rank: rank as i32 };
        }
    }
    context.world.all_max(&mut slowest)?;
    let rank = slowest[0].rank as u32;
    let mut shared = vec![Located { value: f64::NEG_INFINITY, rank: rank as i32 }; 2 + 2 * axes];
    if context.local_ranks.contains(&rank) {
        let mine = &times[(rank - first) as usize];
        shared[0].value = mine.total_nanoseconds as f64;
        shared[1].value = mine.computing_nanoseconds as f64;
        for (shared, axis) in shared[2..].chunks_mut(2).zip(&mine.axes) {
            shared[0].value = axis.waiting_nanoseconds as f64;
            shared[1].value = axis.under_way_nanoseconds as f64;
        }
    }
    context.world.all_max(&mut shared)?;
    let mut of_slowest = RankTimes {
        total_nanoseconds: shared[0].value as u64,
        computing_nanoseconds: shared[1].value as u64,
        ..RankTimes::default()
    };
    for (shared, axis) in shared[2..].chunks(2).zip(&mut of_slowest.axes) {
        axis.waiting_nanoseconds = shared[0].value as u64;
        axis.under_way_nanoseconds = shared[1].value as u64;
    }
    Ok((rank, of_slowest))
}

/// Gathers each rank's median time on process 0.
fn gather_medians(context: &ReplayContext, own: &[Vec<u64>]) -> Result<Vec<u64>> {
    let mine: Vec<u64> = own.iter().map(|times| median_of(times.iter().copied())).collect();
    let mut all = Vec::new();
    for bytes in context.world.gather(&encoded(&mine)?)? {
        all.extend(decoded::<Vec<u64>>(&bytes)?);
    }
    Ok(all)
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
    for bytes in context.world.gather(&encoded(&mine)?)? {
        decoded::<Vec<Moved>>(&bytes)?.into_iter().for_each(|moved| merge_maximum(&mut all, moved));
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
    let AxisTimes { waiting_nanoseconds, under_way_nanoseconds } = medians;
    let counted =
        |value: &dyn Fn(&Moved) -> u64| moved.iter().filter(|moved| moved.axis == axis).map(value).max().unwrap_or(0);
    let listed = || plan.listed.iter().flatten().filter(|totals| totals.axis == axis);
    ReplayAxis {
        axis,
        waiting_nanoseconds_median: waiting_nanoseconds,
        under_way_nanoseconds_median: under_way_nanoseconds,
        overlap_efficiency: efficiency(waiting_nanoseconds, under_way_nanoseconds),
        calls_counted: counted(&|moved| moved.calls),
        payload_bytes_counted: Bytes(counted(&|moved| moved.payload_bytes)),
        payload_bytes_listed: listed().map(|totals| totals.payload_bytes_per_step).max().unwrap_or_default(),
        wire_bytes_counted: Bytes(counted(&|moved| moved.wire_bytes)),
        wire_bytes_listed: listed().map(|totals| totals.wire_bytes_per_step).max().unwrap_or_default(),
        hidden_calls: Vec::new(),
    }
}

/// Share of the time under way that was not spent waiting.
fn efficiency(waiting: u64, under_way: u64) -> Option<f64> {
    (under_way > 0).then(|| (1.0 - waiting as f64 / under_way as f64).clamp(0.0, 1.0))
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
