//! The line that resumes a run which had ended early: the facts of this launch, and what has changed since.

use super::header::RankFacts;
use commgauge_base::units::{Bytes, Seconds};
use commgauge_base::visible::visible;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

/// A further launch that continues the record. The following lines belong to the same run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResumeLine {
    /// Wall-clock time, RFC 3339 with offset.
    pub resumed_at: String,
    /// Command line of the program that measures now, word by word.
    pub command_line: Vec<String>,
    /// The launch command that `commgauge run` built, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_command: Option<Vec<String>>,
    /// The ranks of this launch, as in the header.
    pub ranks: Vec<RankFacts>,
    /// Bytes of a torn last line that were cut off.
    #[serde(default, skip_serializing_if = "super::line::is_zero")]
    pub cut_bytes: u64,
    /// What is another than the header says, where that was allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Warnings about the machine that hold for all cases from here on, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A fact that is not what the header says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Which fact, such as `host of rank 3`.
    pub what: String,
    /// In the header.
    pub before: String,
    /// In this launch.
    pub now: String,
}

impl ResumeLine {
    /// The warning about the changes; none where nothing changed.
    pub(super) fn warning(&self) -> Option<String> {
        if self.changes.is_empty() {
            return None;
        }
        let list: Vec<String> = self.changes.iter().take(5).map(Change::sentence).collect();
        let more = self.changes.len().saturating_sub(list.len());
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        Some(format!("resumed at {} although it was not the same: {}{more}", self.resumed_at, list.join("; ")))
    }
}

impl Change {
    fn sentence(&self) -> String {
        format!("{} was {}, is {}", self.what, shortened(&self.before), shortened(&self.now))
    }
}

/// A value of limited length, since some are long (such as digests).
pub(super) fn shortened(text: &str) -> String {
    const MAX: usize = 40;
    if text.chars().count() <= MAX {
        text.to_owned()
    } else {
        text.chars().take(MAX - 3).chain("...".chars()).collect()
    }
}

// What the watchdog saw when a rank made no progress in time, or died: the operation, and the state of every rank.

/// A run that was ended by its watchdog.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HangLine {
    /// Why it was ended.
    pub reason: HangReason,
    /// The deadline that passed: how long a rank may stay where it is. Absent where a rank died.
    pub deadline_seconds: Option<Seconds>,
    /// The earliest operation that some rank has not finished, in words.
    pub operation: String,
    /// What was measured, such as a case of the plan.
    pub activity: HungActivity,
    /// Number of the call within the case, from 1, where the operation is a call of data: the same on all ranks of a group.
    pub sequence: Option<u64>,
    /// The group of the first suspect in this activity, as ranges of ranks such as `0-3,8`, without those of which was last heard
    /// before it began; absent where all ranks take part.
    pub group_ranks: Option<String>,
    /// The ranks that block the others, as ranges; empty if all have entered without an outlier.
    pub suspects: String,
    /// Whether the launcher may have ended some of these because another one died: nothing was left that tells. Only of the host
    /// whose watchdog decides.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub launcher_may_have_ended_some: bool,
    /// Every rank, by what it did; the ranges of all entries together are all ranks, or those of `only_of_host`.
    pub ranks: Vec<RanksInState>,
    /// Places of the first suspects; without suspects, of the first ranks with a device, and those whose functions are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<RankPlace>,
    /// Hosts of which nothing is heard at all, so that not their ranks are to be suspected but they or the links to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable_hosts: Vec<String>,
    /// The host whose watchdog decided alone, as the first one was gone or out of reach: the ranks are those of this host.
    /// Absent where all hosts were asked.
    pub only_of_host: Option<String>,
    /// Counts of NCCL's RAS service, or why they are missing; absent if NCCL was not active.
    pub nccl_ras: Option<String>,
    /// File with every rank on a line of its own, where it could be written.
    pub report: Option<String>,
}

/// Why a watchdog ended a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HangReason {
    /// A rank stayed where it was for longer than its deadline.
    Deadline,
    /// A rank ended without taking its leave.
    Death,
}

/// What the ranks were at.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HungActivity {
    /// In words: `case 3 of 80, replicate 1`.
    pub name: String,
    /// Name of the case, as in the plan.
    pub case: Option<String>,
    /// The collective.
    pub collective: Option<String>,
    /// Its size argument.
    pub bytes_total: Option<Bytes>,
    /// The axis whose groups perform it.
    pub axis: Option<String>,
}

/// Ranks that stood at the same place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RanksHeld")]
pub struct RanksInState {
    /// Their fate.
    pub state: HangState,
    /// The ranks, as ranges such as `0-3,8`.
    pub ranks: String,
    /// How many.
    pub count: u64,
    /// The hosts of the first few.
    pub hosts: Vec<String>,
}

/// A rank, its host, and its device where it has one.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RankPlace {
    /// Rank in the launch.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// The device that it works with.
    pub device: Option<String>,
    /// The functions of its measuring thread, innermost first and separated by ` < `, or why they are unknown; absent if not read.
    pub stack: Option<String>,
}

/// Where a rank stood when the watchdog fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "HeldState")]
pub enum HangState {
    /// Its connection closed without a farewell.
    Died,
    /// Its heartbeat is missing: stopped, frozen, or its host is gone.
    StoppedAnswering,
    /// It answers and has not come to the operation.
    NeverEntered,
    /// It is in the operation.
    EnteredNotFinished,
    /// It is through the operation.
    Finished,
    /// It had ended in order.
    Left,
    /// The watchdog of its host is gone, so that nothing is known of it.
    Unwatched,
}

impl HangState {
    /// The state in words, for messages.
    pub fn name(self) -> &'static str {
        match self {
            HangState::Died => "died",
            HangState::StoppedAnswering => "stopped answering",
            HangState::NeverEntered => "never entered",
            HangState::EnteredNotFinished => "entered, did not finish",
            HangState::Finished => "finished",
            HangState::Left => "ended before",
            HangState::Unwatched => "no longer watched",
        }
    }
}

impl HangLine {
    /// What happened, in one sentence without full stop.
    pub fn sentence(&self) -> String {
        let of = format!("{} ({})", self.operation, self.activity.name);
        if !self.unreachable_hosts.is_empty() {
            return format!("no progress{}: {}; the others are at {of}", self.waited(), self.unreachable());
        }
        match (self.reason, self.suspects.as_str()) {
            (HangReason::Death, suspects) => {
                let while_others = if self.ranks.len() == 1 { "at" } else { "while the others were at" };
                let some = if self.launcher_may_have_ended_some {
                    ", or were ended by the launcher after one of them"
                } else {
                    ""
                };
                format!("{} died{some} {while_others} {of}", self.named(suspects))
            }
            (HangReason::Deadline, "") => {
                let through = self.ranks.iter().find(|entry| entry.state == HangState::Finished);
                let detail = through.map_or_else(
                    || " with no outlier".to_owned(),
                    |entry| format!("; {} came through it, the others did not", self.named(&entry.ranks)),
                );
                let waited = self.waited();
                format!(
                    "no progress{waited}: all ranks have entered {of}{detail}; the fault is in the library or the network"
                )
            }
            (HangReason::Deadline, suspects) => {
                let did = match self.suspect_state() {
                    HangState::NeverEntered => "never entered",
                    HangState::StoppedAnswering => "stopped answering; the others are at",
                    HangState::Died => "died; the others are at",
                    HangState::Unwatched => "may hold it up, whose watchdog is gone; the others are at",
                    _ => "did not finish",
                };
                format!("no progress{}: {} {did} {of}", self.waited(), self.named(suspects))
            }
        }
    }

    /// State of the first suspect.
    pub fn suspect_state(&self) -> HangState {
        let first = self.suspects.split([',', '-']).next().unwrap_or_default();
        let has_first =
            |entry: &&RanksInState| entry.ranks.split(',').any(|range| range.split('-').next() == Some(first));
        self.ranks.iter().find(has_first).map_or(HangState::EnteredNotFinished, |entry| entry.state)
    }

    /// `host1 cannot be reached (the host or its link), with ranks 2-3`.
    fn unreachable(&self) -> String {
        let hosts: Vec<_> = self.unreachable_hosts.iter().map(|host| visible(host)).collect();
        let of_them = |entry: &&RanksInState| {
            entry.state == HangState::StoppedAnswering
                && entry.hosts.iter().all(|host| self.unreachable_hosts.contains(host))
        };
        let several = |count: usize| if count == 1 { "" } else { "s" };
        let ranks =
            self.ranks.iter().find(of_them).map_or_else(String::new, |entry| {
                format!(", with rank{} {}", several(entry.count as usize), entry.ranks)
            });
        let what = if hosts.len() == 1 { "the host or its link" } else { "the hosts or their links" };
        format!("{} cannot be reached ({what}){ranks}", hosts.join(", "))
    }

    fn waited(&self) -> String {
        self.deadline_seconds.map_or_else(String::new, |seconds| format!(" within {seconds}"))
    }

    fn named(&self, suspects: &str) -> String {
        let first = suspects.split([',', '-']).next().unwrap_or_default();
        let several = first != suspects;
        let entry = self.ranks.iter().find(|entry| entry.ranks == suspects);
        let hosts = entry
            .map(|entry| entry.hosts.iter().map(|host| visible(host)).collect::<Vec<_>>().join(", "))
            .filter(|hosts| !hosts.is_empty());
        let place = hosts.map_or_else(String::new, |hosts| format!(" on {hosts}"));
        format!("rank{} {suspects}{place}", if several { "s" } else { "" })
    }
}

// The watchdog of a host was lost during a run.

/// How such a line begins.
const BEGINNING: &[u8] = b"{\"line\":\"unwatched\"";

/// From here on the ranks of a host are not watched: a hang is ended by the deadline of each rank, and not explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnwatchedLine {
    /// The host.
    pub host: String,
    /// A rank on it that noticed.
    pub rank: u32,
}

impl UnwatchedLine {
    /// What follows from it, in one sentence without full stop.
    pub fn sentence(&self) -> String {
        format!(
            "the watchdog of host {} was lost during the run (noticed by rank {}): from then on the run was unwatched",
            self.host, self.rank
        )
    }
}

/// Whether a record says so already; not where it cannot be read.
pub fn has_unwatched_line(record: &Path) -> bool {
    let Ok(file) = File::open(record) else { return false };
    BufReader::new(file).split(b'\n').map_while(Result::ok).any(|line| line.starts_with(BEGINNING))
}

// The last line of a launch in a record: how the run ended, with the line count and digest that reveal lost or changed lines.

impl End {
    /// An end line; the journal adds the number of lines before it and the seal.
    pub fn new(status: EndStatus, exit_code: i32, error: Option<String>, elapsed: Duration) -> End {
        let elapsed_seconds = Seconds(elapsed.as_secs_f64());
        End { status, exit_code, error, elapsed_seconds, lines_before: None, sha256: None }
    }
}

/// How a run ended.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct End {
    /// How.
    pub status: EndStatus,
    /// Exit code of the run.
    pub exit_code: i32,
    /// The error, where there was one.
    pub error: Option<String>,
    /// From header to end; of a resumed run, from the resume line on.
    pub elapsed_seconds: Seconds,
    /// Lines before this one, so that a record from which lines were lost can be distinguished from a whole one.
    pub lines_before: Option<u64>,
    /// SHA-256 of every byte of the file before this key, so that a change of the record is noticed; in hexadecimal.
    /// Always the last key.
    pub sha256: Option<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndStatus {
    Complete,
    Interrupted,
    Failed,
    OutOfTime,
}

#[cfg(test)]
mod tests {

    use super::super::Line;
    use super::*;

    #[test]
    fn a_record_is_asked_by_how_its_lines_begin() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.jsonl");
        assert!(!has_unwatched_line(&path));
        let line = Line::Unwatched(UnwatchedLine { host: "vm".into(), rank: 3 });
        for (text, has) in [("{\"line\":\"plan\"}\n".to_owned(), false), (serde_json::to_string(&line).unwrap(), true)]
        {
            std::fs::write(&path, format!("{{}}\n{text}")).expect("written");
            assert_eq!(has_unwatched_line(&path), has, "{text}");
        }
    }
}
