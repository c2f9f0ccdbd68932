//! Judges changes between runs that have too few replicates for a permutation test, by the noise of the curves themselves.
//!
//! Neighbouring sizes and the two placements of a call change alike, so what they differ by is noise: its scale is estimated for
//! each curve, robustly. How far noise reaches is read off the rows that fall behind their neighbours to the *fast* side: if
//! nothing became slower, base and new can be exchanged, and the slow side reaches as far. Beyond the outermost tenth the tail is
//! taken to fall as exp(-x^0.4), slower than that of any bell curve, and the uncertainty of its few excesses is carried along.
//!
//! What moves all rows of a run alike (its hour, its hosts) is not in this noise; only replicates show it.

use commgauge_base::collective::Placement;
use commgauge_base::stats::{median, sorted};
use std::collections::BTreeMap;

/// With fewer rows nothing can be said of how far noise reaches.
const MIN_ROWS: usize = 20;
/// The outermost share of rows whose excesses give the tail.
const TAIL_SHARE: f64 = 0.1;
const MIN_EXCESSES: usize = 5;
/// The power of x in the exponent of the tail.
const TAIL_POWER: f64 = 0.4;
/// The scale of a curve counts as much as that of all curves where it has this many differences.
const HALF_TRUSTED: f64 = 10.0;
/// A median of absolute differences to a standard deviation, for normal noise.
const TO_DEVIATION: f64 = 0.6745;
/// Rows without any noise (a simulation, a coarse clock) are given this much, as a share.
const MIN_NOISE: f64 = 0.0005;

/// A row on its curve.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    /// The call with all that makes it one curve, but for size and placement.
    pub curve: String,
    /// One of the two series of the curve.
    pub placement: Placement,
    /// Where on the curve.
    pub bytes: u64,
    /// Logarithm of the new time over that of the base.
    pub change: f64,
}

/// What the noise of its curve says of a row.
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

/// Judges every row at a level; none where there are too few rows.
pub(super) fn judge(points: &[Point], level: f64) -> Option<Vec<Judged>> {
    if points.len() < MIN_ROWS {
        return None;
    }
    let mut curves: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, point) in points.iter().enumerate() {
        curves.entry(&point.curve).or_default().push(index);
    }
    let differences: BTreeMap<&str, Vec<f64>> =
        curves.iter().map(|(name, rows)| (*name, scatter(points, rows))).collect();
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
            residuals.extend(usual(points, rows, *row).map(|usual| (points[*row].change - usual) / scale));
        }
    }
    let tail = Tail::of(&residuals)?;
    // Of one row alone, at the same level.
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

/// How much the changes of neighbouring sizes, and of the two placements of one size, differ.
fn scatter(points: &[Point], rows: &[usize]) -> Vec<f64> {
    let mut of_size: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let mut found = Vec::new();
    for series in series(points, rows) {
        found.extend(series.windows(2).map(|pair| (points[pair[0]].change - points[pair[1]].change).abs()));
        for row in series {
            of_size.entry(points[row].bytes).or_default().push(points[row].change);
        }
    }
    found.extend(of_size.values().flat_map(|of_size| of_size.windows(2)).map(|pair| (pair[0] - pair[1]).abs()));
    // Each is of two rows.
    found.iter().map(|difference| difference / std::f64::consts::SQRT_2).collect()
}

/// The rows of a curve by placement, each by size.
fn series(points: &[Point], rows: &[usize]) -> Vec<Vec<usize>> {
    let mut series: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    rows.iter().for_each(|row| series.entry(points[*row].placement.name()).or_default().push(*row));
    series.values_mut().for_each(|series| series.sort_by_key(|row| points[*row].bytes));
    series.into_values().collect()
}

/// The middle change of the neighbours of a row: two sizes on either side, and the other placement.
fn usual(points: &[Point], rows: &[usize], row: usize) -> Option<f64> {
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

/// How far noise reaches, in scales.
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

    /// An upper bound of the probability that the noise of any row reaches so far: the expected number of rows that do. Excesses
    /// of an exponential tail whose mean is known from as many others follow a Pareto distribution.
    fn p_of_any(&self, far: f64) -> f64 {
        let excess = far.max(0.0).powf(TAIL_POWER) - self.begins;
        if excess <= 0.0 || self.mean_excess <= 0.0 {
            return if excess > 0.0 { 0.0 } else { 1.0 };
        }
        (self.excesses * (1.0 + excess / (self.excesses * self.mean_excess)).powf(-self.excesses)).min(1.0)
    }

    /// What the noise of one row exceeds to one side with this probability.
    fn quantile(&self, level: f64) -> f64 {
        let rank = (level * self.rows) as usize;
        self.fast.get(rank).or(self.fast.last()).copied().unwrap_or(f64::INFINITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Curves of both placements whose changes are `noise`, in order of size.
    fn points(curves: usize, sizes: usize, mut noise: impl FnMut(usize) -> f64) -> Vec<Point> {
        let mut points = Vec::new();
        for curve in 0..curves {
            for size in 0..sizes {
                for placement in [Placement::OutOfPlace, Placement::InPlace] {
                    points.push(Point { curve: curve.to_string(), placement, bytes: 8 << size, change: noise(curve) });
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
