//! Extracts the medians of each record, and groups repeated runs into lineages.
//!
//! Versions and environment may change within a lineage, since their effect is what a history shows; suite, hosts, devices,
//! ranks, settings and labels may not.

use super::super::Allowed;
use super::super::comparability::differences_between;
use super::super::copied_times::FEWEST_ROWS;
use super::super::loaded_record::LoadedRecord;
use super::dates;
use super::document::{LeftOut, Lineage, Series, SeriesRun};
use super::run_medians::{RowKey, RunMedians};
use commgauge_base::error::Result;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

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
    /// Adds a record, or the reason why it is left out.
    pub fn add(&mut self, path: &Path, read: Result<LoadedRecord>) {
        match read.map_err(|error| error.to_string()).and_then(|loaded| RunMedians::of(&loaded)) {
            Ok(medians) => self.runs.push(medians),
            Err(reason) => self.left_out.push(LeftOut { path: path.display().to_string(), reason }),
        }
    }

    /// Adds a run whose medians were taken before.
    pub fn add_medians(&mut self, medians: RunMedians) {
        self.runs.push(medians);
    }

    /// The lineages, and what was left out. A run that occurs twice counts once.
    pub(super) fn into_lineages(mut self) -> (Vec<Lineage>, Vec<LeftOut>) {
        self.runs.sort_by(|a, b| moment(a).cmp(&moment(b)).then(a.run_id.cmp(&b.run_id)).then(a.path.cmp(&b.path)));
        let mut lineages: Vec<Vec<RunMedians>> = Vec::new();
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        let mut seen_logs: HashMap<Vec<(String, Option<u64>)>, String> = HashMap::new();
        for run in self.runs {
            let twin =
                seen.insert(run.run_id.clone(), run.path.clone()).map(|twin| format!("is the same run as {twin}"));
            // A log that was copied or fetched once more has another date.
            let same_log = || {
                let twin = seen_logs.insert(times_of_log(&run)?, run.path.clone())?;
                Some(format!("is of the same log as {twin}, with the same times in all {} rows", run.rows.len()))
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

/// The times of what another tool measured, to the last digit; none of few rows, in which two measurements may agree by chance.
fn times_of_log(run: &RunMedians) -> Option<Vec<(String, Option<u64>)>> {
    let tool = run.facts.0.get(&(Allowed::Versions, "measured by".to_owned()))?;
    let timed = run.rows.iter().filter(|(_, seconds)| seconds.is_some()).count();
    let is_log = tool != "commgauge" && timed >= FEWEST_ROWS as usize;
    is_log.then(|| run.rows.iter().map(|(row, seconds)| (row.name.clone(), seconds.map(f64::to_bits))).collect())
}

/// Sort key of the start of a run, independent of time zones; text that is not a time sorts last.
fn moment(run: &RunMedians) -> (bool, Option<jiff::Timestamp>, String) {
    match dates::time(&run.started_at) {
        Some(timestamp) => (false, Some(timestamp), String::new()),
        None => (true, None, run.started_at.clone()),
    }
}

fn is_same_lineage(first: &RunMedians, run: &RunMedians) -> bool {
    let unlike = |difference: &super::super::Difference| SAME_WITHIN_LINEAGE.contains(&difference.kind);
    first.suite == run.suite && !differences_between(&first.facts.0, &run.facts.0).iter().any(unlike)
}

fn lineage(runs: Vec<RunMedians>) -> Lineage {
    let mut rows: Vec<Series> = Vec::new();
    let mut index: BTreeMap<&str, usize> = BTreeMap::new();
    // The newest first, so that its order is that of the rows.
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
    let odd_times = dates::oddities(&runs);
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
