//! What a history keeps of a run: a median for each row, and the facts by which runs are told to be repetitions.

use super::super::comparability::{Facts, facts};
use super::super::evidence::{Evidence, evidence, names_to_match};
use super::super::loaded_record::LoadedRecord;
use super::super::{Allowed, RowSubject};
use clap::ValueEnum;
use commgauge_base::stats::median;
use commgauge_model::record::line::EndStatus;
use std::sync::Arc;

/// A row that runs have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct RowKey {
    /// Name of the case, copy or product, without versions: what a new one changes is what a history shows.
    pub name: String,
    /// What it is of.
    pub subject: RowSubject,
}

/// A run without its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct RunMedians {
    /// The record's file.
    pub path: String,
    /// Name of the run.
    pub run_id: String,
    /// When it began.
    pub started_at: String,
    /// Name of the suite.
    pub suite: String,
    /// Name of the backend.
    pub backend: String,
    /// Machine file of the run; empty where none was given.
    pub machine: String,
    /// What must be equal for runs to repeat one another, and what is worth knowing where it differs.
    pub facts: RunFacts,
    /// Median of the replicates in seconds, row by row; none where the row has no say.
    pub rows: Vec<(Arc<RowKey>, Option<f64>)>,
    /// Rows that have no say, for being missing, wrong, unverified or unreliable.
    pub rows_left_out: u32,
}

/// The facts of a run by which others are compared with it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFacts(pub(super) Facts);

impl RunFacts {
    /// The facts as kind, name and value.
    pub fn to_texts(&self) -> Vec<[String; 3]> {
        self.0.iter().map(|((kind, name), value)| [kind.name().to_owned(), name.clone(), value.clone()]).collect()
    }

    /// The facts of such texts; none where a kind is unknown.
    pub fn from_texts(texts: Vec<[String; 3]>) -> Option<RunFacts> {
        let fact = |[kind, name, value]: [String; 3]| Some(((Allowed::from_str(&kind, false).ok()?, name), value));
        texts.into_iter().map(fact).collect::<Option<Facts>>().map(RunFacts)
    }
}

impl RunMedians {
    /// The medians of a record, or why it has no say.
    pub fn of(loaded: &LoadedRecord) -> Result<RunMedians, String> {
        if let Some(reason) = reason_to_exclude(loaded) {
            return Err(reason);
        }
        let header = &loaded.record.header;
        let mut cases = evidence(std::slice::from_ref(loaded), &[]).cases;
        // As in a comparison: times are looked at, whoever checked the data.
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
        Some(end) if end.status == EndStatus::Failed => Some("is of a run that failed".to_owned()),
        // The foot of another tool's log is about all of its rows.
        Some(end) if record.header.backend.measured_by.is_some() && end.exit_code != 0 => {
            Some(end.error.clone().unwrap_or_else(|| "is of a run that did not end well".to_owned()))
        }
        _ => record.file.seal.tampering(),
    }
}
