//! How the time of a call grows with the groups that share a node's links: the law, and the fit of its two exponents.
//!
//! A call costs alpha + beta bytes. With x times as many groups at once its latency part grows by x^a and its
//! bandwidth part by x^b:
//!
//! ```text
//! T_x(S) = T_1(S) ((1 - s) x^a + s x^b)          s = beta S / (alpha + beta S), the share of bandwidth in T_1
//! ```
//!
//! b is 0 if every group has its own links and 1 if all share one rate, of which each gets 1/x. In between, a single group does not
//! saturate the shared link. This module is independent of records and curves.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Error in log time from which on a point counts less than squared (soft L1), as in the fit of curves.
const SOFT: f64 = 0.05;

/// Bounds of an exponent. Beyond them a call would be slower than all groups in sequence, or much faster with more groups.
const MIN_EXPONENT: f64 = -1.0;

const MAX_EXPONENT: f64 = 3.0;

/// A part is determined only if it makes up this share of some time.
const MIN_SHARE: f64 = 0.5;

/// The time with more groups relative to the time with the fewest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Observation {
    /// Factor on the number of groups.
    pub more: f64,
    /// Share of bandwidth in the time with the fewest groups.
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
            // If they cannot be distinguished both take the same step.
            let step = if both { equations.two_steps() } else { [equations.one_step(); 2].into() };
            (a, b) = ((a + step.0).clamp(MIN_EXPONENT, MAX_EXPONENT), (b + step.1).clamp(MIN_EXPONENT, MAX_EXPONENT));
            if step.0.abs() + step.1.abs() < 1e-9 {
                break;
            }
        }
        Some(Sharing { latency: latency.then_some(a), bandwidth: bandwidth.then_some(b) })
    }

    /// Slowdown factor with `more` times as many groups, where bandwidth makes up `share` of its time. `None` if that part is unknown.
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
        // Slight damping (Levenberg), for exponents that the observations barely separate.
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

// Predicts unmeasured group sizes from measured ones.
//
// In a ring over n ranks every step moves one chunk of S / n bytes: T = c + steps(n) (alpha + beta S / n), steps being n - 1 for all_gather
// and reduce_scatter and 2 (n - 1) for all_reduce (Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
// MPICH", 2005). A pairwise all_to_all has n - 1 such exchanges. For one chunk the time is therefore a straight line in n, and so is the
// size of a protocol switch, which depends on the chunk. A tree has log2 n levels that each move the whole buffer: for one S a straight
// line in log2 n.

/// Factor beyond the measured group sizes up to which predictions are made, in either direction.
pub const MAX_EXTRAPOLATION: u32 = 2;

/// What stays constant when the group grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scaling {
    /// Steps of one chunk each: for one chunk, a line in n.
    Ring,
    /// Levels: for one buffer, a line in log2 n.
    Tree,
}

impl Scaling {
    /// Every form.
    pub const ALL: [Scaling; 2] = [Scaling::Ring, Scaling::Tree];
}

/// The two measured group sizes to use for `ranks`: its neighbours, or the two outermost on its side. `None` with
/// fewer than two, or farther outside than [`MAX_EXTRAPOLATION`] times.
pub fn neighbours(measured: &[u32], ranks: u32) -> Option<(usize, usize)> {
    let (first, last) = (*measured.first()?, *measured.last()?);
    let outside =
        ranks > last.saturating_mul(MAX_EXTRAPOLATION) || ranks.saturating_mul(MAX_EXTRAPOLATION) < first || ranks < 2;
    if measured.len() < 2 || outside {
        return None;
    }
    let after = measured.partition_point(|size| *size < ranks).clamp(1, measured.len() - 1);
    Some((after - 1, after))
}

/// Seconds for `bytes` on `ranks` ranks, from two group sizes that were measured. `seconds` returns, for the first (0) or
/// the second (1) of them, the time of a size, at any distance from the measured ones.
pub fn seconds(
    scaling: Scaling,
    measured: [u32; 2],
    ranks: u32,
    bytes: f64,
    seconds: impl Fn(usize, f64) -> f64,
) -> f64 {
    let ([a, b], n) = (measured.map(f64::from), f64::from(ranks));
    let (at_a, at_b, way) = match scaling {
        Scaling::Ring => (seconds(0, bytes * a / n), seconds(1, bytes * b / n), (n - a) / (b - a)),
        Scaling::Tree => (seconds(0, bytes), seconds(1, bytes), (n / a).ln() / (b / a).ln()),
    };
    let line = at_a + way * (at_b - at_a);
    // Outside the measured group sizes noise can make the line fall; the result is limited to half of the smaller time.
    line.max(0.5 * at_a.min(at_b))
}

/// A time at an unmeasured group size, and its difficulty.
#[derive(Clone, Copy, Debug)]
pub struct GroupDifficulty {
    pub seconds: f64,
    /// Distance between ring and tree, in log time.
    pub forms: f64,
    /// In log time; errors are compared as shares of it.
    pub difficulty: f64,
}

/// [`seconds`], and their difficulty: if the form matters, the prediction is hard.
pub fn with_difficulty(
    scaling: Scaling,
    measured: [u32; 2],
    ranks: u32,
    bytes: f64,
    of: impl Fn(usize, f64) -> f64,
) -> GroupDifficulty {
    let by = |scaling: Scaling| seconds(scaling, measured, ranks, bytes, &of);
    let forms = (by(Scaling::Ring) / by(Scaling::Tree)).ln().abs();
    GroupDifficulty { seconds: by(scaling), forms, difficulty: 0.03 + forms }
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
    fn an_exponent_that_the_data_do_not_determine_is_absent() {
        assert!(Sharing::of(&[]).is_none());
        assert!(Sharing::of(&observations(0.2, 0.8, &[0.5], &[1.0])).is_none(), "never more groups than one");
        let large_only = Sharing::of(&observations(0.2, 0.8, &[0.9, 0.99], &[2.0, 4.0])).unwrap();
        assert_eq!(large_only.latency, None);
        assert!((large_only.bandwidth.unwrap() - 0.8).abs() < 0.05, "{large_only:?}");
        assert_eq!(large_only.slower(2.0, 0.1), None, "a small call differs");
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

    #[test]
    fn a_ring_is_extrapolated_to_any_group_size() {
        let ring = |ranks: f64, bytes: f64| 4e-6 + 2.0 * (ranks - 1.0) * (1.5e-6 + bytes / ranks / 100e9);
        for ranks in [3, 4, 6, 16] {
            for bytes in [1e3, 1e6, 1e9] {
                let measured = |which: usize, bytes: f64| ring([2.0, 8.0][which], bytes);
                let found = seconds(Scaling::Ring, [2, 8], ranks, bytes, measured);
                assert!((found / ring(f64::from(ranks), bytes) - 1.0).abs() < 1e-9, "{ranks}, {bytes}");
            }
        }
    }

    #[test]
    fn a_tree_is_extrapolated_to_any_group_size() {
        let tree = |ranks: f64, bytes: f64| ranks.log2() * (2e-6 + bytes / 50e9);
        let found = seconds(Scaling::Tree, [2, 16], 4, 1e6, |which, bytes| tree([2.0, 16.0][which], bytes));
        assert!((found / tree(4.0, 1e6) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_nearest_group_sizes_are_used_and_far_ones_refused() {
        for (measured, ranks, expected) in [
            (&[2, 4, 8][..], 3, Some((0, 1))),
            (&[2, 4, 8], 6, Some((1, 2))),
            (&[2, 4, 8], 16, Some((1, 2))),
            (&[2, 4, 8], 17, None),
            (&[8, 16], 4, Some((0, 1))),
            (&[8, 16], 3, None),
            (&[8], 4, None),
            (&[], 4, None),
        ] {
            assert_eq!(neighbours(measured, ranks), expected, "{measured:?}, {ranks}");
        }
    }
}
