//! What is wrong beyond single rows: slow pairs, calls that contradict each other, late ranks; as sentences.

use super::late;
use super::pairs::PairsView;
use super::row::Row;
use commgauge_analysis::verdict::{Consistency, ConsistencyRule, Timed};
use commgauge_base::sample::Cadence;
use commgauge_model::record::Record;

/// Maximum number of self-consistency violations that are listed one by one.
const MAX_CONTRADICTIONS: usize = 5;
/// Insignificant violations are reported from this factor over the allowed time on.
const MIN_REPORTED_EXCESS: f64 = 1.5;

/// Findings beyond the rows, as sentences.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// Every one.
    pub all: Vec<String>,
    /// The most severe: a slow pair, then calls that contradict each other, then a late rank.
    pub worst: Option<String>,
}

impl Findings {
    pub(super) fn new(record: &Record, rows: &[Row], pairs: Option<&PairsView>) -> Findings {
        let late = rows.iter().filter_map(|row| Some((row.facts.name.as_str(), row.late.as_ref()?)));
        let isolated = rows.iter().filter(|row| row.facts.cadence == Cadence::Isolated && row.counts.samples > 0);
        let late = late::findings(late, isolated.count());
        let of_pairs: Vec<String> = pairs.iter().flat_map(|pairs| pairs.findings()).collect();
        let contradictions = contradictions(record, rows);
        let worst = of_pairs.first().or(contradictions.first()).or(late.first()).cloned();
        Findings { all: [late, of_pairs, contradictions].concat(), worst }
    }
}

/// Calls that break a rule of self-consistency. Simulations are not checked.
fn contradictions(record: &Record, rows: &[Row]) -> Vec<String> {
    if record.header.backend.synthetic {
        return Vec::new();
    }
    let cases: Vec<Timed> = (rows.iter())
        .map(|row| Timed { facts: &row.facts, seconds: row.latency_seconds_of_replicate.clone() })
        .collect();
    let mut found = Consistency::of(&cases, ConsistencyRule::default());
    found.findings.retain(|finding| finding.certain || finding.times_allowed >= MIN_REPORTED_EXCESS);
    found.sentences(MAX_CONTRADICTIONS)
}
