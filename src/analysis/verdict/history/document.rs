//! The history as a document. The published JSON Schema (`commgauge schema history`) is made from these types.

use super::super::RowSubject;
use super::change::MIN_RUNS;
use commgauge_base::units::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The value of `format` in every history.
pub const FORMAT: &str = "commgauge-history";
/// The version of the format.
pub const VERSION: u32 = 1;

/// Runs over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// Always `commgauge-history`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Exit code of the program: 1 where the last change of some row was for the worse, 3 where there are too few runs to
    /// find any change or a run says no time, else 0.
    pub exit_code: i32,
    /// How changes are distinguished from chance, as sentences.
    pub rule: Vec<String>,
    /// Runs that repeat one another.
    pub lineages: Vec<Lineage>,
    /// Files that have no say.
    pub left_out: Vec<LeftOut>,
}

/// A file that has no say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// The file.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// Runs of one suite on the same hosts, devices and ranks, by the time at which they began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lineage {
    /// Name of the suite.
    pub suite: String,
    /// Where it ran.
    pub place: String,
    /// Name of the backend.
    pub backend: String,
    /// Machine file of the newest run; empty where none was given.
    pub machine: String,
    /// The runs, the oldest first.
    pub runs: Vec<SeriesRun>,
    /// Gaps between the runs, and runs that say no time, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub odd_times: Vec<String>,
    /// The rows that any of them has, in the order of the newest.
    pub rows: Vec<Series>,
    /// Runs at which rows changed.
    pub events: Vec<Event>,
}

impl Lineage {
    /// Rows that count in too few runs for a change, in words; none where there are none.
    pub fn rows_without_say(&self) -> Option<String> {
        let few = self.rows.iter().filter(|row| !row.can_show_change()).count();
        let (all, least) = (counted(self.rows.len(), "row"), 2 * MIN_RUNS);
        (few > 0).then(|| format!("{few} of {all} count in fewer than {least} runs, in which no change can be found"))
    }

    /// A run by its index, with what else changed there, in words.
    pub fn run_and_why(&self, run: u32) -> String {
        let Some(run) = self.runs.get(run as usize) else { return "an unknown run".to_owned() };
        format!("run {} of {}; {}", run.run_id, run.started_at, run.what_else_changed())
    }
}

impl Series {
    /// Whether it counts in enough runs for one change.
    pub fn can_show_change(&self) -> bool {
        self.latency_seconds.iter().flatten().count() >= 2 * MIN_RUNS
    }

    /// The last change, where the row is slower since.
    pub fn slower_since(&self) -> Option<&Change> {
        self.changes.last().filter(|change| change.slowdown > 0.0)
    }
}

impl SeriesRun {
    /// In what it differs from the run before it, as a sentence.
    pub fn what_else_changed(&self) -> String {
        match self.differences.as_slice() {
            [] => "nothing else that the records hold changed there".to_owned(),
            differences => format!("changed there: {}", differences.join("; ")),
        }
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesRun {
    /// The record's file.
    pub path: String,
    /// Name of the run.
    pub run_id: String,
    /// When it began.
    pub started_at: String,
    /// In what it differs from the run before it, as sentences.
    pub differences: Vec<String>,
    /// Rows that have no say, for being missing, wrong, unverified or unreliable.
    pub rows_left_out: u32,
}

/// A row over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Name of the case, copy or product.
    pub name: String,
    /// What it is of.
    #[serde(flatten)]
    pub subject: RowSubject,
    /// Median time over the replicates of each run; null where a run has none that counts.
    pub latency_seconds: Vec<Option<f64>>,
    /// Where it changed, the oldest first.
    pub changes: Vec<Change>,
}

/// A step of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Index of the first run after it.
    pub run: u32,
    /// Median of the runs since the change before.
    pub latency_seconds_before: f64,
    /// Median of the runs until the next.
    pub latency_seconds_after: f64,
    /// Share by which the row is slower since.
    pub slowdown: f64,
    /// Probability of as much by chance in any row.
    pub p_corrected: f64,
}

/// A run at which rows changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Index of the first run after it.
    pub run: u32,
    /// Rows that became slower.
    pub rows_slower: u32,
    /// Rows that became faster.
    pub rows_faster: u32,
    /// The smallest slow-down among them, negative where a row became faster.
    pub slowdown_least: f64,
    /// The largest.
    pub slowdown_most: f64,
}
