//! Streaming cadence: calls back to back. A sample is some calls between two marks, and consecutive samples share the mark between them, so
//! that the loop contains only the calls and one mark per sample.

use super::{InjectedDelay, MeasureContext};
use crate::backend::{Call, Marks};
use crate::world::Located;
use commgauge_base::error::{Error, Result};
use commgauge_base::sample::{ExclusionReason, Sample, Timing};
use commgauge_model::record::line::ClockMethod;
use std::time::Duration;

/// The timed loop: `samples` times `calls_per_sample` calls, a mark before the first and after each sample, and the
/// wait for completion.
pub fn stream(call: &mut dyn Call, samples: u32, calls_per_sample: u32, deadline: Duration) -> Result<()> {
    enqueue_stream(call, samples, calls_per_sample)?;
    call.complete(deadline)
}

/// Work of the host in the timed loop before it waits: on a stream all of it is done before the first call executes.
#[inline]
pub fn enqueue_stream(call: &mut dyn Call, samples: u32, calls_per_sample: u32) -> Result<()> {
    call.mark();
    for _ in 0..samples {
        for _ in 0..calls_per_sample {
            call.enqueue()?;
        }
        call.mark();
    }
    Ok(())
}

/// Runs a batch of samples. Called by all processes with the same numbers.
pub fn streaming_batch(
    context: &MeasureContext,
    call: &mut dyn Call,
    samples: u32,
    calls_per_sample: u32,
    batch: &mut Batch,
) -> Result<()> {
    // If calls return when complete, marks are readings of the host's clock already.
    if context.settings.timing == Timing::Whole && !call.blocks() {
        return whole_batch(context, call, samples, calls_per_sample, batch);
    }
    call.reserve_marks(samples as usize + 1);
    context.world.barrier()?;
    stream(call, samples, calls_per_sample, context.completion_deadline)?;
    batch.read(call, 1);
    reduce_streaming(context, samples as usize, batch)
}

/// A batch of samples each of which lasts on the host's clock from its first call to the completion of its last, as in nccl-tests
/// (`BenchTime` of its `src/common.cu`).
fn whole_batch(
    context: &MeasureContext,
    call: &mut dyn Call,
    samples: u32,
    calls_per_sample: u32,
    batch: &mut Batch,
) -> Result<()> {
    let mut readings = Vec::with_capacity(2 * samples as usize);
    // Everything that must be ready before the first call: graphs, connections.
    call.reserve_marks(0);
    call.complete(context.completion_deadline)?;
    for _ in 0..samples {
        context.world.barrier()?;
        readings.push(call.now_nanoseconds());
        for _ in 0..calls_per_sample {
            call.enqueue()?;
        }
        call.complete(context.completion_deadline)?;
        readings.push(call.now_nanoseconds());
    }
    batch.take_readings(call, readings);
    reduce_streaming(context, samples as usize, batch)
}

/// The slowest rank of every sample: first over the local ranks, then over the processes in one reduction.
fn reduce_streaming(context: &MeasureContext, samples: usize, batch: &mut Batch) -> Result<()> {
    let first_rank = context.local_ranks.start;
    let mut located = std::mem::take(&mut batch.located);
    located.clear();
    located.resize(2 * samples, Located { value: VALID, rank: first_rank as i32 });
    for sample in 0..samples {
        let (begins, ends) = batch.begin_and_end(sample);
        let own_times = begins.iter().zip(ends).map(|(begin, end)| end.saturating_sub(*begin) as f64);
        let mut took_no_time = false;
        let own_times = batch.active_values(own_times).inspect(|own| took_no_time |= *own == 0.0);
        located[sample] = largest(first_rank, own_times);
        if took_no_time {
            located[samples + sample].value = BELOW_RESOLUTION;
        }
    }
    context.world.all_max(&mut located)?;
    batch.samples.clear();
    let (slowest, reasons) = located.split_at(samples);
    let sample = |(slowest, exclusion): (&Located, &Located)| {
        Sample::without_arrivals(*slowest, invalid_reason(exclusion.value))
    };
    batch.samples.extend(slowest.iter().zip(reasons).map(sample));
    batch.located = located;
    Ok(())
}

// Isolated cadence: every iteration starts at an agreed time on the common clock (round-time synchronisation), so that
// waiting for the last rank and the transfer after it can be distinguished.

const MIN_LEAD_NANOSECONDS: u64 = 2_000;

const FIRST_LEAD_NANOSECONDS: u64 = 50_000;

const MAX_LEAD_NANOSECONDS: u64 = 20_000_000;

/// How far ahead process 0 sets the start. Grows fourfold after a missed start, so that few long iterations are lost,
/// and shrinks by a 64th otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead(u64);

impl Default for Lead {
    fn default() -> Self {
        Lead(FIRST_LEAD_NANOSECONDS)
    }
}

impl Lead {
    fn after(self, missed: bool) -> Lead {
        let next = if missed { self.0.saturating_mul(4) } else { self.0 - self.0 / 64 };
        Lead(next.clamp(MIN_LEAD_NANOSECONDS, MAX_LEAD_NANOSECONDS))
    }
}

#[derive(Clone, Copy)]
struct Start {
    /// On the common clock.
    nanoseconds: u64,
    /// Whether this process was late for it.
    missed: bool,
}

/// Runs a batch of iterations. Called by all processes with the same number.
///
/// # Errors
/// A usage error if a delay is requested and one process simulates several ranks.
pub fn isolated_batch(
    context: &MeasureContext,
    call: &mut dyn Call,
    iterations: u32,
    lead: &mut Lead,
    batch: &mut Batch,
) -> Result<()> {
    let iterations = iterations as usize;
    let delay = own_delay(context)?;
    let rank = context.local_ranks.start as i32;
    let mut starts = vec![Start { nanoseconds: 0, missed: false }; iterations];
    let mut missed = [Located { value: VALID, rank }];
    let all_idle = (0..context.local_ranks.len()).all(|rank| call.is_idle_rank(rank));
    call.reserve_marks(2 * iterations);
    for start in &mut starts {
        // The barrier, which also reports whether any process missed the last start.
        context.world.all_max(&mut missed)?;
        let (agreed, in_time) = match context.start {
            ClockMethod::Synchronised => {
                *lead = lead.after(missed[0].value > VALID);
                let mut agreed = [context.clock.to_common(call.now_nanoseconds()) + lead.0];
                context.world.broadcast_u64(&mut agreed)?;
                (agreed[0], call.hold_until(context.clock.to_local(agreed[0])))
            }
            // Each rank starts when it leaves the barrier, and is timed from there.
            ClockMethod::Barrier => (context.clock.to_common(call.now_nanoseconds()), true),
        };
        let local_start = context.clock.to_local(agreed);
        if delay > 0 {
            call.hold_until(local_start + delay);
        }
        call.mark();
        call.enqueue()?;
        call.mark();
        call.complete(context.completion_deadline)?;
        // Idle ranks are not waited for.
        let in_time = (in_time && !call.started_late()) || all_idle;
        *start = Start { nanoseconds: agreed, missed: !in_time };
        missed[0] = Located { value: if in_time { VALID } else { MISSED_START }, rank };
    }
    batch.read(call, 2);
    reduce_isolated(context, &starts, batch)?;
    gather_clock_errors(context, call.clock_error_nanoseconds(), batch)
}

/// Injected delay of this process in nanoseconds.
fn own_delay(context: &MeasureContext) -> Result<u64> {
    match context.injected_delay {
        Some(InjectedDelay { rank, delay }) if context.local_ranks.contains(&rank) => {
            if context.local_ranks.len() == 1 {
                return Ok(delay.as_nanoseconds());
            }
            Err(Error::usage(format!(
                "found a delay for rank {rank}, but one process plays {} ranks here; a delay needs one process per rank",
                context.local_ranks.len()
            )))
        }
        _ => Ok(0),
    }
}

/// Latest end, last and first arrival of every iteration, relative to its start on the common clock (a float can
/// represent the nanoseconds of an iteration, but not those of a year): first over the local ranks, then over the
/// processes in one reduction.
fn reduce_isolated(context: &MeasureContext, starts: &[Start], batch: &mut Batch) -> Result<()> {
    let first_rank = context.local_ranks.start;
    let iterations = starts.len();
    let mut located = std::mem::take(&mut batch.located);
    located.clear();
    located.resize(4 * iterations, Located { value: VALID, rank: first_rank as i32 });
    for (index, start) in starts.iter().enumerate() {
        let since = |local: &u64| (i128::from(context.clock.to_common(*local)) - i128::from(start.nanoseconds)) as f64;
        let (arrivals, ends) = batch.begin_and_end(index);
        located[index] = largest(first_rank, batch.active_values(ends.iter().map(since)));
        located[iterations + index] = largest(first_rank, batch.active_values(arrivals.iter().map(since)));
        let earliness = arrivals.iter().map(|arrival| -since(arrival));
        located[2 * iterations + index] = largest(first_rank, batch.active_values(earliness));
        located[3 * iterations + index].value = match start.missed {
            true => MISSED_START,
            false => {
                let took = arrivals.iter().zip(ends).map(|(arrival, end)| end.saturating_sub(*arrival) as f64);
                if batch.active_values(took).any(|took| took == 0.0) { BELOW_RESOLUTION } else { VALID }
            }
        };
    }
    context.world.all_max(&mut located)?;
    batch.samples.clear();
    batch.samples.extend((0..iterations).map(|index| {
        let [end, last, first, exclusion] = [0, 1, 2, 3].map(|column| located[column * iterations + index]);
        if context.start == ClockMethod::Barrier {
            // Without a common clock the last rank and its arrival time are unknown.
            return Sample::without_arrivals(end, invalid_reason(exclusion.value));
        }
        Sample {
            slowest_nanoseconds: end.value.max(0.0) as u64,
            slowest_rank: end.rank as u32,
            // `first` is the largest negated arrival.
            arrival_spread_nanoseconds: (last.value + first.value).max(0.0) as u64,
            transfer_nanoseconds: (end.value - last.value).max(0.0) as u64,
            last_rank: last.rank as u32,
            exclusion: invalid_reason(exclusion.value),
        }
    }));
    batch.located = located;
    Ok(())
}

/// Errors of the device clocks in this batch, which differ by rank and by batch. Nothing is sent if every clock is exact.
fn gather_clock_errors(context: &MeasureContext, mine: u64, batch: &mut Batch) -> Result<()> {
    let errors = &mut batch.clock_errors_nanoseconds;
    errors.clear();
    let mut most = [Located { value: mine as f64, rank: context.local_ranks.start as i32 }];
    context.world.all_max(&mut most)?;
    if most[0].value > 0.0 {
        let bytes: Vec<u8> = context.local_ranks.clone().flat_map(|_| mine.to_le_bytes()).collect();
        let gathered = context.world.gather(&bytes)?;
        errors.extend(gathered.iter().flat_map(|of| of.as_chunks::<8>().0).map(|error| u64::from_le_bytes(*error)));
    }
    Ok(())
}

// A batch of samples: the marks of this process, reduced to the samples that all ranks agree on. The buffers are
// reused from batch to batch.

/// Samples of one batch, the same on every process, and the marks from which they were computed.
#[derive(Debug, Default)]
pub struct Batch {
    /// The marks of this process's ranks.
    pub(crate) marks: Marks,
    /// Distance between the first marks of consecutive samples: 1 if they share a mark.
    pub(crate) marks_per_sample: usize,
    /// Whether each local rank is idle; empty if none is.
    pub(crate) idle: Vec<bool>,
    /// Buffer for the reduction over processes.
    pub(crate) located: Vec<Located>,
    /// Possible error of all times of each rank on the clock of its host, on process 0; empty if all are exact. For isolated batches.
    pub(crate) clock_errors_nanoseconds: Vec<u64>,
    pub samples: Vec<Sample>,
}

impl Batch {
    /// Marks of every local rank at the beginning and at the end of a sample.
    pub(crate) fn begin_and_end(&self, sample: usize) -> (&[u64], &[u64]) {
        let ranks = self.marks.local_ranks;
        let begin = sample * self.marks_per_sample * ranks;
        (&self.marks.nanoseconds[begin..begin + ranks], &self.marks.nanoseconds[begin + ranks..begin + 2 * ranks])
    }

    /// Reads the marks of a call, and which of its ranks were idle.
    pub(crate) fn read(&mut self, call: &dyn Call, marks_per_sample: usize) {
        call.read_marks(&mut self.marks);
        self.marks_per_sample = marks_per_sample;
        self.idle.clear();
        self.idle.extend((0..self.marks.local_ranks).map(|rank| call.is_idle_rank(rank)));
    }

    /// Takes readings of the host's clock, at the beginning and the end of each sample, for the marks of the one rank of this process.
    pub(crate) fn take_readings(&mut self, call: &dyn Call, readings: Vec<u64>) {
        self.marks = Marks { local_ranks: 1, nanoseconds: readings };
        self.marks_per_sample = 2;
        self.idle.clear();
        self.idle.push(call.is_idle_rank(0));
    }

    /// Values of the active local ranks; idle ranks have none and never count as the largest.
    pub(crate) fn active_values<'a>(
        &'a self,
        values: impl Iterator<Item = f64> + 'a,
    ) -> impl Iterator<Item = f64> + 'a {
        let idle = self.idle.iter().copied().chain(std::iter::repeat(false));
        values.zip(idle).map(|(value, idle)| if idle { f64::NEG_INFINITY } else { value })
    }

    pub(crate) fn valid_times(&self) -> impl Iterator<Item = f64> {
        self.samples.iter().filter(|sample| sample.exclusion.is_none()).map(|sample| sample.slowest_nanoseconds as f64)
    }
}

/// Codes of the reason why a sample is invalid, for the reduction; the more severe reason is the larger number.
pub(crate) const VALID: f64 = 0.0;

pub(crate) const BELOW_RESOLUTION: f64 = 1.0;

pub(crate) const MISSED_START: f64 = 2.0;

/// Decodes the reason.
pub(crate) fn invalid_reason(mark: f64) -> Option<ExclusionReason> {
    match mark {
        m if m >= MISSED_START => Some(ExclusionReason::MissedStart),
        m if m >= BELOW_RESOLUTION => Some(ExclusionReason::BelowClockResolution),
        _ => None,
    }
}

/// The largest value of a process's ranks; the lowest rank on a tie.
pub(crate) fn largest(first_rank: u32, values: impl Iterator<Item = f64>) -> Located {
    let mut found = Located { value: f64::NEG_INFINITY, rank: first_rank as i32 };
    for (rank, value) in (first_rank as i32..).zip(values) {
        if value > found.value {
            found = Located { value, rank };
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::ClockModel;
    use super::super::fakes::{FakeCall, on_threads, with_context, with_settings};
    use super::*;
    use crate::world::{SoloWorld, World};
    use commgauge_base::sample::ExclusionReason;
    use commgauge_base::units::Seconds;
    use commgauge_model::config::RunSettings;

    #[test]
    fn whole_samples_are_timed_by_the_host_from_the_first_call_to_the_completion_of_the_last() {
        let settings = RunSettings { timing: Timing::Whole, ..RunSettings::default() };
        for (blocks, expected) in [(false, 10 * 900 + 5_000), (true, 10 * 900)] {
            with_settings(&SoloWorld, 0..1, settings.clone(), |context| {
                let mut call = FakeCall::alone(&SoloWorld, 0..1, |_, _| 900);
                call.mark_cost = 0;
                call.blocks = blocks;
                // Time that the host waits apart from the calls, which no mark on a stream sees.
                call.completion_cost = 5_000;
                let mut batch = Batch::default();
                streaming_batch(context, &mut call, 3, 10, &mut batch).unwrap();
                let times: Vec<u64> = batch.samples.iter().map(|sample| sample.slowest_nanoseconds).collect();
                assert_eq!(times, [expected; 3]);
            });
        }
    }

    #[test]
    fn a_sample_takes_the_time_of_the_slowest_rank_and_not_the_mean() {
        with_context(&SoloWorld, 0..4, |context| {
            let mut call = FakeCall::alone(&SoloWorld, 0..4, |_, rank| if rank == 2 { 900 } else { 100 });
            let mut batch = Batch::default();
            streaming_batch(context, &mut call, 5, 10, &mut batch).unwrap();
            assert_eq!(batch.samples.len(), 5);
            for sample in &batch.samples {
                assert_eq!((sample.slowest_nanoseconds, sample.slowest_rank), (9_000, 2));
                assert_eq!((sample.transfer_nanoseconds, sample.last_rank), (9_000, 2));
                assert_eq!((sample.arrival_spread_nanoseconds, sample.exclusion), (0, None));
            }
        });
    }

    #[test]
    fn processes_agree_on_the_slowest_rank_of_every_sample() {
        for processes in [2, 3, 4] {
            on_threads(processes, |world| {
                let me = world.process();
                with_context(world, me..me + 1, |context| {
                    // In sample i, rank i mod processes is slow.
                    let slow = move |call: u64, rank: u32| {
                        if (call / 4) as u32 % processes == rank { 700 } else { 100 + u64::from(rank) }
                    };
                    let mut call = FakeCall::alone(world, me..me + 1, slow);
                    let mut batch = Batch::default();
                    streaming_batch(context, &mut call, 12, 4, &mut batch).unwrap();
                    for (index, sample) in batch.samples.iter().enumerate() {
                        assert_eq!(sample.slowest_nanoseconds, 2_800);
                        assert_eq!(sample.slowest_rank, index as u32 % processes);
                    }
                });
            });
        }
    }

    #[test]
    fn an_idle_rank_takes_no_time_and_invalidates_no_sample() {
        with_context(&SoloWorld, 0..3, |context| {
            let mut call = FakeCall::alone(&SoloWorld, 0..3, |_, rank| if rank == 1 { 0 } else { 50 });
            (call.mark_cost, call.idle) = (0, vec![1]);
            let mut batch = Batch::default();
            streaming_batch(context, &mut call, 3, 1, &mut batch).unwrap();
            assert!(batch.samples.iter().all(|sample| sample.exclusion.is_none() && sample.slowest_nanoseconds == 50));
        });
    }

    #[test]
    fn a_sample_without_duration_on_some_rank_is_invalid() {
        with_context(&SoloWorld, 0..3, |context| {
            let mut call = FakeCall::alone(&SoloWorld, 0..3, |call, rank| if call == 1 && rank == 2 { 0 } else { 50 });
            call.mark_cost = 0;
            let mut batch = Batch::default();
            streaming_batch(context, &mut call, 3, 1, &mut batch).unwrap();
            let reasons: Vec<_> = batch.samples.iter().map(|sample| sample.exclusion).collect();
            assert_eq!(reasons, [None, Some(ExclusionReason::BelowClockResolution), None]);
        });
    }

    #[test]
    fn a_rank_delayed_by_2_ms_is_named_with_2_ms() {
        for (processes, late) in [(2, 1), (3, 0), (4, 2)] {
            on_threads(processes, |world| {
                let me = world.process();
                with_context(world, me..me + 1, |context| {
                    context.injected_delay = Some(InjectedDelay { rank: late, delay: Seconds(2e-3) });
                    let mut call = FakeCall::together(world, me..me + 1, |_, _| 30_000);
                    // Clocks of different hosts: only times of the common clock can be compared.
                    call.shift_clock(&mut context.clock, u64::from(me) * 7_000_000_000);
                    let mut batch = Batch::default();
                    isolated_batch(context, &mut call, 20, &mut Lead::default(), &mut batch).unwrap();
                    for sample in &batch.samples {
                        assert_eq!((sample.last_rank, sample.exclusion), (late, None));
                        let delay = sample.arrival_spread_nanoseconds as f64;
                        assert!((delay / 2e6 - 1.0).abs() < 0.1, "{delay}");
                        assert!((30_000..31_000).contains(&sample.transfer_nanoseconds), "{sample:?}");
                        assert!((2_030_000..2_040_000).contains(&sample.slowest_nanoseconds), "{sample:?}");
                    }
                });
            });
        }
    }

    #[test]
    fn what_is_known_of_the_clock_of_each_device_comes_with_the_batch() {
        on_threads(3, |world| {
            let me = world.process();
            with_context(world, me..me + 1, |context| {
                let mut call = FakeCall::together(world, me..me + 1, |_, _| 30_000);
                let mut batch = Batch::default();
                for (errors, expected) in [([700, 4_000, 0], vec![700, 4_000, 0]), ([0; 3], vec![])] {
                    call.clock_error = errors[me as usize];
                    isolated_batch(context, &mut call, 4, &mut Lead::default(), &mut batch).unwrap();
                    assert_eq!(batch.clock_errors_nanoseconds, if me == 0 { expected } else { vec![] });
                }
            });
        });
    }

    #[test]
    fn after_a_barrier_each_rank_is_timed_from_its_own_start_and_no_rank_is_late() {
        on_threads(3, |world| {
            let me = world.process();
            with_context(world, me..me + 1, |context| {
                context.start = ClockMethod::Barrier;
                // Clocks that were never synchronised.
                context.clock = ClockModel::identity();
                let mut call = FakeCall::alone(world, me..me + 1, |_, rank| 10_000 + 1_000 * u64::from(rank));
                let mut batch = Batch::default();
                isolated_batch(context, &mut call, 5, &mut Lead::default(), &mut batch).unwrap();
                for sample in &batch.samples {
                    assert_eq!(
                        (sample.slowest_rank, sample.arrival_spread_nanoseconds, sample.exclusion),
                        (2, 0, None)
                    );
                    assert!((12_000..12_500).contains(&sample.slowest_nanoseconds), "{sample:?}");
                }
            });
        });
    }

    #[test]
    fn a_missed_start_invalidates_the_iteration_and_lengthens_the_lead() {
        on_threads(3, |world| {
            let me = world.process();
            with_context(world, me..me + 1, |context| {
                let mut call = FakeCall::together(world, me..me + 1, |_, _| 10_000);
                // Rank 1 needs 500 microseconds from the agreement to the wait; the first lead is 50, the second 200.
                call.wait_overhead = if me == 1 { 500_000 } else { 0 };
                let (mut batch, mut lead) = (Batch::default(), Lead::default());
                isolated_batch(context, &mut call, 8, &mut lead, &mut batch).unwrap();
                let missed: Vec<_> =
                    batch.samples.iter().map(|s| s.exclusion == Some(ExclusionReason::MissedStart)).collect();
                assert_eq!(missed, [true, true, false, false, false, false, false, false]);
                assert!(lead.0 > 500_000, "{lead:?}");
            });
        });
    }

    #[test]
    fn an_idle_rank_is_never_slowest_first_last_or_invalid() {
        for idle in [0, 2] {
            on_threads(3, |world| {
                let me = world.process();
                with_context(world, me..me + 1, |context| {
                    let mut call = FakeCall::alone(world, me..me + 1, |_, rank| if rank == idle { 0 } else { 10_000 });
                    call.mark_cost = 0;
                    call.idle = vec![idle];
                    // The idle rank comes hours late, which does not matter.
                    call.wait_overhead = if me == idle { 10_000_000_000_000 } else { 0 };
                    let (mut batch, mut lead) = (Batch::default(), Lead::default());
                    isolated_batch(context, &mut call, 4, &mut lead, &mut batch).unwrap();
                    for sample in &batch.samples {
                        assert_ne!(sample.slowest_rank, idle);
                        assert_ne!(sample.last_rank, idle);
                        assert_eq!((sample.arrival_spread_nanoseconds, sample.exclusion), (0, None));
                        assert_eq!(sample.slowest_nanoseconds, 10_000);
                    }
                });
            });
        }
    }

    #[test]
    fn the_lead_shrinks_slowly_and_stays_within_bounds() {
        let mut lead = Lead(10_000_000);
        (0..5).for_each(|_| lead = lead.after(true));
        assert_eq!(lead.0, MAX_LEAD_NANOSECONDS);
        assert!(lead.after(false).0 > MAX_LEAD_NANOSECONDS * 98 / 100);
        (0..5000).for_each(|_| lead = lead.after(false));
        assert_eq!(lead.0, MIN_LEAD_NANOSECONDS);
    }

    #[test]
    fn one_process_that_plays_many_ranks_reduces_them_and_refuses_a_delay() {
        with_context(&SoloWorld, 0..16_384, |context| {
            let slow = |_, rank| if rank == 9_999 { 5_000 } else { 1_000 };
            let mut call = FakeCall::alone(&SoloWorld, 0..16_384, slow);
            let mut batch = Batch::default();
            isolated_batch(context, &mut call, 3, &mut Lead::default(), &mut batch).unwrap();
            let last = batch.samples[0];
            assert_eq!((last.slowest_rank, last.exclusion), (9_999, None));
            assert!((5_000..5_100).contains(&last.slowest_nanoseconds), "{last:?}");

            context.injected_delay = Some(InjectedDelay { rank: 3, delay: Seconds(1e-3) });
            let refused = isolated_batch(context, &mut call, 3, &mut Lead::default(), &mut batch).unwrap_err();
            assert_eq!(refused.exit_code(), 2);
        });
    }
}
