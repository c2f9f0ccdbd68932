//! A fitted curve with what its errors are computed from.

use super::curve::{Curve, Point};
use super::document::CurveFit;
use super::margin::Score;
use super::{CurveKey, PredictionPair};

/// A size that was left out.
#[derive(Clone, Copy)]
pub(super) struct LeftOut {
    pub bytes: f64,
    pub seconds: PredictionPair,
    pub score: Score,
}

/// A fitted curve with its intermediate results.
pub(super) struct Fitted {
    pub key: CurveKey,
    pub document: CurveFit,
    pub curve: Curve,
    /// Raw points, not cleaned.
    pub points: Vec<Point>,
    pub(super) left_out: Vec<LeftOut>,
}
