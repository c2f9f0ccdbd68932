//! The lines of a record. The published JSON Schema (`commgauge schema`) is made from these types.
//!
//! Numbers carry their unit in their name; there is no NaN and no infinity, an unknown value is left out or null.

pub use super::backend_line::{BackendLine, ForeignTool};
use super::calibration_line::{CalibrationLine, PlanGrowth};
pub use super::case_facts::{CaseFacts, StepUse};
use super::copy_line::CopyLine;
use super::device_line::{DeviceReadingsLine, DevicesLine};
pub use super::end_line::{End, EndStatus};
use super::hang_line::HangLine;
use super::interference_line::InterferenceLine;
pub use super::outcome::Outcome;
pub use super::pair_times::PairTimes;
use super::product_line::ProductLine;
pub use super::rank_facts::RankFacts;
use super::replay_line::ReplayLine;
use super::resume_line::ResumeLine;
pub use super::samples_line::{ClockErrors, RankHistogram, Samples};
pub use super::settings_line::Settings;
use super::unwatched_line::UnwatchedLine;
use crate::workload::{RankedStep, StepFacts};
use commgauge_base::stats::sorted;
use commgauge_base::units::Seconds;
use commgauge_base::variant::LibraryChoice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The value of `format` in every header.
pub const FORMAT: &str = "commgauge-record";
/// The version of the format that this program writes, and the newest that it reads.
pub const VERSION: u32 = 1;

/// One line of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// First line: where the numbers come from.
    Header(Box<Header>),
    /// Second line: what will be measured.
    Plan(Plan),
    /// How well the ranks' clocks agree; one before the first and one after the last case.
    Clock(ClockLine),
    /// One case of one replicate.
    Case(Box<CaseLine>),
    /// A whole step, replayed.
    Replay(Box<ReplayLine>),
    /// A call alone and beside calls of another axis, in one replicate.
    Interference(Box<InterferenceLine>),
    /// Cases that a run added to its plan.
    PlanGrowth(Box<PlanGrowth>),
    /// How far choosing sizes came.
    Calibration(CalibrationLine),
    /// A matrix product, in one replicate.
    Product(Box<ProductLine>),
    /// A copy between a host and its GPUs, or between GPUs, in one replicate.
    Copy(Box<CopyLine>),
    /// What the watchdog saw when it ended the run.
    Hang(Box<HangLine>),
    /// The watchdog of a host was lost.
    Unwatched(UnwatchedLine),
    /// The devices of the ranks.
    Devices(Box<DevicesLine>),
    /// The devices before and after a case of a replicate.
    DeviceReadings(Box<DeviceReadingsLine>),
    /// A further launch goes on with a run that had ended early.
    Resume(Box<ResumeLine>),
    /// How the run ended. The last line, but for a run that was resumed later; a record without it was cut off.
    End(End),
}

/// Provenance: everything needed to say what the numbers were measured on, and to measure them again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// Always `commgauge-record`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Unique name of the run: start time and a random part.
    pub run_id: String,
    /// Wall-clock start, RFC 3339 with offset.
    pub started_at: String,
    /// Program that measured.
    pub program: String,
    /// Its version.
    pub program_version: String,
    /// SHA-256 of its binary.
    pub program_sha256: String,
    /// Its command line, word by word.
    pub command_line: Vec<String>,
    /// The launch command that `commgauge run` built, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_command: Option<Vec<String>>,
    /// What was requested.
    pub suite: SuiteFacts,
    /// Who carried the ops out.
    pub backend: BackendLine,
    /// Number of ranks.
    pub world_size: u32,
    /// Seed of data and order.
    pub seed: u64,
    /// How samples were taken.
    pub settings: Settings,
    /// One entry per rank; per host, with `ranks` above 1, when simulated.
    pub ranks: Vec<RankFacts>,
    /// Variables from the allow-list (NCCL_*, OMPI_MCA_*, UCX_*, ...) of rank 0, never the whole environment.
    pub environment: BTreeMap<String, String>,
    /// Warnings about the machine that hold for all cases, as sentences (more ranks than cores, coarse clock).
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What a reader should know of the machine and what speaks against no case, as sentences (ranks that are not bound to cores).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A note of records of other tools whose files do not say when they ran.
pub const START_NOT_STATED: &str = "the log does not say when it ran; the record has the date of its newest file";

impl Header {
    /// When the run started, for people.
    pub fn started(&self) -> String {
        match self.notes.iter().any(|note| note == START_NOT_STATED) {
            true => format!("not stated (its newest file is of {})", self.started_at),
            false => self.started_at.clone(),
        }
    }

    /// Whether buffers were in caches before calls: `cold`, `warm`, or `not stated` of another tool's run.
    pub fn buffers(&self) -> &'static str {
        match (&self.backend.measured_by, self.settings.warm_buffers) {
            (Some(_), _) => "not stated",
            (None, true) => "warm",
            (None, false) => "cold",
        }
    }
}

/// The suite that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteFacts {
    /// Its name.
    pub name: String,
    /// Its file; absent for a sweep given by flags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// SHA-256 over the suite and every file that it names.
    pub sha256: String,
    /// The model, if the suite names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The layout as written, such as `tp 2 x dp 2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
}

/// What will be measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Every case, in the order of the suite. A case is named by its index here.
    pub cases: Vec<CaseFacts>,
    /// Case lines that a complete record has: cases times replicates.
    pub case_lines: u64,
    /// Lines of matrix products and of copies that a complete record has: both times replicates.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub product_lines: u64,
    /// Estimated time of the whole run.
    pub estimated_seconds: Seconds,
    /// The steps that cases belong to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepFacts>,
    /// The step whose parallelisms are ranked from the measured calls, as the ranks do not hold its layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranking: Option<RankedStep>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

pub use commgauge_base::sample::ClockMethod;

/// Agreement of the clocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockLine {
    /// `start` or `end`.
    pub moment: ClockMoment,
    /// `synchronised`, or `barrier` where no common clock could be had or a barrier was asked for.
    pub method: ClockMethod,
    /// Resolution of the marks.
    pub resolution_nanoseconds: u64,
    /// Largest disagreement left between any rank's clock and rank 0's. No smaller difference between ranks is reported.
    pub residual_nanoseconds: u64,
    /// The bound of an offset's error, for the rank that is worst off: half the shortest round trip, added up along the
    /// way to rank 0.
    pub worst_half_round_trip_nanoseconds: u64,
    /// Largest drift against rank 0, in parts per million.
    pub worst_drift_ppm: f64,
}

/// When the clocks were compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it all")]
pub enum ClockMoment {
    Start,
    End,
}

/// One case of one replicate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaseLine {
    /// Index in the plan.
    pub case: u32,
    /// Name, as in the plan.
    pub name: Arc<str>,
    /// Which repetition, from 0.
    pub replicate: u32,
    /// Position in the shuffled order of the replicate, from 0.
    pub position: u32,
    /// What came of it.
    pub outcome: Outcome,
    /// Earlier replicates of the case in whose place this one stands: their time was over before they reached the requested precision,
    /// and this one has more samples. Readers leave those out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<u32>,
    /// Iterations run before timing and not kept.
    pub warm_up_iterations: u32,
    /// Calls in one sample: 1 when isolated, but for graphs and groups of several calls, which are handed over at once.
    pub calls_per_sample: u32,
    /// Why sampling ended; absent where nothing was timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
    /// Half width of the median's 95 % interval relative to the median, as reached; absent with too few samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision_reached: Option<f64>,
    /// The samples, column by column.
    pub samples: Samples,
    /// Histogram of each rank's own time of a sample; empty where `pairs` has every pair's own times.
    pub histograms: Vec<RankHistogram>,
    /// The pairs of a round and their own times; absent where the groups are no pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // Boxed: few records have any, and a record may have a million lines.
    pub pairs: Option<Box<PairTimes>>,
    /// Copies of the buffers in the rotation.
    pub buffer_copies: u32,
    /// What the library itself estimates that a call takes, the longest of all ranks (`ncclGroupSimulateEnd`): no measurement. Absent
    /// where it estimates nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library_estimate_seconds: Option<Seconds>,
    /// What the library chose for the calls by itself, on the first rank of the groups that reported it; absent where it was not asked or
    /// does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // Boxed as `pairs`.
    pub library_choice: Option<Box<LibraryChoice>>,
    /// Warnings that concern the case as a whole, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl CaseLine {
    /// Whether a signal ended the sampling early. A resumed run measures the case again.
    pub fn was_cut_short(&self) -> bool {
        self.stop == Some(StopReason::Interrupted)
    }

    /// Ascending times of one transfer in seconds: those of the samples that count, over the calls of a sample and the one-way messages of
    /// a call. Empty where the case was not measured.
    pub fn seconds_per_transfer(&self, facts: &CaseFacts) -> Vec<f64> {
        if !matches!(self.outcome, Outcome::Measured { .. }) {
            return Vec::new();
        }
        let transfers = f64::from(self.calls_per_sample) * f64::from(facts.transfers_per_call);
        let seconds = |index: usize| Seconds::from_nanoseconds(self.samples.slowest_nanoseconds[index]).0 / transfers;
        sorted(self.samples.valid().map(seconds))
    }
}

/// Why sampling ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The asked precision was reached.
    Precision,
    /// The time budget was spent.
    Budget,
    /// The largest number of samples was reached.
    MaximumSamples,
    /// A fixed number was requested and taken.
    FixedCount,
    /// A signal.
    Interrupted,
}
