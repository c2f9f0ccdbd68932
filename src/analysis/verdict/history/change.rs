//! Change points in a series of runs, row by row: how far every stretch of runs is from all others, in units of the
//! noise within both, compared with the largest distance in any row when whole runs are shuffled.
//!
//! The null distribution comes from permutations, so that skewed and bimodal noise raises no more alarms than normal
//! noise; and whole runs are shuffled, which accounts for correlated rows (the single-step maxT procedure of Westfall
//! and Young, "Resampling-Based Multiple Testing", 1993, 2.3). A stretch may end before the newest run, so that a fault
//! that was fixed is seen; after a change is found its step is removed and the rest is searched again (circular binary
//! segmentation, Olshen, Venkatraman, Lucito and Wigler, Biostatistics 5(4), 2004). Seeded: the same runs always give
//! the same changes.

mod centered;
mod grid;

pub(super) use grid::MIN_RUNS;

use centered::Centered;
use commgauge_base::stats::{median, sorted};
use grid::{Grid, Sums, is_free, places, step};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::Range;

/// Maximum number of random orders of the runs.
const MAX_ORDERS: usize = 1999;
/// Minimum number of random orders, for any number of rows.
const MIN_ORDERS: usize = 199;
/// Upper bound on the additions over all orders.
const MAX_WORK: usize = 500_000_000;
/// Most changes in one row.
const MAX_CHANGES: usize = 16;

/// A change point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ChangePoint {
    /// Index of the first run after it.
    pub run: usize,
    /// Probability of a change this large by chance in any row.
    pub p_corrected: f64,
}

/// The change points of all rows.
pub(super) struct Found {
    /// For each row its changes, by run.
    pub rows: Vec<Vec<ChangePoint>>,
    /// Orders that were used, including the actual one.
    pub orders: usize,
}

/// The changes of rows of logarithms of times, one for each run, none where a run has no such row. A change counts where its
/// step is at least `relevant` (in logarithms) and chance is at most `level`.
pub(super) fn changes(rows: &[Vec<Option<f64>>], level: f64, relevant: f64) -> Found {
    let runs = rows.iter().map(Vec::len).max().unwrap_or(0);
    let centered: Vec<Centered> = rows.iter().map(|row| Centered::of(row)).collect();
    let largest = largest_by_chance(&centered, runs);
    let p = |statistic: f64| {
        let as_large = largest.len() - largest.partition_point(|other| *other < statistic * (1.0 - 1e-9));
        (as_large + 1) as f64 / (largest.len() + 1) as f64
    };
    let found = rows.iter().map(|row| of_row(row, &p, level, relevant)).collect();
    Found { rows: found, orders: largest.len() + 1 }
}

fn of_row(row: &[Option<f64>], p: &dyn Fn(f64) -> f64, level: f64, relevant: f64) -> Vec<ChangePoint> {
    let mut points: Vec<ChangePoint> = Vec::new();
    let order: Vec<usize> = (0..row.len()).collect();
    while points.len() < MAX_CHANGES {
        let starts: Vec<usize> = points.iter().map(|point| point.run).collect();
        let rest = without_steps(row, &starts);
        let centered = Centered::of(&rest);
        let Some((statistic, found)) = centered.largest(&order, &Grid::new(row.len(), &starts)) else { break };
        let stretch = centered.moved(&order, &starts, found);
        let p_corrected = p(statistic);
        let inner = |run: &usize| *run > 0 && *run < row.len();
        let new: Vec<usize> = [stretch.start, stretch.end].into_iter().filter(inner).collect();
        let mut with = [starts, new.clone()].concat();
        with.sort_unstable();
        let matters = |run: &usize| step_at(row, &with, *run).is_some_and(|step| step.abs() >= relevant);
        if p_corrected > level || !new.iter().all(matters) {
            break;
        }
        points.extend(new.into_iter().map(|run| ChangePoint { run, p_corrected }));
        points.sort_by_key(|point| point.run);
    }
    points
}

/// The segments that changes cut a row into.
pub(super) fn segments(runs: usize, starts: &[usize]) -> Vec<Range<usize>> {
    let bounds: Vec<usize> = [0].into_iter().chain(starts.iter().copied()).chain([runs]).collect();
    bounds.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// Median of the runs of a segment.
pub(super) fn middle(row: &[Option<f64>], segment: Range<usize>) -> Option<f64> {
    median(&sorted(row.get(segment)?.iter().flatten().copied()))
}

/// Difference of medians between the segment that begins at a run and the one before it.
pub(super) fn step_at(row: &[Option<f64>], starts: &[usize], run: usize) -> Option<f64> {
    let segments = segments(row.len(), starts);
    let at = segments.iter().position(|segment| segment.start == run)?;
    Some(middle(row, segments[at].clone())? - middle(row, segments[at.checked_sub(1)?].clone())?)
}

fn without_steps(row: &[Option<f64>], starts: &[usize]) -> Vec<Option<f64>> {
    let mut rest = row.to_vec();
    for segment in segments(row.len(), starts) {
        let Some(middle) = middle(row, segment.clone()) else { continue };
        rest[segment].iter_mut().flatten().for_each(|value| *value -= middle);
    }
    rest
}

impl Centered {
    /// How far the stretch of runs that lies farthest from the others does, in that order of the runs, and which it is: the
    /// square of Student's t of both, up to a factor. A stretch and the runs next to it are at least [`MIN_RUNS`] long;
    /// its ends may not be nearer to the cuts that there are.
    fn largest(&self, order: &[usize], grid: &Grid) -> Option<(f64, Range<usize>)> {
        if self.squares <= 0.0 {
            return None;
        }
        grid.largest(self, order).map(|(between, stretch)| {
            let between = between * self.count as f64;
            (between / ((self.squares - between).max(0.0) + self.least), stretch)
        })
    }

    /// The stretch with its ends moved, one after the other, to the runs around them that fit best. A series that is searched at every
    /// run has nothing to move.
    fn moved(&self, order: &[usize], cuts: &[usize], stretch: Range<usize>) -> Range<usize> {
        let (sums, runs) = (Sums::of(self, order), order.len());
        let best = |range: &dyn Fn(usize) -> Range<usize>, at: usize| {
            let around = at.saturating_sub(step(runs))..(at + step(runs)).min(runs) + 1;
            let free = around.filter(|place| *place == at || is_free(*place, runs, cuts));
            let scored = free.filter_map(|place| Some((sums.between(range(place))?, place)));
            scored.max_by(|one, other| one.0.total_cmp(&other.0)).map_or(at, |(_, place)| place)
        };
        let is_inner = |at: usize| at > 0 && at < runs;
        let Range { mut start, mut end } = stretch;
        for _ in 0..if step(runs) > 1 { 2 } else { 0 } {
            start = if is_inner(start) { best(&|place| place..end, start) } else { start };
            end = if is_inner(end) { best(&|place| start..place, end) } else { end };
        }
        start..end
    }
}

/// For each drawn order of the runs, the largest of all rows; ascending.
fn largest_by_chance(rows: &[Centered], runs: usize) -> Vec<f64> {
    let (grid, places) = (Grid::new(runs, &[]), places(runs).count());
    let orders = (MAX_WORK / (rows.len() * (places * places + runs)).max(1)).clamp(MIN_ORDERS, MAX_ORDERS);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(0);
    let mut order: Vec<usize> = (0..runs).collect();
    let draw = |_| {
        order.shuffle(&mut random);
        rows.iter().filter_map(|row| row.largest(&order, &grid)).map(|(most, _)| most).fold(0.0, f64::max)
    };
    sorted((0..orders).map(draw).collect::<Vec<f64>>())
}

#[cfg(test)]
mod tests;
