//! How the time of a call grows with the groups that share a node's links: the law, and the fit of its two exponents.
//!
//! A call costs alpha + beta bytes. With x times as many groups at once its latency part grows by x^a and its
//! bandwidth part by x^b:
//!
//! ```text
//! T_x(S) = T_1(S) ((1 - s) x^a + s x^b)          s = beta S / (alpha + beta S), the share of bandwidth in T_1
//! ```
//!
//! b is 0 where every group has links of its own and 1 where all share one rate, which each then has 1/x of. In between,
//! a single group does not saturate the shared link. This module knows no records and no curves.

/// Error in log time from which on a point counts less than squared (soft L1), as in the fit of curves.
const SOFT: f64 = 0.05;
/// Bounds of an exponent. Beyond them a call would be slower than all groups in sequence, or much faster with more groups.
const MIN_EXPONENT: f64 = -1.0;
const MAX_EXPONENT: f64 = 3.0;
/// A part is determined only where it makes up this share of some time.
const MIN_SHARE: f64 = 0.5;

/// The time with more groups relative to the time with the fewest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Observation {
    /// Factor on the number of groups.
    pub more: f64,
    /// Share of bandwidth in the time with the fewest.
    pub share: f64,
    /// Logarithm of the ratio of the times.
    pub log_slower: f64,
}

/// The two exponents; `None` where no measured size determines that part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sharing {
    /// a: of the latency part.
    pub latency: Option<f64>,
    /// b: of the bandwidth part.
    pub bandwidth: Option<f64>,
}

impl Sharing {
    /// Robust least squares in log time. `None` without observations.
    pub(super) fn of(observations: &[Observation]) -> Option<Sharing> {
        let tells = |share: fn(&Observation) -> f64| observations.iter().any(|seen| share(seen) >= MIN_SHARE);
        let (latency, bandwidth) = (tells(|seen| 1.0 - seen.share), tells(|seen| seen.share));
        let both = latency && bandwidth;
        let (mut a, mut b) = start(observations)?;
        for _ in 0..40 {
            let equations = NormalEquations::new(observations, a, b);
            // Where they cannot be distinguished both take the same step.
            let step = if both { equations.two_steps() } else { [equations.one_step(); 2].into() };
            (a, b) = ((a + step.0).clamp(MIN_EXPONENT, MAX_EXPONENT), (b + step.1).clamp(MIN_EXPONENT, MAX_EXPONENT));
            if step.0.abs() + step.1.abs() < 1e-9 {
                break;
            }
        }
        Some(Sharing { latency: latency.then_some(a), bandwidth: bandwidth.then_some(b) })
    }

    /// Slowdown factor with `more` times as many groups, where bandwidth makes up `share` of its time. `None`
    /// where that part is not known.
    pub fn slower(&self, more: f64, share: f64) -> Option<f64> {
        let (a, b) = match (self.latency, self.bandwidth) {
            (Some(a), Some(b)) => (a, b),
            (Some(a), None) if share <= MIN_SHARE => (a, a),
            (None, Some(b)) if share >= MIN_SHARE => (b, b),
            _ => return None,
        };
        Some((1.0 - share) * more.powf(a) + share * more.powf(b))
    }
}

/// One exponent for both parts.
fn start(observations: &[Observation]) -> Option<(f64, f64)> {
    let (mut xy, mut xx) = (0.0, 0.0);
    for seen in observations {
        xy += seen.log_slower * seen.more.ln();
        xx += seen.more.ln().powi(2);
    }
    (xx > 0.0).then(|| (xy / xx).clamp(MIN_EXPONENT, MAX_EXPONENT)).map(|both| (both, both))
}

/// Sums of the weighted squares for a Gauss-Newton step: of the derivatives by both exponents, and of these with the errors.
#[derive(Default)]
struct NormalEquations {
    aa: f64,
    ab: f64,
    bb: f64,
    a_error: f64,
    b_error: f64,
}

impl NormalEquations {
    fn new(observations: &[Observation], a: f64, b: f64) -> NormalEquations {
        let mut sums = NormalEquations::default();
        for seen in observations {
            let (of_latency, of_bandwidth) = ((1.0 - seen.share) * seen.more.powf(a), seen.share * seen.more.powf(b));
            let total = of_latency + of_bandwidth;
            let error = seen.log_slower - total.ln();
            let weight = 1.0 / (1.0 + (error / SOFT).powi(2)).sqrt();
            let (da, db) = (of_latency * seen.more.ln() / total, of_bandwidth * seen.more.ln() / total);
            sums.aa += weight * da * da;
            sums.ab += weight * da * db;
            sums.bb += weight * db * db;
            sums.a_error += weight * da * error;
            sums.b_error += weight * db * error;
        }
        sums
    }

    /// The step of one exponent for both parts.
    fn one_step(&self) -> f64 {
        let square = self.aa + 2.0 * self.ab + self.bb;
        if square > 0.0 { (self.a_error + self.b_error) / square } else { 0.0 }
    }

    /// The step of each exponent.
    fn two_steps(&self) -> (f64, f64) {
        let NormalEquations { aa, ab, bb, a_error, b_error } = *self;
        // Slight damping (Levenberg), for exponents that the observations hardly separate.
        let damping = 1e-6 * (aa + bb);
        let (aa, bb) = (aa + damping, bb + damping);
        let determinant = aa * bb - ab * ab;
        if determinant <= 0.0 {
            return (0.0, 0.0);
        }
        let limited = |step: f64| step.clamp(-0.5, 0.5);
        (limited((bb * a_error - ab * b_error) / determinant), limited((aa * b_error - ab * a_error) / determinant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observations(a: f64, b: f64, shares: &[f64], more: &[f64]) -> Vec<Observation> {
        let truth = Sharing { latency: Some(a), bandwidth: Some(b) };
        let seen =
            |more: f64, share: f64| Observation { more, share, log_slower: truth.slower(more, share).unwrap().ln() };
        more.iter().flat_map(|more| shares.iter().map(|share| seen(*more, *share))).collect()
    }

    #[test]
    fn an_exponent_that_the_data_do_not_determine_is_none() {
        assert!(Sharing::of(&[]).is_none());
        assert!(Sharing::of(&observations(0.2, 0.8, &[0.5], &[1.0])).is_none(), "never more groups than one");
        let large_only = Sharing::of(&observations(0.2, 0.8, &[0.9, 0.99], &[2.0, 4.0])).unwrap();
        assert_eq!(large_only.latency, None);
        assert!((large_only.bandwidth.unwrap() - 0.8).abs() < 0.05, "{large_only:?}");
        assert_eq!(large_only.slower(2.0, 0.1), None, "a small call is another matter");
        assert!(large_only.slower(2.0, 0.9).is_some());
    }

    #[test]
    fn the_true_exponents_are_found_despite_outliers() {
        for (a, b) in [(0.0, 0.0), (0.1, 1.0), (0.3, 0.77), (0.0, 0.5), (0.5, 0.0)] {
            let mut seen = observations(a, b, &[0.01, 0.1, 0.3, 0.6, 0.9, 0.99], &[2.0, 4.0, 8.0]);
            seen[4].log_slower += 1.5;
            let found = Sharing::of(&seen).unwrap();
            assert!((found.latency.unwrap() - a).abs() < 0.03, "{a}, {b}: {found:?}");
            assert!((found.bandwidth.unwrap() - b).abs() < 0.03, "{a}, {b}: {found:?}");
        }
    }
}
