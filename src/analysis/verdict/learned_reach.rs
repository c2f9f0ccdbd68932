//! How far a healthy run may fall behind the median of those that were learned from, so that a run like them passes as a whole.
//!
//! A row of n replicates passes where the d-th worst of them meets the limit (see [`median_bounds`](commgauge_base::stats::median_bounds)).
//! Of R rows all are to pass with a chance of [`PASSES`]: in each at least d of n may miss the limit with a chance of no more than
//! (1 - PASSES) / R (Bonferroni), from which follows the chance for one replicate. The limit is that quantile of a normal distribution
//! whose scatter is that of the worse half of what was learned, as that is the side on which the limit is. Scatter and median were estimated,
//! from N replicates, and the new run differs from them too: Student's quantile times sqrt(1 + pi / 2N) (as G. J. Hahn, "Factors for
//! calculating two-sided prediction intervals", J. Am. Stat. Assoc. 64, 1969, with the median in place of the mean). With a quarter of N
//! as degrees of freedom simulated runs pass as often as is asked for; with all of the worse half, in 85 of 100 cases.

use commgauge_base::stats::{depth_of_bound, proportion_interval, student_quantile};

/// The chance with which a run like those that were learned from is to pass as a whole.
pub(super) const PASSES: f64 = 0.95;
/// The confidence of the bounds with which a gate judges unless another is asked for.
const LEVEL: f64 = 0.95;

/// The runs that will be judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct JudgedRuns {
    /// Rows that are judged together.
    pub rows: usize,
    /// Replicates of a row.
    pub replicates: usize,
}

/// The reach, as a share of the median, from the shares by which the worse half of the replicates falls behind it. None where a run has
/// too few replicates to be judged.
pub(super) fn reach(behind: &[f64], runs: JudgedRuns) -> Option<f64> {
    let depth = depth_of_bound(runs.replicates, LEVEL)?;
    let missing = (1.0 - PASSES) / runs.rows.max(1) as f64;
    let of_one = chance_of_one(runs.replicates, depth, missing);
    let scatter = (behind.iter().map(|share| share * share).sum::<f64>() / behind.len().max(1) as f64).sqrt();
    let count = 2.0 * behind.len() as f64;
    let median_is_estimated = (1.0 + std::f64::consts::FRAC_PI_2 / count).sqrt();
    Some(scatter * student_quantile(of_one, count / 4.0) * median_is_estimated)
}

/// The chance of one replicate with which at least `depth` of `count` happen with the chance `together`: where the interval of Clopper and
/// Pearson for so many hits begins.
fn chance_of_one(count: usize, depth: usize, together: f64) -> f64 {
    proportion_interval(depth as u64, count as u64, 1.0 - 2.0 * together).low
}

#[cfg(test)]
mod tests {
    use super::super::learned_kind::{Values, expectation};
    use super::*;
    use commgauge_base::random::{normal, split_mix};
    use commgauge_base::stats::{median_bounds, sorted};

    #[test]
    fn chances_and_quantiles_are_those_of_the_tables() {
        for (count, at_least, chance, tail) in
            [(9, 2, 0.5, 502.0 / 512.0), (5, 1, 0.1, 0.40951), (20, 3, 0.05, 0.075_483_67)]
        {
            assert!((chance_of_one(count, at_least, tail) - chance).abs() < 1e-7, "{count}, {at_least}, {chance}");
        }
        assert!((chance_of_one(5, 1, 0.40951) - 0.1).abs() < 1e-9);
        // Tables of t: 2.650 and 3.012 with 13 degrees of freedom, 3.747 with 4.
        for (probability, degrees, quantile) in [(0.01, 13.0, 2.650), (0.005, 13.0, 3.012), (0.01, 4.0, 3.747)] {
            let found = student_quantile(probability, degrees);
            assert!((found / quantile - 1.0).abs() < 0.01, "{probability}, {degrees}: {found}");
        }
    }

    #[test]
    fn runs_of_too_few_replicates_have_no_reach() {
        assert!(reach(&[0.01; 4], JudgedRuns { rows: 3, replicates: 4 }).is_none());
    }

    /// Rates of one run: what all its rows share, and what each replicate has, both as normal deviations.
    fn run(seed: u64, rows: usize, replicates: usize, shared: f64, own: f64, skewed: bool) -> Vec<Vec<f64>> {
        let deviate = |index: u64| normal([split_mix(seed, 2 * index), split_mix(seed, 2 * index + 1)]);
        let whole = 1.0 + shared * deviate(0);
        let one = |row: usize, replicate: usize| {
            let deviate = deviate(1 + (row * replicates + replicate) as u64);
            // Slow ones are further away than fast ones.
            let deviate = if skewed && deviate < 0.0 { 2.0 * deviate } else { deviate };
            whole * (1.0 + own * deviate)
        };
        (0..rows).map(|row| (0..replicates).map(|replicate| one(row, replicate)).collect()).collect()
    }

    #[test]
    fn nine_of_ten_runs_like_those_learned_from_pass_as_a_whole_and_a_row_that_is_slow_does_not() {
        let (rows, replicates, tries) = (20, 9, 400);
        for (shared, own, skewed, rows_of_kind) in [
            (0.0, 0.02, false, 1),
            (0.0, 0.02, true, 1),
            (0.01, 0.01, false, 1),
            (0.005, 0.02, true, 1),
            (0.0, 0.02, false, 4),
        ] {
            let (mut passed, mut slow_passed) = (0, 0);
            for attempt in 0..tries {
                let healthy: Vec<_> =
                    (0..3).map(|one| run(1000 * attempt + one, rows, replicates, shared, own, skewed)).collect();
                let limit = |row: usize| {
                    let first = row / rows_of_kind * rows_of_kind;
                    let rows_of_run = |rates: &Vec<Vec<f64>>| rates[first..first + rows_of_kind].to_vec();
                    let of_run = healthy.iter().map(rows_of_run).enumerate().collect();
                    let expected = expectation(&Values { is_rate: true, of_run }, rows, 0.02).unwrap();
                    expected.value * (1.0 - expected.tolerance)
                };
                let later = run(1000 * attempt + 999, rows, replicates, shared, own, skewed);
                let clears = |row: usize, factor: f64| {
                    let rates = sorted(later[row].iter().map(|rate| rate * factor));
                    median_bounds(&rates, 0.95).is_some_and(|(lower, _)| lower >= limit(row))
                };
                passed += u64::from((0..rows).all(|row| clears(row, 1.0)));
                slow_passed += u64::from(clears(0, 0.8));
            }
            let label = format!(
                "shared {shared}, own {own}, skewed {skewed}, {rows_of_kind} of a kind: {passed} and {slow_passed} of {tries}"
            );
            assert!(passed * 10 >= tries * 9, "{label}");
            assert!(slow_passed * 100 <= tries, "{label}");
        }
    }
}
