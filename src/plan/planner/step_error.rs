//! The error of predicted steps, whatever the calls: of computing and of all unmodelled effects, from published runs.

use commgauge_base::stats::{Interval, median, sorted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Standard deviations from the middle to an end of a 95 % interval.
const DEVIATIONS_TO_END: f64 = 1.96;
/// Share covered by an interval.
const WITHIN: f64 = 0.95;
/// The probability from which an order counts as sure.
pub const SURE: f64 = 0.95;
/// Mean of the absolute deviations of a normal distribution, in standard deviations: the square root of 2 / pi.
const MEAN_DEVIATION: f64 = 0.7979;

/// Errors of predicted steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepError {
    /// 95 of 100 steps took at least this share of the prediction ...
    pub low: f64,
    /// ... and at most this multiple.
    pub high: f64,
    /// Standard deviation of the log error in which two layouts of one model differ, for each of them.
    pub of_a_layout: f64,
}

/// The error of one run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Residual {
    /// Its model.
    pub model: String,
    /// Identifies the runs between which a user could choose.
    pub question: String,
    /// The logarithm of measured over predicted seconds.
    pub logarithm: f64,
}

/// The errors if a measured step of the same model, batch and GPUs sets the level, over all runs of `commgauge plan validate`.
pub const ANCHORED: StepError = StepError { low: 0.788, high: 1.269, of_a_layout: 0.084 };

impl StepError {
    pub const EXACT: StepError = StepError { low: 1.0, high: 1.0, of_a_layout: 0.0 };

    /// From a level's ends.
    pub fn between(low: f64, high: f64) -> StepError {
        StepError { low, high, ..ANCHORED }
    }

    /// The errors of runs whose level another run of their question sets, each question counting once. `None` if no question has more than
    /// two runs.
    pub(super) fn within_questions(residuals: &[Residual]) -> Option<StepError> {
        let mut questions: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for residual in residuals {
            questions.entry(&residual.question).or_default().push(residual.logarithm);
        }
        let (mut from_middle, mut pairs) = (Vec::new(), Vec::new());
        for own in questions.into_values().map(sorted).filter(|own| own.len() > 1) {
            let middle = median(&own)?;
            from_middle.extend(own.iter().filter(|_| own.len() > 2).map(|logarithm| (logarithm - middle).abs()));
            let weight = ((own.len() * (own.len() - 1)) as f64).recip();
            for (index, one) in own.iter().enumerate() {
                pairs.extend(own[index + 1..].iter().map(|other| (other - one, weight)));
            }
        }
        let mean = from_middle.iter().sum::<f64>() / from_middle.len() as f64;
        // Of two runs either may set the level: both ends are equally far.
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut beyond = WITHIN * pairs.iter().map(|(_, weight)| weight).sum::<f64>();
        let (end, _) = pairs.into_iter().find(|(_, weight)| {
            beyond -= weight;
            beyond <= 0.0
        })?;
        (!from_middle.is_empty()).then(|| StepError {
            low: (-end).exp(),
            high: end.exp(),
            of_a_layout: mean / MEAN_DEVIATION,
        })
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

/// The standard deviation of a factor's logarithm, from an interval that covers 95 of 100.
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
    fn the_scatter_of_a_layout_is_that_within_a_question() {
        // Two questions, one of which is always 20 % slower.
        let run = |question: &str, logarithm: f64| Residual {
            model: question.to_owned(),
            question: question.to_owned(),
            logarithm,
        };
        let spread = |index: usize| 0.01 * (index as f64 - 50.0) / 50.0;
        let runs = (0..=100).flat_map(|index| [run("a", spread(index)), run("b", 0.2 + spread(index))]);
        let found = StepError::within_questions(&runs.collect::<Vec<_>>()).unwrap();
        assert!(
            found.of_a_layout > 0.0 && found.of_a_layout < 0.01 && found.low > 0.97 && found.high < 1.03,
            "{found:?}"
        );
        assert_eq!(StepError::within_questions(&[run("a", 0.0)]), None);
    }
}
