//! Quality of predictions: errors in percent, whether they order runs correctly, and the cost of following them.

use crate::cost::PredictionPair;
use commgauge_base::stats::percentile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Errors of predictions, in percent of what was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorSummary {
    /// Mean of the absolute errors.
    pub mean_percent: f64,
    /// Their median.
    pub median_percent: f64,
    /// 95 of 100 are at most this.
    pub p95_percent: f64,
    /// The largest.
    pub max_percent: f64,
    /// Mean of the errors with their signs: above 0 where predictions are too long.
    pub bias_percent: f64,
}

/// Percent by which a prediction is too large.
pub(super) fn error_percent(pair: PredictionPair) -> f64 {
    100.0 * pair.error()
}

impl ErrorSummary {
    /// For at least one run; all zero for none.
    pub(super) fn of(pairs: &[PredictionPair]) -> ErrorSummary {
        if pairs.is_empty() {
            return ErrorSummary::default();
        }
        let signed: Vec<f64> = pairs.iter().map(|pair| error_percent(*pair)).collect();
        let mut sizes: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let (count, middle) = (sizes.len() as f64, sizes.len() / 2);
        let median = if sizes.len() % 2 == 1 { sizes[middle] } else { 0.5 * (sizes[middle - 1] + sizes[middle]) };
        ErrorSummary {
            mean_percent: sizes.iter().sum::<f64>() / count,
            median_percent: median,
            p95_percent: percentile(&sizes, 95.0).or(sizes.last().copied()).unwrap_or(0.0),
            max_percent: sizes.last().copied().unwrap_or(0.0),
            bias_percent: signed.iter().sum::<f64>() / count,
        }
    }
}

/// Kendall's tau-b of predictions and measurements: 1 if both have the same order, -1 if the opposite, 0 if undecided
/// (M. G. Kendall, "The treatment of ties in ranking problems", 1945). None for fewer than two runs, or if all values
/// of one side are equal.
pub(super) fn kendall_tau(pairs: &[PredictionPair]) -> Option<f64> {
    let (mut agree, mut tied_predicted, mut tied_measured, mut all) = (0i64, 0i64, 0i64, 0i64);
    for (index, one) in pairs.iter().enumerate() {
        for other in &pairs[index + 1..] {
            let sign = |a: f64, b: f64| i64::from(a > b) - i64::from(a < b);
            let (predicted, measured) = (sign(one.predicted, other.predicted), sign(one.measured, other.measured));
            agree += predicted * measured;
            tied_predicted += i64::from(predicted == 0);
            tied_measured += i64::from(measured == 0);
            all += 1;
        }
    }
    let scale = ((all - tied_predicted) as f64 * (all - tied_measured) as f64).sqrt();
    (scale > 0.0).then(|| agree as f64 / scale)
}

/// Percent by which the run predicted to be the fastest takes longer than the fastest one. None without runs.
pub(super) fn top_1_regret_percent(pairs: &[PredictionPair]) -> Option<f64> {
    let chosen = pairs.iter().min_by(|a, b| a.predicted.total_cmp(&b.predicted))?;
    let best = pairs.iter().map(|pair| pair.measured).fold(f64::INFINITY, f64::min);
    Some(100.0 * (chosen.measured / best - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(predicted: f64, measured: f64) -> PredictionPair {
        PredictionPair { predicted, measured }
    }

    #[test]
    fn errors_are_those_worked_out_by_hand() {
        let found = ErrorSummary::of(&[pair(1.1, 1.0), pair(1.8, 2.0), pair(3.6, 3.0), pair(4.0, 4.0)]);
        let expected = [10.0, 10.0, 20.0, 5.0];
        let found = [found.mean_percent, found.median_percent, found.max_percent, found.bias_percent];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
        assert_eq!(ErrorSummary::of(&[]), ErrorSummary::default());
        assert!((ErrorSummary::of(&[pair(1.1, 1.0)]).median_percent - 10.0).abs() < 1e-9);
    }

    #[test]
    fn the_rank_correlation_is_that_of_kendall() {
        let of = |predicted: &[f64]| {
            let pairs: Vec<PredictionPair> =
                predicted.iter().zip(1..).map(|(predicted, measured)| pair(*predicted, f64::from(measured))).collect();
            kendall_tau(&pairs)
        };
        assert_eq!((of(&[1.0, 2.0, 3.0]), of(&[3.0, 2.0, 1.0])), (Some(1.0), Some(-1.0)));
        // Of six pairs five agree.
        assert!((of(&[1.0, 3.0, 2.0, 4.0]).unwrap() - 4.0 / 6.0).abs() < 1e-12);
        // One tie: 5 of sqrt(5 x 6).
        assert!((of(&[1.0, 2.0, 2.0, 4.0]).unwrap() - 5.0 / 30f64.sqrt()).abs() < 1e-12);
        assert_eq!((of(&[1.0]), of(&[2.0, 2.0])), (None, None));
    }

    #[test]
    fn regret_is_the_cost_of_following_the_prediction() {
        assert_eq!(top_1_regret_percent(&[pair(1.0, 3.0), pair(2.0, 2.0)]), Some(50.0));
        assert_eq!(top_1_regret_percent(&[pair(2.0, 3.0), pair(1.0, 2.0)]), Some(0.0));
        assert_eq!(top_1_regret_percent(&[]), None);
    }
}
