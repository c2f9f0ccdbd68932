//! Work that every rank does by itself, a matrix product or a copy: on all ranks at the same time, or one rank of each host after the other;
//! repeated from a barrier, timed by the slowest rank.

use super::replay::ReplayContext;
use crate::backend::LocalWork;
use crate::measure::Repetitions;
use crate::world::{Located, agree};
use commgauge_base::error::Result;
use commgauge_model::record::line::Outcome;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Runs before timing: the first touches all memory, the next find warm caches.
pub const WARM_UP_RUNS: u32 = 2;
/// Minimum number of timed repetitions, however long they take, unless a signal is received.
const FEWEST: usize = 3;

/// Times of the repetitions; the same on every process, but for its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalTimes {
    /// The slowest rank's time.
    pub slowest_nanoseconds: Vec<u64>,
    /// World rank of the slowest.
    pub slowest_rank: Vec<u32>,
    /// The times of this process.
    pub own_nanoseconds: Vec<u64>,
}

/// When a rank runs: with all others, or in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// This rank's, from 0.
    pub mine: u32,
    /// How many there are; the same on every process.
    pub count: u32,
}

impl Turns {
    /// All ranks at once.
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
    if let Some(corrupt) = check(context, work, "before")? {
        return Ok(Err(corrupt));
    }
    let mut times = LocalTimes::default();
    let begun = Instant::now();
    while !enough(context, times.slowest_nanoseconds.len(), repetitions, begun)? {
        let nanoseconds = run_in_turn(context, work, turns)?;
        times.own_nanoseconds.push(nanoseconds);
        let mut slowest = [Located { value: nanoseconds as f64, rank: context.local_ranks.start as i32 }];
        context.world.all_max(&mut slowest)?;
        times.slowest_nanoseconds.push(slowest[0].value as u64);
        times.slowest_rank.push(slowest[0].rank as u32);
    }
    Ok(match check(context, work, "after")? {
        Some(corrupt) => Err(corrupt),
        None => Ok(times),
    })
}

/// One run of every rank, and this one's time.
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
fn enough(context: &ReplayContext, done: usize, repetitions: Repetitions, begun: Instant) -> Result<bool> {
    let spent = done >= FEWEST && begun.elapsed().as_secs_f64() > repetitions.budget.0;
    let mine = context.interrupted.load(Ordering::Relaxed) || done >= repetitions.most as usize || spent;
    let mut shared = [u64::from(mine)];
    context.world.broadcast_u64(&mut shared)?;
    Ok(shared[0] != 0)
}

/// Every process gets the first wrong element of the lowest rank that has one.
fn check(context: &ReplayContext, work: &dyn LocalWork, when: &str) -> Result<Option<Outcome>> {
    if !context.verify {
        return Ok(None);
    }
    let mine = agree(context.world, work.check())?.map(|wrong| Outcome::Corrupt {
        when: when.to_owned(),
        rank: wrong.rank,
        element: wrong.element,
        expected: wrong.expected,
        got: wrong.got,
        count: wrong.count,
        call: wrong.call,
    });
    // A rank without an error contributes a number above all ranks.
    let none = f64::from(context.world.processes());
    let rank = if mine.is_some() { f64::from(context.world.process()) } else { none };
    let mut lowest = [Located { value: rank, rank: context.world.process() as i32 }];
    context.world.all_min(&mut lowest)?;
    if lowest[0].value == none {
        return Ok(None);
    }
    let text = serde_json::to_vec(&mine).unwrap_or_default();
    let mut first = context.world.gather(&text)?.into_iter().nth(lowest[0].value as usize).unwrap_or_default();
    context.world.broadcast(&mut first)?;
    Ok(serde_json::from_slice(&first).unwrap_or(mine))
}
