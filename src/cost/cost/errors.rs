//! Prediction errors on points that the fit did not use.

use commgauge_base::stats::{median, percentile, sorted};
use commgauge_base::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A predicted and a measured value, in the same unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictionPair {
    /// Without knowledge of the measurement.
    pub predicted: f64,
    /// Above zero.
    pub measured: f64,
}

impl PredictionPair {
    /// The relative error, as a fraction: positive if the prediction is too large.
    pub fn error(self) -> f64 {
        self.predicted / self.measured - 1.0
    }
}

/// Relative errors, as fractions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Errors {
    /// Predictions compared.
    pub points: u64,
    /// Median of the absolute errors.
    pub median: f64,
    /// Mean of the absolute errors.
    pub mean: f64,
    /// 95th percentile of the absolute errors; absent below 20 points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95: Option<f64>,
    /// Largest absolute error.
    pub maximum: f64,
    /// Mean signed error: positive if predictions are too slow.
    pub bias: f64,
}

impl Errors {
    /// The errors of predictions; `None` without any.
    pub fn of(pairs: impl IntoIterator<Item = PredictionPair>) -> Option<Errors> {
        let errors: Vec<f64> = pairs.into_iter().map(PredictionPair::error).collect();
        let amounts = sorted(errors.iter().map(|error| error.abs()));
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        Some(Errors {
            points: errors.len() as u64,
            median: median(&amounts)?,
            mean: mean(&amounts),
            p95: percentile(&amounts, 95.0),
            maximum: *amounts.last()?,
            bias: mean(&errors),
        })
    }

    /// The 95th percentile, or with fewer points the largest.
    pub fn p95_or_maximum(&self) -> f64 {
        self.p95.unwrap_or(self.maximum)
    }
}

/// Sizes that behave alike: bound by latency, by neither, by bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
// Its name in files and in output.
#[derive(Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
pub enum Regime {
    /// Below 64 KiB.
    #[strum(serialize = "below 64 KiB")]
    Small,
    /// From 64 KiB to 16 MiB.
    #[strum(serialize = "to 16 MiB")]
    Middle,
    /// Above 16 MiB.
    #[strum(serialize = "above 16 MiB")]
    Large,
}

commgauge_base::error::names!(Regime);

impl Regime {
    pub const ALL: [Regime; 3] = [Regime::Small, Regime::Middle, Regime::Large];

    /// The regime of a size.
    pub fn of(bytes: Bytes) -> Regime {
        match bytes.0 {
            0..0x1_0000 => Regime::Small,
            0x1_0000..=0x100_0000 => Regime::Middle,
            _ => Regime::Large,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_what_was_measured() {
        assert_eq!(Errors::of([]), None);
        let pair = |predicted, measured| PredictionPair { predicted, measured };
        let errors = Errors::of([pair(1.1, 1.0), pair(0.8, 1.0), pair(4.0, 4.0)]).unwrap();
        assert!((errors.median - 0.1).abs() < 1e-12 && (errors.maximum - 0.2).abs() < 1e-12, "{errors:?}");
        assert!((errors.bias + 0.1 / 3.0).abs() < 1e-12 && errors.p95.is_none());
    }

    #[test]
    fn regimes_end_at_64_kib_and_16_mib() {
        for (bytes, regime) in [
            (65_535, Regime::Small),
            (65_536, Regime::Middle),
            (16 << 20, Regime::Middle),
            ((16 << 20) + 1, Regime::Large),
        ] {
            assert_eq!(Regime::of(Bytes(bytes)), regime, "{bytes}");
        }
    }
}
