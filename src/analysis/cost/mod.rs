//! From records to predicted times: curves over measured sizes, transfer to other group sizes, and the errors of both.
//!
//! [`Measurements`] collects the times of records, [`fit`](fit()) makes a [`Fit`] of them, which is stored in `fit.json`, and a
//! [`Predictor`] answers [`Query`]s from a fit. All printed errors are held-out errors.

mod bootstrap;
mod both_ways;
mod call_seconds;
mod coefficient;
mod contention;
pub mod curve;
mod curve_key;
mod document;
mod errors;
mod family;
mod fit;
mod fitted_curve;
mod interference;
mod labels;
mod lone;
mod margin;
mod measured;
pub mod next_point;
mod overlap;
mod place;
mod predict;
mod sharing;
pub mod transfer;

pub use both_ways::BothWays;
pub use call_seconds::seconds as seconds_of_call;
pub use coefficient::Coefficient;
pub use contention::{Contention, ErrorsFrom, SlowdownFactor, contention};
pub use curve::MAX_EXTRAPOLATION;
pub use curve_key::{CurveKey, FamilyKey, Labels, Measured};
pub use document::{Breakpoint, CurveFit, FORMAT, FamilyFit, Fit, HeldOut, LoneCall, PointFit, Source, VERSION};
pub use errors::{Errors, PredictionPair, Regime};
pub use fit::{FitOptions, fit};
pub use interference::{AtOnce, Interference};
pub use margin::{Ground, Margin};
pub use measured::Measurements;
pub use overlap::Overlap;
pub use place::{Place, PlaceQuery};
pub use predict::{Prediction, Predictor, Query, Status};

/// The JSON Schema of `fit.json`.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Fit).to_value()
}
