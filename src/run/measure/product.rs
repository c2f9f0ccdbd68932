//! A matrix product on all ranks at the same time, as in training: repeated from a barrier, timed by the slowest rank.

use super::replay::ReplayContext;
use crate::backend::Product;
use crate::measure::Repetitions;
use crate::world::{Located, agree};
use commgauge_base::error::Result;
use commgauge_model::record::line::Outcome;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Products before timing: the first touches all memory, the next find warm caches.
pub const WARM_UP_PRODUCTS: u32 = 2;
/// Minimum number of timed repetitions, however long they take, unless a signal is received.
const FEWEST: usize = 3;

/// Times of the repetitions; the same on every process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProductTimes {
    /// The slowest rank's time.
    pub slowest_nanoseconds: Vec<u64>,
    /// World rank of the slowest.
    pub slowest_rank: Vec<u32>,
}

/// Repeats a product. Stops at a wrong result.
///
/// # Errors
/// An error of the library, shared by all processes.
pub fn measure_product(
    context: &ReplayContext,
    product: &mut dyn Product,
    repetitions: Repetitions,
) -> Result<std::result::Result<ProductTimes, Outcome>> {
    for _ in 0..WARM_UP_PRODUCTS {
        agree(context.world, product.run())?;
    }
    if let Some(corrupt) = check(context, product, "before")? {
        return Ok(Err(corrupt));
    }
    let mut times = ProductTimes::default();
    let begun = Instant::now();
    while !enough(context, times.slowest_nanoseconds.len(), repetitions, begun)? {
        context.world.barrier()?;
        let nanoseconds = agree(context.world, product.run())?;
        let mut slowest = [Located { value: nanoseconds as f64, rank: context.local_ranks.start as i32 }];
        context.world.all_max(&mut slowest)?;
        times.slowest_nanoseconds.push(slowest[0].value as u64);
        times.slowest_rank.push(slowest[0].rank as u32);
    }
    Ok(match check(context, product, "after")? {
        Some(corrupt) => Err(corrupt),
        None => Ok(times),
    })
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
fn check(context: &ReplayContext, product: &dyn Product, when: &str) -> Result<Option<Outcome>> {
    if !context.verify {
        return Ok(None);
    }
    let mine = agree(context.world, product.check())?.map(|wrong| Outcome::Corrupt {
        when: when.to_owned(),
        rank: wrong.rank,
        element: wrong.element,
        expected: wrong.expected,
        got: wrong.got,
        count: wrong.count,
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
