//! From records to predicted times: curves over measured sizes, transfer to other group sizes, and the errors of both.
//!
//! [`Measurements`] collects the times of records, [`fit`](fit()) makes a [`Fit`] of them, which is stored in `fit.json`, and a
//! [`Predictor`] answers [`Query`]s from a fit. All printed errors are held-out errors.

mod coefficient;
mod contention;
pub mod curve;
mod document;
mod errors;
mod fit;
pub mod measured;
mod place;
mod predict;
pub mod sharing;

pub use coefficient::{AtOnce, BothWays, Coefficient, Interference, Overlap, seconds as seconds_of_call};
pub use contention::{Contention, ErrorsFrom, SlowdownFactor, contention};
pub use curve::MAX_EXTRAPOLATION;
pub use document::{
    Breakpoint, CurveFit, FORMAT, FamilyFit, Fit, Ground, HeldOut, LoneCall, Margin, PointFit, Source, VERSION,
};
pub use errors::{Errors, PredictionPair, Regime};
pub use fit::{FitOptions, fit};
pub use measured::Measurements;
pub use place::{CurveKey, FamilyKey, Labels, Measured, Place, PlaceQuery};
pub use predict::{Prediction, Predictor, Query, Status};

/// The JSON Schema of `fit.json`.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Fit).to_value()
}
