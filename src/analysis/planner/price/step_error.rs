//! How far predicted steps are off, whatever the calls: the error of computing and of all that is not modelled, as published runs
//! show it.

use commgauge_base::stats::{Interval, median, percentile, sorted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Standard deviations from the middle to an end of a 95 % interval.
const DEVIATIONS_TO_END: f64 = 1.96;
/// The probability from which an order is called sure.
pub const SURE: f64 = 0.95;
/// Mean of the absolute deviations of a normal distribution, in standard deviations: the square root of 2 / pi.
const MEAN_DEVIATION: f64 = 0.7979;

/// Errors of predicted steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepError {
    /// 95 of 100 steps took at least this part of what was predicted ...
    pub low: f64,
    /// ... and at most this multiple.
    pub high: f64,
    /// Standard deviation of the logarithm of the error in which two layouts of one model differ, each of them.
    pub of_a_layout: f64,
}

/// How far one run is off.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::planner) struct Residual {
    /// Its model.
    pub model: String,
    /// Names the runs between which somebody could choose.
    pub question: String,
    /// The logarithm of measured over predicted seconds.
    pub logarithm: f64,
}

/// Those of all runs of `commgauge validate`, each predicted without its model.
pub const PUBLISHED_ERROR: StepError = StepError { low: 0.93, high: 1.56, of_a_layout: 0.09 };

impl StepError {
    /// From how far runs are off. None for fewer than 40.
    pub(in crate::planner) fn of(residuals: &[Residual]) -> Option<StepError> {
        let ordered = sorted(residuals.iter().map(|residual| residual.logarithm));
        let end = |percent: f64| percentile(&ordered, percent).map(f64::exp).filter(|_| ordered.len() >= 40);
        let mut questions: Vec<&str> = residuals.iter().map(|residual| residual.question.as_str()).collect();
        questions.sort_unstable();
        questions.dedup();
        let mut apart = Vec::new();
        for question in questions {
            let own = residuals.iter().filter(|residual| residual.question == question);
            let own = sorted(own.map(|residual| residual.logarithm));
            let middle = median(&own)?;
            apart.extend(own.iter().filter(|_| own.len() > 2).map(|logarithm| (logarithm - middle).abs()));
        }
        let mean = apart.iter().sum::<f64>() / apart.len().max(1) as f64;
        Some(StepError { low: end(2.5)?, high: end(97.5)?, of_a_layout: mean / MEAN_DEVIATION })
    }

    /// The interval of a step whose calls alone put it between these ends: both errors are independent.
    pub(super) fn around(&self, seconds: f64, calls: Interval) -> Interval {
        let both = |calls: f64, own: f64| calls.ln().hypot(own.ln());
        Interval {
            low: seconds * (-both(calls.low / seconds, self.low)).exp(),
            high: seconds * both(calls.high / seconds, self.high).exp(),
        }
    }

    /// Probability that the first of two layouts of a model is faster, if these are their predicted seconds.
    pub fn probability_faster(&self, first: f64, second: f64) -> f64 {
        commgauge_base::stats::normal_below((second / first).ln() / (self.of_a_layout * 2f64.sqrt()))
    }
}

/// The logarithm of a factor's standard deviation, of an interval that covers 95 of 100.
pub(super) fn deviation(interval: Interval) -> f64 {
    (interval.high / interval.low).ln() / (2.0 * DEVIATIONS_TO_END)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_at_least_as_wide_as_either_error() {
        let error = StepError { low: 0.8, high: 1.5, of_a_layout: 0.1 };
        let exact = error.around(10.0, Interval { low: 10.0, high: 10.0 });
        assert!((exact.low - 8.0).abs() < 1e-9 && (exact.high - 15.0).abs() < 1e-9, "{exact:?}");
        let both = error.around(10.0, Interval { low: 8.0, high: 15.0 });
        assert!(both.low < 8.0 && both.high > 15.0, "{both:?}");
        let sure = |second: f64| error.probability_faster(1.0, second);
        assert!(sure(1.3) > 0.95 && sure(1.2) < 0.95 && (sure(1.0) - 0.5).abs() < 1e-6, "{}", sure(1.0));
        assert!((sure(2.0) + error.probability_faster(2.0, 1.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn errors_are_those_of_the_runs_and_the_scatter_is_that_within_a_model() {
        // Two questions, of which one is 20 % slower throughout.
        let run = |question: &str, logarithm: f64| Residual {
            model: question.to_owned(),
            question: question.to_owned(),
            logarithm,
        };
        let spread = |index: usize| 0.01 * (index as f64 - 50.0) / 50.0;
        let runs = (0..=100).flat_map(|index| [run("a", spread(index)), run("b", 0.2 + spread(index))]);
        let error = StepError::of(&runs.collect::<Vec<_>>()).unwrap();
        assert!(error.low > 0.98 && error.high > 1.2 && error.of_a_layout < 0.01, "{error:?}");
        assert_eq!(StepError::of(&[run("a", 0.0)]), None);
    }
}
