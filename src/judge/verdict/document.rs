//! The verdict as a document. The published JSON Schema (`commgauge show schema verdict`) is made from these types.
//!
//! Numbers are in base units with the unit in their name; there is no NaN and no infinity, an unknown value is absent.

use commgauge_base::collective::{Collective, Placement};
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Bytes, three_digits};
use commgauge_model::layout::{Axis, Locality};
use commgauge_model::record::line::CaseFacts;
use commgauge_model::record::work_lines::{CopyShape, ProductShape};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The value of `format` in every verdict.
pub const FORMAT: &str = "commgauge-verdict";

/// The version of the format.
pub const VERSION: u32 = 1;

/// What `commgauge judge --part thresholds` or `commgauge compare` decided, and why.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// Always `commgauge-verdict`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// The question.
    pub question: Question,
    /// The decision as a whole.
    pub decision: Decision,
    /// Exit code of the program.
    pub exit_code: i32,
    /// The rule, as sentences.
    pub rule: Vec<String>,
    /// The records.
    pub runs: Vec<Run>,
    /// The machine file whose expectations were requested.
    pub machine: Option<String>,
    /// What was judged and what was not.
    pub coverage: Coverage,
    /// Maximum error rate of the rule.
    #[serde(default)]
    pub false_alarms: FalseAlarms,
    /// Warnings about the records as a whole, each with its exit code.
    #[serde(rename = "troubles")]
    pub problems: Vec<Problem>,
    /// Every row, in the order of the plan.
    pub rows: Vec<Row>,
    /// Rules of self-consistency that calls break.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Changes of latency and bandwidth of whole curves against the base.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<CurveChange>,
    /// Expectations to fill in, for rows without any.
    pub template: Option<String>,
}

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Question {
    /// Does the machine meet its expectations?
    Gate,
    /// Is it worse than before?
    Compare,
    /// Does it contradict itself?
    Consistency,
}

commgauge_base::error::names!(Question, Decision, CurvePart);

/// A record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// `judged`, `base` or `new`.
    pub role: String,
    /// The record's file.
    pub path: String,
    /// Name of the run.
    pub run_id: String,
    /// Start time.
    pub started_at: String,
    /// Name of the suite.
    pub suite: String,
    /// Name of the backend.
    #[serde(default)]
    pub backend: String,
    pub library: String,
    /// Number of ranks.
    pub world_size: u32,
    /// True if no data moved and no real time passed.
    pub synthetic: bool,
    /// The measuring tool, if not commgauge, and its limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_by: Option<String>,
}

/// What was judged and what was not.
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
    /// Judged rows that neither passed nor failed.
    pub rows_inconclusive: u32,
    /// Rows without an expectation.
    pub rows_not_judged: u32,
    /// Replicates of judged rows that were requested.
    pub replicates_planned: u64,
    /// Replicates of judged rows with at least one valid sample.
    pub replicates_measured: u64,
    /// Expectations of the machine file.
    pub expectations: u32,
    /// Expectations that judged a row.
    #[serde(default)]
    pub expectations_judged: u32,
    /// Expectations without a matching row.
    pub expectations_without_row: u32,
    /// Nodes that the runs span, by the machine's definition if known: a rack whose ranks NVLink joins is one node. 0 if not requested.
    #[serde(default)]
    pub nodes: u32,
    /// Judged rows of calls that cross nodes.
    #[serde(default)]
    pub rows_judged_between_nodes: u32,
}

/// Maximum error rate of a rule on a machine that works as expected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FalseAlarms {
    /// The probability of a false alarm.
    pub level: f64,
    /// True if `level` is the probability of any false alarm over all rows, false if it applies to each row.
    pub over_all_rows: bool,
    /// Rows that were judged.
    pub rows: u32,
    /// Maximum expected number of false alarms.
    pub expected_at_most: f64,
}

/// A problem with the records as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Its exit code; 0 for a warning.
    pub exit_code: i32,
    /// The problem, as a sentence.
    pub text: String,
}

/// A row.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Name of the case, copy or product.
    pub name: String,
    /// Its subject.
    #[serde(flatten)]
    pub subject: RowSubject,
    /// The hosts, if records of several sets of hosts are judged together: each set has its own rows.
    pub hosts: Option<String>,
    /// What is judged of several rows, such as their mean; absent for a row by itself.
    pub over: Option<String>,
    /// The decision; absent without an expectation.
    pub decision: Option<Decision>,
    /// Whether its calls cross nodes, by the machine's definition of a node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub between_nodes: bool,
    /// The reasons, as sentences.
    pub reasons: Vec<String>,
    /// Replicates with at least one valid sample.
    pub replicates: u32,
    /// How many more replicates would decide, if known.
    pub replicates_more: Option<u32>,
    /// The row against its expectation.
    pub against_limit: Option<AgainstLimit>,
    /// The row against the base.
    pub against_base: Option<AgainstBase>,
}

impl Row {
    /// The name with the hosts, which is unique.
    pub fn full_name(&self) -> Cow<'_, str> {
        match &self.hosts {
            None => Cow::Borrowed(&self.name),
            Some(hosts) => Cow::Owned(format!("{} on {hosts}", self.name)),
        }
    }
}

/// Subject of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// More is better.
    BusBandwidthBytesPerSecond,
    /// Less is better.
    LatencySeconds,
    /// Of the slowest rank of a copy, in each direction. More is better.
    CopyBytesPerSecond,
    /// Of the slowest rank of a matrix product. More is better.
    FlopsPerSecond,
}

/// A row against its expectation.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgainstLimit {
    /// Meaning of the numbers below.
    pub metric: Metric,
    /// Floor of the rate, or ceiling of the latency.
    pub limit: f64,
    /// Median of the replicates.
    pub median: Option<f64>,
    /// Lower confidence bound of the median; absent with too few replicates.
    pub lower_bound: Option<f64>,
    /// Upper confidence bound of the median; absent with too few replicates.
    pub upper_bound: Option<f64>,
    /// Location of the limit.
    pub place: String,
    /// Who published or measured it.
    pub source: String,
    /// When.
    pub date: String,
    /// Algorithm with which it was reached.
    pub algorithm: Option<String>,
    /// Library and version with which it was reached.
    pub version: Option<String>,
}

/// A row against the same row of the base. A slowdown of 0.05 is 5 % more time.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgainstBase {
    /// Replicates of the base.
    pub replicates_base: u32,
    /// Median time of the base.
    pub latency_seconds_base: Option<f64>,
    /// Median time of the new run.
    pub latency_seconds_new: Option<f64>,
    /// Share by which the new run is slower, the middle over all pairs of replicates.
    pub slowdown: Option<f64>,
    /// Its lower confidence bound; absent with too few replicates.
    pub slowdown_lower_bound: Option<f64>,
    /// Its upper confidence bound; absent with too few replicates.
    pub slowdown_upper_bound: Option<f64>,
    /// Exact rank-sum probability, for this row alone, of being this much slower if nothing changed.
    pub p_row: Option<f64>,
    /// As above, corrected for the number of rows.
    pub p_corrected: Option<f64>,
    /// True if the row is faster by a relevant amount, by the same test.
    pub faster: bool,
}

// The outcomes of a row and of a verdict, and the exit code for several problems at once.

/// The answer to a question, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
// Its name in files and in output.
#[derive(Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Decision {
    /// The data show that it is good.
    Pass,
    /// The data show neither.
    Inconclusive,
    /// The data show that it is bad.
    Fail,
    /// The data cannot be judged: wrong, truncated, or the run failed.
    Error,
}

impl Decision {
    pub fn from_exit_code(code: i32) -> Decision {
        match code {
            0 => Decision::Pass,
            1 => Decision::Fail,
            3 => Decision::Inconclusive,
            _ => Decision::Error,
        }
    }
}

/// The most severe exit code, in this order: wrong data, hang, environment, coverage, failed gate, inconclusive, passed. An unknown code
/// ranks above a failed gate, so it is never hidden.
pub fn most_severe(codes: impl IntoIterator<Item = i32>) -> i32 {
    const ORDER: [i32; 7] = [4, 5, 6, 7, 1, 3, 0];
    let place = |code: &i32| ORDER.iter().position(|known| known == code).unwrap_or(3);
    let most_severe = codes.into_iter().min_by_key(place).unwrap_or(0);
    if ORDER.contains(&most_severe) { most_severe } else { 7 }
}

// Shares in sentences.

/// A share in per cent, for sentences.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", three_digits(share * 100.0))
}

// Calls of a record that break a rule of self-consistency.

/// A rule of self-consistency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Guideline {
    /// A call of k times the bytes takes longer than k calls.
    SplitIsFaster,
    /// A call takes longer than the same call of more bytes.
    MoreBytesAreFaster,
    /// A call takes longer than other calls that together do the same.
    OthersTogetherAreFaster,
    /// The bandwidth at one size is below that at both its neighbours.
    Dip,
}

/// Calls that break a rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The rule.
    pub guideline: Guideline,
    /// The cases: the slow one, then those that it is compared with.
    pub cases: Vec<String>,
    /// Median time over the longest that the rule allows: 1.2 is 20 % more.
    pub times_allowed: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times_allowed_lower_bound: Option<f64>,
    /// Exact rank-sum probability of as much by chance, corrected for the number of checked rules.
    pub p_corrected: f64,
    /// True if chance is excluded.
    pub certain: bool,
    /// The finding as a sentence.
    pub text: String,
}

// How the latency or the bandwidth of a whole curve changed against the base.

/// A part of a curve's cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CurvePart {
    /// Alpha: the cost of a call, however small, in seconds.
    Latency,
    /// Beta: the cost of a further byte, however large the call, in seconds.
    Bandwidth,
}

/// A part of a curve's cost, before and after. A slowdown of 0.05 is 5 % more alpha, or 5 % more beta.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurveChange {
    /// The calls, by the common part of their case names.
    pub name: String,
    /// Cases on the curve.
    pub cases: u32,
    pub part: CurvePart,
    /// Median of the base: alpha in seconds, beta in seconds per byte.
    pub base: f64,
    /// Median of the new run.
    pub new: f64,
    /// Share by which the new run costs more, the middle over all pairs of replicates.
    pub slowdown: f64,
    /// Its lower confidence bound; absent with too few replicates.
    pub slowdown_lower_bound: Option<f64>,
    /// Its upper confidence bound; absent with too few replicates.
    pub slowdown_upper_bound: Option<f64>,
    /// Probability of as much by chance, corrected for all rows and curves.
    pub p_corrected: f64,
    /// True if it became worse by a relevant amount, with chance excluded.
    pub worse: bool,
}

// The subject of a row: a call of all groups of an axis, or work that each rank does alone.

/// The subject of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Subject<'a> {
    /// A planned call.
    Call(&'a CaseFacts),
    /// A copy between a host and its GPUs, or between GPUs.
    Copy(&'a CopyShape),
    /// A matrix product.
    Product(&'a ProductShape),
}

impl<'a> Subject<'a> {
    pub(super) fn call(self) -> Option<&'a CaseFacts> {
        match self {
            Subject::Call(facts) => Some(facts),
            Subject::Copy(_) | Subject::Product(_) => None,
        }
    }

    pub fn name(self) -> Cow<'a, str> {
        match self {
            Subject::Call(facts) => Cow::Borrowed(&facts.name),
            Subject::Copy(copy) => Cow::Owned(copy.row_name()),
            Subject::Product(product) => Cow::Owned(product.row_name()),
        }
    }

    /// The name of its rate, and the quantity per call from which it follows; `None` without bytes, as in a barrier.
    pub(super) fn rate(self) -> Option<RateOf> {
        let (metric, amount) = match self {
            Subject::Call(facts) => {
                let factor = facts.bus_factor.filter(|factor| *factor > 0.0)?;
                (Metric::BusBandwidthBytesPerSecond, facts.bytes_accounted.0 as f64 * factor)
            }
            Subject::Copy(copy) => (Metric::CopyBytesPerSecond, copy.bytes.0 as f64),
            Subject::Product(product) => (Metric::FlopsPerSecond, product.flops()),
        };
        (amount > 0.0).then_some(RateOf { metric, amount })
    }

    /// For a document.
    pub fn of_row(self) -> RowSubject {
        match self {
            Subject::Call(facts) => RowSubject::Call(Box::new(RowCall {
                axis: facts.axis,
                group_size: facts.group_size,
                groups: facts.groups,
                locality: facts.locality.clone(),
                collective: facts.collective,
                element_type: facts.element_type,
                bytes_total: facts.bytes_total,
                placement: facts.placement,
                cadence: facts.cadence,
            })),
            Subject::Copy(copy) => RowSubject::Copy { copy: *copy },
            Subject::Product(product) => RowSubject::Product { product: product.clone() },
        }
    }
}

/// Conversion of a time to a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RateOf {
    pub metric: Metric,
    /// Bytes or operations per time.
    pub amount: f64,
}

// The subject of a row of a verdict or a history in documents: a call, a copy or a matrix product.

/// The subject of a row: a call, whose facts are in the row itself, or work that each rank does alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RowSubject {
    /// A call of all groups of an axis.
    Call(Box<RowCall>),
    /// A copy between a host and its GPUs, or between GPUs.
    Copy {
        /// The copy.
        copy: CopyShape,
    },
    /// A matrix product.
    Product {
        /// The product.
        product: ProductShape,
    },
}

/// The collective call that a row measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RowCall {
    /// Axis whose groups execute it.
    pub axis: Axis,
    /// Ranks in each group.
    pub group_size: u32,
    /// Concurrent groups.
    pub groups: u32,
    /// Placement of a group on the hosts.
    pub locality: Locality,
    /// The call.
    pub collective: Collective,
    /// Type of the elements.
    pub element_type: ElementType,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Whether the result replaces the input.
    pub placement: Placement,
    /// Cadence.
    pub cadence: Cadence,
}

impl RowSubject {
    pub fn call(&self) -> Option<&RowCall> {
        match self {
            RowSubject::Call(call) => Some(call),
            RowSubject::Copy { .. } | RowSubject::Product { .. } => None,
        }
    }

    /// The collective, the kind of copy, or the word for a product.
    pub fn what(&self) -> &'static str {
        match self {
            RowSubject::Call(call) => call.collective.name(),
            RowSubject::Copy { copy } => copy.kind.name(),
            RowSubject::Product { .. } => "product",
        }
    }

    /// The axis, or its substitute for work that each rank does alone.
    pub fn axis(&self) -> String {
        self.call().map_or_else(|| "rank".to_owned(), |call| call.axis.to_string())
    }

    /// The size argument of a call, or the bytes of a copy in each direction.
    pub fn bytes(&self) -> Option<Bytes> {
        match self {
            RowSubject::Call(call) => Some(call.bytes_total),
            RowSubject::Copy { copy } => Some(copy.bytes),
            RowSubject::Product { .. } => None,
        }
    }

    /// Type of the elements; a copy has bytes.
    pub fn element_type(&self) -> Option<ElementType> {
        match self {
            RowSubject::Call(call) => Some(call.element_type),
            RowSubject::Copy { .. } => None,
            RowSubject::Product { product } => Some(product.element_type),
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_most_severe_code_wins_and_none_is_lost() {
        for (codes, worst) in [
            (vec![], 0),
            (vec![0, 3], 3),
            (vec![3, 1, 0], 1),
            (vec![1, 7], 7),
            (vec![7, 6, 5, 4, 1, 3], 4),
            (vec![0, 256], 7),
            (vec![1, 42], 7),
        ] {
            assert_eq!(most_severe(codes.clone()), worst, "{codes:?}");
        }
    }
}
