//! Alternative outcomes: every predicted time drawn again from its interval, with a seed.
//!
//! The interval of a prediction covers 95 of 100. A draw is log-normal with that spread, with separate spreads for the
//! two sides if they differ. Calls of one kind on one axis in one place are read from the same curve, so they are
//! drawn together, all too slow or all too fast. Others are drawn independently.

use super::priced::{Priced, RankOptions};
use commgauge_base::collective::Collective;
use commgauge_base::random::normal;
use commgauge_model::layout::{Axis, Locality};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Standard deviations on each side that cover 95 of 100.
const SIGMAS_OF_95: f64 = 1.959_964;

/// Draws by what is drawn together.
#[derive(Debug)]
pub(super) struct Draws {
    options: RankOptions,
    known: Vec<(Key, Vec<f64>)>,
}

type Key = (Axis, Collective, Locality);

impl Draws {
    pub(super) fn new(options: RankOptions) -> Draws {
        Draws { options, known: Vec::new() }
    }

    /// The sums over some calls, one for each resample; nothing where a call has no time or no interval.
    pub(super) fn sums<'p>(&mut self, priced: impl Iterator<Item = &'p Priced<'p>>) -> Option<Vec<f64>> {
        let mut sums = vec![0.0; self.options.resamples.max(1) as usize];
        for op in priced {
            let call = op.call()?;
            let ends = call.interval?;
            let calls = op.cost.calls as f64;
            let sigma = |ratio: f64| ratio.max(1.0).ln() / SIGMAS_OF_95;
            let (down, up) = (sigma(call.middle / ends.low), sigma(ends.high / call.middle));
            for (sum, z) in sums.iter_mut().zip(self.normals(op)) {
                let spread = if *z < 0.0 { down } else { up };
                *sum += calls * call.middle * (spread * z).exp();
            }
        }
        Some(sums)
    }

    fn normals(&mut self, op: &Priced) -> &[f64] {
        let key = (op.op.axis, op.op.collective, op.locality.clone());
        let index = match self.known.iter().position(|(known, _)| *known == key) {
            Some(index) => index,
            None => {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(self.options.seed);
                // Far apart on the generator's cycle, in the order of first use.
                (0..self.known.len()).for_each(|_| random.jump());
                let drawn = (0..self.options.resamples.max(1))
                    .map(|_| normal([random.next_u64(), random.next_u64()]))
                    .collect();
                self.known.push((key, drawn));
                self.known.len() - 1
            }
        };
        &self.known[index].1
    }
}

/// The share of resamples for which the predicate is true.
pub(super) fn share(resamples: usize, predicate: impl Fn(usize) -> bool) -> f64 {
    (0..resamples).filter(|index| predicate(*index)).count() as f64 / resamples.max(1) as f64
}
