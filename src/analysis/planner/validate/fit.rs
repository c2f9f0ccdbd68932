//! The one constant that is fitted: what share of the peak the largest matrix products reach.
//!
//! Seconds of a step are all but linear in its inverse, so that each run is priced at a few shares and read off between
//! them. The loss is robust and in logarithms: no single run decides, and long steps weigh no more than short ones.

/// Shares at which every run is priced. The fitted share is between the first and the last.
pub(super) const SHARES: [f64; 6] = [0.1, 0.25, 0.5, 0.65, 0.8, 0.95];
/// The smallest and the largest share that is fitted.
pub const SHARE_LIMITS: [f64; 2] = [SHARES[0], SHARES[SHARES.len() - 1]];
/// Errors far above this count in proportion, below it by their square.
const SCALE: f64 = 0.05;
/// The golden section.
const SECTION: f64 = 0.618_033_988_749_895;
/// Number of halvings: the share is known to about a millionth of the interval.
const ROUNDS: u32 = 30;

/// Seconds of a run at each of the shares, and those measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Priced {
    pub seconds: [f64; SHARES.len()],
    pub measured_seconds: f64,
}

impl Priced {
    /// Seconds at a share, on the chord between two neighbours in its inverse.
    pub(super) fn at(&self, share: f64) -> f64 {
        let behind = SHARES.iter().skip(1).position(|known| share <= *known).unwrap_or(SHARES.len() - 2);
        let (low, high) = (SHARES[behind].recip(), SHARES[behind + 1].recip());
        let part = (share.recip() - low) / (high - low);
        self.seconds[behind] + part * (self.seconds[behind + 1] - self.seconds[behind])
    }
}

/// The share with the smallest error over all runs, each with its weight: a golden section of the sum of soft absolute errors.
pub(super) fn best_share(runs: &[(&Priced, f64)]) -> f64 {
    let loss = |share: f64| -> f64 {
        let of = |(run, weight): &(&Priced, f64)| {
            let error = (run.at(share) / run.measured_seconds).ln() / SCALE;
            weight * ((1.0 + error * error).sqrt() - 1.0)
        };
        runs.iter().map(of).sum()
    };
    let [mut low, mut high] = SHARE_LIMITS;
    for _ in 0..ROUNDS {
        let (left, right) = (high - SECTION * (high - low), low + SECTION * (high - low));
        if loss(left) <= loss(right) {
            high = right;
        } else {
            low = left;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run with this computing time at a share of 1, and this time for everything else.
    fn run(compute: f64, beside: f64, measured: f64) -> Priced {
        Priced { seconds: SHARES.map(|share| compute / share + beside), measured_seconds: measured }
    }

    #[test]
    fn a_known_share_is_found_again_in_spite_of_an_outlier() {
        let share = 0.72;
        let mut runs: Vec<Priced> = (1..=9).map(f64::from).map(|n| run(n, 0.1 * n, n / share + 0.1 * n)).collect();
        runs.push(run(1.0, 0.1, 10.0));
        let found = best_share(&runs.iter().map(|run| (run, 1.0)).collect::<Vec<_>>());
        assert!((found - share).abs() < 0.005, "{found}");
    }

    #[test]
    fn a_price_linear_in_the_inverse_share_is_interpolated_exactly() {
        for share in [0.4, 0.5, 0.6, 0.7, 0.8, 0.93, 0.95, 0.99] {
            let found = run(3.0, 0.5, 1.0).at(share);
            assert!((found - (3.0 / share + 0.5)).abs() < 1e-12, "{share}: {found}");
        }
    }
}
