//! `fit.json`: a fit as data, versioned. The published JSON Schema (`commgauge schema fit`) is made from these types.

use super::both_ways::BothWays;
use super::curve::Line;
use super::margin::Margin;
use super::transfer::Scaling;
use super::{Contention, Errors, FamilyKey, Interference, Overlap, Regime};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Bytes, Rate, Seconds};
use commgauge_base::visible::ShownPath;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The value of `format`.
pub const FORMAT: &str = "commgauge-fit";
/// The version that this program writes, and the newest that it reads.
pub const VERSION: u32 = 2;

/// A fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fit {
    /// Always `commgauge-fit`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// True where no real time passed: the records were synthetic, and so is everything that follows from them.
    pub synthetic: bool,
    /// The records.
    pub sources: Vec<Source>,
    /// One for all curves that differ only in the size of the group.
    pub families: Vec<FamilyFit>,
    /// How times grow with the groups at once; since version 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contention: Vec<Contention>,
    /// How times grow beside calls of other axes; since version 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interference: Vec<Interference>,
    /// What a step hides of its communication; since version 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlap: Vec<Overlap>,
    /// How much longer messages between stages take while others come the opposite way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub both_ways: Vec<BothWays>,
    /// Errors on points that the fit did not see, over all curves.
    pub held_out: HeldOut,
    /// What was left aside, what cannot be determined, which curves are not to be trusted, as sentences.
    pub warnings: Vec<String>,
}

/// A record that went into a fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Source {
    /// Its file, as it was named.
    pub file: String,
    /// The run.
    pub run_id: String,
    /// Who carried the calls out.
    pub backend: String,
    /// Library and version.
    pub library: String,
}

/// The curves of all group sizes of one call in one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FamilyFit {
    /// What they have in common.
    #[serde(flatten)]
    pub key: FamilyKey,
    /// How group sizes that were not measured follow.
    pub scaling: Scaling,
    /// Errors at inner group sizes that were left out; absent with fewer than three group sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out_group_sizes: Option<Errors>,
    /// By group size, ascending.
    pub curves: Vec<CurveFit>,
    /// Calls that were measured at too few sizes for a curve: they answer for themselves alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lone: Vec<LoneCall>,
}

/// A call that was measured, and no curve through it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoneCall {
    /// Ranks of a group.
    pub ranks: u32,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Time of a call, over all replicates.
    pub seconds: Seconds,
    /// Lower end of the interval that holds 95 of 100 further replicates; absent with fewer than two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<Seconds>,
    /// Upper end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<Seconds>,
    /// Measurements behind it.
    pub replicates: u32,
}

/// Time against bytes on one group size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurveFit {
    /// Ranks of a group.
    pub ranks: u32,
    /// What was measured, by ascending size.
    pub points: Vec<PointFit>,
    /// The lines whose minimum holds outside the measured sizes, steepest first.
    pub envelope: Vec<Line>,
    /// Where the next of those lines takes over, by ascending size; since version 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub breakpoints: Vec<Breakpoint>,
    /// Cost of a call however small.
    pub alpha_seconds: Seconds,
    /// Lower end of its 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpha_seconds_low: Option<Seconds>,
    /// Upper end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpha_seconds_high: Option<Seconds>,
    /// 1 / beta: bytes per second of a call however large (`bytes_total` over time, not bus bandwidth); absent where more
    /// bytes did not take longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<Rate>,
    /// Lower end of its 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second_low: Option<Rate>,
    /// Upper end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second_high: Option<Rate>,
    /// What the intervals come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intervals_from: Option<IntervalsFrom>,
    /// Errors at sizes that were left out, every second one in turn; absent below five sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out_sizes: Option<Errors>,
    /// The same by regime.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_out_regimes: Vec<RegimeErrors>,
    /// Largest error, as a fraction, at the two smallest and the two largest sizes when those were left out; absent
    /// below six sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extrapolation_error: Option<f64>,
    /// True where the mean held-out error is over 10 %: not to be planned on.
    pub untrusted: bool,
}

/// A size at which one line takes over from another: a library's switch of algorithm or protocol, seen from far away.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Breakpoint {
    /// The size.
    pub bytes_total: f64,
    /// Lower end of its 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
}

/// A measured size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PointFit {
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Time of a call as measured, over all replicates.
    pub measured_seconds: Seconds,
    /// Time on the curve; absent for an outlier that the curve passes by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve_seconds: Option<Seconds>,
    /// Measurements behind it.
    pub replicates: u32,
    /// Of them, those slower than `measured_seconds` by more than 10 %: disturbed, and without a say in it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub replicates_disturbed: u32,
    /// Error of the prediction of this size from the others when it was left out, as a fraction: above zero where it was too
    /// slow; absent at the ends, and below five sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out_error: Option<f64>,
    /// Slower than a larger size by more than 10 %: disturbed, kept here and left out of the curve.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outlier: bool,
}

/// What the intervals of alpha and beta were resampled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IntervalsFrom {
    /// The replicates of each size.
    Replicates,
    /// How far the sizes lie from the lines, for want of replicates.
    Residuals,
}

/// Errors of one regime.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegimeErrors {
    /// Which sizes.
    pub regime: Regime,
    /// How wrong.
    pub errors: Errors,
}

/// Errors on points that the fit did not see, over all curves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeldOut {
    /// At sizes, every second one in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Errors>,
    /// The same by regime.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regimes: Vec<RegimeErrors>,
    /// At inner group sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_sizes: Option<Errors>,
    /// How wide the intervals of predictions are, by the ground that they stand on; a ground of which too little was left out is not
    /// there, and has the margin of published machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub margins: Vec<Margin>,
}

impl PointFit {
    /// Whether the size, or one of its measurements, was disturbed.
    pub fn is_disturbed(&self) -> bool {
        self.outlier || self.replicates_disturbed > 0
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_none(count: &u32) -> bool {
    *count == 0
}

impl Fit {
    /// Reads `fit.json`.
    ///
    /// # Errors
    /// A usage error that names the file and what is wrong with it.
    pub fn read(path: &Path) -> Result<Fit> {
        let text = commgauge_base::input_file::read_to_string(path)
            .map_err(|cause| Error::usage(format!("{}: cannot read the fit: {cause}", path.shown())))?;
        Fit::parse(&text, path)
    }

    /// Reads the text of a fit; `path` is for the messages.
    ///
    /// # Errors
    /// As [`Fit::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Fit> {
        #[derive(Deserialize)]
        struct Begin {
            format: Option<String>,
            version: Option<u64>,
        }
        let wrong = |problem: String| Error::usage(format!("{}: {problem}", path.shown()));
        let begin: Begin =
            serde_json::from_str(text).map_err(|cause| wrong(format!("is not a commgauge fit: {cause}")))?;
        match (begin.format.as_deref(), begin.version) {
            // Version 1 has no contention, interference and overlap.
            (Some(FORMAT), Some(1..=2)) => {}
            (Some(FORMAT), Some(version)) => {
                return Err(wrong(format!(
                    "is a fit of version {version}; this commgauge reads up to version {VERSION}"
                )));
            }
            _ => return Err(wrong(format!("is not a commgauge fit: it does not say `\"format\": \"{FORMAT}\"`"))),
        }
        serde_json::from_str(text).map_err(|cause| wrong(format!("broken: {cause}")))
    }
}
