//! The kinds of noise of synthetic runs.

use commgauge_base::random::{normal, uniform};
use rand::{Rng, RngExt};
use rand_xoshiro::Xoshiro256PlusPlus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the medians of replicates are spread; each kind has about the same standard deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Noise {
    /// Normal.
    Normal,
    /// Most runs near the slowest, some much faster than the rest.
    LeftSkewed,
    /// Two states, each as often as the other, with little noise around both.
    Bimodal,
    /// Slower from replicate to replicate, beginning anew with every run.
    DriftingWithinRuns,
    /// Slower from replicate to replicate, the second run going on where the first ended.
    DriftingOn,
}

impl Noise {
    /// All kinds.
    pub const ALL: [Noise; 5] =
        [Noise::Normal, Noise::LeftSkewed, Noise::Bimodal, Noise::DriftingWithinRuns, Noise::DriftingOn];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Noise::Normal => "normal",
            Noise::LeftSkewed => "left-skewed",
            Noise::Bimodal => "bimodal",
            Noise::DriftingWithinRuns => "drift in runs",
            Noise::DriftingOn => "drifting on",
        }
    }

    /// False where no error rate is guaranteed: drift across replicates is a real change.
    pub fn is_promised(self) -> bool {
        self != Noise::DriftingOn
    }

    /// Times around 1 with a median of about 1: for each replicate of the `run`-th run of a pair.
    pub(super) fn draw(self, sigma: f64, replicates: usize, run: usize, random: &mut Xoshiro256PlusPlus) -> Vec<f64> {
        let count = replicates as f64;
        (0..replicates)
            .map(|index| {
                let position = (index as f64 + 0.5) / count;
                let deviate = match self {
                    Noise::Normal => deviate(random),
                    // The median of 1 + ln u is 1 - ln 2.
                    Noise::LeftSkewed => uniform(random.next_u64()).ln() + std::f64::consts::LN_2,
                    Noise::Bimodal => deviate(random) * 0.25 + if random.random_bool(0.5) { 0.97 } else { -0.97 },
                    Noise::DriftingWithinRuns => deviate(random) * 0.5 + 3.0 * (position - 0.5),
                    Noise::DriftingOn => deviate(random) * 0.5 + 3.0 * (position - 0.5 + run as f64),
                };
                1.0 + sigma * deviate
            })
            .collect()
    }
}

fn deviate(random: &mut Xoshiro256PlusPlus) -> f64 {
    normal([random.next_u64(), random.next_u64()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn every_noise_kind_has_the_same_scale_around_one() {
        for noise in [Noise::Normal, Noise::LeftSkewed, Noise::Bimodal, Noise::DriftingWithinRuns] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
            let drawn: Vec<f64> = (0..2000).flat_map(|_| noise.draw(0.01, 7, 0, &mut random)).collect();
            let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
            let deviation = (drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64).sqrt();
            // Half of the times lie on either side; a bimodal distribution has none in between.
            let above = drawn.iter().filter(|time| **time > 1.0).count() as f64 / drawn.len() as f64;
            assert!((0.48..0.52).contains(&above), "{noise:?}: {above}");
            assert!((0.008..0.012).contains(&deviation), "{noise:?}: {deviation}");
        }
    }
}
