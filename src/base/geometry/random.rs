//! How often each expert is chosen when tokens draw their experts at random.

use super::share::share_out;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Up to this many choices of a rank, or this many for each expert, are drawn one by one.
const DRAWN_CHOICES: u64 = 1 << 13;
const DRAWN_CHOICES_PER_EXPERT: u64 = 32;

/// Counts of choices by expert, sender by sender.
///
/// Few choices are drawn one by one. Many are drawn as their sums: each count is Gaussian with mean N K / E and variance
/// N (K/E) (1 - K/E), the counts add up to N K and have equal covariances, as those of tokens that draw K of E experts have; by
/// the central limit theorem nothing else is left of the single draws.
pub(super) struct RandomCounts {
    experts: u64,
    experts_per_token: u64,
    tokens: u64,
    /// The last token that chose each expert, counted from 1.
    last_token: Vec<u64>,
}

impl RandomCounts {
    pub(super) fn new(experts: u64, experts_per_token: u64, tokens: u64) -> RandomCounts {
        RandomCounts { experts, experts_per_token, tokens, last_token: Vec::new() }
    }

    /// The counts of one sender, the same for the same seed.
    pub(super) fn of_sender(&mut self, seed: u64, sender: u32, ties: &[usize]) -> Vec<u64> {
        // Mixed once, so that neighbouring seeds do not give neighbouring senders' streams.
        let mixed = Xoshiro256PlusPlus::seed_from_u64(seed).next_u64();
        let sender = u64::from(sender).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(mixed ^ sender);
        if self.tokens * self.experts_per_token <= DRAWN_CHOICES.max(DRAWN_CHOICES_PER_EXPERT * self.experts) {
            return self.drawn(&mut random);
        }
        let weights = self.gaussian(&mut random);
        share_out(self.tokens * self.experts_per_token, &weights, self.tokens, ties)
    }

    /// R. W. Floyd's sampling without replacement (Communications of the ACM 30(9), 1987), token by token.
    fn drawn(&mut self, random: &mut Xoshiro256PlusPlus) -> Vec<u64> {
        let mut counts = vec![0; self.experts as usize];
        self.last_token = vec![0; self.experts as usize];
        for token in 1..=self.tokens {
            for last in self.experts - self.experts_per_token..self.experts {
                let drawn = below(random, last + 1) as usize;
                let chosen = if self.last_token[drawn] == token { last as usize } else { drawn };
                self.last_token[chosen] = token;
                counts[chosen] += 1;
            }
        }
        counts
    }

    /// Counts in 1/1024, before they are made to add up.
    fn gaussian(&self, random: &mut Xoshiro256PlusPlus) -> Vec<u64> {
        let (n, e) = (self.tokens as f64, self.experts as f64);
        let chance = self.experts_per_token as f64 / e;
        let normals: Vec<f64> = (0..self.experts).map(|_| normal(random)).collect();
        let mean_normal = normals.iter().sum::<f64>() / e;
        // Taking the mean away leaves 1 - 1/E of the variance.
        let deviation = (n * chance * (1.0 - chance) * e / (e - 1.0).max(1.0)).sqrt();
        let count = |normal: &f64| (n * chance + deviation * (normal - mean_normal)).max(0.0);
        normals.iter().map(|normal| (count(normal) * 1024.0).round() as u64).collect()
    }
}

/// A number below `end`, by the upper half of a product (D. Lemire, 2019); `end` is so small that its unevenness is nil.
fn below(random: &mut Xoshiro256PlusPlus, end: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(end)) >> 64) as u64
}

/// Approximately normal: twelve uniform numbers minus their mean. Sums only, so that every machine gets the same bits.
fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
    let uniform = |_| (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    (0..12).map(uniform).sum::<f64>() - 6.0
}
