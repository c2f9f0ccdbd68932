//! From measurements to a fit: every curve with its intervals and its held-out errors, then every family.

use super::coefficient::{middle_95, pick};
use super::curve::{Cleaned, Curve, Envelope, Interpolant, OUTLIER, Point, combined};
use super::document::{
    Breakpoint, CurveFit, FORMAT, FamilyFit, Fit, Fitted, HeldOut, IntervalsFrom, LeftOut, LoneCall, PointFit,
    RegimeErrors, VERSION, score_of_group,
};
use super::errors::{Errors, PredictionPair, Regime};
use super::sharing::Scaling;
use super::{CurveKey, FamilyKey, Measured, Measurements, coefficient, contention, document, measured, sharing};
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::Interval;
use commgauge_base::units::{Bytes, Rate, Seconds, counted};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Mean held-out error above which a curve is marked as untrusted.
pub(super) const UNTRUSTED: f64 = 0.10;

/// Minimum number of sizes for leaving one out and predicting it from both sides.
const MIN_SIZES_FOR_HOLDOUT: usize = 5;

/// Minimum number of sizes for leaving some out at the ends.
const MIN_SIZES_FOR_EXTRAPOLATION: usize = 6;

/// Options of a fit that do not come from the records.
#[derive(Clone, Copy, Debug)]
pub struct FitOptions {
    /// Resamples behind the intervals; none below 40.
    pub resamples: u32,
    /// Network adapters of a node; contention across nodes is then counted per adapter.
    pub adapters_per_node: Option<u32>,
}

impl Default for FitOptions {
    fn default() -> Self {
        FitOptions { resamples: 200, adapters_per_node: None }
    }
}

/// Fits all curves.
///
/// # Errors
/// A usage error if nothing was measured.
pub fn fit(measurements: &Measurements, options: FitOptions) -> Result<Fit> {
    let mut warnings = measurements.warnings.clone();
    let mut lone: Vec<LoneMember> = Vec::new();
    let fitted: Vec<Option<Fitted>> =
        measurements.curves.par_iter().map(|(key, measured)| fit_curve(key, measured, options)).collect();
    let curves: Vec<Fitted> = fitted
        .into_iter()
        .zip(&measurements.curves)
        .filter_map(|(fitted, (key, measured))| {
            warnings.extend(curve_warning(key, measured, fitted.as_ref()));
            if fitted.is_none() {
                let calls = measured::calls(key.ranks, measured);
                lone.extend(calls.into_iter().map(|call| LoneMember { family: &key.family, call }));
            }
            fitted
        })
        .collect();
    if curves.is_empty() && lone.is_empty() {
        let why = warnings.last().map_or_else(|| "the records contain no times".to_owned(), String::clone);
        return Err(Error::usage(format!("there is nothing to fit: {why}")));
    }
    let pairs: Vec<LeftOut> = curves.iter().flat_map(|fitted| fitted.left_out.iter().copied()).collect();
    let mut scores: Vec<_> = curves.iter().flat_map(|fitted| document::scores_of_ends(&fitted.points)).collect();
    scores.extend(pairs.iter().map(|pair| pair.score));
    let families = families(curves, lone);
    let left_out: Vec<_> = families.iter().flat_map(|(_, pairs)| pairs.iter().copied()).collect();
    scores.extend(left_out.iter().map(|pair| pair.score));
    let held_out = HeldOut {
        sizes: errors_of(&pairs, None),
        regimes: by_regime(&pairs),
        group_sizes: Errors::of(left_out.iter().map(|pair| pair.seconds)),
        margins: document::margins(&scores),
    };
    let contention = contention::contention(measurements, options);
    Ok(Fit {
        format: FORMAT.to_owned(),
        version: VERSION,
        synthetic: measurements.synthetic,
        sources: measurements.sources.clone(),
        families: families.into_iter().map(|(family, _)| family).collect(),
        contention,
        interference: coefficient::interference(&measurements.interference, options.resamples),
        overlap: coefficient::overlap(&measurements.replayed, options.resamples),
        both_ways: coefficient::both_ways(&measurements.exchanged, options.resamples),
        held_out,
        warnings,
    })
}

fn fit_curve(key: &CurveKey, measured: &Measured, options: FitOptions) -> Option<Fitted> {
    let combine = |(bytes, values): (&u64, &Vec<f64>)| Some(Point::new(*bytes as f64, combined(values)?));
    let points: Vec<Point> = measured.iter().filter_map(combine).collect();
    let (curve, cleaned) = Curve::of(&points)?;
    let limits = curve.envelope.limits();
    let intervals = intervals(measured, &cleaned, &curve.envelope, options.resamples);
    let rate = |beta: f64| (beta > 0.0).then(|| Rate(1.0 / beta));
    let beta = intervals.as_ref().map(|intervals| intervals.beta_seconds_per_byte);
    let alpha = intervals.as_ref().map(|intervals| intervals.alpha_seconds);
    let left_out = left_out_sizes(&points);
    let held_out_sizes = errors_of(&left_out, None);
    let document = CurveFit {
        ranks: key.ranks,
        points: point_fits(measured, &points, &cleaned, &left_out),
        envelope: curve.envelope.lines().to_vec(),
        breakpoints: breakpoints(&curve.envelope, intervals.as_ref()),
        alpha_seconds: Seconds(limits.alpha_seconds),
        alpha_seconds_low: alpha.map(|alpha| Seconds(alpha.low)),
        alpha_seconds_high: alpha.map(|alpha| Seconds(alpha.high)),
        bytes_per_second: rate(limits.beta_seconds_per_byte),
        bytes_per_second_low: beta.and_then(|beta| rate(beta.high)),
        bytes_per_second_high: beta.and_then(|beta| rate(beta.low)),
        intervals_from: intervals.map(|intervals| intervals.from),
        held_out_sizes,
        held_out_regimes: by_regime(&left_out),
        extrapolation_error: extrapolation_error(&points),
        untrusted: held_out_sizes.is_some_and(|errors| errors.mean > UNTRUSTED),
    };
    Some(Fitted { key: key.clone(), document, curve, points, left_out })
}

fn breakpoints(envelope: &Envelope, intervals: Option<&Intervals>) -> Vec<Breakpoint> {
    let interval = |index: usize| intervals.and_then(|found| found.breakpoints.get(index).copied().flatten());
    let one = |(index, bytes_total)| Breakpoint {
        bytes_total,
        low: interval(index).map(|interval| interval.low),
        high: interval(index).map(|interval| interval.high),
    };
    envelope.breakpoints().into_iter().enumerate().map(one).collect()
}

fn point_fits(measured: &Measured, points: &[Point], cleaned: &Cleaned, left_out: &[LeftOut]) -> Vec<PointFit> {
    let on_curve =
        |bytes: f64| cleaned.points.iter().find(|point| point.bytes == bytes).map(|point| Seconds(point.seconds));
    points
        .iter()
        .zip(measured)
        .map(|(&Point { bytes, seconds }, (total, replicates))| PointFit {
            bytes_total: Bytes(*total),
            measured_seconds: Seconds(seconds),
            curve_seconds: on_curve(bytes),
            replicates: replicates.len() as u32,
            replicates_disturbed: replicates.iter().filter(|own| **own > seconds * (1.0 + OUTLIER)).count() as u32,
            left_out_error: left_out
                .iter()
                .find(|left_out| left_out.bytes == bytes)
                .map(|left_out| left_out.seconds.error()),
            outlier: cleaned.outliers.contains(&bytes),
        })
        .collect()
}

/// Predicts every inner size from the others, leaving out every second one, in two passes.
fn left_out_sizes(points: &[Point]) -> Vec<LeftOut> {
    if points.len() < MIN_SIZES_FOR_HOLDOUT {
        return Vec::new();
    }
    let mut pairs = Vec::with_capacity(points.len());
    for phase in [1, 0] {
        let is_out = |index: usize| index % 2 == phase && index > 0 && index + 1 < points.len();
        let part = |out: bool| {
            points.iter().enumerate().filter(move |(index, _)| is_out(*index) == out).map(|(_, point)| *point)
        };
        let curve = Interpolant::new(&Cleaned::of(&part(false).collect::<Vec<_>>()).points);
        pairs.extend(part(true).map(|point @ Point { bytes, seconds }| LeftOut {
            bytes,
            seconds: PredictionPair { predicted: curve.seconds(bytes), measured: seconds },
            score: document::score_inside(&curve, point),
        }));
    }
    pairs
}

/// Leaves two sizes out at either end and predicts them.
fn extrapolation_error(points: &[Point]) -> Option<f64> {
    if points.len() < MIN_SIZES_FOR_EXTRAPOLATION {
        return None;
    }
    let (head, rest) = points.split_at(2);
    let (most, tail) = points.split_at(points.len() - 2);
    let error = |remaining: &[Point], out: &[Point]| {
        let cleaned = Cleaned::of(remaining).points;
        let curve = Curve::new(&cleaned, Envelope::of(&cleaned)?)?;
        out.iter().map(|point| (curve.seconds(point.bytes) / point.seconds - 1.0).abs()).reduce(f64::max)
    };
    Some(error(rest, head)?.max(error(most, tail)?))
}

fn errors_of(pairs: &[LeftOut], regime: Option<Regime>) -> Option<Errors> {
    let wanted = |bytes: f64| regime.is_none_or(|regime| Regime::of(Bytes(bytes as u64)) == regime);
    Errors::of(pairs.iter().filter(|pair| wanted(pair.bytes)).map(|pair| pair.seconds))
}

fn by_regime(pairs: &[LeftOut]) -> Vec<RegimeErrors> {
    let errors = |regime| Some(RegimeErrors { regime, errors: errors_of(pairs, Some(regime))? });
    Regime::ALL.into_iter().filter_map(errors).collect()
}

/// A warning about a curve, or why it could not be fitted.
fn curve_warning(key: &CurveKey, measured: &Measured, fitted: Option<&Fitted>) -> Option<String> {
    let family = &key.family;
    let types = family.element_type.map_or_else(String::new, |element| format!(" of {element}"));
    let name = format!("{}{types} on {} ranks, locality {}", family.collective, key.ranks, family.place);
    let Some(fitted) = fitted else {
        return Some(format!(
            "{name}: {} measured, a curve needs two: it only answers for that size",
            counted(measured.len(), "size")
        ));
    };
    let errors = fitted.document.held_out_sizes;
    match (errors, fitted.document.untrusted, fitted.document.bytes_per_second) {
        (Some(errors), true, _) => Some(format!(
            "{name}: held-out error {:.1} % on average, over 10 %; do not plan with it",
            100.0 * errors.mean
        )),
        (_, _, None) => Some(format!("{name}: more bytes do not take longer, so its bandwidth is unknown")),
        (None, ..) => {
            Some(format!("{name}: {} sizes, too few to estimate the error by leaving some out", measured.len()))
        }
        _ => None,
    }
}

// Intervals of alpha and beta: the envelope fitted again to resampled measurements (Efron and Tibshirani, "An
// Introduction to the Bootstrap", 1993, chapters 9 and 13).
//
// Replicates are resampled, never iterations. Seeded, so that the same records give the same intervals.

const SEED: u64 = 0x5eed_0fa1_fa0b;

/// Minimum number of replicates for an interval.
const MIN_REPLICATES: usize = 3;

/// Minimum number of points for a refit of the lines.
const MIN_POINTS: usize = 4;

/// 95 % intervals of alpha, of beta, and of the breakpoints between lines.
pub(super) struct Intervals {
    pub alpha_seconds: Interval,
    pub beta_seconds_per_byte: Interval,
    /// Intervals of the breakpoints; `None` if too few refits have as many.
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
    // Residuals of a fit are smaller than errors, by the degrees of freedom of the lines.
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

// Curves that differ only in the size of the group: the scaling form that suits them best, and its errors.

/// The times at the left-out group sizes.
type Pairs = Vec<LeftOut>;

/// A measured call without a curve, and its family.
pub(super) struct LoneMember<'a> {
    pub family: &'a FamilyKey,
    pub call: LoneCall,
}

/// The families of some curves, and the pairs behind their errors.
pub(super) fn families(curves: Vec<Fitted>, lone: Vec<LoneMember>) -> Vec<(FamilyFit, Pairs)> {
    let mut by_family: BTreeMap<FamilyKey, Members> = BTreeMap::new();
    for fitted in curves {
        by_family.entry(fitted.key.family.clone()).or_default().curves.push(fitted);
    }
    for LoneMember { family, call } in lone {
        by_family.entry(family.clone()).or_default().lone.push(call);
    }
    by_family.into_iter().map(|(key, members)| family(key, members)).collect()
}

/// Measurements of a family.
#[derive(Default)]
struct Members {
    curves: Vec<Fitted>,
    lone: Vec<LoneCall>,
}

/// The form with the smallest mean error at the inner group sizes, each left out once; a ring if none can be left out.
fn family(key: FamilyKey, members: Members) -> (FamilyFit, Pairs) {
    let Members { curves, lone } = members;
    let tried = Scaling::ALL.into_iter().filter_map(|scaling| {
        let pairs = left_out_group_sizes(&curves, scaling);
        Some((Errors::of(pairs.iter().map(|pair| pair.seconds))?, scaling, pairs))
    });
    let best = tried.min_by(|a, b| a.0.mean.total_cmp(&b.0.mean));
    let (errors, scaling, pairs) =
        best.map_or((None, Scaling::Ring, Vec::new()), |(errors, scaling, pairs)| (Some(errors), scaling, pairs));
    let documents = curves.into_iter().map(|fitted| fitted.document).collect();
    (FamilyFit { key, scaling, held_out_group_sizes: errors, curves: documents, lone }, pairs)
}

fn left_out_group_sizes(curves: &[Fitted], scaling: Scaling) -> Pairs {
    let mut pairs = Vec::new();
    for around in curves.windows(3) {
        let [below, out, above] = around else { continue };
        let measured = [below.document.ranks, above.document.ranks];
        pairs.extend(out.points.iter().map(|&Point { bytes, seconds }| {
            let predicted = sharing::with_difficulty(scaling, measured, out.document.ranks, bytes, |which, bytes| {
                [below, above][which].curve.seconds(bytes)
            });
            LeftOut {
                bytes,
                seconds: PredictionPair { predicted: predicted.seconds, measured: seconds },
                score: score_of_group(predicted, seconds),
            }
        }));
    }
    pairs
}
