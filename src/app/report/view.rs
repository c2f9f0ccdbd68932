//! The contents of a report: a record turned into rows, findings and warnings. Formatting is in the renderers.

use super::contention::Contention;
use super::copies;
use super::devices;
use super::entry::Entry;
use super::interference::CallInterference;
use super::late::{self, Late};
use super::pairs::PairsView;
use super::products;
use super::provenance;
use super::row::Row;
use super::status::Status;
use super::step::StepView;
use commgauge_analysis::verdict::{Consistency, ConsistencyRule, Subject, Timed, TransientSlowdown};
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Seconds, three_digits};
use commgauge_model::record::Record;
use commgauge_model::record::calibration_line::CalibrationLine;
use commgauge_model::record::copy_times::CopyTime;
use commgauge_model::record::line::{CaseLine, ClockLine, ClockMethod, End, EndStatus, Header, Outcome};
use commgauge_model::record::product_times::ProductTime;
use commgauge_model::record::replay_line::ReplayLine;
use commgauge_model::workload::RankedStep;
use std::collections::{HashMap, HashSet};

/// Maximum number of self-consistency violations that are listed one by one.
const MAX_CONTRADICTIONS: usize = 5;
/// Insignificant violations are reported from this factor over the allowed time on.
const MIN_REPORTED_EXCESS: f64 = 1.5;

/// All contents of a report, in display order.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Where the numbers come from, as recorded.
    pub header: Header,
    /// The same for readers: label and text.
    pub provenance: Vec<(&'static str, String)>,
    /// Synchronisation of the clocks.
    pub clocks: Vec<ClockLine>,
    /// One row for each planned case, in the order of the plan.
    pub rows: Vec<Row>,
    /// The late rank of each row, if any.
    pub late: Vec<Option<Late>>,
    /// What each step costs, op by op; none where only sweeps were measured.
    pub steps: Vec<StepView>,
    /// Calls that were measured on all groups at once and on one alone.
    pub contention: Vec<Contention>,
    /// Calls that were measured alone and next to calls of another axis.
    pub interference: Vec<CallInterference>,
    /// The step whose parallelisms are ranked from measured calls.
    pub ranking: Option<RankedStep>,
    /// Steps that were replayed as a whole.
    pub replays: Vec<ReplayLine>,
    /// The pairs of ranks, where those were measured.
    pub pairs: Option<PairsView>,
    /// Findings beyond the rows, as sentences.
    pub findings: Vec<String>,
    /// The most severe of them: a slow pair, then calls that contradict each other, then a late rank.
    pub worst_finding: Option<String>,
    /// Warnings about the numbers, as sentences, without the reasons that are shown with the rows.
    pub warnings: Vec<String>,
    /// Every matrix product.
    pub products: Vec<ProductTime>,
    /// Every copy.
    pub copies: Vec<CopyTime>,
    /// Final state of a calibration run.
    pub calibration: Option<CalibrationLine>,
    /// How the run ended, if it has.
    pub end: Option<End>,
    /// True while the run is still running.
    pub running: bool,
    /// True where the digests of the record do not fit its lines.
    pub was_changed: bool,
}

impl View {
    /// Makes the view of a record.
    pub fn new(record: &Record) -> View {
        let mut lines_of_case: Vec<Vec<&CaseLine>> = vec![Vec::new(); record.plan.cases.len()];
        for line in &record.cases {
            if let Some(lines) = lines_of_case.get_mut(line.case as usize) {
                lines.push(line);
            }
        }
        let cases = || record.plan.cases.iter().zip(&lines_of_case);
        let mut rows: Vec<Row> = cases().map(|(facts, lines)| Row::merge(facts, lines, &record.header)).collect();
        let of_devices = devices::mark(record, &mut rows);
        let late: Vec<Option<Late>> =
            cases().map(|(facts, lines)| late::late_rank(record, lines, facts.cadence)).collect();
        let named = rows.iter().zip(&late).filter_map(|(row, late)| Some((row.facts.name.as_str(), late.as_ref()?)));
        let isolated = rows.iter().filter(|row| row.facts.cadence == Cadence::Isolated && row.samples > 0).count();
        let pairs = PairsView::new(record);
        let mut findings = late::findings(named, isolated);
        let of_pairs: Vec<String> = pairs.iter().flat_map(PairsView::findings).collect();
        let contradictions = contradictions(record, &rows);
        let worst_finding = of_pairs.first().or(contradictions.first()).or(findings.first()).cloned();
        findings.extend(of_pairs);
        findings.extend(contradictions);
        View {
            findings,
            worst_finding,
            pairs,
            warnings: warnings(record, &rows).into_iter().chain(of_devices).collect(),
            provenance: provenance::of(&record.header),
            header: record.header.clone(),
            clocks: record.clocks.clone(),
            steps: StepView::all_of(record, &rows),
            interference: CallInterference::all_of(record),
            ranking: record.plan.ranking.clone(),
            replays: record.replays.clone(),
            products: record.product_times(),
            copies: record.copy_times(),
            calibration: record.calibration.clone(),
            contention: Contention::all_of(&rows, &lines_of_case),
            rows,
            late,
            end: record.end.clone(),
            running: record.running,
            was_changed: record.seal.tampering().is_some(),
        }
    }

    /// Every call, then every copy, then every matrix product.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let copies = self.copies.iter().map(|time| (Subject::Copy(&time.copy), &time.times));
        let products = self.products.iter().map(|time| (Subject::Product(&time.product), &time.times));
        let own_work = copies.chain(products);
        let own_work = own_work.map(|(subject, times)| Entry::of_own_work(subject, times, &self.header));
        self.rows.iter().map(Entry::of_call).chain(own_work)
    }

    /// The warnings after which a complete run is not simply good: without the remark on the clocks, which every run with common
    /// starts has, without that of a simulation, which says so itself, and without the barrier that was asked for.
    pub fn serious_warnings(&self) -> impl Iterator<Item = &String> {
        let remark = clock_remark(&self.clocks, &self.rows);
        let is_synthetic = self.header.backend.synthetic;
        let is_requested = move |text: &str| !self.header.settings.start.is_synchronised() && text == AFTER_A_BARRIER;
        let is_serious = move |text: &&String| {
            remark.as_ref() != Some(*text) && !(is_synthetic && text.starts_with("synthetic")) && !is_requested(text)
        };
        self.warnings.iter().filter(is_serious)
    }

    /// The exit code of the record, the most severe first: 4 for wrong data, then the failure of the run itself (5, 6
    /// or 7) or 6 for a failed case, 7 where something planned was not measured or the record was changed, 0 where everything is complete and
    /// correct. Skipped cases do not matter.
    pub fn exit_code(&self) -> i32 {
        let any = |wanted: fn(&Status) -> bool| self.rows.iter().any(|row| wanted(&row.status));
        let ended = self.end.as_ref().map(|end| (end.status, end.exit_code));
        let wrong = any(|status| matches!(status, Status::Wrong { .. })) || self.any_other_outcome(is_corrupt);
        if wrong || matches!(ended, Some((_, 4))) {
            return 4;
        }
        match ended {
            Some((EndStatus::Failed, code @ 5..=7)) => return code,
            _ if any(|status| matches!(status, Status::Failed(_))) || self.any_other_outcome(is_failed) => return 6,
            Some((EndStatus::Complete, _)) if !self.was_changed => {}
            Some(_) | None => return 7,
        }
        let unmeasured = |entry: Entry| match *entry.status {
            Status::Skipped(_) => false,
            _ => entry.latency.is_none() || entry.is_incomplete(),
        };
        let nothing = self.entries().next().is_none();
        if nothing || self.entries().any(unmeasured) { 7 } else { 0 }
    }

    /// Whether a replay, a product, a copy or an interference measurement has such an outcome.
    fn any_other_outcome(&self, wanted: fn(&Outcome) -> bool) -> bool {
        let replays = self.replays.iter().map(|replay| &replay.outcome);
        let products = self.products.iter().filter_map(|product| product.times.trouble());
        let copies = self.copies.iter().filter_map(|copy| copy.times.trouble());
        replays
            .chain(products)
            .chain(copies)
            .chain(self.interference.iter().filter_map(|pair| pair.trouble.as_ref()))
            .any(wanted)
    }

    /// How products came out, and how copies did, where there are any.
    pub fn own_work(&self) -> Vec<String> {
        let both = [products::summary(&self.products, &self.header), copies::summary(&self.copies, &self.header)];
        both.into_iter().flatten().collect()
    }

    /// How many rows, products and copies there are of each kind, in one sentence.
    pub fn summary(&self) -> String {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for label in Status::LABELS {
            counts.push((label, self.rows.iter().filter(|row| row.status.label() == label).count()));
        }
        let parts: Vec<String> = counts
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(label, count)| format!("{count} {label}"))
            .collect();
        let cases = match self.rows.len() {
            1 => "1 case".to_owned(),
            cases => format!("{cases} cases"),
        };
        let cases = if parts.is_empty() { cases } else { format!("{cases}: {}", parts.join(", ")) };
        let others = self.own_work();
        let cases = (!self.rows.is_empty() || others.is_empty()).then_some(cases);
        cases.into_iter().chain(others).collect::<Vec<_>>().join("; ")
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

fn is_failed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed { .. })
}

fn is_corrupt(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Corrupt { .. })
}

/// All warnings except the reasons of single rows: end of the run, machine, clocks, excluded samples.
fn warnings(record: &Record, rows: &[Row]) -> Vec<String> {
    let mut warnings = record.warnings.clone();
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
        let text = format!("{} of {} replicates measured", row.replicates, row.replicates_planned);
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
    let within = settings.within_seconds?;
    let wide = || rows.iter().filter(|row| row.is_less_precise_than_requested());
    let precision = |row: &Row| row.precision_reached.unwrap_or(f64::INFINITY);
    let widest = wide().max_by(|a, b| precision(a).total_cmp(&precision(b)))?;
    let reached = match widest.precision_reached {
        Some(reached) => format!("+-{} %", three_digits(reached * 100.0)),
        None => "too few samples for an interval".to_owned(),
    };
    Some(format!(
        "{} of {} rows did not reach the requested +-{} % within {within} (marked *); the widest is {}: {reached}. More time: \
         --within {}",
        wide().count(),
        rows.len(),
        three_digits(settings.precision * 100.0),
        widest.facts.name,
        longer(within),
    ))
}

/// Four times the duration, which halves the intervals, as the value of a flag.
fn longer(within: Seconds) -> String {
    let seconds = (within.0 * 4.0).ceil();
    if seconds >= 600.0 { format!("{}m", (seconds / 60.0).ceil()) } else { format!("{seconds}s") }
}

/// The number of excluded samples over all cases.
fn dropped_samples(rows: &[Row]) -> Option<String> {
    let share = |row: &Row| row.samples_excluded as f64 / (row.samples + row.samples_excluded).max(1) as f64;
    let dropped = rows.iter().filter(|row| row.samples_excluded > 0);
    let worst = dropped.clone().max_by(|a, b| share(a).total_cmp(&share(b)))?;
    let (name, excluded) = (&worst.facts.name, worst.samples_excluded);
    let samples = worst.samples + excluded;
    Some(match dropped.clone().count() {
        1 => format!("{name}: {excluded} of {samples} samples are unreliable and left out"),
        cases => format!(
            "{} samples in {cases} cases are unreliable and left out; the largest share in {name}: {excluded} of {samples}",
            dropped.map(|row| row.samples_excluded).sum::<u64>()
        ),
    })
}

fn clock_warning(clocks: &[ClockLine], rows: &[Row]) -> Option<String> {
    if !rows.iter().any(|row| row.facts.cadence == Cadence::Isolated && row.samples > 0) {
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

const AFTER_A_BARRIER: &str =
    "isolated samples started after a barrier, not on a common clock; no rank is named as late";

/// How well the clocks agree, where they do.
fn clock_remark(clocks: &[ClockLine], rows: &[Row]) -> Option<String> {
    let isolated = rows.iter().any(|row| row.facts.cadence == Cadence::Isolated && row.samples > 0);
    if !isolated || clocks.iter().any(|clock| clock.method == ClockMethod::Barrier) {
        return None;
    }
    let residual = Seconds::from_nanoseconds(clocks.iter().map(|clock| clock.residual_nanoseconds).max()?);
    Some(format!("the ranks' clocks agree to {residual}; no smaller difference between ranks is reported"))
}
