//! The confidence interval of a proportion from a number of hits and trials.

use super::interval::Interval;

/// The interval of C. J. Clopper and E. S. Pearson (1934), which covers the true share with at least `confidence`.
pub fn proportion_interval(hits: u64, trials: u64, confidence: f64) -> Interval {
    let tail = (1.0 - confidence) / 2.0;
    // Both bounds are found by bisection, since the tail is monotonic in the share.
    let search = |is_below: &dyn Fn(f64) -> bool| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if is_below(middle) { low = middle } else { high = middle }
        }
        f64::midpoint(low, high)
    };
    let low = if hits == 0 { 0.0 } else { search(&|share| 1.0 - at_most(hits - 1, trials, share) < tail) };
    let high = if hits >= trials { 1.0 } else { search(&|share| at_most(hits, trials, share) > tail) };
    Interval { low, high }
}

/// P(B <= `most`), B binomial over `trials` with `share`.
fn at_most(most: u64, trials: u64, share: f64) -> f64 {
    if share <= 0.0 || most >= trials {
        return 1.0;
    }
    if share >= 1.0 {
        return 0.0;
    }
    let n = trials as f64;
    let mut ln_term = n * (-share).ln_1p();
    let ln_odds = share.ln() - (-share).ln_1p();
    let mut sum = 0.0;
    for k in 0..=most {
        sum += ln_term.exp();
        ln_term += ((n - k as f64) / (k as f64 + 1.0)).ln() + ln_odds;
    }
    f64::min(sum, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_tables() {
        // Known in closed form: without any hit the upper bound is 1 - (tail)^(1/n); with all, by symmetry.
        let Interval { low, high } = proportion_interval(0, 10, 0.95);
        assert!(low == 0.0 && (high - 0.308_497).abs() < 1e-6, "{high}");
        let Interval { low, high } = proportion_interval(10, 10, 0.95);
        assert!(high == 1.0 && (low - 0.691_503).abs() < 1e-6, "{low}");
        // R: binom.test(5, 100)$conf.int is 0.01643, 0.11284.
        let Interval { low, high } = proportion_interval(5, 100, 0.95);
        assert!((low - 0.016_432).abs() < 1e-5 && (high - 0.112_835).abs() < 1e-5, "{low} {high}");
    }
}
