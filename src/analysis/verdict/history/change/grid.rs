//! Where a stretch of runs may begin and end, and which of them lies farthest from the other runs.

use super::centered::Centered;
use std::ops::Range;

/// Fewest runs between changes.
pub(in crate::verdict::history) const MIN_RUNS: usize = 3;
/// Series of up to so many runs are searched at every run; longer ones on a grid of about as many places, and every found end is then
/// moved to the run next to it that fits best.
const MAX_PLACES: usize = 128;
/// The newest runs are always searched one by one.
const NEWEST: usize = 32;

/// Values that are compared at a time.
const LANES: usize = 8;

/// The places of a series, and the weight of the stretch between any two.
pub(super) struct Grid {
    runs: usize,
    ends: Vec<usize>,
    /// Row by row for every beginning and every end: one over the product of the runs inside and outside; 0 where either are too few.
    weights: Vec<f64>,
}

impl Grid {
    /// The places of so many runs that are not too near to cuts.
    pub(super) fn new(runs: usize, cuts: &[usize]) -> Grid {
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
    pub(super) fn largest(&self, row: &Centered, order: &[usize]) -> Option<(f64, Range<usize>)> {
        if row.count == self.runs { self.of_all_runs(row, order) } else { self.of_those_present(row, order) }
    }

    /// Where every run has the row the weights are those of the grid: this is most of the work of a long history.
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
pub(super) fn step(runs: usize) -> usize {
    if runs <= MAX_PLACES { 1 } else { runs.div_ceil(MAX_PLACES - NEWEST) }
}

/// Where a stretch may begin or end.
pub(super) fn places(runs: usize) -> impl Iterator<Item = usize> {
    (0..=runs).filter(move |at| at % step(runs) == 0 || runs - at < NEWEST)
}

/// Whether a place is far enough from the ends of the series and from cuts.
pub(super) fn is_free(at: usize, runs: usize, cuts: &[usize]) -> bool {
    let far = |cut: usize| at.abs_diff(cut) >= MIN_RUNS;
    at == 0 || at == runs || (far(0) && far(runs) && cuts.iter().all(|cut| far(*cut)))
}

/// Sums and counts of a row up to each run, in an order of the runs.
pub(super) struct Sums {
    sums: Vec<f64>,
    counts: Vec<u32>,
    count: usize,
}

impl Sums {
    pub(super) fn of(row: &Centered, order: &[usize]) -> Sums {
        let (mut sums, mut counts) = (vec![0.0; order.len() + 1], vec![0u32; order.len() + 1]);
        for (at, run) in order.iter().enumerate() {
            sums[at + 1] = sums[at] + row.values.get(*run).copied().unwrap_or(0.0);
            counts[at + 1] = counts[at] + u32::from(row.present.get(*run).copied().unwrap_or(false));
        }
        Sums { sums, counts, count: row.count }
    }

    /// The sum of squares between a stretch and the others, over the number of values; none where either is too short. The larger it
    /// is, the smaller is what lies within: the sum of the two is always the same.
    pub(super) fn between(&self, stretch: Range<usize>) -> Option<f64> {
        let inside = (self.counts[stretch.end].checked_sub(self.counts[stretch.start])?) as usize;
        let outside = self.count - inside;
        if stretch.len() < MIN_RUNS || inside < MIN_RUNS || outside < MIN_RUNS {
            return None;
        }
        let sum: f64 = self.sums[stretch.end] - self.sums[stretch.start];
        Some(sum * sum / (inside * outside) as f64)
    }
}
