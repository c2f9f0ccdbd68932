//! The verdict as a document. The published JSON Schema (`commgauge schema verdict`) is made from these types.
//!
//! Numbers are in base units with the unit in their name; there is no NaN and no infinity, an unknown value is left out.

use super::Decision;
use super::curve_change::CurveChange;
use super::finding::Finding;
use super::row_subject::RowSubject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The value of `format` in every verdict.
pub const FORMAT: &str = "commgauge-verdict";
/// The version of the format.
pub const VERSION: u32 = 1;

/// What `commgauge gate` or `commgauge compare` decided, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// Always `commgauge-verdict`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// What was asked.
    pub question: Question,
    /// The whole, by its exit code.
    pub decision: Decision,
    /// Exit code of the program.
    pub exit_code: i32,
    /// How it was decided, as sentences.
    pub rule: Vec<String>,
    /// The records.
    pub runs: Vec<Run>,
    /// The machine file whose expectations were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// What was judged and what not.
    pub coverage: Coverage,
    /// How often the rule errs, at most.
    #[serde(default)]
    pub false_alarms: FalseAlarms,
    /// Warnings about the records as a whole, with the exit code that each asks for.
    pub troubles: Vec<Trouble>,
    /// Every row, in the order of the plan.
    pub rows: Vec<Row>,
    /// Rules of self-consistency that calls break.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Latency and bandwidth of whole curves against the base.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<CurveChange>,
    /// Expectations to fill in, for the rows that have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Does the machine reach what is expected of it?
    Gate,
    /// Is it worse than before?
    Compare,
    /// Does it contradict itself?
    Consistency,
}

impl Question {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Question::Gate => "gate",
            Question::Compare => "compare",
            Question::Consistency => "consistency",
        }
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// `judged`, `base` or `new`.
    pub role: String,
    /// The record's file.
    pub path: String,
    /// Name of the run.
    pub run_id: String,
    /// When it began.
    pub started_at: String,
    /// Name of the suite.
    pub suite: String,
    /// Name of the backend.
    #[serde(default)]
    pub backend: String,
    /// Library and version.
    pub library: String,
    /// Number of ranks.
    pub world_size: u32,
    /// True where no data moved and no real time passed.
    pub synthetic: bool,
    /// Who measured, where it was another tool, and what therefore is not ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_by: Option<String>,
}

/// What was judged and what not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Coverage {
    /// Rows of the plan.
    pub rows: u32,
    /// Rows that were judged.
    pub rows_judged: u32,
    /// Judged rows that passed.
    pub rows_passed: u32,
    /// Judged rows that failed.
    pub rows_failed: u32,
    /// Judged rows that are neither.
    pub rows_inconclusive: u32,
    /// Rows that nothing is expected of.
    pub rows_not_judged: u32,
    /// Replicates of judged rows that were requested.
    pub replicates_planned: u64,
    /// Replicates of judged rows with at least one sample that counts.
    pub replicates_measured: u64,
    /// Expectations of the machine file.
    pub expectations: u32,
    /// Those of them by which a row was judged.
    #[serde(default)]
    pub expectations_judged: u32,
    /// Those of them that no row is about.
    pub expectations_without_row: u32,
    /// Nodes that the runs span, of the machine where it is known: a rack whose ranks NVLink joins is one. 0 where that was not asked.
    #[serde(default)]
    pub nodes: u32,
    /// Judged rows of calls that cross from node to node.
    #[serde(default)]
    pub rows_judged_between_nodes: u32,
}

/// How often a rule errs, at most, on a machine that is as it should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FalseAlarms {
    /// The chance of a false alarm.
    pub level: f64,
    /// True where that is the chance of any over all rows, false where it is that of each row.
    pub over_all_rows: bool,
    /// Rows that were judged.
    pub rows: u32,
    /// False alarms to be expected of such a verdict, at most.
    pub expected_at_most: f64,
}

/// Something about the records as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trouble {
    /// The exit code that it asks for; 0 is a warning that changes nothing.
    pub exit_code: i32,
    /// What it is, as a sentence.
    pub text: String,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Name of the case, copy or product.
    pub name: String,
    /// What it is of.
    #[serde(flatten)]
    pub subject: RowSubject,
    /// The hosts, where records of several sets of hosts are judged together: each set has rows of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<String>,
    /// What was decided; absent where nothing is expected of the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Why, as sentences.
    pub reasons: Vec<String>,
    /// Replicates with at least one sample that counts.
    pub replicates: u32,
    /// How many more replicates would decide it, where that can be estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicates_more: Option<u32>,
    /// Against what is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against_limit: Option<AgainstLimit>,
    /// Against the base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against_base: Option<AgainstBase>,
}

impl Row {
    /// The name with the hosts, which tells it from all other rows.
    pub fn full_name(&self) -> Cow<'_, str> {
        match &self.hosts {
            None => Cow::Borrowed(&self.name),
            Some(hosts) => Cow::Owned(format!("{} on {hosts}", self.name)),
        }
    }
}

/// What a limit is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The more the better.
    BusBandwidthBytesPerSecond,
    /// The less the better.
    LatencySeconds,
    /// Of the slowest rank of a copy, in each direction. The more the better.
    CopyBytesPerSecond,
    /// Of the slowest rank of a matrix product. The more the better.
    FlopsPerSecond,
}

/// A row against what is expected of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgainstLimit {
    /// What the numbers below are.
    pub metric: Metric,
    /// Floor of the rate, or ceiling of the latency.
    pub limit: f64,
    /// Median of the replicates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median: Option<f64>,
    /// Lower confidence bound of the median; absent with too few replicates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_bound: Option<f64>,
    /// Upper confidence bound of the median; absent with too few replicates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper_bound: Option<f64>,
    /// Where the limit is written.
    pub place: String,
    /// Who published or measured it.
    pub source: String,
    /// When.
    pub date: String,
    /// Algorithm that it was reached with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// Library and version that it was reached with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A row against the same row of the base. A slow-down of 0.05 is 5 % more time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgainstBase {
    /// Replicates of the base.
    pub replicates_base: u32,
    /// Median time of the base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_seconds_base: Option<f64>,
    /// Median time of the new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_seconds_new: Option<f64>,
    /// Share by which the new is slower, the middle of all pairs of replicates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdown: Option<f64>,
    /// Its lower confidence bound; absent with too few replicates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdown_lower_bound: Option<f64>,
    /// Its upper confidence bound; absent with too few replicates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdown_upper_bound: Option<f64>,
    /// Exact rank-sum probability of this row alone, if nothing had changed, of being slower to this degree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_row: Option<f64>,
    /// The same corrected for the number of rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_corrected: Option<f64>,
    /// True where the row is faster by more than matters, by the same test.
    pub faster: bool,
}
