//! The line of a replay: a whole training step in the order of its schedule, or the trace of a job, on all ranks at once.

use super::outcome::Outcome;
use crate::layout::Axis;
use crate::workload::replay::RECORDED_SCHEDULE;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::units::{Bytes, Seconds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A step, replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayLine {
    /// Index in the plan's `steps`; 0 of a trace.
    pub step: u32,
    /// The schedule; `trace` where a job's trace was replayed.
    pub schedule: String,
    /// What the forward pass of a micro-batch through one layer took to compute; each gradient took as long again. 0 of a trace.
    pub forward_seconds_per_layer: Seconds,
    /// What came of it. `verified` means that every call was performed once on known data before timing.
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
    /// Share of the time under way, of all axes but the pipeline's, that the slowest rank did not wait for. Absent where there
    /// was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_efficiency: Option<f64>,
    /// Each rank's own time; median over the repetitions.
    pub rank_nanoseconds_median: Vec<u64>,
    /// Of a trace: what the job itself took, on the rank that took longest. Absent of a step, and where the trace has no times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_nanoseconds: Option<u64>,
    /// Whether the busiest rank of every stage moved exactly the bytes that the list of ops says, on every axis.
    pub bytes_as_listed: bool,
}

impl ReplayLine {
    /// Whether a job's trace was replayed, which is of no step of the plan.
    pub fn is_of_trace(&self) -> bool {
        self.schedule == RECORDED_SCHEDULE
    }
}

/// An axis in a replay. Times are of the slowest rank, medians over the repetitions; bytes are of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayAxis {
    /// The axis.
    pub axis: Axis,
    /// What the rank spent waiting for calls. On `pp` this holds the bubble of the pipeline.
    pub waiting_nanoseconds_median: u64,
    /// Time in which at least one call was under way, as far as the rank saw it.
    pub under_way_nanoseconds_median: u64,
    /// Share of the time under way that the rank did not wait for.
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
