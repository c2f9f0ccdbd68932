//! Small programs of one timed call and concurrent calls, repeated from a barrier: measures the time of the timed call
//! on the slowest rank, and how long that rank then still waited for the others.

use super::replay::{ReplayContext, check, run_once};
use crate::backend::Replayer;
use crate::world::Located;
use commgauge_base::error::Result;
use commgauge_base::units::Seconds;
use commgauge_model::record::line::Outcome;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Repetitions before timing.
const WARM_UP: u32 = 3;
/// Minimum number of timed repetitions, however long they take, unless a signal is received.
const FEWEST: usize = 5;

/// Limits of the repetitions.
#[derive(Clone, Copy, Debug)]
pub struct Repetitions {
    /// Maximum number.
    pub most: u32,
    /// Maximum time, after the minimum number.
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
    if let Some(corrupt) = check(context, replayer)? {
        return Ok(Err(corrupt));
    }
    for _ in 0..WARM_UP {
        run_once(context, replayer)?;
    }
    let mut times = TogetherTimes::default();
    let begun = Instant::now();
    while !enough(context, times.timed_nanoseconds.len(), repetitions, begun)? {
        run_once(context, replayer)?;
        let [took, waited] = slowest(context, replayer, timed)?;
        times.timed_nanoseconds.push(took);
        times.still_waited_nanoseconds.push(waited);
    }
    Ok(Ok(times))
}

/// Process 0 decides for all.
fn enough(context: &ReplayContext, done: usize, repetitions: Repetitions, begun: Instant) -> Result<bool> {
    let spent = done >= FEWEST && begun.elapsed().as_secs_f64() > repetitions.budget.0;
    let mine = context.interrupted.load(Ordering::Relaxed) || done >= repetitions.most as usize || spent;
    let mut shared = [u64::from(mine)];
    context.world.broadcast_u64(&mut shared)?;
    Ok(shared[0] != 0)
}

/// The longest time of the timed call over all ranks, and how long that rank waited for the others.
fn slowest(context: &ReplayContext, replayer: &dyn Replayer, timed: usize) -> Result<[u64; 2]> {
    let first = context.local_ranks.start;
    let ranks = || (first..).zip(replayer.times());
    let longest = ranks().max_by_key(|(_, times)| times.axes[timed].under_way_nanoseconds);
    let (rank, took) = longest.map_or((first, 0), |(rank, times)| (rank, times.axes[timed].under_way_nanoseconds));
    let mut found = [Located { value: took as f64, rank: rank as i32 }];
    context.world.all_max(&mut found)?;
    let holder = found[0].rank;
    let waited =
        ranks().find(|(rank, _)| *rank as i32 == holder).map(|(_, times)| times.axes[1 - timed].waiting_nanoseconds);
    let mut rest = [Located { value: waited.map_or(-1.0, |waited| waited as f64), rank: holder }];
    context.world.all_max(&mut rest)?;
    Ok([found[0].value as u64, rest[0].value as u64])
}
