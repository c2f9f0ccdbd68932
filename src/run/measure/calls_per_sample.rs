//! Chooses the number of calls in a streaming sample: large enough that the cost of a mark and the clock's resolution
//! are negligible, or one if a single call is long enough.

use super::batch::Batch;
use super::{MeasureContext, streaming_batch};
use crate::backend::{Call, Marks};
use commgauge_base::error::Result;
use commgauge_base::sample::Timing;
use commgauge_base::stats::{median, sorted};
use commgauge_base::units::Seconds;

/// Minimum length of a sample in units of the clock resolution.
const RESOLUTIONS_PER_SAMPLE: f64 = 100.0;
/// A mark takes at most this part of a sample: with a host clock of 25 ns that makes samples of 50 us.
const MARK_COSTS_PER_SAMPLE: f64 = 2_000.0;
const MAX_CALLS: u64 = 1 << 16;
/// Samples of a trial, whose median counts.
const TRIAL_SAMPLES: u32 = 3;
const TRIAL_MARKS: usize = 33;

/// Calls in a sample, and how long a sample must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleLength {
    /// Calls in one sample.
    pub calls: u32,
    /// Below this length a mark or the clock's resolution is more than a hundredth of a sample.
    pub doubtful_below_nanoseconds: f64,
    /// Time that a mark adds to a sample.
    pub mark_nanoseconds: f64,
}

impl SampleLength {
    /// Why samples of this length are longer than their calls; `None` where they are long enough. Only a fixed number of
    /// calls can make them too short.
    pub fn warning(&self, valid_nanoseconds: &[f64]) -> Option<String> {
        let middle = median(&sorted(valid_nanoseconds.iter().copied()))?;
        (middle < self.doubtful_below_nanoseconds).then(|| {
            format!(
                "the requested calls make samples of {}, too short for this clock and its marks (a mark takes {}): times may be too \
                 long by {:.1} %; samples of {} need more calls (-n)",
                Seconds(middle * 1e-9),
                Seconds(self.mark_nanoseconds * 1e-9),
                100.0 * self.mark_nanoseconds / middle.max(1.0),
                Seconds(self.doubtful_below_nanoseconds * 1e-9),
            )
        })
    }
}

/// Chooses the number of calls on process 0 for all processes. `call_nanoseconds` is the time of a call during warm-up,
/// if known. A fixed number of calls is divided into fewer samples, or only one, rather than into samples that are too
/// short.
pub fn choose_calls_per_sample(
    context: &MeasureContext,
    call: &mut dyn Call,
    call_nanoseconds: Option<f64>,
    batch: &mut Batch,
) -> Result<SampleLength> {
    let mark_cost = mark_cost_nanoseconds(context, call)?;
    let resolution = context.clock_resolution_nanoseconds as f64;
    let wanted = (RESOLUTIONS_PER_SAMPLE * resolution).max(MARK_COSTS_PER_SAMPLE * mark_cost);
    let fixed = context.settings.fixed_iterations;
    if let Some(all) = fixed.filter(|_| context.settings.timing == Timing::Whole) {
        let doubtful_below_nanoseconds = RESOLUTIONS_PER_SAMPLE * resolution;
        return Ok(SampleLength { calls: all.max(1), doubtful_below_nanoseconds, mark_nanoseconds: 0.0 });
    }
    let most = fixed.map_or(MAX_CALLS, u64::from).max(1);
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
        if fixed.is_some() && calls == most {
            // All requested calls: a trial could not make it longer.
            break;
        }
        streaming_batch(context, call, TRIAL_SAMPLES, calls as u32, batch)?;
        sample_nanoseconds = median(&sorted(batch.samples.iter().map(|sample| sample.slowest_nanoseconds as f64)));
    }
    let calls = fixed.map_or(calls as u32, |total| least_divisor(total, calls as u32));
    let doubtful_below_nanoseconds = RESOLUTIONS_PER_SAMPLE * resolution.max(mark_cost);
    Ok(SampleLength { calls, doubtful_below_nanoseconds, mark_nanoseconds: mark_cost })
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

/// With a fixed number of calls, all samples must be equally long, so the calls in each must divide it.
fn least_divisor(total: u32, at_least: u32) -> u32 {
    (at_least.max(1)..=total).find(|calls| total.is_multiple_of(*calls)).unwrap_or(total.max(1))
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
            chosen = choose_calls_per_sample(context, &mut call, known, &mut Batch::default()).unwrap().calls;
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
    fn a_fixed_number_of_calls_is_divided_into_equal_samples_that_are_long_against_mark_and_resolution() {
        for (total, nanoseconds, calls) in [
            (20, 300, 20),
            (1, 300, 1),
            (1_000, 300, 500),
            (1_009, 300, 1_009),
            (20, 60_000, 1),
            (20, 15_000, 4),
            (20, 25_500, 2),
        ] {
            assert_eq!(
                chosen(Some(total), Some(nanoseconds as f64), nanoseconds, 25),
                calls,
                "{total} of {nanoseconds}"
            );
        }
    }

    #[test]
    fn samples_that_are_shorter_than_clock_and_marks_allow_are_named_with_what_a_mark_adds() {
        let length = SampleLength { calls: 20, doubtful_below_nanoseconds: 120_000.0, mark_nanoseconds: 1_200.0 };
        assert_eq!(length.warning(&[110_000.0, 120_000.0, 130_000.0]), None);
        assert_eq!(length.warning(&[]), None);
        let warning = length.warning(&[40_000.0, 40_000.0]).unwrap();
        for words in ["samples of 40.0 us", "a mark takes 1.20 us", "too long by 3.0 %", "120 us need more calls (-n)"]
        {
            assert!(warning.contains(words), "`{words}` is not in {warning}");
        }
    }
}
