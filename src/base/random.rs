//! Numbers from random bits: mixed, uniform, normal. The caller chooses the source of the bits, such as a generator or
//! a hash.

/// The finaliser of SplitMix64: neighbouring numbers become unrelated, and all stay distinct (G. L. Steele, D. Lea and C. H. Flood, "Fast
/// splittable pseudorandom number generators", OOPSLA 2014).
pub fn scramble(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Number `index` of the sequence that SplitMix64 generates from a seed (as [`scramble`]).
pub fn split_mix(seed: u64, index: u64) -> u64 {
    scramble(seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// A number strictly between 0 and 1.
pub fn uniform(bits: u64) -> f64 {
    ((bits >> 11) as f64 + 0.5) * 2f64.powi(-53)
}

/// A standard normal number (G. E. P. Box and M. E. Muller, "A note on the generation of random normal deviates", Annals of
/// Mathematical Statistics 29 (1958)).
pub fn normal([first, second]: [u64; 2]) -> f64 {
    (-2.0 * uniform(first).ln()).sqrt() * (std::f64::consts::TAU * uniform(second)).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_the_published_generator() {
        // The first outputs of the reference implementation for the seed 1234567.
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([0, 1, 2].map(|index| split_mix(1_234_567, index)), expected);
    }

    #[test]
    fn uniform_numbers_are_inside_of_0_and_1_whatever_the_bits() {
        for bits in [0, 1, u64::MAX, u64::MAX << 11] {
            assert!(uniform(bits) > 0.0 && uniform(bits) <= 1.0 - f64::EPSILON / 4.0, "{bits}: {}", uniform(bits));
            assert!(normal([bits, u64::MAX - bits]).is_finite());
        }
    }

    #[test]
    fn normal_numbers_have_the_moments_of_the_distribution() {
        let all: Vec<f64> =
            (0..40_000).map(|index| normal([split_mix(7, 2 * index), split_mix(7, 2 * index + 1)])).collect();
        let moment = |power: i32| all.iter().map(|x| x.powi(power)).sum::<f64>() / all.len() as f64;
        let moments = [1, 2, 3, 4].map(moment);
        for (found, expected) in moments.into_iter().zip([0.0, 1.0, 0.0, 3.0]) {
            assert!((found - expected).abs() < 0.1, "{moments:?}");
        }
    }
}
