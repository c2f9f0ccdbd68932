//! From records to predicted times: curves of measured sizes, transfer to other group sizes, and how far both can be
//! trusted.
//!
//! [`Measurements`] gathers what records say, [`fit`](fit()) makes a [`Fit`] of it, which is what `fit.json` holds, and a
//! [`Predictor`] answers [`Query`]s from a fit. Every error that is printed is that of points that were left out.

mod bootstrap;
mod both_ways;
mod coefficient;
mod contention;
pub mod curve;
mod document;
mod errors;
mod family;
mod fit;
mod interference;
mod labels;
mod measured;
pub mod next_point;
mod overlap;
mod place;
mod predict;
mod sharing;
pub mod transfer;

pub use both_ways::BothWays;
pub use coefficient::Coefficient;
pub use contention::{Contention, ErrorsFrom, Slower, contention};
pub use document::{Breakpoint, CurveFit, FORMAT, FamilyFit, Fit, HeldOut, PointFit, Source, VERSION};
pub use errors::{Errors, Regime};
pub use fit::{FitOptions, fit};
pub use interference::{AtOnce, Interference};
pub use labels::Labels;
pub(crate) use measured::seconds as seconds_of_call;
pub use measured::{CurveKey, FamilyKey, Measured, Measurements};
pub use overlap::Overlap;
pub use place::{Asked, Place};
pub use predict::{Prediction, Predictor, Query, Status};

/// The JSON Schema of `fit.json`.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Fit).to_value()
}
