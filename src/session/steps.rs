//! The replicates: fresh communicators, a new order of the cases, one line for each case.

use super::preflight::{Planned, binding};
use super::{Request, SharedJournal};
use crate::backend::Backend;
use crate::error::Result;
use crate::measure::{MeasureContext, clock, measure_case};
use crate::record::line::{CaseLine, ClockMoment, Line, Outcome, Samples, StopReason};
use crate::world::{World, agree};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

/// What came of all cases.
#[derive(Default)]
pub(super) struct Tally {
    /// Case lines with wrong data.
    pub corrupt: u64,
    /// The signal that ended the run early, or 0.
    pub signal: i32,
}

/// Measures every case in every replicate. An error is shared where `error.is_shared()`; else the launch must be aborted.
pub(super) fn measure_all(
    world: &dyn World,
    backend: &mut dyn Backend,
    request: &Request,
    planned: &[Planned],
    journal: &mut SharedJournal,
    signals: &Signals,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let clock = synchronise(world, backend, request)?;
    journal.write(world, || Line::Clock(clock.line(ClockMoment::Start)))?;
    for replicate in 0..request.settings.replicates {
        for groups in &request.plan.groups {
            backend.connect(groups)?;
        }
        for (position, index) in order(planned.len(), request.settings.seed, replicate).into_iter().enumerate() {
            let place = Place { index, replicate, position: position as u32 };
            let line = case_line(world, backend, request, &planned[index], place, &clock, signals)?;
            tally.corrupt += u64::from(matches!(line.outcome, Outcome::Corrupt { .. }));
            journal.write(world, || Line::Case(Box::new(line)))?;
            tally.signal = signals.agreed(world)?;
            if tally.signal != 0 {
                return Ok(tally);
            }
        }
        backend.disconnect()?;
    }
    journal.write(world, || Line::Clock(clock.recheck()))?;
    Ok(tally)
}

/// The order of the cases in a replicate: shuffled, so that what drifts with time does not fall on the same cases.
fn order(cases: usize, seed: u64, replicate: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cases).collect();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(u64::from(replicate)));
    order.shuffle(&mut random);
    order
}
