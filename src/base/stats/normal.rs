//! The normal distribution.

/// Probability that a standard normal number is below this one, within 1e-7 (Abramowitz and Stegun, 26.2.17).
pub fn normal_below(deviate: f64) -> f64 {
    const TERMS: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * deviate.abs());
    let density = (-0.5 * deviate * deviate).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let above = density * TERMS.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    if deviate >= 0.0 { 1.0 - above } else { above }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_the_published_table() {
        for (deviate, below) in [(0.0, 0.5), (1.0, 0.841_344_7), (-1.96, 0.024_997_9), (3.0, 0.998_650_1)] {
            assert!((normal_below(deviate) - below).abs() < 2e-7, "{deviate}");
        }
    }
}
