//! `fit.json`: a fit as data, versioned. The published JSON Schema (`commgauge show schema fit`) is made from these types.

use super::coefficient::BothWays;
use super::curve::{Cleaned, Curve, Interpolant, Line, MAX_EXTRAPOLATION, Outside, Point};
use super::sharing::{GroupDifficulty, Scaling};
use super::{Contention, CurveKey, Errors, FamilyKey, Interference, Overlap, PredictionPair, Regime};
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::sorted;
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
    /// True if no real time passed: the records are synthetic, and so is everything derived from them.
    pub synthetic: bool,
    /// The records.
    pub sources: Vec<Source>,
    /// One entry for all curves that differ only in group size.
    pub families: Vec<FamilyFit>,
    /// Growth of times with the number of concurrent groups; since version 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contention: Vec<Contention>,
    /// Slowdown of calls concurrent with calls of other axes; since version 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interference: Vec<Interference>,
    /// Share of a step's communication that is hidden; since version 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlap: Vec<Overlap>,
    /// Slowdown of messages between stages while messages flow in the opposite direction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub both_ways: Vec<BothWays>,
    /// Errors on points left out of the fit, over all curves.
    pub held_out: HeldOut,
    /// Excluded data, undetermined values and untrusted curves, as sentences.
    pub warnings: Vec<String>,
}

/// A record used in a fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Source {
    /// Its file, as given.
    pub file: String,
    pub run_id: String,
    /// The backend.
    pub backend: String,
    /// Library and version.
    pub library: String,
}

/// The curves of all group sizes of one call in one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FamilyFit {
    /// What the curves have in common.
    #[serde(flatten)]
    pub key: FamilyKey,
    /// How unmeasured group sizes are predicted.
    pub scaling: Scaling,
    /// Errors at inner group sizes when left out; absent with fewer than three group sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out_group_sizes: Option<Errors>,
    /// By group size, ascending.
    pub curves: Vec<CurveFit>,
    /// Calls measured at too few sizes for a curve: they only answer for themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lone: Vec<LoneCall>,
}

/// A measured call without a curve.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoneCall {
    /// Ranks of a group.
    pub ranks: u32,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Time of a call, over all replicates.
    pub seconds: Seconds,
    /// Lower end of the interval that holds 95 of 100 further replicates; absent with fewer than two.
    pub low: Option<Seconds>,
    /// Upper end.
    pub high: Option<Seconds>,
    /// Measurements behind it.
    pub replicates: u32,
}

/// Time against bytes on one group size.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurveFit {
    /// Ranks of a group.
    pub ranks: u32,
    /// Measured values, by ascending size.
    pub points: Vec<PointFit>,
    /// The lines whose minimum holds outside the measured sizes, steepest first.
    pub envelope: Vec<Line>,
    /// Sizes at which the next of those lines takes over, ascending; since version 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub breakpoints: Vec<Breakpoint>,
    /// Cost of a call, however small.
    pub alpha_seconds: Seconds,
    /// Lower end of its 95 % interval.
    pub alpha_seconds_low: Option<Seconds>,
    /// Upper end.
    pub alpha_seconds_high: Option<Seconds>,
    /// 1 / beta: bytes per second of an arbitrarily large call (`bytes_total` over time, not bus bandwidth); absent if more bytes did not
    /// take longer.
    pub bytes_per_second: Option<Rate>,
    /// Lower end of its 95 % interval.
    pub bytes_per_second_low: Option<Rate>,
    /// Upper end.
    pub bytes_per_second_high: Option<Rate>,
    /// Source of the intervals.
    pub intervals_from: Option<IntervalsFrom>,
    /// Errors at left-out sizes, every second one in turn; absent below five sizes.
    pub held_out_sizes: Option<Errors>,
    /// As above, by regime.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_out_regimes: Vec<RegimeErrors>,
    /// Largest error, as a fraction, at the two smallest and the two largest sizes when left out; absent below six sizes.
    pub extrapolation_error: Option<f64>,
    /// True if the mean held-out error exceeds 10 %: do not plan with it.
    pub untrusted: bool,
}

/// A size at which one line takes over from another: an approximation of a library's switch of algorithm or protocol.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Breakpoint {
    /// The size.
    pub bytes_total: f64,
    /// Lower end of its 95 % interval.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

/// A measured size.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PointFit {
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Time of a call as measured, over all replicates.
    pub measured_seconds: Seconds,
    /// Time on the curve; absent for an outlier excluded from the curve.
    pub curve_seconds: Option<Seconds>,
    /// Measurements behind it.
    pub replicates: u32,
    /// Those slower than `measured_seconds` by more than 10 %: disturbed and ignored.
    #[serde(default, skip_serializing_if = "is_none")]
    pub replicates_disturbed: u32,
    /// Error of the prediction of this size from the others when left out, as a fraction: positive if too slow; absent at the ends, and
    /// below five sizes.
    pub left_out_error: Option<f64>,
    /// Slower than a larger size by more than 10 %: disturbed, kept here but excluded from the curve.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outlier: bool,
}

/// Source of the intervals of alpha and beta.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IntervalsFrom {
    /// The replicates of each size.
    Replicates,
    /// Residuals of the sizes, in the absence of replicates.
    Residuals,
}

/// Errors of one regime.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegimeErrors {
    /// The sizes.
    pub regime: Regime,
    /// The errors.
    pub errors: Errors,
}

/// Errors on points left out of the fit, over all curves.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeldOut {
    /// At sizes, every second one in turn.
    pub sizes: Option<Errors>,
    /// As above, by regime.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regimes: Vec<RegimeErrors>,
    /// At inner group sizes.
    pub group_sizes: Option<Errors>,
    /// Width of the intervals of predictions, by their ground; a ground with too few left-out points is absent and has the margin of
    /// published machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub margins: Vec<Margin>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_none(count: &u32) -> bool {
    *count == 0
}

impl Fit {
    /// Reads `fit.json`.
    ///
    /// # Errors
    /// A usage error that names the file and the problem.
    pub fn read(path: &Path) -> Result<Fit> {
        let text = commgauge_base::host::read_to_string(path)
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
            _ => return Err(wrong(format!("is not a commgauge fit: it lacks `\"format\": \"{FORMAT}\"`"))),
        }
        serde_json::from_str(text).map_err(|cause| wrong(format!("broken: {cause}")))
    }
}

// The error of predictions, by their ground.
//
// Every kind of prediction has a difficulty in log time, which follows from the measured sizes: how far apart the candidates between two
// sizes are, how much the slopes at an end differ, how far ring and tree are apart. Points left out of a fit give errors as shares of their
// difficulty, and the share that 95 of 100 stay below is the margin of the kind: conformal prediction, one kind at a time (Vovk, Gammerman
// and Shafer, "Algorithmic Learning in a Random World", 2005, sections 2.2 and 4.5). If a fit left out too few points of a kind, the margin
// of the machines in `tests/data/nccl` applies.

/// The ground of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
// Its name in files and in output.
#[derive(Serialize, Deserialize, JsonSchema, strum::VariantArray)]
#[serde(rename_all = "snake_case")]
pub enum Ground {
    /// Below the smallest measured size.
    BelowRange,
    /// Between measured sizes, below 64 KiB.
    InsideSmall,
    /// Between measured sizes, to 16 MiB.
    InsideMiddle,
    /// Between measured sizes, above 16 MiB.
    InsideLarge,
    /// Above the largest measured size.
    AboveRange,
    /// From other group sizes.
    GroupSizes,
}

impl Ground {
    pub const ALL: [Ground; 6] = *<Ground as strum::VariantArray>::VARIANTS.as_array().expect("all of them");

    /// Between measured sizes.
    pub fn inside(bytes: f64) -> Ground {
        match Regime::of(Bytes(bytes as u64)) {
            Regime::Small => Ground::InsideSmall,
            Regime::Middle => Ground::InsideMiddle,
            Regime::Large => Ground::InsideLarge,
        }
    }

    /// The margin on the machines in `tests/data/nccl`: 95 of 100 errors there, in every half of the sizes left out in turn, with 4, 16 and 64
    /// MiB as largest and 16, 64 and 256 KiB as smallest size, and groups of four from two and eight.
    fn published(self) -> f64 {
        match self {
            Ground::BelowRange => 3.1,
            Ground::InsideSmall => 2.5,
            Ground::InsideMiddle => 1.7,
            Ground::InsideLarge => 1.3,
            Ground::AboveRange => 3.8,
            Ground::GroupSizes => 2.3,
        }
    }
}

/// The share of their difficulty that 95 of 100 errors of a ground stay below.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Margin {
    /// The ground.
    pub ground: Ground,
    /// Error in log time over difficulty.
    pub factor: f64,
    /// Number of left-out predictions.
    pub points: u64,
}

/// An error of a left-out point, as a share of its difficulty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Score {
    pub ground: Ground,
    pub share: f64,
}

impl Score {
    /// From a predicted and a measured time.
    pub fn of(ground: Ground, predicted: f64, measured: f64, difficulty: f64) -> Score {
        Score { ground, share: (predicted / measured).ln().abs() / difficulty }
    }
}

/// Minimum left-out predictions for a 95th percentile.
const FEWEST: usize = 40;

/// Size above which a library reaches its bandwidth. A curve that ends below it has no comparable sizes to leave out.
const SATURATED_BYTES: f64 = 16.0 * 1024.0 * 1024.0;

/// Sizes at an end that are left out, the outermost first.
const LEFT_OUT_AT_AN_END: usize = 5;

/// Minimum sizes that a curve with left-out ends must keep.
const FEWEST_KEPT: usize = 4;

/// The margins of all grounds with enough left-out points.
pub(super) fn margins(scores: &[Score]) -> Vec<Margin> {
    let of = |ground: Ground| {
        let shares = sorted(scores.iter().filter(|score| score.ground == ground).map(|score| score.share));
        // The rank of split conformal prediction: of n further points at most one in twenty is above it.
        let rank = (((shares.len() + 1) as f64) * 0.95).ceil() as usize;
        let factor = *shares.get(rank.saturating_sub(1)).or(shares.last())?;
        (shares.len() >= FEWEST).then_some(Margin { ground, factor, points: shares.len() as u64 })
    };
    Ground::ALL.into_iter().filter_map(of).collect()
}

/// The margin of a ground: from the fit, or from published machines. `last_bytes` is the largest size of the curve.
pub(super) fn factor(margins: &[Margin], ground: Ground, last_bytes: f64) -> f64 {
    let own = margins.iter().find(|margin| margin.ground == ground);
    let own = own.filter(|_| ground != Ground::AboveRange || last_bytes >= SATURATED_BYTES);
    own.map_or(ground.published(), |margin| margin.factor)
}

/// The widest margin of a ground. Above the measured sizes a rate changes by as much as a cache is faster than the memory behind it, about
/// four times; a large call sent as several of the largest measured one cannot change by more.
pub(super) fn most(ground: Ground) -> f64 {
    match ground {
        Ground::AboveRange => 4_f64.ln(),
        _ => f64::INFINITY,
    }
}

/// The scores of a curve's sizes at both ends, left out in turn.
pub(super) fn scores_of_ends(points: &[Point]) -> Vec<Score> {
    let mut scores = Vec::new();
    for count in 1..=LEFT_OUT_AT_AN_END.min(points.len().saturating_sub(FEWEST_KEPT)) {
        let (head, tail) = points.split_at(count);
        if let Some(outside) = Outside::of(&Cleaned::of(tail).points) {
            scores.extend(head.iter().map(|point| {
                let difficulty = outside.difficulty_below(point.bytes);
                Score::of(Ground::BelowRange, outside.below(point.bytes), point.seconds, difficulty)
            }));
        }
        let (head, tail) = points.split_at(points.len() - count);
        let Some(outside) = Outside::of(&Cleaned::of(head).points) else { continue };
        let near = tail.iter().filter(|point| point.bytes <= outside.last.bytes * MAX_EXTRAPOLATION);
        scores.extend(near.map(|point| {
            let difficulty = outside.difficulty_above(point.bytes);
            Score::of(Ground::AboveRange, outside.above(point.bytes), point.seconds, difficulty)
        }));
    }
    scores
}

/// The score of a size between others.
pub(super) fn score_inside(curve: &Interpolant, point: Point) -> Score {
    let Point { bytes, seconds } = point;
    Score::of(Ground::inside(bytes), curve.seconds(bytes), seconds, curve.difficulty(bytes))
}

/// The score of a group size between others.
pub(super) fn score_of_group(predicted: GroupDifficulty, measured: f64) -> Score {
    Score::of(Ground::GroupSizes, predicted.seconds, measured, predicted.difficulty)
}

// A fitted curve with the data behind its errors.

/// A left-out size.
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

#[cfg(test)]
mod tests {

    use super::*;

    fn scores(count: usize) -> Vec<Score> {
        (1..=count).map(|index| Score { ground: Ground::InsideSmall, share: index as f64 }).collect()
    }

    #[test]
    fn a_margin_holds_95_of_100_and_needs_enough() {
        assert!(margins(&scores(FEWEST - 1)).is_empty());
        let found = margins(&scores(99));
        assert_eq!((found[0].factor, found[0].points), (95.0, 99));
    }

    #[test]
    fn without_enough_the_margin_is_that_of_published_machines() {
        let own = margins(&scores(99));
        assert_eq!(factor(&own, Ground::InsideSmall, 1e3), 95.0);
        assert_eq!(factor(&own, Ground::InsideLarge, 1e3), Ground::InsideLarge.published());
    }

    #[test]
    fn a_curve_that_ends_before_its_bandwidth_is_reached_does_not_judge_its_own_tail() {
        let own = [Margin { ground: Ground::AboveRange, factor: 0.5, points: 100 }];
        assert_eq!(factor(&own, Ground::AboveRange, 1e6), Ground::AboveRange.published());
        assert_eq!(factor(&own, Ground::AboveRange, 1e8), 0.5);
    }

    #[test]
    fn sizes_at_both_ends_are_left_out() {
        let points: Vec<Point> =
            (0..12).map(|step| 1e3 * 2f64.powi(step)).map(|bytes| Point::new(bytes, 1e-5 + bytes * 1e-9)).collect();
        let found = scores_of_ends(&points);
        assert_eq!(found.len(), 2 * (1 + 2 + 3 + 4 + 5));
        assert!(found.iter().all(|score| score.share < 1e-6), "a line is predicted exactly: {found:?}");
    }
}
