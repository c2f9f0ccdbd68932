//! Judges changes between runs that have too few replicates for a permutation test, by the noise of the curves themselves.
//!
//! Neighbouring sizes and the two placements of a call change alike, so their differences are noise: its scale is estimated for each curve,
//! robustly. The reach of noise follows from the rows that deviate from their neighbours to the *fast* side: if nothing became slower, base
//! and new can be exchanged, and the slow side reaches as far. Beyond the outermost tenth the tail is assumed to fall as exp(-x^0.4),
//! slower than the tail of any bell curve, and the uncertainty of its few excesses is included.
//!
//! This noise does not contain what moves all rows of a run alike (its time, its hosts); only replicates show that.

use super::Decision;
use super::comparability::CompareRule;
use super::document::{AgainstBase, CurveChange, CurvePart, Row, percent};
use super::evidence::{ComparedRow, Evidence};
use super::expected::PLAINLY_BEYOND;
use super::gate::{cap_decision, undecided_row};
use super::permutation::{CountRanges, ReplicateCounts, Sides, fewest_for};
use commgauge_base::collective::Placement;
use commgauge_base::stats::{RankSums, Span, median, sorted};
use commgauge_cost::cost::curve::{Envelope, Line, Point};
use commgauge_model::record::line::CaseFacts;
use std::collections::BTreeMap;

/// With fewer rows the reach of noise is unknown.
const MIN_ROWS: usize = 20;

/// The outermost share of rows, whose excesses give the tail.
const TAIL_SHARE: f64 = 0.1;

const MIN_EXCESSES: usize = 5;

/// The power of x in the exponent of the tail.
const TAIL_POWER: f64 = 0.4;

/// From this many differences on, the scale of a curve weighs as much as the scale of all curves.
const HALF_TRUSTED: f64 = 10.0;

/// Converts a median of absolute differences to a standard deviation, for normal noise.
const TO_DEVIATION: f64 = 0.6745;

/// Minimum noise, as a share, for rows without any (a simulation, a coarse clock).
const MIN_NOISE: f64 = 0.0005;

/// A row on its curve.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NoisePoint {
    /// The call with everything that makes it one curve, except size and placement.
    pub curve: String,
    /// One of the two series of the curve.
    pub placement: Placement,
    pub bytes: u64,
    /// Logarithm of the new time over that of the base.
    pub change: f64,
}

/// The judgement of a row by the noise of its curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Judged {
    /// The change and its bounds at the confidence of one row, as logarithms.
    pub change: f64,
    pub low: f64,
    pub high: f64,
    /// Probability, corrected for all rows, that noise alone is as slow; and as fast.
    pub p_slower: f64,
    pub p_faster: f64,
}

/// Judges every row at a level; `None` with too few rows.
pub(super) fn judge(points: &[NoisePoint], level: f64) -> Option<Vec<Judged>> {
    if points.len() < MIN_ROWS {
        return None;
    }
    // Where most rows are plainly slower, what they differ by beyond that is no noise.
    let middle = median(&sorted(points.iter().map(|point| point.change)))?;
    let most = if middle > PLAINLY_BEYOND.ln() { PLAINLY_BEYOND.ln() } else { f64::INFINITY };
    let within = |point: &NoisePoint| NoisePoint { change: point.change.min(most), ..point.clone() };
    let noise: Vec<NoisePoint> = points.iter().map(within).collect();
    let mut curves: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, point) in noise.iter().enumerate() {
        curves.entry(&point.curve).or_default().push(index);
    }
    let differences: BTreeMap<&str, Vec<f64>> =
        curves.iter().map(|(name, rows)| (*name, scatter(&noise, rows))).collect();
    let scale_of =
        |differences: &[f64]| median(&sorted(differences.iter().copied())).map(|middle| middle / TO_DEVIATION);
    let common = scale_of(&differences.values().flatten().copied().collect::<Vec<_>>())?.max(MIN_NOISE);
    let mut scales = vec![common; points.len()];
    let mut residuals = Vec::new();
    for (name, rows) in &curves {
        let own = &differences[name];
        let trust = own.len() as f64 / (own.len() as f64 + HALF_TRUSTED);
        let scale = scale_of(own).unwrap_or(common);
        let scale = (trust * scale * scale + (1.0 - trust) * common * common).sqrt().max(common / 2.0);
        for row in rows {
            scales[*row] = scale;
            residuals.extend(usual(&noise, rows, *row).map(|usual| (noise[*row].change - usual) / scale));
        }
    }
    let tail = Tail::of(&residuals)?;
    // For one row alone, at the same level.
    let reach = tail.quantile(level);
    let judged = points.iter().zip(&scales).map(|(point, scale)| {
        let (change, half) = (point.change, reach * scale);
        Judged {
            change,
            low: change - half,
            high: change + half,
            p_slower: tail.p_of_any(change / scale),
            p_faster: tail.p_of_any(-change / scale),
        }
    });
    Some(judged.collect())
}

/// Differences between the changes of neighbouring sizes, and of the two placements of one size.
fn scatter(points: &[NoisePoint], rows: &[usize]) -> Vec<f64> {
    let mut of_size: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let mut found = Vec::new();
    for series in series(points, rows) {
        found.extend(series.windows(2).map(|pair| (points[pair[0]].change - points[pair[1]].change).abs()));
        for row in series {
            of_size.entry(points[row].bytes).or_default().push(points[row].change);
        }
    }
    found.extend(of_size.values().flat_map(|of_size| of_size.windows(2)).map(|pair| (pair[0] - pair[1]).abs()));
    // Each has two rows.
    found.iter().map(|difference| difference / std::f64::consts::SQRT_2).collect()
}

/// The rows of a curve by placement, each by size.
fn series(points: &[NoisePoint], rows: &[usize]) -> Vec<Vec<usize>> {
    let mut series: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    rows.iter().for_each(|row| series.entry(points[*row].placement.name()).or_default().push(*row));
    series.values_mut().for_each(|series| series.sort_by_key(|row| points[*row].bytes));
    series.into_values().collect()
}

/// The middle change of the neighbours of a row: two sizes on either side, and the other placement.
fn usual(points: &[NoisePoint], rows: &[usize], row: usize) -> Option<f64> {
    let own = &points[row];
    let mut near = Vec::new();
    for series in series(points, rows) {
        let Some(at) = series.iter().position(|other| *other == row) else {
            near.extend(series.iter().filter(|other| points[**other].bytes == own.bytes).copied());
            continue;
        };
        near.extend(series[at.saturating_sub(2)..at].iter().chain(series[at + 1..].iter().take(2)));
    }
    median(&sorted(near.into_iter().map(|other| points[other].change)))
}

/// The reach of noise, in scales.
#[derive(Clone, Debug)]
struct Tail {
    rows: f64,
    /// Residuals to the fast side, the farthest first.
    fast: Vec<f64>,
    excesses: f64,
    begins: f64,
    mean_excess: f64,
}

impl Tail {
    fn of(residuals: &[f64]) -> Option<Tail> {
        let fast = sorted(residuals.iter().filter(|residual| **residual <= 0.0).map(|residual| -residual));
        let fast: Vec<f64> = fast.into_iter().rev().collect();
        let excesses = ((TAIL_SHARE * residuals.len() as f64) as usize).max(MIN_EXCESSES);
        let begins = fast.get(excesses)?.powf(TAIL_POWER);
        let mean_excess =
            fast[..excesses].iter().map(|far| far.powf(TAIL_POWER) - begins).sum::<f64>() / excesses as f64;
        Some(Tail { rows: residuals.len() as f64, fast, excesses: excesses as f64, begins, mean_excess })
    }

    /// An upper bound of the probability that the noise of any row reaches this far: the expected number of rows that do. Excesses of an
    /// exponential tail whose mean is known from as many others follow a Pareto distribution.
    fn p_of_any(&self, far: f64) -> f64 {
        let excess = far.max(0.0).powf(TAIL_POWER) - self.begins;
        if excess <= 0.0 || self.mean_excess <= 0.0 {
            return if excess > 0.0 { 0.0 } else { 1.0 };
        }
        (self.excesses * (1.0 + excess / (self.excesses * self.mean_excess)).powf(-self.excesses)).min(1.0)
    }

    /// The value that the noise of one row exceeds to one side with this probability.
    fn quantile(&self, level: f64) -> f64 {
        let rank = (level * self.rows) as usize;
        self.fast.get(rank).or(self.fast.last()).copied().unwrap_or(f64::INFINITY)
    }
}

// Which part of a curve changed: latency, bandwidth, or both.
//
// Alpha and beta of a curve are fitted for each replicate, starting from the lines of all replicates together, and go into the same test as
// the rows. A replicate needs all sizes, so a curve uses the rows with equal numbers of replicates.

/// Minimum number of sizes of a curve.
const MIN_SIZES: usize = 3;

/// More sizes do not improve alpha and beta; a longer curve is thinned to every second, third ... size.
const MAX_SIZES: usize = 64;

/// Alpha (or beta) is tested only if it makes up at least this share of the time at the outermost size.
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
    /// For each measured replicate.
    base: Vec<f64>,
    new: Vec<f64>,
}

/// The curves of the rows that both runs have.
pub(super) fn curves_series(rows: &[ComparedRow]) -> Vec<Series> {
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

/// The common name of the cases of a curve, with `*` instead of the bytes.
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

// Rows compared by the noise of their curves, with too few replicates for a better test.

/// The judgement of each row; `None` for a row without a curve or not measured on both sides, and for all rows if there are too few.
pub(super) fn judged(rows: &[ComparedRow], level: f64) -> Option<Vec<Option<Judged>>> {
    let points: Vec<Option<NoisePoint>> = rows.iter().map(|row| point(row.new, row.base?)).collect();
    let mut judged = judge(&points.iter().flatten().cloned().collect::<Vec<_>>(), level)?.into_iter();
    Some(points.iter().map(|point| point.as_ref().and_then(|_| judged.next())).collect())
}

fn point(case: &Evidence, old: &Evidence) -> Option<NoisePoint> {
    let middle = |case: &Evidence| {
        let logarithms: Vec<f64> = case.seconds.iter().flatten().map(|seconds| seconds.ln()).collect();
        (!logarithms.is_empty()).then(|| logarithms.iter().sum::<f64>() / logarithms.len() as f64)
    };
    let facts = case.subject.call()?;
    let is_on_curve = facts.bytes_total.0 > 0 && facts.splits.is_none();
    let change = middle(case)? - middle(old)?;
    is_on_curve.then(|| NoisePoint {
        curve: curve_of(facts),
        placement: facts.placement,
        bytes: facts.bytes_total.0,
        change,
    })
}

/// The name of a row without its size and placement.
fn curve_of(facts: &CaseFacts) -> String {
    let (bytes, placement) = (facts.bytes_total.0.to_string(), facts.placement.name());
    let parts = facts.name.split('/').filter(|part| *part != bytes && *part != placement);
    format!("{} {} {}", facts.collective, facts.element_type, parts.collect::<Vec<_>>().join("/"))
}

/// A decided row.
pub(super) fn row(compared: &ComparedRow, judged: Option<Judged>, rule: &CompareRule) -> Row {
    let case = compared.new;
    let mut row = undecided_row(case);
    let Some(old) = compared.base else {
        row.reasons.push("the base lacks this row".to_owned());
        return row;
    };
    row.reasons.extend(old.shortfalls.iter().map(|shortfall| format!("in the base: {shortfall}")));
    let (decision, reason) = judged.map_or_else(
        || (Decision::Inconclusive, "it is on no curve with known noise".to_owned()),
        |judged| decide(judged, rule),
    );
    if !reason.is_empty() {
        row.reasons.insert(0, reason);
    }
    row.decision = Some(cap_decision(cap_decision(decision, case), old));
    let (before, after) = (old.measured(), case.measured());
    let is_faster =
        |judged: Judged| judged.p_faster <= rule.false_alarm_level && judged.change <= -rule.relevant_slowdown.ln_1p();
    row.against_base = Some(AgainstBase {
        replicates_base: before.len() as u32,
        latency_seconds_base: median(&before),
        latency_seconds_new: median(&after),
        slowdown: judged.map(|judged| judged.change.exp_m1()),
        slowdown_lower_bound: judged.map(|judged| judged.low.exp_m1()).filter(|bound| bound.is_finite()),
        slowdown_upper_bound: judged.map(|judged| judged.high.exp_m1()).filter(|bound| bound.is_finite()),
        p_row: None,
        p_corrected: judged.map(|judged| judged.p_slower),
        faster: judged.is_some_and(is_faster),
    });
    row
}

fn decide(judged: Judged, rule: &CompareRule) -> (Decision, String) {
    let relevant = rule.relevant_slowdown;
    let slowdown = judged.change.exp_m1();
    if judged.p_slower <= rule.false_alarm_level && slowdown >= relevant {
        return (Decision::Fail, format!("slower by {}, beyond the noise of its curve", percent(slowdown)));
    }
    if judged.high.exp_m1() < relevant {
        return (Decision::Pass, String::new());
    }
    let bound = percent(judged.high.exp_m1());
    let needed = fewest_for(rule.false_alarm_level);
    let more = format!(
        "it may be slower by {bound}, and {} is relevant; {needed} runs on each side would decide",
        percent(relevant)
    );
    (Decision::Inconclusive, more)
}

/// The rule, as sentences.
pub(super) fn describe_rule(rule: &CompareRule, counts: &CountRanges, rows: usize) -> Vec<String> {
    let (level, relevant) = (percent(rule.false_alarm_level), percent(rule.relevant_slowdown));
    vec![
        format!(
            "{counts} are too few for a test of each row, so the noise of its own curve judges a row: the differences between the changes of neighbouring sizes and of the two placements, over {rows} rows"
        ),
        format!(
            "a row fails if its slowdown is at least {relevant} and noise reaches as far in any row in at most {level} of comparisons; it passes if the upper bound of its slowdown is below {relevant}, and is inconclusive otherwise"
        ),
        format!(
            "this noise does not contain what moves a whole run (its time, its hosts): {} runs on each side at different times show more (--more-base, --more-new)",
            fewest_for(rule.false_alarm_level)
        ),
    ]
}

#[cfg(test)]
mod tests {

    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Curves of both placements whose changes are `noise`, in order of size.
    fn points(curves: usize, sizes: usize, mut noise: impl FnMut(usize) -> f64) -> Vec<NoisePoint> {
        let mut points = Vec::new();
        for curve in 0..curves {
            for size in 0..sizes {
                for placement in [Placement::OutOfPlace, Placement::InPlace] {
                    points.push(NoisePoint {
                        curve: curve.to_string(),
                        placement,
                        bytes: 8 << size,
                        change: noise(curve),
                    });
                }
            }
        }
        points
    }

    fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
        let (a, b): (f64, f64) = (random.random_range(1e-12..1.0), random.random());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    #[test]
    fn equal_runs_raise_a_false_alarm_no_more_often_than_stated() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        for (name, heavy) in [("normal", false), ("twice as wide in one of ten rows", true)] {
            for (curves, sizes) in [(1, 14), (4, 21), (12, 21)] {
                let alarms = (0..400).filter(|_| {
                    let shift = 0.01 * normal(&mut random);
                    let points = points(curves, sizes, |curve| {
                        let wide = if heavy && random.random::<f64>() < 0.1 { 2.0 } else { 1.0 };
                        shift + 0.01 * (1.0 + curve as f64 / 4.0) * wide * normal(&mut random)
                    });
                    let judged = judge(&points, 0.05).unwrap();
                    judged.iter().any(|row| row.p_slower <= 0.05 && row.change >= 1.03f64.ln())
                });
                // 400 trials of 5 % give at most 30 with a probability of 99 %.
                let alarms = alarms.count();
                assert!(alarms <= 30, "{name}, {curves} curves of {sizes} sizes: {alarms} of 400");
            }
        }
    }

    #[test]
    fn one_slow_size_is_found_and_named_and_its_neighbours_pass() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(6);
        for slow in [0, 17, 41] {
            let mut points = points(2, 21, |_| 0.01 * normal(&mut random));
            points[slow].change = 1.75f64.ln();
            let judged = judge(&points, 0.05).unwrap();
            let failed: Vec<usize> = (0..judged.len()).filter(|row| judged[*row].p_slower <= 0.05).collect();
            assert_eq!(failed, [slow]);
            let bounded = judged.iter().filter(|row| row.high < 1.03f64.ln()).count();
            assert!(bounded > judged.len() / 2, "{bounded} of {}", judged.len());
        }
    }

    #[test]
    fn what_is_plainly_slower_fails_however_unevenly_and_not_less_when_slower_still() {
        // A link that carries 10 GB/s at most: small messages are five times slower, large ones forty times.
        let uneven: Vec<NoisePoint> = points(1, 11, |_| 0.0);
        let slower = |point: &NoisePoint| {
            let size = (point.bytes / 8).ilog2() as f64;
            NoisePoint { change: (5.0 + 3.5 * size).ln(), ..point.clone() }
        };
        let uneven: Vec<NoisePoint> = uneven.iter().map(slower).collect();
        assert!(judge(&uneven, 0.05).unwrap().iter().all(|row| row.p_slower <= 0.05));
        let mut random = Xoshiro256PlusPlus::seed_from_u64(8);
        for _ in 0..200 {
            let is_slow = random.random_range(0.7..1.0);
            let before = points(2, 21, |_| {
                let noise = 0.01 * normal(&mut random);
                if random.random::<f64>() < is_slow {
                    noise.abs() + random.random_range(1.5f64..4.0).ln()
                } else {
                    noise
                }
            });
            let worse = |point: &NoisePoint| match point.change > PLAINLY_BEYOND.ln() {
                true => NoisePoint { change: point.change + random.random_range(0.0..3.0), ..point.clone() },
                false => point.clone(),
            };
            let after: Vec<NoisePoint> = before.iter().map(worse).collect();
            let [before, after] = [before, after].map(|points| judge(&points, 0.05).unwrap());
            assert!(before.iter().zip(&after).all(|(before, after)| after.p_slower <= before.p_slower));
        }
    }

    #[test]
    fn a_whole_curve_that_is_slower_is_found_and_few_rows_are_not_judged() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let points = points(4, 21, |curve| 0.005 * normal(&mut random) + if curve == 2 { 0.3 } else { 0.0 });
        let judged = judge(&points, 0.05).unwrap();
        let failed = |curve: &str| {
            let rows = points.iter().zip(&judged).filter(|(point, _)| point.curve == curve);
            rows.filter(|(_, row)| row.p_slower <= 0.05).count()
        };
        assert_eq!(["0", "1", "2", "3"].map(failed), [0, 0, 42, 0]);
        assert_eq!(judge(&points[..MIN_ROWS - 1], 0.05), None);
    }

    #[test]
    fn runs_without_any_noise_do_not_differ() {
        let judged = judge(&points(1, 20, |_| 0.0), 0.05).unwrap();
        assert!(judged.iter().all(|row| row.p_slower == 1.0 && row.high < 0.03), "{:?}", judged[0]);
    }
}
