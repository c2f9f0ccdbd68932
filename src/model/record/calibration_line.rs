//! The lines of a calibration run, which chooses its own sizes: the cases that each round adds and why, and the final state.

use super::case_facts::CaseFacts;
use commgauge_base::units::{Bytes, Seconds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Cases that were not known at the start. They belong to the plan, behind those that it has already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanGrowth {
    /// Which round, from 1.
    pub round: u32,
    /// The further cases; the first has the index of the number of cases planned so far.
    pub cases: Vec<CaseFacts>,
    /// Case lines that they add to a complete record: cases times replicates.
    pub case_lines: u64,
    /// Estimated time of the round.
    pub estimated_seconds: Seconds,
    /// Why each of them, in the same order.
    pub chosen: Vec<ChosenSize>,
}

/// Why a size was chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChosenSize {
    /// The nearest smaller size that was measured.
    pub above: Bytes,
    /// The nearest larger one.
    pub below: Bytes,
    /// How wrong the curve was expected to be between the two, as a fraction of the time.
    pub expected_error: f64,
    /// What the curve said of the size before it was measured: its error is a held-out one.
    pub predicted_seconds: Seconds,
}

/// How far choosing sizes came; written after the last round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CalibrationLine {
    /// The error that was requested.
    pub until_error: f64,
    /// Rounds that were begun.
    pub rounds: u32,
    /// Every curve.
    pub curves: Vec<CalibratedCurve>,
}

/// A curve whose sizes were chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CalibratedCurve {
    /// Index in the plan of one of its cases; the others differ from it in their size only.
    pub case: u32,
    /// Sizes that were measured.
    pub sizes: u32,
    /// How wrong the curve is still expected to be where it is least sure; absent with fewer than two measured sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_error: Option<f64>,
    /// How wrong the prediction of the size that was measured last had been; absent where none was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<f64>,
    /// The largest such error over all sizes that were added, of which the first are predicted from a few sizes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_error: Option<f64>,
    /// Why no size is added.
    pub outcome: CalibrationEnd,
}

/// Why no size is added to a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CalibrationEnd {
    /// The curve is as sure as was asked.
    Sure,
    /// It has the most sizes that were allowed.
    MostSizes,
    /// No size lies between two that were measured.
    NoSizeBetween,
    /// The time was spent.
    Budget,
    /// The run may have no more cases.
    MostCases,
    /// A signal.
    Interrupted,
    /// Fewer than two of its sizes could be measured.
    NotMeasured,
}

impl CalibrationEnd {
    /// The label in tables.
    pub fn name(self) -> &'static str {
        match self {
            CalibrationEnd::Sure => "sure",
            CalibrationEnd::MostSizes => "most sizes reached",
            CalibrationEnd::NoSizeBetween => "no size between",
            CalibrationEnd::Budget => "time spent",
            CalibrationEnd::MostCases => "most cases reached",
            CalibrationEnd::Interrupted => "interrupted",
            CalibrationEnd::NotMeasured => "not measured",
        }
    }
}
