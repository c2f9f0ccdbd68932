//! Decides when to stop sampling, and how many samples to take next. Computes on plain numbers; the decision is
//! broadcast in [`super::sampling`].

use super::cadence::Batch;
use super::{MeasureContext, streaming_batch};
use crate::backend::{Call, Marks};
use commgauge_base::error::Result;
use commgauge_base::sample::{Cadence, Timing};
use commgauge_base::stats::{Evidence, MIN_FOR_INTERVAL, falls, median, median_interval, sorted};
use commgauge_base::units::Seconds;
use commgauge_model::config::RunSettings;
use commgauge_model::record::line::StopReason;

/// Maximum length of a batch, so that a signal and the end of the budget are noticed soon.
pub const BATCH_SECONDS: f64 = 0.1;

/// Growth of the number of samples between two checks of the precision. Every check is one more chance to stop on an
/// interval that is narrow by chance, so checks are few.
const CHECK_GROWTH: f64 = 2.0;

/// Confidence levels of the intervals that decide, each with the normal quantile that scales its width to that of 95 %.
///
/// The width of the 95 % interval depends on the few samples next to the median, and stopping when it happens to be
/// small makes the interval cover less often than stated. Wider intervals estimate the same width from more samples;
/// all must agree. Found by experiment on synthetic data and verified by the test below (with the 95 % interval alone,
/// the coverage fell to 92.4 %).
const CHECK_LEVELS: [(f64, f64); 3] = [(0.95, 1.960), (0.99, 2.576), (0.999, 3.291)];

/// After the budget is spent, sampling continues up to the minimum number of samples for an interval, for at most this
/// many budgets.
const BUDGETS_FOR_AN_INTERVAL: f64 = 4.0;

/// State on process 0 after a batch.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Times of the valid samples, in the order in which they were taken.
    pub valid: &'a [f64],
    /// Samples taken, including invalid ones.
    pub taken: u32,
    /// Time since sampling began, in seconds.
    pub elapsed_seconds: f64,
    /// Latest time of one sample in seconds, including overhead.
    pub seconds_per_sample: f64,
    /// Whether a signal was received.
    pub interrupted: bool,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Take this many more samples.
    Continue(u32),
    Stop(StopReason),
}

/// The stop rule of one case.
#[derive(Clone, Debug)]
pub struct StopRule {
    precision: f64,
    maximum: u32,
    budget_seconds: f64,
    fixed: Option<u32>,
    repeats_invalid: bool,
    next_look: u32,
}

impl StopRule {
    /// Creates the rule from the settings of a run. `fixed_samples` requests exactly that many; where each has its own start,
    /// invalid samples are repeated to reach that number.
    pub fn new(settings: &RunSettings, fixed_samples: Option<u32>, cadence: Cadence) -> Self {
        let minimum = settings.minimum_samples.max(1);
        StopRule {
            precision: settings.precision,
            maximum: settings.maximum_samples.max(1),
            budget_seconds: settings.case_budget.0,
            fixed: fixed_samples,
            repeats_invalid: cadence == Cadence::Isolated,
            next_look: minimum.max(MIN_FOR_INTERVAL as u32),
        }
    }

    pub fn decide(&mut self, progress: &Progress) -> Decision {
        if progress.interrupted {
            return Decision::Stop(StopReason::Interrupted);
        }
        let wanted = match self.fixed {
            Some(fixed) => {
                let wanted = fixed.saturating_sub(self.counted(progress));
                // Invalid samples are repeated, but not without end.
                if wanted == 0 || progress.taken >= fixed.saturating_mul(2).saturating_add(100) {
                    return Decision::Stop(StopReason::FixedCount);
                }
                wanted
            }
            None => match self.reason(progress) {
                Some(reason) => return Decision::Stop(reason),
                None => self.until_next_check(progress),
            },
        };
        let fitting = (BATCH_SECONDS / progress.seconds_per_sample.max(1e-9)) as u32;
        Decision::Continue(wanted.min(fitting).max(1))
    }

    fn counted(&self, progress: &Progress) -> u32 {
        if self.repeats_invalid { progress.valid.len() as u32 } else { progress.taken }
    }

    fn reason(&mut self, progress: &Progress) -> Option<StopReason> {
        let valid = progress.valid.len() as u32;
        if valid >= self.next_look {
            if is_narrow(progress.valid, self.precision) {
                return Some(StopReason::Precision);
            }
            self.next_look = (f64::from(self.next_look.max(valid)) * CHECK_GROWTH).ceil() as u32;
        }
        if progress.taken >= self.maximum {
            return Some(StopReason::MaximumSamples);
        }
        let budgets = if progress.taken < MIN_FOR_INTERVAL as u32 { BUDGETS_FOR_AN_INTERVAL } else { 1.0 };
        (progress.taken > 0 && progress.elapsed_seconds >= self.budget_seconds * budgets).then_some(StopReason::Budget)
    }

    fn until_next_check(&self, progress: &Progress) -> u32 {
        let until_look = self.next_look.saturating_sub(progress.valid.len() as u32).max(1);
        let left_seconds = self.budget_seconds - progress.elapsed_seconds;
        // The additional one ensures that the budget is exceeded, not merely reached.
        let until_budget = (left_seconds / progress.seconds_per_sample.max(1e-9)).max(0.0) as u32;
        until_look.min(self.maximum - progress.taken).min(until_budget.saturating_add(1))
    }
}

/// Half width of the median's 95 % interval, relative to the median; `None` with too few samples.
pub fn precision_reached(samples: &[f64]) -> Option<f64> {
    let ascending = sorted(samples.iter().copied());
    median_interval(&ascending, 0.95)?.relative_half_width(median(&ascending)?)
}

/// Whether the median is known to the precision by every interval that decides.
fn is_narrow(samples: &[f64], precision: f64) -> bool {
    let ascending = sorted(samples.iter().copied());
    let Some(middle) = median(&ascending) else { return false };
    CHECK_LEVELS.iter().all(|(level, quantile)| {
        median_interval(&ascending, *level)
            .and_then(|interval| interval.relative_half_width(middle))
            // With fewer samples than this level needs, the levels below decide.
            .is_none_or(|reached| reached * CHECK_LEVELS[0].1 / quantile <= precision)
    })
}

// Chooses the number of calls in a streaming sample: large enough that the cost of a mark and the clock's resolution
// are negligible, or one if a single call is long enough.

/// Minimum length of a sample in units of the clock resolution.
const RESOLUTIONS_PER_SAMPLE: f64 = 100.0;

/// A mark takes at most this share of a sample: with a host clock of 25 ns, samples are 50 us.
const MARK_COSTS_PER_SAMPLE: f64 = 2_000.0;

const MAX_CALLS: u64 = 1 << 16;

/// Samples of a trial, whose median counts.
const TRIAL_SAMPLES: u32 = 3;

const TRIAL_MARKS: usize = 33;

/// Calls in a sample, and how long a sample must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleLength {
    pub calls: u32,
    /// Below this length a mark or the clock's resolution exceeds a hundredth of a sample.
    pub doubtful_below_nanoseconds: f64,
    /// Time that a mark adds to a sample.
    pub mark_nanoseconds: f64,
}

impl SampleLength {
    /// Why samples of this length are longer than their calls; `None` if they are long enough. Only a fixed number of calls can make them
    /// too short.
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
    let fixed = context.settings.iterations;
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

// Iterations before timing: until the times have no trend, at least a minimum and at most a maximum. Process 0
// decides.

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
    if let Some(fixed) = context.settings.warm_up_iterations {
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
    use commgauge_base::testing::{Shape, draw};
    use commgauge_base::units::Seconds;
    use commgauge_model::config::RunSettings;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use std::sync::atomic::Ordering;

    fn progress(valid: &[f64]) -> Progress<'_> {
        let taken = valid.len() as u32;
        Progress { valid, taken, elapsed_seconds: 0.0, seconds_per_sample: 1e-3, interrupted: false }
    }

    fn rule(precision: f64) -> StopRule {
        StopRule::new(&RunSettings { precision, ..RunSettings::default() }, None, Cadence::Isolated)
    }

    #[test]
    fn every_reason_to_stop_is_reported() {
        let wide: Vec<f64> = (1..=40).map(f64::from).collect();
        let narrow = vec![1.0; 40];
        let some = progress(&wide);
        let full = RunSettings::default().maximum_samples;
        for (name, progress, expected) in [
            ("narrow", progress(&narrow), Decision::Stop(StopReason::Precision)),
            ("below the minimum", progress(&narrow[..29]), Decision::Continue(1)),
            ("wide", some, Decision::Continue(40)),
            ("budget", Progress { elapsed_seconds: 1.0, ..some }, Decision::Stop(StopReason::Budget)),
            ("maximum", Progress { taken: full, ..some }, Decision::Stop(StopReason::MaximumSamples)),
            (
                "narrow at the end of the budget",
                Progress { elapsed_seconds: 1.0, ..progress(&narrow) },
                Decision::Stop(StopReason::Precision),
            ),
            ("signal", Progress { interrupted: true, ..progress(&narrow) }, Decision::Stop(StopReason::Interrupted)),
        ] {
            assert_eq!(rule(0.02).decide(&progress), expected, "{name}");
        }
    }

    #[test]
    fn a_spent_budget_still_buys_the_fewest_samples_of_an_interval() {
        let some = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        for (count, elapsed_seconds, expected) in [
            (5, 1.5, Decision::Continue(1)),
            (5, 4.0, Decision::Stop(StopReason::Budget)),
            (6, 1.5, Decision::Stop(StopReason::Budget)),
            (0, 9.0, Decision::Continue(1)),
        ] {
            let progress = Progress { elapsed_seconds, seconds_per_sample: 0.3, ..progress(&some[..count]) };
            assert_eq!(rule(0.02).decide(&progress), expected, "{count} samples after {elapsed_seconds} s");
        }
    }

    #[test]
    fn a_batch_is_bounded_in_time() {
        let slow = Progress { seconds_per_sample: 0.04, ..progress(&[]) };
        assert_eq!(rule(0.02).decide(&slow), Decision::Continue(2));
        let slower = Progress { seconds_per_sample: 3.0, ..progress(&[]) };
        assert_eq!(rule(0.02).decide(&slower), Decision::Continue(1));
    }

    #[test]
    fn a_fixed_count_is_exact_and_invalid_samples_are_repeated_within_bounds() {
        let fixed = |cadence| StopRule::new(&RunSettings::default(), Some(20), cadence);
        let values = [1.0; 20];
        let at = |valid: usize, taken| Progress { taken, elapsed_seconds: 99.0, ..progress(&values[..valid]) };
        for (cadence, progress, expected) in [
            (Cadence::Isolated, at(0, 0), Decision::Continue(20)),
            (Cadence::Isolated, at(15, 20), Decision::Continue(5)),
            (Cadence::Isolated, at(20, 25), Decision::Stop(StopReason::FixedCount)),
            (Cadence::Isolated, at(3, 140), Decision::Stop(StopReason::FixedCount)),
            (Cadence::Streaming, at(15, 20), Decision::Stop(StopReason::FixedCount)),
        ] {
            assert_eq!(fixed(cadence).decide(&progress), expected, "{progress:?}");
        }
    }

    #[test]
    fn the_interval_at_the_stop_covers_the_true_median_in_93_to_97_per_cent_of_2000_runs() {
        for (shape, precision) in [
            (Shape::LogNormal(0.05), 0.02),
            (Shape::LogNormal(0.08), 0.02),
            (Shape::LogNormal(0.2), 0.02),
            (Shape::LogNormal(0.5), 0.1),
            (Shape::Exponential(0.1), 0.02),
            (Shape::Exponential(1.0), 0.2),
            (Shape::Exponential(1.0), 0.1),
            (Shape::ThreeHumps(0.05), 0.02),
            (Shape::ThreeHumps(0.2), 0.05),
        ] {
            let settings = RunSettings { precision, case_budget: Seconds(1e9), ..RunSettings::default() };
            let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
            let mut covered = 0;
            let mut taken = 0;
            for _ in 0..2000 {
                let mut rule = StopRule::new(&settings, None, Cadence::Isolated);
                let mut samples = Vec::new();
                loop {
                    let progress = Progress {
                        valid: &samples,
                        taken: samples.len() as u32,
                        elapsed_seconds: 0.0,
                        seconds_per_sample: 0.01,
                        interrupted: false,
                    };
                    match rule.decide(&progress) {
                        Decision::Continue(count) => samples.extend((0..count).map(|_| draw(shape, &mut random))),
                        Decision::Stop(reason) => {
                            assert_eq!(reason, StopReason::Precision);
                            break;
                        }
                    }
                }
                taken += samples.len();
                let interval = median_interval(&sorted(samples), 0.95).unwrap();
                covered += usize::from(interval.low <= 1.0 && 1.0 <= interval.high);
            }
            let share = covered as f64 / 2000.0;
            let what = format!("{shape:?} to {precision}, {} samples on average", taken / 2000);
            assert!((0.93..=0.97).contains(&share), "{what}: covered in {share}");
        }
    }

    fn chosen(iterations: Option<u32>, known: Option<f64>, nanoseconds: u64, mark_cost: u64) -> u32 {
        let mut chosen = 0;
        let settings = RunSettings { iterations, ..RunSettings::default() };
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
            let settings = RunSettings { warm_up_iterations: Some(fixed), ..RunSettings::default() };
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
