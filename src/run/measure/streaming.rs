//! Streaming cadence: calls back to back. A sample is some calls between two marks, and consecutive samples share the mark
//! between them, so that nothing but the calls and one mark per sample is in the loop.

use super::MeasureContext;
use super::batch::{BELOW_RESOLUTION, Batch, VALID, invalid_reason, largest};
use crate::backend::Call;
use crate::world::Located;
use commgauge_base::error::Result;
use commgauge_base::sample::{Sample, Timing};
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
    // Where calls return when they are complete, marks are readings of the host's clock already.
    if context.settings.timing == Timing::Whole && !call.blocks() {
        return whole_batch(context, call, samples, calls_per_sample, batch);
    }
    call.reserve_marks(samples as usize + 1);
    context.world.barrier()?;
    stream(call, samples, calls_per_sample, context.completion_deadline)?;
    batch.read(call, 1);
    reduce(context, samples as usize, batch)
}

/// A batch of samples each of which lasts on the host's clock from its first call to the completion of its last, as nccl-tests has it
/// (`BenchTime` of its `src/common.cu`).
fn whole_batch(
    context: &MeasureContext,
    call: &mut dyn Call,
    samples: u32,
    calls_per_sample: u32,
    batch: &mut Batch,
) -> Result<()> {
    let mut readings = Vec::with_capacity(2 * samples as usize);
    // What has to be ready before the first call: graphs, connections.
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
    reduce(context, samples as usize, batch)
}

/// The slowest rank of every sample: first over the local ranks, then over the processes in one reduction.
fn reduce(context: &MeasureContext, samples: usize, batch: &mut Batch) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::super::fakes::{FakeCall, on_threads, with_context, with_settings};
    use super::*;
    use crate::world::{SoloWorld, World};
    use commgauge_base::sample::ExclusionReason;
    use commgauge_model::config::RunSettings;

    #[test]
    fn whole_samples_are_timed_by_the_host_from_the_first_call_to_the_completion_of_the_last() {
        let settings = RunSettings { timing: Timing::Whole, ..RunSettings::default() };
        for (blocks, expected) in [(false, 10 * 900 + 5_000), (true, 10 * 900)] {
            with_settings(&SoloWorld, 0..1, settings.clone(), |context| {
                let mut call = FakeCall::alone(&SoloWorld, 0..1, |_, _| 900);
                call.mark_cost = 0;
                call.blocks = blocks;
                // What the host waits for beside the calls, which no mark on a stream sees.
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
}
