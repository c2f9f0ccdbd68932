//! Iterations before timing: until the times have no trend, at least a minimum and at most a maximum. Process 0
//! decides.

use super::batch::Batch;
use super::stop::BATCH_SECONDS;
use super::{MeasureContext, streaming_batch};
use crate::backend::Call;
use commgauge_base::error::Result;
use commgauge_base::stats::{Evidence, falls, median, sorted};

/// Iterations between two checks of the trend.
const CHUNK: u32 = 8;
/// Number of latest iterations that are tested for a trend.
const WINDOW: usize = 16;
/// A case that still has a trend after this many iterations is measured anyway, and the record contains a warning.
const MAX_ITERATIONS: u32 = 1_000;
/// Additional share of a case's time budget that warming up may take.
const SHARE_OF_BUDGET: f64 = 0.25;

/// Result of warming up.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WarmUp {
    /// Iterations run.
    pub(crate) iterations: u32,
    /// Time of one call in the latest iterations; on process 0 only.
    pub(crate) call_nanoseconds: Option<f64>,
    /// Whether times still fell when the warm-up hit its limit; on process 0 only.
    pub(crate) still_falling: bool,
}

/// Runs iterations until they have no trend, or as many as were requested.
pub(crate) fn warm_up(context: &MeasureContext, call: &mut dyn Call, batch: &mut Batch) -> Result<WarmUp> {
    let mut done = WarmUp::default();
    let mut times: Vec<f64> = Vec::new();
    let mut elapsed_seconds = 0.0;
    loop {
        let mut next = [0];
        if context.decides() {
            next[0] = u64::from(next_chunk(context, &mut done, &times, elapsed_seconds));
        }
        context.world.broadcast_u64(&mut next)?;
        let chunk = next[0] as u32;
        if chunk == 0 {
            return Ok(done);
        }
        let begin = call.now_nanoseconds();
        streaming_batch(context, call, chunk, 1, batch)?;
        elapsed_seconds += call.now_nanoseconds().saturating_sub(begin) as f64 * 1e-9;
        done.iterations += chunk;
        times.extend(batch.samples.iter().map(|sample| sample.slowest_nanoseconds as f64));
        times.drain(..times.len().saturating_sub(WINDOW));
        done.call_nanoseconds = median(&sorted(times.iter().copied()));
    }
}

/// Number of iterations to run next; 0 to stop.
fn next_chunk(context: &MeasureContext, done: &mut WarmUp, times: &[f64], elapsed_seconds: f64) -> u32 {
    if context.is_interrupted() {
        return 0;
    }
    let per_call = done.call_nanoseconds.unwrap_or(BATCH_SECONDS * 1e9).max(1.0) * 1e-9;
    let fitting = ((BATCH_SECONDS / per_call) as u32).max(1);
    if let Some(fixed) = context.settings.fixed_warm_up {
        return (fixed - done.iterations).min(fitting);
    }
    let out_of_bounds = done.iterations >= MAX_ITERATIONS
        || (done.iterations > 0 && elapsed_seconds >= context.settings.case_budget.0 * SHARE_OF_BUDGET);
    if out_of_bounds {
        // Continuing for a false trend costs one chunk; a warning needs stronger evidence.
        done.still_falling = falls(times, Evidence::Strong) == Some(true);
        return 0;
    }
    if falls(times, Evidence::Suspicion) == Some(false) { 0 } else { CHUNK.min(fitting) }
}

#[cfg(test)]
mod tests {
    use super::super::fakes::{FakeCall, on_threads, with_settings};
    use super::*;
    use crate::world::{SoloWorld, World};
    use commgauge_model::config::RunSettings;
    use std::sync::atomic::Ordering;

    fn warmed(settings: RunSettings, duration: impl Fn(u64, u32) -> u64) -> WarmUp {
        let mut done = WarmUp::default();
        with_settings(&SoloWorld, 0..2, settings, |context| {
            let mut call = FakeCall::alone(&SoloWorld, 0..2, &duration);
            done = warm_up(context, &mut call, &mut Batch::default()).unwrap();
            assert_eq!(call.calls, u64::from(done.iterations));
        });
        done
    }

    fn noise(call: u64) -> u64 {
        (call * 7919) % 13
    }

    #[test]
    fn a_case_without_trend_warms_up_the_minimum() {
        let done = warmed(RunSettings::default(), |call, _| 1_000 + noise(call));
        assert_eq!((done.iterations, done.still_falling), (9, false), "one to learn the time, then a chunk");
    }

    #[test]
    fn a_falling_start_is_dropped_whole() {
        let done = warmed(RunSettings::default(), |call, _| 100_000 / (call + 1).min(50) + noise(call));
        assert!((50..90).contains(&done.iterations), "{done:?}");
        assert!((2_000.0..2_013.0).contains(&done.call_nanoseconds.unwrap()), "{done:?}");
    }

    #[test]
    fn an_endless_trend_is_bounded_and_reported() {
        let done = warmed(RunSettings::default(), |call, _| 1_000_000 - 10 * call);
        assert!(done.iterations <= MAX_ITERATIONS + CHUNK && done.still_falling, "{done:?}");
        // At 50 ms a call, a quarter of the budget of one second is spent after five.
        let slow = warmed(RunSettings::default(), |_, _| 50_000_000);
        assert_eq!(slow.iterations, 5);
    }

    #[test]
    fn a_fixed_number_is_run_exactly() {
        for fixed in [0, 1, 5, 1_234] {
            let settings = RunSettings { fixed_warm_up: Some(fixed), ..RunSettings::default() };
            assert_eq!(warmed(settings, |call, _| 1_000_000 - 10 * call).iterations, fixed);
        }
    }

    #[test]
    fn all_processes_run_the_same_number_and_a_signal_ends_it() {
        on_threads(3, |world| {
            let me = world.process();
            with_settings(world, me..me + 1, RunSettings::default(), |context| {
                let mut call = FakeCall::alone(world, me..me + 1, |call, rank| 9_000 / (call + 1) + u64::from(rank));
                let done = warm_up(context, &mut call, &mut Batch::default()).unwrap();
                let mut process_0 = [u64::from(done.iterations)];
                context.world.broadcast_u64(&mut process_0).unwrap();
                assert_eq!(process_0[0], u64::from(done.iterations));
                context.interrupted.store(me == 0, Ordering::Relaxed);
                assert_eq!(warm_up(context, &mut call, &mut Batch::default()).unwrap().iterations, 0);
            });
        });
    }
}
