//! Chooses the number of calls in a streaming sample: large enough that the cost of a mark and the clock's resolution
//! are negligible, or one if a single call is long enough.

use super::batch::Batch;
use super::{MeasureContext, streaming_batch};
use crate::backend::{Call, Marks};
use commgauge_base::error::Result;
use commgauge_base::stats::{median, sorted};

/// Minimum length of a sample in units of the clock resolution.
const RESOLUTIONS_PER_SAMPLE: f64 = 100.0;
/// A mark takes at most this part of a sample: with a host clock of 25 ns that makes samples of 50 us.
const MARK_COSTS_PER_SAMPLE: f64 = 2_000.0;
const MAX_CALLS: u64 = 1 << 16;
/// Samples of a trial, whose median counts.
const TRIAL_SAMPLES: u32 = 3;
const TRIAL_MARKS: usize = 33;

/// Chooses the number of calls on process 0 for all processes. `call_nanoseconds` is the time of a call during warm-up,
/// if known.
pub fn choose_calls_per_sample(
    context: &MeasureContext,
    call: &mut dyn Call,
    call_nanoseconds: Option<f64>,
    batch: &mut Batch,
) -> Result<u32> {
    let mark_cost = mark_cost_nanoseconds(context, call)?;
    let resolution = context.clock_resolution_nanoseconds as f64;
    let wanted = (RESOLUTIONS_PER_SAMPLE * resolution).max(MARK_COSTS_PER_SAMPLE * mark_cost);
    let most = most_calls(context);
    let mut calls = 1;
    let mut sample_nanoseconds = call_nanoseconds;
    loop {
        let mut next = [0];
        if context.decides() && !context.is_interrupted() {
            next[0] = longer(calls, sample_nanoseconds, wanted, most);
        }
        context.world.broadcast_u64(&mut next)?;
        match next[0] {
            0 => break,
            next => calls = next,
        }
        streaming_batch(context, call, TRIAL_SAMPLES, calls as u32, batch)?;
        sample_nanoseconds = median(&sorted(batch.samples.iter().map(|sample| sample.slowest_nanoseconds as f64)));
    }
    Ok(match context.settings.fixed_iterations {
        Some(total) => largest_divisor(total, calls as u32),
        None => calls as u32,
    })
}

/// The number of calls to try next; 0 if the last number suffices.
fn longer(calls: u64, sample_nanoseconds: Option<f64>, wanted: f64, most: u64) -> u64 {
    let Some(sample) = sample_nanoseconds else { return 1 };
    if sample >= wanted || calls >= most {
        return 0;
    }
    // At least twice, so that the search ends; at most 16 times, since a time near the resolution is imprecise.
    let factor = (wanted / sample.max(1.0)).clamp(2.0, 16.0);
    ((calls as f64 * factor).ceil() as u64).min(most)
}

/// With a fixed number of calls, the samples are as many as the statistics need, if there are enough calls.
fn most_calls(context: &MeasureContext) -> u64 {
    match context.settings.fixed_iterations {
        Some(total) => u64::from((total / context.settings.minimum_samples.max(1)).max(1)),
        None => MAX_CALLS,
    }
}

/// With a fixed number of calls, all samples must be equally long, so their number must divide it.
fn largest_divisor(total: u32, at_most: u32) -> u32 {
    (1..=at_most.max(1)).rev().find(|calls| total.is_multiple_of(*calls)).unwrap_or(1)
}

fn mark_cost_nanoseconds(context: &MeasureContext, call: &mut dyn Call) -> Result<f64> {
    call.reserve_marks(TRIAL_MARKS);
    (0..TRIAL_MARKS).for_each(|_| call.mark());
    call.complete(context.completion_deadline)?;
    let mut marks = Marks::default();
    call.read_marks(&mut marks);
    let steps = (1..TRIAL_MARKS).map(|mark| marks.at(mark, 0).saturating_sub(marks.at(mark - 1, 0)) as f64);
    Ok(median(&sorted(steps)).unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::super::fakes::{FakeCall, with_settings};
    use super::*;
    use crate::world::SoloWorld;
    use commgauge_model::config::RunSettings;

    fn chosen(fixed_iterations: Option<u32>, known: Option<f64>, nanoseconds: u64, mark_cost: u64) -> u32 {
        let mut chosen = 0;
        let settings = RunSettings { fixed_iterations, ..RunSettings::default() };
        with_settings(&SoloWorld, 0..2, settings, |context| {
            let mut call = FakeCall::alone(&SoloWorld, 0..2, |_, _| nanoseconds);
            call.mark_cost = mark_cost;
            chosen = choose_calls_per_sample(context, &mut call, known, &mut Batch::default()).unwrap();
        });
        chosen
    }

    #[test]
    fn a_sample_is_long_against_mark_and_resolution() {
        for (known, nanoseconds, mark_cost, calls) in [
            (Some(300.0), 300, 25, 160..=340),
            (Some(60_000.0), 60_000, 25, 1..=1),
            // The warm-up was slow, the calls are not.
            (Some(40_000.0), 300, 25, 160..=600),
            (None, 300, 25, 160..=600),
            // Reading a virtual clock takes no time.
            (Some(300.0), 300, 0, 1..=1),
            (Some(5.0), 5, 0, 20..=40),
        ] {
            let found = chosen(None, known, nanoseconds, mark_cost);
            assert!(calls.contains(&found), "{known:?} {nanoseconds} {mark_cost}: {found}");
        }
    }

    #[test]
    fn a_call_without_any_time_ends_the_search() {
        assert_eq!(chosen(None, Some(0.0), 0, 0), MAX_CALLS as u32);
    }

    #[test]
    fn a_fixed_number_of_calls_is_divided_into_enough_equal_samples() {
        for (total, calls) in [(20, 1), (1, 1), (1_000, 25), (1_009, 1), (60, 2)] {
            assert_eq!(chosen(Some(total), Some(300.0), 300, 25), calls, "{total}");
        }
    }
}
