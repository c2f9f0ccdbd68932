//! Takes from every record what a history needs, and puts runs together that repeat one another.
//!
//! Versions and environment may change within a lineage, for these are what one wants to see the effect of; suite, hosts,
//! devices, ranks, settings and labels may not.

use super::super::evidence::evidence;
use super::super::likeness::{Facts, differences_between, facts};
use super::super::{Allowed, Judged};
use super::document::{LeftOut, Lineage, Series, SeriesRun};
use crate::error::Result;
use crate::record::line::EndStatus;
use crate::stats::median;
use std::collections::BTreeMap;
use std::path::Path;

/// Kinds of facts that must be equal within a lineage.
const KEPT: [Allowed; 5] = [Allowed::Hosts, Allowed::Hardware, Allowed::RankMap, Allowed::Settings, Allowed::Labels];

/// What records said, without their samples.
#[derive(Default)]
pub struct Gathered {
    runs: Vec<Taken>,
    left_out: Vec<LeftOut>,
}

struct Taken {
    path: String,
    run_id: String,
    started_at: String,
    suite: String,
    facts: Facts,
    rows: Vec<(Series, Option<f64>)>,
    rows_left_out: u32,
}

impl Gathered {
    /// Adds a record, or the reason why it has no say.
    pub fn add(&mut self, path: &Path, read: Result<Judged>) {
        let reason = match read {
            Ok(judged) => match why_not(&judged) {
                None => {
                    self.runs.push(Taken::of(&judged));
                    return;
                }
                Some(reason) => reason,
            },
            Err(error) => error.to_string(),
        };
        self.left_out.push(LeftOut { path: path.display().to_string(), reason });
    }

    /// The lineages, and what has no say. A run that is there twice counts once.
    pub(super) fn into_lineages(mut self) -> (Vec<Lineage>, Vec<LeftOut>) {
        self.runs.sort_by(|a, b| moment(a).cmp(&moment(b)).then(a.run_id.cmp(&b.run_id)).then(a.path.cmp(&b.path)));
        let mut lineages: Vec<Vec<Taken>> = Vec::new();
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        for run in self.runs {
            if let Some(twin) = seen.insert(run.run_id.clone(), run.path.clone()) {
                let reason = format!("is the same run as {twin}");
                self.left_out.push(LeftOut { path: run.path, reason });
                continue;
            }
            match lineages.iter_mut().find(|lineage| belongs(&lineage[0], &run)) {
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

/// When a run began, on one clock; text that is no time stands as it is, after all others.
fn moment(run: &Taken) -> (bool, Option<jiff::Timestamp>, String) {
    match run.started_at.parse::<jiff::Timestamp>() {
        Ok(timestamp) => (false, Some(timestamp), String::new()),
        Err(_) => (true, None, run.started_at.clone()),
    }
}

fn why_not(judged: &Judged) -> Option<String> {
    let record = &judged.record;
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

fn belongs(first: &Taken, run: &Taken) -> bool {
    let unlike = |difference: &super::super::Difference| KEPT.contains(&difference.kind);
    first.suite == run.suite && !differences_between(&first.facts, &run.facts).iter().any(unlike)
}

impl Taken {
    fn of(judged: &Judged) -> Taken {
        let header = &judged.record.header;
        let (cases, _) = evidence(std::slice::from_ref(judged));
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
        Taken {
            path: judged.path.display().to_string(),
            run_id: header.run_id.clone(),
            started_at: header.started_at.clone(),
            suite: header.suite.name.clone(),
            facts: facts(judged),
            rows,
            rows_left_out,
        }
    }
}

fn lineage(runs: Vec<Taken>) -> Lineage {
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
    let suite = runs.first().map(|run| run.suite.clone()).unwrap_or_default();
    let told = runs.iter().enumerate().map(|(at, run)| {
        let before = at.checked_sub(1).map(|before| &runs[before]);
        SeriesRun {
            path: run.path.clone(),
            run_id: run.run_id.clone(),
            started_at: run.started_at.clone(),
            differences: before.map(|before| differences_told(before, run)).unwrap_or_default(),
            rows_left_out: run.rows_left_out,
        }
    });
    let told = told.collect();
    Lineage { suite, place, runs: told, rows, events: Vec::new() }
}

fn shortened(hosts: &str) -> String {
    let names: Vec<&str> = hosts.split(", ").collect();
    match names.as_slice() {
        [first, .., last] if names.len() > 4 => format!("{} hosts ({first} to {last})", names.len()),
        _ => hosts.to_owned(),
    }
}

fn differences_told(before: &Taken, run: &Taken) -> Vec<String> {
    differences_between(&before.facts, &run.facts)
        .into_iter()
        .map(|difference| format!("{}: {} before, {} now", difference.fact, difference.base, difference.new))
        .collect()
}
