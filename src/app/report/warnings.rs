//! Warnings about the numbers of a run, as sentences: its end, the machine, the clocks, excluded samples.

use super::row::Row;
use commgauge_analysis::verdict::TransientSlowdown;
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Seconds, three_digits};
use commgauge_model::record::Record;
use commgauge_model::record::line::{CaseLine, ClockLine, ClockMethod, End, EndStatus, StopReason};
use std::collections::{HashMap, HashSet};

/// All warnings except the reasons of single rows: end of the run, machine, clocks, excluded samples.
pub(super) fn of(record: &Record, rows: &[Row]) -> Vec<String> {
    let mut warnings = record.file.warnings.clone();
    let how = record.end.as_ref().and_then(|end| match end.status {
        EndStatus::Complete => None,
        EndStatus::Failed => Some("failed"),
        EndStatus::Interrupted => Some("was interrupted"),
        EndStatus::OutOfTime => Some("stopped before its time limit"),
    });
    if let (Some(how), Some(End { error, .. })) = (how, &record.end) {
        let why = error.as_deref().map_or_else(String::new, |error| format!(": {error}"));
        warnings.push(format!("the run {how}{why}"));
    }
    warnings.extend(record.header.warnings.iter().cloned());
    warnings.extend(clock_warning(&record.clocks, rows));
    let incomplete = rows.iter().filter(|row| row.is_incomplete()).map(|row| {
        let text = format!("{} of {} replicates measured", row.counts.replicates, row.counts.replicates_planned);
        CaseSentence { case: &row.facts.name, text }
    });
    let warned = rows
        .iter()
        .flat_map(|row| row.warnings.iter().map(|text| CaseSentence { case: &row.facts.name, text: text.clone() }));
    warnings.extend(gathered(incomplete.chain(warned)));
    warnings.extend(dropped_samples(rows));
    warnings.extend(not_precise(record, rows));
    let seconds = |line: &CaseLine| {
        let row = rows.get(line.case as usize)?;
        row.latency_seconds_of_replicate.get(&(line.replicate as usize)).copied()
    };
    warnings.extend(TransientSlowdown::of(record, seconds).map(|found| found.text));
    warnings
}

/// A sentence about one case.
struct CaseSentence<'a> {
    /// Its name.
    case: &'a str,
    text: String,
}

/// Sentences about single cases, grouped by kind: those that differ only in numbers are listed once, with the numbers of the
/// first and the number of cases.
fn gathered<'a>(sentences: impl Iterator<Item = CaseSentence<'a>>) -> Vec<String> {
    struct Kind<'a> {
        first: String,
        first_case: &'a str,
        cases: HashSet<&'a str>,
    }
    let mut kinds: Vec<Kind> = Vec::new();
    let mut place_of: HashMap<String, usize> = HashMap::new();
    for CaseSentence { case, text: sentence } in sentences {
        let key: String = sentence.chars().filter(|c| !c.is_ascii_digit()).collect();
        let place = *place_of.entry(key).or_insert_with(|| {
            kinds.push(Kind { first: sentence, first_case: case, cases: HashSet::new() });
            kinds.len() - 1
        });
        kinds[place].cases.insert(case);
    }
    let sentence = |kind: Kind| match kind.cases.len() {
        1 => format!("{}: {}", kind.first_case, kind.first),
        cases => format!("{cases} cases, the first {}: {}", kind.first_case, kind.first),
    };
    kinds.into_iter().map(sentence).collect()
}

/// The rows that did not reach the requested precision within the shared time budget.
fn not_precise(record: &Record, rows: &[Row]) -> Option<String> {
    let settings = &record.header.settings;
    let within = settings.within_seconds.filter(|_| !settings.soak)?;
    let wide = || rows.iter().filter(|row| row.is_less_precise_than_requested());
    let precision = |row: &Row| row.precision_reached.unwrap_or(f64::INFINITY);
    let widest = wide().max_by(|a, b| precision(a).total_cmp(&precision(b)))?;
    let reached = match widest.precision_reached {
        Some(reached) => format!("+-{} %", three_digits(reached * 100.0)),
        None => "too few samples for an interval".to_owned(),
    };
    let names: HashSet<&str> = wide().map(|row| row.facts.name.as_str()).collect();
    let is_full = |line: &CaseLine| line.stop == Some(StopReason::MaximumSamples) && names.contains(&*line.name);
    let full: HashSet<&str> = record.cases.iter().filter(|line| is_full(line)).map(|line| &*line.name).collect();
    let elapsed = record.end.as_ref().map_or(within, |end| end.elapsed_seconds);
    let why = match () {
        () if full.len() == names.len() => {
            format!(", with the most samples that a replicate takes, {}", settings.maximum_samples)
        }
        () if elapsed.0 < within.0 * MOST_OF_THE_TIME => {
            format!("; it ended after {elapsed}, as the rest is too short for a replicate of twice their samples")
        }
        () => String::new(),
    };
    let remedy =
        if full.len() == names.len() { String::new() } else { format!(". More time: --within {}", longer(within)) };
    Some(format!(
        "{} of {} rows did not reach the requested +-{} % within {within} (marked *){why}; the widest is {}: {reached}{remedy}",
        names.len(),
        rows.len(),
        three_digits(settings.precision * 100.0),
        widest.facts.name,
    ))
}

/// Share of a time budget that counts as all of it: some is kept for the work after the last case.
const MOST_OF_THE_TIME: f64 = 0.9;

/// Four times the duration, which halves the intervals, as the value of a flag.
fn longer(within: Seconds) -> String {
    let seconds = (within.0 * 4.0).ceil();
    if seconds >= 600.0 { format!("{}m", (seconds / 60.0).ceil()) } else { format!("{seconds}s") }
}

/// The number of excluded samples over all cases.
fn dropped_samples(rows: &[Row]) -> Option<String> {
    let share = |row: &Row| {
        row.counts.samples_excluded as f64 / (row.counts.samples + row.counts.samples_excluded).max(1) as f64
    };
    let dropped = rows.iter().filter(|row| row.counts.samples_excluded > 0);
    let worst = dropped.clone().max_by(|a, b| share(a).total_cmp(&share(b)))?;
    let (name, excluded) = (&worst.facts.name, worst.counts.samples_excluded);
    let samples = worst.counts.samples + excluded;
    Some(match dropped.clone().count() {
        1 => format!("{name}: {excluded} of {samples} samples are unreliable and left out"),
        cases => format!(
            "{} samples in {cases} cases are unreliable and left out; the largest share in {name}: {excluded} of {samples}",
            dropped.map(|row| row.counts.samples_excluded).sum::<u64>()
        ),
    })
}

fn clock_warning(clocks: &[ClockLine], rows: &[Row]) -> Option<String> {
    if !rows.iter().any(|row| row.facts.cadence == Cadence::Isolated && row.counts.samples > 0) {
        return None;
    }
    if clocks.is_empty() {
        return Some("the record has no data about the clocks, so no rank is named as late".to_owned());
    }
    if clocks.iter().any(|clock| clock.method == ClockMethod::Barrier) {
        return Some(AFTER_A_BARRIER.to_owned());
    }
    clock_remark(clocks, rows)
}

pub(super) const AFTER_A_BARRIER: &str =
    "isolated samples started after a barrier, not on a common clock; no rank is named as late";

/// How well the clocks agree, where there are several and they do.
pub(super) fn clock_remark(clocks: &[ClockLine], rows: &[Row]) -> Option<String> {
    let is_of_several =
        |row: &Row| row.facts.cadence == Cadence::Isolated && row.counts.samples > 0 && row.facts.group_size > 1;
    let isolated = rows.iter().any(is_of_several);
    if !isolated || clocks.iter().any(|clock| clock.method == ClockMethod::Barrier) {
        return None;
    }
    let residual = Seconds::from_nanoseconds(clocks.iter().map(|clock| clock.residual_nanoseconds).max()?);
    Some(format!("the ranks' clocks agree to {residual}; no smaller difference between ranks is reported"))
}
