//! A fitted curve with what its errors are computed from.

use super::curve::Curve;
use super::document::CurveFit;

/// A size that was left out: bytes, seconds as predicted, seconds as measured.
pub(super) type Pair = (f64, f64, f64);

/// A fitted curve with its intermediate results.
pub(super) struct Fitted {
    pub document: CurveFit,
    pub curve: Curve,
    /// Raw points, not cleaned: bytes and seconds.
    pub points: Vec<(f64, f64)>,
    pub(super) left_out: Vec<Pair>,
}
