//! Outcomes of measured work.

use super::header::CaseFacts;
use crate::layout::Axis;
use crate::workload::replay::RECORDED_SCHEDULE;
pub use crate::workload::{CopyShape, ProductShape};

use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::sample::{ExclusionReason, WrongCall};
use commgauge_base::units::{Bytes, Seconds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// Timed; data right before and after, where it was checked.
    Measured {
        /// False for the barrier, for synthetic results, and where checking was switched off.
        verified: bool,
    },
    /// Cannot be run here; not failed and not passed.
    #[serde(alias = "waived")]
    Skipped {
        /// Why.
        reason: String,
    },
    /// Data arrived wrong; the numbers are withheld.
    Corrupt {
        /// `before` or `after` timing.
        when: String,
        /// World rank that holds the first wrong element.
        rank: u32,
        /// Index of the element in the receive buffer.
        element: u64,
        /// What it should be.
        expected: String,
        /// What it is.
        got: String,
        /// Wrong elements in that rank's buffer.
        count: u64,
        /// Which call it was; absent where a single one was compared.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<WrongCall>,
    },
    /// Another tool found wrong data and does not say where; the numbers are withheld.
    FoundWrong {
        /// Wrong elements over all ranks, where the tool counts them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        count: Option<u64>,
    },
    /// Could not be run to its end; what failed.
    Failed {
        /// The error, with rank, host and call.
        reason: String,
    },
}

impl Outcome {
    /// Wrong data: when it was found, where the first wrong element is, what that should be and is, and how many are wrong there.
    pub fn corrupt(when: &str, rank: u32, element: u64, [expected, got]: [&str; 2], count: u64) -> Outcome {
        let (when, expected, got) = (when.to_owned(), expected.to_owned(), got.to_owned());
        Outcome::Corrupt { when, rank, element, expected, got, count, call: None }
    }

    /// Whether data arrived wrong.
    pub fn is_wrong(&self) -> bool {
        matches!(self, Outcome::Corrupt { .. } | Outcome::FoundWrong { .. })
    }

    /// What arrived wrong, as a sentence; none where nothing did.
    pub fn mismatch(&self) -> Option<String> {
        match self {
            Outcome::Corrupt { when, rank, element, expected, got, count, call } => {
                let call = call.map_or_else(String::new, |call| {
                    format!(", call {}, wrong in {} of {} copies", call.number, call.wrong_copies, call.compared_copies)
                });
                Some(format!(
                    "rank {rank}, element {element}: expected {expected}, got {got} ({count} wrong elements there, {when} timing{call})"
                ))
            }
            Outcome::FoundWrong { count: Some(count) } => Some(format!("the tool counted {count} wrong elements")),
            Outcome::FoundWrong { count: None } => Some("the tool found wrong data".to_owned()),
            Outcome::Measured { .. } | Outcome::Skipped { .. } | Outcome::Failed { .. } => None,
        }
    }

    /// Wrong elements: at the rank that a mismatch names, or on all ranks if none is named; 0 if not counted.
    pub fn wrong_elements(&self) -> u64 {
        match self {
            Outcome::Corrupt { count, .. } => *count,
            Outcome::FoundWrong { count } => count.unwrap_or(0),
            Outcome::Measured { .. } | Outcome::Skipped { .. } | Outcome::Failed { .. } => 0,
        }
    }
}

// The samples of a case line, and the distribution of every rank's own times.

/// Samples of a case, column by column; every list has the same length. Times are those of the whole sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Samples {
    /// The slowest rank's time.
    pub slowest_nanoseconds: Vec<u64>,
    /// World rank of the slowest.
    pub slowest_rank: Vec<u32>,
    /// First to last arrival at the call; empty when streaming.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrival_spread_nanoseconds: Vec<u64>,
    /// Last arrival to latest end; empty when streaming.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfer_nanoseconds: Vec<u64>,
    /// World rank that arrived last; empty when streaming.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_rank: Vec<u32>,
    /// Samples that do not count: index and reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "doubtful")]
    pub excluded: Vec<(u32, ExclusionReason)>,
    /// By how much times may be off on the clocks of the hosts, of isolated starts on devices, whose own clocks are compared again for each
    /// batch of samples; batch by batch. Empty where marks are readings of the host's clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clock_errors: Vec<ClockErrors>,
}

/// By how much the times of each rank may be off in a batch of samples, all of them alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockErrors {
    /// Samples of the batch.
    pub samples: u32,
    /// Consecutive ranks for each number: 1 in small worlds; in large ones the worst of each block of ranks is kept.
    pub ranks: u32,
    /// By rank, or block of ranks.
    pub nanoseconds: Vec<u64>,
}

/// Most numbers of a batch.
const MOST_NUMBERS: usize = 256;

impl ClockErrors {
    pub fn of_batch(samples: u32, by_rank: &[u64]) -> ClockErrors {
        let ranks = by_rank.len().div_ceil(MOST_NUMBERS).max(1);
        let worst = |block: &[u64]| block.iter().copied().max().unwrap_or(0);
        ClockErrors { samples, ranks: ranks as u32, nanoseconds: by_rank.chunks(ranks).map(worst).collect() }
    }

    /// By how much the arrival of a rank after the first one may be off, whichever that was.
    fn of_arrival(&self, rank: u32) -> u64 {
        let block = rank.checked_div(self.ranks).unwrap_or(0) as usize;
        let own = self.nanoseconds.get(block).copied().unwrap_or(0);
        // In its own block there may be another rank.
        let is_other = |index: &usize| *index != block || self.ranks > 1;
        let others = self.nanoseconds.iter().enumerate().filter(|(index, _)| is_other(index));
        own + others.map(|(_, error)| *error).max().unwrap_or(0)
    }
}

impl Samples {
    /// Indices of those that count.
    pub fn valid(&self) -> impl Iterator<Item = usize> + '_ {
        let mut excluded: Vec<usize> = self.excluded.iter().map(|(index, _)| *index as usize).collect();
        excluded.sort_unstable();
        (0..self.slowest_nanoseconds.len()).filter(move |index| excluded.binary_search(index).is_err())
    }

    /// By how much the arrival spread of a sample may be off by the clocks of devices.
    pub fn arrival_error_nanoseconds(&self, sample: usize) -> u64 {
        let mut end = 0;
        let batch = self.clock_errors.iter().find(|batch| {
            end += batch.samples as usize;
            sample < end
        });
        let last = self.last_rank.get(sample).copied().unwrap_or(0);
        batch.map_or(0, |batch| batch.of_arrival(last))
    }
}

/// A mergeable histogram of own times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankHistogram {
    /// First world rank it covers.
    pub rank: u32,
    /// Ranks it covers: 1 in small worlds, a block of consecutive ranks in large ones.
    pub ranks: u32,
    /// HdrHistogram V2 with deflate, base64, of nanoseconds per sample.
    // Shared, as what is shown of a record refers to it.
    pub hdr_v2_deflate_base64: Arc<str>,
}

// The line of a copy that every rank made with its own GPU, in one replicate.

/// A copy, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopyLine {
    /// The copy.
    pub copy: CopyShape,
    /// Which repetition, from 0.
    pub replicate: u32,
    /// The outcome. `verified` means that every byte at the target was compared.
    pub outcome: Outcome,
    /// Copies of each sample, back to back, by whose number its time was divided.
    pub copies_per_sample: u32,
    /// Of each sample, the slowest rank's time of one copy.
    pub slowest_nanoseconds: Vec<u64>,
    /// World rank of the slowest.
    pub slowest_rank: Vec<u32>,
    /// The median of the samples of each rank, in the order of the ranks.
    pub median_nanoseconds: Vec<u64>,
}

// The line of a matrix product that all ranks computed at the same time, each its own, in one replicate.

/// A matrix product of m x k by k x n, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProductLine {
    /// The product.
    pub product: ProductShape,
    /// Which repetition, from 0.
    pub replicate: u32,
    /// What computed it, and its version.
    pub library: String,
    /// Ranks of a host that computed at the same time; the most of any host.
    pub ranks_per_host: u32,
    /// Threads of each rank.
    pub threads_per_rank: u32,
    /// The outcome. `verified` means that the result was compared with independently computed sums.
    pub outcome: Outcome,
    /// Products run before timing and not kept.
    pub warm_up_products: u32,
    /// Of each product, the slowest rank's time.
    pub slowest_nanoseconds: Vec<u64>,
    /// World rank of the slowest.
    pub slowest_rank: Vec<u32>,
}

// The line of a replay: a whole training step in the order of its schedule, or the trace of a job, on all ranks at once.

/// A step, replayed.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayLine {
    /// Index in the plan's `steps`; 0 of a trace.
    pub step: u32,
    /// The schedule; `trace` where a job's trace was replayed.
    pub schedule: String,
    /// What the forward pass of a micro-batch through one layer took to compute; each gradient took as long again. 0 of a trace.
    pub forward_seconds_per_layer: Seconds,
    /// The outcome. `verified` means that every call was performed once on known data before timing.
    pub outcome: Outcome,
    /// Repetitions run before timing and not kept.
    pub warm_up_repetitions: u32,
    /// Of each repetition, the slowest rank's time from the common start to its own end.
    pub slowest_nanoseconds: Vec<u64>,
    /// World rank of the slowest.
    pub slowest_rank: Vec<u32>,
    /// What the slowest rank spent computing; median over the repetitions.
    pub computing_nanoseconds_median: u64,
    /// What each axis cost and moved.
    pub axes: Vec<ReplayAxis>,
    /// Share of the active time of all axes but the pipeline's that the slowest rank did not wait for. Absent without any.
    pub overlap_efficiency: Option<f64>,
    /// Each rank's own time; median over the repetitions.
    pub rank_nanoseconds_median: Vec<u64>,
    /// What ranks did in the last repetition. Absent in records of earlier versions.
    pub timeline: Option<Timeline>,
    /// Of a trace: what the job itself took, on the rank that took longest. Absent of a step, and where the trace has no times.
    pub job_nanoseconds: Option<u64>,
    /// Whether the busiest rank of every stage moved exactly the bytes that the list of ops says, on every axis.
    pub bytes_as_listed: bool,
}

impl ReplayLine {
    /// Whether a job's trace was replayed, which belongs to no step of the plan.
    pub fn is_of_trace(&self) -> bool {
        self.schedule == RECORDED_SCHEDULE
    }
}

/// What ranks did at which time in one repetition of a replay: all ranks of up to 256, else as many from every stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// Where a rank has too many spans, time is divided into slots and each shows what the rank did for most of it: the length of the longest
    /// such slot. 0 where all spans are exact.
    pub resolution_nanoseconds: u64,
    /// In the order of their numbers.
    pub ranks: Vec<RankSpans>,
}

/// What a rank did in a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RankSpans {
    /// World rank.
    pub rank: u32,
    /// Its stage of the pipeline; 0 of a trace.
    pub stage: u32,
    /// By what it did.
    pub spans: Vec<ActivitySpans>,
}

/// When a rank did one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ActivitySpans {
    /// What it did.
    pub activity: RankActivity,
    /// Begin and length of each, on the rank's own clock since its start, in nanoseconds.
    pub begin_and_length: Vec<(u64, u64)>,
}

/// What a rank does during a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RankActivity {
    /// It computes; calls may progress meanwhile.
    Computing,
    /// It does nothing but wait for a call of the axis.
    Waiting(Axis),
    /// At least one call of the axis is in flight.
    InFlight(Axis),
}

/// An axis in a replay. Times are those of the slowest rank, medians over the repetitions; bytes cover one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayAxis {
    /// The axis.
    pub axis: Axis,
    /// What the rank spent waiting for calls. On `pp` this holds the bubble of the pipeline.
    pub waiting_nanoseconds_median: u64,
    /// Time in which at least one call was in flight, as far as the rank saw it.
    pub under_way_nanoseconds_median: u64,
    /// Share of the active time that the rank did not wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_efficiency: Option<f64>,
    /// Calls of the rank that has most.
    pub calls_counted: u64,
    /// Payload of the busiest rank, counted by the backend.
    pub payload_bytes_counted: Bytes,
    /// Payload of the busiest rank by the list of ops.
    pub payload_bytes_listed: Bytes,
    /// What the busiest rank sent, from what was counted.
    pub wire_bytes_counted: Bytes,
    /// What the busiest rank sends by the list of ops.
    pub wire_bytes_listed: Bytes,
    /// The collectives that something hides, of the group that spends most on them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden_calls: Vec<HiddenCalls>,
}

/// Collectives of a kind that something hides in a replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HiddenCalls {
    /// The call.
    pub collective: Collective,
    /// Type of the elements.
    pub element_type: ElementType,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// How many there are in a step.
    pub calls: u64,
    /// Their time in a step, each as long as on the rank that came last; median over the repetitions.
    pub nanoseconds_median: u64,
}

// The interference line: a call measured alone, and the same call while calls of another axis are in flight.

/// One call of a replicate, alone and concurrent with another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterferenceLine {
    /// Index in the plan's `steps`.
    pub step: u32,
    /// Which repetition, from 0; each has fresh communicators.
    pub replicate: u32,
    /// The call that is timed.
    pub timed: InterferingCall,
    /// The concurrent call.
    #[serde(rename = "beside")]
    pub overlapping: InterferingCall,
    /// The outcome.
    pub outcome: Outcome,
    /// Calls of `beside` started before the timed one.
    pub calls_beside: u32,
    /// From the start of the timed call to its observed end, on the slowest rank, with no concurrent call.
    pub alone_nanoseconds: Vec<u64>,
    /// With the other calls concurrent.
    pub together_nanoseconds: Vec<u64>,
    /// What that rank still waited for the other calls after the timed one: if above 0, they were in flight all the time.
    pub still_waited_nanoseconds: Vec<u64>,
    /// One call of `beside` alone, on the slowest rank.
    pub beside_alone_nanoseconds: Vec<u64>,
}

/// A call that takes part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterferingCall {
    /// Axis whose groups carry it out, all at once.
    pub axis: Axis,
    /// Who asks for it.
    pub style: Style,
    /// The call.
    pub collective: Collective,
    /// Type of the elements.
    pub element_type: ElementType,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
}

impl InterferingCall {
    /// The record form of an op.
    pub fn of(op: &Op) -> InterferingCall {
        InterferingCall {
            axis: op.axis,
            style: op.style,
            collective: op.collective,
            element_type: op.element,
            bytes_total: op.bytes_total,
        }
    }
}

// The lines of a calibration run, which chooses its own sizes: the cases that each round adds and why, and the final state.

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
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CalibratedCurve {
    /// Index in the plan of one of its cases; the others differ from it in their size only.
    pub case: u32,
    /// Sizes that were measured.
    pub sizes: u32,
    /// How wrong the curve is still expected to be where it is least sure; absent with fewer than two measured sizes.
    pub expected_error: Option<f64>,
    /// How wrong the prediction of the size that was measured last had been; absent where none was added.
    pub last_error: Option<f64>,
    /// The largest such error over all sizes that were added, of which the first are predicted from a few sizes only.
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
    /// No size is between two measured ones.
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

#[cfg(test)]
mod tests {
    use super::{Samples, *};

    #[test]
    fn records_with_the_former_words_for_skipped_and_excluded_are_read() {
        let outcome: Outcome = serde_json::from_str(r#"{"status":"waived","reason":"no device"}"#).unwrap();
        assert_eq!(outcome, Outcome::Skipped { reason: "no device".to_owned() });
        let text = r#"{"slowest_nanoseconds":[5],"slowest_rank":[0],"doubtful":[[0,"missed_start"]]}"#;
        assert_eq!(serde_json::from_str::<Samples>(text).unwrap().excluded.len(), 1);
    }

    #[test]
    fn a_sample_is_as_uncertain_as_its_own_rank_and_the_worst_other_one_in_its_batch() {
        let batch = |samples, by_rank: &[u64]| ClockErrors::of_batch(samples, by_rank);
        let samples = Samples {
            last_rank: vec![0, 1, 2, 2],
            clock_errors: vec![batch(2, &[100, 2_000, 300]), batch(2, &[100, 200, 300])],
            ..Samples::default()
        };
        let errors = [0, 1, 2, 3, 4].map(|sample| samples.arrival_error_nanoseconds(sample));
        assert_eq!(errors, [2_100, 2_300, 500, 500, 0]);
        assert_eq!(Samples { clock_errors: Vec::new(), ..samples }.arrival_error_nanoseconds(0), 0);
    }

    #[test]
    fn of_many_ranks_the_worst_of_each_block_is_kept() {
        let by_rank: Vec<u64> = (0..1000).collect();
        let errors = ClockErrors::of_batch(5, &by_rank);
        assert_eq!((errors.ranks, errors.nanoseconds.len(), errors.nanoseconds[0]), (4, 250, 3));
        assert_eq!(errors.of_arrival(0), 3 + 999);
        assert_eq!(errors.of_arrival(999), 999 + 999, "another rank of its block may be the first");
    }
}
