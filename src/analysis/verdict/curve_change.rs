//! How the latency or the bandwidth of a whole curve changed against the base.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A part of a curve's cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CurvePart {
    /// Alpha: what a call costs however small it is, in seconds.
    Latency,
    /// Beta: what a further byte costs however large the call is, in seconds.
    Bandwidth,
}

impl CurvePart {
    /// The name in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            CurvePart::Latency => "latency",
            CurvePart::Bandwidth => "bandwidth",
        }
    }
}

/// A part of a curve's cost, before and after. A slow-down of 0.05 is 5 % more alpha, or 5 % more beta.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurveChange {
    /// The calls, as the names of their cases have in common.
    pub name: String,
    /// Cases on the curve.
    pub cases: u32,
    /// Which part.
    pub part: CurvePart,
    /// Median of the base: alpha in seconds, beta in seconds for a byte.
    pub base: f64,
    /// Median of the new.
    pub new: f64,
    /// Share by which the new costs more, the middle of all pairs of replicates.
    pub slowdown: f64,
    /// Its lower confidence bound; absent with too few replicates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdown_lower_bound: Option<f64>,
    /// Its upper confidence bound; absent with too few replicates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdown_upper_bound: Option<f64>,
    /// Probability of as much by chance, corrected for all rows and curves.
    pub p_corrected: f64,
    /// True where it got worse by what matters, and chance is ruled out.
    pub worse: bool,
}
