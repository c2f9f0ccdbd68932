//! Labels that distinguish measurements of the same call beyond its type, place and cadence: algorithm, protocol, statistic,
//! placement of the buffers. Measurements with different labels never share a curve.

use super::curve_key::Labels;
use super::{CurveKey, Measured};
use commgauge_base::collective::Collective;
use commgauge_model::record::line::CaseFacts;
use std::collections::{BTreeMap, BTreeSet};

/// Whether the result replaces the input.
const PLACEMENT: &str = "placement";
/// How elements are combined.
const REDUCE_OP: &str = "reduce_op";
/// Defaults of a query without these labels: out-of-place buffers and sums, as in nccl-tests.
pub(super) const USUAL: [(&str, &str); 2] = [(PLACEMENT, "out-of-place"), (REDUCE_OP, "sum")];

/// Columns that differ between repetitions, or are the same in all records of a fit. All others are assumed to affect the
/// time.
const IGNORED_COLUMNS: [&str; 23] = [
    "system",
    "device",
    "run",
    "run_id",
    "replicate",
    "repetition",
    "iteration",
    "trial",
    "sample",
    "index",
    "date",
    "time",
    "timestamp",
    "job",
    "job_id",
    "host",
    "hostname",
    "user",
    "comment",
    "note",
    "source",
    "file",
    "line",
];

/// All labels of a case that may separate its curve from others.
pub(super) fn of_case(facts: &CaseFacts) -> Labels {
    let named = facts.labels.iter().filter(|(name, _)| !IGNORED_COLUMNS.contains(&name.to_ascii_lowercase().as_str()));
    let mut labels: Labels = named.map(|(name, text)| (name.clone(), text.clone())).collect();
    labels.insert(PLACEMENT.to_owned(), facts.placement.name().to_owned());
    labels.extend(facts.reduce_op.map(|op| (REDUCE_OP.to_owned(), op.name().to_owned())));
    labels
}

/// Drops the labels that are the same in every curve of their collective, since they separate nothing.
pub(super) fn drop_constant_labels(curves: BTreeMap<CurveKey, Measured>) -> BTreeMap<CurveKey, Measured> {
    let mut values: BTreeMap<(Collective, &str), BTreeSet<Option<&str>>> = BTreeMap::new();
    for key in curves.keys() {
        for name in key.family.labels.keys() {
            values.entry((key.family.collective, name)).or_default();
        }
    }
    for key in curves.keys() {
        for ((_, name), seen) in values.iter_mut().filter(|((collective, _), _)| *collective == key.family.collective) {
            seen.insert(key.family.labels.get(*name).map(String::as_str));
        }
    }
    let differ: BTreeSet<(Collective, String)> = values
        .iter()
        .filter(|(_, seen)| seen.len() > 1)
        .map(|((collective, name), _)| (*collective, (*name).to_owned()))
        .collect();
    let mut reduced: BTreeMap<CurveKey, Measured> = BTreeMap::new();
    for (mut key, measured) in curves {
        let collective = key.family.collective;
        key.family.labels.retain(|name, _| differ.contains(&(collective, name.clone())));
        let all = reduced.entry(key).or_default();
        for (bytes, times) in measured {
            all.entry(bytes).or_default().extend(times);
        }
    }
    reduced
}
