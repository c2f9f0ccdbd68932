//! Measures one collective at one size: blocks of ours and of the plain loop in turn, until the time is spent.

use super::pair::Pair;
use super::raw_loop::RawLoop;
use commgauge::backend::Call;
use commgauge::backend::mpi::MpiCall;
use commgauge::error::Result;
use commgauge::host::now_nanoseconds;
use commgauge::measure::{Batch, MeasureContext, choose_calls_per_sample, stream, streaming_batch};
use commgauge::stats::{median, sorted};
use commgauge::units::Seconds;
use commgauge::world::Located;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::hint::black_box;

/// A block is at least so long, or a single call: long against the two clock readings around it.
const SHORTEST_BLOCK_NANOSECONDS: f64 = 2e6;
/// Blocks begun within the first tenth of the time warm the buffers and are not counted.
const WARM_UP_SHARE: f64 = 0.1;

/// When to end.
pub struct Bounds {
    /// Time for all blocks.
    pub budget: Seconds,
    /// Fewest blocks of each kind.
    pub pairs: u32,
    /// Seed of the order, the same on all ranks.
    pub seed: u64,
}

/// How many calls a block of either kind has.
#[derive(Clone, Copy)]
struct Length {
    samples: u32,
    calls_per_sample: u32,
}

impl Length {
    fn calls(self) -> u64 {
        u64::from(self.samples) * u64::from(self.calls_per_sample)
    }
}

/// The blocks, of the slowest rank; ranks, launch, collective and bytes are as in `template`.
pub fn measure(
    context: &MeasureContext,
    call: &mut MpiCall,
    raw: &RawLoop,
    bounds: &Bounds,
    template: &Pair,
) -> Result<Vec<Pair>> {
    let length = choose_length(context, call)?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(bounds.seed);
    let mut order = [0, 1, 2];
    let mut pairs = Vec::new();
    let start = now_nanoseconds();
    loop {
        let elapsed = Seconds::from_nanoseconds(now_nanoseconds() - start).0;
        let mut continues = [u64::from(elapsed < bounds.budget.0 || pairs.len() < bounds.pairs as usize)];
        let mut counts = [u64::from(elapsed >= bounds.budget.0 * WARM_UP_SHARE)];
        context.world.broadcast_u64(&mut continues)?;
        context.world.broadcast_u64(&mut counts)?;
        if continues[0] == 0 {
            return Ok(pairs);
        }
        order.shuffle(&mut random);
        let mut times = [Located { value: 0.0, rank: context.world.process() as i32 }; 3];
        for kind in order {
            times[kind].value = block(context, call, raw, length, kind == 0)?;
        }
        context.world.all_max(&mut times)?;
        if counts[0] == 1 {
            pairs.push(Pair {
                calls: length.calls(),
                calls_per_sample: length.calls_per_sample,
                ours_nanoseconds: times[0].value,
                raw_nanoseconds: times[1].value,
                raw_again_nanoseconds: times[2].value,
                ..template.clone()
            });
        }
    }
}

/// One block on the next buffers of the rotation: this rank's nanoseconds.
fn block(context: &MeasureContext, call: &mut MpiCall, raw: &RawLoop, length: Length, ours: bool) -> Result<f64> {
    if ours {
        call.reserve_marks(length.samples as usize + 1);
    }
    context.world.barrier()?;
    let begin = now_nanoseconds();
    if ours {
        // As commgauge's programs do it: through the contract, not knowing which backend it is.
        let call: &mut dyn Call = black_box(call);
        stream(call, length.samples, length.calls_per_sample, context.completion_deadline)?;
    } else {
        raw.run(call, length.calls())?;
    }
    Ok((now_nanoseconds() - begin) as f64)
}

/// Samples as commgauge would take them, enough to make the block long enough.
fn choose_length(context: &MeasureContext, call: &mut MpiCall) -> Result<Length> {
    let mut batch = Batch::default();
    let calls_per_sample = choose_calls_per_sample(context, call, None, &mut batch)?.calls;
    streaming_batch(context, call, 5, calls_per_sample, &mut batch)?;
    let times = sorted(batch.samples.iter().map(|sample| sample.slowest_nanoseconds as f64));
    let sample = median(&times).unwrap_or(1.0).max(1.0);
    let mut samples = [(SHORTEST_BLOCK_NANOSECONDS / sample).ceil().max(1.0) as u64];
    context.world.broadcast_u64(&mut samples)?;
    Ok(Length { samples: samples[0] as u32, calls_per_sample })
}
