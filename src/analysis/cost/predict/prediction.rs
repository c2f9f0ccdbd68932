//! What is asked of a fit, and its answer: a time, its interval and its basis.

use crate::cost::place::PlaceQuery;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Bytes, Seconds};
use schemars::JsonSchema;
use serde::Serialize;

/// A call whose time is requested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Query {
    /// The call.
    pub collective: Collective,
    /// Ranks of the group.
    pub ranks: u32,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Type of the elements; not needed where only one was measured, or where the call only moves bytes.
    pub element_type: Option<ElementType>,
    /// Locality of the group; not needed where only one place was measured.
    pub locality: Option<PlaceQuery>,
    /// Cadence; defaults to streaming where both were measured.
    pub cadence: Option<Cadence>,
}

/// On what ground a prediction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// This very call was measured, and too few sizes for a curve.
    Measured,
    /// The group size was measured, and sizes on both sides.
    Interpolated,
    /// Outside the measured sizes or group sizes.
    Extrapolated,
    /// Between measured group sizes.
    Transferred,
    /// Not answered.
    Refused,
}

impl Status {
    /// The name in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Status::Measured => "measured",
            Status::Interpolated => "interpolated",
            Status::Extrapolated => "extrapolated",
            Status::Transferred => "transferred",
            Status::Refused => "refused",
        }
    }
}

/// A predicted time and its basis.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Time of the call; absent where refused.
    pub seconds: Option<Seconds>,
    /// Lower end of the interval that holds 95 of 100 such calls, by the held-out errors of this kind; absent where nothing could be left
    /// out.
    pub low: Option<Seconds>,
    /// Upper end of that interval.
    pub high: Option<Seconds>,
    /// Basis of the prediction.
    pub status: Status,
    /// Why it was refused or is not to be trusted, or which place it was scaled from.
    pub reason: Option<String>,
    /// True where the held-out error of its curve is over 10 %, or larger groups are on slower links.
    pub untrusted: bool,
}

impl Prediction {
    /// A refused prediction with its reason.
    pub fn refused(reason: String) -> Prediction {
        let status = Status::Refused;
        Prediction { seconds: None, low: None, high: None, status, reason: Some(reason), untrusted: false }
    }
}
