//! What a record has of each thing that was planned: calls, copies and matrix products, replicate by replicate.

use super::Allowed;
use super::comparability::identities;
use super::subject::Subject;
use commgauge_base::stats::{median, sorted};
use commgauge_base::units::Seconds;
use commgauge_base::variant::LibraryChoice;
use commgauge_model::record::Record;
use commgauge_model::record::line::{CaseFacts, CaseLine, Outcome};
use std::collections::HashMap;

/// What a record has of something that was planned.
pub(super) struct Planned<'a> {
    pub subject: Subject<'a>,
    pub measurements: Vec<Measurement<'a>>,
    /// Place of a case in the plan.
    pub place: Option<u32>,
}

/// One replicate.
pub(super) struct Measurement<'a> {
    pub replicate: u32,
    pub outcome: &'a Outcome,
    pub warnings: &'a [String],
    /// The median of the samples that count.
    pub seconds: Option<f64>,
    pub samples: usize,
    pub excluded: usize,
    /// What the library said that it chose.
    pub chosen: Option<&'a LibraryChoice>,
}

impl<'a> Measurement<'a> {
    fn of_call(line: &'a CaseLine, facts: &CaseFacts) -> Measurement<'a> {
        let (seconds, excluded) = seconds_of(line, facts);
        let (replicate, outcome, warnings) = (line.replicate, &line.outcome, line.warnings.as_slice());
        let (samples, chosen) = (line.samples.slowest_nanoseconds.len(), line.library_choice.as_deref());
        Measurement { replicate, outcome, warnings, seconds, samples, excluded, chosen }
    }

    /// Of what each rank does by itself: of each sample the time of the slowest.
    fn of_own_work(replicate: u32, outcome: &'a Outcome, nanoseconds: &[u64]) -> Measurement<'a> {
        let times = sorted(nanoseconds.iter().map(|time| Seconds::from_nanoseconds(*time).0));
        let is_measured = matches!(outcome, Outcome::Measured { .. });
        let seconds = median(&times).filter(|middle| is_measured && *middle > 0.0);
        Measurement { replicate, outcome, warnings: &[], seconds, samples: times.len(), excluded: 0, chosen: None }
    }
}

/// The planned cases of a record, each with the name by which others are its replicates.
pub(super) fn calls<'a>(record: &'a Record, allowed: &[Allowed]) -> Vec<(String, Planned<'a>)> {
    let planned = &record.plan.cases;
    let mut measurements: Vec<Vec<Measurement>> = planned.iter().map(|_| Vec::new()).collect();
    for line in &record.cases {
        if let Some((facts, known)) = planned.get(line.case as usize).zip(measurements.get_mut(line.case as usize)) {
            known.push(Measurement::of_call(line, facts));
        }
    }
    let names = identities(planned.iter(), allowed);
    let all = (0u32..).zip(planned).zip(names.into_iter().zip(measurements));
    all.map(|((index, facts), (name, measurements))| {
        (name, Planned { subject: Subject::Call(facts), measurements, place: Some(index) })
    })
    .collect()
}

/// The copies and products of a record, in the order of first appearance: a plan only counts their lines.
pub(super) fn own_work(record: &Record) -> impl Iterator<Item = (String, Planned<'_>)> {
    let copies = record.copies.iter().map(|line| {
        let measured = Measurement::of_own_work(line.replicate, &line.outcome, &line.slowest_nanoseconds);
        (Subject::Copy(&line.copy), measured)
    });
    let products = record.products.iter().map(|line| {
        let measured = Measurement::of_own_work(line.replicate, &line.outcome, &line.slowest_nanoseconds);
        (Subject::Product(&line.product), measured)
    });
    let mut all: Vec<Planned> = Vec::new();
    let mut index_of: HashMap<String, usize> = HashMap::new();
    for (subject, measured) in copies.chain(products) {
        let at = *index_of.entry(subject.name().into_owned()).or_insert(all.len());
        if at == all.len() {
            all.push(Planned { subject, measurements: Vec::new(), place: None });
        }
        all[at].measurements.push(measured);
    }
    all.into_iter().map(|planned| (planned.subject.name().into_owned(), planned))
}

/// Median time of one transfer over the valid samples of a line, if it was measured, and the number of excluded samples.
pub(super) fn seconds_of(line: &CaseLine, facts: &CaseFacts) -> (Option<f64>, usize) {
    if !matches!(line.outcome, Outcome::Measured { .. }) {
        return (None, 0);
    }
    let times = line.seconds_per_transfer(facts);
    let left_out = line.samples.slowest_nanoseconds.len() - times.len();
    (median(&times).filter(|middle| *middle > 0.0), left_out)
}
