//! Runs over time: which rows changed, between which two runs, by how much, and what else changed there.
//!
//! `stats::change` finds the change points, `gather` groups runs and extracts their medians. Records that cannot be read or are synthetic, and
//! unreliable rows, are excluded and listed.

use super::comparability::{FEWEST_ROWS, Facts, LoadedRecord, differences_between, facts};
use super::document::percent;
use super::evidence::{Evidence, evidence, names_to_match};
use super::{Allowed, RowSubject, most_severe};
use commgauge_base::error::Result;
use commgauge_base::stats::change::{self, MIN_RUNS};
use commgauge_base::stats::{low_median, median};
use commgauge_base::units::counted;
use commgauge_model::record::line::EndStatus;
use jiff::Timestamp;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

/// Thresholds of a change.
#[derive(Clone, Copy, Debug)]
pub struct HistoryRule {
    /// Upper bound on the probability of any false alarm over all rows of a lineage.
    pub false_alarm_level: f64,
    /// The smallest relevant step, as a share.
    pub relevant: f64,
}

/// The changes of every row over the runs.
pub fn history(input: HistoryInput, rule: HistoryRule) -> History {
    let (mut lineages, left_out) = input.into_lineages();
    // On all processors, as long ones take seconds; the smallest number of drawn orders is said.
    let orders = lineages.par_iter_mut().map(|lineage| find_changes(lineage, rule)).min().unwrap_or(1);
    let mut exit_codes: Vec<i32> = Vec::new();
    if lineages.iter().flat_map(|lineage| &lineage.rows).any(|row| row.slower_since().is_some()) {
        exit_codes.push(1);
    }
    if !lineages.iter().flat_map(|lineage| &lineage.rows).any(Series::can_show_change) {
        exit_codes.push(3);
    }
    // Its position among the others is unknown, and so is what came before a change.
    if lineages.iter().flat_map(|lineage| &lineage.runs).any(|run| time(&run.started_at).is_none()) {
        exit_codes.push(3);
    }
    History {
        format: FORMAT.to_owned(),
        version: VERSION,
        exit_code: most_severe(exit_codes),
        rule: rules(rule, orders),
        lineages,
        left_out,
    }
}

/// Finds the changes of a lineage. Returns the number of drawn orders.
fn find_changes(lineage: &mut Lineage, rule: HistoryRule) -> usize {
    let logarithms: Vec<Vec<Option<f64>>> = (lineage.rows.iter())
        .map(|row| row.latency_seconds.iter().map(|seconds| seconds.map(f64::ln)).collect())
        .collect();
    let changes = change::changes(&logarithms, rule.false_alarm_level, rule.relevant.ln_1p());
    for ((row, points), logarithms) in lineage.rows.iter_mut().zip(&changes.rows).zip(&logarithms) {
        row.changes = changes_of_row(logarithms, points);
    }
    lineage.events = events(lineage);
    changes.orders
}

fn changes_of_row(row: &[Option<f64>], points: &[change::ChangePoint]) -> Vec<Change> {
    let starts: Vec<usize> = points.iter().map(|point| point.run).collect();
    let segments = change::segments(row.len(), &starts);
    let middle = |segment: usize| change::middle(row, segments.get(segment)?.clone());
    (points.iter().enumerate())
        .filter_map(|(index, point)| {
            let (before, after) = (middle(index)?, middle(index + 1)?);
            Some(Change {
                run: point.run as u32,
                latency_seconds_before: before.exp(),
                latency_seconds_after: after.exp(),
                slowdown: (after - before).exp_m1(),
                p_corrected: point.p_corrected,
            })
        })
        .collect()
}

/// The changes of all rows, by the run at which they begin.
fn events(lineage: &Lineage) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for run in 1..lineage.runs.len() as u32 {
        let of_run = || lineage.rows.iter().flat_map(|row| &row.changes).filter(|change| change.run == run);
        let (slower, faster) =
            (of_run().filter(|c| c.slowdown > 0.0).count(), of_run().filter(|c| c.slowdown <= 0.0).count());
        if slower + faster > 0 {
            let mut steps: Vec<f64> = of_run().map(|change| change.slowdown).collect();
            steps.sort_by(f64::total_cmp);
            events.push(Event {
                run,
                rows_slower: slower as u32,
                rows_faster: faster as u32,
                slowdown_least: steps[0],
                slowdown_most: steps[steps.len() - 1],
            });
        }
    }
    events
}

fn rules(rule: HistoryRule, orders: usize) -> Vec<String> {
    vec![
        format!(
            "a row changes if a stretch of its runs is farther from the others than any stretch of any row in {} of random orders of the runs, and the step is at least {}",
            percent(1.0 - rule.false_alarm_level),
            percent(rule.relevant)
        ),
        format!(
            "a change needs at least {} runs on each side, so the newest {} cannot show one yet (commgauge compare can); {} orders, always the same",
            MIN_RUNS,
            MIN_RUNS - 1,
            orders
        ),
        "a run counts as the median of its replicates; missing, wrong, unverified and unreliable rows are excluded"
            .to_owned(),
        "runs without a change between them count as exchangeable; a machine that drifts slowly shows steps too"
            .to_owned(),
    ]
}

// Extracts the medians of each record, and groups repeated runs into lineages.
//
// Versions and environment may change within a lineage, since their effect is what a history shows; suite, hosts, devices,
// ranks, settings and labels may not.

/// Kinds of facts that must be equal within a lineage.
const SAME_WITHIN_LINEAGE: [Allowed; 5] =
    [Allowed::Hosts, Allowed::Hardware, Allowed::RankMap, Allowed::Settings, Allowed::Labels];

/// The runs of a history, without their samples.
#[derive(Default)]
pub struct HistoryInput {
    runs: Vec<RunMedians>,
    left_out: Vec<LeftOut>,
}

impl HistoryInput {
    /// Adds a record, or the reason for its exclusion.
    pub fn add(&mut self, path: &Path, read: Result<LoadedRecord>) {
        match read.map_err(|error| error.to_string()).and_then(|loaded| RunMedians::of(&loaded)) {
            Ok(medians) => self.runs.push(medians),
            Err(reason) => self.leave_out(path, reason),
        }
    }

    /// Names a file that does not count in the history, with the reason.
    pub fn leave_out(&mut self, path: &Path, reason: String) {
        self.left_out.push(LeftOut { path: path.display().to_string(), reason });
    }

    /// Adds a run with known medians.
    pub fn add_medians(&mut self, medians: RunMedians) {
        self.runs.push(medians);
    }

    /// The lineages, and the excluded files. A run that occurs twice counts once.
    fn into_lineages(mut self) -> (Vec<Lineage>, Vec<LeftOut>) {
        self.runs.sort_by(|a, b| moment(a).cmp(&moment(b)).then(a.run_id.cmp(&b.run_id)).then(a.path.cmp(&b.path)));
        let mut lineages: Vec<Vec<RunMedians>> = Vec::new();
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        let mut seen_logs: HashMap<Vec<(String, Option<u64>)>, String> = HashMap::new();
        for run in self.runs {
            let twin =
                seen.insert(run.run_id.clone(), run.path.clone()).map(|twin| format!("is the same run as {twin}"));
            // A copied log has another date.
            let same_log = || {
                let twin = seen_logs.insert(times_of_log(&run)?, run.path.clone())?;
                Some(format!("comes from the same log as {twin}, with the same times in all {} rows", run.rows.len()))
            };
            if let Some(reason) = twin.or_else(same_log) {
                self.left_out.push(LeftOut { path: run.path, reason });
                continue;
            }
            match lineages.iter_mut().find(|lineage| is_same_lineage(&lineage[0], &run)) {
                Some(lineage) => lineage.push(run),
                None => lineages.push(vec![run]),
            }
        }
        let mut lineages: Vec<Lineage> = lineages.into_iter().map(lineage).collect();
        lineages.sort_by_key(|lineage| std::cmp::Reverse(lineage.runs.len()));
        self.left_out.sort_by(|a, b| a.path.cmp(&b.path));
        (lineages, self.left_out)
    }
}

/// The times measured by another tool, to the last digit; `None` for few rows, in which two measurements may agree by chance.
fn times_of_log(run: &RunMedians) -> Option<Vec<(String, Option<u64>)>> {
    let tool = run.facts.0.get(&(Allowed::Versions, "measured by".to_owned()))?;
    let timed = run.rows.iter().filter(|(_, seconds)| seconds.is_some()).count();
    let is_log = tool != "commgauge" && timed >= FEWEST_ROWS as usize;
    is_log.then(|| run.rows.iter().map(|(row, seconds)| (row.name.clone(), seconds.map(f64::to_bits))).collect())
}

/// Sort key of the start of a run, independent of time zones; text that is not a time sorts last.
fn moment(run: &RunMedians) -> (bool, Option<jiff::Timestamp>, String) {
    match time(&run.started_at) {
        Some(timestamp) => (false, Some(timestamp), String::new()),
        None => (true, None, run.started_at.clone()),
    }
}

fn is_same_lineage(first: &RunMedians, run: &RunMedians) -> bool {
    let unlike = |difference: &super::Difference| SAME_WITHIN_LINEAGE.contains(&difference.kind);
    first.suite == run.suite && !differences_between(&first.facts.0, &run.facts.0).iter().any(unlike)
}

fn lineage(runs: Vec<RunMedians>) -> Lineage {
    let mut rows: Vec<Series> = Vec::new();
    let mut index: BTreeMap<&str, usize> = BTreeMap::new();
    // The newest first, which sets the order of the rows.
    for (run, taken) in runs.iter().enumerate().rev() {
        for (row, seconds) in &taken.rows {
            let at = *index.entry(&row.name).or_insert_with(|| {
                rows.push(series(row, runs.len()));
                rows.len() - 1
            });
            rows[at].latency_seconds[run] = *seconds;
        }
    }
    let value = |kind, name: &str| runs.last().and_then(|run| run.facts.0.get(&(kind, name.to_owned())).cloned());
    let place = format!(
        "{} ranks on {}, {}",
        value(Allowed::RankMap, "ranks").unwrap_or_default(),
        shortened(&value(Allowed::Hosts, "hosts").unwrap_or_default()),
        value(Allowed::Versions, "backend").unwrap_or_default()
    );
    let newest = |of: fn(&RunMedians) -> &String| runs.last().map(of).cloned().unwrap_or_default();
    let (suite, backend, machine) = (newest(|run| &run.suite), newest(|run| &run.backend), newest(|run| &run.machine));
    let series_runs = runs.iter().enumerate().map(|(at, run)| {
        let before = at.checked_sub(1).map(|before| &runs[before]);
        SeriesRun {
            path: run.path.clone(),
            run_id: run.run_id.clone(),
            started_at: run.started_at.clone(),
            differences: before.map(|before| describe_differences(before, run)).unwrap_or_default(),
            rows_left_out: run.rows_left_out,
        }
    });
    let series_runs = series_runs.collect();
    let odd_times = oddities(&runs);
    Lineage { suite, place, backend, machine, runs: series_runs, odd_times, rows, events: Vec::new() }
}

/// A row without values yet.
fn series(row: &RowKey, runs: usize) -> Series {
    Series {
        name: row.name.clone(),
        subject: row.subject.clone(),
        latency_seconds: vec![None; runs],
        changes: Vec::new(),
    }
}

fn shortened(hosts: &str) -> String {
    let names: Vec<&str> = hosts.split(", ").collect();
    match names.as_slice() {
        [""] => "unknown hosts".to_owned(),
        [first, .., last] if names.len() > 4 => format!("{} hosts ({first} to {last})", names.len()),
        _ => hosts.to_owned(),
    }
}

fn describe_differences(before: &RunMedians, run: &RunMedians) -> Vec<String> {
    differences_between(&before.facts.0, &run.facts.0)
        .into_iter()
        .map(|difference| format!("{}: {} before, {} now", difference.fact, difference.base, difference.new))
        .collect()
}

// Anomalies in the start times of runs: gaps, wrong clocks, and texts that are not times. The order of the runs follows these times, so a
// reader of a change must know.

/// A gap is longer than this, ...
const MIN_GAP_SECONDS: f64 = 7.0 * 86_400.0;

/// ... and than this many usual intervals.
const MIN_USUAL_INTERVALS: f64 = 10.0;

/// The start time of a run; `None` if the record's text is not a time.
fn time(started_at: &str) -> Option<Timestamp> {
    started_at.parse().ok()
}

/// Anomalies in the times of runs in their order, as sentences.
fn oddities(runs: &[RunMedians]) -> Vec<String> {
    let mut said: Vec<String> =
        runs.windows(2).zip(intervals(runs)).filter_map(gap(low_median(intervals(runs)))).collect();
    let without_time = runs.iter().filter(|run| time(&run.started_at).is_none());
    said.extend(
        without_time.map(|run| format!("run {} has no start time (`{}`): it comes last", run.run_id, run.started_at)),
    );
    said
}

/// Seconds from each run to the next, if both have a time.
fn intervals(runs: &[RunMedians]) -> impl Iterator<Item = f64> {
    runs.windows(2).filter_map(|two| {
        let (before, after) = (time(&two[0].started_at)?, time(&two[1].started_at)?);
        Some((after.as_second() - before.as_second()) as f64)
    })
}

fn gap(usual: Option<f64>) -> impl Fn((&[RunMedians], f64)) -> Option<String> {
    move |(two, seconds)| {
        let usual = usual?;
        (seconds > MIN_GAP_SECONDS && seconds > MIN_USUAL_INTERVALS * usual).then(|| {
            format!(
                "no run for {:.0} days, between {} of {} and {} of {} (usually {:.1} days): a gap, or a wrong clock",
                seconds / 86_400.0,
                two[0].run_id,
                two[0].started_at,
                two[1].run_id,
                two[1].started_at,
                usual / 86_400.0
            )
        })
    }
}

// The history as a document. The published JSON Schema (`commgauge show schema history`) is made from these types.

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
    /// Exit code of the program: 1 if the last change of some row was for the worse, 3 if there are too few runs to find any change or a
    /// run has no time, else 0.
    pub exit_code: i32,
    /// How changes are distinguished from chance, as sentences.
    pub rule: Vec<String>,
    /// Groups of repeated runs.
    pub lineages: Vec<Lineage>,
    /// Excluded files.
    pub left_out: Vec<LeftOut>,
}

/// An excluded file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// The file.
    pub path: String,
    /// The reason.
    pub reason: String,
}

/// Runs of one suite on the same hosts, devices and ranks, by start time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lineage {
    /// Name of the suite.
    pub suite: String,
    /// Where it ran.
    pub place: String,
    /// Name of the backend.
    pub backend: String,
    /// Machine file of the newest run; empty without one.
    pub machine: String,
    /// The runs, the oldest first.
    pub runs: Vec<SeriesRun>,
    /// Gaps between the runs, and runs without a time, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub odd_times: Vec<String>,
    /// The rows of all runs, in the order of the newest run.
    pub rows: Vec<Series>,
    /// Runs at which rows changed.
    pub events: Vec<Event>,
}

impl Lineage {
    /// Rows with too few runs for a change, in words.
    pub fn rows_without_say(&self) -> Option<String> {
        let few = self.rows.iter().filter(|row| !row.can_show_change()).count();
        let (all, least) = (counted(self.rows.len(), "row"), 2 * MIN_RUNS);
        (few > 0).then(|| format!("{few} of {all} are in fewer than {least} runs, too few to find a change"))
    }

    /// A run by its index, with its other changes, in words.
    pub fn run_and_why(&self, run: u32) -> String {
        let Some(run) = self.runs.get(run as usize) else { return "an unknown run".to_owned() };
        format!("run {} of {}; {}", run.run_id, run.started_at, run.what_else_changed())
    }
}

impl Series {
    /// Whether it has enough runs for one change.
    pub fn can_show_change(&self) -> bool {
        self.latency_seconds.iter().flatten().count() >= 2 * MIN_RUNS
    }

    /// The last change, if the row is slower since.
    pub fn slower_since(&self) -> Option<&Change> {
        self.changes.last().filter(|change| change.slowdown > 0.0)
    }
}

impl SeriesRun {
    /// Its differences from the run before, as a sentence.
    pub fn what_else_changed(&self) -> String {
        match self.differences.as_slice() {
            [] => "no other recorded fact changed there".to_owned(),
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
    /// Start time.
    pub started_at: String,
    /// Its differences from the run before, as sentences.
    pub differences: Vec<String>,
    /// Excluded rows: missing, wrong, unverified or unreliable.
    pub rows_left_out: u32,
}

/// A row over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Name of the case, copy or product.
    pub name: String,
    /// Its subject.
    #[serde(flatten)]
    pub subject: RowSubject,
    /// Median time over the replicates of each run; null without a valid replicate.
    pub latency_seconds: Vec<Option<f64>>,
    /// Its changes, the oldest first.
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
    /// The smallest slowdown among them, negative if a row became faster.
    pub slowdown_least: f64,
    /// The largest.
    pub slowdown_most: f64,
}

// What a history keeps of a run: a median for each row, and the facts that identify repetitions.

/// A row that runs have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowKey {
    /// Name of the case, copy or product, without versions: a history shows the effect of a new version.
    pub name: String,
    pub subject: RowSubject,
}

/// A run without its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct RunMedians {
    /// The record's file.
    pub path: String,
    /// Name of the run.
    pub run_id: String,
    /// Start time.
    pub started_at: String,
    /// Name of the suite.
    pub suite: String,
    /// Name of the backend.
    pub backend: String,
    /// Machine file of the run; empty without one.
    pub machine: String,
    /// Facts that must be equal in repeated runs, and facts worth knowing if they differ.
    pub facts: RunFacts,
    /// Median of the replicates in seconds, row by row; `None` if the row is excluded.
    pub rows: Vec<(Arc<RowKey>, Option<f64>)>,
    /// Excluded rows: missing, wrong, unverified or unreliable.
    pub rows_left_out: u32,
}

/// The facts of a run for comparison with others.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFacts(Facts);

impl RunFacts {
    /// The facts as kind, name and value.
    pub fn to_texts(&self) -> Vec<[String; 3]> {
        self.0.iter().map(|((kind, name), value)| [kind.name().to_owned(), name.clone(), value.clone()]).collect()
    }

    /// Parses such texts; `None` if a kind is unknown.
    pub fn from_texts(texts: Vec<[String; 3]>) -> Option<RunFacts> {
        let fact = |[kind, name, value]: [String; 3]| Some(((kind.parse().ok()?, name), value));
        texts.into_iter().map(fact).collect::<Option<Facts>>().map(RunFacts)
    }
}

impl RunMedians {
    /// The medians of a record, or the reason for its exclusion.
    pub fn of(loaded: &LoadedRecord) -> std::result::Result<RunMedians, String> {
        if let Some(reason) = reason_to_exclude(loaded) {
            return Err(reason);
        }
        let header = &loaded.record.header;
        let mut cases = evidence(std::slice::from_ref(loaded), &[]).cases;
        // As in a comparison: times count, whoever checked the data.
        cases.iter_mut().for_each(Evidence::accept_unchecked);
        let mut rows_left_out = 0;
        let names = names_to_match(&cases, &[Allowed::Versions]);
        let rows = cases.iter().zip(names).map(|(case, name)| {
            let counts = case.shortfalls.is_empty() && !case.corrupt && !case.unmeasured;
            let seconds = median(&case.measured()).filter(|_| counts);
            rows_left_out += u32::from(seconds.is_none());
            (Arc::new(RowKey { name, subject: case.subject.of_row() }), seconds)
        });
        let rows = rows.collect();
        Ok(RunMedians {
            path: loaded.path.display().to_string(),
            run_id: header.run_id.clone(),
            started_at: header.started_at.clone(),
            suite: header.suite.name.clone(),
            backend: header.backend.name.clone(),
            machine: header.backend.machine.clone().unwrap_or_default(),
            facts: RunFacts(facts(loaded)),
            rows,
            rows_left_out,
        })
    }
}

fn reason_to_exclude(loaded: &LoadedRecord) -> Option<String> {
    let record = &loaded.record;
    if record.header.backend.synthetic {
        return Some("is synthetic: no data moved and no real time passed".to_owned());
    }
    if record.file.running {
        return Some("is still being written".to_owned());
    }
    match &record.end {
        Some(end) if end.status == EndStatus::Failed => Some("the run failed".to_owned()),
        // The foot of another tool's log covers all of its rows.
        Some(end) if record.header.backend.measured_by.is_some() && end.exit_code != 0 => {
            Some(end.error.clone().unwrap_or_else(|| "the run failed".to_owned()))
        }
        _ => record.file.seal.tampering(),
    }
}

#[cfg(test)]
mod tests {

    use super::{HistoryInput, HistoryRule, history};
    use crate::verdict::testing::{lines, loaded};

    fn of(started_at: &[&str]) -> (i32, Vec<String>) {
        let mut input = HistoryInput::default();
        for (run, started_at) in started_at.iter().enumerate() {
            let mut loaded = loaded(
                &format!("{run}.jsonl"),
                lines(&format!("run-{run}"), &[vec![100.0 + 0.1 * (run % 2) as f64; 3]]),
            );
            loaded.record.header.started_at = (*started_at).to_owned();
            input.add(&loaded.path.clone(), Ok(loaded));
        }
        let history = history(input, HistoryRule { false_alarm_level: 0.05, relevant: 0.03 });
        assert_eq!(history.lineages[0].runs.len(), started_at.len(), "nothing is lost");
        (history.exit_code, history.lineages[0].odd_times.clone())
    }

    #[test]
    fn gaps_jumps_of_the_clock_and_texts_that_are_no_time_are_named() {
        let nights: Vec<String> = (1..=8).map(|day| format!("2026-03-{day:02}T03:00:00Z")).collect();
        let nights: Vec<&str> = nights.iter().map(String::as_str).collect();
        assert_eq!(of(&nights), (0, Vec::new()));
        let (code, said) = of(&[&nights[..], &["2026-06-20T03:00:00Z", "2099-01-01T00:00:00Z"]].concat());
        assert!(code == 0 && said.len() == 2, "{said:?}");
        assert!(said[0].contains("no run for 104 days, between run-7 of 2026-03-08"), "{said:?}");
        assert!(said[1].contains("run-9 of 2099-01-01T00:00:00Z (usually 1.0 days)"), "{said:?}");
        let (code, said) = of(&[&["yesterday"], &nights[..]].concat());
        assert_eq!((code, said), (3, vec!["run run-0 has no start time (`yesterday`): it comes last".to_owned()]));
    }
}
