//! Which part of a curve changed: latency, bandwidth, or both.
//!
//! Alpha and beta of a curve are fitted for each replicate, starting from the lines of all replicates together, and go into
//! the same test as the rows. A replicate needs all sizes, so a curve takes the rows that have equal numbers of replicates.

use super::curve_change::{CurveChange, CurvePart};
use super::evidence::ComparedRow;
use super::permutation::{ReplicateCounts, Sides};
use crate::cost::curve::{Envelope, Line, Point};
use commgauge_base::stats::{RankSums, Span, median, sorted};
use commgauge_model::record::line::CaseFacts;
use std::collections::BTreeMap;

/// Minimum number of sizes of a curve.
const MIN_SIZES: usize = 3;
/// More sizes do not improve alpha and beta; a longer curve is thinned to every second, third ... size.
const MAX_SIZES: usize = 64;
/// Alpha (or beta) is tested only where it makes up at least this share of the time at the outermost size.
const SEEN: f64 = 0.5;

/// One part of a curve (alpha or beta) in every replicate.
pub(super) struct Series {
    name: String,
    cases: usize,
    part: CurvePart,
    pub sides: Sides,
}

/// One size of a curve.
struct TimesOfSize {
    bytes: u64,
    /// Of each replicate that was measured.
    base: Vec<f64>,
    new: Vec<f64>,
}

/// The curves of the rows that both runs have.
pub(super) fn series(rows: &[ComparedRow]) -> Vec<Series> {
    let mut curves: BTreeMap<String, BTreeMap<ReplicateCounts, Vec<TimesOfSize>>> = BTreeMap::new();
    for ComparedRow { new, base } in rows {
        let Some((base, facts)) = base.zip(new.subject.call()) else { continue };
        if facts.bytes_total.0 > 0 && facts.splits.is_none() {
            let measured = |seconds: &[Option<f64>]| seconds.iter().flatten().copied().collect::<Vec<f64>>();
            let (base, new) = (measured(&base.seconds), measured(&new.seconds));
            let counts = ReplicateCounts { base: base.len(), new: new.len() };
            let point = TimesOfSize { bytes: facts.bytes_total.0, base, new };
            curves.entry(curve_name(facts)).or_default().entry(counts).or_default().push(point);
        }
    }
    let most = |of_curve: BTreeMap<ReplicateCounts, Vec<TimesOfSize>>| {
        of_curve.into_iter().max_by_key(|(_, points)| points.len())
    };
    let curves = curves.into_iter().filter_map(|(name, of_curve)| Some((name, most(of_curve)?)));
    curves.flat_map(|(name, (counts, points))| of_curve(&name, counts, points)).collect()
}

fn of_curve(name: &str, counts: ReplicateCounts, mut points: Vec<TimesOfSize>) -> Vec<Series> {
    points.sort_by_key(|point| point.bytes);
    points.dedup_by_key(|point| point.bytes);
    let every = points.len().div_ceil(MAX_SIZES).max(1);
    let points: Vec<TimesOfSize> = points.into_iter().step_by(every).collect();
    let both = |point: &TimesOfSize| sorted(point.base.iter().chain(&point.new).copied());
    let typical = |point: &TimesOfSize| Some(Point::new(point.bytes as f64, median(&both(point))?));
    let middle: Option<Vec<Point>> = points.iter().map(typical).collect();
    let Some(middle) = middle.filter(|points| points.len() >= MIN_SIZES) else { return Vec::new() };
    let Some(envelope) = Envelope::of(&middle) else { return Vec::new() };
    let limits = |replicates: usize, seconds: fn(&TimesOfSize) -> &[f64]| -> Option<Vec<_>> {
        (0..replicates)
            .map(|replicate| {
                let point = |point: &TimesOfSize| Some(Point::new(point.bytes as f64, *seconds(point).get(replicate)?));
                let own: Option<Vec<Point>> = points.iter().map(point).collect();
                Some(envelope.refitted(&own?)?.limits())
            })
            .collect()
    };
    let of_both = limits(counts.base, |point| &point.base).zip(limits(counts.new, |point| &point.new));
    let Some((base, new)) = of_both else { return Vec::new() };
    let [first, last] = [middle[0], middle[middle.len() - 1]];
    let of = |part, share: f64, value: fn(&Line) -> f64| {
        let sound = share >= SEEN && base.iter().chain(&new).all(|limits| value(limits) > 0.0);
        let logarithms = |side: &[Line]| side.iter().map(|limits| value(limits).ln()).collect();
        let sides = Sides { base: logarithms(&base), new: logarithms(&new), run: None };
        sound.then(|| Series { name: name.to_owned(), cases: points.len(), part, sides })
    };
    let whole = envelope.limits();
    let latency = of(CurvePart::Latency, whole.alpha_seconds / first.seconds, |limits| limits.alpha_seconds);
    let beta = whole.beta_seconds_per_byte * last.bytes / last.seconds;
    let bandwidth = of(CurvePart::Bandwidth, beta, |limits| limits.beta_seconds_per_byte);
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
    pub fn change(&self, p: f64, level: f64, relevant: f64, ranks: &mut RankSums) -> Option<CurveChange> {
        let (before, after) = (sorted(self.sides.base.iter().copied()), sorted(self.sides.new.iter().copied()));
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
