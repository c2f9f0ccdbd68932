//! Change points in a series of runs, row by row: how far every stretch of runs is from all others, in units of the
//! noise within both, compared with the largest distance in any row when whole runs are shuffled.
//!
//! The null distribution comes from permutations, so that skewed and bimodal noise raises no more alarms than normal noise; and whole runs
//! are shuffled, which accounts for correlated rows (the single-step maxT procedure of Westfall and Young, "Resampling-Based Multiple
//! Testing", 1993, 2.3). A stretch may end before the newest run, so that a fixed fault is found; after a change is found its step is
//! removed and the rest is searched again (circular binary segmentation, Olshen, Venkatraman, Lucito and Wigler, Biostatistics 5(4), 2004).
//! Seeded: the same runs always give the same changes.

use super::{median, sorted};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::Range;

/// Maximum number of random orders of the runs.
const MAX_ORDERS: usize = 1999;

/// Minimum number of random orders, for any number of rows.
const MIN_ORDERS: usize = 199;

/// Upper bound on the additions over all orders, so that 10,000 runs take less than a second.
const MAX_WORK: usize = 200_000_000;

/// Maximum number of changes per row.
const MAX_CHANGES: usize = 16;

/// Where a row changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// Index of the first run after it.
    pub run: usize,
    /// Probability of a change this large by chance in any row.
    pub p_corrected: f64,
}

/// The changes of all rows.
pub struct Found {
    /// For each row its changes, by run.
    pub rows: Vec<Vec<ChangePoint>>,
    /// Number of orders, including the actual one.
    pub orders: usize,
}

/// The changes of rows of logarithms of times, one for each run, `None` if a run lacks the row. A change counts if its step is at least
/// `relevant` (in logarithms) and chance is at most `level`.
pub fn changes(rows: &[Vec<Option<f64>>], level: f64, relevant: f64) -> Found {
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
pub fn segments(runs: usize, starts: &[usize]) -> Vec<Range<usize>> {
    let bounds: Vec<usize> = [0].into_iter().chain(starts.iter().copied()).chain([runs]).collect();
    bounds.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// Median of the runs of a segment.
pub fn middle(row: &[Option<f64>], segment: Range<usize>) -> Option<f64> {
    median(&sorted(row.get(segment)?.iter().flatten().copied()))
}

/// Difference of medians between the segment that begins at a run and the one before it.
pub fn step_at(row: &[Option<f64>], starts: &[usize], run: usize) -> Option<f64> {
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
    /// The stretch of runs farthest from the others in this order of the runs, and its distance: the square of Student's t of both, up to a
    /// factor. A stretch and the runs next to it are at least [`MIN_RUNS`] long; its ends may not be nearer to existing cuts.
    fn largest(&self, order: &[usize], grid: &Grid) -> Option<(f64, Range<usize>)> {
        if self.squares <= 0.0 {
            return None;
        }
        grid.largest(self, order).map(|(between, stretch)| {
            let between = between * self.count as f64;
            (between / ((self.squares - between).max(0.0) + self.least), stretch)
        })
    }

    /// The stretch with its ends moved, one after the other, to the nearby runs that fit best. A series that is searched at every run needs
    /// no moves.
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

/// For each drawn order of the runs, the largest distance over all rows; ascending.
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

// Where a stretch of runs may begin and end, and which stretch is farthest from the other runs.

/// Fewest runs between changes.
pub const MIN_RUNS: usize = 3;

/// Series of up to this many runs are searched at every run; longer ones on a grid of about as many places, and every found end is then
/// moved to the run next to it that fits best.
const MAX_PLACES: usize = 128;

/// The newest runs are always searched one by one.
const NEWEST: usize = 32;

/// Number of values compared at a time.
const LANES: usize = 8;

/// The places of a series, and the weight of the stretch between any two.
struct Grid {
    runs: usize,
    ends: Vec<usize>,
    /// Row by row for every beginning and every end: one over the product of the runs inside and outside; 0 if either are too few.
    weights: Vec<f64>,
}

impl Grid {
    /// The places of this many runs that are not too near to cuts.
    fn new(runs: usize, cuts: &[usize]) -> Grid {
        let ends: Vec<usize> = places(runs).filter(|at| is_free(*at, runs, cuts)).collect();
        let weight = |start: &usize, end: &usize| {
            let inside = end.saturating_sub(*start);
            let outside = runs - inside;
            if inside.min(outside) < MIN_RUNS { 0.0 } else { 1.0 / (inside * outside) as f64 }
        };
        let weights = ends.iter().flat_map(|start| ends.iter().map(move |end| weight(start, end))).collect();
        Grid { runs, ends, weights }
    }

    /// The largest sum of squares between a stretch and the others, over the number of values, and the stretch.
    fn largest(&self, row: &Centered, order: &[usize]) -> Option<(f64, Range<usize>)> {
        if row.count == self.runs { self.of_all_runs(row, order) } else { self.of_those_present(row, order) }
    }

    /// If every run has the row the weights are those of the grid: this is most of the work for a long history.
    fn of_all_runs(&self, row: &Centered, order: &[usize]) -> Option<(f64, Range<usize>)> {
        let sums = self.sums_at_ends(row, order);
        let weights = |start: usize| &self.weights[start * sums.len()..][..sums.len()];
        let (mut most, mut best) = (0.0, None);
        for (start, sum) in sums.iter().enumerate() {
            let of_start = largest_from(*sum, &sums[start..], &weights(start)[start..]);
            if of_start > most {
                (most, best) = (of_start, Some(start));
            }
        }
        let start = best?;
        let value = |end: usize| between(sums[start], sums[end], weights(start)[end]);
        let end = (start..sums.len()).find(|end| value(*end) >= most)?;
        Some((most, self.ends[start]..self.ends[end]))
    }

    fn sums_at_ends(&self, row: &Centered, order: &[usize]) -> Vec<f64> {
        let (mut sum, mut from) = (0.0, 0);
        let sum_to = |end: &usize| {
            sum += order[from..*end].iter().map(|run| row.values[*run]).sum::<f64>();
            from = *end;
            sum
        };
        self.ends.iter().map(sum_to).collect()
    }

    fn of_those_present(&self, row: &Centered, order: &[usize]) -> Option<(f64, Range<usize>)> {
        let sums = Sums::of(row, order);
        let mut best: Option<(f64, Range<usize>)> = None;
        for (index, start) in self.ends.iter().enumerate() {
            for end in &self.ends[index + 1..] {
                let Some(between) = sums.between(*start..*end) else { continue };
                if best.as_ref().is_none_or(|(most, _)| between > *most) {
                    best = Some((between, *start..*end));
                }
            }
        }
        best
    }
}

fn between(one: f64, other: f64, weight: f64) -> f64 {
    (other - one) * (other - one) * weight
}

/// The largest over all ends, several at a time.
fn largest_from(start: f64, ends: &[f64], weights: &[f64]) -> f64 {
    let mut lanes = [0.0f64; LANES];
    let (chunks, rest) = ends.as_chunks::<LANES>();
    let (chunk_weights, rest_weights) = weights.as_chunks::<LANES>();
    for (ends, weights) in chunks.iter().zip(chunk_weights) {
        for ((most, end), weight) in lanes.iter_mut().zip(ends).zip(weights) {
            let value = between(start, *end, *weight);
            *most = if value > *most { value } else { *most };
        }
    }
    let of_rest = rest.iter().zip(rest_weights).map(|(end, weight)| between(start, *end, *weight));
    lanes.into_iter().chain(of_rest).fold(0.0, f64::max)
}

/// Runs from one place that is searched to the next.
fn step(runs: usize) -> usize {
    if runs <= MAX_PLACES { 1 } else { runs.div_ceil(MAX_PLACES - NEWEST) }
}

/// Where a stretch may begin or end.
fn places(runs: usize) -> impl Iterator<Item = usize> {
    (0..=runs).filter(move |at| at % step(runs) == 0 || runs - at < NEWEST)
}

/// Whether a place is far enough from the ends of the series and from cuts.
fn is_free(at: usize, runs: usize, cuts: &[usize]) -> bool {
    let far = |cut: usize| at.abs_diff(cut) >= MIN_RUNS;
    at == 0 || at == runs || (far(0) && far(runs) && cuts.iter().all(|cut| far(*cut)))
}

/// Sums and counts of a row up to each run, in an order of the runs.
struct Sums {
    sums: Vec<f64>,
    counts: Vec<u32>,
    count: usize,
}

impl Sums {
    fn of(row: &Centered, order: &[usize]) -> Sums {
        let (mut sums, mut counts) = (vec![0.0; order.len() + 1], vec![0u32; order.len() + 1]);
        for (at, run) in order.iter().enumerate() {
            sums[at + 1] = sums[at] + row.values.get(*run).copied().unwrap_or(0.0);
            counts[at + 1] = counts[at] + u32::from(row.present.get(*run).copied().unwrap_or(false));
        }
        Sums { sums, counts, count: row.count }
    }

    /// The sum of squares between a stretch and the others, over the number of values; `None` if either is too short. The larger it is, the
    /// smaller is the sum within: the two add up to a constant.
    fn between(&self, stretch: Range<usize>) -> Option<f64> {
        let inside = (self.counts[stretch.end].checked_sub(self.counts[stretch.start])?) as usize;
        let outside = self.count - inside;
        if stretch.len() < MIN_RUNS || inside < MIN_RUNS || outside < MIN_RUNS {
            return None;
        }
        let sum: f64 = self.sums[stretch.end] - self.sums[stretch.start];
        Some(sum * sum / (inside * outside) as f64)
    }
}

// A row of a history centred for the search for changes.

/// Values are clamped to this multiple of the interquartile range from the median.
const CLAMP: f64 = 8.0;

/// Minimum noise, as a share, for rows without any (a coarse clock).
const MIN_NOISE: f64 = 0.0005;

/// A row around its mean, 0 for missing runs.
struct Centered {
    values: Vec<f64>,
    present: Vec<bool>,
    count: usize,
    /// Sum of the squares, with a minimum so that no row is without noise.
    squares: f64,
    least: f64,
}

impl Centered {
    fn of(row: &[Option<f64>]) -> Centered {
        let ascending = sorted(row.iter().flatten().copied());
        let count = ascending.len();
        let middle = median(&ascending).unwrap_or(0.0);
        let spread = median(&sorted(ascending.iter().map(|value| (value - middle).abs()))).unwrap_or(0.0);
        let farthest = CLAMP * spread.max(MIN_NOISE);
        let clamped = |value: f64| (value - middle).clamp(-farthest, farthest);
        let mean = ascending.iter().map(|value| clamped(*value)).sum::<f64>() / count.max(1) as f64;
        let values: Vec<f64> = row.iter().map(|value| value.map_or(0.0, |value| clamped(value) - mean)).collect();
        let squares = values.iter().map(|value| value * value).sum();
        let least = count as f64 * MIN_NOISE * MIN_NOISE;
        Centered { values, present: row.iter().map(Option::is_some).collect(), count, squares, least }
    }
}

#[cfg(test)]
mod tests {
    // Real changes are found at the right run, and noise of any shape raises no more alarms than stated.
    use super::*;
    use rand::RngExt;

    const LEVEL: f64 = 0.05;

    /// Distribution of run-to-run noise, with a standard deviation of about 1.
    #[derive(Clone, Copy, Debug)]
    enum Shape {
        Normal,
        /// Most runs near the best time, some much slower.
        Skewed,
        /// Two states of the machine.
        Bimodal,
    }

    fn deviate(shape: Shape, random: &mut Xoshiro256PlusPlus) -> f64 {
        let uniform: f64 = random.random_range(f64::EPSILON..1.0);
        let other: f64 = random.random_range(0.0..1.0);
        let normal = (-2.0 * uniform.ln()).sqrt() * (std::f64::consts::TAU * other).cos();
        match shape {
            Shape::Normal => normal,
            Shape::Skewed => -uniform.ln() - 1.0,
            Shape::Bimodal => f64::from(u8::from(other < 0.3)) * 2.0 + 0.2 * normal,
        }
    }

    /// Rows that share a part of their noise, like rows of one run.
    fn noise(rows: usize, runs: usize, sigma: f64, shape: Shape, seed: u64) -> Vec<Vec<Option<f64>>> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let shared: Vec<f64> = (0..runs).map(|_| deviate(shape, &mut random)).collect();
        let row = |_| shared.iter().map(|shared| Some(sigma * (0.5 * shared + deviate(shape, &mut random)))).collect();
        (0..rows).map(row).collect()
    }

    fn stepped(mut row: Vec<Option<f64>>, from: usize, step: f64) -> Vec<Option<f64>> {
        row[from..].iter_mut().flatten().for_each(|value| *value += step);
        row
    }

    fn runs_of(found: &Found, row: usize) -> Vec<usize> {
        found.rows[row].iter().map(|point| point.run).collect()
    }

    #[test]
    fn nothing_few_runs_and_equal_runs_show_no_change() {
        assert!(changes(&[], LEVEL, 0.03).rows.is_empty());
        for row in [vec![], vec![Some(1.0)], vec![Some(1.0); 30], vec![None; 30], vec![Some(0.0), Some(1.0), Some(2.0)]]
        {
            assert_eq!(runs_of(&changes(std::slice::from_ref(&row), LEVEL, 0.03), 0), [0; 0], "{row:?}");
        }
    }

    #[test]
    fn a_step_is_found_at_its_run_and_other_rows_have_none() {
        let mut rows = noise(20, 24, 0.01, Shape::Skewed, 7);
        rows[3] = stepped(rows[3].clone(), 15, 0.06);
        rows[8] = stepped(stepped(rows[8].clone(), 8, 0.08), 16, -0.08);
        rows[9] = stepped(rows[9].clone(), 12, 0.02);
        let found = changes(&rows, LEVEL, 0.03);
        assert_eq!(runs_of(&found, 3), [15]);
        assert_eq!(runs_of(&found, 8), [8, 16]);
        let others: usize = (0..20).filter(|row| ![3, 8].contains(row)).map(|row| found.rows[row].len()).sum();
        assert_eq!(others, 0, "a step of 2 % does not matter");
    }

    #[test]
    fn a_step_of_one_row_among_many_is_found_from_three_runs_on() {
        let mut rows = noise(100, 12, 0.01, Shape::Normal, 5);
        rows[70] = stepped(rows[70].clone(), 9, 0.15);
        let found = changes(&rows, LEVEL, 0.03);
        let changed: Vec<usize> = (0..100).filter(|row| !found.rows[*row].is_empty()).collect();
        assert_eq!((changed, runs_of(&found, 70)), (vec![70], vec![9]));
    }

    #[test]
    fn runs_without_the_row_do_not_hide_a_change() {
        let mut row = stepped(noise(1, 30, 0.005, Shape::Normal, 3).remove(0), 14, 0.10);
        for missing in [2, 9, 13, 20, 29] {
            row[missing] = None;
        }
        let found = runs_of(&changes(&[row], LEVEL, 0.03), 0);
        assert!(found == [13] || found == [14], "{found:?}");
    }

    #[test]
    fn one_outlier_run_is_no_change() {
        let mut rows = noise(5, 30, 0.01, Shape::Normal, 11);
        rows[2][17] = Some(1.0);
        assert!(changes(&rows, LEVEL, 0.03).rows.iter().all(Vec::is_empty));
    }

    #[test]
    fn noise_of_any_shape_raises_alarms_no_more_often_than_stated() {
        // Any step is relevant here, so that only the significance is tested.
        let trials = if cfg!(debug_assertions) { 20 } else { 1000 };
        for shape in [Shape::Normal, Shape::Skewed, Shape::Bimodal] {
            let alarms = (0..trials)
                .filter(|seed| {
                    let (rows, runs) = (5, 12 + (*seed % 16) as usize);
                    changes(&noise(rows, runs, 0.02, shape, *seed), LEVEL, 0.0).rows.iter().any(|row| !row.is_empty())
                })
                .count();
            // Three standard deviations above the stated level.
            let most = trials as f64 * LEVEL + 3.0 * (trials as f64 * LEVEL * (1.0 - LEVEL)).sqrt();
            assert!((alarms as f64) <= most, "{shape:?}: {alarms} of {trials}");
        }
    }

    #[test]
    fn a_change_in_a_long_series_is_found_at_its_run_and_in_time() {
        let mut rows = noise(20, 2000, 0.01, Shape::Normal, 8);
        rows[3] = stepped(rows[3].clone(), 1234, 0.05);
        // The newest runs are searched one by one.
        rows[7] = stepped(rows[7].clone(), 1990, 0.08);
        let found = changes(&rows, LEVEL, 0.03);
        let changed: Vec<usize> = (0..20).filter(|row| !found.rows[*row].is_empty()).collect();
        assert_eq!((changed, runs_of(&found, 3), runs_of(&found, 7)), (vec![3, 7], vec![1234], vec![1990]));
    }
}
