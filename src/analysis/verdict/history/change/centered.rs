//! A row of a history without its middle, as the search for changes takes it.

use commgauge_base::stats::{median, sorted};

/// Values are clamped to this multiple of the interquartile range from the median.
const CLAMP: f64 = 8.0;
/// Rows without any noise (a coarse clock) are given this much, as a share.
const MIN_NOISE: f64 = 0.0005;

/// A row around its mean, 0 where a run has none.
pub(super) struct Centered {
    pub(super) values: Vec<f64>,
    pub(super) present: Vec<bool>,
    pub(super) count: usize,
    /// Sum of the squares, and what is added to it so that no row is without noise.
    pub(super) squares: f64,
    pub(super) least: f64,
}

impl Centered {
    pub(super) fn of(row: &[Option<f64>]) -> Centered {
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
