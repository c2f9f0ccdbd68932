//! Extracts the medians of each record, and groups repeated runs into lineages.
//!
//! Versions and environment may change within a lineage, since their effect is what a history shows; suite, hosts, devices,
//! ranks, settings and labels may not.

use super::super::Allowed;
use super::super::comparability::{Facts, differences_between, facts};
use super::super::evidence::evidence;
use super::super::loaded_record::LoadedRecord;
use super::document::{LeftOut, Lineage, Series, SeriesRun};
use commgauge_base::error::Result;
use commgauge_base::stats::median;
use commgauge_model::record::line::EndStatus;
use std::collections::BTreeMap;
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

struct RunMedians {
    path: String,
    run_id: String,
    started_at: String,
    suite: String,
    backend: String,
    machine: String,
    facts: Facts,
    rows: Vec<(Series, Option<f64>)>,
    rows_left_out: u32,
}

impl HistoryInput {
    /// Adds a record, or the reason why it is left out.
    pub fn add(&mut self, path: &Path, read: Result<LoadedRecord>) {
        let reason = match read {
            Ok(loaded) => match reason_to_exclude(&loaded) {
                None => {
                    self.runs.push(RunMedians::of(&loaded));
                    return;
                }
                Some(reason) => reason,
            },
            Err(error) => error.to_string(),
        };
        self.left_out.push(LeftOut { path: path.display().to_string(), reason });
    }

    /// The lineages, and what was left out. A run that occurs twice counts once.
    pub(super) fn into_lineages(mut self) -> (Vec<Lineage>, Vec<LeftOut>) {
        self.runs.sort_by(|a, b| moment(a).cmp(&moment(b)).then(a.run_id.cmp(&b.run_id)).then(a.path.cmp(&b.path)));
        let mut lineages: Vec<Vec<RunMedians>> = Vec::new();
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        for run in self.runs {
            if let Some(twin) = seen.insert(run.run_id.clone(), run.path.clone()) {
                let reason = format!("is the same run as {twin}");
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

/// Sort key of the start of a run, independent of time zones; text that is not a time sorts last.
fn moment(run: &RunMedians) -> (bool, Option<jiff::Timestamp>, String) {
    match run.started_at.parse::<jiff::Timestamp>() {
        Ok(timestamp) => (false, Some(timestamp), String::new()),
        Err(_) => (true, None, run.started_at.clone()),
    }
}

fn reason_to_exclude(loaded: &LoadedRecord) -> Option<String> {
    let record = &loaded.record;
    if record.header.backend.synthetic {
        return Some("is synthetic: no data moved and no real time passed".to_owned());
    }
    if record.running {
        return Some("is still being written".to_owned());
    }
    match &record.end {
        Some(end) if end.status == EndStatus::Failed => Some("is of a run that failed".to_owned()),
        _ => None,
    }
}

fn is_same_lineage(first: &RunMedians, run: &RunMedians) -> bool {
    let unlike = |difference: &super::super::Difference| SAME_WITHIN_LINEAGE.contains(&difference.kind);
    first.suite == run.suite && !differences_between(&first.facts, &run.facts).iter().any(unlike)
}

impl RunMedians {
    fn of(loaded: &LoadedRecord) -> RunMedians {
        let header = &loaded.record.header;
        let (cases, _) = evidence(std::slice::from_ref(loaded));
        let mut rows_left_out = 0;
        let rows = cases.iter().map(|case| {
            let counts = case.shortfalls.is_empty() && !case.corrupt && !case.unmeasured;
            let seconds = median(&case.measured()).filter(|_| counts);
            rows_left_out += u32::from(seconds.is_none());
            let facts = case.facts;
            let series = Series {
                name: facts.name.clone(),
                axis: facts.axis,
                collective: facts.collective,
                bytes_total: facts.bytes_total,
                latency_seconds: Vec::new(),
                changes: Vec::new(),
            };
            (series, seconds)
        });
        let rows = rows.collect();
        RunMedians {
            path: loaded.path.display().to_string(),
            run_id: header.run_id.clone(),
            started_at: header.started_at.clone(),
            suite: header.suite.name.clone(),
            backend: header.backend.name.clone(),
            machine: header.backend.machine.clone().unwrap_or_default(),
            facts: facts(loaded),
            rows,
            rows_left_out,
        }
    }
}

fn lineage(runs: Vec<RunMedians>) -> Lineage {
    let mut rows: Vec<Series> = Vec::new();
    let mut index: BTreeMap<String, usize> = BTreeMap::new();
    // The newest first, so that its order is that of the rows.
    for (run, taken) in runs.iter().enumerate().rev() {
        for (series, seconds) in &taken.rows {
            let at = *index.entry(series.name.clone()).or_insert_with(|| {
                rows.push(Series { latency_seconds: vec![None; runs.len()], ..series.clone() });
                rows.len() - 1
            });
            rows[at].latency_seconds[run] = *seconds;
        }
    }
    let value = |kind, name: &str| runs.last().and_then(|run| run.facts.get(&(kind, name.to_owned())).cloned());
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
    Lineage { suite, place, backend, machine, runs: series_runs, rows, events: Vec::new() }
}

fn shortened(hosts: &str) -> String {
    let names: Vec<&str> = hosts.split(", ").collect();
    match names.as_slice() {
        [first, .., last] if names.len() > 4 => format!("{} hosts ({first} to {last})", names.len()),
        _ => hosts.to_owned(),
    }
}

fn describe_differences(before: &RunMedians, run: &RunMedians) -> Vec<String> {
    differences_between(&before.facts, &run.facts)
        .into_iter()
        .map(|difference| format!("{}: {} before, {} now", difference.fact, difference.base, difference.new))
        .collect()
}
