//! The normal distribution, and Student's.

use super::upper_normal_quantile;

/// Probability that a standard normal number is below this one, within 1e-7 (Abramowitz and Stegun, 26.2.17).
pub fn normal_below(deviate: f64) -> f64 {
    const TERMS: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * deviate.abs());
    let density = (-0.5 * deviate * deviate).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let above = density * TERMS.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    if deviate >= 0.0 { 1.0 - above } else { above }
}

/// The value that Student's t with these degrees of freedom exceeds with this probability (M. Abramowitz and I. A. Stegun, Handbook of
/// Mathematical Functions (1964), 26.7.5).
pub fn student_quantile(probability: f64, degrees_of_freedom: f64) -> f64 {
    let z = upper_normal_quantile(probability);
    let nu = degrees_of_freedom.max(1.0);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / nu + second / nu.powi(2) + third / nu.powi(3)
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
