//! Intervals of alpha and beta: the envelope fitted again to resampled measurements (Efron and Tibshirani, "An
//! Introduction to the Bootstrap", 1993, chapters 9 and 13).
//!
//! Replicates are resampled, never iterations. Seeded, so that the same records give the same intervals.

use super::Measured;
use super::coefficient::{middle_95, pick};
use super::curve::{Cleaned, Envelope, Point, combined};
use super::document::IntervalsFrom;
use commgauge_base::stats::Interval;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

const SEED: u64 = 0x5eed_0fa1_fa0b;
/// Minimum number of replicates for an interval.
const MIN_REPLICATES: usize = 3;
/// Minimum number of points for a refit of the lines.
const MIN_POINTS: usize = 4;

/// 95 % intervals of alpha, of beta, and of the breakpoints between lines.
pub(super) struct Intervals {
    pub alpha_seconds: Interval,
    pub beta_seconds_per_byte: Interval,
    /// Intervals of the breakpoints; `None` where too few refits have as many.
    pub breakpoints: Vec<Option<Interval>>,
    pub from: IntervalsFrom,
}

/// The intervals of an envelope that was fitted to cleaned points of these measurements; `None` with too few points.
pub(super) fn intervals(
    measured: &Measured,
    cleaned: &Cleaned,
    fitted: &Envelope,
    resamples: u32,
) -> Option<Intervals> {
    if cleaned.points.len() < MIN_POINTS || resamples < 40 {
        return None;
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let replicated = measured.values().filter(|values| values.len() >= MIN_REPLICATES).count();
    let from = if 2 * replicated >= measured.len() { IntervalsFrom::Replicates } else { IntervalsFrom::Residuals };
    let residuals: Vec<f64> = cleaned.points.iter().map(|at| (at.seconds / fitted.seconds(at.bytes)).ln()).collect();
    // Residuals of a fit are smaller than the errors, by the degrees of freedom of the lines.
    let freedom = cleaned.points.len().saturating_sub(2 * fitted.lines().len()).max(1);
    let widened = (cleaned.points.len() as f64 / freedom as f64).sqrt();
    let (mut alphas, mut betas) = (Vec::new(), Vec::new());
    let mut breakpoints: Vec<Vec<f64>> = vec![Vec::new(); fitted.breakpoints().len()];
    for _ in 0..resamples {
        let points: Vec<Point> = match from {
            IntervalsFrom::Replicates => {
                let drawn = measured.iter().filter_map(|(bytes, values)| {
                    let sample: Vec<f64> = values.iter().map(|_| *pick(values, &mut random)).collect();
                    Some(Point::new(*bytes as f64, combined(&sample)?))
                });
                Cleaned::of(&drawn.collect::<Vec<_>>()).points
            }
            IntervalsFrom::Residuals => {
                let moved = |at: &Point| {
                    let factor = (widened * pick(&residuals, &mut random)).exp();
                    Point::new(at.bytes, fitted.seconds(at.bytes) * factor)
                };
                cleaned.points.iter().map(moved).collect()
            }
        };
        let Some(refitted) = fitted.refitted(&points) else { continue };
        alphas.push(refitted.limits().alpha_seconds);
        betas.push(refitted.limits().beta_seconds_per_byte);
        let moved = refitted.breakpoints();
        if moved.len() == breakpoints.len() {
            breakpoints.iter_mut().zip(moved).for_each(|(all, bytes)| all.push(bytes));
        }
    }
    Some(Intervals {
        alpha_seconds: middle_95(alphas)?,
        beta_seconds_per_byte: middle_95(betas)?,
        breakpoints: breakpoints.into_iter().map(middle_95).collect(),
        from,
    })
}
