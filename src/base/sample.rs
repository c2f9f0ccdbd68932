//! One timed iteration with the values agreed by all ranks, and why it may be unreliable.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Cadence: calls back to back, or each from an agreed start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
// Its name in files and in output.
#[derive(Serialize, Deserialize, JsonSchema, strum::IntoStaticStr, strum::Display, strum::VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Cadence {
    /// Calls back to back between two clock reads, as in nccl-tests. (In OSU only the point-to-point tests; its collectives start each call
    /// after a barrier, which is isolated.)
    #[default]
    Streaming,
    /// Every iteration separately, started by all ranks together.
    Isolated,
}

crate::error::names!(Cadence, ClockMethod, Timing);

/// How the ranks start an isolated call together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
// Its name in files and in output.
#[derive(Serialize, Deserialize, JsonSchema, strum::IntoStaticStr, strum::Display, strum::VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ClockMethod {
    /// At an agreed time on the synchronised clock.
    #[default]
    Synchronised,
    /// Each as it leaves a barrier, as in OSU and IMB.
    Barrier,
}

impl ClockMethod {
    /// Whether calls start at an agreed time.
    pub fn is_synchronised(&self) -> bool {
        *self == ClockMethod::Synchronised
    }
}

impl std::str::FromStr for ClockMethod {
    type Err = String;

    fn from_str(text: &str) -> Result<ClockMethod, String> {
        crate::error::named(text)
    }
}

/// The readings between which streaming calls are timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
// Its name in files and in output.
#[derive(Serialize, Deserialize, JsonSchema, strum::IntoStaticStr, strum::Display, strum::VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Timing {
    /// A few calls each between two marks: events on a device's stream, which the host reads afterwards.
    #[default]
    Marks,
    /// All calls of a case between two readings of the host's clock, the second after the last call is complete, as in nccl-tests
    /// (`BenchTime` of its `src/common.cu`): includes the host's work before the first call begins and after the last one ends.
    Whole,
}

impl Timing {
    /// Whether marks delimit samples.
    pub fn is_by_marks(&self) -> bool {
        *self == Timing::Marks
    }
}

impl std::str::FromStr for Timing {
    type Err = String;

    fn from_str(text: &str) -> Result<Timing, String> {
        crate::error::named(text)
    }
}

/// One timed iteration of a case. Times are those of the whole sample: `calls_per_sample` calls when streaming,
/// one when isolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The slowest rank's time: when streaming the longest time of any rank, when isolated the latest end minus
    /// the common start.
    pub slowest_nanoseconds: u64,
    pub slowest_rank: u32,
    /// Isolated: from the first rank's arrival at the call to the last one's. Streaming: 0, unknown.
    pub arrival_spread_nanoseconds: u64,
    /// Isolated: the latest end minus the last arrival, the transfer itself. Streaming: equal to `slowest_nanoseconds`.
    pub transfer_nanoseconds: u64,
    /// Isolated: world rank that arrived last. Streaming: equal to `slowest_rank`.
    pub last_rank: u32,
    /// Why the statistics exclude this sample; `None` if it is valid.
    pub exclusion: Option<ExclusionReason>,
}

impl Sample {
    /// A sample with only the slowest rank's time, without arrival times.
    pub fn without_arrivals(slowest: Located, exclusion: Option<ExclusionReason>) -> Sample {
        let (nanoseconds, rank) = (slowest.value.max(0.0) as u64, slowest.rank as u32);
        Sample {
            slowest_nanoseconds: nanoseconds,
            slowest_rank: rank,
            arrival_spread_nanoseconds: 0,
            transfer_nanoseconds: nanoseconds,
            last_rank: rank,
            exclusion,
        }
    }
}

/// Why a sample is kept but excluded from the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExclusionReason {
    /// A rank reached the waiting loop after the agreed start.
    MissedStart,
    /// The iteration took no measurable time on this clock.
    BelowClockResolution,
}

/// A value and the world rank it belongs to.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Located {
    pub value: f64,
    /// World rank of its holder.
    pub rank: i32,
}

/// The first wrong call of a rank among the compared ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WrongCall {
    /// Its number among the calls of the case and replicate, from 1 on; warm-up and checks count.
    pub number: u64,
    /// Copies of the buffers with wrong elements.
    pub wrong_copies: u64,
    /// Copies that were compared.
    pub compared_copies: u64,
}
