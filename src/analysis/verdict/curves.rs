//! Which part of a curve changed: latency, bandwidth, or both.
//!
//! Alpha and beta of a curve are fitted for each replicate, starting from the lines of all replicates together, and go into
//! the same test as the rows.

use super::curve_change::{CurveChange, CurvePart};
use super::evidence::ComparedRow;
use crate::cost::curve::{Envelope, Point};
use commgauge_base::stats::{RankSums, Span, median, sorted};
use commgauge_model::record::line::CaseFacts;
use std::collections::BTreeMap;

/// Minimum number of sizes of a curve.
const MIN_SIZES: usize = 3;
/// More sizes do not improve alpha and beta; a longer curve is thinned to every second, third ... size.
const MAX_SIZES: usize = 64;
/// Alpha (or beta) is tested only where it makes up at least this share of the time at the outermost size.
const SEEN: f64 = 0.5;

/// One part of a curve (alpha or beta) per replicate: first the base, then the new run.
pub(super) struct Series {
    name: String,
    cases: usize,
    part: CurvePart,
    /// Logarithms of alpha, or of beta.
    pub logarithms: Vec<f64>,
}

/// One size of a curve.
struct TimesOfSize {
    bytes: u64,
    /// Of each replicate: first the base, then the new run.
    seconds: Vec<f64>,
}

/// The curves that are complete in both runs.
pub(super) fn series(rows: &[ComparedRow]) -> Vec<Series> {
    let mut curves: BTreeMap<String, Vec<TimesOfSize>> = BTreeMap::new();
    for ComparedRow { new, base } in rows {
        let Some((base, facts)) = base.zip(new.subject.call()) else { continue };
        let seconds: Option<Vec<f64>> = base.seconds.iter().chain(&new.seconds).copied().collect();
        if let Some(seconds) = seconds.filter(|_| facts.bytes_total.0 > 0 && facts.splits.is_none()) {
            let point = TimesOfSize { bytes: facts.bytes_total.0, seconds };
            curves.entry(curve_name(facts)).or_default().push(point);
        }
    }
    curves.into_iter().flat_map(|(name, points)| of_curve(&name, points)).collect()
}

fn of_curve(name: &str, mut points: Vec<TimesOfSize>) -> Vec<Series> {
    points.sort_by_key(|point| point.bytes);
    points.dedup_by_key(|point| point.bytes);
    let every = points.len().div_ceil(MAX_SIZES).max(1);
    let points: Vec<TimesOfSize> = points.into_iter().step_by(every).collect();
    let typical =
        |point: &TimesOfSize| Some(Point::new(point.bytes as f64, median(&sorted(point.seconds.iter().copied()))?));
    let middle: Option<Vec<Point>> = points.iter().map(typical).collect();
    let Some(middle) = middle.filter(|points| points.len() >= MIN_SIZES) else { return Vec::new() };
    let Some(envelope) = Envelope::of(&middle) else { return Vec::new() };
    let limits: Option<Vec<_>> = (0..points[0].seconds.len())
        .map(|replicate| {
            let own: Vec<Point> =
                points.iter().map(|point| Point::new(point.bytes as f64, point.seconds[replicate])).collect();
            Some(envelope.refitted(&own)?.limits())
        })
        .collect();
    let Some(limits) = limits else { return Vec::new() };
    let [first, last] = [middle[0], middle[middle.len() - 1]];
    let of = |part, share: f64, values: Vec<f64>| {
        let sound = share >= SEEN && values.iter().all(|value| *value > 0.0);
        let logarithms = values.iter().map(|value| value.ln()).collect();
        sound.then(|| Series { name: name.to_owned(), cases: points.len(), part, logarithms })
    };
    let whole = envelope.limits();
    let alphas = limits.iter().map(|line| line.alpha_seconds).collect();
    let betas = limits.iter().map(|line| line.beta_seconds_per_byte).collect();
    let latency = of(CurvePart::Latency, whole.alpha_seconds / first.seconds, alphas);
    let bandwidth = of(CurvePart::Bandwidth, whole.beta_seconds_per_byte * last.bytes / last.seconds, betas);
    latency.into_iter().chain(bandwidth).collect()
}

/// The common name of the cases of a curve, with `*` in place of the bytes.
fn curve_name(facts: &CaseFacts) -> String {
    let bytes = facts.bytes_total.0.to_string();
    let parts: Vec<&str> = facts.name.split('/').map(|part| if part == bytes { "*" } else { part }).collect();
    if parts.contains(&"*") {
        return parts.join("/");
    }
    format!("{}/{}/*/{}/{}", facts.axis, facts.collective, facts.placement, facts.cadence)
}

impl Series {
    /// The change of this part, given its corrected probability `p`.
    pub fn change(&self, base: usize, p: f64, level: f64, relevant: f64, ranks: &mut RankSums) -> Option<CurveChange> {
        let (before, after) = self.logarithms.split_at(base.min(self.logarithms.len()));
        let (before, after) = (sorted(before.iter().copied()), sorted(after.iter().copied()));
        let shift = ranks.shift(&before, &after, 1.0 - level)?;
        let Span { middle: slowdown, interval } = shift.map(f64::exp_m1);
        Some(CurveChange {
            name: self.name.clone(),
            cases: self.cases as u32,
            part: self.part,
            base: median(&before)?.exp(),
            new: median(&after)?.exp(),
            slowdown,
            slowdown_lower_bound: interval.map(|interval| interval.low),
            slowdown_upper_bound: interval.map(|interval| interval.high),
            p_corrected: p,
            worse: p <= level && slowdown >= relevant,
        })
    }
}
