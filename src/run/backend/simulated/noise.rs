//! Seeded scatter of simulated times: a factor for each call of a group, a delay for each arrival.

use commgauge_base::random::normal;
use commgauge_model::config::machine;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Factors are drawn from a table, since a call on thousands of groups needs thousands of them; a power of two.
const FACTORS: usize = 4096;

/// A source of noise. The same seed and the same order of queries give the same answers.
#[derive(Debug)]
pub(super) struct Noise {
    generator: Xoshiro256PlusPlus,
    /// Log-normal factors with a median of exactly 1; empty where times do not scatter.
    factors: Vec<f64>,
    outlier_below: u64,
    outlier_factor: f64,
    jitter_nanoseconds: u64,
}

impl Noise {
    pub(super) fn new(settings: &machine::Noise, seed: u64) -> Noise {
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(seed);
        let scatters = settings.relative_sigma > 0.0 || settings.outlier_probability > 0.0;
        let factors = if scatters { log_normal(settings.relative_sigma, &mut generator) } else { Vec::new() };
        Noise {
            generator,
            factors,
            outlier_below: threshold(settings.outlier_probability),
            outlier_factor: settings.outlier_factor,
            jitter_nanoseconds: settings.arrival_jitter.as_nanoseconds(),
        }
    }

    /// Factor on the time of the next call of a group.
    #[inline]
    pub(super) fn factor(&mut self) -> f64 {
        if self.factors.is_empty() {
            return 1.0;
        }
        let bits = self.generator.next_u64();
        let factor = self.factors[bits as usize % FACTORS];
        if bits >> 32 < self.outlier_below { factor * self.outlier_factor } else { factor }
    }

    /// True if arrival times vary.
    pub(super) fn jitters(&self) -> bool {
        self.jitter_nanoseconds > 0
    }

    /// Start delays of two ranks.
    #[inline]
    pub(super) fn two_delays_nanoseconds(&mut self) -> [u64; 2] {
        let bits = self.generator.next_u64();
        [bits >> 32, bits & 0xffff_ffff].map(|half| (half * self.jitter_nanoseconds) >> 32)
    }

    /// True with this probability.
    pub(super) fn happens(&mut self, probability: f64) -> bool {
        self.generator.next_u64() >> 32 < threshold(probability)
    }
}

/// Threshold for 32 random bits.
fn threshold(probability: f64) -> u64 {
    (probability * 2f64.powi(32)) as u64
}

/// Each deviate is followed by its negative, so that the median is 1 whatever was drawn.
fn log_normal(sigma: f64, generator: &mut Xoshiro256PlusPlus) -> Vec<f64> {
    let deviates = std::iter::repeat_with(|| normal([generator.next_u64(), generator.next_u64()]));
    deviates.take(FACTORS / 2).flat_map(|deviate| [(sigma * deviate).exp(), (-sigma * deviate).exp()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_base::stats::{median, sorted};
    use commgauge_base::units::Seconds;

    fn settings() -> machine::Noise {
        machine::Noise {
            relative_sigma: 0.1,
            outlier_probability: 0.25,
            outlier_factor: 100.0,
            arrival_jitter: Seconds(1e-6),
        }
    }

    #[test]
    fn the_same_seed_scatters_the_same_way_and_another_seed_differently() {
        let draw = |seed| -> Vec<u64> {
            let mut noise = Noise::new(&settings(), seed);
            (0..100).map(|_| noise.factor().to_bits() ^ noise.two_delays_nanoseconds()[0]).collect()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn factors_have_the_requested_median_spread_and_outliers() {
        let mut noise = Noise::new(&settings(), 7);
        let drawn: Vec<f64> = (0..100_000).map(|_| noise.factor()).collect();
        let outliers = drawn.iter().filter(|factor| **factor > 10.0).count() as f64 / drawn.len() as f64;
        assert!((outliers - 0.25).abs() < 0.01, "{outliers}");
        let usual = sorted(drawn.into_iter().filter(|factor| *factor <= 10.0).map(f64::ln));
        let sigma = (usual.iter().map(|log| log * log).sum::<f64>() / usual.len() as f64).sqrt();
        assert!((sigma - 0.1).abs() < 0.004, "{sigma}");
        assert!(median(&usual).is_some_and(|middle| middle.abs() < 0.002), "{:?}", median(&usual));
    }

    #[test]
    fn delays_stay_below_the_jitter_and_probabilities_match() {
        let mut noise = Noise::new(&settings(), 7);
        let most = (0..10_000).flat_map(|_| noise.two_delays_nanoseconds()).max();
        assert!(most.is_some_and(|most| (990..1000).contains(&most)), "{most:?}");
        assert!((0..100).all(|_| noise.happens(1.0) && !noise.happens(0.0)));
    }

    #[test]
    fn without_noise_all_times_are_equal() {
        let mut noise = Noise::new(&machine::Noise::default(), 7);
        assert_eq!((noise.factor(), noise.jitters()), (1.0, false));
    }
}
