//! Work that every rank does alone, a matrix product or a copy: on all ranks at the same time, or one rank of each host after the other;
//! repeated from a barrier, timed by the slowest rank.

use super::replay::{ReplayContext, check as check_replay, run_once};
use crate::backend::{LocalWork, Replayer};
use crate::world::{Located, agree, decided, from_lowest};
use commgauge_base::error::Result;
use commgauge_base::units::Seconds;
use commgauge_model::record::line::Outcome;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Runs before timing: the first touches all memory, the next find warm caches.
pub const WARM_UP_RUNS: u32 = 2;

/// Minimum number of timed repetitions, however long they take, unless a signal is received.
const FEWEST: usize = 3;

/// Times of the repetitions; the same on every process, except its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalTimes {
    pub slowest_nanoseconds: Vec<u64>,
    pub slowest_rank: Vec<u32>,
    pub own_nanoseconds: Vec<u64>,
}

/// When a rank runs: together with all others, or in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// This rank's turn, from 0.
    pub mine: u32,
    /// Number of turns; the same on every process.
    pub count: u32,
}

impl Turns {
    pub const TOGETHER: Turns = Turns { mine: 0, count: 1 };
}

/// Repeats work. Stops at a wrong result.
///
/// # Errors
/// An error of the library, shared by all processes.
pub fn measure_local(
    context: &ReplayContext,
    work: &mut dyn LocalWork,
    repetitions: Repetitions,
    turns: Turns,
) -> Result<std::result::Result<LocalTimes, Outcome>> {
    for _ in 0..WARM_UP_RUNS {
        run_in_turn(context, work, turns)?;
    }
    if let Some(corrupt) = check_work(context, work, "before")? {
        return Ok(Err(corrupt));
    }
    let mut times = LocalTimes::default();
    let begun = Instant::now();
    while !enough(context, times.slowest_nanoseconds.len(), FEWEST, repetitions, begun)? {
        let nanoseconds = run_in_turn(context, work, turns)?;
        times.own_nanoseconds.push(nanoseconds);
        let mut slowest = [Located { value: nanoseconds as f64, rank: context.local_ranks.start as i32 }];
        context.world.all_max(&mut slowest)?;
        times.slowest_nanoseconds.push(slowest[0].value as u64);
        times.slowest_rank.push(slowest[0].rank as u32);
    }
    Ok(check_work(context, work, "after")?.map_or(Ok(times), Err))
}

/// One run on every rank, and this rank's time.
fn run_in_turn(context: &ReplayContext, work: &mut dyn LocalWork, turns: Turns) -> Result<u64> {
    let mut mine = Ok(0);
    for turn in 0..turns.count {
        context.world.barrier()?;
        if turn == turns.mine {
            mine = work.run();
        }
    }
    agree(context.world, mine)
}

/// Process 0 decides for all.
fn enough(context: &ReplayContext, done: usize, fewest: usize, limits: Repetitions, begun: Instant) -> Result<bool> {
    let is_spent = done >= fewest && begun.elapsed().as_secs_f64() > limits.budget.0;
    decided(context.world, context.interrupted.load(Ordering::Relaxed) || done >= limits.most as usize || is_spent)
}

/// Every process gets the first wrong element of the lowest rank that has one.
fn check_work(context: &ReplayContext, work: &dyn LocalWork, when: &str) -> Result<Option<Outcome>> {
    if !context.verify {
        return Ok(None);
    }
    let mine = agree(context.world, work.check())?;
    Ok(from_lowest(context.world, mine)?.map(|wrong| wrong.outcome(when)))
}

/// Repetitions before timing.
const WARM_UP: u32 = 3;

/// Minimum number of timed repetitions, however long they take, unless a signal is received.
const INTERFERENCE_FEWEST: usize = 5;

/// Limits of the repetitions.
#[derive(Clone, Copy, Debug)]
pub struct Repetitions {
    pub most: u32,
    /// Maximum time after the minimum number.
    pub budget: Seconds,
}

/// Times of the repetitions of a program; the same on every process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TogetherTimes {
    /// Duration of the timed call on the slowest rank.
    pub timed_nanoseconds: Vec<u64>,
    /// How long that rank then still waited for the concurrent calls.
    pub still_waited_nanoseconds: Vec<u64>,
}

/// Repeats a bound program, whose timed call is the one on the axis of index `timed`. Stops at wrong data.
///
/// # Errors
/// An error of the library inside a program; the caller ends the launch.
pub fn measure_together(
    context: &ReplayContext,
    replayer: &mut dyn Replayer,
    timed: usize,
    repetitions: Repetitions,
) -> Result<std::result::Result<TogetherTimes, Outcome>> {
    if let Some(corrupt) = check_replay(context, replayer)? {
        return Ok(Err(corrupt));
    }
    for _ in 0..WARM_UP {
        run_once(context, replayer)?;
    }
    let mut times = TogetherTimes::default();
    let begun = Instant::now();
    while !enough(context, times.timed_nanoseconds.len(), INTERFERENCE_FEWEST, repetitions, begun)? {
        run_once(context, replayer)?;
        let [took, waited] = slowest(context, replayer, timed)?;
        times.timed_nanoseconds.push(took);
        times.still_waited_nanoseconds.push(waited);
    }
    Ok(Ok(times))
}

/// The longest time of the timed call over all ranks, and how long that rank waited for the others.
fn slowest(context: &ReplayContext, replayer: &dyn Replayer, timed: usize) -> Result<[u64; 2]> {
    let first = context.local_ranks.start;
    let ranks = || (first..).zip(replayer.times());
    let longest = ranks().max_by_key(|(_, times)| times.axes[timed].in_flight_nanoseconds);
    let (rank, took) = longest.map_or((first, 0), |(rank, times)| (rank, times.axes[timed].in_flight_nanoseconds));
    let mut found = [Located { value: took as f64, rank: rank as i32 }];
    context.world.all_max(&mut found)?;
    let holder = found[0].rank;
    let waited =
        ranks().find(|(rank, _)| *rank as i32 == holder).map(|(_, times)| times.axes[1 - timed].waiting_nanoseconds);
    let mut rest = [Located { value: waited.map_or(-1.0, |waited| waited as f64), rank: holder }];
    context.world.all_max(&mut rest)?;
    Ok([found[0].value as u64, rest[0].value as u64])
}
