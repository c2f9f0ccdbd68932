//! Measured times of records, grouped by curve. Nothing is fitted here.

use super::both_ways::{self, Exchanged};
use super::call_seconds::seconds;
use super::curve_key::{CurveKey, FamilyKey, Measured};
use super::document::Source;
use super::interference::{self, Ratios};
use super::overlap::{self, Replayed};
use super::{Place, labels};
use commgauge_base::error::{Error, Result};
use commgauge_base::geometry::Splits;
use commgauge_model::layout::Axis;
use commgauge_model::record::Record;
use commgauge_model::record::line::CaseFacts;
use std::collections::{BTreeMap, BTreeSet};

/// All measurements of some records.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    /// By curve.
    pub curves: BTreeMap<CurveKey, Measured>,
    /// Ratios of calls next to calls of other axes.
    pub(super) beside: Ratios,
    /// Replays of whole steps.
    pub(super) replayed: BTreeMap<Axis, Replayed>,
    /// Slowdowns of bidirectional messages.
    pub(super) exchanged: Exchanged,
    /// Whether no real time passed.
    pub synthetic: bool,
    /// The records.
    pub sources: Vec<Source>,
    /// What was skipped, as sentences.
    pub warnings: Vec<String>,
}

impl Measurements {
    /// Collects the measurements of records, each with its file name.
    ///
    /// # Errors
    /// A mismatch where the records come from different machines, or some are synthetic and some are not.
    pub fn of<'a>(records: impl IntoIterator<Item = (&'a str, &'a Record)>) -> Result<Measurements> {
        let mut all = Measurements::default();
        let mut machines: BTreeMap<String, String> = BTreeMap::new();
        let mut skipped: BTreeMap<String, u64> = BTreeMap::new();
        for (file, record) in records {
            let backend = &record.header.backend;
            for case in &record.plan.cases {
                machines.entry(machine(&record.header.backend.library, case)).or_insert_with(|| file.to_owned());
            }
            if !all.sources.is_empty() && all.synthetic != backend.synthetic {
                return Err(Error::mismatch(format!(
                    "{file}: some of the records are synthetic and some were measured; fit them one by one"
                )));
            }
            all.synthetic = backend.synthetic;
            all.sources.push(Source {
                file: file.to_owned(),
                run_id: record.header.run_id.clone(),
                backend: backend.name.clone(),
                library: backend.library.clone(),
            });
            all.warnings.extend(record.file.warnings.iter().map(|warning| format!("{file}: {warning}")));
            all.add(record, &mut skipped);
        }
        if machines.len() > 1 {
            let named: Vec<String> =
                machines.into_iter().map(|(machine, file)| format!("{machine} ({file})")).collect();
            return Err(Error::mismatch(format!(
                "the records come from different machines or libraries: {}; one fit is for one of them",
                named.join("; ")
            )));
        }
        all.curves = labels::drop_constant_labels(std::mem::take(&mut all.curves));
        all.warnings.extend(skipped.into_iter().map(|(reason, lines)| format!("left aside, {reason}: {lines}")));
        Ok(all)
    }

    fn add(&mut self, record: &Record, skipped: &mut BTreeMap<String, u64>) {
        interference::add(&mut self.beside, record);
        overlap::add(&mut self.replayed, record);
        both_ways::add(&mut self.exchanged, record);
        let corrupt: BTreeSet<u32> =
            record.cases.iter().filter(|line| line.outcome.is_wrong()).map(|line| line.case).collect();
        // The foot of another tool's log does not say which rows are wrong.
        let is_all_wrong =
            record.header.backend.measured_by.is_some() && record.end.as_ref().is_some_and(|end| end.exit_code == 4);
        for line in &record.cases {
            let Some(facts) = record.plan.cases.get(line.case as usize) else { continue };
            let reason = reason_to_skip(facts, &record.plan.cases)
                .or((is_all_wrong || corrupt.contains(&line.case)).then_some("data arrived wrong"));
            match (reason, seconds(facts, line)) {
                (None, Some(seconds)) => {
                    let measured = self.curves.entry(key(facts)).or_default();
                    measured.entry(facts.bytes_total.0).or_default().push(seconds);
                }
                (Some(reason), _) => *skipped.entry(reason.to_owned()).or_default() += 1,
                (None, None) => *skipped.entry("no sample above zero".to_owned()).or_default() += 1,
            }
        }
    }

    /// Keeps only the measurements that `keep` accepts, so that a fit can be tested on the others.
    pub fn retain(&mut self, keep: impl Fn(&CurveKey, u64) -> bool) {
        for (key, measured) in &mut self.curves {
            measured.retain(|bytes, _| keep(key, *bytes));
        }
        self.curves.retain(|_, measured| !measured.is_empty());
    }
}

/// What must be the same in all records of a fit.
fn machine(library: &str, case: &CaseFacts) -> String {
    let labels = ["system", "device"].into_iter().filter_map(|name| case.labels.get(name).map(String::as_str));
    labels.chain([library]).collect::<Vec<_>>().join(", ")
}

fn reason_to_skip(facts: &CaseFacts, all: &[CaseFacts]) -> Option<&'static str> {
    let uneven = facts.splits.as_ref().is_some_and(|splits| *splits != Splits::Equal);
    // With one group on each host, alone and all at once are the same place, and only the second occurs in training.
    let with_all = facts.solo_of.and_then(|all_at_once| all.get(all_at_once as usize));
    let same_place = with_all.is_some_and(|with_all| Place::of(&with_all.locality) == Place::of(&facts.locality));
    match facts {
        _ if same_place => Some("one group alone where each host has but one"),
        _ if facts.bytes_total.0 == 0 => Some("no bytes are moved"),
        _ if facts.group_size < 2 => Some("a group of one rank"),
        _ if uneven => Some("blocks of different length"),
        _ => None,
    }
}

fn key(facts: &CaseFacts) -> CurveKey {
    let family = FamilyKey {
        collective: facts.collective,
        element_type: facts.collective.reduces().then_some(facts.element_type),
        cadence: facts.cadence,
        place: Place::of(&facts.locality),
        labels: labels::of_case(facts),
    };
    CurveKey { family, ranks: facts.group_size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_model::record::Line;

    fn sample(change: impl Fn(&mut Record)) -> Record {
        let lines = include_str!("../../../tests/data/sample-record.jsonl").lines();
        let lines: Vec<Line> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut record = Record::from_lines(lines).unwrap();
        change(&mut record);
        record
    }

    #[test]
    fn records_that_do_not_belong_together_are_refused() {
        let measured = sample(|_| {});
        for (other, reason) in [
            (sample(|record| record.header.backend.synthetic = true), "some of the records are synthetic"),
            (
                sample(|record| record.header.backend.library = "NCCL 2.27".to_owned()),
                "different machines or libraries",
            ),
            (
                sample(|record| {
                    record.plan.cases[0].labels.insert("system".to_owned(), "h100".to_owned());
                }),
                "h100, Open MPI",
            ),
        ] {
            let error = Measurements::of([("a", &measured), ("b", &other)]).unwrap_err();
            assert_eq!(error.exit_code(), 7);
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn lines_without_a_time_are_skipped_and_counted() {
        let measurements = Measurements::of([("sample", &sample(|_| {}))]).unwrap();
        let warnings = measurements.warnings.join("\n");
        for reason in ["data arrived wrong: ", "no bytes are moved: "] {
            assert!(warnings.contains(reason), "{warnings}");
        }
        let times: Vec<f64> =
            measurements.curves.values().flat_map(|curve| curve.values().flatten().copied()).collect();
        assert!(!times.is_empty() && times.iter().all(|seconds| *seconds > 0.0 && *seconds < 1.0), "{times:?}");
        assert!(!measurements.synthetic);
    }

    #[test]
    fn a_synthetic_record_stays_so() {
        let synthetic = sample(|record| record.header.backend.synthetic = true);
        assert!(Measurements::of([("sample", &synthetic)]).unwrap().synthetic);
    }
}
